"""Updates of parameters in native code, as update.py: _update_as_planned does them; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import Object, Tuple
from ...compiler.translate.language import METHOD, cast, keep, native, require
from ..code.native_kinds import TensorObject, as_long, new_long
from ..state.tensor import Storage
from .eager_call import fits, put_number, run_step
from .eager_words import ArrayObject, StorageObject, Update, Words, WordsObject

WRITEABLE = 0x400  # NumPy's flag of arrays


def not_updated(*_):
    """Everything else is Python's business."""
    return False


@native(form=METHOD, slow="slow_update", name="weft_eager_update")
def update(words: Words, held: Object, row: Object, numbers: Object) -> Object:
    """Whether the tensors of a row were updated; `held` has the words of the rule's Update."""
    require(type(row) is tuple and type(numbers) is tuple)
    rule = cast(Update, cast(WordsObject, held).data)
    for k in range(len(row)):
        require(fits(row[k], rule.given[k]))
    for k in rule.written:
        require_plain(cast(TensorObject, row[k]))
    # Before the change, because making a number may fail.
    for k in rule.written:
        raise_version(cast(TensorObject, row[k]))
    fill(words, rule, row, numbers)
    for step in rule.steps:
        run_step(words, step)
    return True


@native()
def require_plain(target: TensorObject):
    """Memory that may be written to, and whose changes nobody has to be told of."""
    require(cast(ArrayObject, target._data).flags & WRITEABLE != 0)
    require(type(target._storage) is Storage)
    require(cast(StorageObject, target._storage).changes is None)


@native()
def raise_version(target: TensorObject):
    storage = keep(cast(StorageObject, target._storage))
    storage.version = new_long(as_long(storage.version) + 1)


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
