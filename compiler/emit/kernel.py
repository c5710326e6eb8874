"""From the loop-nest IR (compiler/loopnest.py) to LLVM IR: one function per kernel, no decisions.

The function takes its parameters as pointers, then the array of run-time scalars. One that checks returns i1: whether
a check failed. Registers of statements outside sweeps hold their number in every lane.
"""

from functools import partial

from ..loopnest import (
    Accumulate,
    Apply,
    Constant,
    Extreme,
    Load,
    Loop,
    Position,
    Reduce,
    Scalar,
    Store,
    Sweep,
    Update,
)
from .builder import F64, I8, I64, PTR, Builder, Reg, Type
from .reduce import (
    BLOCK_ROWS,
    better_extreme,
    first_extreme,
    fold,
    identity,
    is_compensated,
    reduce_columns,
    reduce_row,
    unrolled_row,
)

_SIZES = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "i8": 1}


def emit_kernel(module, kernel, name):
    """Define the kernel's function in the module."""
    parameters = [(p.name, PTR) for p in kernel.parameters] + [("scalars", PTR)]
    b = Builder(module, name, parameters, result="i1" if kernel.checks else "void", linkage="internal")
    emission = _Emission(b, kernel)
    emission.block(kernel.body)
    emission.finish()


class _Emission:
    """Registers by name while one kernel is written."""

    def __init__(self, b, kernel):
        self.b, self.lanes = b, kernel.lanes
        self.pointers = {p.name: r for p, r in zip(kernel.parameters, b.arguments)}
        self.elements = {p.name: p.element for p in kernel.parameters}
        self.scalars = b.arguments[-1]
        self.registers = {}
        self.vectors = {}
        self.indices = {}
        self.accumulators = {}
        self.columns = {}
        self.flag = None
        if kernel.checks:
            self.flag = b.alloca(I8)
            b.store(b.const(0, I8), self.flag)

    def finish(self):
        b = self.b
        b.finish(b.cmp("ne", b.load(self.flag, I8), b.const(0, I8)) if self.flag else None)

    def type(self, element):
        return Type(element, self.lanes)

    def fail_in(self, mask):
        """The `fail` of checked ops: lanes outside the row do not count."""

        def fail(bad):
            b = self.b
            bad = bad if mask is None else b.and_(bad, mask)
            b.store(b.or_(b.load(self.flag, I8), b.convert(b.any_lane(bad), "i8")), self.flag)

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

    def number(self, s):
        """A statement that computes one number, in all lanes, or stores one."""
        if isinstance(s, Store):
            b, element = self.b, self.elements[s.parameter]
            scalar = b.extract(self.registers[s.value], 0)
            b.store(b.convert(scalar, element), self.address(s.parameter, s.at))
            return
        if isinstance(s, Update):
            self.update(s)
            return
        self.registers[s.name] = _NUMBERS[type(s)](self, s)

    def update(self, s):
        b, element = self.b, self.elements[s.parameter]
        place = self.updated_address(s)
        if place is not None:
            x = self.registers[s.value]
            if s.op is not None:
                before = b.convert(b.splat(b.load(place, Type(element)), self.lanes), x.type.element)
                x = s.op.lower(b, before, x)
            b.store(b.convert(b.extract(x, 0), element), place)

    def updated_address(self, s):
        """Where an Update writes (a valid place even if the check fails), or None if there is no valid place."""
        index = self.checked_index(self.registers[s.index.name], s.index, None)
        if s.index.size == 0:
            return None
        b, size = self.b, _SIZES[self.elements[s.parameter]]
        return b.offset(self.address(s.parameter, s.at), b.mul(b.extract(index, 0), b.i64(s.index.stride)), size)

    def constant(self, s):
        return self.b.const(s.value, self.type(s.element))

    def scalar(self, s):
        b = self.b
        place = b.offset(self.scalars, s.slot, 8)
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
        """One row in vectors: every lane keeps its first extreme, then the lanes are compared."""
        b, lanes = self.b, self.lanes
        t, places = self.type(self.elements[s.parameter]), self.type("i64")
        row = self.address(s.parameter, s.at)
        start = [b.load(row, t), b.iota(places)]

        def step(j, mask, best, position):
            x = b.load(b.offset(row, j, t.element_bytes), t, mask)
            better = better_extreme(b, s.predicate, x, best)
            better = better if mask is None else b.and_(better, mask)
            here = b.add(b.splat(b.i64(j), lanes), b.iota(places))
            return [b.select(better, x, best), b.select(better, here, position)]

        whole = s.count // lanes * lanes
        with b.loop(lanes, whole, lanes, start) as (j, loop):
            loop.next(step(j, None, *loop.values))
        best, position = loop.results
        if whole < s.count:
            best, position = step(whole, b.first_lanes(s.count - whole, lanes), best, position)
        return first_extreme(b, s.predicate, best, position)

    def apply_number(self, s):
        return self.apply(s, [self.registers[k] for k in s.operands], None)

    def apply(self, s, operands, mask):
        if s.op.extra.get("checks"):
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
        b, size = self.b, _SIZES[self.elements[parameter]]
        pointer = b.offset(self.pointers[parameter], at.constant, size)
        for index, coefficient in at.terms:
            step = self.indices[index]
            if coefficient < 0:
                step, coefficient = b.mul(step, b.i64(coefficient)), 1
            pointer = b.offset(pointer, step, size * coefficient)
        return pointer

    def indexed_address(self, s):
        """(address with the indices that are one number, whether there is nothing to read)."""
        b, size = self.b, _SIZES[self.elements[s.parameter]]
        pointer = self.address(s.parameter, s.at)
        for index in s.indices:
            if index.name in self.registers:
                clamped = self.checked_index(self.registers[index.name], index, None)
                pointer = b.offset(pointer, b.mul(b.extract(clamped, 0), b.i64(index.stride)), size)
        return pointer, any(i.size == 0 for i in s.indices)

    def checked_index(self, register, index, mask):
        """i64 lanes within [0, size), 0 where the index is not; those fail."""
        b = self.b
        register = b.convert(register, "i64")
        zero = b.const(0, register.type)
        # As unsigned numbers, negative ones are large.
        inside = b.cmp("ult", register, b.const(index.size, register.type))
        self.fail_in(mask)(b.not_(inside))
        return b.select(inside, register, zero)

    # --- loops --------------------------------------------------------------------------------------------------------
    def loop(self, s):
        if any(c.storage for c in s.columns):
            self.loop_in_memory(s)
            return
        counts = [-(-c.extent // self.lanes) for c in s.columns]
        columns = [(c.op, self.type(c.element)) for c, n in zip(s.columns, counts) for _ in range(n)]
        slots = [(c.name, v) for c, n in zip(s.columns, counts) for v in range(n)]

        def body(row, state):
            self.accumulators.update(zip(slots, state))
            self.set_index(s, row)
            self.block(s.body)
            return [self.accumulators[k] for k in slots]

        self.columns.update((c.name, c) for c in s.columns)
        for (name, v), result in zip(slots, reduce_columns(self.b, s.extent, columns, body)):
            self.vectors.setdefault(name, {})[v] = result

    def set_index(self, s, row):
        b = self.b
        self.indices[s.index] = row
        for name, stride, size in s.split:
            part = row if stride == 1 else b.div(row, b.i64(stride))
            self.indices[name] = b.rem(part, b.i64(size))

    def loop_in_memory(self, s):
        """Column sums in scratch memory: storage is (sum or result, total, error)."""
        b = self.b
        self.columns.update((c.name, c) for c in s.columns)
        blocks = s.extent > BLOCK_ROWS and any(is_compensated(c.op, self.type(c.element)) for c in s.columns)
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
            places = [self.column_place(c, k, j) for k in range(3)]
            element = self.elements[c.storage[0]]
            loaded = [self.b.load(places[k], self.type(element), mask) for k in read]
            for k, x in zip(written, compute(*[self.b.convert(x, c.element) for x in loaded])):
                self.b.store(self.b.convert(x, element), places[k], mask)
            return []

        reduce_row(self.b, c.extent, self.lanes, [], body)

    def column_place(self, c, k, j):
        element = self.elements[c.storage[k]]
        return self.b.offset(self.pointers[c.storage[k]], j, _SIZES[element])

    # --- sweeps -------------------------------------------------------------------------------------------------------
    def sweep(self, s):
        reduces = [x for x in s.body if isinstance(x, Reduce)]
        reductions = [(x.op, self.type(x.element)) for x in reduces]
        bases = {id(x): self.indexed_address(x) for x in s.body if isinstance(x, Load)}
        bases |= {id(x): (self.address(x.parameter, x.at), False) for x in s.body if isinstance(x, Store)}
        bases |= {id(x): self.sum_of(x.at) for x in s.body if isinstance(x, Position)}
        bases |= {id(x): self.updated_address(x) for x in s.body if isinstance(x, Update)}
        bases |= {id(x): self.address(x.parameter, x.at) for x in s.body if isinstance(x, Extreme)}

        def body(j, mask, vector=None):
            work = _Vector(self, j, mask, vector, bases)
            for x in s.body:
                _LANES[type(x)](work, x)
            if vector is not None:
                for name, register in work.registers.items():
                    self.vectors.setdefault(name, {})[vector] = register
            return [work.lookup(x.value) for x in reduces]

        walk = unrolled_row if s.unrolled else partial(reduce_row, rotated=s.rotated)
        for x, result in zip(reduces, walk(self.b, s.extent, self.lanes, reductions, body)):
            self.registers[x.name] = result


_NUMBERS = {
    Constant: _Emission.constant,
    Scalar: _Emission.scalar,
    Load: _Emission.load_number,
    Position: _Emission.position_number,
    Extreme: _Emission.extreme_number,
    Apply: _Emission.apply_number,
}


class _Vector:
    """One vector's work in a sweep: elements j .. j + lanes - 1, those in `mask`."""

    def __init__(self, emission, j, mask, vector, bases):
        self.emission, self.b = emission, emission.b
        self.j, self.mask, self.vector, self.bases = j, mask, vector, bases
        self.registers = {}

    def lookup(self, name):
        if name in self.registers:
            return self.registers[name]
        if name in self.emission.registers:
            return self.emission.registers[name]
        return self.emission.vectors[name][self.vector]

    def scaled(self, stride):
        """j * stride elements."""
        if not isinstance(self.j, int) and stride != 1:
            return self.b.mul(self.j, self.b.i64(stride))
        return self.j * stride if isinstance(self.j, int) else self.j

    def lane_offsets(self, stride):
        lane = Type("i64")
        items = ", ".join(f"{lane} {k * stride}" for k in range(self.emission.lanes))
        return self.b.iota(self.emission.type("i64"))._replace(name=f"<{items}>")

    def full_mask(self):
        return self.mask if self.mask is not None else self.b.const(1, self.emission.type("i1"))

    def load(self, s):
        b, e = self.b, self.emission
        pointer, empty = self.bases[id(s)]
        element = e.elements[s.parameter]
        t = e.type(element)
        lanewise = [i for i in s.indices if i.name not in e.registers]
        if empty:
            for i in lanewise:
                e.checked_index(self.lookup(i.name), i, self.mask)
            x = b.const(0, t)
        elif s.at.lane == 1 and not lanewise:
            x = b.load(b.offset(pointer, self.j, t.element_bytes), t, self.mask)
        else:
            place = b.offset(pointer, self.scaled(s.at.lane), t.element_bytes) if s.at.lane else pointer
            offsets = self.lane_offsets(s.at.lane)
            for i in lanewise:
                index = e.checked_index(self.lookup(i.name), i, self.mask)
                offsets = b.add(offsets, b.mul(index, b.const(i.stride, index.type)))
            x = b.gather(place, offsets, t, self.full_mask())
        self.registers[s.name] = b.convert(x, s.element)

    def position(self, s):
        b, e = self.b, self.emission
        first = b.add(self.bases[id(s)], b.i64(self.scaled(s.at.lane)))
        self.registers[s.name] = b.add(b.splat(first, e.lanes), self.lane_offsets(s.at.lane))

    def apply(self, s):
        operands = [self.lookup(k) for k in s.operands]
        self.registers[s.name] = self.emission.apply(s, operands, self.mask)

    def store(self, s):
        b, e = self.b, self.emission
        element = e.elements[s.parameter]
        pointer, _ = self.bases[id(s)]
        x = b.convert(self.lookup(s.value), element)
        size = _SIZES[element]
        if s.at.lane == 1:
            b.store(x, b.offset(pointer, self.j, size), self.mask)
        else:
            place = b.offset(pointer, self.scaled(s.at.lane), size)
            b.scatter(x, place, self.lane_offsets(s.at.lane), self.full_mask())

    def accumulate(self, s):
        e = self.emission
        column = e.columns[s.column]
        x = self.lookup(s.value)
        if not column.storage:
            slot = (s.column, self.vector)
            e.accumulators[slot] = column.op.lower.step(self.b, e.accumulators[slot], x)
            return
        b, element = self.b, e.elements[column.storage[0]]
        place = e.column_place(column, 0, self.j)
        before = b.convert(b.load(place, e.type(element), self.mask), column.element)
        b.store(b.convert(column.op.lower.step(b, before, x), element), place, self.mask)

    def update(self, s):
        b, element = self.b, self.emission.elements[s.parameter]
        pointer = self.bases[id(s)]
        if pointer is None:
            return
        place = b.offset(pointer, self.j, _SIZES[element])
        x = self.lookup(s.value)
        if s.op is not None:
            before = b.convert(b.load(place, self.emission.type(element), self.mask), x.type.element)
            x = s.op.lower(b, before, x)
        b.store(b.convert(x, element), place, self.mask)

    def extreme(self, s):
        """Lane by lane over the elements, `stride` apart."""
        b, e = self.b, self.emission
        t = e.type(e.elements[s.parameter])
        place = b.offset(self.bases[id(s)], self.scaled(s.at.lane), t.element_bytes)

        def load(k):
            step = b.mul(k, b.i64(s.stride)) if isinstance(k, Reg) else k * s.stride
            at = b.offset(place, step, t.element_bytes)
            if s.at.lane == 1:
                return b.load(at, t, self.mask)
            return b.gather(at, self.lane_offsets(s.at.lane), t, self.full_mask())

        with b.loop(1, s.count, 1, [load(0), b.const(0, e.type("i64"))]) as (k, loop):
            best, position = loop.values
            x = load(k)
            better = better_extreme(b, s.predicate, x, best)
            loop.next([b.select(better, x, best), b.select(better, b.splat(k, e.lanes), position)])
        self.registers[s.name] = loop.results[1]

    def nothing(self, s):
        """A Reduce: the walk takes its operand."""


_LANES = {
    Load: _Vector.load,
    Position: _Vector.position,
    Apply: _Vector.apply,
    Store: _Vector.store,
    Accumulate: _Vector.accumulate,
    Update: _Vector.update,
    Extreme: _Vector.extreme,
    Reduce: _Vector.nothing,
}
