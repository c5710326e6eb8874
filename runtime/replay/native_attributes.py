"""IR text of comparing attributes (native_text.py): the native twin of runtime/state/attributes.py, which it asks
when in doubt."""

from ...compiler.emit.builder import F64, I32, I64, PTR
from . import native_words as t
from .native_text import Helper


def write(module, layout):
    for one in (_same, _same_attributes):
        one(module, layout)


def _same(module, layout):
    """same(words, x, y): not null if the values are of the same type and equal, floats bit for bit. One of them has
    been recorded, so it is of a kind that a recording may hold."""
    f = Helper(module, "same", layout, ["x", "y"])
    b = f.b
    _, x, y = b.arguments
    with b.when(b.cmp("ne", x, y)):
        kind = f.load(x, layout.type)
        f.same(kind, f.load(y, layout.type))
        is_float, is_tuple = (b.cmp("eq", kind, f.word(k)) for k in (t.KINDS + 2, t.TUPLE))
        with b.when(is_float):
            f.same(*[b.bitcast(f.python("PyFloat_AsDouble", [v], F64), "i64") for v in (x, y)])
        with b.when(is_tuple):
            size = f.load(x, layout.size, I64)
            f.same(size, f.load(y, layout.size, I64))
            with b.loop(0, size, 1) as i:
                f.require_true("weft_same", *[f.item(b.offset(v, layout.tuple_items, 1), i) for v in (x, y)])
        with b.when(b.not_(b.or_(is_float, is_tuple))):
            equal = f.python("PyObject_RichCompareBool", [x, y, b.const(2, I32)], I32)  # 2: Py_EQ
            f.same(equal, b.const(1, I32))
    f.finish(x)


def _same_attributes(module, layout):
    """same_attributes(words, x, y): not null if two dicts hold the same in the same order."""
    f = Helper(module, "same_attributes", layout, ["x", "y"])
    b = f.b
    dicts = b.arguments[1:]
    size, other = (f.load(x, layout.dict_used, I64) for x in dicts)
    f.same(size, other)
    places = [[b.alloca(I64), b.alloca(PTR), b.alloca(PTR)] for _ in dicts]
    for position, _, _ in places:
        b.store(b.i64(0), position)
    with b.loop(0, size, 1):
        for x, place in zip(dicts, places):
            f.require(b.cmp("ne", f.python("PyDict_Next", [x, *place], I32), b.const(0, I32)))
        names, values = ([b.load(place[k], PTR) for place in places] for k in (1, 2))
        f.same(*names)
        f.require_true("weft_same", *values)
    f.finish(dicts[0])


def require(f, x, y):
    """The attributes of a call, x, are those of the entry. Most are empty."""
    b, used = f.b, f.layout.dict_used
    f.require_type(x, t.DICT)
    sizes = b.or_(f.load(x, used, I64), f.load(y, used, I64))
    with b.when(b.cmp("ne", sizes, b.i64(0))):
        f.require_true("weft_same_attributes", x, y)
