"""Native steps of ops on complex numbers. Where an op does the same with real and imaginary parts, or only moves
elements, a complex value is one of real numbers with a last dimension of 2; other kernels take pairs (OnParts).
"""

from math import prod

import numpy as np

from ...compiler.dtypes import DType, bool_, complex64, float32, float64, int32, int64
from ...compiler.ops.arithmetic import bitwise_xor
from ...compiler.ops.comparison import cast
from ...compiler.ops.complex_numbers import complex_, conj
from ...compiler.ops.table import OnParts
from ...compiler.ops.view import clone
from .eager_loops import loops_over

_MOST_PAIRS = 1 << 6
_SIGN_OF_IMAGINARY = np.array(-(1 << 63))  # of a complex64, as an integer
_REALS = (float32, float64, int64, int32, bool_)  # that kernels convert to complex numbers
_MOVING_KINDS = ("view", "source")


def any_complex(types):
    return any(d.is_complex for d in types)


def as_moved(dtype):
    """A type of the same size that kernels move, if there is one."""
    return int64 if dtype is complex64 else dtype


def has_steps(op):
    """Whether kernels on real numbers, or of bytes, do what the op does with complex ones, or on pairs of them."""
    if op.kind == "reduction":
        return op.on_complex is True
    return op.on_complex.__class__ is OnParts or _is_by_parts(op) or op.kind in _MOVING_KINDS


def steps_of_parts(builder, op, operands, out):
    """Whether the op makes complex numbers of parts, or changes the sign of one, by steps that the builder has now."""
    if op is complex_ and not any(x.is_number for x in operands):
        builder.elementwise(op, {}, [x.dtype for x in operands], operands, out)
        return True
    if op is conj and out.dtype is complex64:
        sign = builder.hold(_SIGN_OF_IMAGINARY, int64)
        operands = [operands[0]._replace(dtype=int64), sign]
        builder.elementwise(bitwise_xor, {}, (int64, int64), operands, out._replace(dtype=int64))
        return True
    return False


def computed(op, attributes, types, operands, out):
    """(attributes, types, operands, out) of an elementwise op as kernels compute it: on all parts alike, or on pairs of
    them; None if no kernel does."""
    found = by_parts(op, attributes, types, operands, out) if _is_by_parts(op) else None
    if found is not None or op.on_complex.__class__ is not OnParts:
        return found
    if op is cast and not out.dtype.is_complex:
        return None
    if op is cast and not (types[0].is_complex or types[0] in _REALS):
        return None
    return attributes, types, operands, out


def _is_by_parts(op):
    return not {"by-parts", "moves"}.isdisjoint(op.traits) or op is clone


def by_parts(op, attributes, types, operands, out):
    """The same on the parts; None if not all of them are complex but for truths, which hold for both parts, or if the
    parts of many elements lie apart from those of others."""
    given = [*operands, out]
    if op is cast and types == (complex64,) and out.dtype is complex64 and not operands[0].is_number:
        operand, out = [x._replace(dtype=as_moved(x.dtype)) for x in (operands[0], out)]
        return {"dtype": int64}, (int64,), [operand], out
    if op is cast and not types[0].is_complex:
        return None  # a truth or a number is a real part
    if any(x.is_number for x in operands) or not all(x.dtype.is_complex or x.dtype.category == 0 for x in given):
        return None
    if not out.dtype.is_complex or any(x.dtype is not d for x, d in zip(operands, types)):
        return None
    attributes = {k: _real(v) if v.__class__ is DType else v for k, v in attributes.items()}
    *operands, out = [_parts(x) for x in given]
    *outer, (size, _) = loops_over(operands, out)
    if size == 2 and prod(n for n, _ in outer) > _MOST_PAIRS:
        return None
    return attributes, tuple(map(_real, types)), operands, out


def _real(dtype):
    return dtype.to_real() if dtype.is_complex else dtype


def _parts(x):
    """The value as real numbers."""
    if not x.dtype.is_complex:
        return x._replace(shape=(*x.shape, 1), strides=(*x.strides, 0))
    return x._replace(dtype=x.dtype.to_real(), shape=(*x.shape, 2), strides=(*[2 * s for s in x.strides], 1))
