"""Operands, views and nodes of plans as the structures that native code of eager mode reads (eager_words.py)."""

from math import prod

import numpy as np

from ..eager.eager_steps import NoSteps
from ..eager.eager_words import (
    KEPT_AS_IT_IS,
    KEPT_AS_SHAPE,
    SAVED,
    NodeRow,
    Operand,
    View,
)


def tried(function, *args):
    """(what the function returns, None), or (nothing, why)."""
    try:
        return function(*args), None
    except NoSteps as refusal:
        # Not the exception: its traceback would keep the operands alive.
        return (None, ((), ())), str(refusal)


def operand(meta, kind, strides=None, builder=None, result=None):
    if meta.weak:
        is_int = kind is int and builder is not None
        facts = {"is_whole": is_int and builder.takes_wholes, "is_narrow": is_int and builder.takes_narrow}
        return Operand(kind=kind, is_number=True, is_pair=kind is complex, **facts)
    spans = [(n - 1) * s for n, s in zip(meta.shape, strides or ())]
    lowest, size = sum(s for s in spans if s < 0), meta.dtype.size_bytes
    n_bytes = sum(map(abs, spans)) + size if strides else prod(meta.shape) * size
    facts = {"lowest": lowest, "n_bytes": n_bytes, "may_be_target": strides is None and meta == result}
    return Operand(
        kind=meta.dtype.numpy, shape=meta.shape, strides=strides or (), is_row_major=strides is None, **facts
    )


def view(meta, strides, offset, flags):
    """(View, what holds the numbers it points to)"""
    shape, strides = np.array(meta.shape, np.int64), np.array(strides, np.int64)
    facts = {"shape": shape.ctypes.data, "strides": strides.ctypes.data, "offset": offset, "kept_flags": flags}
    return View(dtype=meta.dtype.numpy, ndim=len(shape), **facts), (shape, strides)


def row(plan, recording):
    kept = [
        SAVED if k in recording.saved else KEPT_AS_IT_IS if shape is None else KEPT_AS_SHAPE
        for k, shape in enumerate(recording.released)
    ]
    return NodeRow(
        is_known=True,
        makes_node=True,
        kind=recording.kind,
        meta=plan.meta,
        recording=recording,
        differentiated=list(map(int, recording.differentiated)),
        kept=kept,
        shapes=list(recording.released),
        reads_out=recording.reads_out,
    )
