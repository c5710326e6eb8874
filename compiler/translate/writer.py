"""Writes one native function: its registers, who owns which reference, its ways out. What Python's text means is in
expressions.py, calls.py and statements.py, which are handed in; objects.py says how objects are used.
"""

import ast
from dataclasses import replace

from ..emit.builder import I1, PTR, Builder
from ..emit.builder import I64 as IR_I64
from .kinds import (
    F64,
    I32,
    I64,
    Address,
    Atomic,
    Bool,
    Function,
    Inline,
    Maybe,
    Number,
    Object,
    Pointer,
    Rows,
    is_kind,
    is_object,
    kind_of,
)
from .values import NULL, Exit, Join, Retry, Value


class Frame:
    """A function while its body is written: the one that is translated, or one inlined into it."""

    def __init__(self, source, result, returns, path):
        self.source, self.result, self.returns, self.path = source, result, returns, path
        self.locals, self.temporaries, self.loops = {}, [], []


class Writer:
    """events: how often Python code may have run so far. reachable: whether anything leads to where we write."""

    def __init__(self, unit, source, signature, assumed, handlers, parameters):
        self.unit, self.signature, self.assumed, self.handlers = unit, signature, assumed, handlers
        linkage = "internal" if source.function.declaration.name is None else ""
        self.b = Builder(unit.ir, signature.name, parameters, result=self._result_type(), linkage=linkage)
        self.events, self.reachable, self.cold, self.warnings = 0, True, [], {}
        self.frames = [Frame(source, signature.result, None, ())]
        self.slow, self.failed = Exit(self, self.b.label("slow")), Exit(self, self.b.label("failed"))

    def _result_type(self):
        if self.signature.result is None:
            return str(I1) if self.signature.departs else "void"
        return str(memory_of(self.signature.result))

    @property
    def frame(self):
        return self.frames[-1]

    @property
    def layout(self):
        return self.unit.layout

    def visit(self, node):
        """Write a statement or an expression; of an expression, its Value."""
        handler = self.handlers.get(type(node))
        if handler is None:
            kind = "statement" if isinstance(node, ast.stmt) else "expression"
            raise self.error(node, f"not {'a' if kind == 'statement' else 'an'} {kind} of the subset")
        return handler(self, node)

    def write_body(self, source):
        self.handlers["body"](self, source.tree)

    def error(self, node, what):
        return self.frame.source.error(node, what)

    def warn(self, node, what):
        self.warnings[f"{self.frame.source.where(node)}: {what}"] = None

    def assume(self, key, default):
        """What an earlier attempt found out about a place in the text."""
        return self.assumed.get((self.frame.path, *key), default)

    def retry(self, key, found):
        raise Retry((self.frame.path, *key), found)

    # --- ways out -------------------------------------------------------------------------------------------------
    @property
    def departs(self):
        """Where to go if something required does not hold."""
        if self.signature.form is None and not self.signature.departs:
            raise Retry("departs", True)
        return self.slow

    @property
    def fails(self):
        """Where to go with an exception set. What calls this function departs then, and Python raises it again."""
        return self.failed if self.signature.form else self.departs

    def require(self, condition, out):
        """Go out unless the i1 register holds."""
        following = self.b.label("following")
        self.b.branch_if(condition, following, out.way())
        self.b.start(following)

    def cold_way(self, label):
        """A label where what is owned now is let go of, before the other label."""
        owned = self.owned()
        if not owned:
            return label
        side, lines, block = self.b.label("drop"), self.b.lines, self.b.block
        self.b.lines = self.cold
        self.b.start(side)
        for reg in owned:
            self.python("Py_DecRef", [reg], "void")
        self.b.branch(label)
        self.b.lines, self.b.block = lines, block
        return side

    # --- references -----------------------------------------------------------------------------------------------
    def owned(self):
        """The references that are owned here, by locals and by what the statement has made so far."""
        held = [[v.owner for v in frame.locals.values()] + frame.temporaries for frame in self.frames]
        return [reg for registers in held for reg in registers if reg is not None and reg != NULL]

    def drop(self, reg):
        if reg is not None and reg != NULL:
            self.python("Py_DecRef", [reg], "void")
            self.events += 1

    def drop_all(self):
        for reg in self.owned():
            self.drop(reg)

    def drop_temporaries(self, since=0):
        """Let go of what the statement has made and nobody has taken."""
        dropped, self.frame.temporaries[since:] = self.frame.temporaries[since:], []
        if self.reachable:
            for reg in dropped:
                self.drop(reg)

    def new_reference(self, kind, reg):
        """A value that is a reference of our own, until somebody takes it."""
        self.frame.temporaries.append(reg)
        return Value(kind, reg)

    def take(self, value):
        """A reference of one's own to a value: the one that was made for it, or another."""
        if value.reg in self.frame.temporaries:
            self.frame.temporaries.remove(value.reg)
        else:
            self.python("Py_IncRef", [value.reg], "void")
        return value.reg

    def is_new(self, value):
        return value.reg in self.frame.temporaries

    def check_fresh(self, value, node):
        if value.read_at is not None and value.read_at < self.events:
            name = ast.unparse(node)
            self.warn(node, f"{name} was read from an object; code may have run since, so keep({name}) first")

    # --- the table ------------------------------------------------------------------------------------------------
    def python(self, name, operands, result=PTR):
        """Call a C function of the table."""
        return self.b.call(result, self.b.load(self.unit.slot("function", name), PTR), operands)

    def constant(self, kind, name):
        return Value(Object, self.b.load(self.unit.slot(kind, name), PTR))

    # --- memory ---------------------------------------------------------------------------------------------------
    def read(self, kind, base, offset):
        """A field as a value."""
        at = self.b.offset(base, offset, 1)
        return self.read_at(kind, at)

    def read_at(self, kind, at):
        if isinstance(kind, Rows):
            return Value(kind, self.b.load(at, PTR), self.b.load(self.b.offset(at, 8, 1), IR_I64))
        if isinstance(kind, Inline) and kind.count is None:
            return Value(kind_of(kind.item), at)
        if isinstance(kind, (Inline, Atomic)):
            return Value(kind, at)
        if isinstance(kind, Number):
            return Value(in_register(kind), self.from_memory(self.b.load(at, kind.memory), kind))
        return Value(kind, self.b.load(at, PTR))

    def from_memory(self, reg, kind):
        return self.b.convert(reg, kind.ir.element) if isinstance(kind, Number) and kind.ir != kind.memory else reg

    def to_memory(self, reg, kind):
        return self.b.convert(reg, kind.memory.element) if isinstance(kind, Number) and kind.ir != kind.memory else reg

    # --- kinds ----------------------------------------------------------------------------------------------------
    def value_of(self, node, wanted=None):
        """An expression's value, of the kind that is wanted if one is."""
        value = self.visit(node)
        return self.settled(value) if wanted is None else self.as_kind(value, wanted, node)

    def settled(self, value):
        """A literal gets the kind it has by itself."""
        if value.kind is not None:
            return value
        natural = {bool: Bool, int: I64, float: F64}.get(type(value.literal), Object)
        return self._literal(value.literal, natural)

    def as_kind(self, value, wanted, node):
        if value.kind is None:
            found = self._literal(value.literal, wanted)
            if found is None:
                raise self.error(node, f"{value.literal!r} is no {wanted}")
            return found
        if wanted == I32 and value.kind == I64:
            return value
        if not is_kind(value.kind, wanted):
            missing = isinstance(value.kind, Maybe) and is_object(wanted)
            remedy = "; it may be missing, so ask `is None` first" if missing else ""
            raise self.error(node, f"{value.kind} is no {wanted}{remedy}")
        return replace(value, kind=wanted) if is_object(wanted) and not is_object(value.kind) else value

    def _literal(self, literal, wanted):
        """The Value of a literal as a kind, None if there is none."""
        if isinstance(wanted, Number) and wanted is not Address:
            number = isinstance(literal, (bool, int)) if wanted is not F64 else isinstance(literal, (int, float))
            if not number or isinstance(literal, bool) != (wanted is Bool):
                return None
            return Value(in_register(wanted), self.b.const(literal, wanted.ir))
        if literal is None and (wanted is Address or isinstance(wanted, (Pointer, Maybe, Function))):
            return Value(wanted, NULL)
        if literal is None or isinstance(literal, bool):
            return self.constant("object", f"builtins:{literal}") if wanted is Object else None
        return self.constant("text", literal) if wanted is Object and isinstance(literal, str) else None

    # --- conditions -----------------------------------------------------------------------------------------------
    def joined(self, stem):
        return Join(self, stem)

    def branch(self, condition, yes, no, narrowed=((), ())):
        self.b.branch_if(condition, yes.way(dict(narrowed[0])), no.way(dict(narrowed[1])))
        self.reachable = False


def in_register(kind):
    return I64 if kind is I32 else kind


def memory_of(kind):
    return kind.memory if isinstance(kind, Number) else PTR
