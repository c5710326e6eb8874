"""Joins that nobody computes: their parts are written where the join has them.

    h0 = ...;  h1 = ...;  h2 = ...;  c = cat(h0, h1, h2)        c: | h0 | h1 | h2 |

Where a join along the outermost axis is of values that kernels compute, each whole and in its order, they need no
memory of their own, and no kernel copies them. What is a result, or replaces an input, lies where it has to.
"""

from math import prod

from .extent import is_open
from .target import LINE_BYTES


def joins_in_place(order):
    """{number of a join: {number of a part: bytes from its start}} of the joins of a Schedule that are done so."""
    found, taken = {}, set()
    accesses, fixed = order.fusion.reads.accesses, _fixed(order)
    for group in order.order:
        parts = _parts(group.values[0], accesses) if len(group.values) == 1 else None
        if parts is None or group.values[0].number in fixed:
            continue
        if fixed.isdisjoint(parts) and taken.isdisjoint(parts) and order.stored.issuperset(_bases(group, accesses)):
            found[group.values[0].number] = parts
            taken.update(parts)
    return found


def holders(joins):
    """{number of a part: (number of the join that holds it, bytes from its start)}. A join of very many parts is one of
    joins: the outermost holds all."""
    holder = {part: (join, start) for join, parts in joins.items() for part, start in parts.items()}
    for part, (join, start) in holder.items():
        while join in holder:
            join, further = holder[join]
            start += further
        holder[part] = join, start
    return holder


def _bases(group, accesses):
    return [accesses[o.number].base for o in group.values[0].operands]


def _fixed(order):
    """Numbers of values whose place is not the compiler's to choose, and of what is no kernel's."""
    graph, accesses = order.fusion.graph, order.fusion.reads.accesses
    fixed = {accesses[v.number].base.number for v in (*graph.outputs, *graph.inputs())}
    return fixed | {base.number for base in order.in_place} | {source.number for source, _ in order.copies}


def _parts(value, accesses):
    """The parts of a value that is a join of whole values, one behind the other; None if it is none, or has others."""
    if (
        "joins" not in value.op.traits
        or any(map(is_open, value.shape))
        or prod(value.shape[: value.attributes["axis"]]) > 1
    ):
        return None
    found, start = {}, 0
    for operand in value.operands:
        access = accesses[operand.number]
        base, n_bytes = access.base, prod(operand.shape) * value.dtype.size_bytes
        if not access.is_whole or base.dtype is not value.dtype or base.number in found or start % LINE_BYTES:
            return None
        found[base.number] = start
        start += n_bytes
    return found
