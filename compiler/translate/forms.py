"""How native functions are called from outside, and their slow ways: builtin methods, slots of classes, C functions.

PyObject *method(PyObject *self, PyObject **args, Py_ssize_t n)    METH_FASTCALL; self is a NumPy array of words
PyObject *slot(PyObject *self, PyObject *args, PyObject *kwargs)   tp_call
"""

from ..emit.builder import I64 as IR_I64
from ..emit.builder import PTR
from .kinds import Borrowed, Dict, Maybe, Object, Pointer, Rows, Tuple, is_object, places_of
from .language import METHOD, SLOT
from .values import NULL, Value
from .writer import Writer, in_register, memory_of

_PARAMETERS = {
    METHOD: [("self", PTR), ("args", PTR), ("count", IR_I64)],
    SLOT: [("self", PTR), ("args", PTR), ("kwargs", PTR)],
}


def check(source, kinds, result):
    """Refuse a signature that the function's form does not have."""
    form, error = source.function.declaration.form, source.error
    if form == METHOD and (not kinds or not isinstance(kinds[0], Pointer) or set(kinds[1:]) - {Object}):
        raise error(source.tree, "a method takes its words, which are a structure, and Objects")
    if form == SLOT and kinds != [Object, Tuple, Maybe(Dict)]:
        raise error(source.tree, "a slot function takes an Object, a Tuple and a Maybe(Dict)")
    if form is not None and (result is None or not is_object(result)):
        raise error(source.tree, "a method or slot function returns an Object")
    if any(isinstance(kind, Rows) for kind in kinds):
        raise error(source.tree, "rows are given to inlined functions only")


def start(unit, source, signature, assumed, handlers):
    """A Writer at the function's first statement, with its parameters as locals."""
    parameters = _PARAMETERS.get(signature.form) or [(name, memory_of(kind)) for name, kind in signature.parameters]
    w = Writer(unit, source, signature, assumed, handlers, parameters)
    result = signature.result
    if signature.departs and result is not None and not (is_object(result) or isinstance(result, Borrowed)):
        raise source.error(source.tree, "a function that may depart returns an object or nothing")
    w.frame.locals = dict(zip(source.function.__code__.co_varnames, _START.get(signature.form, _start_plain)(w)))
    return w


def _start_plain(w):
    kinds = [kind for _, kind in w.signature.parameters]
    return [Value(in_register(kind), w.from_memory(reg, kind)) for reg, kind in zip(w.b.arguments, kinds)]


def _start_slot(w):
    return [Value(kind, reg) for reg, (_, kind) in zip(w.b.arguments, w.signature.parameters)]


def _start_method(w):
    this, arguments, count = w.b.arguments
    (_, words), *objects = w.signature.parameters
    values = [Value(words, w.b.load(w.b.offset(this, w.layout["array_data"], 1), PTR))]
    w.require(w.b.cmp("eq", count, w.b.i64(len(objects))), w.departs)
    return values + [Value(kind, w.b.load(w.b.offset(arguments, k, 8), PTR)) for k, (_, kind) in enumerate(objects)]


_START = {METHOD: _start_method, SLOT: _start_slot}


def finish(w):
    """The ways out that were used."""
    if w.slow.used:
        w.b.start(w.slow.label)
        _SLOW.get(w.signature.form, _say_departed)(w)
    if w.failed.used:
        w.b.start(w.failed.label)
        _give(w, NULL)
    w.b.lines += w.cold
    w.b.close()


def _give(w, reg):
    w.b.lines.append(f"  ret {reg}")


def _say_departed(w):
    w.b.lines.append("  ret i1 false" if w.signature.result is None else "  ret ptr null")


def _call_method(w):
    """The Python function in a word, with the same arguments."""
    w.python("PyErr_Clear", [], "void")
    this, arguments, count = w.b.arguments
    words = w.b.load(w.b.offset(this, w.layout["array_data"], 1), PTR)
    place = places_of(w.signature.parameters[0][1].cls)[w.frame.source.function.declaration.slow]
    function = w.b.load(w.b.offset(words, place.offset, 1), PTR)
    _give(w, w.python("PyObject_VectorcallDict", [function, arguments, count, NULL]))


def _call_following(w):
    """The next slot function, or a Python function that takes self before the other arguments."""
    w.python("PyErr_Clear", [], "void")
    source = w.frame.source
    name = source.function.declaration.slow
    following = source.names.get(name)
    if following is None:
        raise source.error(source.tree, f"slow={name!r} is no function of the file")
    if hasattr(following, "declaration"):
        return _give(w, w.b.call(PTR, w.unit.signature(following).name, w.b.arguments))
    return _call_python(w, w.constant("object", f"{source.function.__module__}:{name}").reg)


def _call_python(w, function):
    b, (this, arguments, keywords) = w.b, w.b.arguments
    n = b.load(b.offset(arguments, w.layout["size"], 1), IR_I64)
    size = b.add(n, b.i64(1))
    stack = b.emit(PTR, f"alloca ptr, {size}, align 8")
    b.store(this, stack)
    with b.loop(0, n, 1) as i:
        item = b.load(b.offset(b.offset(arguments, w.layout["tuple_items"], 1), i, 8), PTR)
        b.store(item, b.offset(stack, b.add(i, b.i64(1)), 8))
    _give(w, w.python("PyObject_VectorcallDict", [function, stack, size, keywords]))


_SLOW = {METHOD: _call_method, SLOT: _call_following}
