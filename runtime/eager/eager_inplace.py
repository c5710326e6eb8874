"""In-place changes in native code, as gate.py: inplace_eagerly does those that autograd has nothing to do with; of the
subset (docs/native.md).

The new value is computed by the op's Routine, as if the op had been called, and then moved into the target's memory.
"""

from ...compiler.translate.kinds import I64, Bool, Dict, List, Maybe, Object
from ...compiler.translate.language import METHOD, cast, keep, load_at, native, require
from ..code.native_kinds import TensorObject, as_long, new_long
from ..state.modes import watching
from .eager_call import is_contiguous, is_tensor, new_values, routine_for, which_require
from .eager_nodes import new_storage
from .eager_updates import require_plain
from .eager_words import ArrayObject, Routine, StorageObject, Words, move_memory, thread_number, thread_state


def not_changed(*_):
    """Everything else is Python's business."""
    return False


@native(form=METHOD, slow="slow_inplace", name="weft_eager_inplace")
def change(words: Words, op: Object, target: Object, operands: Object, attributes: Object) -> Object:
    """Whether the target's memory has become op(*operands)."""
    require(load_at(I64, words.replaying, 0) == 0 and thread_number(thread_state()) == words.thread)
    require(len(cast(List, watching)) == 0)
    require(is_tensor(target) and type(operands) is tuple and type(attributes) is dict)
    modes = words.modes
    require(modes.get("frame", None) is None)
    default_dtype = keep(modes.get("default_dtype", words.default_dtype))
    if modes.get("grad_enabled", words.grad_enabled) is not False:
        require(cast(TensorObject, target)._requires_grad is False and which_require(operands) == 0)
    # Before anything is looked at, because making one may run code that changes it.
    give_storage(words, cast(TensorObject, target))
    routine = routine_for(words, op, default_dtype, operands, given(attributes))
    require(not routine.is_view and cast(TensorObject, target)._data is not None)
    require(is_result_of(routine, cast(ArrayObject, cast(TensorObject, target)._data)))
    require_plain(cast(TensorObject, target))
    made = new_values(words, routine, operands)
    storage = keep(cast(StorageObject, cast(TensorObject, target)._storage))
    version = new_long(as_long(storage.version) + 1)
    move_memory(cast(ArrayObject, cast(TensorObject, target)._data).data, made.data, routine.n_bytes)
    storage.version = version
    words.calls_taken += 1
    return True


@native()
def given(attributes: Dict) -> Maybe(Dict):
    """As a call without keywords has them."""
    if len(attributes) == 0:
        return None
    return attributes


@native()
def give_storage(words: Words, target: TensorObject):
    if target._storage is None:
        storage = new_storage(words)
        require(target._storage is None and target._base is None)
        target._storage = storage


@native()
def is_result_of(routine: Routine, array: ArrayObject) -> Bool:
    """Whether the array is row-major and has the type and the shape of what the routine makes."""
    if array.dtype is not routine.dtype or array.ndim != routine.ndim or not is_contiguous(array):
        return False
    same = True
    for d in range(routine.ndim):
        same = same and load_at(I64, array.shape, d) == load_at(I64, routine.shape, d)
    return same
