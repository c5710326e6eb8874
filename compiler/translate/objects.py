"""What native functions do with Python objects: fields, items, tuples, lists and dicts, by the layout or CPython."""

import ast

from ..emit.builder import I32, PTR
from ..emit.builder import I64 as IR_I64
from .kinds import I64, List, Maybe, Number, Object, ObjectKind, Tuple, is_object, kind_of
from .values import NULL, Value


# --- reading ----------------------------------------------------------------------------------------------------------
def object_field(w, base, field):
    """What an object holds; it may let go of it as soon as Python code runs."""
    name, kind = base.kind.fields[field]
    value = w.read(kind_of(kind), base.reg, w.layout[name])
    return Value(value.kind, value.reg, value.count, read_at=w.events) if is_object(value.kind) else value


def item_of_tuple(w, base, index):
    """A tuple holds its items as long as it lives itself."""
    at = w.b.offset(w.b.offset(base.reg, w.layout["tuple_items"], 1), index.reg, 8)
    return Value(base.kind.item, w.b.load(at, PTR), read_at=w.events if w.is_new(base) else base.read_at)


def item_of_list(w, base, index):
    items = w.b.load(w.b.offset(base.reg, w.layout["list_items"], 1), PTR)
    return Value(base.kind.item, w.b.load(w.b.offset(items, index.reg, 8), PTR), read_at=w.events)


def length(w, value):
    """Of a tuple, list or dict; None of anything else."""
    name = {tuple: "size", list: "size", dict: "dict_used"}.get(getattr(value.kind, "cls", None))
    return None if name is None else Value(I64, w.b.load(w.b.offset(value.reg, w.layout[name], 1), IR_I64))


def class_of(w, value):
    return Value(Object, w.b.load(w.b.offset(value.reg, w.layout["type"], 1), PTR))


def get(w, node, base):
    """d.get(key), or d.get(key, default). An error counts as absent; the slow way meets it again."""
    key = w.visit(node.args[0])
    is_text, key = isinstance(key.literal, str), w.as_kind(key, Object, node.args[0])
    default = w.value_of(node.args[1], Object) if len(node.args) > 1 else None
    found = w.python("PyDict_GetItemWithError", [base.reg, key.reg])
    if not is_text:  # comparing strings runs no Python code
        w.events += 1
    if default is None:
        return Value(Maybe(Object), found, read_at=w.events)
    missing = w.b.cmp("eq", found, NULL)
    return Value(Object, w.b.select(missing, default.reg, found), read_at=w.events)


# --- writing ----------------------------------------------------------------------------------------------------------
def set_object_field(w, node, base, field, value_node):
    name, kind = base.kind.fields[field]
    kind, offset = kind_of(kind), w.layout[name]
    value = w.value_of(value_node, kind)
    at = w.b.offset(base.reg, offset, 1)
    if isinstance(kind, Number):
        w.b.store(w.to_memory(value.reg, kind), at)
    else:
        _replace(w, at, value)


def set_item(w, node, base, value_node):
    """x[i] = value of a list, d[key] = value of a dict."""
    if base.kind.cls is dict:
        key, value = w.value_of(node.slice, Object), w.value_of(value_node, Object)
        _require_zero(w, w.python("PyDict_SetItem", [base.reg, key.reg, value.reg], I32))
        w.events += 1
        return
    index, value = w.value_of(node.slice, I64), w.value_of(value_node, base.kind.item)
    items = w.b.load(w.b.offset(base.reg, w.layout["list_items"], 1), PTR)
    _replace(w, w.b.offset(items, index.reg, 8), value)


def _replace(w, at, value):
    """A reference to a value in place of what is there, which goes last, because that may run code."""
    reg = w.take(value)
    before = w.b.load(at, PTR)
    w.b.store(reg, at)
    w.drop(before)


def append(w, node, base):
    item = w.value_of(node.args[0], base.kind.item)
    w.check_fresh(item, node.args[0])
    _require_zero(w, w.python("PyList_Append", [base.reg, item.reg], I32))
    return Value(None, None)


def _require_zero(w, status):
    w.require(w.b.cmp("eq", status, w.b.const(0, I32)), w.fails)


# --- making -----------------------------------------------------------------------------------------------------------
def make_tuple(w, node):
    items = [w.value_of(item, Object) for item in node.elts]
    load = w.b.load(w.unit.slot("function", "PyTuple_Pack"), PTR)
    operands = ", ".join(["i64 " + str(len(items)), *(str(item.reg) for item in items)])
    made = w.b.emit(PTR, f"call ptr (i64, ...) {load.name}({operands})")
    w.require(w.b.cmp("ne", made, NULL), w.fails)
    return w.new_reference(Tuple, made)


def make_list(w, node):
    made = w.python("PyList_New", [w.b.i64(0)])
    w.require(w.b.cmp("ne", made, NULL), w.fails)
    made = w.new_reference(List, made)
    for item in node.elts:
        reg = w.value_of(item, Object).reg
        _require_zero(w, w.python("PyList_Append", [made.reg, reg], I32))
    return made


def methods_of(kind):
    """{name: what a call of that method does}."""
    if not isinstance(kind, ObjectKind):
        return {}
    return {list: {"append": append}, dict: {"get": get}}.get(kind.cls, {})


HANDLERS = {ast.Tuple: make_tuple, ast.List: make_list}
