"""Steps of optimizers that a usual call takes as a whole (runtime/replay/frame_spans.py), counts of steps, and
gradients.

What they depend on is changed in one call, the eleventh, in every way there is: eager mode must see the same.
"""

import pytest
from compiled_twin import error_of, twin
from span_parts import (
    N_CALLS,
    ODD_CALL,
    batch,
    network,
    odd_step,
    python_calls,
    seen,
    sgd,
    skip_without_native_code,
    training_step,
)

import weft
from weft import nn
from weft.nn import functional as F

pytestmark = pytest.mark.usefixtures("python_runs")


# --- optimizers -------------------------------------------------------------------------------------------------------
def _option(name, value):
    def change(optimizer, model):
        group = optimizer.param_groups[0]
        before, group[name] = group[name], value
        return lambda: group.__setitem__(name, before)

    return change


def _one_param_less(optimizer, model):
    params = optimizer.param_groups[0]["params"]
    last = params.pop()
    return lambda: params.append(last)


def _params_in_another_order(optimizer, model):
    optimizer.param_groups[0]["params"].reverse()


def _another_list(optimizer, model):
    group = optimizer.param_groups[0]
    group["params"] = group["params"][:2]


def _one_more_group(optimizer, model):
    optimizer.add_param_group({"params": [nn.Parameter(weft.ones(2))], "lr": 0.5})


def _no_groups(optimizer, model):
    groups = optimizer.param_groups[:]
    optimizer.param_groups.clear()
    return lambda: optimizer.param_groups.extend(groups)


def _groups_in_a_tuple(optimizer, model):
    optimizer.param_groups = tuple(optimizer.param_groups)


def _a_group_of_another_type(optimizer, model):
    from collections import UserDict

    optimizer.param_groups[0] = UserDict(optimizer.param_groups[0])


def _no_state(optimizer, model):
    optimizer.state.clear()


def _one_buffer_less(optimizer, model):
    optimizer.state[model[0].weight]["momentum_buffer"] = None


def _another_buffer(optimizer, model):
    optimizer.state[model[0].weight]["momentum_buffer"] = weft.ones(5, 6)


def _one_param_twice(optimizer, model):
    """PyTorch warns when a group is made like that, and updates it twice."""
    optimizer.param_groups[0]["params"].append(model[0].weight)


def _load(optimizer, model):
    optimizer.load_state_dict(optimizer.state_dict())


def _frozen(optimizer, model):
    model[0].weight.requires_grad_(False)
    return lambda: model[0].weight.requires_grad_(True)


def _step_of_its_own(optimizer, model):
    optimizer.step = lambda: None
    return lambda: delattr(optimizer, "step")


def _group_of_its_own(optimizer, model):
    optimizer.update_group = lambda group: None
    return lambda: delattr(optimizer, "update_group")


def _update_of_the_class(optimizer, model):
    before = weft.optim.SGD.update_group
    weft.optim.SGD.update_group = lambda self, group: None
    return lambda: setattr(weft.optim.SGD, "update_group", before)


def _gradients_stay(optimizer, model):
    optimizer.zero_grad = lambda: None
    return lambda: delattr(optimizer, "zero_grad")


