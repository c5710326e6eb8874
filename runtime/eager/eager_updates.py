"""Updates of parameters in native code, as update.py: _update_as_planned does them; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, Bool, List, Object, Tuple
from ...compiler.translate.language import METHOD, cast, keep, native, require
from ..code.native_kinds import TensorObject, as_long, new_long
from ..state.readers import readers
from ..state.storage import Storage
from .eager_computing import put_number, run_step
from .eager_matching import fits
from .eager_nodes import new_storage
from .eager_words import WRITEABLE, ArrayObject, StorageObject, Update, Words, WordsObject


def not_updated(*_):
    """Everything else is Python's business."""
    return False


@native(form=METHOD, slow="slow_update", name="weft_eager_update")
def update(words: Words, held: Object, rows: Object, numbers: Object) -> Object:
    """Whether the tensors of all rows were updated; `held` has the words of each row's Update."""
    require(type(held) is tuple and type(rows) is list and type(numbers) is tuple)
    require(len(held) == len(rows))
    for number in numbers:
        require(type(number) is float)
    require_planned(held, rows)
    # Making a storage may run code that changes what was looked at.
    if not have_storages(held, rows):
        make_storages(words, held, rows)
        require_planned(held, rows)
    # Before the change, because making a number may fail.
    for i in range(len(rows)):
        rule = cast(Update, cast(WordsObject, held[i]).data)
        for k in rule.written:
            raise_version(cast(TensorObject, cast(Tuple, rows[i])[k]))
    for i in range(len(rows)):
        rule = cast(Update, cast(WordsObject, held[i]).data)
        fill(words, rule, cast(Tuple, rows[i]), numbers)
        for step in rule.steps:
            run_step(words, step)
    return True


# --- what may be written ----------------------------------------------------------------------------------------------
@native()
def require_planned(held: Tuple, rows: List):
    for i in range(len(rows)):
        rule = cast(Update, cast(WordsObject, held[i]).data)
        require(type(rows[i]) is tuple)
        row = cast(Tuple, rows[i])
        require(len(row) == len(rule.given))
        for k in range(len(row)):
            require(fits(row[k], rule.given[k]))
        for k in rule.written:
            require_plain(cast(TensorObject, row[k]))
            require(rule.n_elements == 0 or is_apart(rule, row, k))


@native()
def require_plain(target: TensorObject):
    """Memory that may be written to, and whose changes nobody has to be told of before."""
    require(cast(ArrayObject, target._data).flags & WRITEABLE != 0)
    if target._storage is None:
        require(target._base is None)
    else:
        storage = keep(cast(StorageObject, target._storage))
        require(type(storage) is Storage)
        # Changes that not all versions show are told to those who read the memory later, if there are any.
        require(storage.changes is None or len(cast(List, readers)) == 0)


@native()
def is_apart(rule: Update, row: Tuple, target: I64) -> Bool:
    """Whether none of its elements is written before another tensor is read there."""
    start = cast(ArrayObject, cast(TensorObject, row[target])._data).data
    end = start + rule.item_bytes[target] * rule.n_elements
    apart = True
    for k in range(len(row)):
        first = cast(ArrayObject, cast(TensorObject, row[k])._data).data
        same = first == start and rule.item_bytes[k] == rule.item_bytes[target]
        # One element for all may be as long as the longest there is.
        last = first + max(rule.item_bytes[k] * rule.n_elements, 8)
        apart = apart and (same or last <= start or end <= first)
    return apart


@native()
def have_storages(held: Tuple, rows: List) -> Bool:
    found = True
    for i in range(len(rows)):
        for k in cast(Update, cast(WordsObject, held[i]).data).written:
            found = found and cast(TensorObject, cast(Tuple, rows[i])[k])._storage is not None
    return found


@native()
def make_storages(words: Words, held: Tuple, rows: List):
    for i in range(len(rows)):
        rule = cast(Update, cast(WordsObject, held[i]).data)
        for k in rule.written:
            target = keep(cast(TensorObject, cast(Tuple, rows[i])[k]))
            if target._storage is None:
                storage = new_storage(words)
                require(target._storage is None and target._base is None)
                target._storage = storage


@native()
def raise_version(target: TensorObject):
    storage = keep(cast(StorageObject, target._storage))
    counted = changes_after(storage)
    storage.version = new_long(as_long(storage.version) + 1)
    count_change(storage, counted)


@native()
def changes_after(storage: StorageObject) -> Object:
    """How many changes memory that has several versions will have seen after one more."""
    if storage.changes is None:
        return None
    return new_long(as_long(cast(List, storage.changes)[0]) + 1)


@native()
def count_change(storage: StorageObject, counted: Object):
    if counted is not None:
        cast(List, storage.changes)[0] = counted


# --- computing --------------------------------------------------------------------------------------------------------
@native()
def fill(words: Words, rule: Update, row: Tuple, numbers: Tuple):
    n = len(row)
    for k in range(n):
        words.slots[k] = cast(ArrayObject, cast(TensorObject, row[k])._data).data
    for k in range(len(numbers)):
        put_number(words, n + k, numbers[k])
        words.slots[n + k] = words.numbers_at + 8 * (n + k)
    n += len(numbers)
    for k in range(len(rule.fixed)):
        words.slots[n + k] = rule.fixed[k]
