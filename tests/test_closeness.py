"""isclose as PyTorch has it: with infinities, nan and whole numbers, and as part of a compiled call."""

import itertools

import pytest

import weft

INF, NAN = float("inf"), float("nan")
NUMBERS = [0.0, 1.0, -1.0, 1 + 1e-6, 1 + 1e-5, 1 + 2e-5, 1e-9, INF, -INF, NAN, 1e30, 3e38]
WHOLE = [0, 1, 2, 100, 101, 200]
OPTIONS = [{}, {"equal_nan": True}, {"rtol": 0.0, "atol": 0.0}, {"rtol": 0.01}, {"atol": 0.5}, {"rtol": 0, "atol": 1}]
NAMES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64", "complex128"]


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_isclose_is_pytorchs(name):
    torch = pytest.importorskip("torch")
    values = WHOLE if "int" in name or name == "bool" else NUMBERS
    pairs = list(zip(*itertools.product(values, values)))
    ours = [weft.tensor(x).to(getattr(weft, name)) for x in pairs]
    theirs = [torch.tensor(x).to(getattr(torch, name)) for x in pairs]
    has_kernels = name in ("float32", "float64", "int64", "int32", "bool")
    compiled = weft.compile(lambda x, y, **options: weft.isclose(x, y, **options), fullgraph=has_kernels)
    for options in OPTIONS:
        expected = torch.isclose(*theirs, **options).tolist()
        assert weft.isclose(*ours, **options).tolist() == expected
        assert all(compiled(*ours, **options).tolist() == expected for _ in range(2))


def test_what_is_close_to_what():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    assert weft.isclose(x, x + 1e-7).tolist() == [True, True] and not weft.isclose(x, x).requires_grad
    with pytest.raises(RuntimeError, match="greater than or equal to zero"):
        weft.isclose(x, x, rtol=-1)
    with pytest.raises(RuntimeError, match="dtypes do not match"):
        weft.isclose(x, weft.ones(2, dtype=weft.float64))


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_allclose_equal_and_isin_are_pytorchs(name):
    """Often enough that native code answers what it can."""
    torch = pytest.importorskip("torch")
    values = WHOLE if "int" in name or name == "bool" else NUMBERS + [-0.0]
    pairs = list(itertools.product(values, values))
    ours, theirs = ([side.tensor(pair).to(getattr(side, name)) for pair in pairs] for side in (weft, torch))
    for k, (x, t) in enumerate(zip(ours, theirs)):
        for y, u in zip(ours[: 40 if k % 4 else 90], theirs):
            assert weft.equal(x, y) is torch.equal(t, u)
            assert weft.allclose(x, y) is torch.allclose(t, u)
            assert weft.allclose(x, y, equal_nan=True, rtol=0.01) is torch.allclose(t, u, equal_nan=True, rtol=0.01)
            if name != "bool" and "complex" not in name:
                assert weft.isin(x, y).tolist() == torch.isin(t, u).tolist()
                assert weft.isin(x[0], y, invert=True).tolist() == torch.isin(t[0], u, invert=True).tolist()


def test_what_is_equal_to_what():
    x = weft.arange(6.0).reshape(2, 3)
    for _ in range(50):
        assert weft.equal(x, x.clone()) and weft.equal(x.t(), x.t().contiguous()) and weft.equal(x, x.requires_grad_())
        assert not weft.equal(x, x.t()) and not weft.equal(x, x.reshape(6)) and not weft.equal(x, x[:1])
        assert weft.equal(x[:0], x[2:]) and not weft.equal(x[:0], x[:0, :2]) and weft.equal(x, weft.nn.Parameter(x))
        assert weft.equal(x, x.long().float()) and weft.equal(x.long(), x) and not weft.equal(x + 1j, x)
        assert not weft.equal(x, x + weft.tensor([0, 0, 1e-6]))
        with pytest.raises(TypeError, match="must be Tensor"):
            weft.equal(x, 1.0)


def test_equal_in_a_compiled_call_sees_what_the_call_has_made():
    f = weft.compile(lambda x, y: (weft.equal(x * 2, y), weft.equal(x.add_(1), y), weft.isin(x, y).tolist()))
    for k in range(8):
        x = weft.tensor([1.0, 2.0]) + k
        y = x * 2
        assert f(x, y) == (True, False, [v in y.tolist() for v in x.tolist()])


def test_positions_that_are_not_zero_are_a_tensors_own():
    mask = weft.tensor([[True, False, True], [False, True, False]])
    for x in (mask, mask.float(), mask.t(), mask[0], mask[:, :, None], mask[:0], weft.tensor(True), weft.zeros(2, 2)):
        found, columns = weft.nonzero(x), weft.nonzero(x, as_tuple=True)
        assert found.shape == (int(x.count_nonzero()), x.ndim) and found.is_contiguous() and found.dtype is weft.int64
        assert [c.tolist() for c in columns] == [found[:, d].tolist() for d in range(x.ndim)] or not x.ndim
        again = weft.nonzero(x)
        found += 1
        assert weft.equal(again + 1, found)
