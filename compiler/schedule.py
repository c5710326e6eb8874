"""The order of the kernels, and which updates of inputs may be written in place.

A commit (an input's new value) is written straight into the input's memory if nothing can read the old contents
afterwards and nothing can fail afterwards; else it goes through a temporary that a last kernel copies. The conditions
become edges of the kernel graph: reader of the old value -> writer, checking kernel -> writer.
"""

from dataclasses import dataclass

import networkx

from .graph import INPUT
from .lower import WHOLE_ROWS
from .reads import can_fail
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


def schedule(fusion):
    reads, graph = fusion.reads, fusion.graph
    group_of = {v.number: g for g in fusion.groups for v in g.values}
    reads_of = {g.number: _memory_reads(reads, g) for g in fusion.groups}
    stored = _stored(fusion, group_of, reads_of)
    dag = networkx.DiGraph()
    dag.add_nodes_from(g.number for g in fusion.groups)
    for g in fusion.groups:
        dag.add_edges_from(
            (group_of[b.number].number, g.number)
            for b in reads_of[g.number]
            if b.op is not INPUT and group_of[b.number] is not g
        )
    in_place, copies = {}, []
    checking = [g for g in fusion.groups if checks(g)]
    for target, new in graph.commits:
        base = reads.accesses[new.number].base
        writer = group_of[base.number]
        if 0 in target.shape:
            continue
        if _place(dag, fusion, writer, base, target, checking, reads_of, stored):
            in_place[base] = target
        else:
            copies.append((base, target))
    order = _order(dag, fusion, stored, in_place)
    return Schedule(fusion, order, stored, in_place, copies, reads_of)


def _order(dag, fusion, stored, in_place):
    """Recorded order, but kernels that leave nothing in the arena as soon as they can run: a weight is updated while
    its gradient is in the cache, and the gradient's memory is free again."""
    outputs = {fusion.reads.accesses[v.number].base for v in fusion.graph.outputs}
    groups = {g.number: g for g in fusion.groups}

    def key(number):
        group = groups[number]
        waits = any(v in stored and v not in in_place and v not in outputs for v in group.values)
        return waits, group.values[-1].number

    return [groups[n] for n in networkx.lexicographical_topological_sort(dag, key=key)]


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


def _place(dag, fusion, writer, base, target, checking, reads_of, stored):
    """Add the edges under which the writer may write into the target's memory; False if there is no such order."""
    if target.strides is not None or checks(writer):
        return False
    if target in reads_of[writer.number] and not reads_in_step(fusion.reads, writer, base, target, stored):
        return False
    before = [g for g in fusion.groups if g is not writer and (target in reads_of[g.number] or g in checking)]
    later = networkx.descendants(dag, writer.number)
    if any(g.number in later for g in before):
        return False
    dag.add_edges_from((g.number, writer.number) for g in before)
    return True


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
