"""When two groups have the same kernel: steps of a recurrence, layers of equal shape, updates of equal parameters.

Lowering sees of a group its domain, its ops with attributes, levels and types, how they read each other and memory, and
which of them are stored. `likeness` writes that down with values and run-time scalars numbered in the order in which
they are met, so two groups that differ only in which values they work on are equal, and one of them need not be
lowered.
"""

from dataclasses import dataclass

from .graph import INPUT, SCALAR

_GAP = 8


@dataclass(frozen=True, slots=True)
class Likeness:
    """`key`: equal for groups with the same kernel; `numbers`: the values met, by their place in the key; `scalars`:
    number of a run-time scalar -> its slot among those of the kernel, which are the slots of `runs`, (first slot in the
    program, how many), one after the other."""

    key: tuple
    numbers: list
    scalars: dict
    runs: tuple


def likeness(group, reads, stored, slots):
    """The Likeness of a group. `slots`: number of a run-time scalar -> its slot in the program."""
    walk = _Walk(reads, stored, group)
    key = [_domain(group), len(group.values)]
    key += [walk.member(v) for v in group.values]
    # Values from outside are met while others are described, so the list grows.
    key += [walk.outside(v) for v in walk.pending]
    used = {v.number: slots[v.number] for v in walk.pending if v.op is SCALAR}
    runs = _runs(sorted(used.values()))
    scalars, before = {}, 0
    for first, count in runs:
        scalars |= {number: before + slot - first for number, slot in used.items() if first <= slot < first + count}
        before += count
    return Likeness((*key, *(scalars[n] for n in used), *(n for _, n in runs)), list(walk.place), scalars, runs)


def _runs(slots):
    """(first, how many) of stretches of slots. What an optimizer is given for all tensors is far from what each tensor
    begins with; small gaps are left in."""
    runs = []
    for slot in slots:
        if runs and slot - runs[-1][1] <= _GAP:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return tuple((first, last + 1 - first) for first, last in runs)


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
