"""Sources: values made from numbers and element positions alone, with no tensor operand.

A source's lowering gets the builder, the lanes' positions in the flattened result (i64) and its operands.
"""

import numpy as np

from .. import dtypes
from ..dtypes import element_of
from ..extent import Extent, Ratio
from ..kernels.kernel import Source
from ..kernels.loop import Fill
from ..storage import convert, fitting
from .samples import Sample
from .table import Meta, Op, register


def shaped(operands, attributes, default_float):
    return Meta(tuple(attributes["shape"]), attributes["dtype"])


_NUMBERS = {
    bool: dtypes.bool_,
    int: dtypes.int64,
    float: dtypes.float64,
    complex: dtypes.complex128,
    Extent: dtypes.int64,
    Ratio: dtypes.float64,
}


def _constant_infer(operands, attributes, default_float):
    return Meta((), _NUMBERS[type(attributes["value"])], True)


# A Python number written in a rule: part of the program, unlike a run-time scalar.
constant = register(
    Op(
        "constant",
        "source",
        _constant_infer,
        evaluate=lambda value: np.asarray(value),
        kernel=Source(),
        traits=frozenset(["number"]),
    )
)

full = register(
    Op(
        "full",
        "source",
        shaped,
        kernel=Fill(),
        on_complex=True,
        traits=frozenset(["fill"]),
        evaluate=lambda value, shape, dtype: np.full(shape, fitting(value, dtype), dtype.numpy),
        lower=lambda b, positions, value, shape, dtype: b.convert(value, element_of(dtype)),
        samples=lambda: [
            Sample((v,), {"shape": s, "dtype": d})
            for v, s, d in ((2.5, (2, 3), dtypes.float32), (3, (), dtypes.int64), (True, (4,), dtypes.bool_))
        ],
    )
)


def zeros_like(x):
    """Zeros of x's shape and type."""
    return full_like(x, 0)


def full_like(x, value, dtype=None):
    return x.apply_op(full, (value,), {"shape": x.shape, "dtype": dtype or x.dtype})


def _evaluate_arange(start, step, shape, dtype):
    positions = np.arange(shape[0])
    if isinstance(start, int) and isinstance(step, int):
        return convert(start + positions * step, dtype)
    return convert(float(start) + positions.astype(np.float64) * float(step), dtype)


def _lower_arange(b, positions, start, step, shape, dtype):
    element = "f64" if "f64" in (start.type.element, step.type.element) else "i64"
    start, step, positions = (b.convert(x, element) for x in (start, step, positions))
    return b.convert(b.add(start, b.mul(positions, step)), element_of(dtype))


# Element k is start + k * step, computed in float64 (or int64 if both are integers) and then converted.
arange = register(
    Op(
        "arange",
        "source",
        shaped,
        kernel=Source(),
        traits=frozenset(["positions"]),
        evaluate=_evaluate_arange,
        lower=_lower_arange,
        samples=lambda: [
            Sample((0, 1), {"shape": (7,), "dtype": dtypes.int64}),
            Sample((0.5, 0.25), {"shape": (70,), "dtype": dtypes.float32}),
        ],
    )
)


def _evaluate_spaced(first, last, step, half, final, shape, dtype):
    first, last, step, half, final = (float(x) for x in (first, last, step, half, final))
    positions = np.arange(shape[0], dtype=np.float64)
    found = np.where(positions < half, positions * step + first, last - (final - positions) * step)
    return found.astype(dtype.numpy)


def _lower_spaced(b, positions, first, last, step, half, final, shape, dtype):
    k, first, last, step, half, final = (b.convert(x, "f64") for x in (positions, first, last, step, half, final))
    up, down = b.add(b.mul(k, step), first), b.sub(last, b.mul(b.sub(final, k), step))
    return b.convert(b.select(b.cmp("lt", k, half), up, down), element_of(dtype))


# What linspace makes in float32: the first half counted from `first`, the others back from `last`, whose position is
# `final`; computed in float64, where products are exact.
spaced = register(
    Op(
        "spaced",
        "source",
        shaped,
        kernel=Source(),
        traits=frozenset(["positions"]),
        evaluate=_evaluate_spaced,
        lower=_lower_spaced,
        oracle=lambda torch, first, last, step, half, final, shape, dtype: torch.linspace(first, last, *shape),
        tolerance=2e-7,  # PyTorch rounds products of the last few
        samples=lambda: [
            Sample((0.0, 3.0, 0.5, 3.0, 6.0), {"shape": (7,), "dtype": dtypes.float32}),
            Sample((-1.0, 2.0, 0.043478261679410934, 35.0, 69.0), {"shape": (70,), "dtype": dtypes.float32}),
        ],
    )
)
