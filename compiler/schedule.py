"""The order of the kernels, and which updates of inputs may be written in place.

A commit (an input's new value) is written straight into the input's memory if nothing can read the old contents
afterwards and nothing can fail afterwards; else it goes through a temporary that a last kernel copies. The conditions
become edges of the kernel graph: reader of the old value -> writer, checking kernel -> writer.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import prod

from .extent import estimated
from .graph import INPUT
from .lower import WHOLE_ROWS
from .reads import can_fail
from .sequence import Sequence
from .stages import count_stages


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Groups in the order they run. `stored`: nodes that must be in memory; `in_place`: node -> the input whose memory
    it is written to; `copies`: (node, input) pairs copied at the end."""

    fusion: object
    order: list
    stored: set
    in_place: dict
    copies: list
    reads_of: dict


# Programs of more take some hundredths of a second. What they write last keeps as much more of their memory in use.
_LONG_FLOPS, _MOST_WRITTEN_LAST = 3 << 30, 1 << 28
# Stands between all kernels that can fail and those that write what outlives the call.
_ALL_CHECKED = -1


def schedule(fusion):
    reads, graph = fusion.reads, fusion.graph
    group_of = {v.number: g for g in fusion.groups for v in g.values}
    reads_of = {g.number: _memory_reads(reads, g) for g in fusion.groups}
    stored = _stored(fusion, group_of, reads_of)
    checking = [g.number for g in fusion.groups if checks(g)]
    after = {g.number: [] for g in fusion.groups}
    for g in fusion.groups:
        for b in reads_of[g.number]:
            if b.op is not INPUT and group_of[b.number] is not g:
                after[group_of[b.number].number].append(g.number)
    if checking and graph.commits:
        after[_ALL_CHECKED] = []
        for number in checking:
            after[number].append(_ALL_CHECKED)
    dependences = _Dependences(after)
    readers = _readers(fusion, reads_of)
    in_place, copies = {}, []
    writes_last = _is_long(fusion) and _n_bytes(target for target, _ in graph.commits) <= _MOST_WRITTEN_LAST
    for target, new in graph.commits:
        base = reads.accesses[new.number].base
        writer = group_of[base.number]
        if 0 in target.shape:
            continue
        before = [n for n in readers.get(target, ()) if n != writer.number] + [_ALL_CHECKED] * bool(checking)
        if writes_last and after[writer.number]:  # as with the bias of the last layer, whose gradient the others need
            copies.append((base, target))
        elif _may_replace(fusion.reads, writer, base, target, reads_of, stored) and dependences.add(
            before, writer.number
        ):
            in_place[base] = target
        else:
            copies.append((base, target))
    order = _order(after, fusion, stored, in_place, in_place if writes_last else ())
    return Schedule(fusion, order, stored, in_place, copies, reads_of)


def _readers(fusion, reads_of):
    """input -> numbers of the groups that read it."""
    readers = {}
    for g in fusion.groups:
        for base in reads_of[g.number]:
            if base.op is INPUT:
                readers.setdefault(base, []).append(g.number)
    return readers


class _Dependences:
    """Which group runs before which, as it grows. `after`: group -> those that need it; the sequence is an order in
    which they can run, so that whether a new edge would close a circle is mostly seen at once."""

    def __init__(self, after):
        self.after = after
        self.sequence = Sequence(_sorted(after, lambda number: number))

    def add(self, before, number):
        """Edges from groups to a later one; False, and nothing changes, if that needs one of them already."""
        keys = self.sequence.keys
        last = max(before, key=keys.get, default=number)
        needing, stack = {number}, [number]
        while stack:
            for user in self.after[stack.pop()]:
                if keys[user] <= keys[last] and user not in needing:
                    needing.add(user)
                    stack.append(user)
        if not needing.isdisjoint(before):
            return False
        if keys[number] < keys[last]:
            self.sequence.move_after(needing, last)
        for other in before:
            self.after[other].append(number)
        return True


