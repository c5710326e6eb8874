"""Numbers that meet tensors and are beyond what floats are exact for: no call computes with a neighbour of theirs, be
it the first or the hundredth, alone or in a compiled function."""

import numpy as np
import pytest

import weft
from weft.runtime.eager import plan

EXACT = 1 << 53  # up to it every integer is a float
NUMBERS = [sign * (EXACT + k) for sign in (1, -1) for k in (-1, 0, 1, 2)] + [(1 << 62) + 1, -(1 << 63), (1 << 24) + 1]
TIMES = 12
VALUES = [3, -5, EXACT + 1, 7]
OPS = {
    "add": (lambda x, k: x + k, lambda x, k: x + k),
    "subtract from": (lambda x, k: k - x, lambda x, k: k - x),
    "multiply": (lambda x, k: x * k, lambda x, k: x * k),
    "equal": (lambda x, k: x == k, lambda x, k: x == k),
    "less": (lambda x, k: x < k, lambda x, k: x < k),
    "and": (lambda x, k: x & k, lambda x, k: x & k),
    "exclusive or": (lambda x, k: x ^ k, lambda x, k: x ^ k),
    "where": (lambda x, k: weft.where(x > 0, x, k), lambda x, k: x if x > 0 else k),
    "where not": (lambda x, k: weft.where(x > 0, k, x), lambda x, k: k if x > 0 else x),
    "fill": (lambda x, k: x.masked_fill(x < 0, k), lambda x, k: k if x < 0 else x),
    "full": (lambda x, k: weft.full_like(x, k), lambda x, k: k),
    "at least": (lambda x, k: x.clamp(min=k), max),
    "at most": (lambda x, k: x.clamp(max=k), min),
    "remainder": (lambda x, k: x % k, lambda x, k: x % k),
    "in place": (lambda x, k: x.clone().add_(k), lambda x, k: x + k),
}


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)


def wrapped(x):
    """A Python integer as 64 bits hold it."""
    return x if isinstance(x, bool) else int(np.array(x % (1 << 64), np.uint64).astype(np.int64))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("k", NUMBERS)
def test_no_number_becomes_its_neighbour(name, k):
    of_tensors, of_numbers = OPS[name]
    expected = [wrapped(of_numbers(x, k)) for x in VALUES]
    for _ in range(TIMES):
        # One that is exact comes first: what is planned for it serves the others.
        of_tensors(weft.tensor(VALUES), 2)
        assert of_tensors(weft.tensor(VALUES), k).tolist() == expected
    compiled = weft.compile(lambda x: of_tensors(x, k))
    for _ in range(3):
        assert compiled(weft.tensor(VALUES)).tolist() == expected


# --- integers of 32 bits ----------------------------------------------------------------------------------------------
BEYOND = [(1 << 31), -(1 << 31) - 1, (1 << 40) + 1]
ARITHMETIC = {
    "add": lambda ns, x, k: x + k,
    "subtract from": lambda ns, x, k: k - x,
    "multiply": lambda ns, x, k: x * k,
    "equal": lambda ns, x, k: x == k,
    "less": lambda ns, x, k: x < k,
    "and": lambda ns, x, k: x & k,
    "remainder": lambda ns, x, k: x % k,
    "in place": lambda ns, x, k: x.clone().mul_(k),
}
FITTING = {
    "where": lambda ns, x, k: ns.where(x > 1, x, k),
    "fill": lambda ns, x, k: x.masked_fill(x > 1, k),
    "at least": lambda ns, x, k: x.clamp(min=k),
    "full": lambda ns, x, k: ns.full_like(x, k),
}


def of_narrow(ns, function, n, k):
    """The first elements for a tensor of n; the kind of error if there is one."""
    x = ns.tensor([1, 2, 3], dtype=ns.int32).repeat(n // 3)
    try:
        return function(ns, x, k)[:3].tolist()
    except RuntimeError:
        return "RuntimeError"


@pytest.mark.oracle
@pytest.mark.parametrize("name", [*ARITHMETIC, *FITTING])
@pytest.mark.parametrize("n", [3, 210_000])
def test_numbers_beyond_32_bits_are_pytorchs(name, n):
    """They wrap around in arithmetic, from the first call on and in the last, and where they must fit they raise."""
    torch = pytest.importorskip("torch")
    function = ARITHMETIC.get(name) or FITTING[name]
    for k in BEYOND:
        expected = of_narrow(torch, function, n, k)
        assert (expected == "RuntimeError") is (name in FITTING)
        for _ in range(TIMES):
            of_narrow(weft, function, n, 2)
            assert of_narrow(weft, function, n, k) == expected
        # Programs of compiled calls let numbers wrap around where eager mode says that they must fit.
        compiled = weft.compile(lambda ns, x, k: function(ns, x, k))
        for _ in range(3):
            assert of_narrow(weft, compiled, n, k) == expected or name in FITTING
