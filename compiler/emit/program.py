"""The program: two functions that call the kernels of a schedule in order.

    i64 @weft_program(ptr table)                                0, or 1 if a check failed
    i64 @body(ptr closure, i64 rank, i64 size, i64 number, ptr scratch)

The table's words: the arena, the run-time scalars, the matrix kernels for f32 and f64, the thread pool, then one NumPy
array object per input and per output, whose data pointer is read at ARRAY_DATA_OFFSET. The program copies the pointers
that are needed into the closure, whose first word tells whether a check failed, and calls the body; where work is
shared, every member of a team does (see pool.py).

The body of rank 0 is the caller's. It alone does the steps that are not shared, with the scratch memory in the arena.
Of a shared step every member does its units, with scratch memory of its own.
"""

from math import prod

from ..ops.comparison import element_of
from ..translate.kinds import offset_of
from .builder import I1, I64, PTR, Builder, Reg
from .kernel import emit_kernel
from .pool_choice import STATE_WORDS
from .pool_memory import MOST_WAITS, Pool

ARRAY_DATA_OFFSET = 16
_ARENA, _SCALARS, _GEMM, _POOL = 0, 1, {"f32": 2, "f64": 3}, 4
FIRST_ARRAY_WORD = 5
_BODY = [("closure", PTR), ("rank", I64), ("size", I64), ("number", I64), ("scratch", PTR)]
_SCRATCH_ALIGNMENT = 64
_NULL = Reg("null", PTR)


