"""Cheap ops go where their result is used, if what they are made of is in memory anyway.

    group 1: y = tanh(x), a = mul(y, y), b = sub(1, a)     stores y and b
    group 2: reads y and b                                 ->  reads y, and computes a and b

Fusion lets producers and consumers join from the front, so the factor of a derivative ends in the kernel that computed
what it is the derivative of, is written beside it, and is read again in backward. Of an LSTM's step, five of the twelve
arrays that its kernel writes were such factors: y (1 - y) of three gates, 1 - y^2 of the fourth and of the state.
Forward and backward of 32 steps took 3.16 ms, and 2.96 with parts (cut_first.py) and this; of 256 steps, which come
from memory, 105 and 91, all beside other work (minima of alternating runs, Zen 5, one thread).

What moves is a cone: a value that only one other kernel reads, and cheap ops before it that nothing else reads. All it
begins from has to be stored for others, or to be an input; and everything has to be element by element, so that the
other kernel has the same element at the same time. No value is computed twice, and none by another op.
"""

from .access import cuts
from .extent import identical
from .graph import INPUT
from .reads import can_fail, is_expensive

# Of a cone. Longer ones would be better kept.
_MOST_OPS = 4


def sink(reads, group_of, most_ops):
    """{number of a value: the group that it moves to}; groups have at most `most_ops` ops afterwards."""
    users = users_of(reads)
    stored = set(reads.exists)
    for number, found in users.items():
        if any(group_of.get(u.number) is not group_of[number] for u, _ in found):
            stored.add(number)
    moved, added = {}, {}
    for value in reversed(reads.graph.values):
        if value.number not in group_of or value.number in reads.exists or value.number in moved:
            continue
        home = group_of[value.number]
        target = _target(users[value.number], home, group_of)
        if target is None or not _is_alike(home, target):
            continue
        cone = _cone(value, home, reads, users, stored)
        n_ops = len(target.values) + added.get(target.number, 0) + len(cone)
        if cone and n_ops <= most_ops and _saves(value, cone, target, reads, group_of):
            added[target.number] = added.get(target.number, 0) + len(cone)
            moved.update((v.number, target) for v in cone)
            stored.discard(value.number)
    return moved


def users_of(reads):
    """{number of a node: (node that reads it, Read) pairs}."""
    users = {v.number: [] for v in reads.graph.values if reads.is_node[v.number]}
    for value in reads.graph.values:
        for read in reads.by_value[value.number]:
            base = read.access.base.number
            if base in users:
                users[base].append((value, read))
    return users


def _target(users, home, group_of):
    """The one other group that reads a value, element by element, or None."""
    groups = {group_of[u.number].number if u.number in group_of else None: u for u, _ in users}
    if len(groups) != 1 or None in groups:
        return None
    group = group_of[users[0][0].number]
    is_full = all(u.op.kind == "reduction" or group.level.get(u.number) == "full" for u, _ in users)
    return group if group is not home and is_full else None


def _is_alike(home, target):
    """Whether two groups are loops over the same elements."""
    return home.kind == target.kind == "loop" and identical(home.size, target.size)


def _cone(value, home, reads, users, stored):
    """The ops that move with a value, or none."""
    cone, pending = [], [value]
    while pending:
        v = pending.pop()
        if len(cone) == _MOST_OPS or not _may_move(v, home, reads, users):
            return []
        cone.append(v)
        for base in made_from(v, reads):
            if base in cone or base in pending or base.op is INPUT or base.number in stored:
                continue
            if any(u not in cone for u, _ in users[base.number]):
                return []
            pending.append(base)
    return cone


def made_from(value, reads):
    """The inputs and nodes that an op reads."""
    bases = [r.access.base for r in reads.by_value[value.number]]
    return [b for b in bases if b.op is INPUT or reads.is_node[b.number]]


def _saves(value, cone, target, reads, group_of):
    """Whether the value, written and read, is more than what the other kernel has to read for it."""
    outside = {b for v in cone for b in made_from(v, reads) if b not in cone}
    known = {r.access.base for v in target.values for r in reads.by_value[v.number]}
    is_made_here = any(b.op is not INPUT and group_of[b.number] is group_of[value.number] for b in outside)
    return is_made_here and sum(b.dtype.size_bytes for b in outside - known) < 2 * value.dtype.size_bytes


def _may_move(value, home, reads, users):
    """Whether an op is cheap, and reads and is read element by element."""
    is_cheap = value.op.kind == "elementwise" and not is_expensive(value) and not can_fail(value)
    own = reads.by_value[value.number]
    # Numbers and positions are made anew by every kernel that reads them, if its loops need not be cut for that: one
    # that reduces all elements in one run has no place for a row that is repeated.
    given = [r for r in own if r.access.base.op is INPUT or reads.is_node[r.access.base.number]]
    around = [*given, *(read for _, read in users[value.number])]
    return (
        is_cheap
        and home.level.get(value.number) == "full"
        and not any(cuts(r.access.collapsed) for r in own)
        and all(r.fusable and r.indexed is None and r.access.is_whole for r in around)
    )
