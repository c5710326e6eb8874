"""Which kernels and products threads share, how they are cut, and where threads wait for each other.

Only work that no two threads can disagree about is cut: elements that depend on nothing but the inputs, and elements of
a product, each of which is a sum of its own. No sum is ever cut, so results have the same bits for any number of
threads. Kernels that check something are not cut.

    rows         the outermost loop of a kernel; rows of a product
    columns      the elements of the rows, whatever loops are around them; columns of a product
    matrices     of a batch of products

All threads run the whole program. A wait takes longer than a small kernel, and so does reading what another thread has
just written: 64 bytes from the cache of another core took 3 to 10 ns, and the elementwise work on them 1 ns. So threads
keep what is theirs from step to step, where nobody waits: the features of a batch of examples (columns of activations,
and rows of weights and their gradients, which are stored by output feature), or the examples if they are many. Of the
ways to cut a kernel, the one is taken that touches what the steps before it left to each thread (see regions.py).

How long work takes is estimated from the work alone; how many threads there are is known when the program runs.
"""

from dataclasses import dataclass
from math import prod

from .dtypes import element_of
from .loopnest import (
    Accumulate,
    Apply,
    Constant,
    Cut,
    Extreme,
    Load,
    Loop,
    Position,
    Reduce,
    Scalar,
    Store,
    Sweep,
    Update,
    statements,
)
from .regions import Part, conflict

# One step of this estimated time makes sharing pay; then others are shared too.
_LARGE_NS = 4000
# What it takes to wait for another thread that is just as fast, and to fetch what it has written.
_WAIT_NS, _MOVE_NS_PER_BYTE = 300, 0.15
# Between two waits no thread gets less, on average, if there are more than two.
_PART_NS = 1000

# Rows and columns that threads get at once: those of a tile of emit/gemm.py with AVX-512, and a cache line of f32.
ROWS, COLUMNS = 8, 16
# Fewer columns are not cut, and more rows than this are cut in place of columns.
FEW_COLUMNS, MANY_ROWS = 64, 512

# Rough costs of one vector of 64 bytes, and of products, on one core of the machine docs/architecture.md names.
_MEMORY_NS, _GATHER_NS, _CHEAP_NS, _DIVIDE_NS, _FUNCTION_NS = 0.3, 5.0, 0.2, 3.0, 4.0
_COSTS_NS = {"cheap": _CHEAP_NS, "divide": _DIVIDE_NS, "remainder": _DIVIDE_NS, "function": _FUNCTION_NS}
_FLOPS_PER_NS = {"f32": 100, "f64": 50}
_BYTES_PER_NS = 50


@dataclass(frozen=True, slots=True)
class Work:
    """A step as this file sees it. `cost`: estimated nanoseconds; `cuts(owners)`: the Cuts to choose from, best first,
    given who wrote its memory last (place -> Part, ...); `touches(cut)`: its Touches, cut or not."""

    cost: float
    cuts: object
    touches: object


@dataclass(frozen=True, slots=True)
class Team:
    """How a program is shared: per step its Cut (None: the caller does it alone) and whether all wait before it;
    how many threads it has use for, and its estimated shared work."""

    cuts: tuple
    waits: tuple
    most: int
    ahead_ns: int


def share(works):
    """The Team of a program's steps, or None if sharing does not pay."""
    if not any(w.cost >= _LARGE_NS and w.cuts({}) for w in works):
        return None
    since_wait, owners, cuts, waits = [], {}, [], []
    for work in works:
        cut, touches = _choose(work, since_wait, owners)
        waits.append(conflict(touches, since_wait))
        since_wait = touches if waits[-1] else since_wait + touches
        for t in touches:
            if t.writes:
                owners[t.place] = t.by
            else:
                # What a step reads, the step before it in a loop left so, more likely than not.
                owners.setdefault(t.place, t.by)
        cuts.append(cut)
    shared_ns = sum(w.cost for w, cut in zip(works, cuts) if cut)
    most = max(2, int(shared_ns / _PART_NS / (1 + sum(waits))))
    return Team(tuple(cuts), tuple(waits), most, int(shared_ns))


def _choose(work, since_wait, owners):
    """(cut or None, touches) of the next step: the way that takes the least time in two threads."""
    ways = [(work.cost, None)] + [(work.cost / 2, cut) for cut in work.cuts(owners)]
    timed = []
    for cost, cut in ways:
        touches = work.touches(cut)
        waiting = _WAIT_NS if conflict(touches, since_wait) else 0
        timed.append((cost + waiting + _moving_ns(touches, owners), cut, touches))
    # The first of the best.
    _, cut, touches = min(timed, key=lambda way: way[0])
    return cut, touches


