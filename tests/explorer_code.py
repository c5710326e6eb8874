"""Native functions as steps that an explorer can take one at a time: their text becomes a list of instructions.

    Compute(target, code)              target = what a Python expression gives
    Put(place, code)                   a plain store: the place is an attribute or an item
    Call(target, function, arguments)  a native function, an atomic operation or a model of the system
    Jump(to), Branch(code, yes, no), Give(code)

Calls are the only places where other threads matter, so a thread rests before them. `live` says of each instruction
which locals may still be read: the others are no part of a state.
"""

import ast
import inspect
import textwrap
from dataclasses import dataclass, field

PURE = {"min", "max", "int", "len", "cast", "address_of", "range"}


@dataclass(eq=False)
class Instruction:
    kind: str
    target: str | None = None
    code: object = None
    name: str | None = None
    yes: int = -1
    no: int = -1
    reads: set = field(default_factory=set)
    live: frozenset = frozenset()
    text: str = ""


class Code:
    """The instructions of one function. changes: (text, other text) pairs: faults that are put in."""

    def __init__(self, function, changes=(), constant=()):
        self.function, self.constant = function, dict(constant)
        text = textwrap.dedent(inspect.getsource(function))
        for old, new in changes:
            assert text.count(old) == 1, (function.__name__, old)
            text = text.replace(old, new)
        self.tree = ast.parse(text).body[0]
        self.name, self.globals = function.__name__, function.__globals__
        self.parameters = [a.arg for a in self.tree.args.args]
        self.instructions, self.loops, self.n_names = [], [], 0
        self.block(self.tree.body)
        self.add("give", code=None)
        self._find_live()

    # --- statements -----------------------------------------------------------------------------------------------
    def add(self, kind, **values):
        instruction = Instruction(kind, **values)
        self.instructions.append(instruction)
        return instruction

    @property
    def here(self):
        return len(self.instructions)

    def block(self, body):
        for statement in body:
            getattr(self, f"_{type(statement).__name__}")(statement)

    def _Expr(self, node):
        if not isinstance(node.value, ast.Constant):
            self.expression(node.value)

    def _Pass(self, node):
        pass

    def _Assign(self, node):
        self._assign(node.targets[0], self.expression(node.value))

    def _AugAssign(self, node):
        read = ast.parse(ast.unparse(node.target), mode="eval").body
        self._assign(node.target, self.expression(ast.BinOp(read, node.op, node.value)))

    def _assign(self, target, value):
        if isinstance(target, ast.Name):
            value = ast.Constant(self.constant[target.id]) if target.id in self.constant else value
            self.add("compute", target=target.id, **self._compiled(value))
        elif isinstance(target, ast.Attribute):
            place = ast.Tuple([target.value, ast.Constant(target.attr), value], ast.Load())
            self.add("put", **self._compiled(place))
        else:
            self.add("put", **self._compiled(ast.Tuple([target.value, target.slice, value], ast.Load())))

    def _If(self, node):
        branch = self._branch(node.test)
        branch.yes = self.here
        self.block(node.body)
        end = self.add("jump")
        branch.no = self.here
        self.block(node.orelse)
        end.yes = self.here

    def _branch(self, test):
        return self.add("branch", **self._compiled(self.expression(test)))

    def _While(self, node):
        start = self.here
        branch = self._branch(node.test)
        self._loop(node.body, start, branch)

    def _loop(self, body, start, branch, last=()):
        branch.yes = self.here
        self.loops.append(([], []))
        self.block(body)
        breaks, continues = self.loops.pop()
        for jump in continues:
            jump.yes = self.here
        self.block(last)
        self.add("jump", yes=start)
        branch.no = self.here
        for jump in breaks:
            jump.yes = self.here

    def _For(self, node):
        (stop,) = node.iter.args
        name, end = node.target.id, self._name()
        self.add("compute", target=end, **self._compiled(self.expression(stop)))
        self.add("compute", target=name, **self._compiled(ast.Constant(0)))
        start = self.here
        branch = self._branch(ast.parse(f"{name} < {end}", mode="eval").body)
        self._loop(node.body, start, branch, ast.parse(f"{name} += 1").body)

    def _Break(self, node):
        self.loops[-1][0].append(self.add("jump"))

    def _Continue(self, node):
        self.loops[-1][1].append(self.add("jump"))

    def _Return(self, node):
        self.add("give", **self._compiled(self.expression(node.value or ast.Constant(None))))

    # --- expressions ----------------------------------------------------------------------------------------------
    def expression(self, node):
        """The expression without calls: their results are locals, made by instructions before it."""
        if not any(isinstance(n, ast.Call) and not self._is_pure(n) for n in ast.walk(node)):
            return node
        if isinstance(node, ast.BoolOp):
            return self._in_turn(node)
        if isinstance(node, ast.Call) and not self._is_pure(node):
            return self._call(node)
        for name, part in ast.iter_fields(node):
            if isinstance(part, ast.expr):
                setattr(node, name, self.expression(part))
            elif isinstance(part, list):
                setattr(node, name, [self.expression(p) if isinstance(p, ast.expr) else p for p in part])
        return node

    def _is_pure(self, node):
        return isinstance(node.func, ast.Name) and node.func.id in PURE

    def _in_turn(self, node):
        """and, or: one operand after the other, as far as needed."""
        target, ends = self._name(), []
        for operand in node.values:
            self.add("compute", target=target, **self._compiled(self.expression(operand)))
            branch = self.add("branch", **self._compiled(ast.Name(target, ast.Load())))
            ends.append(branch)
            branch.yes = branch.no = self.here
        for branch in ends:
            setattr(branch, "no" if isinstance(node.op, ast.And) else "yes", self.here)
        return ast.Name(target, ast.Load())

    def _call(self, node):
        target = self._name()
        arguments = [self.expression(a) for a in node.args]
        owner = self.expression(node.func.value) if isinstance(node.func, ast.Attribute) else None
        name = node.func.attr if owner is not None else node.func.id
        operands = ast.Tuple([owner or ast.Constant(None), *arguments], ast.Load())
        self.add("call", target=target, name=name, text=ast.unparse(node), **self._compiled(operands))
        return ast.Name(target, ast.Load())

    def _name(self):
        self.n_names += 1
        return f"_{self.n_names}"

    def _compiled(self, node):
        reads = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        tree = ast.fix_missing_locations(ast.Expression(node))
        return {"code": compile(tree, self.name, "eval"), "reads": reads}

    # --- what is read later -----------------------------------------------------------------------------------------
    def _find_live(self):
        changed = True
        while changed:
            changed = False
            for k in reversed(range(self.here)):
                one = self.instructions[k]
                after = [self.instructions[to].live for to in self._following(k, one)]
                live = frozenset(set().union(*after) - {one.target} | one.reads)
                changed |= live != one.live
                one.live = live

    def _following(self, k, one):
        if one.kind == "give":
            return ()
        if one.kind == "jump":
            return (one.yes,)
        return (one.yes, one.no) if one.kind == "branch" else (k + 1,)
