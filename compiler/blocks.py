"""Kernels that sum much become several, so that threads can share the sums.

The order of sums closes a block every 2048 elements of a row, or every 128 rows of columns (emit/reduce.py). A block
depends on nothing but its elements, so any thread may do it; what it leaves, the lanes or the columns, is then folded
in the one order:

    for b < blocks { sweep over block b        }      shared; stores what every lane holds
    sweep over the lanes of all blocks                the result, and what is computed from it
    for b < blocks { sweep over block b        }      the next pass over the row, and so on

    for b < blocks { for the rows of block b   }      shared; stores the sum of every column
    for the sums of blocks, as rows                   shared by columns; the results and what is computed from them

Loops that stand one after the other, such as those over chunks of wide rows and over what is left of them, the parts of
a join, or a copy and what is added to it at computed places, become kernels each: threads share what is one nest. Other
reductions go by blocks too if their steps do not round (ops/reduction.py: Combine). Pieces of a kernel are kernels;
what lies between them is memory like that of any value, and threads wait where they must (regions.py).
"""

from dataclasses import dataclass, replace
from math import prod

from .dtypes import SIZES
from .emit.reduce import BLOCK_ELEMENTS, BLOCK_ROWS, VIRTUAL_LANES
from .extent import estimated
from .loopnest import (
    Accumulate,
    Apply,
    At,
    Block,
    Column,
    Constant,
    Extreme,
    Kernel,
    Load,
    Loop,
    Parameter,
    Position,
    Reduce,
    Scalar,
    Store,
    StoreLanes,
    Sweep,
    Update,
    statements,
)

