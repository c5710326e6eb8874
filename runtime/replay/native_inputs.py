"""IR text of tensors that come into a usual call from outside (native_text.py): arguments, and those new in every
call."""

from ...compiler.emit.builder import I32, I64, PTR
from ..programs.places import STRIDED
from ..state.exposure import MOST_BYTES
from . import native_words as t
from .native_text import NULL, Helper

_CONTIGUOUS = 1  # NPY_ARRAY_C_CONTIGUOUS


def write(module, layout):
    _copied(module, layout)
    _copied_again(module, layout)


def require_argument(f, record, x, n):
    """A tensor on an array that lies as the record says, a leaf or a result as it says too. Nothing that is expected
    lives in the same memory, nor any other of the first n arguments if the call changes an argument."""
    b, layout = f.b, f.layout
    kind = f.load(x, layout.type)
    with b.when(b.cmp("ne", kind, f.word(t.TENSOR))):
        # Parameters too.
        is_tensor = f.python("PyType_IsSubtype", [kind, f.word(t.TENSOR)], I32)
        f.require(b.cmp("ne", is_tensor, b.const(0, I32)))
        # Functions hand those of these classes over.
        f.require(b.cmp("eq", f.python("PyDict_GetItem", [f.word(t.ASKED), kind]), NULL))
    array = f.load(x, layout.data)
    f.require_type(array, t.ARRAY)
    _require_history(f, x, record)
    # What ops read as a copy may be exposed; what the program reads where it is may not.
    with b.when(b.cmp("ne", f.load(record, 48, I64), b.i64(0))):
        f.require_hidden(x)
    f.require_place(array, record)
    owner, records = _owner(f, array), f.word(t.ARGUMENTS)
    f.store(owner, record, 40)
    with b.when(b.cmp("eq", f.word(t.MAY_SHARE), NULL)), b.loop(0, n, 1) as k:
        f.require(b.cmp("ne", owner, f.load(b.offset(records, k, 8 * t.ARGUMENT_WORDS), 40)))
    # One tensor with two numbers would have gradients that are summed in another order.
    with b.when(b.cmp("eq", f.word(t.N_OWNERS, I64), b.i64(0))), b.loop(0, f.word(t.N_EXPECTED, I64), 1) as k:
        f.require(b.cmp("ne", x, f.load(b.offset(f.word(t.EXPECTED), k, 8 * t.EXPECTED_WORDS), 0)))
    owners = f.word(t.OWNERS)
    with b.loop(0, f.word(t.N_OWNERS, I64), 1) as k:
        f.require(b.cmp("ne", owner, f.item(owners, k)))


def _require_history(f, x, record):
    """A leaf; if the record says so what an eager op has made, or a replayed call that is over."""
    b, layout = f.b, f.layout
    flag, bit = f.load(record, 32, I64), b.i64(t.WITH_HISTORY)
    has_history = b.cmp("ne", b.and_(flag, bit), b.i64(0))
    with b.when(b.not_(has_history)):
        f.require_leaf(x, f.load(record, 32))
    with b.when(has_history):
        f.same(b.add(f.load(x, layout.requires_grad, I64), bit), flag)
        frame = f.load(x, layout.frame)
        is_eager = b.cmp("eq", frame, f.word(t.NONE))
        with b.when(is_eager):
            f.require(b.cmp("ne", f.load(x, layout.node), f.word(t.NONE)))
        with b.when(b.not_(is_eager)):
            kind = f.load(frame, layout.type)
            known = [b.cmp("eq", kind, f.word(word)) for word in (t.FINISHED_CALL, t.ENDED_CALL)]
            f.require(b.or_(*known))


def _owner(f, array):
    """What owns the memory, as state/aligned.py: owner_of has it."""
    b, base = f.b, f.load(array, f.layout.array_base)
    base = b.select(b.cmp("eq", base, NULL), array, base)
    return b.select(b.cmp("eq", f.load(base, f.layout.type), f.word(t.MEMORY)), array, base)


def enter_fresh(f, entry, items, tensors):
    """Number the tensors from outside that come in with an entry, if they are as usual. Of exposed memory (exposure.py)
    the entry reads a copy."""
    fresh, n, root = f.load(entry, 8 * t.FRESH), f.load(entry, 8 * t.N_FRESH, I64), f.load(entry, 8 * t.ROOT, I64)
    enter_all(f, fresh, n, root, items, tensors)


