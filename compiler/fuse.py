"""Fusion: which ops share a kernel.

A kernel is one nest of loops over a *domain* of `size` elements in row-major order. A domain may have rows of `row`
elements, and then a value has a level:

    full     one element per element of the domain
    row      one element per row: the result of a row reduction, or what is computed from such
    column   one element per column: the result of a column reduction; usable only after the loops

    softmax over (64, 10):  size 640, row 10:  amax: row, sub: full, exp: full, sum: row, div: full

Two groups may become one if (1) no path leaves one and comes back through a third (the kernels could not be ordered);
(2) what one reads of the other is at the same position, or is the row's value in the row; (3) their domains agree, and
strided reads do not change stride inside a row; (4) the result stays small. The order is greedy, the largest
domains first: producers and consumers join where they can; then groups that read the same memory over the same domain.

Every pair of producer and consumer that stays apart leaves a `Refusal`.
"""

from dataclasses import dataclass, field

from .access import cuts, goes_across, is_contiguous
from .dtypes import bool_
from .extent import divides, estimated, identical
from .precedence import Precedence
from .reads import analyse
from .sink import sink

# More ops than this spill registers and compile slowly; no gain was seen beyond.
_MAX_OPS = 80


@dataclass(slots=True, eq=False)
class Group:
    """Ops of one kernel. `kind`: "loop", or the name of the op of a product or mover."""

    number: int
    kind: str
    values: list
    size: int = 0
    row: int = 0
    outer: int = 0
    level: dict = field(default_factory=dict)
    # Where the stride of a read changes, per level of the reading op; sizes of the inner part.
    cuts: dict = field(default_factory=dict)
    # Whether some operand is read across memory (a transposed one).
    across: bool = False

    def __repr__(self):
        return f"group {self.number}: {', '.join(v.op.name for v in self.values)}"


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """Why a producer and its consumer are in two kernels."""

    producer: object
    consumer: object
    reason: str

    def __str__(self):
        x, y = self.producer, self.consumer
        return f"%{x.number} {x.op.name} and %{y.number} {y.op.name}: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """The groups of a graph in an order in which they can run, and where each node is."""

    graph: object
    reads: object
    groups: list
    refusals: list

    def __str__(self):
        lines = [f"{_group_text(g)}" for g in self.groups]
        lines += [f"refused: {r}" for r in self.refusals]
        return "\n".join([*lines, ""])


def fuse(graph, sums_apart=False):
    """The Fusion of a settled graph. `sums_apart`: no kernel has sums over rows and over columns."""
    state = _State(analyse(graph), sums_apart)
    refused = _join_along(state, _edges_by_size(state))
    # Once more: some of what stood in the way may have moved.
    refused = _join_along(state, [edge for edge, _ in refused])
    _join_siblings(state)
    _move(state, sink(state.reads, state.group_of, _MAX_OPS))
    refusals = [
        Refusal(base, value, reason)
        for (base, value), reason in sorted(refused, key=lambda r: (r[0][1].number, r[0][0].number))
        if state.group_of[base.number] is not state.group_of[value.number]
    ]
    groups = sorted({g.number: g for g in state.group_of.values()}.values(), key=lambda g: g.number)
    return Fusion(graph, state.reads, groups, refusals)


def _move(state, moved):
    """Values into other groups, each between its operands and its users there."""
    for number, target in moved.items():
        home = state.group_of[number]
        (value,) = [v for v in home.values if v.number == number]
        home.values.remove(value)
        target.values = sorted([*target.values, value], key=lambda v: v.number)
        target.level[number] = home.level.pop(number)
        state.group_of[number] = target


def _edges_by_size(state):
    """(producer, consumer) pairs, those over the largest domains first: there fusion saves most, and a small group that
    joined first could stand between them. Equal sizes in recorded order, so that chains grow from their beginning.

    Last come masks of values that are in memory anyway: relu's backward asks where its result is positive. Computed
    with what uses it, a mask takes no memory, and threads do not meet in its short lines.
    """
    edges = {}
    for group in state.group_of.values():
        (value,) = group.values
        bases = [base for base, _ in producers(state.reads, value)]
        is_mask = value.dtype is bool_ and len(bases) == 1 and bases[0].number in state.reads.exists
        for base in bases:
            edges[base, value] = (
                is_mask,
                -max(estimated(group.size), estimated(state.group_of[base.number].size)),
                value.number,
            )
    return sorted(edges, key=edges.get)


def _join_along(state, edges):
    """Join the groups of each pair where possible; the pairs left apart, with reasons."""
    refused = []
    for base, value in edges:
        x, y = state.group_of[base.number], state.group_of[value.number]
        if x is y:
            continue
        reason = _obstacle(state, x, y)
        if reason is None:
            merged, reason = _joined(state, x, y)
            if merged is not None:
                state.join(x, y, merged)
                continue
        refused.append(((base, value), reason))
    return refused


class _State:
    """The partition while it grows, and in which order its groups can run."""

    __slots__ = ("reads", "group_of", "precedence", "sums_apart")

    def __init__(self, reads, sums_apart):
        self.reads, self.sums_apart = reads, sums_apart
        nodes = [v for v in reads.graph.values if reads.is_node[v.number]]
        self.group_of = {v.number: _alone(reads, v) for v in nodes}
        read = {v.number: [base.number for base, _ in producers(reads, v)] for v in nodes}
        users = {v.number: [] for v in nodes}
        for number, bases in read.items():
            for base in bases:
                users[base].append(number)
        self.precedence = Precedence(read, users, self.group_of)

    def join(self, x, y, merged):
        """One group in place of two, under its own number."""
        self.precedence.join(*self.precedence.in_order(x, y), merged.number)
        self.group_of.update((v.number, merged) for v in merged.values)


def producers(reads, value):
    """(node read, read) pairs of a node, looking through inline values."""
    for read in reads.by_value[value.number]:
        base = read.access.base
        if reads.is_node[base.number]:
            yield base, read


def _alone(reads, value):
    """A group for the op alone."""
    kernel = value.op.kernel
    group = Group(value.number, "loop" if kernel.is_loop else value.op.name, [value])
    if kernel.is_loop:
        group.size, group.row, group.outer, level = kernel.domain(value)
        group.level[value.number] = level
        reading = "full" if value.op.kind == "reduction" else level
        found = {c for r in reads.by_value[value.number] for c in cuts(r.access.collapsed)}
        group.cuts = {"full": set(), "row": set(), "column": set(), reading: found}
        group.across = any(goes_across(r.access.collapsed) for r in reads.by_value[value.number])
    return group


def _obstacle(state, x, y):
    """Why two groups cannot be one whatever their domains, or None."""
    if x.kind != "loop" or y.kind != "loop":
        other = x if x.kind != "loop" else y
        return f"{other.kind} is a kernel of its own"
    for group in (x, y):
        if group.values[0].op.kernel.is_apart:
            return f"{group.values[0].op.name} is a kernel of its own"
    if len(x.values) + len(y.values) > _MAX_OPS:
        return f"together they have more than {_MAX_OPS} ops"
    return state.precedence.between(*state.precedence.in_order(x, y))


# --- domains --------------------------------------------------------------------------------------------------------
def _joined(state, x, y):
    """(the group of both, None), or (None, why not). x may feed y, not the other way."""
    merged = Group(x.number, "loop", sorted(x.values + y.values, key=lambda v: v.number))
    big, small = (x, y) if estimated(x.size) >= estimated(y.size) else (y, x)
    edges = _edges(state, x, y)
    merged.size, merged.row, merged.outer = big.size, big.row, big.outer
    merged.level = big.level | small.level
    merged.across = big.across or small.across
    merged.cuts = {k: big.cuts[k] | small.cuts[k] for k in big.cuts}
    if identical(big.size, small.size):
        reason = _unify_equal(merged, big, small)
    else:
        reason = _place_small(merged, big, small, edges, small is x)
    if reason is None and edges:
        reason = next(filter(None, (_edge_obstacle(merged, *edge) for edge in edges)), None)
    if reason is None:
        reason = _cut_obstacle(merged)
    if reason is None and state.sums_apart and {"row", "column"} <= _levels_of_sums(merged):
        reason = "one sums rows, the other columns"
    return (None, reason) if reason else (merged, None)


def _levels_of_sums(group):
    return {group.level[v.number] for v in group.values if v.op.kind == "reduction"}


def _edges(state, x, y):
    """(producer, read, consumer) for every read of x's values by y's."""
    inside = {v.number for v in x.values}
    return [(b, r, v) for v in y.values for b, r in producers(state.reads, v) if b.number in inside]


def _unify_equal(merged, x, y):
    if x.row and y.row and not identical(x.row, y.row):
        return f"rows of {x.row} and of {y.row} elements"
    if x.outer and y.outer and not identical(x.outer, y.outer):
        return "column sums over different axes"
    merged.row, merged.outer = x.row or y.row, x.outer or y.outer
    return None


def _place_small(merged, big, small, edges, small_feeds):
    """The smaller group's ops move to the row or column level of the bigger domain."""
    if not edges:
        return "different sizes"
    if small.row or any(level != "full" for level in small.level.values()):
        return f"a reduction over {small.size} elements beside a domain of {big.size}"
    if big.outer and all(_is_column_end(big, base, consumer, small_feeds) for base, _, consumer in edges):
        level, expected = "column", big.outer * big.row
    else:
        level = "row"
        if not big.row and (small.size < 2 or not divides(small.size, big.size)):
            return f"{small.size} elements against {big.size}"
        merged.row = big.row or big.size // small.size
        expected = big.size // merged.row
    if not identical(small.size, expected):
        return f"{small.size} elements against {expected} rows" if level == "row" else "not one element per column"
    merged.level |= dict.fromkeys(small.level, level)
    merged.cuts = {k: set(v) for k, v in big.cuts.items()}
    merged.cuts[level] |= small.cuts["full"]
    return None


