"""Operands, views and nodes of plans as the structures that native code of eager mode reads (eager_words.py); and the
words that it reads before it knows any plan."""

import ctypes
from math import prod

import numpy as np

from ...compiler.dtypes import ALL, bfloat16, float32, float64
from ...compiler.ops.arithmetic import add
from ...compiler.translate.kinds import offset_of
from ..code import kernels
from ..eager import (
    eager_call,
    eager_cut,
    eager_equal,
    eager_inplace,
    eager_lent,
    eager_updates,
    eager_zeros,
    engine,
    node,
    parts,
    reach,
)
from ..eager.eager_steps import NoSteps
from ..eager.eager_words import (
    KEPT_AS_IT_IS,
    KEPT_AS_SHAPE,
    SAVED,
    NodeRow,
    Operand,
    View,
    Words,
)
from ..programs.large import new_result
from ..state.aligned import Memory
from ..state.modes import state
from . import native, native_values


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


# --- before any plan ----------------------------------------------------------------------------------------------
def first_words(address, replaying):
    return Words(
        slow_sweep=engine.sweep_in_python,
        slow_reach=reach.reach_in_python,
        slow_update=eager_updates.not_updated,
        slow_inplace=eager_inplace.not_changed,
        slow_apply=eager_call.not_called,
        slow_zero=eager_inplace.not_changed,
        slow_lend=eager_lent.not_lent,
        slow_show=eager_lent.not_lent,
        slow_zeros=eager_zeros.not_made,
        slow_equal=eager_equal.not_compared,
        slow_cut=eager_cut.not_cut,
        slow_data=native_values.data_in_python(),
        replaying=replaying,
        replay=native.address_of("call_op"),
        grad_enabled=type(state).grad_enabled,
        default_dtype=type(state).default_dtype,
        late_kind=None,
        run_late=None,
        run_function=engine.run_function,
        known_part=parts.known_part,
        new_result=new_result,
        zero=0,
        minus_one=-1,
        true=True,
        false=False,
        sequence=node._sequence,
        no_edges=(),
        array_class=np.ndarray,
        memory_class=Memory,
        byte=np.dtype(np.uint8),
        new_array=native._new_array_address(),
        new_view=native._new_array_address(),
        set_base=_address_in_numpy(282),
        copy_into=_address_in_numpy(50),
        float32=float32.numpy,
        float64=float64.numpy,
        bfloat16=bfloat16.numpy,
        types=tuple(dtype.numpy for dtype in ALL),
        item_bytes=[dtype.size_bytes for dtype in ALL],
        is_whole=[int(dtype.category < 2) for dtype in ALL],
        add_float32=kernels.elementwise_address(add, (float32, float32), {}, ()),
        add_float64=kernels.elementwise_address(add, (float64, float64), {}, ()),
        numbers_at=address + offset_of(Words, "numbers"),
        wholes_at=address + offset_of(Words, "wholes"),
        pairs_at=address + offset_of(Words, "pairs"),
        plans=(),
        open=(),
        seen=(),
        n_seen=(),
    )


def _address_in_numpy(place):
    """What has a place in NumPy's table, where native.py finds what makes arrays: 50 is PyArray_CopyInto, 282
    PyArray_SetBaseObject."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    core = getattr(np, "_core", None) or np.core  # NumPy 1 has no _core
    return (ctypes.c_size_t * (place + 1)).from_address(get(core.multiarray._ARRAY_API, None))[place]
