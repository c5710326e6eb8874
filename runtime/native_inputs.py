"""IR text of tensors that come into a usual call from outside (native_text.py): arguments, and those new in every
call."""

from ..compiler.emit.builder import I64
from . import native_text as t
from .native_text import NULL


def require_argument(f, record, x, n):
    """A leaf on an array that lies as the record says. Nothing that is expected lives in the same memory, nor any other
    of the first n arguments if the call changes an argument."""
    b, layout = f.b, f.layout
    f.require_type(x, t.TENSOR)
    array = f.load(x, layout.data)
    f.require_type(array, t.ARRAY)
    f.require_leaf(x, f.load(record, 32))
    # What ops read as a copy may be exposed; what the program reads where it is may not.
    with b.when(b.cmp("ne", f.load(record, 48, I64), b.i64(0))):
        f.require_hidden(x)
    f.require_place(array, record)
    owner, records = _owner(f, array), f.word(t.ARGUMENTS)
    f.store(owner, record, 40)
    with b.when(b.cmp("eq", f.word(t.MAY_SHARE), NULL)), b.loop(0, n, 1) as k:
        f.require(b.cmp("ne", owner, f.load(b.offset(records, k, 8 * t.ARGUMENT_WORDS), 40)))
    owners = f.word(t.OWNERS)
    with b.loop(0, f.word(t.N_OWNERS, I64), 1) as k:
        f.require(b.cmp("ne", owner, f.item(owners, k)))


def _owner(f, array):
    """The array that owns the memory."""
    base = f.load(array, f.layout.array_base)
    return f.b.select(f.b.cmp("eq", base, NULL), array, base)


def enter_fresh(f, entry, items, tensors):
    """Number the tensors from outside that come in with an entry, if they are as usual."""
    b, fresh = f.b, f.load(entry, 8 * t.FRESH)
    with b.loop(0, f.load(entry, 8 * t.N_FRESH, I64), 1) as i:
        record = b.offset(fresh, i, 8 * t.FRESH_WORDS)
        x, argument = f.item(items, f.load(record, 8, I64)), b.offset(record, 2, 8)
        require_argument(f, argument, x, f.word(t.N_ARGUMENTS, I64))
        _require_apart(f, f.load(argument, 40), tensors)
        f.assign(x, b.offset(tensors, f.load(record, 0, I64), 8), 0)


def _require_apart(f, owner, tensors):
    """No tensor that has come in before lives in the owner's memory."""
    b, numbers = f.b, f.word(t.FRESH_NUMBERS)
    with b.when(b.cmp("eq", f.word(t.MAY_SHARE), NULL)), b.loop(0, f.word(t.N_FRESH_NUMBERS, I64), 1) as k:
        tensor = f.item(tensors, f.item(numbers, k, I64))
        with b.when(b.cmp("ne", tensor, f.word(t.NONE))):
            array = f.load(tensor, f.layout.data)
            f.require_type(array, t.ARRAY)
            f.require(b.cmp("ne", owner, _owner(f, array)))


def clean(f, tensors):
    """At the end of the call: hold nothing of what was new in it."""
    b, numbers, copies = f.b, f.word(t.FRESH_NUMBERS), f.word(t.COPIES)
    with b.loop(0, f.word(t.N_FRESH_NUMBERS, I64), 1) as k:
        f.assign(f.word(t.NONE), b.offset(tensors, f.item(numbers, k, I64), 8), 0)
    with b.when(b.cmp("ne", f.load(copies, f.layout.dict_used, I64), b.i64(0))):
        f.python("PyDict_Clear", [copies], "void")
