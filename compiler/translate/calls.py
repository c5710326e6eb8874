"""What calls mean: of native functions, of C functions, of methods, of the vocabulary."""

import ast
from dataclasses import replace

from ..emit.builder import I64 as IR_I64
from ..emit.builder import PTR
from . import language
from .expressions import UNKNOWN, item_at, static, test
from .kinds import (
    F64,
    I64,
    Address,
    Atomic,
    Bool,
    Borrowed,
    Function,
    Inline,
    Number,
    Object,
    Pointer,
    Rows,
    Steals,
    is_object,
    kind_of,
    places_of,
)
from .objects import class_of, length, methods_of
from .values import NULL, Value
from .writer import Frame, in_register, memory_of

NOTHING = Value(None, None)
_RETURNED = "return"  # the name, among locals, of what an inlined function returns


def call(w, node):
    meant = static(w, node.func)
    if node.keywords:
        raise w.error(node, "arguments are given by position")
    if meant is not UNKNOWN:
        return _call_global(w, node, meant)
    if not isinstance(node.func, ast.Attribute):
        raise w.error(node, "unknown function")
    return _call_method(w, node)


def _call_global(w, node, meant):
    if hasattr(meant, "declaration"):
        return _call_native(w, node, meant)
    if isinstance(meant, language.External):
        target = w.b.load(w.unit.slot("function", meant.name), PTR)
        return call_c(w, node, target, meant, meant.fails, meant.quiet)
    if isinstance(meant, language.Intrinsic):
        return _call_intrinsic(w, node, meant)
    handler = _VOCABULARY.get(meant) if callable(meant) else None
    if handler is None:
        raise w.error(node, "neither a native function, nor one of C, nor of the vocabulary")
    return handler(w, node)


def _call_method(w, node):
    """A method of a value, or the C function whose address a field holds."""
    base, name = w.value_of(node.func.value), node.func.attr
    methods = _ATOMIC if isinstance(base.kind, Atomic) else methods_of(base.kind)
    if name in methods:
        return methods[name](w, node, base)
    place = places_of(base.kind.cls).get(name) if isinstance(base.kind, Pointer) else None
    if place is None or not isinstance(place.kind, Function):
        raise w.error(node, f"{base.kind} has no method {name}")
    return call_c(w, node, w.read(place.kind, base.reg, place.offset).reg, place.kind)


# --- C functions ------------------------------------------------------------------------------------------------------
def call_c(w, node, target, function, fails=None, quiet=False):
    """Call the address `target` of a C function that is declared like this."""
    operands = _operands(w, node, function.parameters, function.variadic)
    result = None if function.result is None else kind_of(function.result)
    inner = kind_of(result.item) if isinstance(result, Borrowed) else result
    ir = "void" if result is None else memory_of(inner)
    declared = ", ".join(str(memory_of(_plain(p))) for p in function.parameters[: function.variadic])
    kind = f"{ir} ({declared}, ...)" if function.variadic is not None else str(ir)
    text = f"call {kind} {target.name}({', '.join(map(str, operands))})"
    if result is None:
        w.b.lines.append(f"  {text}")
    reg = None if result is None else w.b.emit(ir, text)
    if not quiet:
        w.events += 1
    return _result(w, result, inner, reg, fails)


def _result(w, result, inner, reg, fails):
    if fails == "null":
        w.require(w.b.cmp("ne", reg, NULL), w.fails)
    elif fails == "nonzero":
        w.require(w.b.cmp("eq", reg, w.b.const(0, reg.type)), w.fails)
    if result is None:
        return NOTHING
    if isinstance(result, Borrowed):
        return Value(inner, reg, read_at=w.events)
    if is_object(inner):
        return w.new_reference(inner, reg)
    return Value(in_register(inner), w.from_memory(reg, inner))


def _plain(parameter):
    kind = kind_of(parameter)
    return kind_of(kind.item) if isinstance(kind, Steals) else kind


def _operands(w, node, parameters, variadic=None):
    if len(node.args) < len(parameters) or (len(node.args) > len(parameters) and variadic is None):
        raise w.error(node, f"takes {len(parameters)} arguments, {len(node.args)} are given")
    kinds = [*map(kind_of, parameters), *[None] * (len(node.args) - len(parameters))]
    values = [_argument(w, argument, kind) for argument, kind in zip(node.args, kinds)]
    for value, argument in zip(values, node.args):
        w.check_fresh(value, argument)
    return [_operand(w, value, kind) for value, kind in zip(values, kinds)]


