"""What compiled calls keep alive, how many recordings they make, threads, copies."""

import copy
import gc
import pickle
import threading
import warnings
import weakref
from contextlib import suppress

import pytest
from compiled_twin import assert_same, error_of, leaf

import weft
from weft import nn, optim, randn
from weft.runtime.programs.recording import MAX_BRANCHES
from weft.runtime.replay import native_making
from weft.runtime.replay.frame_usual import UsualFrame
from weft.runtime.state.modes import state


@pytest.fixture
def without_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def n_programs(function):
    return sum(len(r.programs) for r in function.recordings)


def trained(module):
    optimizer = optim.Adam(module.parameters(), lr=0.01)

    @weft.compile
    def step(x):
        loss = module(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


# --- lifetime -------------------------------------------------------------------------------------------------------
def test_results_and_arguments_die_without_the_garbage_collector(without_gc):
    w = leaf(3)
    f = weft.compile(lambda x: (w * x).exp())
    for _ in range(2):
        x = randn(3)
        y = f(x)
        argument, result = weakref.ref(x), weakref.ref(y)
        del x
        assert argument() is not None  # w's gradient needs it
        del y
        assert argument() is None and result() is None


# What a call keeps of its result as a state, and what the next one is given of that.
STATES = {
    "detached": (lambda h: h.detach(), lambda state: state),
    "its row": (lambda h: h.detach(), lambda state: state[1]),
    "a row, detached": (lambda h: h[0].detach(), lambda state: state),
    "the row of what is detached": (lambda h: h.detach()[1], lambda state: state),
    "both": (lambda h: (h.detach(), h.detach().view(-1)[4:8]), lambda state: state[1] if len(state) == 2 else state),
    "of a result that nobody has": (lambda h: (h * 2).detach().t(), lambda state: state.t()),
}


@pytest.mark.parametrize("keep, give", STATES.values(), ids=STATES)
def test_a_state_that_is_detached_keeps_nothing_of_the_calls_before(keep, give, without_gc):
    """It was a view of the result, which has the call's arguments for its derivative: so of all states before. Here
    nothing is differentiated, and nobody says no_grad()."""
    w, state, results = leaf(4), [weft.zeros(4, 4)], []

    @weft.compile
    def step(x):
        h = (w * x).tanh().expand(4, 4) * 1.0
        state[0] = keep(h)
        return h

    for _ in range(14):
        given = give(state[0])
        results.append(weakref.ref(step(given)))
        results.append(weakref.ref(given))
        del given
    assert [ref() is None for ref in results[:-2]] == [True] * 26


def test_views_of_what_is_detached_are_views_of_that_and_of_nothing_else():
    def with_views(x):
        h = w * x
        cut = h.detach()
        return h, cut, cut[1], h[2].detach().view(2, 2), h.view(-1)

    w = leaf(3, 4)
    step = weft.compile(with_views)
    for _ in range(6):
        h, cut, row, apart, flat = step(randn(3, 4))
        assert cut._base is None and row._base is cut and apart._base is None and flat._base is h
        version = h._version
        row.zero_()
        apart.add_(1.0)
        assert [t._version - version for t in (h, cut, row, apart, flat)] == [2] * 5
        assert h.grad_fn.name() == "MulBackward0" and not h[1].any() and not cut[1].any()


def test_a_backward_lets_go_of_what_was_saved(without_gc):
    w = leaf(3)
    f = weft.compile(lambda x: (w * x).exp().sum())
    for _ in range(2):
        x = randn(3)
        argument = weakref.ref(x)
        y = f(x)
        del x
        y.backward()
        assert y._frame is None or not y._frame.arrays
        del y
        assert argument() is None


LOSSES = {
    "of a batch": (lambda x, w: x, lambda x, w: (w * x).sin().sum()),
    "of what has a history": (lambda x, w: x * w, lambda h, w: (h * h).sum()),
    "of a leaf": (lambda x, w: x.requires_grad_(), lambda x, w: (w * x).sin().sum()),
    "with what it was found from": (lambda x, w: x, lambda x, w: ((h := (w * x).sin()).sum(), h.detach(), h * 2.0)),
}
AFTERWARDS = {
    "nothing": lambda loss, w: None,
    "once more": lambda loss, w: error_of(lambda: loss.backward()),
    "a hook": lambda loss, w: error_of(lambda: loss.register_hook(lambda g: None)) and None,
    "a change": lambda loss, w: loss.mul_(2.0).grad_fn.name(),
    "nodes": lambda loss, w: [node.name() for node, _ in loss.grad_fn.next_functions],
    "used": lambda loss, w: error_of(lambda: weft.autograd.grad(loss * 2.0, w)),
    "a part": lambda loss, w: error_of(lambda: weft.autograd.grad(loss, loss)),
}


@pytest.mark.parametrize("prepare, compute", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("ask", AFTERWARDS.values(), ids=AFTERWARDS)
def test_losses_that_are_kept_keep_no_batches(prepare, compute, ask, without_gc):
    """After the backward: a list of losses was one of all that they were computed from."""

    def scenario(compile):
        weft.manual_seed(0)
        f, w, losses = compile(compute), leaf(3), []
        for _ in range(7):
            x = randn(2, 3)
            given = prepare(x, w)
            result = f(given, w)
            loss = result[0] if isinstance(result, tuple) else result
            loss.backward()
            yield w.grad.clone(), ask(loss, w)
            batches = [weakref.ref(one) for one in (x, given) if not (one.requires_grad and one.is_leaf)]
            losses.append(loss)
            del x, given, result, loss
            yield [batch() is None for batch in batches]
        yield losses

    assert_same(lambda compile: list(scenario(compile)))


def test_gradients_with_a_graph_into_a_gradient_that_is_never_cleared_keep_no_tensors():
    """The graph of the gradient grows, and what has been freed in it holds nothing any more."""
    w, counts = leaf(3, 4), []
    f = weft.compile(lambda x: (w * w).square().mean() + x.sum())
    for _ in range(16):
        f(randn(3, 4)).backward(create_graph=True)
        with suppress(RuntimeError):
            w.grad.sum().backward()
        gc.collect()
        counts.append(sum(isinstance(x, weft.Tensor) for x in gc.get_objects()))
    assert counts[-1] == counts[-5]
    w.grad = None


def test_intermediate_values_die(without_gc):
    seen = []

    def f(x):
        y = x * 2
        seen.append(weakref.ref(y))
        return (y + 1).sum()

    f = weft.compile(f)
    for _ in range(3):
        f(randn(3))
    assert [r() for r in seen] == [None] * 3


def test_a_module_dies_with_its_step():
    module = nn.Linear(3, 2)
    step = trained(module)
    for _ in range(3):
        step(randn(4, 3))
    weight = weakref.ref(module.weight)
    del module, step
    gc.collect()
    assert weight() is None


def test_repeated_calls_make_no_new_objects():
    step = trained(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    w = leaf(3)
    outside = weft.compile(lambda x: (w * x).exp().sum())
    x = randn(8, 4)

    def work():
        step(x)
        outside(x[0, :3]).backward()
        w.grad = None

    for _ in range(20):
        work()
    gc.collect()
    before, programs = len(gc.get_objects()), (n_programs(step), n_programs(outside))
    for _ in range(50):
        work()
    gc.collect()
    assert len(gc.get_objects()) - before < 50
    assert (n_programs(step), n_programs(outside)) == programs


# --- how often something is recorded ---------------------------------------------------------------------------------
def test_floats_are_run_time_values():
    f = weft.compile(lambda x, a: x * a + a)
    for k in range(10):
        assert f(weft.ones(2), 0.5 * k).tolist() == [k, k]
    assert len(f.recordings) == 1 and f.recordings[0].n_branches == 1 and n_programs(f) == 1


def test_a_learning_rate_schedule_does_not_compile_again():
    w = leaf(3)
    optimizer = optim.SGD([w], lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    @weft.compile
    def step(x):
        loss = (w * x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for k in range(10):
        step(randn(3))
        scheduler.step()
        if k == 2:
            warm = n_programs(step)
    assert n_programs(step) == warm and len(step.recordings) == 1


def test_shapes_types_and_modes_are_signatures():
    f = weft.compile(lambda x: x * 2)
    for x in (randn(3), randn(4), randn(3, dtype=weft.float64), leaf(3), randn(3)):
        f(x)
    with weft.no_grad():
        f(leaf(3))
    assert len(f.recordings) == 5
    assert "x: float32[3] -> float32[4]" in f.explain()


def test_paths_are_capped_and_the_rest_runs_eagerly():
    x = randn(2 * MAX_BRANCHES, 3)
    f = weft.compile(lambda k: x.roll(k, 0) * 2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(2 * MAX_BRANCHES):
            assert weft.equal(f(k), x.roll(k, 0) * 2)
    (said,) = said  # once, at the call, with what changes
    assert said.category is RuntimeWarning and said.filename == __file__
    assert f"compiled for {MAX_BRANCHES} paths" in str(said.message) and f"{__file__}:" in str(said.message)
    assert "other calls did roll with another cuts" in str(said.message)
    assert f.recordings[0].n_branches == MAX_BRANCHES
    assert f"more than {MAX_BRANCHES} paths were recorded" in f.explain()


def test_two_branches_are_two_paths():
    f = weft.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    for _ in range(3):
        assert f(weft.ones(2)).tolist() == [2, 2]
        assert f(-weft.ones(2)).tolist() == [-2, -2]
    assert f.recordings[0].n_branches == 2
    assert "a value was read before the call ended" in f.explain()


# --- errors ---------------------------------------------------------------------------------------------------------
def test_an_exception_leaves_no_open_call():
    f = weft.compile(lambda x: x.no_such_thing)
    with pytest.raises(AttributeError):
        f(randn(2))
    assert state.frame is None
    assert (randn(2) * 2).shape == (2,)


def test_a_bad_index_raises_as_in_eager_mode_and_changes_nothing():
    w, n = randn(4), weft.zeros(())

    def f(i):
        n.add_(1.0)
        return w[i] * 2

    f = weft.compile(f)
    for i in ([0], [3], [-4]):
        assert weft.equal(f(weft.tensor(i)), w[i] * 2)
    for i in ([4], [-5]):
        with pytest.raises(IndexError):
            f(weft.tensor(i))
    assert n.item() == 3.0
    assert weft.equal(f(weft.tensor([1])), w[[1]] * 2)


# --- threads --------------------------------------------------------------------------------------------------------
def in_threads(work, count=4):
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []


def test_threads_call_functions_of_their_own():
    functions = [weft.compile(lambda x, k=k: (x * k).exp().sum()) for k in range(4)]
    x = randn(20, 20)

    def work(k):
        for _ in range(50):
            assert weft.equal(functions[k](x), (x * k).exp().sum())

    in_threads(work)


def test_threads_call_the_same_function():
    w = randn(30, 30)
    shared = weft.compile(lambda x, scale: ((x * scale).tanh() @ w).sum())

    def work(k):
        x = randn(30, 30)
        expected = ((x * float(k)).tanh() @ w).sum()
        for n in range(50):
            assert weft.equal(shared(x, float(k)), expected)
            if n % 10 == 0:
                shared(randn(n + 1, 30), 1.0)

    in_threads(work)


# --- copies ---------------------------------------------------------------------------------------------------------
def test_a_compiled_module_is_copied_with_its_module():
    compiled = weft.compile(nn.Linear(2, 2))
    x = randn(1, 2)
    before = compiled(x)
    twin = copy.deepcopy(compiled)
    with weft.no_grad():
        twin.weight.zero_()
    assert weft.equal(compiled(x), before)
    assert twin(x).tolist() == [twin.bias.tolist()]


def module_level(x):
    return x * 2


def test_a_compiled_function_is_pickled_by_name():
    f = weft.compile(module_level)
    f(randn(2))
    assert pickle.loads(pickle.dumps(f))(weft.ones(1)).tolist() == [2.0]


def test_a_view_that_nobody_holds_does_not_keep_its_base():
    f = weft.compile(lambda x: (x * 2).reshape(-1).sum())
    f(weft.ones(3, 3))
    (program,) = f.recordings[0].programs
    assert [tuple(shape) for shape, _ in program.meta["outputs"]] == [()]


@pytest.mark.parametrize("make", [lambda w: w.detach()[0], lambda w: w.detach().t(), lambda w: w.data])
@pytest.mark.parametrize("odd_call", range(4))
def test_a_view_made_after_an_update_shares_the_memory_of_what_was_updated(make, odd_call):
    w = weft.ones(2, 3, requires_grad=True)
    optimizer, views = optim.SGD([w], lr=0.25), []

    def step(x, is_odd):
        optimizer.zero_grad()
        (x * w).sum().backward()
        optimizer.step()
        if is_odd:
            views.append(make(w))

    step = weft.compile(step)
    for k in range(6):
        step(weft.ones(2, 3), k == odd_call)
    assert views[0].tolist() == make(w).tolist()


def test_what_differs_between_long_lists_is_said_shortly():
    f = weft.compile(lambda xs: sum(x.sum() for x in xs))
    f([randn(3)] * 9)
    f([randn(3)] * 4 + [randn(2)] + [randn(3)] * 4)
    f([randn(3)] * 12)
    said = f.explain()
    assert "xs[4]: float32[3] -> float32[2]" in said
    assert "xs: (float32[3], float32[3], ... 9 in all) -> (float32[3], float32[3], ... 12 in all)" in said


def test_calls_that_raise_after_a_backward_keep_nothing_of_the_calls_before():
    """What a gradient was before the call led, by its history, to the call before, and so to all of them."""
    w = randn(3, 4, requires_grad=True)

    @weft.compile
    def step(x):
        w.grad = None
        (x * w).square().sum().backward(create_graph=True)
        raise ValueError

    counts = []
    for call in range(60):
        with pytest.raises(ValueError):
            step(weft.ones(3, 4))
        if call in (29, 59):
            gc.collect()
            counts.append(sum(isinstance(x, weft.Tensor) for x in gc.get_objects()))
    assert counts[1] <= counts[0] + 5


def test_ways_that_are_not_gone_any_more_are_let_go_of(monkeypatch):
    """Replays of other ways knew them, and those others in their turn: a way more for each call."""
    monkeypatch.setattr(native_making, "PAYS_AFTER", 0)
    w, s, v, calls = leaf(3, 4), weft.zeros(3, 4), leaf(4), [0]

    @weft.compile
    def step(x):
        calls[0] += 1
        s[calls[0] % 3].copy_(v.detach())
        return (x * w).unbind(-1)[calls[0] % 4]

    counts = []
    for call in range(120):
        step(weft.randn(3, 4, requires_grad=True))
        if call in (59, 119):
            gc.collect()
            counts.append(sum(isinstance(x, UsualFrame) for x in gc.get_objects()))
    assert counts[1] <= counts[0] + 8
