"""Which kernels and products threads share, how they are cut, and where threads wait for each other.

Only work that no two threads can disagree about is cut: elements that depend on nothing but the inputs, blocks of sums
that blocks.py has made kernels of, and elements of a product, each of which is a sum of its own. So results have the
same bits for any number of threads. What is put or added at computed places is cut if the places of different threads
are others whatever is computed.

    rows         the outermost loop of a kernel, which may be one over blocks; rows of a product
    columns      the elements of the rows, whatever loops are around them; columns of a product
    matrices     of a batch of products

All threads run the whole program. A wait takes longer than a small kernel, and so does reading what another thread has
just written: 64 bytes from the cache of another core took 3 to 10 ns, and the elementwise work on them 1 ns. So threads
keep what is theirs from step to step, where nobody waits: the features of a batch of examples (columns of activations,
and rows of weights and their gradients, which are stored by output feature), or the examples if they are many. Of the
ways to cut a kernel, the one is taken that touches what the steps before it left to each thread (see regions.py).

How long work takes is estimated from the work alone; how many threads there are is known when the program runs.
"""

from dataclasses import dataclass, replace
from math import prod

from .dtypes import element_of
from .emit.pool_memory import MOST_WAITS
from .emit.vector import is_small
from .extent import estimated, is_open, may_be_less
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
    StoreLanes,
    Sweep,
    Update,
    statements,
)
from .regions import Part, Touched, walk

# No program for many sizes is made for more than this.
_LARGEST = 1 << 24


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
    how many threads it has use for, its estimated shared work, and that of its largest step if only the call tells
    whether it pays to share it."""

    cuts: tuple
    waits: tuple
    most: int
    ahead_ns: int
    largest_ns: object = None

    def for_extent(self, scope):
        """The same of a program for many sizes, with extents in place of estimates: work is proportional to them."""
        number = estimated(scope.work)
        most, ahead, largest = (x * scope.work // number for x in (self.most, self.ahead_ns, int(self.largest_ns)))
        return replace(self, most=most, ahead_ns=ahead, largest_ns=largest)


def share(works, target):
    """The Team of a program's steps; None if sharing does not pay, or if threads had to wait for each other more often
    than the pool can count."""
    if not any(w.cost >= target.large_ns and w.cuts({}) for w in works):
        return None
    since_wait, owners, cuts, waits = Touched(), {}, [], []
    for work in works:
        cut, touches = _choose(work, since_wait, owners, target)
        waits.append(since_wait.conflicts(touches))
        if waits[-1]:
            since_wait = Touched()
        since_wait.add(touches)
        for t in touches:
            if t.writes:
                owners[t.place] = t.by
            else:
                # What a step reads, the step before it in a loop left so, more likely than not.
                owners.setdefault(t.place, t.by)
        cuts.append(cut)
    if sum(waits) > MOST_WAITS:
        return None
    shared_ns = sum(w.cost for w, cut in zip(works, cuts) if cut)
    most = max(2, int(shared_ns / target.part_ns / (1 + sum(waits))))
    return Team(tuple(cuts), tuple(waits), most, int(shared_ns), max(w.cost for w, cut in zip(works, cuts) if cut))


def estimate_for_large(works, lowered, scope, target):
    """Of a program for many sizes: estimate times for an n for which sharing pays, if it does for any."""
    shareable = [step for work, step in zip(works, lowered) if work.cuts({})]
    number = next(iter(scope.extents.values())).number
    most = max((work.cost for work in works if work.cuts({})), default=0)
    while 0 < most < target.large_ns and number < _LARGEST:
        number = min(max(2 * number, int(number * target.large_ns / most)), _LARGEST)
        scope.estimate_for(number)
        most = max(step.cost_ns(target) for step in shareable)


def _choose(work, since_wait, owners, target):
    """(cut or None, touches) of the next step: the way that takes the least time in two threads."""
    ways = [(work.cost, None)] + [(work.cost / 2, cut) for cut in work.cuts(owners)]
    timed = []
    for cost, cut in ways:
        touches = work.touches(cut)
        waiting = target.wait_ns if since_wait.conflicts(touches) else 0
        timed.append((cost + waiting + _moving_ns(touches, owners, target), cut, touches))
    # The first of the best.
    _, cut, touches = min(timed, key=lambda way: way[0])
    return cut, touches


def _moving_ns(touches, owners, target):
    """The time it takes to fetch from other threads' caches what they own of what is touched, half of it."""
    owned = [(t, owners.get(t.place)) for t in touches]
    moved = sum(estimated(t.n_bytes) for t, owner in owned if isinstance(owner, Part) and owner != t.by)
    return moved / 2 * target.move_ns_per_byte


