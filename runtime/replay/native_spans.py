"""IR text of calls that are taken as a whole in a usual call (native_text.py); frame_spans.py says what spans are."""

from ...compiler.emit.builder import F64, I32, I64, PTR
from . import native_inputs
from . import native_words as t
from .native_text import NULL, Callable, Helper, Method


def write(module, layout):
    for one in (_guard, _match_guards, _take_span, _call_module, _call_again):
        one(module, layout)


def _call_module(module, layout):
    """module(*args): the result of a span that begins here, if there is one; else Python learns what the call does."""
    f = Callable(module, "call_module", layout)
    b = f.b
    this, args, kwargs = b.arguments
    entry = f.entry()
    spans = f.load(entry, 8 * t.SPANS)
    with b.loop(0, f.load(entry, 8 * t.N_SPANS, I64), 1) as i:
        span = b.offset(spans, i, 8 * t.SPAN_WORDS)
        with b.when(b.cmp("eq", f.load(span, 8 * t.KEY), this)):
            # One that is not pure has no end: it goes the slow way.
            f.require(b.cmp("ge", f.load(span, 8 * t.END, I64), b.i64(0)))
            f.same(kwargs, NULL)
            result = b.call(PTR, "weft_take_span", [f.words, span, args])
            with b.when(b.cmp("ne", result, NULL)):
                f.give(result)
                b.start(b.label("unreachable"))
    f.same(kwargs, NULL)
    pair = b.alloca(PTR, 2)
    b.store(this, pair)
    b.store(args, b.offset(pair, 1, 8))
    f.give(f.call(t.LEARN, pair, 2))
    f.start_slow_way()
    _call_forward(f, this, args, kwargs)
    f.finish_slow_way()


def _call_forward(f, this, args, kwargs):
    """What Module.__call__ does where there are no hooks."""
    b, layout = f.b, f.layout
    attributes = f.python("PyObject_GenericGetDict", [this, NULL])
    with b.when(b.cmp("ne", attributes, NULL)):
        f.python("Py_DecRef", [attributes], "void")
        for name in (t.HOOKS_NAME, t.PRE_HOOKS_NAME):
            hooks = f.python("PyDict_GetItem", [attributes, f.shared(name)])
            f.python_if(b.cmp("eq", hooks, NULL))
            f.python_if(b.cmp("ne", f.load(hooks, layout.type), f.shared(t.TYPE_OF_HOOKS)))
            f.python_if(b.cmp("ne", f.load(hooks, layout.dict_used, I64), b.i64(0)))
        forward = f.python("PyObject_GetAttr", [this, f.shared(t.FORWARD_NAME)])
        f.return_null_if(b.cmp("eq", forward, NULL))
        result = f.python("PyObject_Call", [forward, args, kwargs])
        f.python("Py_DecRef", [forward], "void")
        f.give(result)
        b.start(b.label("unreachable"))


def _call_again(module, layout):
    """call_again(function, args): the same for a spanned function."""
    f = Method(module, "call_again", layout)
    b, entry, function = f.b, f.entry(), f.argument(0)
    spans = f.load(entry, 8 * t.SPANS)
    with b.loop(0, f.load(entry, 8 * t.N_SPANS, I64), 1) as i:
        span = b.offset(spans, i, 8 * t.SPAN_WORDS)
        with b.when(b.cmp("eq", f.load(span, 8 * t.KEY), function)):
            with b.when(b.cmp("lt", f.load(span, 8 * t.END, I64), b.i64(0))):
                f.give(f.python("PyObject_Call", [function, f.argument(1), NULL]))
                b.start(b.label("unreachable"))
            result = b.call(PTR, "weft_take_span", [f.words, span, f.argument(1)])
            with b.when(b.cmp("ne", result, NULL)):
                f.give(result)
                b.start(b.label("unreachable"))
    # Python learns one.
    b.branch(f.slow)
    b.start(b.label("unreachable"))
    f.finish(NULL)


