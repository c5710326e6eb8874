"""IR text of changes in place in a usual call (native_text.py): the native twin of runtime/replay/usual_inplace.py."""

from ...compiler.emit.builder import I32, I64
from ..programs.places import WRITEABLE
from . import native_words as t
from .native_in_flight import InFlight
from .native_inputs import enter_fresh
from .native_ops import operands_at, take_numbers, take_numbers_again
from .native_shown import number_anew, show_again
from .native_text import NULL, Method
from .native_updates import count_version, require_alone


def write(module, layout):
    _inplace_again(Method(module, "inplace_again", layout))
    _inplace_again(InFlight(module, "inplace_again", layout, n_arguments=4))
    _make_leaf(Method(module, "make_leaf", layout))


def _inplace_again(f):
    """inplace_again(op, target, operands, attributes): True if the change is the one expected here, and nothing that
    lives shares the target's memory. Then it has been made."""
    b, layout, operands = f.b, f.layout, f.argument(2)
    entry = f.entry()
    change = f.load(entry, 8 * t.CHANGE)
    f.require(b.cmp("ne", change, NULL))
    f.same(f.argument(0), f.load(change, 8 * t.CHANGE_OP))
    items, n = operands_at(f, entry, operands, f.argument(3))
    codes, tensors = f.load(entry, 8 * t.OPERANDS), f.tensor_items()
    f.same(n, f.load(entry, 8 * t.N_OPERANDS, I64))
    f.require_mode(entry)
    f.require_operands(items, codes, n, tensors)
    # The target may come in with this very entry.
    enter_fresh(f, entry, items, tensors)
    target = _target(f, change, tensors)
    is_made = b.cmp("ne", f.load(change, 8 * t.IS_MADE, I64), b.i64(0))
    _require_alone(f, change, target, is_made, tensors)
    with b.when(b.not_(is_made)):
        _require_own_memory(f, change, target)
    take_numbers(f, entry, items, codes, n)
    take_numbers_again(f, change)
    count_version(f, f.load(target, layout.storage))
    f.assign(target, b.offset(tensors, f.load(change, 8 * t.NEW, I64), 8), 0)
    f.advance()
    with b.when(is_made):
        number_anew(f, change, target, tensors)
        f.assign(f.word(t.NONE), target, layout.data)
    show_again(f, f.load(change, 8 * t.N_SHOWN, I64), tensors)
    f.finish(f.keep(f.word(t.TRUE)))


def _make_leaf(f):
    """make_leaf(tensor): True if a tensor of the call becomes a leaf here as usual, and has (usual_leaves.py)."""
    b, tensor = f.b, f.argument(0)
    entry, tensors = f.entry(), f.tensor_items()
    change = f.load(entry, 8 * t.CHANGE)
    f.require(b.cmp("ne", change, NULL))
    f.same(f.load(change, 8 * t.IS_MADE, I64), b.i64(t.AS_LEAF))
    f.require_mode(entry)
    f.same(tensor, f.item(tensors, f.load(change, 8 * t.OLD, I64)))
    f.same(f.load(tensor, f.layout.data), f.word(t.NONE))
    _require_unheld(f, change, tensors)
    f.assign(tensor, b.offset(tensors, f.load(change, 8 * t.NEW, I64), 8), 0)
    number_anew(f, change, tensor, tensors)
    f.advance()
    f.finish(f.keep(f.word(t.TRUE)))


def _require_unheld(f, change, tensors):
    """Nobody holds the views that share the target's memory."""
    group = f.load(change, 8 * t.GROUP)
    with f.b.loop(0, f.load(change, 8 * t.N_GROUP, I64), 1) as i:
        f.require(f.is_unshared(f.item(tensors, f.item(group, i, I64))))


def _target(f, change, tensors):
    """What changes: what the change is asked of, or what that is another name of and shows."""
    b, given = f.b, f.argument(1)
    f.same(given, f.item(tensors, f.load(change, 8 * t.GIVEN_NAME, I64)))
    target = f.item(tensors, f.load(change, 8 * t.OLD, I64))
    with b.when(b.cmp("ne", target, given)):
        f.same(f.load(given, f.layout.data), f.word(t.NONE))
    return target


def _require_alone(f, change, target, is_made, tensors):
    """Nothing living shares the target's memory that may not. It has a storage, which counts its changes."""
    b, layout, none = f.b, f.layout, f.word(t.NONE)
    _require_unheld(f, change, tensors)
    with b.when(b.cmp("eq", f.load(target, layout.storage), none)):
        give_storage(f, target)
    storage = f.load(target, layout.storage)
    require_alone(f, storage, target, b.select(is_made, NULL, f.words))


def give_storage(f, target):
    """A storage like the one that tensor.py gives a tensor."""
    layout, none = f.layout, f.word(t.NONE)
    made = f.new("PyType_GenericAlloc", [f.word(t.STORAGE), f.b.i64(0)])
    for slot in (layout.sharers, layout.changes, layout.exposed):
        f.store(f.keep(none), made, slot)
    f.store(f.new("PyLong_FromLongLong", [f.b.i64(0)]), made, layout.version)
    f.store(made, target, layout.storage)
    f.python("Py_DecRef", [none], "void")


def _require_own_memory(f, change, target):
    """A tensor from outside is the expected one, requires gradients as before, and has memory that may be written and
    that no NumPy array holds."""
    b, layout = f.b, f.layout
    expected = f.load(change, 8 * t.TARGET)
    f.require(b.or_(b.cmp("eq", expected, NULL), b.cmp("eq", expected, target)))
    f.same(f.load(target, layout.requires_grad), f.load(change, 8 * t.NEW_FLAG))
    array = f.load(target, layout.data)
    f.require_type(array, t.ARRAY)
    flag = b.const(WRITEABLE, I32)
    f.same(b.and_(f.load(array, layout.array_flags, I32), flag), flag)
    base = f.load(array, layout.array_base)
    with b.when(b.cmp("ne", base, NULL)), b.when(b.cmp("eq", f.load(base, layout.type), f.word(t.ARRAY))):
        f.require(f.is_unshared(base))


def clean(f, tensors):
    """At the end of the call: the numbers hold what the next call begins with."""
    b, none = f.b, f.word(t.NONE)
    changes = f.word(t.CHANGES)
    with b.loop(0, f.word(t.N_CHANGES, I64), 1) as i:
        change = f.item(changes, i)
        with b.when(b.cmp("ne", f.load(change, 8 * t.IS_MADE, I64), b.i64(0))):
            new = f.new_pending(change, t.OLD_NUMBER)
            place = b.offset(tensors, f.load(change, 8 * t.OLD, I64), 8)
            before = f.load(place, 0)
            f.store(new, place, 0)
            f.python("Py_DecRef", [before], "void")
        f.assign(none, b.offset(tensors, f.load(change, 8 * t.NEW, I64), 8), 0)
