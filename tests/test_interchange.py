"""Memory that is shared with other libraries: DLPack and Python's buffers."""

import array
import importlib

import numpy as np
import pytest

import weft


def test_numpy_reads_a_tensor_and_sees_its_changes():
    x = weft.arange(6).reshape(2, 3).t()
    seen = np.from_dlpack(x)
    assert seen.shape == (3, 2) and seen.strides == (8, 24) and seen.dtype == np.int64
    x[0, 1] = 7
    assert seen[0, 1] == 7


def test_a_tensor_on_an_array_shares_its_memory():
    a = np.arange(4.0)
    x = weft.from_dlpack(a)
    x.mul_(2)
    assert a.tolist() == [0, 2, 4, 6] and x.dtype is weft.float64
    copy = weft.from_dlpack(a, copy=True)
    a[0] = 9
    assert copy[0] == 0 and x[0] == 9
    y = weft.from_dlpack(x)
    y[1] = -1
    assert a[1] == -1


@pytest.mark.oracle
def test_pytorch_and_weft_share_memory_both_ways():
    import torch

    theirs = torch.arange(6.0).reshape(2, 3)
    ours = weft.from_dlpack(theirs)
    ours += 1
    back = torch.from_dlpack(ours)
    assert theirs.tolist() == back.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert torch.utils.dlpack.from_dlpack(weft.utils.dlpack.to_dlpack(ours)).data_ptr() == theirs.data_ptr()


def test_a_compiled_call_sees_what_the_other_library_wrote():
    x = weft.zeros(3)
    seen, f = np.from_dlpack(x), weft.compile(lambda x: x * 2)
    for k in range(6):
        seen[:] = k
        assert f(x).tolist() == [2.0 * k] * 3


@pytest.mark.parametrize("buffer", [bytearray, lambda b: array.array("b", b), memoryview, np.frombuffer])
def test_vectors_on_buffers(buffer):
    data = np.arange(4, dtype=np.int32).tobytes()
    held = buffer(data) if buffer is not np.frombuffer else np.frombuffer(data, np.int8)
    assert weft.frombuffer(held, dtype=weft.int32).tolist() == [0, 1, 2, 3]
    assert weft.frombuffer(held, dtype=weft.int32, count=2, offset=4).tolist() == [1, 2]


def test_changes_go_through_to_a_bytearray_and_not_to_bytes():
    held = bytearray(8)
    weft.frombuffer(held, dtype=weft.float32).fill_(1.0)
    assert held == np.ones(2, np.float32).tobytes()
    fixed = weft.frombuffer(bytes(8), dtype=weft.float32)
    with pytest.raises(RuntimeError, match="read-only"):
        fixed.add_(1)
    leaf = weft.frombuffer(held, dtype=weft.float32, requires_grad=True)
    (leaf * 3).sum().backward()
    assert leaf.grad.tolist() == [3.0, 3.0]


def test_what_is_refused():
    leaf = weft.ones(2, requires_grad=True)
    with pytest.raises(BufferError, match="require gradient, use tensor.detach"):
        np.from_dlpack(leaf)
    with pytest.raises(TypeError, match="expected an object with __dlpack__, got list"):
        weft.from_dlpack([1.0])
    with pytest.raises(ValueError, match="must be a multiple of element size"):
        weft.frombuffer(b"abc", dtype=weft.float32)
    with pytest.raises(
        ValueError, match=r"\(7 \* 4 bytes\) after offset \(0 bytes\) must not be greater .*\(8 bytes\)"
    ):
        weft.frombuffer(bytes(8), dtype=weft.float32, count=7)
    with pytest.raises(ValueError, match="must not be 0"):
        weft.frombuffer(b"", dtype=weft.float32)
    with pytest.raises(ValueError, match=r"offset \(9 bytes\) must be non-negative"):
        weft.frombuffer(bytes(8), dtype=weft.float32, offset=9)


def test_the_path_of_pytorch():
    from_dlpack = importlib.import_module("weft.utils.dlpack").from_dlpack
    assert from_dlpack(np.arange(3.0)).tolist() == weft.from_dlpack(np.arange(3.0)).tolist() == [0.0, 1.0, 2.0]


# --- functions of NumPy's that call a method of what they are given ---------------------------------------------------
@pytest.mark.parametrize("name", ["sum", "mean", "std", "var", "max", "min", "prod", "any", "all"])
def test_reductions_by_numpys_functions(name):
    """They are tensors, with gradients, and mean what NumPy's name means: `np.std` divides by the number."""
    function, x = getattr(np, name), weft.tensor([[0.5, -1.0, 2.0], [2.0, 0.0, 3.0]])
    leaf = x.clone().requires_grad_()
    options = [{}, {"axis": 0}, {"axis": (0, 1)}, {"keepdims": True}, {"axis": -1, "keepdims": True}]
    for given in options + [{"axis": 1, "ddof": 1}, {"ddof": 0.5}] * (name in ("std", "var")):
        found, expected = function(x, **given), function(x.numpy(), **given)
        assert type(found) is weft.Tensor and found.shape == expected.shape and found.numpy().dtype == expected.dtype
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
        if name not in ("any", "all"):
            function(leaf, **given).sum().backward()
    assert (leaf.grad is None) == (name in ("any", "all"))
    with pytest.raises(TypeError, match=f"{name}: the method takes no out=; weft.{name}"):
        getattr(x, name)(out=x)
    assert np.array_equal(weft.compile(lambda x: function(x))(x).numpy(), function(x).numpy())


def test_numpys_sum_in_a_function_that_is_differentiated():
    both = weft.value_and_grad(lambda x: np.sum(x**2, axis=0) + np.mean(x))
    for k in range(12):
        value, gradient = both(np.array([k, 1.0]))
        assert value == k * k + 1 + (k + 1) / 2 and gradient.tolist() == [2 * k + 0.5, 2.5]


def test_columns_of_pandas_as_keys():
    pandas = pytest.importorskip("pandas")
    x = weft.arange(4.0)
    rows = pandas.Series([3, 1], index=[7, 8])
    assert x[rows].tolist() == x[pandas.Index([3, 1])].tolist() == [3, 1]
    x[pandas.Series([0.5, 1.5, 2.5, 0.5]) > 1] = -1
    assert x.tolist() == [0, -1, -1, 3]
    with pytest.raises(IndexError, match="must be int64, int32 or bool, got object"):
        x[pandas.Series(["a", "b"], dtype=object)]
