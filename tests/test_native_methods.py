"""Methods that go to their ops in native code do what their functions in Python do (native_methods.py)."""

import inspect
from functools import partial

import numpy as np
import pytest
from leaks import growth

import weft
from weft.runtime.replay import native, native_methods
from weft.runtime.state import marks

TIMES = 80  # from some dozens of calls on methods are native
CALLS = {
    "sum": [
        (),
        (0,),
        (-1,),
        ((0, 1),),
        (None,),
        ((0, 1), True),
        {"dim": 1, "keepdim": True},
        {"axis": 0},
        (0, np.True_),
    ],
    "mean": [(), (0,), {"dim": -1, "keepdim": True}, ((),), ([0, 1],), {"dtype": weft.float64}],
    "amax": [(), (1,), {"dim": (0, 1)}],
    "any": [(), (0,)],
    "all": [(), {"dim": 1}],
    "var": [(), (0,), (0, False), {"dim": 1, "correction": 0}, {"unbiased": False}],
    "std": [(), {"dim": 0, "keepdim": True}],
    "softmax": [(0,), (-1,), {"dim": 1}, (0, weft.float64)],
    "log_softmax": [(0,), {"dim": -1}],
    "argmax": [(), (0,), (1, True), {"dim": -1}],
    "argmin": [(), (0,)],
    "view": [(-1,), (2, -1), ((3, 4),), ([6, 2],), (np.int64(4), 3), {"size": (12,)}],
    "reshape": [(-1,), (2, -1), ((3, 4),), ((4, 3, 1),), {"shape": (12,)}],
    "flatten": [(), (0, 1)],
    "squeeze": [(), (0,)],
    "unsqueeze": [(0,), (-1,), {"dim": 1}],
    "permute": [(1, 0), ((1, 0),)],
    "transpose": [(0, 1), (-1, 0), {"dim0": 0, "dim1": 1}],
    "swapaxes": [(0, 1)],
    "t": [()],
    "expand": [(2, 3, 4), (2, -1, -1), ((5, 3, 4),)],
    "narrow": [(0, 1, 2), (1, -2, 2), {"dim": 0, "start": 0, "length": 1}],
    "select": [(0, 1), (1, -1)],
    "size": [(), (0,), (-1,), {"dim": 1}],
    "dim": [()],
    "numel": [()],
}
WRONG = [
    ("sum", (2,)), ("sum", (0, "yes")), ("mean", ((0, 0),)), ("softmax", ()), ("softmax", (3,)), ("argmax", (5,)),
    ("view", (5, -1)), ("view", (7,)), ("reshape", (-1, -1)), ("transpose", (0,)), ("transpose", (0, 2)), ("t", (1,)),
    ("narrow", (0, 2, 5)), ("select", (0, 3)), ("size", (2,)), ("unsqueeze", (4,)), ("expand", (2, 2)), ("dim", (1,)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def methods_are_native():
    x = weft.ones(2)
    for _ in range(TIMES):
        x + x
    assert (not inspect.isfunction(weft.Tensor.sum)) == (native.layout() is not None)


def in_python(name):
    """The function that stood there before."""
    places = [place for place, own in enumerate(native_methods.own) if own == name]
    return native_methods.functions[places[0]] if places else getattr(weft.Tensor, name)


def called(function, x, call):
    return function(x, **call) if isinstance(call, dict) else function(x, *call)


def tensors():
    yield weft.arange(12.0).reshape(3, 4)
    yield weft.arange(12).reshape(3, 4)
    yield weft.arange(12.0, dtype=weft.float64).reshape(4, 3).t()
    yield weft.nn.Parameter(weft.arange(12.0).reshape(3, 4))
    yield weft.ones(3, 4, dtype=weft.bool)


def outcome(function, x, call):
    """What a call gives, as something that can be compared, or its error."""
    try:
        found = called(function, x, call)
    except Exception as error:
        return type(error), str(error)
    if not isinstance(found, weft.Tensor):
        return type(found), found
    node = None if found.grad_fn is None else found.grad_fn.name()
    base = None if found._base is None else "x" if found._base is x else "of x"
    return found.dtype, found.shape, repr(found.tolist()), found.requires_grad, node, base, found is x


@pytest.mark.parametrize("name", CALLS)
def test_eager(name):
    for x in tensors():
        for call in CALLS[name]:
            wanted = outcome(in_python(name), x, call)
            for _ in range(20):
                assert outcome(getattr(weft.Tensor, name), x, call) == wanted


@pytest.mark.parametrize("name", CALLS)
def test_compiled(name):
    for x in list(tensors())[:2]:
        for call in CALLS[name]:
            wanted = outcome(in_python(name), x * 2, call)
            if len(wanted) == 2 and name not in ("size", "dim", "numel"):
                continue  # an error, of which the next test is

            @weft.compile
            def f(x, call=call):
                found = called(getattr(weft.Tensor, name), x * 2, call)
                return found + 0 if isinstance(found, weft.Tensor) else found

            for _ in range(20):
                found = f(x)
            if isinstance(found, weft.Tensor):
                assert (found.dtype, found.shape) == ((called(in_python(name), x * 2, call) + 0).dtype, wanted[1])
                assert repr(found.tolist()) == repr((called(in_python(name), x * 2, call) + 0).tolist())
            else:
                assert (type(found), found) == wanted


@pytest.mark.parametrize("name, call", WRONG)
def test_errors_are_those_of_python(name, call):
    x = weft.arange(12.0).reshape(3, 4)
    for _ in range(20):
        wanted = outcome(in_python(name), x, call)
        assert isinstance(wanted[0], type) and issubclass(wanted[0], Exception)
        assert outcome(getattr(weft.Tensor, name), x, call) == wanted


def test_a_view_of_what_does_not_lie_in_order_is_refused():
    x = weft.arange(12.0).reshape(3, 4)
    for _ in range(40):
        assert x.view(12).shape == (12,) and x.t().reshape(12).tolist()[:3] == [0.0, 4.0, 8.0]
        with pytest.raises(RuntimeError, match="not compatible with input tensor's size"):
            x.reshape(4, 3).t().view(12)

    @weft.compile
    def f(x):
        return x.t().view(12)

    for _ in range(6):
        with pytest.raises(RuntimeError, match="not compatible"):
            f(x)


def test_types_and_numbers_are_told_apart():
    x = weft.arange(6.0).reshape(2, 3)
    for _ in range(40):
        assert x.sum(0, True).shape == (1, 3) and x.sum(0, False).shape == (3,) and x.sum(1).shape == (2,)
        assert x.argmax(1).dtype is weft.int64
        with pytest.raises(TypeError):
            x.sum(0, 1)
        with pytest.raises(RuntimeError, match="bool"):
            (x > 2).argmax(1)
        assert x.int().sum(1).dtype is weft.int64 and x.double().sum(1).dtype is weft.float64


def test_autocast_decides_as_before():
    x = weft.ones(4, 4, dtype=weft.bfloat16)
    wanted = None
    for _ in range(40):
        outside = x.softmax(-1).dtype, x.sum().dtype
        with weft.autocast("cpu", dtype=weft.bfloat16):
            inside = in_python("softmax")(x, -1).dtype, in_python("sum")(x).dtype
            assert (x.softmax(-1).dtype, x.sum().dtype) == inside
        wanted = wanted or (outside, inside)
        assert (outside, inside) == wanted


def test_the_default_type_decides_as_before():
    x = weft.arange(6).reshape(2, 3)
    for default in (weft.float32, weft.float64) * 2:
        weft.set_default_dtype(default)
        try:
            for _ in range(20):
                assert (x / 2).mean(0).dtype is default and x.sum().dtype is weft.int64
        finally:
            weft.set_default_dtype(weft.float32)


def test_transforms_of_functions():
    x = weft.arange(12.0).reshape(3, 4)
    for _ in range(20):
        rows = weft.func.vmap(lambda row: row.sum() + row.view(2, 2).t().mean(0))(x)
        assert rows.tolist() == [(row.sum() + row.view(2, 2).t().mean(0)).tolist() for row in x]
        assert weft.func.grad(lambda x: x.softmax(0).select(0, 1).sum())(x).shape == (3, 4)
        out, tangent = weft.func.jvp(lambda x: x.transpose(0, 1).sum(0), (x,), (weft.ones(3, 4),))
        assert tangent.tolist() == [4.0, 4.0, 4.0]


def test_subclasses_and_replaced_methods(monkeypatch):
    class Loud(weft.nn.Parameter):
        def sum(self, *args):
            return ("loud", super().sum(*args).item())

        def size(self, dim=None):
            return 77

    x, loud = weft.ones(2, 2), Loud(weft.ones(2, 2))
    for _ in range(TIMES):
        assert loud.sum() == ("loud", 4.0) and x.sum().item() == 4.0 and loud.size() == 77 and loud.mean().item() == 1
    with monkeypatch.context() as context:
        context.setattr(weft.Tensor, "sum", lambda self, *args: "replaced")
        assert x.sum() == "replaced"
    assert x.sum().item() == 4.0


def test_they_are_described_as_before():
    for name in CALLS:
        new, old = inspect.signature(getattr(weft.Tensor, name)), inspect.signature(in_python(name))
        assert list(new.parameters)[1:] == list(old.parameters)[1:]
        assert (getattr(weft.Tensor, name).__doc__ or "") == (in_python(name).__doc__ or "")
        assert marks.methods[weft.Tensor][name] is vars(weft.Tensor)[name]


def test_nothing_is_kept():
    x = weft.ones(3, 4)

    def use():
        x.sum(), x.view(2, 6).t().mean(0, keepdim=True), x.size(), x.size(1), x.softmax(dim=-1), x.narrow(0, 1, 2)
        x.sum([0]), x.view([12])

    def use_often(times):
        for _ in range(times):
            use()

    use_often(1500)  # after a thousand calls there are plans of their own
    blocks, *references = growth(partial(use_often, 2000), x, None, True)
    assert blocks < 500 and all(abs(n) < 500 for n in references)


def test_many_shapes_and_arguments():
    for n in range(1, 300):
        x = weft.ones(n)
        for _ in range(18):
            assert x.view(1, n).shape == (1, n) and x.narrow(0, n // 2, 1).tolist() == [1.0]
            assert x.sum().item() == n == x.size(0)
