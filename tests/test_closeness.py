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
