"""What comparing with PyTorch has found wrong once, and keeps right: an expression or a few statements that set `r`.

Each runs in weft, eagerly and compiled, which must agree bit for bit; where PyTorch is installed, with it too.
"""

import numpy as np
import pytest
from test_tensor_spellings import assert_same, compared

import weft

# A NumPy number is a number: np.sqrt(2.0) is a Python float as well, and is none to those who ask for the exact type.
NUMBERS = """
x * np.float64(2) ; np.sqrt(4.0) * x ; x / np.float32(3) ; x ** np.float64(2) ; np.float64(2) ** x ; 2 - x * np.int64(2)
x.clamp(np.float64(0.5)) ; x.clamp_(np.float64(0), np.float32(1)) ; x.fill_(np.float64(3)) ; x.add_(np.float32(3))
ns.where(x > 0.5, x, np.float64(1)) ; x.masked_fill(x > 0.5, np.float64(2)) ; ns.full((2,), np.float64(2))
ns.full_like(x, np.float64(2)) ; x.new_full((2,), np.float64(2)) ; x.sum(np.int64(0))
ns.full((2,), ns.tensor(3.0)) ; ns.full((2,), np.float32(3)) ; x.flip(np.int64(0)) ; x.roll(np.int64(1), np.int64(0))
x.chunk(np.int64(2)) ; x.movedim(np.int64(0), 1) ; ns.arange(np.float64(0), 1, np.float64(0.5))
ns.arange(np.int64(3)) ; ns.arange(ns.tensor(3)) ; ns.arange(end=3) ; ns.tril(x, np.int64(0))
"""
# Statements that change a tensor change it for everyone who holds it.
IN_PLACE = """
y = x ; x **= 2 ; r = x, y, x is y
y = x ; x %= 0.5 ; r = x, y, x is y
y = x ; x //= 0.5 ; r = x, y, x is y
y = i ; i //= 2 ; i %= 3 ; i **= 2 ; r = i, y, i is y
y = i ; i &= 6 ; i |= 1 ; i ^= 2 ; r = i, y, i is y
k &= ~k ; r = k
x.div_(0.3, rounding_mode="floor") ; r = x
x.div_(-0.3, rounding_mode="trunc") ; r = x
x.requires_grad_() ; y = x * 1 ; y **= 3 ; y.sum().backward() ; r = x.grad
x.requires_grad_() ; y = x * 3 ; y %= 2 ; y.sum().backward() ; r = x.grad
"""


def expressions(block):
    return [f"r = {e.strip()}" for e in block.replace("\n", ";").split(";") if e.strip()]


def statements(block):
    return ["\n".join(s.strip() for s in line.split(" ; ")) for line in block.strip().splitlines()]


PROGRAMS = [*expressions(NUMBERS), *statements(IN_PLACE)]


def operands(ns):
    numbers = np.random.default_rng(0)
    return {
        "x": ns.tensor(np.float32(numbers.uniform(0.1, 0.9, (2, 3)))),
        "y": ns.tensor(np.float32(numbers.uniform(0.1, 0.9, (2, 3)))),
        "i": ns.tensor([[1, 2, 3], [4, 5, 6]]),
        "k": ns.tensor([[True, False, True], [False, False, True]]),
        "s": ns.tensor(0.5),
        "e": ns.zeros(0, 3),
    }


def result(program, ns, tensors):
    known = {"ns": ns, "F": ns.nn.functional, "nn": ns.nn, "np": np, "inf": np.inf, "nan": np.nan, **tensors}
    exec(program, known)
    return known["r"]


def bits(value):
    """A result with its bits, to be compared by ==."""
    if isinstance(value, weft.Tensor):
        return value.dtype, value.shape, value.requires_grad, value.detach().numpy().tobytes()
    return [bits(v) for v in value] if isinstance(value, (tuple, list)) else repr(value)


@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_as_eager(program):
    eager = result(program, weft, operands(weft))
    compiled = weft.compile(lambda tensors: result(program, weft, tensors))(operands(weft))
    assert bits(compiled) == bits(eager)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_torch(program):
    torch = pytest.importorskip("torch")
    ours, theirs = result(program, weft, operands(weft)), result(program, torch, operands(torch))
    assert_same(compared(ours), compared(theirs))
