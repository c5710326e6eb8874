"""What expressions of the subset mean: names, fields, items, arithmetic, comparisons, conditions."""

import ast
import builtins
import types
from dataclasses import replace

from ..emit.builder import PTR, Reg
from .kinds import (
    F64,
    I64,
    Address,
    Bool,
    Dict,
    Inline,
    List,
    Maybe,
    Number,
    Object,
    ObjectKind,
    Pointer,
    Rows,
    Struct,
    Tuple,
    common_kind,
    is_object,
    kind_of,
    places_of,
    stride_of,
)
from .objects import item_of_list, item_of_tuple, object_field
from .values import Value

UNKNOWN = object()


def static(w, node):
    """What a name of the file means, or a module's attribute; UNKNOWN if the text is a value of the function's own."""
    if isinstance(node, ast.Name) and node.id not in w.frame.locals:
        names = w.frame.source.names
        return names[node.id] if node.id in names else getattr(builtins, node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        owner = static(w, node.value)
        if isinstance(owner, types.ModuleType):
            return getattr(owner, node.attr, UNKNOWN)
    return UNKNOWN


# --- names and literals -----------------------------------------------------------------------------------------------
def name(w, node):
    local = w.frame.locals.get(node.id)
    if local is not None and local.reg is not None:
        w.check_fresh(local, node)
        return local
    if node.id in w.unit.assigned_names(w.frame.source.tree):
        raise w.error(node, "unknown, or not set on all ways here")
    meant = static(w, node)
    if meant is UNKNOWN:
        raise w.error(node, "unknown, or not set on all ways here")
    return global_value(w, node, meant)


def global_value(w, node, meant):
    if isinstance(meant, (bool, int, float, str)) or meant is None:
        return Value(None, None, literal=meant)
    if isinstance(meant, Struct):
        return Value(Pointer(type(meant)), w.unit.struct(_path(w, node), meant))
    if hasattr(meant, "declaration"):
        return Value(Address, Reg(f"@{w.unit.signature(meant).name}", PTR))
    return w.constant("object", _path(w, node))


def _path(w, node):
    """Where Python finds what a name means: "module:name"."""
    if isinstance(node, ast.Attribute):
        return f"{static(w, node.value).__name__}:{node.attr}"
    function = w.frame.source.function
    is_global = node.id in function.__globals__
    if not is_global and node.id not in vars(builtins):
        raise w.error(node, "an object that native code uses must be a global of its module")
    return f"{function.__module__ if is_global else 'builtins'}:{node.id}"


def constant(w, node):
    if not isinstance(node.value, (bool, int, float, str, type(None))):
        raise w.error(node, "not a literal of the subset")
    return Value(None, None, literal=node.value)


# --- fields and items -------------------------------------------------------------------------------------------------
def attribute(w, node):
    meant = static(w, node)
    if meant is not UNKNOWN:
        return global_value(w, node, meant)
    base = w.value_of(node.value)
    if isinstance(base.kind, Pointer):
        place = places_of(base.kind.cls).get(node.attr)
        if place is None:
            raise w.error(node, f"{base.kind} has no field {node.attr}")
        return w.read(place.kind, base.reg, place.offset)
    if isinstance(base.kind, ObjectKind) and node.attr in base.kind.fields:
        return object_field(w, base, node.attr)
    raise w.error(node, f"{base.kind} has no field {node.attr}")


def subscript(w, node):
    base = w.value_of(node.value)
    index = w.value_of(node.slice, I64)
    if isinstance(base.kind, Rows):
        return item_at(w, base.reg, index, base.kind.item)
    if isinstance(base.kind, Inline):
        return item_at(w, base.reg, index, base.kind.item)
    if isinstance(base.kind, ObjectKind) and base.kind.cls is tuple:
        return item_of_tuple(w, base, index)
    if isinstance(base.kind, ObjectKind) and base.kind.cls is list:
        return item_of_list(w, base, index)
    raise w.error(node, f"{base.kind} has no items")


def item_at(w, address, index, item):
    """The item of a table, or the address of one that is a structure or atomic."""
    at, kind = w.b.offset(address, index.reg, stride_of(item)), kind_of(item)
    return Value(kind, at) if isinstance(kind, Pointer) else w.read_at(kind, at)


# --- arithmetic -------------------------------------------------------------------------------------------------------
_NUMBERS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_INTEGERS = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "ashr"}


