"""weft.Tensor as users call it: PyTorch's older constructor, of sizes, sequences or nothing."""

import numpy as np
import pytest

import weft

VALUES = ["()", "([1, 2])", "((1, 2))", "([])", "([[], []])", "([[1, 2], [3, 4]])", "([True, False])", "(range(3))"]
VALUES += ["([ns.tensor(1.5), 2])", "(data)", "(data.t())", "(ns.tensor(3))"]
SIZES = ["(0)", "(2, 3)", "(np.int64(2), 3)", "(2, 0)"]
MISTAKES = [
    "(1.5)",
    "(True)",
    "('a')",
    "(np.float32(2))",
    "({1: 2})",
    "(2.0, 3)",
    "([1], [2])",
    "(-1)",
    "([[1, 2], [3]])",
]


def made(ns, arguments):
    data = ns.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=ns.float64, requires_grad=True)
    return eval(f"ns.Tensor{arguments}", {"ns": ns, "np": np, "data": data})


@pytest.mark.parametrize("arguments", VALUES)
def test_elements_are_given(arguments):
    x = made(weft, arguments)
    assert type(x) is weft.Tensor
    assert x.dtype is {"(ns.tensor(3))": weft.int64}.get(
        arguments, weft.float64 if "data" in arguments else weft.float32
    )
    assert (x + 1).shape == x.shape


@pytest.mark.oracle
@pytest.mark.parametrize("arguments", VALUES)
def test_elements_are_pytorchs(arguments):
    torch = pytest.importorskip("torch")
    x, expected = made(weft, arguments), made(torch, arguments)
    assert x.tolist() == expected.tolist()
    assert x.shape == tuple(expected.shape)
    assert str(x.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
    assert x.requires_grad == expected.requires_grad


@pytest.mark.oracle
@pytest.mark.parametrize("arguments", SIZES)
def test_sizes_are_pytorchs(arguments):
    torch = pytest.importorskip("torch")
    assert made(weft, arguments).shape == tuple(made(torch, arguments).shape)
    assert made(weft, arguments).dtype is weft.float32


@pytest.mark.oracle
@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistakes_raise_as_in_pytorch(arguments):
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as expected:
        made(torch, arguments)
    with pytest.raises(expected.type):
        made(weft, arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("(1.5)", "Tensor: data must be a sequence (got float); use weft.tensor for a number"),
        ("(2.0, 3)", "Tensor: got (float, int); expected sizes, as in Tensor(2, 3), or one sequence of numbers"),
    ],
)
def test_messages(arguments, message):
    with pytest.raises(TypeError) as raised:
        made(weft, arguments)
    assert str(raised.value) == message


def test_default_dtype_decides():
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.Tensor([1, 2]).dtype is weft.Tensor(2).dtype is weft.Tensor().dtype is weft.float64
    finally:
        weft.set_default_dtype(weft.float32)


def test_tensor_of_a_tensor_shares_its_memory_and_history():
    x = weft.ones(2, requires_grad=True)
    y = weft.Tensor(x)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]
    with weft.no_grad():
        y.mul_(2)
    assert x.tolist() == [2, 2]


def test_compiled_call_makes_the_same():
    def f(x):
        return x * weft.Tensor([1, 2]) + weft.Tensor(range(2))

    x = weft.ones(2)
    compiled = weft.compile(f)
    for _ in range(3):
        assert compiled(x).tolist() == f(x).tolist() == [1, 3]


def test_lists_of_floats_at_any_depth_are_of_the_default_type():
    for data in ([1.5], (1.5, 2.0), [[1.5, 2.0], (3.0, 4.0)], [[[1.5]], [[2.0]]], [1e300, -1e300]):
        made = weft.tensor(data)
        assert made.dtype is weft.float32
        with np.errstate(over="ignore"):
            assert made.tolist() == np.array(data).astype(np.float32).tolist()


@pytest.mark.parametrize("kind", ["Tensor", "FloatTensor"])
@pytest.mark.parametrize("given", ["float32", "float64", "int64", "bool"])
def test_arrays_become_the_default_type_and_share_memory_if_they_have_it(kind, given):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(given)
    made = getattr(weft, kind)(array.T)
    assert made.dtype is weft.float32 and made.tolist() == array.T.tolist()
    made[0, 0] = 1
    assert bool(array[0, 0]) is (given == "float32")


def test_matrices_of_scipy_meet_weights_as_in_pytorch():
    layer = weft.nn.Linear(3, 3)
    layer.register_buffer("transition", weft.Tensor(np.linalg.inv(np.eye(3) * 2)))
    assert (layer(weft.ones(2, 3)) @ layer.transition).dtype is weft.float32


@pytest.mark.oracle
def test_scalars_of_numpy_and_other_sequences_are_taken_as_in_pytorch():
    torch = pytest.importorskip("torch")
    series = pytest.importorskip("pandas").Series([1.0, 2.0])
    for given in (np.int64(2), np.array(2), np.array(2.5), series, np.ones((0, 3)), [np.float32(1), 2]):
        ours, theirs = weft.Tensor(given), torch.Tensor(given)
        assert ours.shape == tuple(theirs.shape) and str(ours.dtype) == str(theirs.dtype).replace("torch", "weft")
    for given in (np.float32(2), {1: 2}, "12", np.array(["a"])):
        with pytest.raises(TypeError):
            torch.Tensor(given)
        with pytest.raises(TypeError):
            weft.Tensor(given)
