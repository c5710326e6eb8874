"""What statements of the subset mean: assignments, branches, loops, and ways out."""

import ast
from dataclasses import replace

from ..emit.builder import Reg
from .calls import give_inlined
from .expressions import item_at, static, test
from .kinds import (
    I64,
    Borrowed,
    Inline,
    Number,
    ObjectKind,
    Pointer,
    Rows,
    common_kind,
    is_object,
    kind_of,
    places_of,
)
from .objects import item_of_list, item_of_tuple, length, set_item, set_object_field
from .values import NULL, Value
from .writer import memory_of


def write_block(w, body):
    for statement in body:
        if not w.reachable:
            raise w.error(statement, "nothing leads here")
        if _is_docstring(statement):
            continue
        source = w.frame.source
        w.b.lines.append(f"  ; {source.where(statement)}: {source.lines[statement.lineno - 1].strip()}")
        w.visit(statement)
        w.drop_temporaries()


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def expression(w, node):
    w.visit(node.value)


def nothing(w, node):
    pass


# --- assignments ------------------------------------------------------------------------------------------------------
def assign(w, node):
    if len(node.targets) > 1:
        raise w.error(node, "assigns to one name at a time")
    assign_to(w, node, node.targets[0], node.value)


def assign_with_kind(w, node):
    if node.value is None or not isinstance(node.target, ast.Name):
        raise w.error(node, "a local gets its value with its type")
    set_local(w, node.target.id, w.value_of(node.value, kind_of(static(w, node.annotation))))


def assign_to(w, node, target, value_node):
    if isinstance(target, ast.Name):
        set_local(w, target.id, w.value_of(value_node))
    elif isinstance(target, ast.Attribute):
        set_field(w, node, target, value_node)
    elif isinstance(target, ast.Subscript):
        _set_item(w, node, target, value_node)
    else:
        raise w.error(node, "assigns to a name, a field or an item")


def set_local(w, name, value):
    """A local owns what was made for it, and what another local owns, as that may let go of it first."""
    if is_object(value.kind) and (w.is_new(value) or value.owner is not None):
        value = replace(value, owner=w.take(value), read_at=None)
    before = w.frame.locals.get(name)
    w.frame.locals = {**w.frame.locals, name: value}
    if before is not None:
        w.drop(before.owner)


def set_field(w, node, target, value_node):
    base = w.value_of(target.value)
    if isinstance(base.kind, ObjectKind) and target.attr in base.kind.fields:
        return set_object_field(w, node, base, target.attr, value_node)
    place = places_of(base.kind.cls).get(target.attr) if isinstance(base.kind, Pointer) else None
    if place is None or isinstance(place.kind, (Rows, Inline)):
        raise w.error(node, f"{base.kind} has no field {target.attr} that can be assigned")
    return _store(w, node, w.b.offset(base.reg, place.offset, 1), place.kind, value_node)


def _store(w, node, at, kind, value_node):
    value = w.value_of(value_node, kind)
    if is_object(kind) and (w.is_new(value) or value.owner is not None):
        raise w.error(node, "words hold no references: store it in an object, or what an object holds")
    w.b.store(w.to_memory(value.reg, kind), at)


def _set_item(w, node, target, value_node):
    base = w.value_of(target.value)
    if isinstance(base.kind, ObjectKind) and base.kind.cls in (list, dict):
        return set_item(w, target, base, value_node)
    if not isinstance(base.kind, (Rows, Inline)) or isinstance(kind_of(base.kind.item), Pointer):
        raise w.error(node, f"{base.kind} has no items that can be assigned")
    kind, index = kind_of(base.kind.item), w.value_of(target.slice, I64)
    at = w.b.offset(base.reg, index.reg, memory_of(kind).element_bytes)
    return _store(w, node, at, kind, value_node)


def assign_changed(w, node):
    """x += y."""
    if any(isinstance(part, ast.Call) for part in ast.walk(node.target)):
        raise w.error(node, "the place is computed twice, so it must call nothing")
    read = ast.copy_location(_as_read(node.target), node)
    changed = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
    assign_to(w, node, node.target, changed)


def _as_read(target):
    read = {ast.Name: lambda t: ast.Name(t.id, ast.Load()), ast.Attribute: lambda t: ast.Attribute(t.value, t.attr)}
    return read.get(type(target), lambda t: ast.Subscript(t.value, t.slice))(target)


# --- branches ---------------------------------------------------------------------------------------------------------
def branch(w, node):
    yes, no, done = w.joined("then"), w.joined("otherwise"), w.joined("done")
    test(w, node.test, yes, no)
    for join, body in ((yes, node.body), (no, node.orelse)):
        join.start()
        if w.reachable:
            write_block(w, body)
            done.arrive()
    done.start()


