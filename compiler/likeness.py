"""When two groups have the same kernel: steps of a recurrence, layers of equal shape, updates of equal parameters.

Lowering sees of a group its domain, its ops with attributes, levels and types, how they read each other and memory, and
which of them are stored. `likeness` writes that down with values and run-time scalars numbered in the order in which
they are met, so two groups that differ only in which values they work on are equal, and one of them need not be
lowered.
"""

from dataclasses import dataclass

from .graph import INPUT, SCALAR


@dataclass(frozen=True, slots=True)
class Likeness:
    """`key`: equal for groups with the same kernel; `numbers`: the values met, by their place in the key; `scalars`:
    number of a run-time scalar -> its slot, counted from `first_scalar`."""

    key: tuple
    numbers: list
    scalars: dict
    first_scalar: int


def likeness(group, reads, stored, slots):
    """The Likeness of a group. `slots`: number of a run-time scalar -> its slot in the program."""
    walk = _Walk(reads, stored, group)
    key = [_domain(group), len(group.values)]
    key += [walk.member(v) for v in group.values]
    # Values from outside are met while others are described, so the list grows.
    key += [walk.outside(v) for v in walk.pending]
    used = {v.number: slots[v.number] for v in walk.pending if v.op is SCALAR}
    first = min(used.values(), default=0)
    scalars = {number: slot - first for number, slot in used.items()}
    return Likeness((*key, *scalars.values()), list(walk.place), scalars, first)


def _domain(group):
    cuts = tuple(tuple(sorted(found)) for found in group.cuts.values())
    return group.kind, group.size, group.row, group.outer, group.across, cuts


class _Walk:
    """`place`: number of a value -> its place among those met; `pending`: those from outside, in that order."""

    def __init__(self, reads, stored, group):
        self.reads, self.stored, self.level = reads, stored, group.level
        self.place = {v.number: k for k, v in enumerate(group.values)}
        self.pending = []

    def member(self, value):
        level, is_stored = self.level.get(value.number), value in self.stored
        return (*_form(value), level, is_stored, *map(self.read, self.reads.by_value[value.number]))

    def outside(self, value):
        if value.op is SCALAR:
            return value.dtype
        if value.op is INPUT or self.reads.is_node[value.number]:
            return "memory", value.dtype
        if self.reads.is_inline[value.number]:
            return (*_form(value), *map(self.read, self.reads.by_value[value.number]))
        return (*_form(value), *(self.access(self.reads.accesses[o.number]) for o in value.operands))

    def read(self, read):
        return read.fusable, read.indexed, self.access(read.access)

    def access(self, access):
        base = access.base
        if base.number not in self.place:
            self.place[base.number] = len(self.place)
            self.pending.append(base)
        return self.place[base.number], access.shape, access.strides, access.offset


def _form(value):
    # repr tells 1, 1.0 and True apart, and 0.0 from -0.0; equality does not.
    attributes = repr(sorted(value.attributes.items())) if value.attributes else ""
    return value.op, value.dtype, value.shape, attributes