def binary(w, node):
    kind, left, right = operands(w, node, node.left, node.right)
    if kind == F64 and isinstance(node.op, ast.Div):
        return Value(F64, w.b.div(left.reg, right.reg))
    names = _NUMBERS if kind == F64 else {**_NUMBERS, **_INTEGERS}
    if kind not in (I64, F64) or type(node.op) not in names:
        raise w.error(node, f"not an operator of the subset for {kind}")
    return Value(kind, getattr(w.b, names[type(node.op)])(left.reg, right.reg))


def operands(w, node, left_node, right_node):
    """(their kind, left, right): a literal takes the kind of the other side."""
    left, right = w.visit(left_node), w.visit(right_node)
    if left.kind is None and right.kind is None:
        left = w.settled(left)
    if left.kind is None:
        left = w.as_kind(left, right.kind if not is_object(right.kind) else Object, left_node)
    if right.kind is None:
        right = w.as_kind(right, left.kind if not is_object(left.kind) else Object, right_node)
    kind = common_kind([left.kind, right.kind])
    if kind is None:
        raise w.error(node, f"{left.kind} and {right.kind} do not go together; convert one")
    return kind, left, right


def unary(w, node):
    if isinstance(node.op, ast.Not):
        return _as_bool(w, node)
    value = w.value_of(node.operand)
    if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return Value(None, None, literal=-node.operand.value)
    if isinstance(node.op, ast.USub) and value.kind in (I64, F64):
        return Value(value.kind, w.b.neg(value.reg))
    if isinstance(node.op, ast.Invert) and value.kind == I64:
        return Value(I64, w.b.not_(value.reg))
    raise w.error(node, f"not an operator of the subset for {value.kind}")


# --- comparisons ------------------------------------------------------------------------------------------------------
_ORDER = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_EQUAL = {ast.Eq: "eq", ast.NotEq: "ne"}
_SAME = {ast.Is: "eq", ast.IsNot: "ne"}


def compare(w, node):
    if len(node.ops) > 1:
        return _as_bool(w, node)
    return compare_two(w, node, node.ops[0], node.left, node.comparators[0])


def compare_two(w, node, op, left_node, right_node):
    kind, left, right = operands(w, node, left_node, right_node)
    if type(op) in _SAME and not isinstance(kind, Number):
        if isinstance(right_node, ast.Constant) and right_node.value is None and isinstance(left.kind, Maybe):
            right = w.as_kind(Value(None, None, literal=None), left.kind, right_node)
        return Value(Bool, w.b.cmp(_SAME[type(op)], left.reg, right.reg))
    numbers = kind in (I64, F64)
    if (numbers and type(op) in {**_ORDER, **_EQUAL}) or (kind in (Bool, Address) and type(op) in _EQUAL):
        return Value(Bool, w.b.cmp({**_ORDER, **_EQUAL}[type(op)], left.reg, right.reg))
    remedy = "; objects are compared by `is`" if is_object(kind) else ""
    raise w.error(node, f"not a comparison of the subset for {kind}{remedy}")


# --- conditions -------------------------------------------------------------------------------------------------------
def test(w, node, yes, no):
    """Go to `yes` if a condition holds, else to `no`; names are narrowed there to what is known then."""
    if isinstance(node, ast.BoolOp):
        return _test_several(w, node, yes, no)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return test(w, node.operand, no, yes)
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return _test_chain(w, node, yes, no)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return (yes if node.value else no).arrive()
    since = len(w.frame.temporaries)
    condition = w.value_of(node)
    if condition.kind == I64:
        condition = Value(Bool, w.b.convert(condition.reg, "i1"))
    if condition.kind != Bool:
        raise w.error(node, f"a condition must be Bool or I64, not {condition.kind}; compare with `is`")
    w.drop_temporaries(since)
    w.branch(condition.reg, yes, no, narrowed(w, node))
    return None