_NUMBERS = (Constant, Scalar, Load, Position, Apply)
# With so many rows threads share the rows.
_MANY_ROWS = 8
# Positions of extremes have no order that could be seen.
_EXTREME_BLOCK = 4096
_MOST_NESTS = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A kernel that does a part of another one's work. `sources`: what each parameter is: ("given", number of the
    other's parameter), ("partial", number of the memory between pieces) or ("scratch", bytes); `is_fold`: whether it is
    what cannot be shared."""

    kernel: Kernel
    sources: tuple
    is_fold: bool = False


@dataclass(frozen=True, slots=True)
class Pieces:
    """`partials`: (elements, element in memory) of the memory between them."""

    pieces: tuple
    partials: tuple


def in_blocks(kernel, scratch, target):
    """The Pieces of a kernel; None where it has no sums that threads could share, or shares its work otherwise.
    `scratch`: bytes of its scratch parameters by name."""
    if kernel.by_vectors:
        return None
    preamble, outer, inner = _nest(kernel.body)
    if prod(estimated(loop.extent) for loop in outer) >= _MANY_ROWS:
        return None
    split = _Split(kernel, scratch, preamble, outer)
    if kernel.checks:
        split.nests([] if outer else _nests(inner, scratch))
    elif _is_row(inner):
        split.row(inner)
    elif _is_extreme(inner):
        split.extreme(*inner)
    elif _is_columns(inner) and _shares_no_columns(kernel, inner, target):
        split.columns(*inner)
    elif not outer:
        split.nests(_nests(inner, scratch))
    return Pieces(tuple(split.pieces), tuple(split.partials)) if split.pieces else None


def _nest(body):
    """(numbers before all loops, the loops that stand around everything else, what is in the innermost of them)."""
    start = next((k for k, s in enumerate(body) if not isinstance(s, _NUMBERS)), len(body))
    preamble, inner, outer = body[:start], body[start:], []
    while len(inner) == 1 and isinstance(inner[0], Loop) and not (inner[0].columns or inner[0].split):
        outer.append(inner[0])
        inner = inner[0].body
    return preamble, outer, inner


def _nests(body, scratch):
    """Loops that stand one after the other, each with what follows it up to the next: columns in chunks and those left
    over, tiles and what does not fill one, parts of a join. A sweep is one too, unless it reads what stands before it.
    Empty where they are not independent, one or very many."""
    nests = []
    for s in body:
        if isinstance(s, Loop) or (isinstance(s, Sweep) and not (nests and _depends(s, nests[-1], scratch))):
            nests.append([])
        if not nests:
            return []
        nests[-1].append(s)
    pairs = [(j, k) for j in range(len(nests)) for k in range(len(nests)) if j != k]
    is_plain = all(isinstance(s, (Sweep, Loop, Store, Update, Accumulate, Reduce, *_NUMBERS)) for s in statements(body))
    apart = all(not any(_depends(s, nests[k], scratch) for s in nests[j]) for j, k in pairs)
    return nests if is_plain and apart and 1 < len(nests) <= _MOST_NESTS else []


def _depends(s, nest, scratch):
    """Whether a statement reads registers of a nest, or both use the same scratch memory."""
    names = {x.name for x in statements(nest) if hasattr(x, "name")}
    names |= {c.name for x in statements(nest) for c in getattr(x, "columns", ())}
    read = {k for x in statements([s]) for k in _read_names(x)}
    own = {*_used([s])} & {*_used(nest)} & set(scratch)
    return bool(own) or not names.isdisjoint(read - {x.name for x in statements([s]) if hasattr(x, "name")})


def _is_row(inner):
    """Whether it is passes over one long row, some of which reduce it."""
    sweeps = [s for s in inner if isinstance(s, Sweep)]
    reduces = [x for s in sweeps for x in s.body if isinstance(x, Reduce)]
    return (
        len({s.extent for s in sweeps}) == 1
        and all(isinstance(s, (Sweep, Store, *_NUMBERS)) for s in inner)
        and all(isinstance(x, (Reduce, Store, *_NUMBERS)) for s in sweeps for x in s.body)
        and not any(s.unrolled for s in sweeps)
        and estimated(sweeps[0].extent) >= 2 * BLOCK_ELEMENTS
        and all(x.op.lower.goes_by_blocks(x.element) for x in reduces)
        and bool(reduces)
    )


def _is_extreme(inner):
    """Whether it is the position of the first extreme of one long row."""
    return (
        [type(s) for s in inner] == [Extreme, Store]
        and inner[0].stride == 1
        and estimated(inner[0].count) >= 2 * _EXTREME_BLOCK
    )


def _is_columns(inner):
    """Whether it is a loop over many rows that sums columns, and what is computed from these."""
    rows, *numbers, sweep = inner if len(inner) > 1 else (None, None)
    return (
        isinstance(rows, Loop)
        and isinstance(sweep, Sweep)
        and bool(rows.columns)
        and all(isinstance(s, _NUMBERS) for s in numbers)
        and all(isinstance(s, (Sweep, Loop, Store, Accumulate, Reduce, *_NUMBERS)) for s in statements(inner))
        and estimated(rows.extent) >= 2 * BLOCK_ROWS
        and all(c.op.lower.goes_by_blocks(c.element) for c in rows.columns)
    )


def _shares_no_columns(kernel, inner, target):
    """Whether columns depend on each other, in rows that are reduced too, or are too few for threads to share."""
    extents = {estimated(c.extent) for c in inner[0].columns} | {estimated(s.extent) for s in kernel.sweeps}
    across = any(isinstance(s, Reduce) for s in statements(inner)) or len({s.unrolled for s in kernel.sweeps}) > 1
    numbers = any(isinstance(s, Store) for s in inner[0].body)
    return across or numbers or len(extents) > 1 or min(extents) < target.few_columns


class _Split:
    """The pieces of one kernel while they are written. Loops `outer` stand around everything."""

    def __init__(self, kernel, scratch, preamble, outer):
        self.kernel, self.scratch, self.preamble, self.outer = kernel, scratch, preamble, outer
        self.given = {p.name: (p, k) for k, p in enumerate(kernel.parameters)}
        self.partial_of, self.partials, self.pieces = {}, [], []
        self.n_rows = prod(loop.extent for loop in outer)
        self.count = max((s.name for s in statements(kernel.body) if hasattr(s, "name")), default=0) + 1
        self.count = max(
            [self.count, *(c.name + 1 for s in statements(kernel.body) for c in getattr(s, "columns", ()))]
        )

    def fresh(self):
        self.count += 1
        return self.count - 1

    # --- memory between pieces ----------------------------------------------------------------------------------------
    def partial(self, count, element, name=None):
        """The parameter for `count` elements that one piece writes and others read."""
        element = "i8" if element == "i1" else element
        name = name or f"q{len(self.partials)}"
        self.partial_of[name] = Parameter(name, element), len(self.partials)
        self.partials.append((count, element))
        return name

    def at_row(self, count, *terms, lane=0):
        """The position of an iteration of the outer loops, each of which has `count` elements."""
        steps = []
        for loop in reversed(self.outer):
            steps.append((loop.index, count))
            count = count * loop.extent
        return At(0, (*reversed(steps), *terms), lane)

    # --- pieces -------------------------------------------------------------------------------------------------------
    def fold(self, before, body, **facts):
        """A kernel of the statements `before`, and of `body` in the outer loops."""
        for loop in reversed(self.outer):
            body = [replace(loop, body=tuple(body))]
        self.add((*before, *body), is_fold=True, **facts)

    def add(self, body, is_fold=False, **facts):
        parameters, sources = [], []
        for name in _used(body):
            if name in self.partial_of:
                parameter, number = self.partial_of[name]
                source = "partial", number
            else:
                parameter, number = self.given[name]
                source = ("scratch", self.scratch[name]) if name in self.scratch else ("given", number)
            parameters.append(parameter)
            sources.append(source)
        kernel = Kernel(tuple(parameters), self.kernel.lanes, tuple(body), scalars=self.kernel.scalars, **facts)
        self.pieces.append(Piece(kernel, tuple(sources), is_fold))

    def nests(self, nests):
        """Nests that do not touch each other are kernels, which threads share one after the other."""
        for nest in nests:
            indexed = any(isinstance(s, Update) or getattr(s, "indices", ()) for s in statements(nest))
            checked = any(isinstance(s, Apply) and s.op.checks for s in statements(nest))
            self.add((*self.preamble, *nest), checks=self.kernel.checks and (indexed or checked))

    def shared(self, before, n_blocks, body):
        """A kernel whose outermost loop does a block in each iteration."""
        for loop in reversed(self.outer):
            body = [replace(loop, body=tuple(body))]
        self.add((*before, Loop("b", n_blocks, tuple(body))))

    # --- rows ---------------------------------------------------------------------------------------------------------
    def row(self, inner):
        """One piece for every pass over the row, and between them what is computed once per row."""
        extent = next(s.extent for s in inner if isinstance(s, Sweep))
        inner = self.with_shared_rows(inner, extent)
        self.numbers, self.results, self.folds = {}, {}, []
        stores = []
        for s in inner:
            if isinstance(s, Sweep):
                self.flush([])
                self.one_pass(s, -(-extent // BLOCK_ELEMENTS))
            elif isinstance(s, Store):
                stores.append(s)
            else:
                self.numbers[s.name] = s
        if self.folds or stores:
            self.flush(stores)

    def with_shared_rows(self, inner, extent):
        """Rows that one pass keeps for a later one are no scratch memory of a thread."""
        kept = {s.parameter for s in statements(inner) if isinstance(s, (Load, Store))} & set(self.scratch)
        for name in sorted(kept):
            element = self.given[name][0].element
            self.partial(self.n_rows * (self.scratch[name] // SIZES[element]), element, name)
        row = self.at_row(extent).terms

        def moved(s):
            if isinstance(s, Sweep):
                return replace(s, body=tuple(map(moved, s.body)))
            if getattr(s, "parameter", None) in kept:
                return replace(s, at=At(s.at.constant, (*row, *s.at.terms), s.at.lane))
            return s

        return [moved(s) for s in inner]

    def one_pass(self, sweep, n_blocks):
        reduces, lanes = [x for x in sweep.body if isinstance(x, Reduce)], []
        for x in reduces:
            count = n_blocks * VIRTUAL_LANES
            name = self.partial(self.n_rows * count, x.element)
            lanes.append(StoreLanes(name, self.at_row(count, ("b", VIRTUAL_LANES)), x.name))
            load = Load(self.fresh(), name, self.at_row(count, lane=1), x.element)
            fold = Sweep(count, (load, replace(x, value=load.name)), closing=VIRTUAL_LANES)
            self.folds.append((x, fold))
        before, row = self.needed(sweep.body)
        if not self.outer:
            before, row = before + row, []
        self.shared(before, n_blocks, [*row, replace(sweep, block=Block("b", BLOCK_ELEMENTS)), *lanes])

    def flush(self, stores):
        """What the last pass has left: its results, for later passes, or for what is stored at the end."""
        folds, self.folds = self.folds, []
        if not folds and not stores:
            return
        body = [fold for _, fold in folds]
        before, row = self.needed(stores)
        if stores:
            self.fold(before, [*body, *row, *stores])
            return
        for x, _ in folds:
            name = self.partial(self.n_rows, x.element)
            body.append(Store(name, self.at_row(1), x.name))
            self.results[x.name] = Load(x.name, name, self.at_row(1), x.element)
        self.fold((), body)

    def needed(self, body):
        """The numbers that statements need: those before all loops, and those of a row."""
        known = {s.name: s for s in self.preamble} | self.results | self.numbers
        found, pending = set(), [k for s in body for k in _read_names(s)]
        while pending:
            name = pending.pop()
            if name in known and name not in found:
                found.add(name)
                pending += _read_names(known[name])
        before = [s for s in self.preamble if s.name in found]
        row = [s for s in (*self.results.values(), *self.numbers.values()) if s.name in found]
        return before, row

    # --- positions of extremes ----------------------------------------------------------------------------------------
    def extreme(self, whole, store):
        """Lanes of (extreme, position); then the first extreme of those."""
        n_blocks = -(-whole.count // _EXTREME_BLOCK)
        count, best = n_blocks * VIRTUAL_LANES, self.fresh()
        extremes = self.partial(self.n_rows * count, self.given[whole.parameter][0].element)
        positions = self.partial(self.n_rows * count, "i64")
        block = replace(whole, block=Block("b", _EXTREME_BLOCK), best=best)
        at = self.at_row(count, ("b", VIRTUAL_LANES))
        lanes = [StoreLanes(extremes, at, best), StoreLanes(positions, at, whole.name)]
        self.shared(self.preamble, n_blocks, [block, *lanes])
        last = replace(whole, parameter=extremes, at=self.at_row(count), count=count, positions=positions)
        self.fold(self.preamble, [last, store])

    # --- columns ------------------------------------------------------------------------------------------------------
    def columns(self, rows, *rest):
        *numbers, epilogue = rest
        n_blocks, width = -(-rows.extent // BLOCK_ROWS), rows.columns[0].extent
        columns = [replace(c, storage=c.storage[:1]) for c in rows.columns]
        stores, loads = [], []
        for c in columns:
            name, count = self.partial(self.n_rows * n_blocks * width, c.element), n_blocks * width
            total = Load(self.fresh(), c.storage[0], At(0, (), 1), c.element) if c.storage else None
            stores += [total] if total else []
            at = self.at_row(count, ("b", width), lane=1)
            stores.append(Store(name, at, total.name if total else c.name))
            load = Load(self.fresh(), name, self.at_row(count, ("k", width), lane=1), c.element)
            loads += [load, Accumulate(c.name, load.name)]
        block = replace(rows, columns=tuple(columns), block=Block("b", BLOCK_ROWS))
        self.shared(self.preamble, n_blocks, [block, Sweep(width, tuple(stores), epilogue.unrolled)])
        folded = tuple(Column(c.name, c.op, c.element, width) for c in columns)
        fold = Loop("k", n_blocks, (Sweep(width, tuple(loads), unrolled=True),), folded, closing=1)
        last = Sweep(width, tuple(_without_storage(epilogue.body, columns)), unrolled=True)
        self.fold(self.preamble, [fold, *numbers, last], by_vectors=True)


def _without_storage(body, columns):
    """Statements that read the results of columns from registers instead of memory."""
    name_of = {c.storage[0]: c.name for c in columns if c.storage}
    renamed = {s.name: name_of[s.parameter] for s in body if isinstance(s, Load) and s.parameter in name_of}
    for s in body:
        if isinstance(s, Load) and s.name in renamed:
            continue
        if isinstance(s, Apply):
            s = replace(s, operands=tuple(renamed.get(k, k) for k in s.operands))
        elif isinstance(s, Store):
            s = replace(s, value=renamed.get(s.value, s.value))
        yield s


def _read_names(s):
    """The registers that a statement reads."""
    if isinstance(s, Apply):
        return list(s.operands)
    if isinstance(s, (Store, Reduce, StoreLanes, Accumulate)):
        return [s.value]
    if isinstance(s, Update):
        return [s.value, s.index.name]
    return [i.name for i in s.indices] if isinstance(s, Load) else []


def _used(body):
    """The parameters of statements, in order."""
    names = {}
    for s in statements(body):
        if isinstance(s, Loop):
            names.update((name, None) for c in s.columns for name in c.storage)
        elif hasattr(s, "parameter"):
            names[s.parameter] = None
            if getattr(s, "positions", None):
                names[s.positions] = None
    return list(names)