def _sorted(after, key):
    """Numbers in the order of a key, as far as what runs after what allows."""
    missing = dict.fromkeys(after, 0)
    for users in after.values():
        for user in users:
            missing[user] += 1
    ready = [(key(number), number) for number, count in missing.items() if count == 0]
    heapify(ready)
    result = []
    while ready:
        _, number = heappop(ready)
        result.append(number)
        for user in after[number]:
            missing[user] -= 1
            if missing[user] == 0:
                heappush(ready, (key(user), user))
    assert len(result) == len(after), "groups need each other in a circle"
    return result


def _order(after, fusion, stored, in_place, last):
    """Recorded order, but kernels that leave nothing in the arena as soon as they can run: a weight is updated while
    its gradient is in the cache, and the gradient's memory is free again. But those that make the nodes in `last` come
    last: until something is written that outlives the call, long programs can be interrupted (emit/interrupt.py)."""
    outputs = {fusion.reads.accesses[v.number].base for v in fusion.graph.outputs}
    groups = {g.number: g for g in fusion.groups}

    def key(number):
        if number == _ALL_CHECKED:
            return False, False, number
        group = groups[number]
        waits = any(v in stored and v not in in_place and v not in outputs for v in group.values)
        return any(v in last for v in group.values), waits, group.values[-1].number

    return [groups[n] for n in _sorted(after, key) if n != _ALL_CHECKED]


def _is_long(fusion):
    flops = sum(estimated(v.op.kernel.flops(v)) for g in fusion.groups for v in g.values)
    return flops > _LONG_FLOPS


def _n_bytes(values):
    return sum(estimated(prod(v.shape)) * v.dtype.size_bytes for v in values)


def checks(group):
    """Whether the group's kernel can fail."""
    return any(can_fail(v) for v in group.values)


def _memory_reads(reads, group):
    """The inputs and nodes a group reads, looking through inline values and sources. Nodes of the group are included
    only where they are read from memory: not at the same position."""
    inside = {v.number for v in group.values}
    found, pending, seen = {}, [], set()
    for value in group.values:
        pending += [r.access.base for r in reads.by_value[value.number]]
    while pending:
        base = pending.pop()
        # A value that two others read is looked through once: there are as many ways to it as in a recurrence.
        if base.number in inside or base.number in seen:
            continue
        seen.add(base.number)
        if base.op is INPUT or reads.is_node[base.number]:
            found[base] = None
        elif reads.is_inline[base.number]:
            pending += [r.access.base for r in reads.by_value[base.number]]
        else:
            pending += [reads.accesses[o.number].base for o in base.operands]
    return list(found)


def _stored(fusion, group_of, reads_of):
    """Nodes that another group reads, or that are results."""
    stored = {fusion.reads.accesses[v.number].base for v in fusion.graph.results()}
    for group in fusion.groups:
        stored.update(b for b in reads_of[group.number] if b.op is not INPUT)
        if group.kind != "loop":
            stored.update(group.values)
    return stored


def _may_replace(reads, writer, base, target, reads_of, stored):
    """Whether the writer may write into the target's memory, as far as it alone decides."""
    if target.strides is not None or checks(writer):
        return False
    return target not in reads_of[writer.number] or reads_in_step(reads, writer, base, target, stored)


def reads_in_step(reads, writer, base, target, stored):
    """Whether the writer reads every element of `target` before it writes that element of `base`, and only then."""
    if writer.kind != "loop":
        return False
    level = writer.level[base.number]
    if level == "full" and count_stages(writer, reads, stored) > 1:
        return False
    for value in writer.values:
        for read in reads.by_value[value.number]:
            if read.access.base is target:
                reading = "full" if value.op.kind == "reduction" else writer.level[value.number]
                in_step = reading == level and read.access.is_whole and read.fusable
                if not in_step and not _comes_before_columns(writer, level, reading):
                    return False
    return True


def _comes_before_columns(writer, level, reading):
    """Column values are written after all rows, and whatever those read, if the rows are not cut into chunks."""
    return level == "column" and reading != "column" and writer.outer == 1 and writer.row <= WHOLE_ROWS