def _take_span(module, layout):
    """take_span(words, span, args): its result, if the arguments are its own and all it depends on is as it was."""
    f = Helper(module, "take_span", layout, ["span", "args"])
    b = f.b
    _, span, args = b.arguments
    n, tensors = f.load(args, layout.size, I64), f.tensor_items()
    f.same(n, f.load(span, 8 * t.N_CODES, I64))
    f.same(f.mode(t.MODE_NAME), f.load(span, 8 * t.SPAN_MODE))
    f.require_operands(b.offset(args, layout.tuple_items, 1), f.load(span, 8 * t.CODES), n, tensors)
    f.require_true("weft_match_guards", span)
    # Last of all that may fail: one at most comes in, and nothing else has been done.
    fresh, n_fresh = f.load(span, 8 * t.SPAN_FRESH), f.load(span, 8 * t.N_SPAN_FRESH, I64)
    native_inputs.enter_all(f, fresh, n_fresh, b.i64(-1), b.offset(args, layout.tuple_items, 1), tensors)
    appended, roots = f.load(span, 8 * t.APPENDED), f.load(span, 8 * t.ROOTS)
    with b.loop(0, f.load(appended, layout.size, I64), 1) as i:
        f.append(t.NUMBERS, f.item(f.load(appended, layout.list_items), i))
    with b.loop(0, f.load(span, 8 * t.N_ROOTS, I64), 1) as i:
        view, root = (f.item(roots, b.add(b.add(i, i), b.i64(k)), I64) for k in range(2))
        f.assign(f.item(tensors, root), f.item(tensors, view), layout.base)
    f.count(span, t.USES)
    f.store(f.load(span, 8 * t.END, I64), f.words, 8 * t.K)
    f.finish(f.keep(f.item(tensors, f.load(span, 8 * t.RESULT, I64))))


def _match_guards(module, layout):
    """match_guards(words, span): not null if all that a span depends on is as it was."""
    f = Helper(module, "match_guards", layout, ["span"])
    b = f.b
    span = b.arguments[1]
    guards = f.load(span, 8 * t.GUARDS)
    with b.loop(0, f.load(span, 8 * t.N_GUARDS, I64), 1) as i:
        f.require_true("weft_guard", b.offset(guards, i, 8 * t.GUARD_WORDS))
    f.finish(span)


def _guard(module, layout):
    """guard(words, guard): not null if what it describes is as it was."""
    f = Helper(module, "guard", layout, ["guard"])
    b = f.b
    guard = b.arguments[1]
    kind, thing, container = f.load(guard, 0, I64), f.load(guard, 8 * t.OBJECT), f.load(guard, 8 * t.CONTAINER)
    size, pairs = f.load(guard, 8 * t.SIZE, I64), f.load(guard, 8 * t.PAIRS)
    with b.when(b.cmp("eq", kind, b.i64(t.OF_TYPE))):
        version = b.convert(f.load(thing, layout.type_version, I32), "i64")
        f.same(version, size)
    with b.when(b.cmp("eq", kind, b.i64(t.OF_ITEM))):
        f.same(f.python("PyDict_GetItem", [container, f.load(pairs, 0)]), f.load(pairs, 8))
    with b.when(b.cmp("eq", kind, b.i64(t.OF_ATTRIBUTES))):
        f.same(f.load(thing, f.layout.type), f.load(guard, 8 * t.CLASS))
        attributes = f.python("PyObject_GenericGetDict", [thing, NULL])
        f.same(attributes, container)
        f.python("Py_DecRef", [attributes], "void")
    with b.when(b.cmp("le", kind, b.i64(t.OF_DICT))):
        _require_items(f, container, size, pairs)
    with b.when(b.cmp("eq", kind, b.i64(t.OF_LIST))):
        f.same(f.load(container, layout.size, I64), size)
        with b.loop(0, size, 1) as i:
            f.same(f.item(f.load(container, layout.list_items), i), f.load(b.offset(pairs, i, 16), 8))
    f.finish(guard)


def _require_items(f, container, size, pairs):
    """A dict has these items in this order: the very same objects, or floats with the same bits."""
    b = f.b
    f.same(f.load(container, f.layout.dict_used, I64), size)
    position, key, value = b.alloca(I64), b.alloca(PTR), b.alloca(PTR)
    b.store(b.i64(0), position)
    with b.loop(0, size, 1) as i:
        more = f.python("PyDict_Next", [container, position, key, value], I32)
        f.require(b.cmp("ne", more, b.const(0, I32)))
        pair = b.offset(pairs, i, 16)
        f.same(b.load(key, PTR), f.load(pair, 0))
        found, expected = b.load(value, PTR), f.load(pair, 8)
        with b.when(b.cmp("ne", found, expected)):
            for x in (found, expected):
                f.require_type(x, t.KINDS + 2)
            bits = [b.bitcast(f.python("PyFloat_AsDouble", [x], F64), "i64") for x in (found, expected)]
            f.same(*bits)