def _moving_ns(touches, owners):
    """The time it takes to fetch from other threads' caches what they own of what is touched, half of it."""
    owned = [(t, owners.get(t.place)) for t in touches]
    moved = sum(t.n_bytes for t, owner in owned if isinstance(owner, Part) and owner != t.by)
    return moved / 2 * _MOVE_NS_PER_BYTE


# --- products ---------------------------------------------------------------------------------------------------------
def product_cost_ns(value):
    left, right = value.operands
    element, size = element_of(value.dtype), value.dtype.size_bytes
    n_bytes = size * sum(prod(v.shape) for v in (value, left, right))
    return max(2 * prod(value.shape) * left.shape[-1] / _FLOPS_PER_NS[element], n_bytes / _BYTES_PER_NS)


# --- kernels ----------------------------------------------------------------------------------------------------------
def kernel_cost_ns(kernel):
    return _cost_ns(kernel.body, kernel.lanes)


def kernel_cuts(kernel, aliases, wished):
    """The Cuts of a kernel, best first. `aliases`: for parameters that point to the memory of another one, that other;
    `wished`: (element bytes, Part) of what it touches and other steps have cut."""
    every = list(statements(kernel.body))
    if kernel.checks or any(isinstance(s, Update) for s in every) or not _is_in_step(every, aliases):
        return []
    rows, columns = _rows(kernel.body), _columns(kernel, every)
    flat = _flat(kernel, columns, wished)
    n_rows = prod(s.extent for s in every if isinstance(s, Loop))
    return columns + flat + rows if not rows or n_rows <= MANY_ROWS else rows + columns + flat


def _is_in_step(every, aliases):
    """Whether all that is stored is read and written at one position of the loops only."""
    stored = {aliases.get(s.parameter, s.parameter) for s in every if isinstance(s, Store)}
    positions = {}
    for s in every:
        if isinstance(s, (Load, Store, Extreme)):
            name = aliases.get(s.parameter, s.parameter)
            if name in stored:
                positions.setdefault(name, set()).add((s.at, getattr(s, "indices", ())))
    return all(len(found) == 1 for found in positions.values())


def _rows(body):
    """The cuts of a kernel that is one nest of loops, by its outermost loop."""
    *before, nest = body
    if not all(isinstance(s, _PURE) for s in before) or not isinstance(nest, Loop) or nest.columns:
        return []
    units = [1] + [u for u in (ROWS, COLUMNS) if nest.extent >= FEW_COLUMNS]
    return [Cut("rows", u, -(-nest.extent // u)) for u in units]


def _columns(kernel, every):
    """The cut of a kernel that does the same for every column of its rows."""
    columns = [c for s in every if isinstance(s, Loop) for c in s.columns]
    extents = {s.extent for s in kernel.sweeps} | {c.extent for c in columns}
    across = any(isinstance(s, (Reduce, Extreme)) for s in every) or _stores_numbers(kernel.body)
    if len(extents) != 1 or across or min(extents) < FEW_COLUMNS or len({s.unrolled for s in kernel.sweeps}) > 1:
        return []
    (extent,) = extents
    return [Cut("columns", COLUMNS, -(-extent // COLUMNS))]


def _flat(kernel, columns, wished):
    """Cuts of one long sweep that give every thread what another step gave it: whole rows, or columns."""
    if not columns or any(isinstance(s, Loop) for s in kernel.body) or kernel.sweeps[0].unrolled:
        return []
    extent, found = kernel.sweeps[0].extent, []
    for size, part in wished:
        ((distance, rows),) = part.others if len(part.others) == 1 else ((0, 1),)
        is_all = part.start == 0 and part.step == size and part.extent * rows == extent
        in_vectors = part.unit % kernel.lanes == 0 or part.unit >= part.extent
        if is_all and in_vectors and distance in (0, part.extent * size):
            found.append(Cut("columns", part.unit, part.units, rows))
    return found


def _stores_numbers(body):
    """Whether something is stored outside sweeps."""
    return any(isinstance(s, Store) or (isinstance(s, Loop) and _stores_numbers(s.body)) for s in body)


_PURE = (Constant, Scalar, Load, Position, Apply)


def _cost_ns(body, lanes):
    total = 0.0
    for s in body:
        if isinstance(s, Loop):
            total += s.extent * _cost_ns(s.body, lanes)
        elif isinstance(s, Sweep):
            total += -(-s.extent // lanes) * _cost_ns(s.body, lanes)
        else:
            total += _statement_ns(s)
    return total


def _statement_ns(s):
    if isinstance(s, (Load, Store)):
        return _GATHER_NS if s.at.lane > 1 or getattr(s, "indices", ()) else _MEMORY_NS
    if isinstance(s, Accumulate):
        return 2 * _MEMORY_NS
    if isinstance(s, Extreme):
        return s.count * _MEMORY_NS
    return _COSTS_NS[s.op.cost] if isinstance(s, Apply) else _CHEAP_NS
