"""What eager mode does with small tensors by shorter ways is what it does with others."""

import copy
import pickle

import numpy as np
import pytest

import weft
from weft.runtime.replay import eager_native, native

TIMES = 80  # from some dozens of calls on native code is asked


@pytest.fixture(autouse=True)
def native_code_is_there():
    x = weft.ones(2)
    for _ in range(TIMES):
        x + x


TYPES = [weft.bool, weft.uint8, weft.int32, weft.int64, weft.float16, weft.bfloat16, weft.float64, weft.complex64]


def test_zeros_are_new_and_zero():
    made = []
    for shape in ((), (3,), (2, 0), (0,), (2, 3, 4), (1,) * 16, (1,) * 17, (4096,), (4097,), (70, 70)):
        for dtype in TYPES:
            like = weft.ones(shape, dtype=dtype)
            for x in (
                weft.zeros(shape, dtype=dtype),
                weft.zeros_like(like),
                like.new_zeros(shape),
                weft.empty_like(like),
            ):
                assert x.shape == shape and x.dtype is dtype and x.is_contiguous() and x.is_leaf and x._version == 0
                assert x._data.flags.writeable and not x._data.view(np.uint8 if shape else x._data.dtype).any()
                made.append(x)
        made[-1].fill_(1)
        assert made[-2].count_nonzero() == 0
    assert (
        weft.zeros(2, 3).shape == weft.zeros((2, 3)).shape == weft.zeros([2, 3]).shape == weft.empty(size=(2, 3)).shape
    )
    assert weft.zeros(2, dtype=float).dtype is weft.float64 and weft.zeros(2, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="negative dimension"):
        weft.zeros(2, -1)
    with weft.inference_mode():
        assert weft.zeros(2).is_inference() and not weft.zeros(2).requires_grad


def test_zeros_in_a_compiled_call():
    f = weft.compile(lambda x: weft.zeros(3).add_(x) + weft.zeros_like(x))
    for k in range(6):
        assert f(weft.full((3,), float(k))).tolist() == [k] * 3


@pytest.mark.oracle
def test_full_has_the_type_of_the_number():
    torch = pytest.importorskip("torch")
    for number in (2, 2.5, True, 1j, np.float64(2.5), np.int64(3)):
        for size in ((2, 3), (), [2], 3):
            if size != 3 or not isinstance(number, complex):
                ours = weft.full(size, number)
                theirs = torch.full(size if size != 3 else (3,), number)
                assert (str(ours.dtype)[5:], ours.tolist()) == (str(theirs.dtype)[6:], theirs.tolist())


def test_limits_are_one_object_for_each_type():
    assert weft.finfo(weft.float32) is weft.finfo(weft.float32) is weft.finfo(weft.complex64) is weft.finfo(weft.cfloat)
    assert weft.finfo(float) is weft.finfo(weft.float64) and weft.finfo().dtype == "float32"
    for dtype in (weft.float16, weft.bfloat16, weft.float32, weft.float64):
        one = weft.finfo(dtype)
        assert one.dtype == dtype.name and copy.deepcopy(one) is one and pickle.loads(pickle.dumps(one)) is one
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.finfo().dtype == "float64"
    finally:
        weft.set_default_dtype(weft.float32)
    with pytest.raises(TypeError, match="requires a floating point type"):
        weft.finfo(weft.int64)


@pytest.mark.oracle
def test_as_strided_again_and_again():
    torch = pytest.importorskip("torch")
    x, t = weft.arange(12.0).reshape(3, 4).clone(), torch.arange(12.0).reshape(3, 4)
    cases = [((2, 2), (4, 1), 1), ((2, 2), (1, 1), 0), ((3,), (4,), None), ((0, 2), (1, 1), 3), ((), (), 5)]
    for size, stride, offset in cases * 3:
        for view in (lambda a: a, lambda a: a.t(), lambda a: a[1:]):
            try:
                wanted = view(t).as_strided(size, stride, offset)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    view(x).as_strided(size, stride, offset)
                continue
            if offset is None or view(x).shape == (3, 4):
                assert view(x).as_strided(size, stride, offset).tolist() == wanted.tolist()
    shown = x.as_strided((2, 2), (4, 1), 1)
    shown[0, 0] = -1.0
    assert x[0, 1].item() == -1.0 and x._version == 1
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((2, 2), (8, 8))


def test_elements_at_a_tensor_that_is_a_number():
    x, k = weft.arange(12.0).reshape(3, 4).clone().requires_grad_(), weft.tensor(-1)
    assert x[k].tolist() == [8, 9, 10, 11] and x[k]._base is x and x[k].grad_fn.name() == x[2].grad_fn.name()
    with pytest.raises(IndexError, match="out of bounds"):
        x[weft.tensor(3)]
    y = x.detach().clone()
    y[k] = 5.0
    y[weft.tensor(0)] = weft.tensor([1, 2, 3, 4])
    assert y[2].tolist() == [5.0] * 4 and y[0].tolist() == [1, 2, 3, 4] and y._version == 2
    with pytest.raises(IndexError):
        y[weft.tensor(3)] = 1.0


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_composites_of_complex_numbers(name):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    numbers = (rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3))).astype(name)
    functions = {
        "mean": lambda z: z.mean(),
        "mean of rows": lambda z: z.mean(1, keepdim=True),
        "matmul": lambda z: z @ z.mT,
        "matmul of vectors": lambda z: z[0] @ z[1],
        "matrix and vector": lambda z: z @ z[1],
    }

    def results(library, function):
        z = library.tensor(numbers, requires_grad=True)
        for _ in range(12):
            z.grad, y = None, function(z)
            (y.abs() ** 2).sum().backward()
        return [x.detach().numpy() for x in (y, function(z.detach()), z.grad)]

    for function in functions.values():
        for ours, theirs in zip(results(weft, function), results(torch, function)):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5 if name == "complex64" else 1e-12)


def test_what_complex_numbers_have_no_meaning_for_says_so_every_time():
    z = weft.tensor([[1 + 1j, 2], [3, 4]])
    for _ in range(TIMES):
        with pytest.raises((RuntimeError, TypeError), match="complex"):
            z.softmax(0)


@pytest.mark.skipif(native.layout() is None, reason="nothing is native here")
def test_a_part_of_several_results_is_answered():
    x = weft.ones(3, 4)
    for _ in range(TIMES):
        x.unbind(), x.chunk(2, 1), x.split(1)
    before = eager_native.taken("calls_taken")
    parts = [*x.unbind(), *x.chunk(2, 1), *x.split(1)]
    assert eager_native.taken("calls_taken") - before == len(parts) == 8
    assert all(part._base is x for part in parts)
    leaf = x.clone().requires_grad_()
    for part in leaf.unbind():
        with pytest.raises(RuntimeError):
            part.add_(1)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 4), (1, 5), (6,), (40, 3), (3, 0)])
def test_the_mode_of_few_and_of_many(shape):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(len(shape))
    for numbers in (rng.integers(0, 3, shape), rng.choice([0.0, -0.0, 1.5, np.inf, -np.inf], shape).astype(np.float32)):
        for dim in range(-len(shape), len(shape)):
            if shape[dim]:
                ours, theirs = weft.tensor(numbers).mode(dim), torch.tensor(numbers).mode(dim)
                assert ours.values.tolist() == theirs.values.tolist()
                # PyTorch does not order long rows stably.
                assert shape[dim] > 16 or ours.indices.tolist() == theirs.indices.tolist()
    with_nan = np.array([1.0, np.nan, 2.0, 2.0], np.float32)
    assert weft.tensor(with_nan).mode().values.item() == 2.0