def _is_column_end(big, base, consumer, small_feeds):
    """Whether the big group's end of an edge is a column value that the small group may stand beside."""
    if small_feeds:
        return big.level[consumer.number] == "column" and consumer.op.kind != "reduction"
    return big.level[base.number] == "column"


def _edge_obstacle(merged, base, read, consumer):
    """Why the consumer's read cannot be served by the register that holds the producer's element, or None."""
    if not read.fusable:
        return f"{consumer.op.name} reads it at computed positions"
    source = merged.level[base.number]
    target = "full" if consumer.op.kind == "reduction" else merged.level[consumer.number]
    access = read.access
    whole = access.is_whole
    if source == target and whole:
        return None
    if source == "column":
        return "the column sums are complete only after the last row"
    if source == "row" and target == "full" and access.offset == 0:
        rows = access.size
        for d in base.shape or (1,):
            if not divides(d, rows):
                return "its rows are read in another order"
            rows //= d
        if _is_row_broadcast(access.collapsed, access.size // rows, rows):
            merged.row = merged.row or rows
            return None if merged.row == rows else f"it is repeated {rows} times, rows have {merged.row} elements"
        return "its rows are read in another order"
    if source == "full" and target == "full" and not merged.row and identical(merged.size, access.size) and not whole:
        return "it is read in another order"
    return f"a {source} value is read by a {target} value"


def _is_row_broadcast(collapsed, count, length):
    return identical(collapsed, ((length, 0),) if count == 1 else ((count, 1), (length, 0)))


def _cut_obstacle(merged):
    """Whether all reads fit one nest: every stride change lies on a boundary of its loops."""
    row = merged.row
    if row and merged.across:
        return "an operand is read across memory, in tiles, not in rows"
    boundaries = set(merged.cuts["full"])
    if merged.cuts["row"] or row:
        boundaries |= {c * row for c in merged.cuts["row"]} | {row}
    if merged.outer > 1:
        boundaries.add(merged.size // merged.outer)
    if any(not identical(c, row) for c in merged.cuts["column"]):
        return "a strided read beside column sums"
    last = 1
    for c in sorted(boundaries, key=estimated):
        if not (divides(last, c) and divides(c, merged.size)):
            return f"strides change after {last} and after {c} elements"
        if row and not divides(row, c):
            return f"a stride changes after {c} elements, inside a row of {row}"
        last = c
    return None


# --- siblings -------------------------------------------------------------------------------------------------------
def _join_siblings(state):
    """Groups that read the same memory over domains of one size become one: the memory is read once."""
    readers = {}
    for group in list({g.number: g for g in state.group_of.values()}.values()):
        if group.kind != "loop":
            continue
        for value in group.values:
            for read in state.reads.by_value[value.number]:
                base = read.access.base
                if (
                    read.fusable
                    and is_contiguous(read.access.collapsed)
                    and identical(read.access.size, group.size)
                    and group.size > 1
                ):
                    readers.setdefault(base.number, {})[value.number] = value
    for values in readers.values():
        first, *rest = values.values()
        for value in rest:
            x, y = state.group_of[first.number], state.group_of[value.number]
            if x is y:
                continue
            if _obstacle(state, x, y) is None:
                if state.precedence.feeds(y, x):
                    x, y = y, x
                merged, _ = _joined(state, x, y)
                if merged is not None:
                    state.join(x, y, merged)


def _group_text(g):
    names = ", ".join(f"%{v.number} {v.op.name}" for v in g.values)
    if g.kind != "loop":
        return f"group {g.number} {g.kind}: {names}"
    parts = [f"{g.size} elements"] + ([f"rows of {g.row}"] if g.row else [])
    return f"group {g.number} ({', '.join(parts)}): {names}"