class Program:
    """The body while it is written; `finish` writes the entry. Kernels of equal text are emitted once."""

    def __init__(self, module, n_inputs, team=None):
        """`team`: how many members the program has use for, and its estimated shared work in ns; None: one."""
        self.module, self.n_inputs, self.team = module, n_inputs, team
        self.kernels = {}
        self.b = Builder(module, "body", _BODY, result="i64", linkage="internal")
        self.closure, self.rank, self.size, self.number, self.own_scratch = self.b.arguments
        self.pointers, self.units = {}, {}
        self.n_waits = 0
        self.failed = None
        self.is_caller = self.b.cmp("eq", self.rank, self.b.i64(0))

    # --- memory -------------------------------------------------------------------------------------------------------
    def word(self, k):
        """A word of the table, or the data pointer of an array in it."""
        if k not in self.pointers:
            place = self.b.offset(self.closure, 1 + len(self.pointers), 8)
            self.pointers[k] = self.b.load(place, PTR)
        return self.pointers[k]

    def address(self, place):
        """The address of a Place."""
        if place.kind == "arena":
            return self.b.offset(self.word(_ARENA), place.index, 1)
        return self.word(FIRST_ARRAY_WORD + place.index + (self.n_inputs if place.kind == "output" else 0))

    def scratch_address(self, place, start, shared):
        """The address of scratch memory: the caller's is in the arena, a worker's `start` bytes into its own."""
        callers = self.address(place)
        if not shared:
            return callers
        return self.b.select(self.is_caller, callers, self.b.offset(self.own_scratch, start, 1))

    # --- steps --------------------------------------------------------------------------------------------------------
    def call_kernel(self, kernel, places, scratch):
        """Call a kernel on places. `scratch`: which parameters are scratch memory, and of how many bytes."""
        text = str(kernel)
        if text not in self.kernels:
            self.kernels[text] = f"k{len(self.kernels)}"
            emit_kernel(self.module, kernel, self.kernels[text])
        name = self.kernels[text]
        operands, start = [], 0
        for k, place in enumerate(places):
            if k in scratch:
                operands.append(self.scratch_address(place, start, kernel.cut))
                start += -(-scratch[k] // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT
            else:
                operands.append(self.address(place))
        operands.append(self.word(_SCALARS))
        if kernel.cut:
            self.some(kernel.cut.units, lambda first, stop: self.b.call("void", name, [*operands, first, stop]))
        elif kernel.checks:
            self.alone(lambda: self.note_failure(self.b.call(I1, name, operands)))
        else:
            self.alone(lambda: self.b.call("void", name, operands))
        return name

    def call_product(self, left, right, out, scratch, cut=None):
        """out = left @ right for operands ((place, Access)), over all leading dimensions; or the units of a Cut."""
        (left_place, x), (right_place, y) = left, right
        out_place, result = out
        product = _Product(x.strides, y.strides, result.shape, x.shape[-1], result.dtype.size_bytes)
        pointers = [
            self.b.offset(self.address(left_place), x.offset, product.size),
            self.b.offset(self.address(right_place), y.offset, product.size),
            self.address(out_place),
        ]
        function = self.word(_GEMM[element_of(result.dtype)])
        work = (pointers, function, self.scratch_address(scratch, 0, cut))
        if cut is None:
            self.alone(lambda: product.emit(self.b, *work))
        else:
            self.some(cut.units, lambda first, stop: product.emit_units(self.b, *work, cut, first, stop))

    def alone(self, emit):
        """A step that one thread does."""
        if self.team is None:
            emit()
            return
        with self.b.when(self.is_caller):
            emit()

    def some(self, units, emit):
        """A step of which every member does some units: emit(first, stop)."""
        b = self.b
        if units not in self.units:
            edges = [b.mul(b.i64(units), rank) for rank in (self.rank, b.add(self.rank, b.i64(1)))]
            self.units[units] = [b.div(edge, self.size) for edge in edges]
        first, stop = self.units[units]
        with b.when(b.cmp("lt", first, stop)):
            emit(first, stop)

    def wait(self):
        """Until every member has done all steps so far."""
        self.n_waits += 1
        assert self.n_waits <= MOST_WAITS, f"a program with more than {MOST_WAITS} waits"
        number = self.b.add(self.number, self.b.i64(self.n_waits))
        pool = self.word(_POOL)
        # In a register whose name says what it is.
        function = Reg(self.b.fresh("wait"), PTR)
        self.b.lines.append(f"  {function.name} = load ptr, {self.b.offset(pool, offset_of(Pool, 'wait'), 1)}, align 8")
        self.b.call("void", function, [pool, self.rank, self.size, number])

    # --- checks -------------------------------------------------------------------------------------------------------
    def note_failure(self, bad):
        b = self.b
        b.store(b.or_(b.load(self.closure, I64), b.convert(bad, "i64")), self.closure)

    def leave_if_failed(self):
        """Before anything is written that outlives the call. Members must have waited for the checks."""
        self.failed = self.failed or self.b.label("failed")
        following = self.b.label("following")
        self.b.branch_if(self.b.cmp("ne", self.b.load(self.closure, I64), self.b.i64(0)), self.failed, following)
        self.b.start(following)

    # --- the entry ----------------------------------------------------------------------------------------------------
    def finish(self):
        b = self.b
        if self.failed is not None:
            done = b.label("succeeded")
            b.branch(done)
            b.start(self.failed)
            b.lines.append("  ret i64 1")
            b.start(done)
        b.finish(b.load(self.closure, I64))
        self.emit_entry()

    def emit_entry(self):
        b = Builder(self.module, "weft_program", [("table", PTR)], result="i64")
        (table,) = b.arguments
        closure = b.alloca(I64, 1 + len(self.pointers))
        b.store(b.i64(0), closure)
        for position, k in enumerate(self.pointers):
            pointer = b.load(b.offset(table, k, 8), PTR)
            if k >= FIRST_ARRAY_WORD:
                pointer = b.load(b.offset(pointer, ARRAY_DATA_OFFSET, 1), PTR)
            b.store(pointer, b.offset(closure, 1 + position, 8))
        if self.team is None:
            b.finish(b.call(I64, "body", [closure, b.i64(0), b.i64(1), b.i64(0), _NULL]))
            return
        most, ahead_ns = map(b.i64, self.team)
        self.module.globals["state"] = f"@state = internal global [{STATE_WORDS} x i64] zeroinitializer, align 64"
        state, body = Reg("@state", PTR), Reg("@body", PTR)
        pool = b.load(b.offset(table, _POOL, 8), PTR)
        begin, end = (b.load(b.offset(pool, offset_of(Pool, name), 1), PTR) for name in ("begin", "end"))
        size = b.call(I64, begin, [pool, state, body, closure, most, ahead_ns])
        number = b.load(b.offset(pool, offset_of(Pool, "generation"), 1), I64)
        failed = b.call(I64, "body", [closure, b.i64(0), size, number, _NULL])
        b.call("void", end, [pool, state, size])
        b.finish(failed)


class _Product:
    """A batch of matrix products of known shapes and strides (in elements): (..., m, k) by (..., k, n)."""

    def __init__(self, left, right, shape, depth, size):
        self.left, self.right, self.shape, self.depth, self.size = left, right, shape, depth, size
        self.batch = shape[:-2]
        self.m, self.n = shape[-2:]
        self.steps = (left[:-2], right[:-2], _batch_strides(self.batch, self.m * self.n))

    def emit(self, b, pointers, function, scratch):
        """All products, whole."""
        self.batched(b, self.batch, self.steps, pointers, lambda *at: self.call(b, at, function, scratch))

    def emit_units(self, b, pointers, function, scratch, cut, first, stop):
        """The units first .. stop - 1 of a Cut."""
        total = {"rows": self.m, "columns": self.n, "matrices": prod(self.batch)}[cut.along]
        start = b.mul(first, b.i64(cut.unit))
        count = b.sub(b.intrinsic("smin", b.mul(stop, b.i64(cut.unit)), b.i64(total)), start)
        emit = {"rows": self.rows, "columns": self.columns, "matrices": self.matrices}[cut.along]
        emit(b, pointers, function, scratch, start, count)

    def batched(self, b, batch, steps, pointers, call):
        """call(...) for every index of the batch dimensions."""
        if not batch:
            call(*pointers)
            return
        if batch[0] == 1:
            self.batched(b, batch[1:], [s[1:] for s in steps], pointers, call)
            return
        with b.loop(0, batch[0], 1) as i:
            moved = [self.moved(b, p, i, s[0]) for p, s in zip(pointers, steps)]
            self.batched(b, batch[1:], [s[1:] for s in steps], moved, call)

    def moved(self, b, pointer, index, step):
        return b.offset(pointer, b.mul(index, b.i64(step)), self.size)

    def call(self, b, pointers, function, scratch, m=None, n=None):
        left, right, out = pointers
        i64 = b.i64
        left_strides, right_strides = map(i64, self.left[-2:]), map(i64, self.right[-2:])
        operands = [left, *left_strides, right, *right_strides, out, i64(self.n)]
        m, n = i64(self.m if m is None else m), i64(self.n if n is None else n)
        b.call("void", function, [*operands, m, n, i64(self.depth), scratch])

    # --- some of it ---------------------------------------------------------------------------------------------------
    def rows(self, b, pointers, function, scratch, first, count):
        left, right, out = pointers
        at = [self.moved(b, left, first, self.left[-2]), right, self.moved(b, out, first, self.n)]
        self.batched(b, self.batch, self.steps, at, lambda *p: self.call(b, p, function, scratch, m=count))

    def columns(self, b, pointers, function, scratch, first, count):
        left, right, out = pointers
        at = [left, self.moved(b, right, first, self.right[-1]), self.moved(b, out, first, 1)]
        self.batched(b, self.batch, self.steps, at, lambda *p: self.call(b, p, function, scratch, n=count))

    def matrices(self, b, pointers, function, scratch, first, count):
        with b.loop(first, b.add(first, count), 1) as flat:
            at, stride = list(pointers), prod(self.batch)
            for axis, extent in enumerate(self.batch):
                stride //= extent
                index = b.rem(b.div(flat, b.i64(stride)), b.i64(extent))
                at = [self.moved(b, p, index, s[axis]) for p, s in zip(at, self.steps)]
            self.call(b, at, function, scratch)


def _batch_strides(batch, step):
    strides = []
    for d in reversed(batch):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))
