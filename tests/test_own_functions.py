"""autograd.Functions that do nothing but ops, which compiled calls take as ops and whose Python need not run:
what they read, are given and do changes from call to call. As if undecorated."""

import sys

import numpy as np
import pytest
from compiled_twin import assert_same, error_of, leaf, runs_any
from own_function_parts import (
    KEPT,
    Clip,
    Dropped,
    DroppedBack,
    Keeps,
    Linear,
    Looks,
    NotOfOne,
    OfItsClass,
    Picked,
    Product,
    Raises,
    ReadsBack,
    ReadsForward,
    Rectified,
    SavesTooMuch,
    ScaledBack,
    SetUp,
    Sized,
    StopsBack,
    Sum,
    Tanh,
    as_cosine,
    slope,
)

import weft
from weft import nn
from weft.autograd import Function, grad
from weft.runtime.replay.native import native_code_is_used

N_CALLS, ODD_CALLS = 13, (6, 9)
HERE = sys.modules["own_function_parts"]


def _with(monkeypatch, thing, name, value):
    """What sets an attribute for the odd calls, and takes it back for the others."""
    before = vars(thing)[name]

    def do(odd):
        monkeypatch.setattr(thing, name, value if odd else before)

    return do


CHANGES = {
    "a number that forward reads": lambda m: _with(m, HERE, "SCALE", 3.0),
    "a number that is another kind": lambda m: _with(m, HERE, "SCALE", 2),
    "a function that backward calls": lambda m: _with(m, HERE, "slope", as_cosine),
    "the code of such a function": lambda m: _with_code(m),
    "forward": lambda m: _with(m, Tanh, "forward", staticmethod(lambda ctx, x: ctx.save_for_backward(x) or x * 2)),
    "backward": lambda m: _with(m, Tanh, "backward", staticmethod(lambda ctx, g: g * 7)),
    "a method of the base class": lambda m: _with(m, Function, "vjp", staticmethod(lambda ctx, g: g)),
    "the number of a class": lambda m: _with(m, OfItsClass, "factor", 4.0),
}


def _with_code(monkeypatch):
    code = slope.__code__

    def do(odd):
        slope.__code__ = as_cosine.__code__ if odd else code

    return do


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("when", ["between calls", "before backward"])
def test_what_is_read_changes(change, when, monkeypatch):
    def scenario(compile):
        with monkeypatch.context() as m:
            do, w, x, seen = change(m), leaf(4, 4), weft.randn(6, 4), []

            def step(x, odd):
                w.grad = None
                y = ScaledBack.apply(Tanh.apply(x @ w)) + OfItsClass.apply(x @ w)
                if when == "before backward":
                    do(odd)
                loss = y.square().sum()
                loss.backward()
                return loss

            f = compile(step)
            for k in range(N_CALLS):
                if when == "between calls":
                    do(k in ODD_CALLS)
                seen += [error_of(f, x, k in ODD_CALLS), w.grad]
                do(False)
            return seen

    assert_same(scenario)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_read_changes_before_a_backward_outside(change, monkeypatch):
    def scenario(compile):
        with monkeypatch.context() as m:
            do, w, x, seen = change(m), leaf(4, 4), weft.randn(6, 4), []
            f = compile(lambda x: (ScaledBack.apply(Tanh.apply(x @ w)) + OfItsClass.apply(x @ w)).square().sum())
            for k in range(N_CALLS):
                w.grad = None
                loss = f(x)
                do(k in ODD_CALLS)
                seen += [error_of(loss.backward), w.grad]
                do(False)
            return seen

    assert_same(scenario)


