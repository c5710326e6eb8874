"""IR text of reads in the middle of a usual call (native_text.py): the native twin of runtime/replay/usual_segments.py.

A segment has words like those of a call, of which `weft_run` runs the program: its results are what is read.
"""

from ...compiler.emit.builder import I32, I64, PTR
from . import native_views
from . import native_words as t
from .native_text import NULL, Method


def write(module, layout):
    _materialize(module, layout)


def _materialize(module, layout):
    """materialize(tensor): the tensor's array, if the same is pending, and held, where a value was read here before."""
    f = Method(module, "materialize", layout)
    b, tensor = f.b, f.argument(0)
    for word in (t.WORKING, t.DEPARTED):
        f.same(f.word(word, I64), b.i64(0))
    done = f.word(t.N_FLUSHED, I64)
    f.require(b.cmp("lt", done, f.word(t.N_SEGMENTS, I64)))
    record = b.offset(f.word(t.SEGMENTS), done, 16)
    f.same(f.load(record, 0, I64), f.word(t.K, I64))
    segment = f.load(record, 8)
    f.require(b.cmp("ne", segment, NULL))
    words = f.load(segment, layout.array_data)
    f.require(b.cmp("ne", b.call(PTR, "weft_views_ready", [words]), NULL))
    ended = b.alloca(PTR)
    b.store(f.word(t.NONE), ended)
    answer = b.call(PTR, "weft_run", [segment, ended, b.i64(1)])
    f.return_null_if(b.cmp("eq", answer, NULL))
    f.python("Py_DecRef", [answer], "void")
    f.same(answer, f.word(t.TRUE))
    f.count(f.load(words, 8 * t.PROGRAM_CALLS), 0)
    native_views.show_all(f, words, f.tensor_items(), lambda record, view: _note_view(f, record, view))
    f.count(f.words, t.N_FLUSHED)
    array = f.load(tensor, layout.data)
    f.require_type(array, t.ARRAY)
    f.finish(f.keep(array))


def _note_view(f, record, view):
    _note(f, record, f.load(view, f.layout.data))


def give_value(f, record, tensors):
    """A value that a segment has computed: its tensor stays where it is until the call ends. One that a backward needs
    and that was changed in place since has none left."""
    array, tensor = f.load(record, 8 * t.CHOSEN), f.item(tensors, f.load(record, 0, I64))
    _note(f, record, array)
    with f.b.when(f.b.cmp("ne", tensor, f.word(t.NONE))):
        f.assign(array, tensor, f.layout.data)


def _note(f, record, array):
    """The array that a segment has given a value."""
    failed = f.python("PyDict_SetItem", [f.word(t.ARRAYS), f.load(record, 8), array], I32)
    f.return_null_if(f.b.cmp("ne", failed, f.b.const(0, I32)))


def array_of(f, record, tensors, place):
    """What a program reads in the place of a record: of a value that a segment made, what it has computed, because its
    tensor may have been changed since. place: for a pointer."""
    b = f.b
    number = f.load(record, 8 * (t.CHANGING_WORDS - 1))
    is_made = b.cmp("ne", number, NULL)
    with b.when(is_made):
        b.store(f.python("PyDict_GetItemWithError", [f.word(t.ARRAYS), number]), place)
    with b.when(b.not_(is_made)):
        b.store(f.load(f.item(tensors, f.load(record, 8, I64)), f.layout.data), place)
    array = b.load(place, PTR)
    f.require(b.cmp("ne", array, NULL))
    return array


def clean(f, ended, tensors):
    """At the end of the call: whoever holds a value that was computed in the middle keeps it, and the next call has
    another tensor."""
    b, none, made = f.b, f.word(t.NONE), f.word(t.MADE)
    with b.loop(0, f.word(t.N_MADE, I64), 1) as i:
        record = b.offset(made, i, 8 * t.MADE_WORDS)
        with b.when(b.cmp("ne", f.item(tensors, f.load(record, 0, I64)), none)):
            f.hand_out(record, b.load(ended, PTR), tensors)
    with b.when(b.cmp("ne", f.word(t.N_FLUSHED, I64), b.i64(0))):
        f.python("PyDict_Clear", [f.word(t.ARRAYS)], "void")
        f.store(b.i64(0), f.words, 8 * t.N_FLUSHED)
