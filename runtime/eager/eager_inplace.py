"""In-place changes in native code, as gate.py: inplace_eagerly does them; of the subset (docs/native.md).

The new value is written where the target is, in whatever order its elements lie, if the op's Routine can do that; else
it is computed as if the op had been called, and then moved there. Where gradients are recorded, with the histories that
the target and whatever shows its memory have from then on (eager_histories.py).
"""

from ...compiler.translate.kinds import I64, Bool, Dict, List, Object, Tuple
from ...compiler.translate.language import METHOD, cast, keep, load_at, native, require
from ..code.native_kinds import TensorObject, as_long, new_long
from ..state.modes import inferring, watching
from .eager_call import computed, given, requiring, routine_for
from .eager_computing import compute_into, fill_slots, new_values, run_program, run_step
from .eager_histories import new_histories, require_current, require_may_change, set_histories
from .eager_matching import is_contiguous, is_tensor, row_of, which_require
from .eager_nodes import new_storage, record
from .eager_sums import copy_of
from .eager_updates import changes_after, count_change, raise_version, require_plain
from .eager_words import (
    SAVED,
    ArrayObject,
    NodeObject,
    NodeRow,
    Routine,
    SavedObject,
    StorageObject,
    Words,
    move_memory,
    set_memory,
    thread_number,
    thread_state,
)
from .owned import MOST_SPREAD


def not_changed(*_):
    """Everything else is Python's business."""
    return False


@native(form=METHOD, slow="slow_inplace", name="weft_eager_inplace")
def change(words: Words, op: Object, target: Object, operands: Object, attributes: Object) -> Object:
    """Whether the target's memory has become op(*operands)."""
    require_undisturbed(words)
    require(is_tensor(target) and type(operands) is tuple and type(attributes) is dict)
    modes = words.modes
    default_dtype = keep(modes.get("default_dtype", words.default_dtype))
    if modes.get("grad_enabled", words.grad_enabled) is not False:
        if which_require(operands) != 0 or cast(TensorObject, target)._requires_grad is not False:
            return changed_with_history(words, op, target, operands, attributes, default_dtype)
        require_no_history_lost(cast(TensorObject, target))
    # Before anything is looked at, because making one may run code that changes it.
    give_storage(words, cast(TensorObject, target))
    routine = routine_for(words, op, default_dtype, operands, given(attributes))
    require(not routine.is_view and cast(TensorObject, target)._data is not None)
    fits = is_result_of(routine, cast(ArrayObject, cast(TensorObject, target)._data))
    in_order = fits and is_contiguous(cast(ArrayObject, cast(TensorObject, target)._data))
    # What is not row-major only steps write in place, which know how the first operand lies.
    alone = (routine.has_changes or (routine.overwrites and in_order)) and is_alone(routine, operands, target)
    is_one = is_one_of(routine, cast(ArrayObject, cast(TensorObject, target)._data))
    require(in_order or (routine.has_changes and alone) or is_one or (fits and routine.n_bytes <= MOST_SPREAD))
    require_plain(cast(TensorObject, target))
    array = keep(cast(ArrayObject, cast(TensorObject, target)._data))
    storage = keep(cast(StorageObject, cast(TensorObject, target)._storage))
    # Before the change, because making a number may fail.
    counted = changes_after(storage)
    version = new_long(as_long(storage.version) + 1)
    if alone:
        if routine.has_changes:
            fill_slots(words, routine, operands, array)
            for i in range(len(routine.fixed_in_changes)):
                words.slots[len(operands) + 1 + i] = routine.fixed_in_changes[i]
            for step in routine.changes:
                run_step(words, step)
        else:
            run_program(words, routine, operands, array)
    elif in_order and routine.is_sure and is_elsewhere(routine, operands, array):
        compute_into(words, routine, operands, array)
    else:
        require(not routine.only_changes and routine.run is None)
        made = new_values(words, routine, operands)
        if in_order:
            move_memory(array.data, made.data, routine.n_bytes)
        else:
            require(words.copy_into(array, made) == 0)
    storage.version = version
    count_change(storage, counted)
    words.calls_taken += 1
    return True