# --- loops ------------------------------------------------------------------------------------------------------------
class Loop:
    """A loop while it is written. Names that its body assigns are phis at its head, with the kind and the ownership
    that an earlier attempt found."""

    def __init__(self, w, node, counted=False):
        if node.orelse:
            raise w.error(node, "loops have no else")
        self.w, self.node, self.key = w, node, (node.lineno, node.col_offset)
        self.before, self.done, self.following = w.b.block, w.joined("done"), w.joined("following")
        self.head = w.b.label("head")
        assigned = w.unit.assigned_names(node)
        self._let_go(assigned)
        w.b.branch(self.head)
        w.b.start(self.head)
        self.at, self.entry, self.phis = len(w.b.lines), w.frame.locals, {}
        self.index = Reg(w.b.fresh("i"), I64.ir) if counted else None
        w.frame.locals = {name: self._at_head(name, v, name in assigned) for name, v in self.entry.items()}
        w.events += w.assume((*self.key, "runs code"), 0)
        self.events = w.events

    def _let_go(self, assigned):
        """Of references that only some ways to the loop have, whose names it assigns again."""
        w = self.w
        unset = [name for name, v in w.frame.locals.items() if v.reg is None and name in assigned]
        for name in unset:
            w.drop(w.frame.locals[name].owner)
        w.frame.locals = {name: v for name, v in w.frame.locals.items() if name not in unset}

    def _at_head(self, name, value, is_assigned):
        if not is_assigned or value.reg is None:
            return value
        w = self.w
        kind, owned = w.assume((*self.key, name), (value.kind, value.owner is not None))
        reg = Reg(w.b.fresh("carried"), value.reg.type)
        count = None if value.count is None else Reg(w.b.fresh("count"), I64.ir)
        owner = Reg(w.b.fresh("owner"), value.reg.type) if owned else None
        self.phis[name] = Value(kind, reg, count, owner, value.read_at)
        return self.phis[name]

    def write_body(self):
        w = self.w
        w.frame.loops.append(self)
        write_block(w, self.node.body)
        self.following.arrive()
        w.frame.loops.pop()
        self.following.start()
        if w.reachable:
            self._close()
        else:
            self._insert(None, {})
        self.done.start()

    def _close(self):
        """Back to the head: what the body made for itself is let go of."""
        w = self.w
        after = w.frame.locals
        for name, value in after.items():
            if name not in self.entry:
                w.drop(value.owner)
        if w.events > self.events and not w.assume((*self.key, "runs code"), 0):
            w.retry((*self.key, "runs code"), 1)
        for name, phi in self.phis.items():
            self._check(name, phi, after.get(name))
        next_index = w.b.add(self.index, w.b.i64(1)) if self.index else None
        block = w.b.block
        w.b.branch(self.head)
        self._insert(block, after, next_index)
        w.reachable = False

    def _check(self, name, phi, value):
        if value is None or value.reg is None:
            raise self.w.error(self.node, f"{name} has another type after the loop's body than before")
        kind, owned = common_kind([phi.kind, value.kind]), phi.owner is not None or value.owner is not None
        if kind is None:
            raise self.w.error(self.node, f"{name} is {phi.kind} before the loop's body and {value.kind} after")
        if (kind, owned) != (phi.kind, phi.owner is not None):
            self.w.retry((*self.key, name), (kind, owned))

    def _insert(self, block, after, next_index=None):
        """The phis of the head, now that it is known what comes back."""
        lines = []
        if self.index:
            lines.append(self._phi(self.index, Reg("0", I64.ir), next_index, block))
        for name, phi in self.phis.items():
            old, new = self.entry[name], after.get(name)
            for part in ("reg", "count", "owner"):
                if getattr(phi, part) is not None:
                    come_back = None if new is None else getattr(new, part) or NULL
                    lines.append(self._phi(getattr(phi, part), getattr(old, part) or NULL, come_back, block))
        self.w.b.lines[self.at : self.at] = lines

    def _phi(self, reg, before, following, block):
        back = "" if block is None else f", [ {following.name}, %{block} ]"
        return f"  {reg.name} = phi {reg.type} [ {before.name}, %{self.before} ]{back}"


def loop_while(w, node):
    loop = Loop(w, node)
    body = w.joined("body")
    test(w, node.test, body, loop.done)
    body.start()
    loop.write_body()


