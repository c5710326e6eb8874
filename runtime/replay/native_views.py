"""IR text of results of a usual call that are views (native_text.py): the native twin of runtime/replay/usual_views.py.

The layout of a view is a constant of the path, if that of its base is: its array is made of the base's without asking
NumPy what the view is.
"""

from ...compiler.emit.builder import I32, I64, PTR
from . import native_words as t
from .native_changes import give_storage
from .native_text import NULL, Helper

# What a view is a view of after the call: what the op was called with, nothing, or from here on the value of a number.
ABOVE_ROOT, ABOVE_NONE, ABOVE_FIRST = range(3)
_CHECKED = 31  # so many sharers are enough for Python to drop the dead among them (tensor.py)


def write(module, layout):
    _views_ready(module, layout)


def _views_ready(module, layout):
    """views_ready(words): not null if the views of the call can be made here. The program has run, but for that of a
    segment."""
    f = Helper(module, "views_ready", layout, [])
    b, tensors, given = f.b, f.tensor_items(), f.word(t.GIVEN)
    with b.loop(0, f.word(t.N_GIVEN, I64), 1) as i:
        record = b.offset(given, i, 8 * t.GIVEN_WORDS)
        base = f.load(f.item(tensors, f.load(record, 0, I64)), layout.base)
        f.require(b.cmp("ne", base, f.word(t.NONE)))
        with b.when(b.cmp("eq", f.load(record, 8 * t.BASE_IS_MADE, I64), b.i64(0))):
            array = f.load(base, layout.data)
            f.require_type(array, t.ARRAY)
            f.require_place(array, b.offset(record, t.GIVEN_PLACE, 8))
        storage = f.load(base, layout.storage)
        with b.when(b.cmp("ne", storage, f.word(t.NONE))):
            sharers = f.load(storage, layout.sharers)
            with b.when(b.cmp("ne", sharers, f.word(t.NONE))):
                f.require_type(sharers, t.LIST)
                f.require(b.cmp("lt", f.load(sharers, layout.size, I64), b.i64(_CHECKED)))
    f.finish(f.words)


def show_all(f, words, tensors, and_then):
    """Every view that the words know gets its memory. and_then(record, view) writes what else is done with each."""
    b, given = f.b, f.load(words, 8 * t.GIVEN)
    with b.loop(0, f.load(words, 8 * t.N_GIVEN, I64), 1) as i:
        record = b.offset(given, i, 8 * t.GIVEN_WORDS)
        view = f.item(tensors, f.load(record, 0, I64))
        base = f.keep(f.load(view, f.layout.base))
        _show(f, record, view, base)
        _share_storage(f, view, base)
        _set_above(f, record, view, tensors)
        f.let_go(base)
        and_then(record, view)


def give(f, ended, tensors):
    """Every view gets its memory and is a result from now on; the next call has others."""
    b, given = f.b, f.word(t.GIVEN)
    n = f.word(t.N_GIVEN, I64)
    show_all(f, f.words, tensors, lambda *_: None)
    with b.loop(0, n, 1) as i:
        f.hand_out(b.offset(given, i, 8 * t.GIVEN_WORDS), b.load(ended, PTR), tensors)


def _show(f, record, view, base):
    """The view's array, of the memory of its base's; and the tensor that it is a view of in the end."""
    b, layout, none = f.b, f.layout, f.word(t.NONE)
    array = f.load(base, layout.data)
    flags = b.and_(f.load(array, layout.array_flags, I32), f.load(record, 8 * t.GIVEN_FLAGS, I32))
    data = b.offset(f.load(array, layout.array_data), f.load(record, 8 * t.GIVEN_OFFSET, I64), 1)
    ndim = b.convert(f.load(record, 8 * t.GIVEN_NDIM, I64), "i32")
    shape, strides = f.load(record, 8 * t.GIVEN_SHAPE), f.load(record, 8 * t.GIVEN_STRIDES)
    dtype = f.keep(f.load(array, layout.array_dtype))
    made = b.call(PTR, f.word(t.NEW_ARRAY), [f.word(t.ARRAY), dtype, ndim, shape, strides, data, flags, NULL])
    f.return_null_if(b.cmp("eq", made, NULL))
    f.store(f.keep(_owner(f, array)), made, layout.array_base)
    before = f.load(view, layout.data)
    f.store(made, view, layout.data)
    f.python("Py_DecRef", [before], "void")
    above = f.load(base, layout.base)
    # Of a view of a detached tensor that is the end.
    is_end = b.or_(b.cmp("eq", above, none), b.cmp("ne", f.load(base, layout.is_apart), NULL))
    f.assign(b.select(is_end, base, above), view, layout.base)


def _set_above(f, record, view, tensors):
    """A detached tensor, and what is a view of it, does not know what was detached."""
    b, above = f.b, f.load(record, 8 * t.GIVEN_ABOVE, I64)
    with b.when(b.cmp("eq", above, b.i64(ABOVE_NONE))):
        f.assign(f.word(t.NONE), view, f.layout.base)
    with b.when(b.cmp("ge", above, b.i64(ABOVE_FIRST))):
        f.assign(f.item(tensors, b.sub(above, b.i64(ABOVE_FIRST))), view, f.layout.base)


def _owner(f, array):
    """What NumPy makes the base of a view of an array: the array that it is a view of itself, if it is one."""
    b, base = f.b, f.load(array, f.layout.array_base)
    base = b.select(b.cmp("eq", base, NULL), array, base)
    return b.select(b.cmp("eq", f.load(base, f.layout.type), f.word(t.ARRAY)), base, array)


def _share_storage(f, view, base):
    """Both have one storage, which knows them."""
    b, layout, none = f.b, f.layout, f.word(t.NONE)
    with b.when(b.cmp("eq", f.load(base, layout.storage), none)):
        give_storage(f, base)
    storage = f.load(base, layout.storage)
    with b.when(b.cmp("eq", f.load(storage, layout.sharers), none)):
        f.store(f.new_list(), storage, layout.sharers)
        f.python("Py_DecRef", [none], "void")
        _add_sharer(f, storage, base)
    _add_sharer(f, storage, view)
    f.assign(storage, view, layout.storage)


def _add_sharer(f, storage, tensor):
    reference = f.new("PyWeakref_NewRef", [tensor, NULL])
    f.append_to(f.load(storage, f.layout.sharers), reference)
    f.python("Py_DecRef", [reference], "void")
