"""Many arrays made one, in a fixed order.

An MPI library adds up in an order that depends on how many processes there are, how large the arrays are, and which
algorithm it has found fastest. Here it only carries the parts, and they are added up like this, element by element:

    rank   0   1   2   3   4
            \\ /     \\ /    |
             +       +     |
              \\     /      |
                 +         |
                  \\       /
                      +

so for one number of processes the bits are the same in every run and on every rank. Floats of 16 bits are added up in
float32 and rounded once.
"""

import numpy as np

from ...compiler.storage import convert

_FUNCTIONS = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_BITWISE = ("band", "bor", "bxor")


def check(name, reduction, dtype):
    """A TypeError if arrays of a type cannot be made one by this reduction."""
    is_whole = dtype.category < 2
    wrong = (
        (reduction in _BITWISE and not is_whole)
        or (reduction in ("sum", "product") and dtype.category == 0)
        or (reduction in ("min", "max") and dtype.is_complex)
        or (reduction == "avg" and is_whole)
    )
    if wrong:
        raise TypeError(f"{name}: ReduceOp.{reduction.upper()} is not defined for {dtype.name}; convert with .to(...)")


def combine(parts, reduction, dtype):
    """What the rows of an array (one per rank, in their order) are together. The rows may be overwritten."""
    if dtype.is_half:
        wide = [convert(part, dtype.wide) for part in parts]
        return convert(_tree(wide, reduction), dtype)
    return _tree(list(parts), reduction)


def _tree(parts, reduction):
    function, n_parts = _FUNCTIONS[reduction], len(parts)
    with np.errstate(all="ignore"):
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2])
            parts = [function(a, b, out=a) for a, b in pairs] + parts[len(parts) & ~1 :]
    return np.divide(parts[0], n_parts, out=parts[0]) if reduction == "avg" else parts[0]
