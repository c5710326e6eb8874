"""Result types and values over all pairs of types and ranks, against PyTorch's promotion."""

import itertools
import operator
import warnings

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
LEFT = {
    "bool": [True, False, True],
    "uint8": [200, 3, 255],
    "int8": [-100, 3, 127],
    "int16": [30000, -7, 3],
    "int32": [1, -2, 3],
    "int64": [2, 3, -1],
    "float32": [0.5, -1.5, 2.0],
    "float64": [1.25, 2.0, -0.75],
}
RIGHT = {
    "bool": [True, True, False],
    "uint8": [100, 2, 3],
    "int8": [-100, 5, 3],
    "int16": [30000, 2, 3],
    "int32": [2, 3, 1],
    "int64": [1, 2, 2],
    "float32": [1.5, 2.5, 1.0],
    "float64": [0.75, 2.0, 1.5],
}
NUMBERS = {"bool": True, "int64": 2, "float64": 1.5}
# (type, rank): a tensor with dimensions, a 0-d tensor, or a Python number.
TENSORS = [(d, rank) for d in NAMES for rank in ("tensor", "0-d")]
OPERANDS = TENSORS + [(d, "number") for d in NUMBERS]

# Cases where ours is an extension or a refusal, with the reason.
DIFFERENT = {
    "pow": "bool to a bool power: PyTorch has no kernel for two tensors; ours is bool (an int64 for a number)",
    "sign": "bool: refused, as PyTorch refuses neg and abs",
    "argmax": "bool: PyTorch has no kernel",
    "argmin": "bool: PyTorch has no kernel",
    "clamp_min": "bool bounded by bool: refused",
    "clamp_max": "bool bounded by bool: refused",
}


def pair(kind, values):
    """The same operand for PyTorch and for weft."""
    dtype, rank = kind
    if rank == "number":
        return NUMBERS[dtype], NUMBERS[dtype]
    data = values[dtype] if rank == "tensor" else values[dtype][0]
    return torch.tensor(data, dtype=getattr(torch, dtype)), weft.tensor(data, dtype=getattr(weft, dtype))


def outcome(function, *operands):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*operands)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return error


def agree(theirs, ours):
    """Equal type, shape and values, or both an error. PyTorch's TypeErrors are signatures that ours widens."""
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        return isinstance(theirs, TypeError) or (isinstance(theirs, Exception) and isinstance(ours, Exception))
    same_type = str(theirs.dtype).removeprefix("torch.") == ours.dtype.name and tuple(theirs.shape) == ours.shape
    return same_type and np.allclose(theirs.numpy(), ours.numpy(), rtol=1e-5, equal_nan=True)


def check(name, cases):
    """cases: (what, their function, our function, their operands, our operands)."""
    wrong = []
    for what, theirs_function, ours_function, theirs_operands, ours_operands in cases:
        theirs, ours = outcome(theirs_function, *theirs_operands), outcome(ours_function, *ours_operands)
        all_bool = name in DIFFERENT and {d for d, _ in what} == {"bool"}
        if not all_bool and not agree(theirs, ours):
            wrong.append(f"{name} {what}: PyTorch {theirs!r}, weft {ours!r}")
    assert not wrong, "\n".join(wrong)


def two_operands(theirs, ours):
    for left, right in itertools.product(OPERANDS, OPERANDS):
        if left[1] == right[1] == "number":
            continue
        a, b = pair(left, LEFT), pair(right, RIGHT)
        yield (left, right), theirs, ours, (a[0], b[0]), (a[1], b[1])


BINARY = str.split("""
    add sub mul div maximum minimum fmod remainder floor_divide eq ne lt le gt ge logical_and logical_or
    logical_xor bitwise_and bitwise_or bitwise_xor atan2 pow
""")


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    check(name, two_operands(getattr(torch, name), getattr(weft, name)))


@pytest.mark.parametrize("name", str.split("add sub mul truediv floordiv mod pow and_ or_ xor eq lt"))
def test_operator(name):
    function = getattr(operator, name)
    check(name, two_operands(function, function))