def _test_several(w, node, yes, no):
    is_and = isinstance(node.op, ast.And)
    for operand in node.values[:-1]:
        following = w.joined("following")
        test(w, operand, *((following, no) if is_and else (yes, following)))
        following.start()
    test(w, node.values[-1], yes, no)


def _test_chain(w, node, yes, no):
    sides = [node.left, *node.comparators]
    if not all(isinstance(side, (ast.Name, ast.Constant, ast.Attribute)) for side in sides[1:-1]):
        raise w.error(node, "the middle of a chain of comparisons must be a name")
    for op, left, right in zip(node.ops[:-1], sides, sides[1:]):
        following = w.joined("following")
        w.branch(compare_two(w, node, op, left, right).reg, following, no)
        following.start()
    w.branch(compare_two(w, node, node.ops[-1], sides[-2], sides[-1]).reg, yes, no)


_CHOSEN = "?"  # the name, among locals, of the value of a conditional expression


def _as_bool(w, node):
    """A condition's value."""
    yes, no, done = w.joined("yes"), w.joined("no"), w.joined("done")
    test(w, node, yes, no)
    for join, holds in ((yes, True), (no, False)):
        join.start()
        w.frame.locals = {**w.frame.locals, _CHOSEN: Value(Bool, w.b.const(holds, Bool.ir))}
        done.arrive()
    done.start()
    return w.frame.locals.pop(_CHOSEN)


def conditional(w, node):
    """x if condition else y. A reference that one of them makes is let go of after the statement."""
    yes, no, done = w.joined("yes"), w.joined("no"), w.joined("done")
    test(w, node.test, yes, no)
    for join, part in ((yes, node.body), (no, node.orelse)):
        join.start()
        since = len(w.frame.temporaries)
        value = w.value_of(part)
        owner = w.take(value) if w.is_new(value) else None
        w.drop_temporaries(since)
        w.frame.locals = {**w.frame.locals, _CHOSEN: Value(value.kind, value.reg, value.count, owner, value.read_at)}
        done.arrive()
    done.start()
    chosen = w.frame.locals.pop(_CHOSEN, None)
    if chosen is None or chosen.reg is None:
        raise w.error(node, "both values must be of one kind")
    if chosen.owner is not None:
        w.frame.temporaries.append(chosen.owner)
    if chosen.owner not in (None, chosen.reg):
        return w.new_reference(chosen.kind, w.take(chosen.borrowed()))
    return chosen.borrowed()


def boolean(w, node):
    return _as_bool(w, node)


def narrowed(w, node):
    """([(name, Value)] where a condition holds, the same where it does not)."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        return (), ()
    same, different = _of_a_class(w, node), _not_missing(w, node)
    return (same, different) if isinstance(node.ops[0], ast.Is) else (different, same)


def _of_a_class(w, node):
    """`type(x) is cls`: where it holds, x is of that kind."""
    left = node.left
    is_type = isinstance(left, ast.Call) and static(w, left.func) is type and isinstance(left.args[0], ast.Name)
    local = w.frame.locals.get(left.args[0].id) if is_type else None
    kind = kind_of_class(w, static(w, node.comparators[0]))
    if local is None or kind is None or not isinstance(local.kind, ObjectKind):
        return ()
    return [(left.args[0].id, replace(local, kind=kind))]


def _not_missing(w, node):
    """`x is None` of what may be missing: where it does not hold, x is there."""
    is_none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
    local = w.frame.locals.get(node.left.id) if is_none and isinstance(node.left, ast.Name) else None
    if local is None or not isinstance(local.kind, Maybe):
        return ()
    return [(node.left.id, replace(local, kind=kind_of(local.kind.item)))]


def kind_of_class(w, cls):
    """The ObjectKind that the file has for a class, or the vocabulary for one of Python's; None if there is none."""
    named = [k for k in w.frame.source.names.values() if isinstance(k, ObjectKind)]
    return next((k for k in (*named, Tuple, List, Dict) if k.cls is cls and cls is not None), None)


HANDLERS = {
    ast.Name: name,
    ast.Constant: constant,
    ast.Attribute: attribute,
    ast.Subscript: subscript,
    ast.BinOp: binary,
    ast.UnaryOp: unary,
    ast.Compare: compare,
    ast.BoolOp: boolean,
    ast.IfExp: conditional,
}