def enter_all(f, fresh, n, root, items, tensors):
    """The same of n records; root: of what is a view, the number of its base, else -1."""
    b, place = f.b, f.b.alloca(PTR)
    with b.loop(0, n, 1) as i:
        record = b.offset(fresh, i, 8 * t.FRESH_WORDS)
        x, argument = f.item(items, f.load(record, 8, I64)), b.offset(record, 2, 8)
        b.store(x, place)
        storage = f.load(x, f.layout.storage)
        with b.when(b.cmp("ne", storage, f.word(t.NONE))):
            is_exposed = b.cmp("ne", f.load(storage, f.layout.exposed), f.word(t.NONE))
            with b.when(is_exposed):
                # A view shows the memory itself.
                f.require(b.cmp("lt", root, b.i64(0)))
                copy = b.call(PTR, "weft_copied", [f.words, x, record])
                f.require(b.cmp("ne", copy, NULL))
                b.store(copy, place)
        entered = b.load(place, PTR)
        with b.when(b.cmp("eq", entered, x)):
            require_argument(f, argument, x, f.word(t.N_ARGUMENTS, I64))
            _require_apart(f, f.load(argument, 40), tensors)
            _require_own_number(f, x, f.load(record, 8 * (t.FRESH_WORDS - 1), I64), tensors)
        f.assign(entered, b.offset(tensors, f.load(record, 0, I64), 8), 0)


def _require_own_number(f, x, turned, tensors):
    """What comes in is none of the arguments, but for the one that is to come in here as a leaf."""
    b = f.b
    with b.loop(0, f.word(t.N_TENSORS, I64), 1) as k:
        is_that, is_same = b.cmp("eq", k, turned), b.cmp("eq", f.item(tensors, k), x)
        f.require(b.cmp("eq", is_that, is_same))


def _copied(module, layout):
    """copied(words, tensor, record): a tensor with a copy of what is in the memory of another, which must lie as the
    record of what comes in says, and not be large: the copy of the last call if that is the same still. The call's
    copies hold it; none of the tensor may be among them yet, nor may it require gradients, which would not find it."""
    f = Helper(module, "copied", layout, ["tensor", "record"])
    b = f.b
    _, tensor, record = b.arguments
    argument = b.offset(record, 2, 8)
    n_bytes = f.load(argument, 8 * t.ARGUMENT_WORDS, I64)
    f.require(b.cmp("le", n_bytes, b.i64(MOST_BYTES)))
    # The copy lies in one run.
    f.require(b.cmp("eq", b.and_(f.load(argument, 24, I64), b.i64(STRIDED)), b.i64(0)))
    f.require_leaf(tensor, f.load(argument, 32))
    f.require(b.cmp("eq", f.load(tensor, layout.requires_grad), f.word(t.FALSE)))
    array = f.load(tensor, layout.data)
    f.require_type(array, t.ARRAY)
    f.require_place(array, argument)
    key = f.new("PyLong_FromLongLong", [b.emit(I64, f"ptrtoint {tensor} to i64")])
    found = f.python("PyDict_GetItemWithError", [f.word(t.COPIES), key])
    _leave_if(f, b.cmp("ne", found, NULL), key)
    copy = _last_or_new(f, tensor, array, record, n_bytes)
    size = f.new("PyLong_FromLongLong", [n_bytes])
    known = f.tuple_of(f.keep(tensor), f.keep(copy), f.keep(array), size)
    failed = f.python("PyDict_SetItem", [f.word(t.COPIES), key, known], I32)
    _leave_if(f, b.cmp("ne", failed, b.const(0, I32)), key, known)
    for x in (key, known):
        f.python("Py_DecRef", [x], "void")
    f.finish(copy)


def _last_or_new(f, tensor, array, record, n_bytes):
    """The copy that a call has made of what came in with this record, if it is one of this memory; else a new one."""
    b, layout = f.b, f.layout
    last = b.offset(f.load(f.word(t.LAST_COPIES), layout.list_items), f.load(record, 0, I64), 8)
    with b.when(_is_no_copy(f, b.load(last, PTR), array, n_bytes)):
        copy = _new_tensor(f, tensor, _copy_of(f, array, b.offset(record, 2, 8), n_bytes))
        f.assign(copy, last, 0)
        f.let_go(copy)
    return b.load(last, PTR)


