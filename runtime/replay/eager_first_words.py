"""The words that native code of eager mode reads, before it knows any plan."""

import ctypes

import numpy as np

from ...compiler.dtypes import ALL, bfloat16, float32, float64
from ...compiler.ops.arithmetic import add
from ...compiler.translate.kinds import offset_of
from ..code import kernels
from ..eager import (
    eager_call,
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
from ..eager.eager_words import Words
from ..programs.large import new_result
from ..state.aligned import Memory
from ..state.modes import state
from . import native, native_values


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
