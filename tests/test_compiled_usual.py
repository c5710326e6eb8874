"""Calls like the ones before (runtime/replay/frame_usual.py): what they share must not show, and what differs must be
seen.

Every scenario calls one function often enough to get there, with one call, the eighth, that does something else.
"""

import gc
import threading
import weakref

import numpy as np
import pytest
from compiled_twin import error_of, leaf, twin

import weft
from weft import nn, randn
from weft.nn import functional as F
from weft.runtime.replay import frame_usual, native, native_words

N_CALLS, ODD_CALL = 12, 7


@pytest.fixture
def frames(monkeypatch):
    """How many calls began as usual, and how many of these departed."""
    counts = {"usual": 0, "departed": 0}

    def counted(result):
        counts["usual"] += result is not frame_usual.NOT_STARTED
        return result

    class Counted(frame_usual.UsualFrame):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            for name in ("call", "call_in_python"):
                call = getattr(self, name)
                setattr(self, name, lambda *arguments, call=call: counted(call(*arguments)))

        def depart(self, **how):
            counts["departed"] += self._real is None
            return super().depart(**how)

    monkeypatch.setattr(frame_usual, "UsualFrame", Counted)
    return counts


def network(optimizer=weft.optim.SGD, **options):
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return model, optimizer(model.parameters(), **(options or {"lr": 0.1, "momentum": 0.9}))


def training_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def batch(k, n=4):
    weft.manual_seed(k)
    return randn(n, 6), weft.tensor(np.arange(n) % 3)


# --- that it is used ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [weft.optim.SGD, weft.optim.Adam, weft.optim.AdamW])
def test_training_steps_become_usual(frames, make):
    model, optimizer = network(make, lr=0.1)
    step = weft.compile(training_step(model, optimizer))
    for k in range(N_CALLS):
        step(*batch(k))
    assert frames["usual"] >= 6 and frames["departed"] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x * w + 1.5).sum().detach() * 2,
        lambda x, w: (x.reshape(-1)[1:] * 2).sum() + (x.t() @ w.detach()).sum() * 0.5,
        lambda x, w: x * weft.ones(3, 3) + weft.rand(3, 3),
        lambda x, w: F.dropout(x.exp(), 0.5),
    ],
)
def test_other_functions_become_usual(frames, function):
    f, w = weft.compile(weft.no_grad()(lambda x: function(x, w))), leaf(3, 3)
    for _ in range(N_CALLS):
        f(weft.ones(3, 3))
    assert frames["usual"] >= 6 and frames["departed"] == 0


def test_training_steps_with_views_become_usual(frames):
    model, optimizer = network()

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.reshape(4, 3, 2).flatten(1)).view(4, 3), y)
        loss.backward()
        optimizer.step()
        return loss

    step = weft.compile(step)
    for k in range(N_CALLS):
        step(*batch(k))
    assert frames["usual"] >= 6 and frames["departed"] == 0