def _argument(w, node, kind):
    if kind is Address or kind is None:
        value = w.value_of(node)
        if kind is None or is_object(value.kind):
            return value
        return w.as_kind(value, Address, node)
    return w.value_of(node, kind_of(kind.item) if isinstance(kind, Steals) else kind)


def _operand(w, value, kind):
    if isinstance(kind, Steals):
        return w.take(value)
    return w.to_memory(value.reg, kind) if isinstance(kind, Number) else value.reg


def _call_intrinsic(w, node, meant):
    operands = _operands(w, node, meant.parameters)
    result = "void" if meant.result is None else str(meant.result.ir)
    w.unit.ir.declare(meant.name, result, [memory_of(kind_of(p)) for p in meant.parameters])
    reg = w.b.call("void" if meant.result is None else meant.result.ir, meant.name, operands)
    return NOTHING if meant.result is None else Value(meant.result, reg)


# --- native functions -------------------------------------------------------------------------------------------------
def _call_native(w, node, meant):
    if meant.declaration.form is not None:
        raise w.error(node, "a method or slot is called by Python; call the function it is written with")
    if meant.declaration.inline:
        return _inline(w, node, meant)
    signature = w.unit.signature(meant)
    kinds = [kind for _, kind in signature.parameters]
    if any(isinstance(kind, Rows) for kind in kinds):
        raise w.error(node, "rows are given to inlined functions only")
    operands, result = _operands(w, node, kinds), signature.result
    inner = kind_of(result.item) if isinstance(result, Borrowed) else result
    ir = ("i1" if signature.departs else "void") if result is None else memory_of(inner)
    reg = w.b.call(Bool.ir if ir == "i1" else ir, signature.name, operands)
    if signature.runs_code:
        w.events += 1
    if signature.departs:
        w.require(reg if result is None else w.b.cmp("ne", reg, NULL), w.departs)
    return _result(w, result, inner, reg, None)


def _inline(w, node, meant):
    function = meant.declaration.function
    if any(frame.source.function is function for frame in w.frames):
        raise w.error(node, "an inlined function calls itself")
    source = w.unit.source(function)
    kinds, result = w.unit.kinds(source)
    if len(kinds) != len(node.args):
        raise w.error(node, f"takes {len(kinds)} arguments, {len(node.args)} are given")
    values = [w.value_of(argument, kind).borrowed() for argument, kind in zip(node.args, kinds)]
    frame = Frame(source, result, None, (*w.frame.path, (node.lineno, node.col_offset)))
    frame.locals = dict(zip(function.__code__.co_varnames, values))
    w.frames.append(frame)
    frame.returns = w.joined("returned")
    w.write_body(source)
    frame.returns.start()
    w.frames.pop()
    value = frame.locals.get(_RETURNED)
    if value is None or value.reg is None:
        return NOTHING
    if value.owner is not None:
        w.frame.temporaries.append(value.owner)
    return value.borrowed()


def give_inlined(w, value):
    """The way of an inlined function ends here, with a value or without."""
    w.frame.locals = {} if value is None else {_RETURNED: value}
    w.frame.returns.arrive()


# --- atomics ----------------------------------------------------------------------------------------------------------
def _order(w, node):
    order = static(w, node)
    if order not in (language.RELAXED, language.ACQUIRE, language.RELEASE, language.ACQ_REL, language.SEQ_CST):
        raise w.error(node, "not a memory order")
    return order


def _atomic_load(w, node, base):
    kind, order = kind_of(base.kind.item), _order(w, node.args[0])
    ir = memory_of(kind)
    reg = w.b.emit(ir, f"load atomic {ir}, {base.reg} {order}, align {ir.element_bytes}")
    return Value(in_register(kind), w.from_memory(reg, kind))


def _atomic_store(w, node, base):
    kind, order = kind_of(base.kind.item), _order(w, node.args[1])
    value = w.to_memory(w.value_of(node.args[0], kind).reg, kind)
    w.b.lines.append(f"  store atomic {value}, {base.reg} {order}, align {value.type.element_bytes}")
    return NOTHING


def _atomic_add(w, node, base):
    kind, order = kind_of(base.kind.item), _order(w, node.args[1])
    value = w.to_memory(w.value_of(node.args[0], kind).reg, kind)
    reg = w.b.emit(value.type, f"atomicrmw add {base.reg}, {value} {order}")
    return Value(in_register(kind), w.from_memory(reg, kind))


