"""Composites of floats of 16 bits: computed in float32 as a whole and rounded once, as PyTorch computes its own."""

from ...compiler.dtypes import DType
from ...compiler.ops.comparison import cast


def in_float32(op, operands, attributes, meta):
    """The result of a composite that has such operands or results; None for all others and for views. `meta` describes
    the result. Nothing is recorded for backward here."""
    if "view" in op.extra or not any(map(_is_half, (*operands, meta))):
        return None
    operands = [cast(x, dtype=x.dtype.wide) if _is_half(x) else x for x in operands]
    attributes = {k: v.wide if v.__class__ is DType and v.is_half else v for k, v in attributes.items()}
    return cast(op(*operands, **attributes), dtype=meta.dtype)


def _is_half(x):
    return hasattr(x, "dtype") and x.dtype.is_half