@pytest.mark.parametrize("odd", [2**63, 2**64 - 1, -(2**63) - 1, 10**400, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("odd_call", [0, 1, ODD_CALL])
def test_integers_beyond_64_bits(odd, odd_call):
    def scenario(compile):
        f, g = compile(lambda x, n: x * n), compile(lambda x, y, n: (y + 1, y + n, x - 1.0))
        for k in range(N_CALLS):
            n = odd if k == odd_call else 3
            yield error_of(f, *batch(k)[:1], n), error_of(g, *batch(k), n)

    twin(scenario)()


@twin
def test_training_with_views(compile):
    model, optimizer = network()

    def step(x, y):
        optimizer.zero_grad()
        weight = model[0].weight.t() if calls[0] == ODD_CALL else None
        loss = F.cross_entropy(model(x.reshape(4, 3, 2).flatten(1)).view(4, 3), y)
        loss.backward()
        optimizer.step()
        return loss, weight

    step, calls = compile(step), [0]
    for k in range(N_CALLS):
        calls[0] = k
        yield error_of(step, *batch(k)), list(model.parameters())


def test_a_usual_call_makes_no_frame(monkeypatch):
    model, optimizer = network()
    step = weft.compile(training_step(model, optimizer))
    for k in range(8):
        step(*batch(k))
    monkeypatch.setattr("weft.runtime.replay.usual_depart.Frame", None)
    monkeypatch.setattr("weft.compiled.Frame", None)
    assert step(*batch(9)).item() > 0


# --- that the same is computed --------------------------------------------------------------------------------------
@twin
def test_training(compile):
    for make in (weft.optim.SGD, weft.optim.Adam):
        model, optimizer = network(make, lr=0.1)
        step = compile(training_step(model, optimizer))
        for k in range(N_CALLS):
            yield step(*batch(k)), list(model.parameters())


@twin
def test_rates_change(compile):
    model, optimizer = network()
    schedule = weft.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    step = compile(training_step(model, optimizer))
    for k in range(N_CALLS):
        yield step(*batch(k)), list(model.parameters())
        schedule.step()


@twin
def test_numbers_keep_their_sign_and_kind(compile):
    f = compile(lambda x, n: x * n)
    for n in (1.0, 2.0, 0.5, 1.5, 0.0, -0.0, 0.0, 3.0, 2, True, -0.0, float("nan"), 4.0, 5.0):
        yield f(weft.ones(2), n)


@twin
def test_another_shape_in_between(compile):
    model, optimizer = network()
    step = compile(training_step(model, optimizer))
    for k in range(N_CALLS):
        yield step(*batch(k, 2 if k == ODD_CALL else 4)), list(model.parameters())


# --- what one call does differently -----------------------------------------------------------------------------------
def odd_call(change):
    """A test of a training step in which `change(place, values)` may do anything in one call."""

    def scenario(compile):
        model, optimizer = network()
        kept, calls = [], [0]

        def step(x, y):
            odd = calls[0] == ODD_CALL
            at = (lambda place, *values: change(place, kept, *values)) if odd else lambda *_: None
            optimizer.zero_grad()
            hidden = model[1](model[0](x))
            at("hidden", hidden, model)
            loss = F.cross_entropy(model[2](hidden), y)
            at("loss", loss, model)
            loss.backward()
            at("backward", loss, model)
            optimizer.step()
            at("end", loss, model)
            return loss

        step = compile(step)
        for k in range(N_CALLS):
            calls[0] = k
            yield error_of(step, *batch(k)), kept, list(model.parameters())

    return twin(scenario)


def _keep(place, kept, value, model):
    kept.append(value)


def _read(place, kept, value, model):
    kept.append(value.sum().item())


def _compute(place, kept, value, model):
    kept.append((value * 2.0).detach())


def _raise_at(where):
    def change(place, kept, value, model):
        if place == where:
            raise KeyError(place)

    return change


def _read_parameter(place, kept, value, model):
    kept.append(model[0].weight.detach().numpy().copy())


def _replace_data(place, kept, value, model):
    if place in ("hidden", "backward"):
        model[2].weight.data = model[2].weight.detach() * 0.5


def _change_parameter(place, kept, value, model):
    with weft.no_grad():
        model[2].bias.add_(1.0)


def _assign_gradient(place, kept, value, model):
    if place == "backward":
        model[0].weight.grad = weft.ones(5, 6)


def _hook(place, kept, value, model):
    if place == "hidden":
        value.register_hook(lambda g: g * 2)


def _freeze(place, kept, value, model):
    if place == "hidden":
        model[2].bias.requires_grad_(False)
    if place == "end":
        model[2].bias.requires_grad_()


def _second_backward(place, kept, value, model):
    if place == "end":
        kept.append(error_of(value.backward))


test_results_are_kept = odd_call(_keep)
test_values_are_read = odd_call(_read)
test_more_is_computed = odd_call(_compute)
test_an_exception_in_the_forward = odd_call(_raise_at("hidden"))
test_an_exception_before_the_update = odd_call(_raise_at("backward"))
test_an_exception_at_the_end = odd_call(_raise_at("end"))
test_parameters_are_read = odd_call(_read_parameter)
test_data_is_replaced = odd_call(_replace_data)
test_parameters_are_changed = odd_call(_change_parameter)
test_gradients_are_assigned = odd_call(_assign_gradient)
test_hooks_are_registered = odd_call(_hook)
test_parameters_are_frozen = odd_call(_freeze)
test_backward_again_inside = odd_call(_second_backward)


@twin
def test_gradients_are_kept_for_once(compile):
    model, optimizer = network()
    plain = training_step(model, optimizer)
    calls = [0]

    def step(x, y):
        if calls[0] == ODD_CALL:
            optimizer.zero_grad = lambda: None
        return plain(x, y)

    step, zero_grad = compile(step), optimizer.zero_grad
    for k in range(N_CALLS):
        calls[0], optimizer.zero_grad = k, zero_grad
        yield step(*batch(k)), [p.grad for p in model.parameters()], list(model.parameters())


@twin
def test_an_argument_shares_memory(compile):
    w = leaf(4)
    optimizer = weft.optim.SGD([w], lr=0.1)

    def f(x):
        optimizer.zero_grad()
        (x * w).sum().backward()
        optimizer.step()
        return x * 2

    f = compile(f)
    for k in range(N_CALLS):
        yield f(w.detach() if k == ODD_CALL else randn(4)), w


@twin
def test_one_argument_twice(compile):
    f = compile(lambda x, y: x * y + y)
    for k in range(N_CALLS):
        x = randn(3)
        yield f(x, x if k == ODD_CALL else randn(3)), f(x.t() if k == ODD_CALL else x, x)


@twin
def test_other_kinds_of_arguments(compile):
    f = compile(lambda x, scale: x * scale if not isinstance(scale, list) else x * scale[0])
    for k in range(N_CALLS):
        yield f(randn(3, 2).t() if k == ODD_CALL else randn(2, 3), [1.5] if k == ODD_CALL + 1 else 2.0)


@twin
def test_an_index_is_out_of_range(compile):
    model, optimizer = network()
    step = compile(training_step(model, optimizer))
    for k in range(N_CALLS):
        x, y = batch(k)
        # A compiled call that fails takes back that it dropped the gradients; an eager one has dropped them already.
        yield error_of(step, x, y * 5 if k == ODD_CALL else y), [p.detach() for p in model.parameters()]


@twin
def test_a_parameter_gets_other_memory(compile):
    model, optimizer = network()
    step = compile(training_step(model, optimizer))
    for k in range(N_CALLS):
        if k == ODD_CALL:
            model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})
            model[0].bias.data = weft.ones(5)
        yield step(*batch(k)), list(model.parameters())