@native()
def changed_with_history(
    words: Words, op: Object, target: Object, operands: Tuple, attributes: Dict, default_dtype: Object
) -> Object:
    """The same where gradients flow to operands, or to what the target was. Whatever is made may run code that changes
    the target, so all that it must be is asked when there is nothing left to make."""
    changed = keep(cast(TensorObject, target))
    require(len(cast(List, inferring)) == 0)
    give_storage(words, changed)
    routine = routine_for(words, op, default_dtype, operands, given(attributes))
    required = which_require(operands)
    row = cast(NodeRow, routine.nodes[row_of(requiring(words, routine, operands), len(operands))])
    require(row.is_known and row.makes_node == (required != 0) and not routine.is_view and not routine.only_changes)
    require(changed._data is not None and routine.run is None)
    require_may_change(changed, required != 0)
    out = computed(words, routine, operands)
    if required != 0:
        record(words, routine, row, operands, out)
        keep_old_value(words, row, changed, operands, cast(NodeObject, out._node))
    made = keep(out._node)
    histories = new_histories(words, changed, made)
    counted = changes_after(keep(cast(StorageObject, changed._storage)))
    version = new_long(as_long(cast(StorageObject, changed._storage).version) + 1)
    require(changed._data is not None and changed._storage is not None)
    require_may_change(changed, required != 0)
    require_current(changed, histories)
    require_plain(changed)
    array = keep(cast(ArrayObject, changed._data))
    storage = keep(cast(StorageObject, changed._storage))
    fits = is_result_of(routine, array)
    require(fits or is_one_of(routine, array))
    if fits and is_contiguous(array):
        move_memory(array.data, cast(ArrayObject, out._data).data, routine.n_bytes)
    else:
        require(words.copy_into(array, out._data) == 0)
    storage.version = version
    count_change(storage, counted)
    if required != 0 and row.reads_out:
        # The saved output is the memory just written.
        saved = cast(SavedObject, cast(NodeObject, made).out)
        shown = cast(TensorObject, saved.tensor)
        shown._data = array
        shown._storage = storage
        saved.version = version
    set_histories(histories)
    words.calls_taken += 1
    return True


@native()
def keep_old_value(words: Words, row: NodeRow, target: TensorObject, operands: Tuple, node: NodeObject):
    """A derivative that reads the target means its value before the change: a copy, with the history it has."""
    reads = False
    for k in range(len(operands)):
        reads = reads or (operands[k] is target and row.kept[k] == SAVED)
    if reads:
        kept = keep(cast(Tuple, node.operands))
        old = copy_of(words, target)
        old._node = target._node
        old._requires_grad = target._requires_grad
        for k in range(len(operands)):
            if operands[k] is target and row.kept[k] == SAVED:
                saved = cast(SavedObject, kept[k])
                saved.tensor = old
                saved.version = words.zero


@native()
def is_elsewhere(routine: Routine, operands: Tuple, array: ArrayObject) -> Bool:
    """Whether no operand shows the memory of the array."""
    start = array.data
    apart = True
    for k in range(len(operands)):
        wanted = routine.operands[k]
        if not wanted.is_number:
            first = cast(ArrayObject, cast(TensorObject, operands[k])._data).data + wanted.lowest
            apart = apart and (first + wanted.n_bytes <= start or start + routine.n_bytes <= first)
    return apart


@native()
def is_alone(routine: Routine, operands: Tuple, target: Object) -> Bool:
    """Whether the target is the first operand, and the others are elsewhere in memory, or the very same elements where
    that makes no difference."""
    if operands[0] is not target:
        return False
    whole = routine.operands[0]
    start = cast(ArrayObject, cast(TensorObject, target)._data).data
    lowest = start + whole.lowest
    alone = True
    for k in range(1, len(operands)):
        wanted = routine.operands[k]
        if not wanted.is_number:
            data = cast(ArrayObject, cast(TensorObject, operands[k])._data).data
            first = data + wanted.lowest
            apart = first + wanted.n_bytes <= lowest or lowest + whole.n_bytes <= first
            alone = alone and (apart or (whole.is_row_major and wanted.may_be_target and data == start))
    return alone


@native()
def require_undisturbed(words: Words):
    """No call is recorded or replayed, nobody watches, and the modes are those of this thread."""
    require(load_at(I64, words.replaying, 0) == 0 and thread_number(thread_state()) == words.thread)
    require(len(cast(List, watching)) == 0)
    require(words.modes.get("frame", None) is None)