def loop_for(w, node):
    """for i in range(n), for i in range(start, stop), for x in rows, a tuple or a list."""
    if not isinstance(node.target, ast.Name):
        raise w.error(node, "counts with one name")
    is_range = isinstance(node.iter, ast.Call) and static(w, node.iter.func) is range
    if is_range:
        bounds = [w.value_of(argument, I64).reg for argument in node.iter.args]
        if len(bounds) > 2:
            raise w.error(node, "range has no step in the subset")
        start, stop = bounds if len(bounds) == 2 else (w.b.i64(0), *bounds)
        n, items = stop if start.name == "0" else w.b.sub(stop, start), None
    else:
        items = w.value_of(node.iter)
        n = items.count if isinstance(items.kind, Rows) else None
    made, w.frame.temporaries = w.frame.temporaries, []
    if made:
        raise w.error(node, "assign what is iterated over to a name first")
    loop = Loop(w, node, counted=True)
    body = w.joined("body")
    size = n if n is not None else _size(w, node, items)
    w.branch(w.b.cmp("lt", loop.index, size), body, loop.done)
    body.start()
    set_local(w, node.target.id, _counted(w, start, loop) if is_range else _item(w, items, Value(I64, loop.index)))
    loop.write_body()


def _counted(w, start, loop):
    return Value(I64, loop.index if start.name == "0" else w.b.add(start, loop.index))


def _size(w, node, items):
    if isinstance(items.kind, Inline):
        return w.b.i64(items.kind.count)
    found = length(w, items) if getattr(items.kind, "cls", None) in (tuple, list) else None
    if found is None:
        raise w.error(node, f"{items.kind} cannot be iterated over")
    return found.reg


def _item(w, items, index):
    if isinstance(items.kind, (Rows, Inline)):
        return item_at(w, items.reg, index, items.kind.item)
    return (item_of_tuple if items.kind.cls is tuple else item_of_list)(w, items, index)


def leave_loop(w, node):
    loop = w.frame.loops[-1]
    (loop.done if isinstance(node, ast.Break) else loop.following).arrive()


# --- returning --------------------------------------------------------------------------------------------------------
def give(w, node):
    result = w.frame.result
    if (result is None) != (node.value is None):
        raise w.error(node, "returns a value if the function has a result, and only then")
    value = None if result is None else _given(w, node, result)
    inlined = len(w.frames) > 1
    _drop_frame(w)
    if inlined:
        give_inlined(w, value)
    else:
        write_return(w, value)


def _given(w, node, result):
    """The value that is returned; of an object, a reference of the caller's own."""
    if isinstance(result, Borrowed):
        value = w.value_of(node.value, kind_of(result.item))
        if w.is_new(value) or value.owner is not None:
            raise w.error(node, "the reference would be let go of before it is returned; declare no Borrowed result")
        return value
    value = w.value_of(node.value, result)
    if not is_object(value.kind):
        return value
    return Value(value.kind, value.reg, owner=_hand_over(w, value))


def _hand_over(w, value):
    """A reference to a value: that of a local that has one, as the local ends here."""
    for name, local in w.frame.locals.items():
        if value.owner is not None and local.owner == value.owner and local.reg == value.reg == value.owner:
            w.frame.locals = {**w.frame.locals, name: replace(local, owner=None)}
            return value.reg
    return w.take(value)


def _drop_frame(w):
    for value in w.frame.locals.values():
        w.drop(value.owner)
    w.drop_temporaries()


def write_return(w, value):
    """The way of the function itself ends here."""
    if value is None:
        w.b.lines.append("  ret i1 true" if w.signature.departs else "  ret void")
    else:
        result = w.signature.result
        kind = kind_of(result.item) if isinstance(result, Borrowed) else result
        reg = w.to_memory(value.reg, kind) if isinstance(kind, Number) else value.reg
        w.b.lines.append(f"  ret {reg}")
    w.reachable = False


def write_body(w, tree):
    """All statements of a function, which may end without `return` if it has no result."""
    write_block(w, tree.body)
    if w.reachable and w.frame.result is not None:
        raise w.error(tree, "a way through the function ends without a value")
    if w.reachable:
        give(w, ast.copy_location(ast.Return(None), tree))


HANDLERS = {
    ast.Expr: expression,
    ast.Pass: nothing,
    ast.Assign: assign,
    ast.AnnAssign: assign_with_kind,
    ast.AugAssign: assign_changed,
    ast.If: branch,
    ast.While: loop_while,
    ast.For: loop_for,
    ast.Break: leave_loop,
    ast.Continue: leave_loop,
    ast.Return: give,
}
