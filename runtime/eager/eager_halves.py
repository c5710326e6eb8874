"""Native steps of ops on floats of 16 bits. They are computed in float32 and rounded after every op, as evaluate.py
does it: kernels of elements and reductions read and write them as they lie in memory, all others between conversions.
"""

from ...compiler.dtypes import DType
from ...compiler.ops.comparison import cast
from .eager_routines import steps_of_reduction


def any_half(types):
    return any(d.is_half for d in types)


def wide(dtype):
    """The type that is computed with."""
    return dtype.wide if dtype.is_half else dtype


def wide_attributes(attributes):
    return {k: wide(v) if v.__class__ is DType else v for k, v in attributes.items()}


def as_they_lie(builder, op, types, operands):
    """(operands of an elementwise op on these types, the types in which they lie): others were converted, such as
    16 bits beside float64. A single number that is multiplied with is not rounded to 16 bits, any other is."""
    taken, lying = [], []
    for x, dtype in zip(operands, types):
        needed = wide(dtype) if x.shape == () and "wide-number" in op.traits else dtype
        if not x.is_number and x.dtype is not needed and not (x.dtype.is_half and needed is wide(x.dtype)):
            x = builder.converted(x, needed)
        taken.append(x)
        lying.append(needed if x.is_number else x.dtype)
    return taken, lying


def has_no_steps(op):
    """Whether the op computes with such floats themselves, which no kernel does; converting them is another matter."""
    return "own-type" in op.traits and op is not cast


def steps_between_conversions(builder, op, attributes, types, operands, out):
    """The steps of an op that is not elementwise."""
    types = types or [x.dtype for x in operands]
    operands = [builder.converted(x, d) if d.is_half else x for x, d in zip(operands, types)]
    made, attributes = builder.new_value(out.shape, wide(out.dtype)), wide_attributes(attributes)
    if op.kind == "reduction" and op.evaluate is None:
        steps_of_reduction(builder, op, attributes, wide(types[0]), operands[0], made)
    else:
        operands = [builder.converted(x, wide(x.dtype)) for x in operands]
        builder.compute(op, attributes, [wide(d) for d in types], operands, made)
    builder.elementwise(cast, {"dtype": out.dtype}, (made.dtype,), [made], out)
