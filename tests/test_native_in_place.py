"""Methods that change a tensor do in native code what their functions in Python do (native_in_place.py)."""

import inspect
import operator
from functools import partial

import numpy as np
import pytest
from leaks import growth

import weft
from weft.runtime.replay import eager_native, native, native_in_place

TIMES = 80  # from some dozens of calls on methods are native
CALLS = {
    "add_": [(2,), (0.5,), ("y",), ("row",), ("y", {"alpha": 0.25}), ("y", {"alpha": 1.0}), ("y", {"alpha": 2}),
             (3, {"alpha": 0.5}), ("wide",), (True,), ("half", {"alpha": -1.5})],
    "sub_": [(2,), ("y",), ("y", {"alpha": 0.25}), ("self",)],
    "mul_": [(2,), (0.5,), ("y",), ("row",), ("self",), (np.float64(0.5),), ("zero",)],
    "div_": [(2,), ("y",), (3, {"rounding_mode": "floor"})],
    "copy_": [("y",), ("row",), (2.0,), ("wide",), ("self",), ("turned",), ("zero",)],
    "exp_": [()], "sqrt_": [()], "neg_": [()], "tanh_": [()], "sigmoid_": [()], "abs_": [()], "relu_": [()],
}  # fmt: skip
WRONG = [
    ("add_", ()), ("add_", ("text",)), ("add_", ("long",)), ("mul_", (1, 2)), ("copy_", ()), ("copy_", ("long",)),
    ("exp_", (1,)), ("mul_", ()), ("tanh_", ("y",)), ("add_", ("y", {"beta": 1})), ("mul_", (1j,)),
    ("div_", ("y", {"rounding_mode": "up"})),
]  # fmt: skip


@pytest.fixture(autouse=True)
def methods_are_native():
    x = weft.ones(2)
    for _ in range(TIMES):
        x + x
    assert (not inspect.isfunction(weft.Tensor.add_)) == (native.layout() is not None)


def in_python(name):
    return native_in_place.functions.get(name, getattr(weft.Tensor, name))


def given(call, x):
    """Arguments and keywords, words standing for tensors."""
    tensors = {
        "y": weft.arange(1.0, 7.0).reshape(2, 3),
        "row": weft.tensor([1.0, -2.0, 0.5]),
        "wide": weft.ones(2, 3, dtype=weft.float64) * 3,
        "half": weft.nn.Parameter(weft.full((2, 3), 0.5)).detach(),
        "turned": weft.arange(6.0).reshape(3, 2).t(),
        "zero": weft.tensor(2.0),
        "long": weft.ones(4),
        "self": x,
    }
    args = [tensors.get(a, a) if isinstance(a, str) else a for a in call if not isinstance(a, dict)]
    return args, next((a for a in call if isinstance(a, dict)), {})


def target():
    return weft.tensor([[0.5, 2.0, 3.0], [4.0, 0.25, 1.0]])


def outcome(function, x, call):
    args, kwargs = given(call, x)
    version = x._version
    try:
        found = function(x, *args, **kwargs)
    except Exception as error:
        return type(error), str(error), repr(x.tolist())
    return found is x, x._version - version, repr(x.tolist()), x.dtype


@pytest.mark.parametrize("name", CALLS)
def test_eager(name):
    for call in CALLS[name]:
        wanted = outcome(in_python(name), target(), call)
        for _ in range(20):
            assert outcome(getattr(weft.Tensor, name), target(), call) == wanted


@pytest.mark.parametrize("name", CALLS)
def test_compiled(name):
    for call in CALLS[name]:
        wanted = target()
        args, kwargs = given(call, wanted)
        in_python(name)(wanted, *args, **kwargs)

        @weft.compile
        def f(x, *args, **kwargs):
            y = x * 1
            same = getattr(y, name)(*[y if a is x else a for a in args], **kwargs)
            getattr(x, name)(*args, **kwargs)
            return y, same is y

        for _ in range(6):
            x = target()
            args, kwargs = given(call, x)
            y, same = f(x, *args, **kwargs)
            assert same and repr(x.tolist()) == repr(wanted.tolist()) == repr(y.tolist())


@pytest.mark.parametrize("name, call", WRONG)
def test_errors_are_those_of_python(name, call):
    for _ in range(20):
        wanted = outcome(in_python(name), target(), call)
        assert isinstance(wanted[0], type) and outcome(getattr(weft.Tensor, name), target(), call) == wanted


