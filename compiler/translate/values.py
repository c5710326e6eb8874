"""What a name or an expression is while a function is translated, and where ways through it come together.

Registers are in SSA form from the start. A `Join` collects the locals of the ways that lead to it; what differs between
them becomes a phi. References that a local owns are merged like values, with null for a way that has none, so each way
out can let go of the same registers.
"""

from dataclasses import dataclass, replace

from ..emit.builder import PTR, Reg
from .kinds import Kind, common_kind

NULL = Reg("null", PTR)


@dataclass(frozen=True)
class Value:
    """kind: None for a literal that takes the kind that is wanted. count: of Rows. owner: the reference to let go of,
    if a local owns one. read_at: how often code may have run when this was read from an object that may let go of it;
    None for what is held as long as the function runs."""

    kind: Kind | None
    reg: Reg | None
    count: Reg | None = None
    owner: Reg | None = None
    read_at: int | None = None
    literal: object = None

    def borrowed(self):
        return replace(self, owner=None)


class Retry(Exception):
    """Something was assumed wrongly; the function is translated again with what was found out."""

    def __init__(self, key, found):
        super().__init__(key, found)
        self.key, self.found = key, found


class Join:
    """A label that several ways lead to."""

    def __init__(self, writer, stem):
        self.writer, self.label, self.ways = writer, writer.b.label(stem), []

    def way(self, narrowed=None):
        """The label to branch to; what is known on that way is noted."""
        w = self.writer
        self.ways.append((w.b.block, {**w.frame.locals, **(narrowed or {})}, w.events))
        return self.label

    def arrive(self):
        """The way that is being written ends here."""
        if self.writer.reachable:
            self.writer.b.branch(self.way())
            self.writer.reachable = False

    def start(self):
        """Go on from here, if anything comes here."""
        w = self.writer
        if not self.ways:
            w.reachable = False
            return
        w.b.start(self.label)
        w.reachable, w.events = True, max(events for _, _, events in self.ways)
        w.frame.locals = self._merged()

    def _merged(self):
        names = {name: None for _, names, _ in self.ways for name in names}
        merged = {}
        for name in names:
            value = self._merge([names.get(name) for _, names, _ in self.ways])
            if value is not None:
                merged[name] = value
        return merged

    def _merge(self, values):
        first = values[0]
        if all(v is first for v in values):
            return first
        owned = all(v is not None and v.owner is not None and v.owner == v.reg for v in values)
        owner = None if owned else self._phi([None if v is None else v.owner for v in values], NULL)
        kind = None
        if all(v is not None and v.reg is not None for v in values):
            kind = common_kind([v.kind for v in values])
        if kind is None:
            return None if owner is None else Value(None, None, owner=owner)
        read = [v.read_at for v in values if v.read_at is not None]
        count = self._phi([v.count for v in values], None)
        reg = self._phi([v.reg for v in values], None)
        return Value(kind, reg, count, reg if owned else owner, min(read, default=None))

    def _phi(self, registers, missing):
        if all(r == registers[0] for r in registers):
            return registers[0]
        registers = [missing if r is None else r for r in registers]
        return self.writer.b.phi(registers[0].type, list(zip(registers, (block for block, _, _ in self.ways))))


class Exit:
    """A way out of the function: what is owned when somebody goes there is let go of first."""

    def __init__(self, writer, label):
        self.writer, self.label, self.used = writer, label, False

    def way(self, narrowed=None):
        self.used = True
        return self.writer.cold_way(self.label)

    def arrive(self):
        self.used = True
        self.writer.drop_all()
        self.writer.b.branch(self.label)
        self.writer.reachable = False
