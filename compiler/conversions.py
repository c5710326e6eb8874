"""Conversions of values to what an op works on, as the passes and kernels append them to a graph."""

import numpy as np

from .extent import identical, is_open
from .ops.table import TABLE
from .storage import convert as to_type
from .storage import readable


def full(graph, number, shape, dtype):
    """A typed constant."""
    return graph.apply(TABLE["full"], (number,), {"shape": tuple(shape), "dtype": dtype})


def number_everywhere(value):
    """The number that all elements of a value are, as its type has it, or an open extent; None if that is not known."""
    while value.op.kind == "view" and len(value.operands) == 1:
        (value,) = value.operands
    if "fill" not in value.op.traits or not value.operands[0].op.is_number or value.dtype.is_complex:
        return None
    number = value.operands[0].attributes["value"]
    if is_open(number):
        return number
    with np.errstate(all="ignore"):
        if value.dtype.is_narrow:
            return readable(to_type(np.asarray(number), value.dtype)).item()
        return np.asarray(number).astype(value.dtype.numpy).item()


def convert(graph, value, dtype):
    """value as dtype; a Python number becomes a typed constant."""
    if value.op.is_number:
        return full(graph, value, (), dtype)
    if value.dtype is dtype and not value.weak:
        return value
    return graph.apply(TABLE["cast"], (value,), {"dtype": dtype})


def broadcast(graph, value, shape):
    if value.shape == () or identical(value.shape, shape):
        return value
    return graph.apply(TABLE["expand"], (value,), {"shape": shape})


def reshape(graph, value, shape):
    return value if identical(value.shape, shape) else graph.apply(TABLE["reshape"], (value,), {"shape": shape})


def operand_types(graph, value):
    """The dtype of every operand, in the op's own words; for ops without a rule they stay as they are."""
    if value.op.compute_dtype is None:
        return [o.dtype for o in value.operands]
    return value.op.compute_dtype(value.operands, graph.default_float)[0]


def same_types(graph, value, operands):
    """The op on converted operands."""
    types = operand_types(graph, value)
    return graph.apply(value.op, tuple(convert(graph, x, d) for x, d in zip(operands, types)), value.attributes)
