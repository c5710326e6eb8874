"""Calls of layers that a usual call takes as a whole (runtime/replay/frame_spans.py).

What they depend on is changed in one call, the eleventh, in every way there is: eager mode must see the same.
"""

import pytest
from compiled_twin import error_of, look, twin
from span_parts import N_CALLS, ODD_CALL, batch, network, seen, sgd, training_step

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay import frame_usual, native

pytestmark = pytest.mark.usefixtures("python_runs")


# --- what one call does differently -----------------------------------------------------------------------------------
def odd_call(change, *layers, loss_of=F.cross_entropy, keep=False):
    """A test of a training step before whose odd call change(model) is made; what it returns takes it back, unless the
    change is to last."""

    def scenario(compile):
        model = network(*[make() for make in layers])
        step = compile(training_step(model, sgd(model), loss_of))
        for k in range(N_CALLS):
            undo = change(model) if k == ODD_CALL else None
            yield error_of(step, *batch(k)), seen(model.parameters()), seen(p.grad for p in model.parameters())
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


def _function_within(model):
    before, F.relu6 = F.relu6, F.tanh
    return lambda: setattr(F, "relu6", before)


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
test_another_class_that_stays = odd_call(_other_class, keep=True)
test_a_method_of_tensors = odd_call(
    _class_attribute(weft.Tensor, "flatten", lambda f: lambda x, *a: f(x, *a) * 2.0), nn.Flatten
)
test_a_method_of_parameters = odd_call(
    _class_attribute(nn.Parameter, "__rmul__", lambda f: lambda x, y: f(x, y) * 2.0), nn.PReLU
)
test_an_operator_in_a_loss = odd_call(
    _class_attribute(weft.Tensor, "__neg__", lambda f: lambda x: weft.mul(f(x), 2.0)),
    # Functions of weft's that are called often are native code, which no operator of a user's is part of.
    loss_of=lambda x, y: -(x.log_softmax(1)[:, 0] * (y > 0)).mean(),
)
test_another_weight = odd_call(_other_weight)
test_no_bias = odd_call(_no_bias)
test_another_function = odd_call(_other_function)
test_another_function_that_a_function_calls = odd_call(_function_within, nn.Hardswish)
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


def test_the_odd_call_changes_a_usual_one():
    """Looking at parameters must not hinder the call that comes next, or these tests test nothing."""
    model = network()
    step = weft.compile(training_step(model, sgd(model)))
    for k in range(ODD_CALL):
        step(*batch(k))
        assert look(list(model.parameters()))
    usual = step.recordings[0].usual
    assert isinstance(usual, frame_usual.UsualFrame)
    assert native.layout() is None or usual._native.spans


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
            return self._parameters["weight"]
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
            yield step(*batch(k)), seen(model.parameters())

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
        yield step(batch(k)[0]), seen(layer.parameters())


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


@pytest.mark.parametrize("owner", [weft.Tensor, nn.Parameter])
@pytest.mark.parametrize("wrap", [lambda f: f, weft.enable_grad()])
def test_calls_of_a_method_are_counted_from_some_time_on(owner, wrap):
    def scenario(compile):
        model, uses, before = network(nn.PReLU(), nn.Flatten()), [], owner.__rmul__
        step = compile(training_step(model, sgd(model)))

        def counted(x, other):
            uses.append(1)
            return before(x, other)

        try:
            for k in range(3 * N_CALLS):
                if k == N_CALLS:
                    owner.__rmul__ = wrap(counted)
                yield step(*batch(k)), len(uses)
        finally:
            if owner is nn.Parameter:
                del owner.__rmul__
            else:
                owner.__rmul__ = before

    twin(scenario)()


@pytest.mark.parametrize("wrap", [lambda f: f, weft.no_grad(), weft.enable_grad()])
def test_calls_of_a_function_are_counted_from_some_time_on(wrap):
    def scenario(compile):
        model, seen_shapes, before = network(), [], F.relu
        step = compile(training_step(model, sgd(model)))

        def counted(x):
            seen_shapes.append(x.shape)
            return before(x)

        try:
            for k in range(3 * N_CALLS):
                if k == N_CALLS:
                    F.relu = wrap(counted)
                yield step(*batch(k)), len(seen_shapes)
        finally:
            F.relu = before

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
            yield step(*batch(k)), len(reads), seen(model.parameters())
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


def test_a_class_that_has_changed_more_often_than_python_counts():
    """CPython 3.13 gives a class a thousand versions; one without a version could change unseen."""

    def scenario(compile):
        layer, before = nn.Softsign(), nn.Softsign.forward
        step = compile(weft.no_grad()(lambda x: layer(x)))
        try:
            for k in range(N_CALLS):
                if k == ODD_CALL:
                    nn.Softsign.forward = lambda self, x: before(self, x) * 2.0
                yield step(batch(k)[0])
        finally:
            nn.Softsign.forward = before

    for k in range(1100):
        nn.Softsign.mark = k
        assert nn.Softsign.mark == k
    del nn.Softsign.mark
    twin(scenario)()
