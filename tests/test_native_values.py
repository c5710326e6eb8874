"""What methods read of tensors in memory is the same whoever is asked (native_values.py)."""

import copy
import threading

import numpy as np
import pytest
from leaks import growth

import weft
from weft.runtime.replay import native
from weft.runtime.state import marks

TIMES = 80  # from some dozens of calls on native code is asked
NAMES = ("item", "stride", "data_ptr", "numpy", "detach", "__float__", "__int__", "__bool__")


@pytest.fixture(autouse=True)
def methods_are_native():
    x = weft.ones(2)
    for _ in range(TIMES):
        x + x
    is_native = all(vars(weft.Tensor)[name] is not marks.first_methods[weft.Tensor][name] for name in (*NAMES, "data"))
    assert is_native == (native.layout() is not None)


def tensors():
    for dtype in (
        weft.bool,
        weft.uint8,
        weft.int16,
        weft.int64,
        weft.float16,
        weft.bfloat16,
        weft.float32,
        weft.float64,
    ):
        for shape in ((), (1,), (1, 1), (3,), (2, 3), (0, 2)):
            yield weft.full(shape, 3, dtype=dtype)
    yield from (weft.tensor(x) for x in (float("nan"), float("inf"), -0.0, 0.0, -2.75, 2**62 + 1, True, False))
    yield from (weft.complex(weft.tensor(2.5), weft.tensor(y)) for y in (0.0, 1.0))
    yield weft.arange(24.0).reshape(2, 3, 4)[:, ::2, 1:].transpose(0, 2)
    yield weft.arange(6.0).flip(0)
    yield weft.from_numpy(np.arange(6.0)[::-2])
    yield weft.from_numpy(np.zeros((3, 2), np.longlong).T)
    yield from (
        weft.nn.Parameter(weft.tensor(1.5)),
        weft.ones(3).requires_grad_() * 2,
        weft.ones(1).requires_grad_()[0],
    )


READS = {
    "item": lambda x, call: call("item", x),
    "float": lambda x, call: call("__float__", x),
    "int": lambda x, call: call("__int__", x),
    "bool": lambda x, call: call("__bool__", x),
    "stride": lambda x, call: call("stride", x),
    "stride of one": lambda x, call: [call("stride", x, d) for d in range(-x.ndim, x.ndim)],
    "stride of none": lambda x, call: call("stride", x, 7),
    "stride by name": lambda x, call: call("stride", x, dim=-1),
    "data_ptr": lambda x, call: call("data_ptr", x),
    "numpy": lambda x, call: call("numpy", x),
    "numpy by force": lambda x, call: call("numpy", x, force=True),
    "too many": lambda x, call: call("item", x, 0),
}


def outcome(read, x, call):
    try:
        found = read(x, call)
    except Exception as error:
        return type(error), str(error)
    if isinstance(found, np.ndarray):
        return found.dtype, found.strides, found.tobytes(), found.ctypes.data
    return repr(found), type(found), type(found[0]) if isinstance(found, tuple) and found else None


@pytest.mark.parametrize("name", READS)
def test_they_read_what_the_functions_in_python_read(name):
    def now(method, x, *args, **kwargs):
        return getattr(weft.Tensor, method)(x, *args, **kwargs)

    def in_python(method, x, *args, **kwargs):
        return marks.in_python(method)(x, *args, **kwargs)

    read, n = READS[name], 0
    for x in tensors():
        wanted = outcome(read, x, in_python)
        if isinstance(wanted[0], type) and "argument" in wanted[1]:
            # CPython says how many arguments a function of its own takes in other words.
            assert outcome(read, x, now)[0] is wanted[0]
        else:
            assert outcome(read, x, now) == wanted
        n += 1
    assert n > 50


def test_operators_and_functions_ask_them():
    x = weft.tensor([2.75, 0.0, -1.0])
    assert (float(x[0]), int(x[0]), int(x[2]), bool(x[1]), bool(x[2])) == (2.75, 2, -1, False, True)
    assert not x[1] and [y for y in x if y] == [x[0], x[2]] and ("yes" if x[0] > x[1] else "no") == "yes"
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(x)
    with pytest.raises(ValueError, match="NaN"):
        int(weft.tensor(float("nan")))
    with pytest.raises(OverflowError):
        int(weft.tensor(float("inf")))


