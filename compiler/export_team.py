"""Entry points of exported programs that several threads of the caller run together.

    i32 @name_team(i64 n, ..., ptr array, ..., ptr scratch, i64 rank, i64 size)    called by all; the same for all
    i64 @name_team_scratch(i64 n, ..., i64 size)                                   bytes of scratch memory, or -1

The scratch memory begins with the team's (emit/team.py); then comes that of the thread of rank 0, then the others'.
"""

from dataclasses import dataclass

from .emit.builder import I32, I64, PTR, Builder, Reg
from .emit.team import TEAM, TEAM_BYTES, Team
from .export_entry import NOT_SERVED, aligned, number_of, registers, which_body
from .translate.kinds import offset_of
from .translate.translate import translate

_NULL = Reg("null", PTR)


def team_text():
    """LLVM IR of what the entries call."""
    return translate(list(TEAM)).text()


@dataclass(frozen=True, slots=True)
class TeamEntry:
    """The same function as an Entry of this name, for threads; `bodies` are for a team, some of them perhaps not."""

    of: str
    bodies: tuple
    n_parameters: int
    extents: tuple = ()

    @property
    def name(self):
        return f"{self.of}_team"

    @property
    def body_names(self):
        return [f"{self.name}_for{k}" for k in range(len(self.bodies))]

    def emit(self, module):
        module.declare("sched_yield", "i32", [])
        numbers = [(f"extent_{name}", I64) for name in self.extents]
        pointers = [*[(f"a{k}", PTR) for k in range(self.n_parameters)], ("scratch", PTR)]
        for name, body in zip(self.body_names, self.bodies):
            self._emit_first(
                Builder(module, name, [*numbers, *pointers, ("size", I64)], result="i32", linkage="internal"), body
            )
        self._emit_member(
            Builder(module, f"{self.name}_member", [("team", PTR), ("rank", I64)], result="i32", linkage="internal")
        )
        self._emit_function(
            Builder(module, self.name, [*numbers, *pointers, ("rank", I64), ("size", I64)], result="i32")
        )
        self._emit_scratch(Builder(module, f"{self.name}_scratch", [*numbers, ("size", I64)], result="i64"))

    def _emit_first(self, b, body):
        """What the thread of rank 0 does, for one of the bodies."""
        extents = registers(b, self.extents)
        *pointers, team, size = b.arguments[len(extents) :]
        own = b.offset(team, TEAM_BYTES, 1)
        for name in ("begin", "wait", "end"):
            _store(b, team, name, Reg(f"@weft_team_{name}", PTR))
        _store(b, team, "size", size)
        _store(b, team, "scratch", b.offset(own, number_of(b, aligned(body.scratch_bytes), extents), 1))
        _store(b, team, "worker_bytes", number_of(b, _worker_bytes(body), extents))
        given = body.emit_extents(b, extents)
        _store(b, team, "extents", given[0] if given else _NULL)
        if not body.compiled.plan.has_team:
            b.call(I64, "weft_team_begin", [team, _NULL, _NULL, _NULL, b.i64(0), b.i64(0)])
        status = body.emit(b, b.name, pointers, own, extents, pool=team)
        if not body.compiled.plan.has_team:
            b.call("void", "weft_team_end", [team, _NULL, size])
        b.call("void", "weft_team_finish", [team, b.convert(status, "i64")])
        b.finish(status)

    @staticmethod
    def _emit_member(b):
        """What the others do."""
        team, rank = b.arguments
        b.call("void", "weft_team_enter", [team])
        body, closure, extents, scratch = (
            _load(b, team, name, PTR) for name in ("body", "closure", "extents", "scratch")
        )
        before = b.sub(rank, b.i64(1))
        own = b.offset(scratch, b.mul(before, _load(b, team, "worker_bytes", I64)), 1)
        arguments = [closure, rank, _load(b, team, "size", I64), b.i64(0), own]
        has_body, has_extents = (b.cmp("ne", x, _NULL) for x in (body, extents))
        with b.when(b.and_(has_body, has_extents)):
            b.call(I64, body, [extents, *arguments])
        with b.when(b.and_(has_body, b.not_(has_extents))):
            b.call(I64, body, arguments)
        b.finish(b.convert(b.call(I64, "weft_team_leave", [team]), "i32"))

    def _emit_function(self, b):
        *arguments, team, rank, size = b.arguments
        which, result = which_body(b, self.bodies, self.extents), b.const(NOT_SERVED, I32)
        with b.when(b.cmp("ge", which, b.i64(0))):
            _store(b, team, "relax", Reg("@sched_yield", PTR))  # every thread needs it at once
        is_first = b.cmp("eq", rank, b.i64(0))
        for k, name in enumerate(self.body_names):
            chosen = b.and_(is_first, b.cmp("eq", which, b.i64(k)))
            given = [*arguments, team, size]
            result = b.when_value(chosen, result, lambda name=name, given=given: b.call(I32, name, given))
        others = b.and_(b.not_(is_first), b.cmp("ge", which, b.i64(0)))
        result = b.when_value(others, result, lambda: b.call(I32, f"{self.name}_member", [team, rank]))
        b.finish(result)

    def _emit_scratch(self, b):
        extents, size = registers(b, self.extents), b.arguments[-1]
        which, n_bytes = which_body(b, self.bodies, self.extents), b.i64(-1)
        for k, body in enumerate(self.bodies):
            first = number_of(b, aligned(body.scratch_bytes) + TEAM_BYTES, extents)
            others = b.mul(b.sub(size, b.i64(1)), number_of(b, _worker_bytes(body), extents))
            n_bytes = b.select(b.cmp("eq", which, b.i64(k)), b.add(first, others), n_bytes)
        b.finish(n_bytes)


def _worker_bytes(body):
    return aligned(body.compiled.plan.worker_bytes)


def _store(b, team, name, value):
    b.store(value, b.offset(team, offset_of(Team, name), 1))


def _load(b, team, name, type):
    return b.load(b.offset(team, offset_of(Team, name), 1), type)