# --- products ---------------------------------------------------------------------------------------------------------
def product_cost_ns(value, target):
    left, right = value.operands
    element, size = element_of(value.dtype), value.dtype.size_bytes
    n_bytes = estimated(size * sum(prod(v.shape) for v in (value, left, right)))
    n_flops = estimated(2 * prod(value.shape) * left.shape[-1])
    return max(n_flops / target.flops_per_ns[element], n_bytes / target.bytes_per_ns)


# --- kernels ----------------------------------------------------------------------------------------------------------
def kernel_cost_ns(kernel, target):
    return _cost_ns(kernel.body, kernel.lanes, target)


def kernel_cuts(kernel, aliases, wished, target):
    """The Cuts of a kernel, best first. `aliases`: parameter -> the first one that points to the same memory, without
    scratch memory, of which every thread has its own; `wished`: (element bytes, Part) of what it touches and other
    steps have cut."""
    every = list(statements(kernel.body))
    if kernel.has_blocks:
        return _rows(kernel.body, target)[:1] if _is_in_step(kernel.body, aliases) else []
    if any(isinstance(s, Update) for s in every):
        return _cuts_of_update(kernel, every, aliases, target)
    if not _is_in_step(kernel.body, aliases):
        # In this order: what is no single nest need not ask extents that only the call tells.
        rows = _rows(kernel.body, target)
        return rows if rows and _stays_in_rows(kernel.body, aliases) else []
    rows, columns = _rows(kernel.body, target), _columns(kernel, every, target)
    flat = _flat(kernel, columns, wished)
    n_rows = estimated(prod(s.extent for s in every if isinstance(s, Loop)))
    return columns + flat + rows if not rows or n_rows <= target.many_rows else rows + columns + flat


def _cuts_of_update(kernel, every, aliases, target):
    """By rows where every row has places of its own, by columns where every column has."""
    rows = _rows(kernel.body, target)
    rows = rows if rows and _stays_in_rows(kernel.body, aliases) else []
    stored = {s.parameter for s in every if isinstance(s, (Store, Update))}
    touched = [aliases.get(s.parameter, s.parameter) for s in every if isinstance(s, (Load, Store, Extreme, Update))]
    is_alone = all(touched.count(aliases.get(name, name)) == 1 for name in stored)
    own = is_alone and all(_stays_in_columns(s, kernel.sweeps) for s in every if isinstance(s, Update))
    return rows + (_columns(kernel, every, target) if own else [])


def _stays_in_columns(s, sweeps):
    """Whether what an Update of a sweep touches are whole rows, element by element, whatever the index is."""
    step, extent = s.at.lane, sweeps[0].extent if sweeps else 0
    others = [c for _, c in s.at.terms] + [s.index.stride]
    return step == 1 and not is_open(extent) and all(not is_open(c) and c % extent == 0 for c in others)


def _is_in_step(body, aliases):
    """Whether all that is stored is read and written at one position of the loops only, and what is read and written at
    no position twice: sums of windows that overlap need the order of the loops."""
    every = list(walk(body, (), None))
    stored = {aliases.get(s.parameter, s.parameter) for s, _, _ in every if isinstance(s, Store)}
    positions, read, stores = {}, set(), []
    for s, loops, sweep in every:
        if isinstance(s, (Load, Store, Extreme)):
            name = aliases.get(s.parameter, s.parameter)
            if name in stored:
                positions.setdefault(name, set()).add((s.at, getattr(s, "indices", ())))
            if isinstance(s, Store) and s.parameter in aliases:  # scratch memory is a thread's own
                stores.append((name, s.at, loops, sweep))
            elif not isinstance(s, Store):
                read.add(name)
    if any(len(found) > 1 for found in positions.values()):
        return False
    return all(_is_once(at, loops, sweep) for name, at, loops, sweep in stores if name in read)


def _is_once(at, loops, sweep):
    """Whether every iteration of the loops has a position of its own: every step goes past all that smaller ones
    reach."""
    steps, dims = dict(at.terms), [(at.lane, sweep.extent if sweep else 1)]
    blocks = {x.block.index for x in (*loops, sweep) if x and x.block}
    for loop in loops:
        if loop.index in blocks:
            continue  # its blocks are parts of another loop, or of the sweep
        own = [(loop.index, loop.extent)]
        parts = own if loop.index in steps or not loop.split else [(name, n) for name, _, n in loop.split]
        dims += [(steps.get(name, 0), n) for name, n in parts]
    reach = 0
    for step, extent in sorted((d for d in dims if may_be_less(1, d[1])), key=lambda d: estimated(d[0])):
        if may_be_less(step, reach + 1):
            return False
        reach += step * (extent - 1)
    return True