def test_what_detach_gives():
    leaf = weft.ones(3).requires_grad_()
    grown = leaf * 2
    for x, base in ((leaf, leaf), (grown, None), (grown[1:], None), (weft.ones(3)[1:], None)):
        y = x.detach()
        assert not y.requires_grad and y.grad_fn is None and y.is_leaf and y.data_ptr() == x.data_ptr()
        assert y._is_apart is True and y._version == x._version and not y._is_view()
        assert base is None or y._base is base
    y = grown.detach()
    y.add_(1)
    assert grown._version == 1 and y[0].item() == grown[0].item() == 3.0
    x = leaf.exp()
    x.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x.sum().backward()
    with weft.inference_mode():
        assert weft.ones(2).detach().is_inference()


def test_data_has_a_version_of_its_own():
    x = weft.ones(2, 2).requires_grad_()
    shown = x.data
    shown.add_(1)
    assert x._version == 0 and x[0, 0].item() == 2.0 and not shown.requires_grad and not shown._is_view()
    x.data = weft.zeros(3)
    assert x.shape == (3,) and shown.shape == (2, 2)
    with pytest.raises(RuntimeError, match="Deleting tensor data"):
        del x.data
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        x.data = 3


def test_arrays_of_memory_with_several_versions():
    x = weft.ones(3)
    others = [x.data, x[1:], x.detach(), x.data.data]
    for shown in (x, *others):
        array = shown.numpy()
        assert all(one._storage.exposed for one in (x, *others))
        array[0] = 5.0
        assert shown[0].item() == 5.0
    del others, shown, array
    f = weft.compile(lambda x: x * 2)
    for k in range(4):
        array = x.data.numpy()
        array[:] = k
        assert f(x).tolist() == [2.0 * k] * 3


def test_values_of_a_call_in_flight():
    @weft.compile
    def f(x):
        y = x * 2
        y.add_(1)
        z = y.detach() + y.data
        if y.sum() > 3:
            z = z * float(y[0]) + int(y[1]) + y[2].item()
        return z, y.stride(), y[:2].numpy().tolist()

    def plain(x):
        y = x * 2
        y.add_(1)
        return (y + y) * y[0] + y[1].floor() + y[2], (1,), y[:2].tolist()

    for k in range(12):
        x = weft.tensor([1.0, 1.5, 2.0]) + k
        (found, *rest), (wanted, *others) = f(x), plain(x)
        assert found.tolist() == wanted.tolist() and rest == others


def test_in_other_threads():
    x, found = weft.tensor([1.5]), []
    thread = threading.Thread(
        target=lambda: found.extend([x.item(), float(x), x.stride(), x.detach().tolist(), bool(x)])
    )
    thread.start()
    thread.join()
    assert found == [1.5, 1.5, (1,), [1.5], True]


def test_classes_of_users_and_modes_are_asked():
    class Loud(weft.Tensor):
        asked = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.asked.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = weft.tensor([2.0]).as_subclass(Loud)
    assert x.item() == 2.0 and float(x) == 2.0 and x.stride() == (1,) and type(x.detach()) is Loud
    assert {"item", "stride", "detach"} <= set(Loud.asked)

    class Mode(weft.overrides.TorchFunctionMode):
        seen = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    plain = weft.ones(1)
    with Mode():
        plain.item(), plain.detach(), plain.stride()
    assert {"item", "stride", "detach"} <= set(Mode.seen)


def test_methods_of_subclasses_come_first():
    class Scaled(weft.nn.Parameter):
        def item(self):
            return 2 * super().item()

    assert Scaled(weft.tensor(1.5)).item() == 3.0 and copy.copy(weft.tensor(1.5)).item() == 1.5


@pytest.mark.skipif(native.layout() is None, reason="nothing is native here")
def test_python_is_not_called(monkeypatch):
    x, grown = weft.tensor([1.5]), weft.ones(1).requires_grad_() * 2

    def refuse(*_):
        raise AssertionError("Python was called")

    def use():
        for y in (x, grown):
            y.item(), float(y), int(y), bool(y), y.stride(), y.stride(0), y.data_ptr(), y.detach()
        return x.numpy()

    use()
    for name in ("values_of", "readable", "_layout", "_apply"):
        monkeypatch.setattr(weft.methods, name, refuse)
    assert use().tolist() == [1.5]


def test_nothing_is_kept():
    x = weft.ones(1, 1)

    def use():
        for _ in range(5000):
            x.item(), float(x), int(x), bool(x), x.stride(), x.stride(0), x.data_ptr(), x.numpy(), x.detach(), x.data

    use()
    blocks, types = growth(use, weft.float32)
    assert blocks < 500 and abs(types) < 500
