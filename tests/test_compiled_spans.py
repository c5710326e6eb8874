"""Calls of layers and steps of optimizers that a usual call takes as a whole (runtime/frame_spans.py).

What they depend on is changed in one call, the eleventh, in every way there is: eager mode must see the same.
"""

import gc
import sys
import warnings

import numpy as np
import pytest
from compiled_twin import error_of, twin

import weft
from weft import nn, randn
from weft.nn import functional as F
from weft.runtime import frame_usual

N_CALLS, ODD_CALL = 16, 10


def network(*layers):
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), *(layers or [nn.ReLU()]), nn.Linear(5, 3))


def batch(k, n=4):
    weft.manual_seed(k)
    return randn(n, 6), weft.tensor(np.arange(n) % 3)


def training_step(model, optimizer, loss_of=F.cross_entropy):
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def sgd(model, **options):
    return weft.optim.SGD(model.parameters(), **({"lr": 0.1, "momentum": 0.9} | options))


# --- that it is done --------------------------------------------------------------------------------------------------
def python_calls(function, *arguments):
    """Names of the Python functions of weft that run in a call, without those of the tests."""
    names = []

    def note(frame, event, _):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("weft"):
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return names


def skip_without_native_code(function):
    """The Python way of a usual call takes nothing as a whole: there is nothing to test."""
    from weft.runtime import native

    return function if native.layout() is not None else lambda *_: None


@skip_without_native_code
def test_layers_and_steps_run_no_python():
    model = network(nn.ReLU(), nn.LayerNorm(5), nn.Dropout(0.0), nn.Sequential(nn.Tanh(), nn.Identity()))
    step = weft.compile(training_step(model, sgd(model), nn.CrossEntropyLoss()))
    for k in range(N_CALLS):
        step(*batch(k))
    assert python_calls(step, *batch(0)) == ["__call__", "zero_grad", "_backward", "backward", "_as_tuple", "step"]


@skip_without_native_code
def test_layers_of_a_users_module_run_no_python():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.last(F.relu(self.first(x)))

    model = weft.compile(Net())
    with weft.no_grad():
        for k in range(N_CALLS):
            model(batch(k)[0])
        assert python_calls(model, batch(0)[0]) == ["__call__", "relu"]


LAYERS = [
    nn.ReLU, nn.ReLU6, nn.SiLU, nn.Mish, nn.SELU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.Softsign,
    nn.LogSigmoid, nn.GELU, nn.LeakyReLU, nn.ELU, nn.CELU, nn.Hardtanh, nn.Softplus, nn.PReLU, nn.Identity, nn.Flatten,
    lambda: nn.Softmax(1), lambda: nn.LogSoftmax(-1), lambda: nn.LayerNorm(6), lambda: nn.RMSNorm(6),
    lambda: nn.Linear(6, 2, bias=False), lambda: nn.Unflatten(1, (2, 3)), lambda: nn.BatchNorm1d(6).eval(),
    lambda: nn.BatchNorm1d(6), lambda: nn.Dropout(0.5), lambda: nn.Dropout(0.5).eval(), lambda: nn.GLU(1),
]  # fmt: skip


@pytest.mark.parametrize("make", LAYERS)
def test_every_layer(make):
    @twin
    def scenario(compile):
        weft.manual_seed(1)
        layer = make()
        step = compile(lambda x: (layer(x) * 2.0).sum().backward())
        for k in range(N_CALLS):
            x = batch(k)[0].requires_grad_()
            yield step(x), x.grad, list(layer.buffers()), [p.grad for p in layer.parameters()]

    scenario()


LOSSES = [
    nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.KLDivLoss,
    lambda: nn.MSELoss("sum"), lambda: nn.HuberLoss(delta=0.5),
]  # fmt: skip


@pytest.mark.parametrize("make", LOSSES)
def test_every_loss(make):
    @twin
    def scenario(compile):
        loss = make()
        step = compile(lambda x, y: loss(x, y))
        for k in range(N_CALLS):
            with weft.no_grad():
                yield step(batch(k)[0], batch(k + 50)[0].sigmoid())

    scenario()