@native()
def require_no_history_lost(target: TensorObject):
    """A view without gradients of what has them may be one that must not be changed (rebase.py: check_rebase)."""
    base = target._base
    if base is not None and target._is_apart is None:
        require(cast(TensorObject, base)._requires_grad is False)


@native()
def give_storage(words: Words, target: TensorObject):
    if target._storage is None:
        storage = new_storage(words)
        require(target._storage is None and target._base is None)
        target._storage = storage


@native()
def is_result_of(routine: Routine, array: ArrayObject) -> Bool:
    """Whether the array has the type and the shape of what the routine makes."""
    if array.dtype is not routine.dtype or array.ndim != routine.ndim:
        return False
    same = True
    for d in range(routine.ndim):
        same = same and load_at(I64, array.shape, d) == load_at(I64, routine.shape, d)
    return same


@native()
def is_one_of(routine: Routine, array: ArrayObject) -> Bool:
    """Whether the result is one element, for all of an array of its type."""
    return routine.is_for_all and routine.ndim == 0 and array.dtype is routine.dtype


# --- where arrays lie -----------------------------------------------------------------------------------------------
@native()
def is_apart(words: Words, x: ArrayObject, y: ArrayObject) -> Bool:
    """Whether two have no byte between them, from the first to the last of each."""
    first = x.data - reach(x, -1)
    other = y.data - reach(y, -1)
    ends_before = x.data + reach(x, 1) + size_of(words, x) <= other
    return ends_before or y.data + reach(y, 1) + size_of(words, y) <= first


@native()
def shows_each_once(x: ArrayObject) -> Bool:
    """Whether none of the elements is another one too, of what strides of 0 expand."""
    once = True
    for d in range(x.ndim):
        once = once and (load_at(I64, x.strides, d) != 0 or load_at(I64, x.shape, d) == 1)
    return once


@native()
def reach(x: ArrayObject, sign: I64) -> I64:
    """From the first element to that which lies highest, in bytes; lowest with a sign of -1."""
    found = 0
    for d in range(x.ndim):
        found += max(sign * load_at(I64, x.strides, d) * (load_at(I64, x.shape, d) - 1), 0)
    return found


@native()
def size_of(words: Words, x: ArrayObject) -> I64:
    """At least the bytes of an element."""
    if x.dtype is words.float32:
        return 4
    if x.dtype is words.float64:
        return 8
    return 16


# --- zeros ------------------------------------------------------------------------------------------------------------
@native(form=METHOD, slow="slow_zero", name="weft_eager_zero")
def clear(words: Words, targets: Object) -> Object:
    """Whether all elements of all targets, a list of tensors, have become 0."""
    require_undisturbed(words)
    require(type(targets) is list)
    for x in cast(List, targets):
        require(is_tensor(x))
        give_storage(words, cast(TensorObject, x))
    # Making a storage may have run code that changed the list, or what is in it.
    require_clearable(words, cast(List, targets))
    # Before the change, because making a number may fail.
    for x in cast(List, targets):
        raise_version(cast(TensorObject, x))
    for x in cast(List, targets):
        array = cast(ArrayObject, cast(TensorObject, x)._data)
        set_memory(array.data, 0, n_bytes_of_floats(words, array))
    words.calls_taken += len(cast(List, targets))
    return True


@native()
def require_clearable(words: Words, targets: List):
    recorded = words.modes.get("grad_enabled", words.grad_enabled) is not False
    for x in targets:
        require(is_tensor(x))
        target = cast(TensorObject, x)
        require(target._data is not None and target._storage is not None)
        if recorded:
            require(target._requires_grad is False)
            require_no_history_lost(target)
        require(is_contiguous(cast(ArrayObject, target._data)))
        require(n_bytes_of_floats(words, cast(ArrayObject, target._data)) > 0)
        require_plain(target)


@native()
def n_bytes_of_floats(words: Words, array: ArrayObject) -> I64:
    """0 of types that are not floats of 32 or 64 bits."""
    found = 0
    if array.dtype is words.float32:
        found = 4
    elif array.dtype is words.float64:
        found = 8
    for d in range(array.ndim):
        found = found * load_at(I64, array.shape, d)
    return found