def test_statements():
    for _ in range(TIMES):
        x = target()
        name = x
        x += 1
        x *= weft.tensor(2.0)
        x -= x[0]
        x /= 4
        assert x is name and x.tolist() == [[0.0, 0.0, 0.0], [1.75, -0.875, -1.0]]
    with pytest.raises(TypeError):
        x += "text"
    number = 3.0
    number += x.sum()
    assert isinstance(number, weft.Tensor)


def test_gradients_and_leaves():
    w = weft.nn.Parameter(target())
    for _ in range(TIMES):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            w.add_(1)
        with weft.no_grad():
            w.mul_(1.0).copy_(target()).add_(target(), alpha=0.0)
        y = w * 2
        y.mul_(w).add_(w, alpha=0.5)
        y += 1
        (gradient,) = weft.autograd.grad(y.sum(), w)
        assert gradient.tolist() == (4 * target() + 0.5).tolist()
        z = weft.zeros(2, 3)
        z.copy_(w)
        assert z.requires_grad and weft.autograd.grad(z.sum(), w)[0].tolist() == weft.ones(2, 3).tolist()
    y = w * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_read_only_and_shared_memory():
    array = np.ones(3, np.float32)
    x, part = weft.from_numpy(array), weft.zeros(4, 3)
    row = part[1]

    @weft.compile
    def f(x, row):
        row.add_(x)
        x.mul_(2)
        row += 1
        return row.sum()

    for k in range(6):
        f(x, row)
        assert array.tolist() == [2.0 ** (k + 1)] * 3 and part[1].tolist() == [2.0 ** (k + 1) + k] * 3
        assert part[0].tolist() == [0.0] * 3 == part[2].tolist()
    wide = weft.ones(3, 1).expand(3, 3)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="single memory location"):
            wide.add_(1)


def test_subclasses_and_replaced_methods(monkeypatch):
    class Loud(weft.nn.Parameter):
        def add_(self, other):
            return "loud"

    x, loud = weft.ones(2), Loud(weft.ones(2), requires_grad=False)
    for _ in range(TIMES):
        assert loud.add_(1) == "loud" and x.add_(loud) is x and loud.mul_(1) is loud
    assert x.tolist() == [TIMES + 1.0] * 2
    with monkeypatch.context() as context:
        context.setattr(weft.Tensor, "mul_", lambda self, other: "replaced")
        assert x.mul_(2) == "replaced"
        y = operator.imul(x, 1)
        assert y is x


def test_nothing_is_kept():
    x, y = target(), target()

    def use():
        x.mul_(0.5).add_(y, alpha=0.5).copy_(y)
        x.neg_().add_(True)

    def use_often(times):
        for _ in range(times):
            use()

    use_often(1500)  # after a thousand calls there are plans of their own
    blocks, *references = growth(partial(use_often, 2000), x, y, None, True)
    assert blocks < 500 and all(abs(n) < 500 for n in references)


OPERATORS = {operator.iadd: "add_", operator.isub: "sub_", operator.imul: "mul_", operator.itruediv: "div_"}


@pytest.mark.parametrize("apply", OPERATORS, ids=lambda apply: apply.__name__)
def test_operators_are_their_methods(apply):
    name = OPERATORS[apply]
    slot = vars(weft.Tensor)[f"__{apply.__name__}__"]
    assert (type(slot) is type(int.__add__)) == (native.layout() is not None)
    for call in [*CALLS[name], *[call for wrong, call in WRONG if wrong == name]]:
        if len(call) == 1:
            wanted = outcome(in_python(name), target(), call)
            compiled = weft.compile(lambda x, y: apply(x, y))
            for _ in range(5):
                assert outcome(apply, target(), call) == wanted == outcome(slot, target(), call)
                assert outcome(compiled, target(), call) == wanted


class OfAUser(weft.nn.Parameter):
    def __iadd__(self, other):
        return "of a user"


def test_a_subclass_has_its_own_operators():
    x = OfAUser(weft.ones(2), requires_grad=False)
    y = x
    y += 1
    assert type(x) is OfAUser and y == "of a user" and x.tolist() == [1.0, 1.0]
    y = x
    y *= 3
    assert y is x and x.tolist() == [3.0, 3.0]


@pytest.mark.skipif(native.layout() is None, reason="no native code for this interpreter")
@pytest.mark.parametrize("name", ["add_", "sub_"])
def test_a_multiple_is_added_in_one_change(name):
    x, y = weft.zeros(64), weft.ones(64)
    for _ in range(TIMES):
        getattr(x, name)(y, alpha=0.5)
    before = eager_native.taken("calls_taken")
    getattr(x, name)(y, alpha=0.5)
    assert eager_native.taken("calls_taken") - before == 1