def _is_no_copy(f, last, array, n_bytes):
    b, layout, place = f.b, f.layout, f.b.alloca(I32)
    b.store(b.const(1, I32), place)
    with b.when(b.cmp("ne", last, f.word(t.NONE))):
        ends = [f.load(x, layout.array_data) for x in (array, f.load(last, layout.data))]
        b.store(f.python("memcmp", [*ends, n_bytes], I32), place)
    return b.cmp("ne", b.load(place, I32), b.const(0, I32))


def _copied_again(module, layout):
    """copied_again(words, x, copy): the copy, if it is one of the memory of x, a tensor, which holds the same bits."""
    f = Helper(module, "copied_again", layout, ["x", "copy"])
    b = f.b
    _, x, copy = b.arguments
    for tensor in (x, copy):
        f.require_type(tensor, t.TENSOR)
    key = f.new("PyLong_FromLongLong", [b.emit(I64, f"ptrtoint {x} to i64")])
    known = f.python("PyDict_GetItemWithError", [f.word(t.COPIES), key])
    f.python("Py_DecRef", [key], "void")
    f.require(b.cmp("ne", known, NULL))
    wanted = (x, copy, f.load(x, layout.data))
    for k, one in enumerate(wanted):
        f.same(f.load(known, layout.tuple_items + 8 * k), one)
    n_bytes = f.python("PyLong_AsLongLong", [f.load(known, layout.tuple_items + 8 * len(wanted))], I64)
    arrays = [f.load(tensor, layout.data) for tensor in (x, copy)]
    for array in arrays:
        f.require_type(array, t.ARRAY)
        flags = b.and_(f.load(array, layout.array_flags, I32), b.const(_CONTIGUOUS, I32))
        f.require(b.cmp("ne", flags, b.const(0, I32)))
    different = f.python("memcmp", [*[f.load(array, layout.array_data) for array in arrays], n_bytes], I32)
    f.require(b.cmp("eq", different, b.const(0, I32)))
    f.finish(copy)


def _leave_if(f, condition, *objects):
    """Go the slow way, and let go of objects, if the condition holds."""
    with f.b.when(condition):
        for x in objects:
            f.python("Py_DecRef", [x], "void")
        f.b.branch(f.slow)
        f.b.start(f.b.label("unreachable"))


def _copy_of(f, array, argument, n_bytes):
    """A new array with the same bytes."""
    b, layout = f.b, f.layout
    ndim, shape = b.convert(f.load(argument, 8, I64), "i32"), f.load(argument, 16)
    dtype, flags = f.keep(f.load(argument, 0)), b.const(0, I32)
    made = b.call(PTR, f.word(t.NEW_ARRAY), [f.word(t.ARRAY), dtype, ndim, shape, NULL, NULL, flags, NULL])
    f.return_null_if(b.cmp("eq", made, NULL))
    source, target = (f.load(x, layout.array_data) for x in (array, made))
    f.python("memcpy", [target, source, n_bytes])
    return made


def _new_tensor(f, like, array):
    """A tensor around an array, as tensor.py makes it."""
    layout, none = f.layout, f.word(t.NONE)
    made = f.new("PyType_GenericAlloc", [f.word(t.TENSOR), f.b.i64(0)])
    for slot in ("frame", "grad", "node", "accumulator", "storage", "base", "meta"):
        f.store(f.keep(none), made, getattr(layout, slot))
    f.store(array, made, layout.data)
    f.store(f.keep(f.load(like, layout.vid)), made, layout.vid)
    f.store(f.keep(f.word(t.FALSE)), made, layout.requires_grad)
    return made


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
        number = f.item(numbers, k, I64)
        f.assign(f.word(t.NONE), b.offset(tensors, number, 8), 0)
        with b.when(b.cmp("eq", f.word(t.KEEPS_COPIES, I64), b.i64(0))):
            f.assign(f.word(t.NONE), b.offset(f.load(f.word(t.LAST_COPIES), f.layout.list_items), number, 8), 0)
    with b.when(b.cmp("ne", f.load(copies, f.layout.dict_used, I64), b.i64(0))):
        f.python("PyDict_Clear", [copies], "void")