def _atomic_swap_if(w, node, base):
    kind, order = kind_of(base.kind.item), _order(w, node.args[2])
    expected, value = [w.to_memory(w.value_of(x, kind).reg, kind) for x in node.args[:2]]
    otherwise = order if order == language.SEQ_CST else language.RELAXED
    pair = w.b.fresh("pair")
    w.b.lines.append(f"  {pair} = cmpxchg {base.reg}, {expected}, {value} {order} {otherwise}")
    return Value(Bool, w.b.emit(Bool.ir, f"extractvalue {{ {value.type}, i1 }} {pair}, 1"))


_ATOMIC = {"load": _atomic_load, "store": _atomic_store, "add": _atomic_add, "swap_if": _atomic_swap_if}


# --- the vocabulary ---------------------------------------------------------------------------------------------------
def _require(w, node):
    following = w.joined("following")
    test(w, node.args[0], following, w.departs)
    following.start()
    return NOTHING


def _len(w, node):
    value = w.value_of(node.args[0])
    if isinstance(value.kind, Rows):
        return Value(I64, value.count)
    if isinstance(value.kind, Inline):
        return Value(I64, w.b.i64(value.kind.count))
    found = length(w, value)
    if found is None:
        raise w.error(node, f"{value.kind} has no length")
    return found


def _type(w, node):
    return class_of(w, w.value_of(node.args[0], Object))


def _id(w, node):
    return Value(I64, w.b.emit(IR_I64, f"ptrtoint {w.value_of(node.args[0], Object).reg} to i64"))


def _least(name):
    def write(w, node):
        first, second = (w.value_of(argument, I64) for argument in node.args)
        return Value(I64, w.b.intrinsic(name, first.reg, second.reg))

    return write


def _int(w, node):
    value = w.value_of(node.args[0])
    if value.kind not in (I64, Bool, F64):
        raise w.error(node, f"{value.kind} is no number")
    return Value(I64, w.b.convert(value.reg, "i64"))


def _float(w, node):
    value = w.value_of(node.args[0])
    if value.kind not in (I64, F64):
        raise w.error(node, f"{value.kind} is no I64 or F64")
    return Value(F64, w.b.convert(value.reg, "f64"))


def _quotient(w, node):
    first, second = (w.value_of(argument, I64) for argument in node.args)
    return Value(I64, w.b.div(first.reg, second.reg))


def _keep(w, node):
    value = w.value_of(node.args[0])
    if not is_object(value.kind):
        raise w.error(node, f"{value.kind} is no object")
    return w.new_reference(value.kind, w.take(value))


def _cast(w, node):
    kind, value = kind_of(static(w, node.args[0])), w.value_of(node.args[1])
    if memory_of(kind) != memory_of(value.kind):
        raise w.error(node, f"{value.kind} cannot be {kind}")
    return replace(value, kind=kind)


def _load_at(w, node):
    kind = kind_of(static(w, node.args[0]))
    address, index = w.value_of(node.args[1], Address), w.value_of(node.args[2], I64)
    return item_at(w, address.reg, index, kind)


def _local_array(w, node):
    item, count = static(w, node.args[0]), static_number(w, node.args[1])
    reg = w.b.alloca(item.memory, count)
    w.b.lines.append(f"  store [{count} x {item.memory}] zeroinitializer, {reg}")
    return Value(Inline(item, count), reg)


def static_number(w, node):
    value = node.value if isinstance(node, ast.Constant) else static(w, node)
    if not isinstance(value, int):
        raise w.error(node, "must be a number that is known when this is translated")
    return value


def _address_of(w, node):
    """Of a number in a structure, where it lies; what is an address already stays it."""
    place = node.args[0]
    base = w.value_of(place.value) if isinstance(place, ast.Attribute) and static(w, place) is UNKNOWN else None
    if base is not None and isinstance(base.kind, Pointer) and place.attr in places_of(base.kind.cls):
        return Value(Address, w.b.offset(base.reg, places_of(base.kind.cls)[place.attr].offset, 1))
    return w.value_of(place, Address)


_VOCABULARY = {
    language.require: _require,
    language.keep: _keep,
    language.cast: _cast,
    language.quotient: _quotient,
    language.load_at: _load_at,
    language.local_array: _local_array,
    language.address_of: _address_of,
    len: _len,
    type: _type,
    id: _id,
    min: _least("smin"),
    max: _least("smax"),
    int: _int,
    float: _float,
}
HANDLERS = {ast.Call: call}