USES = {
    "clipped": lambda x, w, b, k: Clip.apply(x @ w, 0.5),
    "by another number each time": lambda x, w, b, k: Clip.apply(x @ w, 0.1 * (k + 1)),
    "by few numbers": lambda x, w, b, k: Clip.apply(x @ w, (0.5, 1.0)[k % 2]),
    "by numbers of two kinds": lambda x, w, b, k: Clip.apply(x @ w, (1, 1.0)[k % 2]),
    "twice with two numbers": lambda x, w, b, k: Clip.apply(Clip.apply(x @ w, 0.9) * 2, 0.5),
    "in a loop": lambda x, w, b, k: sum(Clip.apply(x @ w * n, 0.5) for n in range(1, 4)),
    "of a parameter": lambda x, w, b, k: x @ Clip.apply(w, 0.5),
    "rectified": lambda x, w, b, k: Rectified.apply(x @ w),
    "linear": lambda x, w, b, k: Linear.apply(x, w, b),
    "linear without a bias": lambda x, w, b, k: Linear.apply(x, w),
    "linear of a value": lambda x, w, b, k: Linear.apply((x @ w).sin(), w, b),
    "other shapes and types": lambda x, w, b, k: Product.apply(x @ w, b),
    "one tensor twice": lambda x, w, b, k: Product.apply(w, w),
    "places": lambda x, w, b, k: Picked.apply(x @ w, weft.arange(6)),
    "dropped": lambda x, w, b, k: Dropped.apply(x @ w),
    "dropped back": lambda x, w, b, k: DroppedBack.apply(x @ w),
    "kept": lambda x, w, b, k: Keeps.apply(x @ w) + KEPT.pop(),
    "looks": lambda x, w, b, k: Looks.apply(x @ w),
    "stops back": lambda x, w, b, k: StopsBack.apply(x @ w),
    "set up": lambda x, w, b, k: SetUp.apply(x @ w, 3.0),
    "set up by default": lambda x, w, b, k: SetUp.apply(x @ w),
    "set up by keyword": lambda x, w, b, k: SetUp.apply(x @ w, power=3.0),
    "not materialized": lambda x, w, b, k: Sum.apply(x @ w, b),
    "raises": lambda x, w, b, k: Raises.apply(x @ w, k in ODD_CALLS),
    "not of one": lambda x, w, b, k: NotOfOne.apply(x @ w, b),
    "without a gradient now and then": lambda x, w, b, k: (
        Clip.apply((x @ w).detach() if k % 3 == 0 else x @ w, 0.5) * b
    ),
    "without gradients now and then": lambda x, w, b, k: _without(k % 3 == 0, lambda: Clip.apply(x @ w, 0.5)) * b,
    "changed after it": lambda x, w, b, k: Clip.apply(x @ w, 0.5).mul_(2),
    "what was saved is changed": lambda x, w, b, k: _changed(x @ w, k),
    "what was saved for nothing is changed": lambda x, w, b, k: SavesTooMuch.apply(x @ w).mul_(2),
    "a view": lambda x, w, b, k: Clip.apply((x @ w)[1:], 0.5),
    "read before": lambda x, w, b, k: Clip.apply(x @ w, 0.5 if (x @ w).sum().item() < 100 else 1.0),
    "read after": lambda x, w, b, k: Clip.apply(x @ w, 0.5) * (x @ w).sum().item(),
    "of a leaf of the call": lambda x, w, b, k: Clip.apply((x @ w).detach().requires_grad_(), 0.5) + x @ w,
    "of another size": lambda x, w, b, k: Sized.apply((x @ w)[: 2 + k % 3]),
    "frozen in the call": lambda x, w, b, k: _frozen(w, k, lambda: x @ Clip.apply(w, 0.5)),
    "hooked": lambda x, w, b, k: _hooked(Clip.apply(x @ w, 0.5)),
    "hooked before": lambda x, w, b, k: Clip.apply(_hooked(x @ w), 0.5),
    "other steps then": lambda x, w, b, k: Clip.apply(x @ w, 0.5).sin() if k in ODD_CALLS else Clip.apply(x @ w, 0.5),
    "other steps before": lambda x, w, b, k: Clip.apply((x @ w).sin() if k in ODD_CALLS else x @ w, 0.5),
    "the argument is another one": lambda x, w, b, k: Clip.apply(b * w if k in ODD_CALLS else w * b, 0.5),
}


def _without(off, function):
    if off:
        with weft.no_grad():
            return function()
    return function()


def _changed(h, k):
    y = Clip.apply(h, 0.5)
    if k in ODD_CALLS:
        h.mul_(2)
    return y


def _frozen(w, k, function):
    w.requires_grad_(k not in ODD_CALLS)
    try:
        return function() + w * 0
    finally:
        w.requires_grad_()


def _hooked(y):
    y.register_hook(lambda g: g * 0.5)
    return y