def _stays_in_rows(body, aliases):
    """Whether every iteration of the outermost loop reads and writes of what is stored a stretch of its own."""
    outermost, found = body[-1], {}
    if not isinstance(outermost, Loop):
        return False
    uses = [
        (aliases.get(s.parameter, s.parameter), s, loops, sweep)
        for s, loops, sweep in walk(body, (), None)
        if isinstance(s, (Load, Store, Extreme, Update))
    ]
    stored = {name for name, s, _, _ in uses if isinstance(s, (Store, Update))}
    for name, s, loops, sweep in uses:
        if name in stored:
            found.setdefault(name, []).append(_stretch(s, outermost, loops, sweep))
    return all(_fit(stretches) for stretches in found.values())


def _fit(stretches):
    steps = {None if s is None else s[0] for s in stretches}
    return len(steps) == 1 and None not in steps and all(0 <= first <= last < step for step, first, last in stretches)


def _stretch(s, outermost, loops, sweep):
    """(step of the outermost loop, first and last element from there) of a statement; None if it cannot be told."""
    if isinstance(s, Extreme) or getattr(s, "indices", ()) or any(loop.split for loop in loops):
        return None
    extents, step = {loop.index: loop.extent for loop in loops}, 0
    first = last = s.at.constant
    for name, c in (*s.at.terms, ("", s.at.lane)):
        if name == outermost.index:
            step += c
            continue
        reach = c * ((extents[name] if name else sweep.extent if sweep else 1) - 1)
        first, last = first + min(reach, 0), last + max(reach, 0)
    if isinstance(s, Update):
        last += s.index.stride * (s.index.size - 1)
    return step, first, last


def _rows(body, target):
    """The cuts of a kernel that is one nest of loops, by its outermost loop."""
    *before, nest = body
    if not all(isinstance(s, _PURE) for s in before) or not isinstance(nest, Loop) or nest.columns:
        return []
    units = [1] + [u for u in (target.tile_heights[0], target.columns) if estimated(nest.extent) >= target.few_columns]
    return [Cut("rows", u, -(-nest.extent // u)) for u in units]


def _columns(kernel, every, target):
    """The cut of a kernel that does the same for every column of its rows."""
    columns = [c for s in every if isinstance(s, Loop) for c in s.columns]
    extents = {s.extent for s in kernel.sweeps} | {c.extent for c in columns}
    across = any(isinstance(s, (Reduce, Extreme)) for s in every) or _stores_numbers(kernel.body)
    if (
        len(extents) != 1
        or across
        or min(map(estimated, extents)) < target.few_columns
        or len({s.unrolled for s in kernel.sweeps}) > 1
    ):
        return []
    (extent,) = extents
    # Whole vectors: one that begins in the columns of a thread would end in those of the next, or behind the row.
    unit = max(target.columns, kernel.lanes)
    return [Cut("columns", unit, -(-extent // unit))]


def _flat(kernel, columns, wished):
    """Cuts of one long sweep that give every thread what another step gave it: whole rows, or columns."""
    if not columns or any(isinstance(s, Loop) for s in kernel.body) or kernel.sweeps[0].unrolled:
        return []
    extent, found = kernel.sweeps[0].extent, []
    for size, part in wished:
        ((distance, rows),) = part.others if len(part.others) == 1 else ((0, 1),)
        is_all = part.start == 0 and part.step == size and part.extent * rows == extent
        in_vectors = part.unit % kernel.lanes == 0 or not may_be_less(part.unit, part.extent)
        if is_all and in_vectors and distance in (0, part.extent * size):
            found.append(Cut("columns", part.unit, part.units, rows))
    return found


def _stores_numbers(body):
    """Whether something is stored outside sweeps."""
    return any(isinstance(s, (Store, Update)) or (isinstance(s, Loop) and _stores_numbers(s.body)) for s in body)


_PURE = (Constant, Scalar, Load, Position, Apply)


def _cost_ns(body, lanes, target):
    total = 0.0
    for s in body:
        if isinstance(s, Loop):
            total += _positions(s) * _cost_ns(s.body, lanes, target)
        elif isinstance(s, Sweep):
            total += -(-_positions(s) // lanes) * _cost_ns(s.body, lanes, target)
        else:
            total += _statement_ns(s, target)
    return total


def _positions(s):
    """How many positions a Loop or Sweep goes through: of those over one block, not all there are."""
    extent = estimated(s.extent)
    return min(extent, s.block.size) if s.block is not None else extent


def _statement_ns(s, target):
    if isinstance(s, (Load, Store, StoreLanes)):
        if isinstance(s, Load) and is_small(s.at.lane) and not s.indices:
            return s.at.lane * target.memory_ns
        return target.gather_ns if s.at.lane > 1 or getattr(s, "indices", ()) else target.memory_ns
    if isinstance(s, Accumulate):
        return 2 * target.memory_ns
    if isinstance(s, Extreme):
        return estimated(s.count) * target.memory_ns
    return target.costs_ns[s.op.cost if isinstance(s, Apply) else "cheap"]