def test_warnings_are_given_every_time():
    loss, softmax = nn.MSELoss(), nn.Softmax()
    f = weft.compile(lambda x, y: (loss(x, y), softmax(x)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(N_CALLS):
            f(weft.ones(4, 2), weft.ones(1, 2))
    assert len(caught) == 2 * N_CALLS


# --- what one call does differently -----------------------------------------------------------------------------------
def odd_call(change, *layers, loss_of=F.cross_entropy, keep=False):
    """A test of a training step before whose odd call change(model) is made; what it returns takes it back, unless the
    change is to last."""

    def scenario(compile):
        model = network(*[make() for make in layers])
        step = compile(training_step(model, sgd(model), loss_of))
        for k in range(N_CALLS):
            undo = change(model) if k == ODD_CALL else None
            yield error_of(step, *batch(k)), list(model.parameters()), [p.grad for p in model.parameters()]
            if undo is not None and not keep:
                undo()

    return twin(scenario)


def _attribute(find, name, value):
    def change(model):
        owner = find(model)
        before = getattr(owner, name)
        setattr(owner, name, value() if callable(value) and not isinstance(value, type(len)) else value)
        return lambda: setattr(owner, name, before)

    return change


def _class_attribute(owner, name, make):
    def change(model):
        before = getattr(owner, name)
        own = name in owner.__dict__
        setattr(owner, name, make(before))
        return lambda: setattr(owner, name, before) if own else delattr(owner, name)

    return change


def _hook(model):
    return model[0].register_forward_hook(lambda module, args, out: out * 2.0).remove


def _pre_hook(model):
    return model.register_forward_pre_hook(lambda module, args: (args[0] * 2.0,)).remove


def _hook_in_the_table(model):
    model[1]._forward_hooks[7] = lambda module, args, out: out * 2.0
    return model[1]._forward_hooks.clear


def _own_forward(model):
    model[1].forward = lambda x: x * 3.0
    return lambda: delattr(model[1], "forward")


def _own_forward_in_dict(model):
    model[1].__dict__["forward"] = lambda x: x * 3.0
    return lambda: model[1].__dict__.pop("forward")


def _other_layer(model):
    before, model[1] = model[1], nn.Tanh()
    return lambda: model.__setitem__(1, before)


def _other_layer_in_the_table(model):
    before = model._modules["1"]
    model._modules["1"] = nn.Tanh()
    return lambda: model._modules.__setitem__("1", before)


def _one_more_layer(model):
    model.append(nn.Sigmoid())
    return lambda: model.__delitem__(3)


def _other_dict(model):
    before = model[1].__dict__
    model[1].__dict__ = {**before, "forward": lambda x: x * 3.0}
    return lambda: setattr(model[1], "__dict__", before)


def _other_class(model):
    model[1].__class__ = nn.Tanh
    return lambda: setattr(model[1], "__class__", nn.ReLU)


def _other_weight(model):
    before = model[0].weight
    model[0].weight = nn.Parameter(weft.ones(5, 6))
    return lambda: setattr(model[0], "weight", before)


def _no_bias(model):
    before, model[0].bias = model[0].bias, None
    return lambda: setattr(model[0], "bias", before)


def _other_function(model):
    before, F.relu = F.relu, F.tanh
    return lambda: setattr(F, "relu", before)


def _mode(model):
    return model.eval().train


test_a_hook = odd_call(_hook)
test_a_hook_that_stays = odd_call(_hook, keep=True)
test_a_hook_before = odd_call(_pre_hook)
test_a_hook_in_the_table = odd_call(_hook_in_the_table)
test_a_forward_of_its_own = odd_call(_own_forward)
test_a_forward_in_its_dict = odd_call(_own_forward_in_dict)
test_another_layer = odd_call(_other_layer)
test_another_layer_that_stays = odd_call(_other_layer, keep=True)
test_another_layer_in_the_table = odd_call(_other_layer_in_the_table)
test_one_more_layer = odd_call(_one_more_layer)
test_another_dict = odd_call(_other_dict)
test_another_class = odd_call(_other_class)
test_another_weight = odd_call(_other_weight)
test_no_bias = odd_call(_no_bias)
test_another_function = odd_call(_other_function)
test_the_mode_of_dropout = odd_call(_mode, nn.Dropout)
test_the_mode_of_batch_norm = odd_call(_mode, lambda: nn.BatchNorm1d(5))
test_the_slope = odd_call(_attribute(lambda model: model[1], "negative_slope", 0.5), nn.LeakyReLU)
test_an_epsilon = odd_call(_attribute(lambda model: model[1], "eps", 0.5), lambda: nn.LayerNorm(5))
test_a_shape = odd_call(_attribute(lambda model: model[1], "normalized_shape", (4,)), lambda: nn.LayerNorm(5))
test_a_reduction = odd_call(_attribute(lambda model: LOSS, "reduction", "sum"), loss_of=(LOSS := nn.CrossEntropyLoss()))
test_forward_of_the_class = odd_call(_class_attribute(nn.ReLU, "forward", lambda f: lambda self, x: f(self, x) * 2.0))
test_call_of_the_class = odd_call(_class_attribute(nn.ReLU, "__call__", lambda f: lambda self, x: f(self, x) * 2.0))
test_call_of_all_modules = odd_call(_class_attribute(nn.Module, "__call__", lambda f: lambda self, x: f(self, x) * 2.0))
test_attributes_of_the_class = odd_call(
    _class_attribute(nn.Linear, "__getattribute__", lambda f: lambda self, n: None if n == "bias" else f(self, n))
)


# --- modules of users -------------------------------------------------------------------------------------------------
class Doubling(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2.0


class Counting(nn.ReLU):
    calls = 0

    def __call__(self, x):
        Counting.calls += 1
        return super().__call__(x) * Counting.calls


class Parametrized(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.direction, self.length = self.weight, nn.Parameter(weft.ones(sizes[1], 1))
        self.reads = 0

    @property
    def weight(self):
        if "length" not in self.__dict__:
            return self.__dict__["weight"]
        self.__dict__["reads"] += 1
        return self.direction * self.length * self.reads

    @weight.setter
    def weight(self, value):
        raise AttributeError


class Plain(nn.Linear):
    """Nothing of its own."""


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Sequential(nn.Linear(6, 6), nn.ReLU()), 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        return x + self.inner(x) * scale * self.calls


@pytest.mark.parametrize(
    "make",
    [
        lambda: Doubling(6, 6),
        Counting,
        lambda: Plain(6, 6),
        Residual,
        lambda: nn.Sequential(Residual()),
        lambda: Parametrized(6, 6),
        lambda: nn.Sequential(nn.ReLU(), Parametrized(6, 6)),
    ],
)
def test_modules_of_users(make):
    @twin
    def scenario(compile):
        Counting.calls = 0
        weft.manual_seed(2)
        model = nn.Sequential(make(), nn.Linear(6, 3))
        step = compile(training_step(model, sgd(model)))
        for k in range(N_CALLS):
            yield step(*batch(k)), list(model.parameters())

    scenario()


@twin
def test_keyword_arguments(compile):
    layer = Residual()
    step = compile(lambda x, k: layer(x, scale=0.5) if k % 2 else layer.inner[0](input=x))
    for k in range(N_CALLS):
        yield step(batch(0)[0], k // 4)


@twin
def test_a_layer_used_twice(compile):
    layer = nn.Linear(6, 6)
    optimizer = sgd(layer)

    def step(x):
        optimizer.zero_grad()
        y = layer(layer(x))
        loss = (y * layer(x)).sum()
        loss.backward()
        optimizer.step()
        return y, loss

    step = compile(step)
    for k in range(N_CALLS):
        yield step(batch(k)[0]), list(layer.parameters())


@twin
def test_a_layer_under_no_grad(compile):
    model = network()

    def step(x):
        with weft.set_grad_enabled(calls[0] != ODD_CALL):
            y = model(x)
        return y.detach(), y.requires_grad

    step, calls = compile(step), [0]
    for k in range(N_CALLS):
        calls[0] = k
        yield step(batch(k)[0])


@twin
def test_results_within_a_model_are_kept(compile):
    model, kept = network(nn.Flatten(), nn.Unflatten(1, (5, 1)), nn.Flatten(), nn.ReLU()), []

    def step(x):
        with weft.no_grad():
            y = model(x)
            if calls[0] >= ODD_CALL:
                kept.append(model[:2](x))
            return y

    step, calls = compile(step), [0]
    for k in range(N_CALLS):
        calls[0] = k
        yield step(batch(k)[0]), kept[-2:]


@twin
def test_a_model_goes_and_another_comes(compile):
    models = [network(), network()]
    step = compile(lambda x: models[-1](x).detach())
    for k in range(N_CALLS):
        yield step(batch(k)[0])
        if k == ODD_CALL:
            del models[-1]


@twin
def test_a_slope_that_always_changes(compile):
    layer = nn.LeakyReLU()
    step = compile(lambda x: layer(x))
    for k in range(3 * N_CALLS):
        layer.negative_slope = 0.5 if k % 2 else 0.25
        yield step(batch(k)[0])
    for k in range(N_CALLS):
        yield step(batch(k)[0])


@pytest.mark.parametrize("owner", [nn.Module, nn.ReLU])
def test_calls_are_counted_from_some_time_on(owner):
    def scenario(compile):
        model, seen, before = network(), [], owner.__call__
        own = "__call__" in owner.__dict__
        step = compile(training_step(model, sgd(model)))

        def counted(self, *args):
            seen.append(type(self).__name__)
            return before(self, *args)

        try:
            for k in range(3 * N_CALLS):
                if k == N_CALLS:
                    owner.__call__ = counted
                yield step(*batch(k)), len(seen)
        finally:
            if own:
                owner.__call__ = before
            else:
                del owner.__call__

    twin(scenario)()


@twin
def test_a_property_of_the_class_from_some_time_on(compile):
    model, reads = network(), []
    step = compile(training_step(model, sgd(model)))

    def read(self):
        reads.append(1)
        return self.__dict__["bias"]

    try:
        for k in range(3 * N_CALLS):
            if k == N_CALLS:
                nn.Linear.bias = property(read)
            yield step(*batch(k)), len(reads), list(model.parameters())
    finally:
        if "bias" in vars(nn.Linear):
            del nn.Linear.bias


@twin
def test_layers_in_an_ordered_dict(compile):
    from collections import OrderedDict

    model = network(nn.Linear(5, 5), nn.Tanh())
    model.__dict__["_modules"] = OrderedDict(model._modules)
    step = compile(lambda x: model(x).detach())
    for k in range(N_CALLS):
        if k == ODD_CALL:
            model._modules.move_to_end("2", last=True)
            model._modules.move_to_end("3", last=True)
            model._modules.move_to_end("1", last=False)
            model._modules.move_to_end("0", last=False)
        yield error_of(step, batch(k)[0])


@twin
def test_a_module_that_is_not_ready(compile):
    class Unready(nn.ReLU):
        def __init__(self):
            pass

    layer = Unready()
    step = compile(lambda x: (x * 2.0, error_of(layer, x)))
    for k in range(N_CALLS):
        yield step(batch(k)[0])


# --- optimizers -------------------------------------------------------------------------------------------------------
def odd_step(change, make=sgd):
    """As odd_call, with change(optimizer, model)."""

    def scenario(compile):
        model = network()
        optimizer = make(model)
        step = compile(training_step(model, optimizer))
        for k in range(N_CALLS):
            undo = change(optimizer, model) if k == ODD_CALL else None
            yield error_of(step, *batch(k)), list(model.parameters()), optimizer.state_dict()["param_groups"]
            yield [list(state.items()) for state in optimizer.state.values()]
            if undo is not None:
                undo()

    return twin(scenario)


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
        yield step(*batch(k)), list(model.parameters())
        schedule.step()


@twin
def test_a_rate_that_changes_now_and_then(compile):
    model = network()
    optimizer = sgd(model)
    schedule = weft.optim.lr_scheduler.StepLR(optimizer, 25, 0.9)
    step = compile(training_step(model, optimizer))
    for k in range(200):
        yield step(*batch(k % 7)), list(model.parameters())
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
        yield step(*batch(k)), list(model.parameters())


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
        yield error_of(step, *batch(k)), list(model.parameters()), [p.grad for p in model.parameters()]


# --- what it must not keep or share -----------------------------------------------------------------------------------
@skip_without_native_code
def test_memory_does_not_grow_with_lessons():
    import tracemalloc

    model = network()
    optimizer = sgd(model)
    step = weft.compile(training_step(model, optimizer))
    x, y = batch(0)

    def train(n):
        for k in range(n):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + k // 20)
            step(x, y)
        # Python keeps some freed objects for later, until the collector comes.
        gc.collect()

    train(400)
    tracemalloc.start()
    train(400)
    start = tracemalloc.get_traced_memory()[0]
    train(800)
    grown = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert grown < 8000


@skip_without_native_code
def test_references_are_counted():
    model = network()
    optimizer = sgd(model)
    step = weft.compile(training_step(model, optimizer))
    x, y = batch(0)
    for _ in range(N_CALLS):
        step(x, y)
    usual = step.recordings[0].usual
    assert isinstance(usual, frame_usual.UsualFrame)
    group = optimizer.param_groups[0]
    fixed = [
        model,
        model[0],
        model[0].__dict__,
        model[0].weight,
        group,
        group["params"],
        group["lr"],
        optimizer.state,
        x,
    ]
    before = [sys.getrefcount(v) for v in fixed]
    for _ in range(1000):
        step(x, y)
    after = [sys.getrefcount(v) for v in fixed]
    assert max(abs(a - b) for a, b in zip(after, before)) < 100


def test_calls_in_other_threads_and_outside_are_calls_of_their_own():
    import threading

    model = network()
    step = weft.compile(weft.no_grad()(lambda x: between(model(x))))
    found, x = [], batch(0)[0]

    def between(y):
        def work():
            found.append(model(x).tolist())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return y

    for _ in range(N_CALLS):
        y = step(x)
        assert found[-1] == y.tolist() == model(x).tolist()


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
    [_another_count, _all_counts, _counts_as_tensors, _one_state_less, _frozen, _params_in_another_order, _load],
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


# --- functions --------------------------------------------------------------------------------------------------------
CLASSES, CHANCES = weft.tensor([0, 2, 1, 2]), weft.full((4, 3), 1 / 3)
ODD_LOSSES = {
    "other rows": lambda x, y: F.cross_entropy(x * 2.0, y),
    "other classes": lambda x, y: F.cross_entropy(x, CLASSES),
    "chances": lambda x, y: F.cross_entropy(x, CHANCES),
    "weights": lambda x, y: F.cross_entropy(x, y, weft.tensor([1.0, 2.0, 3.0])),
    "no weights": lambda x, y: F.cross_entropy(x, y, None),
    "a sum": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    "smooth": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.5),
    "names": lambda x, y: F.cross_entropy(target=y, x=x),
    "another function": lambda x, y: F.nll_loss(x.log_softmax(1), y),
    "an error": lambda x, y: F.cross_entropy(x, y[:2]),
    "a constant": lambda x, y: F.cross_entropy(x, y).detach().requires_grad_(),
    "twice": lambda x, y: F.cross_entropy(x, y) + F.cross_entropy(x, y),
}


@pytest.mark.parametrize("odd", ODD_LOSSES.values(), ids=ODD_LOSSES)
@pytest.mark.parametrize("usual", [ODD_LOSSES["twice"], lambda x, y: F.cross_entropy(x, y)], ids=["twice", "once"])
def test_losses(usual, odd):
    def scenario(compile):
        model = network()
        step = compile(training_step(model, sgd(model), lambda x, y: (odd if calls[0] == ODD_CALL else usual)(x, y)))
        calls = [0]
        for k in range(N_CALLS):
            calls[0] = k
            yield error_of(step, *batch(k)), list(model.parameters())

    twin(scenario)()


@twin
def test_numbers_are_no_tensors(compile):
    """A function of numbers has no span: they could be others next time."""
    f = compile(lambda x, y, k: F.binary_cross_entropy_with_logits(x, y, k) + F.binary_cross_entropy(x.sigmoid(), y, k))
    with weft.no_grad():
        for k in range(N_CALLS):
            yield f(batch(k)[0], batch(k + 1)[0].sigmoid(), 0.5 + k // 5)


def test_a_spanned_function_is_its_function():
    import inspect

    assert str(inspect.signature(F.nll_loss)) == "(input, target, weight=None, *, ignore_index=-100, reduction='mean')"
    assert F.nll_loss.__name__ == "nll_loss" and "log probabilities" in F.nll_loss.__doc__


def test_what_is_computed_outside_a_call_in_flight_is_no_part_of_it():
    from weft.runtime.modes import state

    model, x = network(), batch(0)[0]

    def f(x):
        with weft.no_grad():
            if calls[0] == ODD_CALL:
                frame, state.frame = state.frame, None
                kept.extend([model(x), x * 2.0, F.cross_entropy(x, CLASSES)])
                state.frame = frame
            return model(x), x * 2.0, F.cross_entropy(x, CLASSES)

    f, calls, kept = weft.compile(f), [0], []
    for k in range(N_CALLS):
        calls[0] = k
        found = f(x)
    assert [y.tolist() for y in kept] == [y.tolist() for y in found]
    assert all(y._data is not None and y._frame is None for y in kept)