test_a_rate = odd_step(_option("lr", 0.5))
test_a_rate_that_is_a_whole_number = odd_step(_option("lr", 1))
test_a_rate_that_is_a_tensor = odd_step(_option("lr", weft.tensor(0.5)))
test_a_rate_that_is_no_number = odd_step(_option("lr", float("nan")))
test_decay = odd_step(_option("weight_decay", 0.5))
test_no_momentum = odd_step(_option("momentum", 0))
test_nesterov = odd_step(_option("nesterov", True))
test_ascent = odd_step(_option("maximize", True))
test_an_option_that_is_missing = odd_step(
    lambda optimizer, model: (
        lambda value: lambda: optimizer.param_groups[0].__setitem__("lr", value)
    )(optimizer.param_groups[0].pop("lr"))
)  # fmt: skip
test_one_param_less = odd_step(_one_param_less)
test_params_in_another_order = odd_step(_params_in_another_order)
test_one_param_twice = odd_step(_one_param_twice)
test_another_list_of_params = odd_step(_another_list)
test_one_more_group = odd_step(_one_more_group)
test_no_groups = odd_step(_no_groups)
test_groups_in_a_tuple = odd_step(_groups_in_a_tuple)
test_a_group_of_another_type = odd_step(_a_group_of_another_type)
test_no_state = odd_step(_no_state)
test_one_buffer_less = odd_step(_one_buffer_less)
test_another_buffer = odd_step(_another_buffer)
test_a_state_is_loaded = odd_step(_load)
test_a_frozen_parameter = odd_step(_frozen)
test_a_step_of_its_own = odd_step(_step_of_its_own)
test_an_update_of_its_own = odd_step(_group_of_its_own)
test_an_update_of_the_class = odd_step(_update_of_the_class)
test_gradients_stay = odd_step(_gradients_stay)
test_without_momentum = odd_step(_option("lr", 0.5), lambda model: weft.optim.SGD(model.parameters(), lr=0.1))
test_adam = odd_step(_option("lr", 0.5), lambda model: weft.optim.Adam(model.parameters(), lr=0.1))
test_several_groups = odd_step(
    _option("lr", 0.5),
    lambda model: weft.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5}], lr=0.1
    ),
)


def _update_of_all_groups(optimizer, model):
    before, seen_groups = weft.optim.Optimizer._update_groups, []
    weft.optim.Optimizer._update_groups = lambda self: seen_groups.append(before(self))
    return lambda: setattr(weft.optim.Optimizer, "_update_groups", before)


def _groups_as_a_property(optimizer, model):
    weft.optim.SGD.param_groups = property(lambda self: [], lambda self, value: None)
    return lambda: delattr(weft.optim.SGD, "param_groups")


test_another_update_of_all_groups = odd_step(_update_of_all_groups)
test_groups_as_a_property = odd_step(_groups_as_a_property)


class Limited(weft.optim.SGD):
    """An optimizer of a user that does more than its base."""

    def update_group(self, group):
        super().update_group(group)
        with weft.no_grad():
            for param in group["params"]:
                param.clamp_(-0.3, 0.3)


test_an_optimizer_of_a_user = odd_step(_option("lr", 0.5), lambda model: Limited(model.parameters(), lr=0.1))


@twin
def test_a_rate_that_always_changes(compile):
    model = network()
    optimizer = sgd(model)
    schedule = weft.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    step = compile(training_step(model, optimizer))
    for k in range(3 * N_CALLS):
        yield step(*batch(k)), seen(model.parameters())
        schedule.step()


@twin
def test_a_rate_that_changes_now_and_then(compile):
    model = network()
    optimizer = sgd(model)
    schedule = weft.optim.lr_scheduler.StepLR(optimizer, 25, 0.9)
    step = compile(training_step(model, optimizer))
    for k in range(200):
        yield step(*batch(k % 7)), seen(model.parameters())
        schedule.step()


@skip_without_native_code
def test_a_rate_that_changes_now_and_then_is_learned_again():
    model = network()
    optimizer = sgd(model)
    step = weft.compile(training_step(model, optimizer))
    for k in range(400):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + k // 40)
        step(*batch(0))
    assert "update_group" not in python_calls(step, *batch(0))


@twin
def test_a_closure(compile):
    model = network()
    optimizer = sgd(model)

    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    step = compile(step)
    for k in range(N_CALLS):
        yield step(*batch(k)), seen(model.parameters())


@twin
def test_an_exception_after_gradients_are_dropped(compile):
    model = network()
    optimizer = sgd(model)
    plain = training_step(model, optimizer)

    def step(x, y):
        loss = plain(x, y)
        optimizer.zero_grad()
        if calls[0] == ODD_CALL:
            raise KeyError
        return loss

    step, calls = compile(step), [0]
    for k in range(N_CALLS):
        calls[0] = k
        yield error_of(step, *batch(k)), seen(model.parameters()), seen(p.grad for p in model.parameters())


# --- counts of steps, and gradients -----------------------------------------------------------------------------------
COUNTING = [
    lambda model: weft.optim.Adam(model.parameters(), lr=0.1),
    lambda model: weft.optim.Adam(model.parameters(), lr=0.1, amsgrad=True),
    lambda model: weft.optim.AdamW(model.parameters(), lr=0.1),
    lambda model: weft.optim.RMSprop(model.parameters(), lr=0.1, momentum=0.5, centered=True),
    lambda model: weft.optim.Adagrad(model.parameters(), lr=0.1, lr_decay=0.1),
]