ENDS = {
    "backward": lambda y, w, b: y.square().sum().backward(),
    "grad": lambda y, w, b: grad(y.square().sum(), w, allow_unused=True),
    "twice": lambda y, w, b: [y.sum().backward(retain_graph=True), y.square().sum().backward()][0],
    "again": lambda y, w, b: [y.sum().backward(), y.sum().backward()][0],
    "second": lambda y, w, b: grad(grad(y.square().sum(), w, create_graph=True)[0].square().sum(), [w, b],
                                   allow_unused=True),
    "outside": lambda y, w, b: y.square().sum(),
    "a result": lambda y, w, b: (y, y.detach().sum()),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_uses(use, end):
    def scenario(compile):
        w, b, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []
        weft.manual_seed(3)

        def step(x, k):
            w.grad = b.grad = None
            return end(use(x, w, b, k), w, b)

        f = compile(step)
        for k in range(N_CALLS):
            KEPT.clear()
            try:
                result = f(x, k)
            except (RuntimeError, ValueError) as error:
                seen += [type(error).__name__, w.grad, b.grad]
                w.requires_grad_()
                continue
            first = result[0] if isinstance(result, tuple) else result
            if isinstance(first, weft.Tensor) and first.requires_grad and first.grad_fn is not None:
                seen.append(first.grad_fn.name())
                seen.append(error_of(first.sum().backward, retain_graph=True))
                seen.append(error_of(first.sum().backward))
                seen.append(error_of(first.sum().backward))
            seen += [result, w.grad, b.grad]
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("function", [ReadsForward, ReadsBack])
def test_numbers_in_memory_are_read(function):
    def scenario(compile):
        w, x, scale, seen = leaf(4, 4), weft.randn(6, 4), weft.tensor(2.0), []

        def step(x, scale):
            w.grad = None
            loss = function.apply(x @ w, scale).square().sum()
            loss.backward()
            return loss

        f = compile(step)
        for k in range(N_CALLS):
            scale.fill_(-1.0 if k in ODD_CALLS else 2.0 + k)
            seen += [f(x, scale), w.grad]
        return seen

    assert_same(scenario)


def test_memory_that_numpy_writes():
    def scenario(compile):
        array, b, seen = np.ones((4, 4), np.float32), leaf(4), []
        x = weft.from_numpy(array)

        def step(x):
            b.grad = None
            loss = Product.apply(b, x).square().sum()
            loss.backward()
            return loss

        f = compile(step)
        for k in range(N_CALLS):
            array[:] = k
            seen += [f(x), b.grad]
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("where", ["everything", "backward", "outside"])
@pytest.mark.parametrize("use", ["linear of a value", "clipped", "rectified"])
def test_mixed_precision(use, where):
    def scenario(compile):
        w, b, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []

        def step(x, on):
            w.grad = b.grad = None
            with weft.autocast("cpu", enabled=on and where == "everything"):
                loss = USES[use](x, w, b, 0).float().square().sum()
            if where == "outside":
                return loss
            with weft.autocast("cpu", enabled=on and where == "backward"):
                loss.backward()
            return loss

        f = compile(step)
        for k in range(N_CALLS):
            loss = error_of(f, x, k in ODD_CALLS) if where != "outside" else f(x, False)
            if where == "outside":
                with weft.autocast("cpu", enabled=k in ODD_CALLS):
                    loss.backward()
            seen += [loss, w.grad, b.grad]
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes(dynamic):
    def scenario(compile):
        w, seen = leaf(4, 4), []

        def step(x):
            w.grad = None
            loss = (Sized.apply(x @ w) + Clip.apply(x @ w, 0.5)).square().sum()
            loss.backward()
            return loss

        f = compile(step) if compile is not weft.compile else weft.compile(step, dynamic=dynamic)
        for k in range(24):
            seen += [f(weft.randn(2 + k % 9, 4)), w.grad]
        return seen

    assert_same(scenario)


def test_models_whose_weights_are_replaced():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(weft.randn(4, 4)), nn.Parameter(weft.randn(4))

        def forward(self, x):
            return Linear.apply(x, self.weight, self.bias)

    def scenario(compile):
        layer, x, seen = Layer(), weft.randn(6, 4), []
        optimizer = weft.optim.SGD(layer.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = Rectified.apply(layer(x)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        f = compile(step)
        for k in range(20):
            if k == 8:
                layer.weight = nn.Parameter(weft.ones(4, 4))
            if k == 12:
                layer.load_state_dict({"weight": weft.zeros(4, 4), "bias": weft.ones(4)})
            if k == 15:
                layer.bias.requires_grad_(False)
            seen += [f(x), layer.weight, layer.bias]
        return seen

    assert_same(scenario)


def test_transformations_inside():
    def scenario(compile):
        x, seen = weft.randn(5), []
        square = compile(lambda x: weft.func.grad(lambda x: Tanh.apply(x).sum())(x))
        for _ in range(N_CALLS):
            seen.append(square(x))
        return seen

    assert_same(scenario)


class Counted(Function):
    """What runs is told by what it is seen to do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()


@pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")
def test_python_need_not_run():
    """The point of it all: neither forward nor backward runs once calls are known."""
    w, x = leaf(4, 4), weft.randn(6, 4)

    @weft.compile
    def step(x):
        w.grad = None
        loss = Counted.apply(x @ w).sum()
        loss.backward()
        return loss

    for _ in range(8):
        step(x)
    assert not runs_any(lambda: step(x), Counted.forward, Counted.backward)
