"""From the loop-nest IR (compiler/loopnest.py) to LLVM IR: one function per kernel, no decisions.

The function takes its parameters as pointers, then arrays of run-time scalars. One that checks returns i1: whether
a check failed. Registers of statements outside sweeps hold their number in every lane.

A kernel with a cut takes two more numbers, and does the units first .. stop - 1 of its work: iterations of its
outermost loop, or some elements of all its sweeps. Where sweeps are unrolled, such a kernel does everything for one
vector of columns, then for the next.
"""

from dataclasses import replace

from ..dtypes import SIZES
from ..extent import is_open
from ..loopnest import (
    Apply,
    Constant,
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
from .ahead import rows_ahead
from .builder import F64, I8, I64, PTR, Builder, Type
from .reduce import (
    BLOCK_ELEMENTS,
    BLOCK_ROWS,
    extreme_lanes,
    extreme_of_lanes,
    fold,
    identity,
    is_compensated,
    reduce_block,
    reduce_block_of_columns,
    reduce_columns,
    reduce_row,
    unrolled_row,
)
from .streams import Streams
from .vector import Vector, halves_of, transposed


def emit_kernel(module, kernel, name):
    """Define the kernel's function in the module."""
    if kernel.mostly_moves:
        module.mostly_move.add(name)
    parameters = pointers_of(kernel) + ([("first", I64), ("stop", I64)] if kernel.cut else [])
    b = Builder(module, name, parameters, result="i1" if kernel.checks else "void", linkage="internal")
    write_kernel(b, kernel)


def pointers_of(kernel):
    """Names and types of the pointers that a function of the kernel takes."""
    scalars = ["scalars" if k == 0 else f"scalars{k}" for k in range(len(kernel.scalars))]
    return [(name, PTR) for name in (*[p.name for p in kernel.parameters], *scalars)]


def write_kernel(b, kernel):
    """What the function does, of the Builder's arguments: the pointers and, with a cut, the first unit and the last."""
    emission = _Emission(b, kernel)
    if kernel.cut and kernel.cut.along == "rows":
        emission.some_rows(kernel.body)
    elif kernel.by_vectors or (kernel.cut and kernel.sweeps[0].unrolled):
        emission.some_vectors(kernel.body, kernel.sweeps[0].extent)
    else:
        emission.block(kernel.body)
    emission.finish()


class _Emission:
    """Registers by name while one kernel is written."""

    def __init__(self, b, kernel):
        self.b, self.lanes = b, kernel.lanes
        self.pointers = {p.name: r for p, r in zip(kernel.parameters, b.arguments)}
        self.elements = {p.name: p.element for p in kernel.parameters}
        self.scalars = list(zip(kernel.scalars, b.arguments[len(kernel.parameters) :]))
        self.registers, self.vectors, self.accumulators = {}, {}, {}
        self.indices, self.columns, self.turned = {}, {}, {}
        self.ahead, self.streams = rows_ahead(kernel, b.module.target), Streams(b, kernel)
        # Before all loops: the stack is one for all their iterations.
        self.blocks = {x.name: self.block_for(s, x) for s, x, _ in _read_across(kernel.body) if b.loads_neighbours}
        self.cut, self.span, self.vector = kernel.cut, None, None
        if kernel.cut:
            whole = kernel.cut.along != "columns" or kernel.cut.unit % self.lanes == 0
            assert whole or kernel.cut.units == 1, "the columns of a thread end within a vector"
            unit = b.i64(kernel.cut.unit)
            self.span = [b.mul(edge, unit) for edge in b.arguments[-2:]]
        self.flag = b.start_checks() if kernel.checks else None

    def finish(self):
        self.streams.finish()
        if self.flag:
            self.b.finish_checks(self.flag)
        else:
            self.b.finish()

    def type(self, element):
        return self.b.vector(element, self.lanes)

    def fail_in(self, mask):
        """The `fail` of checked ops: lanes outside the row do not count."""

        def fail(bad):
            b = self.b
            bad = bad if mask is None else b.and_(bad, mask)
            # No `or` of memory: each would wait for the one before.
            with b.when(b.any_lane(bad) if bad.type.lanes else bad):
                b.store(b.const(1, I8), self.flag)

        return fail

    # --- statements outside sweeps ------------------------------------------------------------------------------------
    def block(self, body):
        for s in body:
            if isinstance(s, Loop):
                self.loop(s)
            elif isinstance(s, Sweep):
                self.sweep(s)
            else:
                self.number(s)

    def some_rows(self, body):
        """The units of a kernel that is cut along its outermost loop."""
        *before, nest = body
        self.block(before)
        (first, stop), self.span = self.span, None
        self.rows(nest, first, self.b.intrinsic("smin", stop, self.b.i64(nest.extent)))

    def some_vectors(self, body, extent):
        """The units of a kernel of unrolled sweeps, cut in columns."""
        b, lanes = self.b, self.lanes
        first, stop = (0, extent) if self.span is None else self.span
        if self.span is not None:
            stop = b.intrinsic("smin", stop, b.i64(extent))
        with b.loop(first, stop, lanes) as j:
            self.vector = (j, b.lane_mask(j, extent, lanes) if is_open(extent) or extent % lanes else None)
            self.block(body)

    def number(self, s):
        """A statement that computes one number, in all lanes, or stores one."""
        if isinstance(s, Store):
            b, element = self.b, self.elements[s.parameter]
            scalar = b.extract(self.registers[s.value], 0)
            b.store(b.convert(scalar, element), self.address(s.parameter, s.at))
            b.meet()
            return
        if isinstance(s, StoreLanes):
            self.store_lanes(s)
            return
        if isinstance(s, Update):
            self.update(s)
            return
        self.registers[s.name] = _NUMBERS[type(s)](self, s)

    def store_lanes(self, s):
        b, element = self.b, self.elements[s.parameter]
        place = self.address(s.parameter, s.at)
        for k, x in enumerate(self.registers[s.value]):
            b.store(b.convert(x, element), b.offset(place, k * self.lanes, SIZES[element]))

    def update(self, s):
        b, element = self.b, self.elements[s.parameter]
        place = self.updated_address(s)
        if place is not None:
            x = self.registers[s.value]
            if s.op is not None:
                before = b.convert(b.splat(b.load(place, Type(element)), self.lanes), x.type.element)
                x = s.op.lower(b, before, x)
            b.store(b.convert(b.extract(x, 0), element), place)
            b.meet()

    def updated_address(self, s):
        """Where an Update writes (a valid place even if the check fails), or None if there is no valid place."""
        index = self.checked_number(s.index)
        if s.index.size == 0:
            return None
        b, size = self.b, SIZES[self.elements[s.parameter]]
        return b.offset(self.address(s.parameter, s.at), b.mul(index, b.i64(s.index.stride)), size)

    def constant(self, s):
        return self.b.const(s.value, self.type(s.element))

    def scalar(self, s):
        b = self.b
        first, stretch = next((first, p) for first, p in reversed(self.scalars) if first <= s.slot)
        place = b.offset(stretch, s.slot - first, 8)
        if s.element == "f64":
            return b.splat(b.load(place, F64), self.lanes)
        number = b.load(place, I64)
        if s.element == "i1":
            number = b.cmp("ne", number, b.i64(0))
        return b.splat(number, self.lanes)

    def load_number(self, s):
        b, element = self.b, self.elements[s.parameter]
        place, empty = self.indexed_address(s)
        if empty:
            return b.const(0, self.type(s.element))
        return b.convert(b.splat(b.load(place, Type(element)), self.lanes), s.element)

    def position_number(self, s):
        return self.b.splat(self.sum_of(s.at), self.lanes)

    def extreme_number(self, s):
        """One row in vectors: every lane keeps its first extreme, then the lanes are compared. Of one block the lanes
        are kept as they are."""
        b, lanes = self.b, self.lanes
        t, places = self.type(self.elements[s.parameter]), self.type("i64")
        row = self.address(s.parameter, s.at)
        positions = self.address(s.positions, s.at) if s.positions else None

        def load(j, mask):
            x = b.load(b.offset(row, j, t.element_bytes), t, mask)
            if positions:
                return x, b.load(b.offset(positions, j, places.element_bytes), places, mask)
            return x, b.add(b.splat(b.i64(j), lanes), b.iota(places))

        start, stop = 0, b.i64(s.count) if is_open(s.count) else s.count
        if s.block:
            start, stop = self.block_of(s, s.count)
        pairs = extreme_lanes(b, s.predicate, t, start, stop, load)
        if s.block:
            self.registers[s.best] = [best for best, _ in pairs]
            return [position for _, position in pairs]
        return extreme_of_lanes(b, s.predicate, pairs)

    def apply_number(self, s):
        return self.apply(s, [self.registers[k] for k in s.operands], None)

    def apply(self, s, operands, mask):
        if s.op.checks_on(operands[0].type.is_float if operands else True):
            return s.op.lower(self.b, *operands, fail=self.fail_in(mask), **s.attributes)
        return s.op.lower(self.b, *operands, **s.attributes)

    # --- addresses ----------------------------------------------------------------------------------------------------
    def sum_of(self, at):
        b = self.b
        total = b.i64(at.constant)
        for index, coefficient in at.terms:
            part = self.indices[index]
            if coefficient != 1:
                part = b.mul(part, b.i64(coefficient))
            total = part if total.name == "0" else b.add(total, part)
        return total

    def address(self, parameter, at):
        """The address of a position, without its lanes."""
        b, size = self.b, SIZES[self.elements[parameter]]
        pointer = b.offset(self.pointers[parameter], at.constant, size)
        for index, coefficient in at.terms:
            step = self.indices[index]
            if coefficient < 0:
                step, coefficient = b.mul(step, b.i64(coefficient)), 1
            pointer = b.offset(pointer, step, size * coefficient)
        return pointer

    def indexed_address(self, s):
        """(address with the indices that are one number, whether there is nothing to read)."""
        b, size = self.b, SIZES[self.elements[s.parameter]]
        pointer = self.address(s.parameter, s.at)
        for index in s.indices:
            if index.name in self.registers:
                pointer = b.offset(pointer, b.mul(self.checked_number(index), b.i64(index.stride)), size)
        return pointer, any(i.size == 0 for i in s.indices)

    def checked_index(self, register, index, mask):
        """i64 lanes within [0, size), 0 where the index is not; those fail, if the kernel checks."""
        b = self.b
        register = b.convert(register, "i64")
        zero = b.const(0, register.type)
        # As unsigned numbers, negative ones are large.
        inside = b.cmp("ult", register, b.const(index.size, register.type))
        if self.flag is not None:
            self.fail_in(mask)(b.not_(inside))
        return b.select(inside, register, zero)

    def checked_number(self, index):
        """The same of an index that is one number: it is in every lane."""
        return self.checked_index(self.b.extract(self.registers[index.name], 0), index, None)

    # --- loops --------------------------------------------------------------------------------------------------------
    def loop(self, s):
        if s.turned and self.b.loads_neighbours:
            self.turned_rows(s)
            return
        if any(c.storage for c in s.columns):
            self.loop_in_memory(s)
            return
        counts = [1 if self.vector else -(-c.extent // self.lanes) for c in s.columns]
        columns = [(c.op, self.type(c.element)) for c, n in zip(s.columns, counts) for _ in range(n)]
        slots = [(c.name, v) for c, n in zip(s.columns, counts) for v in range(n)]

        def body(row, state):
            self.accumulators.update(zip(slots, state))
            self.set_index(s, row)
            self.block(s.body)
            return [self.accumulators[k] for k in slots]

        self.columns.update((c.name, c) for c in s.columns)
        if s.block:
            results = reduce_block_of_columns(self.b, *self.block_of(s, s.extent), columns, body)
        else:
            results = reduce_columns(self.b, s.extent, columns, body, s.closing or BLOCK_ROWS)
        for (name, v), result in zip(slots, results):
            self.vectors.setdefault(name, {})[v] = result

    def block_of(self, s, extent):
        """The first iteration of one block of so many, and the one after the last."""
        b = self.b
        first = b.mul(self.indices[s.block.index], b.i64(s.block.size))
        return first, b.intrinsic("smin", b.add(first, b.i64(s.block.size)), b.i64(extent))

    def set_index(self, s, row):
        b = self.b
        self.indices[s.index] = row
        for name, stride, size in s.split:
            part = row if stride == 1 else b.div(row, b.i64(stride))
            self.indices[name] = b.rem(part, b.i64(size))

    def loop_in_memory(self, s):
        """Column sums in scratch memory: storage is (sum or result, total, error), the first alone for one block."""
        b = self.b
        self.columns.update((c.name, c) for c in s.columns)
        if s.block:
            for c in s.columns:
                self.fill(c, 0)
            self.rows(s, *self.block_of(s, s.extent))
            return
        blocks = (is_open(s.extent) or s.extent > BLOCK_ROWS) and any(
            is_compensated(c.op, self.type(c.element)) for c in s.columns
        )
        for c in s.columns:
            self.fill(c, 0)
            if blocks and is_compensated(c.op, self.type(c.element)):
                self.fill(c, 1)
                self.fill(c, 2)
        if not blocks:
            self.rows(s, 0, s.extent)
            return
        with b.loop(0, s.extent, BLOCK_ROWS) as first:
            self.rows(s, first, b.intrinsic("smin", b.add(first, b.i64(BLOCK_ROWS)), b.i64(s.extent)))
            for c in s.columns:
                if is_compensated(c.op, self.type(c.element)):
                    self.fold_block(c)
        for c in s.columns:
            if is_compensated(c.op, self.type(c.element)):
                self.over_columns(c, lambda total, error: (self.b.add(total, error),), (1, 2), (0,))

    def turned_rows(self, s):
        """What is read across is turned first, into a block of memory that holds a vector for every row."""
        b, read = self.b, list(_read_across([s]))
        for loop, x, width in read:
            self.turn(x, loop, width)
        with b.loop(0, s.extent, 1) as row:
            self.set_index(s, row)
            for _, x, _ in read:
                t = self.type(self.elements[x.parameter])
                self.turned[x.name] = b.offset(self.blocks[x.name], row, t.lanes * t.element_bytes)
            self.block(s.body)

    def block_for(self, s, x):
        return self.b.alloca(Type(self.elements[x.parameter]), s.extent * self.lanes)

    def turn(self, x, s, width):
        """Fill the block of a Load: vector after vector of the rows that it reads across, `width` of them."""
        b, t, block = self.b, self.type(self.elements[x.parameter]), self.blocks[x.name]
        place = self.address(x.parameter, replace(x.at, terms=tuple(p for p in x.at.terms if p[0] != s.index)))
        with b.loop(0, s.extent, t.lanes) as first:
            start, into = b.offset(place, first, t.element_bytes), b.offset(block, first, t.lanes * t.element_bytes)
            rows = [b.load(b.offset(start, k * x.at.lane, t.element_bytes), t) for k in range(width)]
            for k, vector in enumerate(transposed(b, rows + [b.const(0, t)] * (t.lanes - width))):
                b.store(vector, b.offset(into, k * t.lanes, t.element_bytes))

    def rows(self, s, first, stop):
        with self.b.loop(first, stop, 1) as row:
            self.set_index(s, row)
            self.block(s.body)

    def fill(self, c, k):
        start = identity(self.b, c.op, self.type(c.element))
        self.over_columns(c, lambda: (start,), (), (k,))

    def fold_block(self, c):
        def folded(block, total, error):
            total, error = fold(self.b, total, error, block)
            return identity(self.b, c.op, total.type), total, error

        self.over_columns(c, folded, (0, 1, 2), (0, 1, 2))

    def over_columns(self, c, compute, read, written):
        """storage[written] = compute(storage[read]) for every column."""

        def body(j, mask):
            places = [self.column_place(c, k, j) for k in range(len(c.storage))]
            element = self.elements[c.storage[0]]
            loaded = [self.b.load(places[k], self.type(element), mask) for k in read]
            for k, x in zip(written, compute(*[self.b.convert(x, c.element) for x in loaded])):
                self.b.store(self.b.convert(x, element), places[k], mask)
            return []

        self.walk(c.extent, [], body)

    def column_place(self, c, k, j):
        element = self.elements[c.storage[k]]
        return self.b.offset(self.pointers[c.storage[k]], j, SIZES[element])

    # --- sweeps -------------------------------------------------------------------------------------------------------
    def sweep(self, s):
        reduces = [x for x in s.body if isinstance(x, Reduce)]
        reductions = [(x.op, self.type(x.element)) for x in reduces]
        bases = {id(x): self.indexed_address(x) for x in s.body if isinstance(x, Load)}
        bases |= {id(x): (self.address(x.parameter, x.at), False) for x in s.body if isinstance(x, Store)}
        bases |= {id(x): self.sum_of(x.at) for x in s.body if isinstance(x, Position)}
        bases |= {id(x): self.updated_address(x) for x in s.body if isinstance(x, Update)}
        bases |= {id(x): self.address(x.parameter, x.at) for x in s.body if isinstance(x, Extreme)}
        self.streams.begin(s, bases)
        halves, following = halves_of(s.body), [self.following(*x) for x in self.ahead.get(id(s), ())]

        def body(j, mask, vector=None):
            for place, size in following if mask is None else ():
                self.b.prefetch(self.b.offset(place, j, size))
            work = Vector(self, j, mask, vector, bases)
            work.take(s.body, halves)
            if vector is not None:
                for name, register in work.registers.items():
                    self.vectors.setdefault(name, {})[vector] = register
            return [work.lookup(x.value) for x in reduces]

        if self.vector:
            body(*self.vector, vector=0)
            return
        if s.unrolled:
            results = unrolled_row(self.b, s.extent, self.lanes, reductions, body)
        elif s.block:
            first, _ = self.block_of(s, s.extent)
            block = s.extent, s.block.size, first, self.lanes
            results = reduce_block(self.b, *block, reductions, body, rotated=s.rotated)
        else:
            results = self.walk(s.extent, reductions, body, rotated=s.rotated, closing=s.closing or BLOCK_ELEMENTS)
        for x, result in zip(reduces, results):
            self.registers[x.name] = result
        if any(isinstance(x, (Store, Update)) for x in s.body):
            self.b.meet()

    def following(self, x, step):
        """(where the next row of a Load is, the size of its elements)."""
        size = SIZES[self.elements[x.parameter]]
        return self.b.offset(self.address(x.parameter, x.at), step, size), size

    def walk(self, extent, reductions, body, rotated=False, closing=BLOCK_ELEMENTS):
        """A row in vectors: all of it, or this call's columns."""
        if self.span is None:
            return reduce_row(self.b, extent, self.lanes, reductions, body, rotated=rotated, closing=closing)
        if self.cut.rows == 1:
            self.some_columns(extent, body)
            return []
        width = extent // self.cut.rows
        with self.b.loop(0, extent, width) as start:
            self.some_columns(width, lambda j, mask: body(self.b.add(start, self.b.i64(j)), mask))
        return []

    def some_columns(self, width, body):
        b, lanes = self.b, self.lanes
        first, stop = self.span
        whole = width // lanes * lanes
        with b.loop(first, b.intrinsic("smin", stop, b.i64(whole)), lanes) as j:
            body(j, None)
        if is_open(width) or whole < width:
            with b.when(b.cmp("lt", b.i64(whole), stop)):
                body(b.i64(whole) if is_open(whole) else whole, b.first_lanes(width - whole, lanes))


_NUMBERS = {
    Constant: _Emission.constant,
    Scalar: _Emission.scalar,
    Load: _Emission.load_number,
    Position: _Emission.position_number,
    Extreme: _Emission.extreme_number,
    Apply: _Emission.apply_number,
}


def _read_across(body):
    """(loop, Load, width of its sweep) of everything that is read across by the sweeps of loops that may be turned."""
    for s in statements(body):
        if isinstance(s, Loop) and s.turned:
            for sweep in s.body:
                for x in getattr(sweep, "body", ()):
                    is_across = isinstance(x, Load) and (is_open(x.at.lane) or x.at.lane > 1) and not x.indices
                    if is_across and any(name == s.index and not is_open(c) and c == 1 for name, c in x.at.terms):
                        yield s, x, sweep.extent