def _another_count(optimizer, model):
    optimizer.state[model[0].bias]["step"] += 5


def _all_counts(optimizer, model):
    for state in optimizer.state.values():
        state["step"] = 100


def _counts_as_tensors(optimizer, model):
    for state in optimizer.state.values():
        state["step"] = weft.tensor(float(state["step"]))


def _one_state_less(optimizer, model):
    if not isinstance(optimizer, weft.optim.Adagrad):
        optimizer.state[model[2].bias].clear()


@pytest.mark.parametrize("make", COUNTING)
@pytest.mark.parametrize(
    "change",
    [
        _another_count,
        _all_counts,
        _counts_as_tensors,
        _one_state_less,
        _frozen,
        _params_in_another_order,
        _one_param_twice,
        _load,
    ],  # fmt: skip
)
def test_counts(make, change):
    odd_step(change, make)()


@pytest.mark.parametrize("make", COUNTING)
def test_a_failed_call_takes_its_count_back(make):
    """The index is out of range: the program fails after Python has counted."""
    model = network()
    optimizer = make(model)
    step = weft.compile(training_step(model, optimizer))
    for k in range(N_CALLS):
        step(*batch(k))
    before = [(p.tolist(), p.grad.tolist(), optimizer.state[p]["step"]) for p in model.parameters()]
    x, y = batch(0)
    with pytest.raises((IndexError, RuntimeError)):
        step(x, y * 7)
    assert [(p.tolist(), p.grad.tolist(), optimizer.state[p]["step"]) for p in model.parameters()] == before
    step(x, y)
    assert [optimizer.state[p]["step"] for p in model.parameters()] == [N_CALLS + 1] * 4


@twin
def test_gradients_are_assigned_and_taken_back(compile):
    w, v = weft.ones(3, requires_grad=True), weft.ones(3, requires_grad=True)

    def step(x):
        w.grad = None
        v.grad = weft.ones(3)
        if calls[0] == ODD_CALL:
            v.grad = None
        loss = (x * w).sum()
        loss.backward()
        if calls[0] == ODD_CALL + 1:
            raise KeyError
        return loss

    step, calls = compile(step), [0]
    for k in range(N_CALLS):
        calls[0] = k
        yield error_of(step, batch(k)[0][:, :3]), w.grad, v.grad


@pytest.mark.parametrize("odd", ["inputs", "cotangent", "retain", "create", "unused", "hook", "mode", None])
def test_autograd_grad(odd):
    def scenario(compile):
        w, v = weft.ones(3, requires_grad=True), weft.ones(3, requires_grad=True)

        def step(x):
            y = (x * w * v).exp()
            odd_now = odd if calls[0] == ODD_CALL else None
            inputs = [w, v, weft.ones(3, requires_grad=True)] if odd_now == "unused" else [w, v]
            inputs = [v, w] if odd_now == "inputs" else inputs
            cotangent = x * 2.0 if odd_now == "cotangent" else x
            with weft.set_grad_enabled(odd_now != "mode"):
                found = weft.autograd.grad(
                    y, inputs, cotangent, retain_graph=odd_now == "retain", create_graph=odd_now == "create",
                )  # fmt: skip
            return [g.detach() for g in found], [g.requires_grad for g in found]

        step, calls = compile(step), [0]
        for k in range(N_CALLS):
            calls[0] = k
            handle = w.register_hook(lambda g: g * 2.0) if odd == "hook" and k == ODD_CALL else None
            yield error_of(step, batch(k)[0][0, :3])
            if handle is not None:
                handle.remove()

    twin(scenario)()


@skip_without_native_code
def test_autograd_grad_runs_no_python():
    w = weft.ones(3, requires_grad=True)
    f = weft.compile(lambda x: weft.autograd.grad((x * w).sum(), [w])[0])
    for _ in range(N_CALLS):
        f(weft.ones(3))
    names = python_calls(f, weft.ones(3))
    assert "gradients_again" not in names and "_check_cotangents" not in names