@pytest.mark.parametrize("name", str.split("add_ sub_ mul_ div_ pow_ fmod_ remainder_ floor_divide_"))
def test_inplace(name):
    """The result type must be convertible to the target's category, and the target keeps its type."""

    def run(x, other):
        result = getattr(x, name)(other)
        assert result is x
        return x

    cases = []
    for left, right in itertools.product(NAMES, OPERANDS):
        a, b = pair((left, "tensor"), LEFT), pair(right, RIGHT)
        cases.append((((left, "tensor"), right), run, run, (a[0], b[0]), (a[1], b[1])))
    check(name.removesuffix("_"), cases)


UNARY = str.split("""
    neg abs sign floor ceil trunc round sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p tanh sigmoid
    erf sin cos tan atan asin acos sinh cosh relu isnan isinf isfinite logical_not bitwise_not clone square
""")


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    cases = []
    for kind in TENSORS:
        a = pair(kind, LEFT)
        cases.append(((kind,), getattr(torch, name), getattr(weft, name), a[:1], a[1:]))
    check(name, cases)


ALONG = ("logsumexp", "softmax", "log_softmax")
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "any",
    "all",
    "var",
    "std",
    "argmax",
    "argmin",
    "max",
    "min",
    "norm",
]


@pytest.mark.parametrize("name", [*REDUCTIONS, *ALONG])
def test_reduction(name):
    cases = []
    for kind in TENSORS:
        a, b = pair(kind, LEFT)
        more = (0,) if name in ALONG else ()
        cases.append(((kind,), getattr(torch, name), getattr(weft, name), (a, *more), (b, *more)))
    check(name, cases)


def test_where():
    cases = []
    for left, right in itertools.product(OPERANDS, OPERANDS):
        a, b = pair(left, LEFT), pair(right, RIGHT)
        mask = [True, False, True]
        operands = (torch.tensor(mask), a[0], b[0]), (weft.tensor(mask), a[1], b[1])
        cases.append(((left, right), torch.where, weft.where, *operands))
    check("where", cases)


@pytest.mark.parametrize("bound", ["min", "max"])
def test_clamp(bound):
    def run(x, limit):
        return x.clamp(**{bound: limit})

    cases = []
    for left, right in itertools.product(NAMES, OPERANDS):
        a, b = pair((left, "tensor"), LEFT), pair(right, RIGHT)
        cases.append((((left, "tensor"), right), run, run, (a[0], b[0]), (a[1], b[1])))
    check(f"clamp_{bound}", cases)


@pytest.mark.parametrize("rank", ["tensor", "0-d", "number"])
def test_clamp_both_bounds(rank):
    kinds = [k for k in OPERANDS if k[1] == rank]
    cases = []
    for x, low, high in itertools.product(NAMES, kinds, kinds):
        a, b, c = pair((x, "tensor"), LEFT), pair(low, LEFT), pair(high, RIGHT)
        cases.append((((x, "tensor"), low, high), torch.clamp, weft.clamp, *zip(a, b, c)))
    check("clamp", cases)


def test_integer_division_by_zero():
    x, zero = weft.tensor([1, 2]), weft.tensor([1, 0])
    for name in ("floor_divide", "remainder", "fmod"):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            getattr(weft, name)(x, zero)


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_division_with_special_values(name):
    """Signs, zeros, infinities and NaN, in every combination."""
    values = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, float("inf"), -float("inf"), float("nan")]
    x, y = (np.array(v) for v in zip(*itertools.product(values, values)))
    ours = getattr(weft, name)(weft.tensor(x), weft.tensor(y)).numpy()
    theirs = getattr(torch, name)(torch.tensor(x), torch.tensor(y)).numpy()
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert np.array_equal(np.signbit(ours[~np.isnan(ours)]), np.signbit(theirs[~np.isnan(ours)]))


def test_negative_integer_powers():
    base, exponent = [2, 1, -1, -1, 5, -3], [-1, -3, -2, -3, 0, 3]
    ours = weft.pow(weft.tensor(base), weft.tensor(exponent))
    assert ours.tolist() == torch.pow(torch.tensor(base), torch.tensor(exponent)).tolist()
