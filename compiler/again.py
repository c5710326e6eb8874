"""Cheap ops are computed again where another kernel reads their result, if what they are made of is in memory anyway.

    group 1: c = sub(x, mean), sum of mul(c, c)       stores c
    group 2: reads c                                  ->  reads x and mean, and computes c

Batch normalization takes the mean from its operand, sums squares of what is left and then scales it, which threads of a
large operand do in two passes: what is left would be as many bytes as the operand, written and read again. What moves
to the one kernel that reads it (sink.py) is computed once; this is for what its own kernel needs, too. An element is
computed from the same elements by the same op, so bits are the same.
"""

from math import prod

from .extent import estimated, identical
from .graph import INPUT
from .reads import can_fail, is_expensive
from .rewrite import Rewriter
from .sink import made_from, users_of

# Operands of fewer elements than one in so many of the result are read again at no cost.
_SMALL = 8


def compute_again(fusion):
    """(the fusion's graph with such ops once more for every other group that reads them, and the trace); None if there
    are none."""
    reads, graph = fusion.reads, fusion.graph
    group_of = {v.number: g for g in fusion.groups for v in g.values}
    users, committed = users_of(reads), {target for target, _ in graph.commits}
    stored = {n for n, found in users.items() if any(group_of.get(u.number) is not group_of[n] for u, _ in found)}
    stored |= reads.exists
    twice = {
        number
        for number, found in users.items()
        if number not in reads.exists
        and _is_made_again(graph.values[number], found, reads, group_of, stored, committed)
    }
    return _rewritten(graph, twice, group_of) if twice else None


def _rewritten(graph, twice, group_of):
    rewriter, made = Rewriter(graph), {}
    for value in graph.values:
        operands = list(rewriter.operands(value))
        for k, operand in enumerate(value.operands):
            group = group_of.get(value.number)
            if operand.number in twice and group is not group_of[operand.number]:
                key = operand.number, group.number
                if key not in made:
                    made[key] = rewriter.graph.copy_value(operand, rewriter.operands(operand))
                operands[k] = made[key]
        rewriter[value] = rewriter.graph.copy_value(value, tuple(operands))
    return rewriter.finish()


def _is_made_again(value, users, reads, group_of, stored, committed):
    home = group_of[value.number]
    others = {id(group_of.get(u.number)) for u, _ in users} - {id(home)}
    if not others or len(others) == len({id(group_of.get(u.number)) for u, _ in users}):
        return False
    if value.op.kind != "elementwise" or is_expensive(value) or can_fail(value):
        return False
    if home.kind != "loop" or home.level.get(value.number) != "full":
        return False
    bases = made_from(value, reads)
    is_there = all((b.op is INPUT and b not in committed) or b.number in stored for b in bases)
    large = [b for b in bases if _SMALL * estimated(prod(b.shape)) > estimated(prod(value.shape))]
    is_light = len(large) == 1 and large[0].dtype.size_bytes <= value.dtype.size_bytes
    return is_there and is_light and all(_takes_it(value, u, read, home, group_of) for u, read in users)


def _takes_it(value, user, read, home, group_of):
    """Whether a reader goes through the elements as the value's own kernel does."""
    group = group_of.get(user.number)
    if group is None or group.kind != "loop" or not any(o is value for o in user.operands):
        return False
    is_full = user.op.kind == "reduction" or group.level.get(user.number) == "full"
    whole = read.fusable and read.indexed is None and read.access.is_whole
    return is_full and whole and identical(group.size, home.size)
