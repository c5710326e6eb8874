"""What is computed with narrow types is computed with wider ones, and converted back.

    add(bf16[3], bf16[3])            ->  cast(add(cast(bf16[3]), cast(bf16[3])) : f32[3]) to bf16
    mul(u8[3], 2)                    ->  cast(mul(cast(u8[3]), cast(2)) : i32[3]) to u8
    softmax(bf16[3, 4])              ->  cast(softmax(cast(bf16[3, 4]))) to bf16       a composite is rounded once
    permute, gather, cat, full, cast ->  themselves: what moves bits, and conversions

So bits are those of eager mode (runtime/programs/evaluate.py), which computes one op after the other, rounds floats of
16 bits after each, and keeps the lower bits of integers. Loops read and write the narrow types; passes after this one
see them only in what moves elements, in conversions and in what is read and written.
"""

from .dtypes import DType
from .ops.comparison import cast
from .rewrite import Rewriter

_AS_THEY_ARE = ("own-type", "moves", "copy", "fill")


def widen(graph):
    """graph of primitives -> graph in which nothing computes with narrow types, and the trace."""
    if not any(v.dtype.is_narrow for v in graph.values):
        return graph, list(graph.values)
    rewriter = Rewriter(graph)
    for value in graph.values:
        if is_widened(value):
            rewriter[value] = _widened(rewriter.graph, value, rewriter.operands(value))
        else:
            rewriter.copy(value)
    return rewriter.finish()


def is_widened(value):
    """Whether it is computed with other types than it has."""
    op = value.op
    if value.is_source or op.is_number or op.kind == "view" or not op.traits.isdisjoint(_AS_THEY_ARE):
        return False
    given = [value.dtype, *(o.dtype for o in value.operands), *_types(op, value.operands, value.graph)]
    return any(d.is_narrow for d in given)


def composite_in_float32(op, operands, attributes, graph):
    """The result of a composite that has floats of 16 bits as operands or result, rounded once; None for others."""
    meta = None if "view" in op.extra else op.infer(operands, attributes, graph.default_float)
    if meta is None or not any(x.dtype.is_half for x in (*operands, meta)):
        return None
    operands = [cast(x, dtype=x.dtype.wide) if x.dtype.is_half else x for x in operands]
    attributes = {k: v.wide if v.__class__ is DType and v.is_half else v for k, v in attributes.items()}
    return cast(op.decompose(*operands, **attributes), dtype=meta.dtype)


def _widened(graph, value, operands):
    op, attributes = value.op, {k: v.computed if v.__class__ is DType else v for k, v in value.attributes.items()}
    types = _types(op, operands, graph)
    if types:
        operands = [_operand(op, x, d) for x, d in zip(operands, types)]
    else:
        operands = [_cast(x, x.dtype.computed) if x.dtype.is_narrow else x for x in operands]
    return _cast(graph.apply(op, operands, attributes), value.dtype)


def _types(op, operands, graph):
    """The types of the operands in the op's own words, as far as it has any."""
    return () if op.compute_dtype is None else op.compute_dtype(operands, graph.default_float)[0]


def _operand(op, x, dtype):
    """An operand as the op computes with it. A single number that is multiplied with is not rounded to 16 bits."""
    if not (dtype.is_half and x.shape == () and "wide-number" in op.traits):
        x = _cast(x, dtype)
    return _cast(x, dtype.computed)


def _cast(x, dtype):
    return x if x.dtype is dtype and not x.weak else cast(x, dtype=dtype)