@twin
def test_results_have_their_history(compile):
    # The backward in the call has freed it, as in eager mode.
    model, optimizer = network()
    step = compile(training_step(model, optimizer))
    for k in range(N_CALLS):
        loss = step(*batch(k))
        node = loss.grad_fn
        yield loss, type(node).__name__, [type(n).__name__ for n, _ in node.next_functions]
        yield error_of(loss.backward), error_of((loss * 2).backward), loss.detach()


@twin
def test_gradient_modes_alternate(compile):
    w = leaf(3)
    f = compile(lambda x: (x * w).sum())
    for k in range(N_CALLS):
        with weft.set_grad_enabled(k == ODD_CALL):
            yield f(weft.ones(3))


@twin
def test_results_live_on(compile):
    f = compile(lambda x: (x + 1, x * 2))
    yield [f(weft.full((3,), float(k))) for k in range(N_CALLS)]


# --- what must not be shared ------------------------------------------------------------------------------------------
def test_a_watched_tensor_dies():
    seen = []

    def f(x):
        y = x * 2
        seen.append(weakref.ref(y))
        return y + 1

    f = weft.compile(f)
    for _ in range(N_CALLS):
        f(weft.ones(3))
    gc.collect()
    assert [r() for r in seen] == [None] * N_CALLS


def test_arguments_and_results_are_let_go():
    f = weft.compile(lambda x: x.reshape(-1) * 2)
    seen = []
    for _ in range(N_CALLS):
        x = weft.ones(3)
        y = f(x)
        seen += [weakref.ref(x), weakref.ref(y)]
        del x, y
        assert seen[-1]() is None and seen[-2]() is None


def test_a_gradient_assigned_to_a_result_inside_does_not_come_back():
    def f(x):
        y = x * 2
        assert y.grad is None
        if len(calls) == ODD_CALL:
            y.grad = weft.ones(3)
        return y.sum()

    f, calls = weft.compile(f), []
    for _ in range(N_CALLS):
        f(weft.ones(3))
        calls.append(1)


def test_threads_share_a_function():
    f = weft.compile(lambda x: (x * 2 + 1).sum())
    for _ in range(6):
        f(weft.ones(3))
    wrong = []

    def run(value):
        x = weft.full((3,), value)
        for _ in range(300):
            if f(x).item() != 6 * value + 3:
                wrong.append(value)

    threads = [threading.Thread(target=run, args=(float(k),)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_two_paths_in_turn_do_not_wear_out(frames):
    f = weft.compile(lambda x, k: x * 2 if k % 2 else x + 2)
    for k in range(40):
        assert f(weft.ones(2), k).tolist() == ([2.0, 2.0] if k % 2 else [3.0, 3.0])
    assert frames["usual"] > 30
    assert frames["departed"] < 6


@twin
def test_leaves_made_inside(compile):
    def f(x):
        w = weft.full((3,), 2.0, requires_grad=True)
        loss = (x * w).sum()
        loss.backward()
        return loss, w.grad

    f = compile(f)
    for _ in range(N_CALLS):
        loss, grad = f(randn(3))
        yield loss, grad, type(loss.grad_fn.next_functions[0][0]).__name__


def test_a_program_that_cannot_run_changes_nothing(monkeypatch):
    model, optimizer = network()
    step = weft.compile(training_step(model, optimizer))
    for k in range(8):
        step(*batch(k))
    before = [(p._data.tolist(), p.grad._data.tolist()) for p in model.parameters()]
    usual = step.recordings[0].usual

    def fail(*_):
        raise MemoryError("no memory for a result")

    monkeypatch.setattr(usual, "_run", fail)
    replay = vars(usual).get("_native")
    if replay is not None:
        # Every array of before is in use, and where a new one should come from there is a function that only raises.
        word, replay.words[native_words.NEW_ARRAY] = native._new_array_address(), native._address("PyErr_NoMemory")
        used = [list(x) for x in replay.held if isinstance(x, list)]
    with pytest.raises(MemoryError):
        step(*batch(9))
    for p, (value, grad) in zip(model.parameters(), before):
        assert p.tolist() == value and p.grad.tolist() == grad
    monkeypatch.undo()
    if replay is not None:
        replay.words[native_words.NEW_ARRAY] = word
        del used
    assert step(*batch(9)).item() > 0
