"""The program: functions that call the kernels of a schedule in order.

    i64 @weft_program(ptr table)                                0; else FAILED, INTERRUPTED or both (conventions.py)
    i64 @body(ptr closure, i64 rank, i64 size, i64 number, ptr scratch)

The table's words: the arena, the run-time scalars, the thread pool, the routines that `Program.symbols` names, which
whoever loads the program binds, then one NumPy array object per input and per output, whose data pointer is read at
ARRAY_DATA_OFFSET. The program copies the pointers that are needed into the closure, whose first word tells whether a
check failed, and calls the body; where work is shared, every member of a team does (see pool.py).

The body of rank 0 is the caller's. It alone does the steps that are not shared, with the scratch memory in the arena.
Of a shared step every member does its units, with scratch memory of its own.

Long programs must not take long to compile. Steps that are repeated (repeats.py) are one loop with a table of what
differs, and a body of many steps is cut into functions @part0, @part1, ... of the body's signature, because the time
that LLVM takes for a function grows faster than its length.
"""

from copy import copy
from dataclasses import dataclass

from ..conventions import AGAIN, FAILED, SEEN
from ..dtypes import element_of
from ..extent import is_open
from ..target import LINE_BYTES
from ..translate.kinds import offset_of
from .builder import I1, I64, PTR, Builder, Reg
from .columns import Columns
from .interrupt import InTurns, Look
from .kernel import emit_kernel
from .pool_choice import STATE_WORDS
from .pool_memory import MOST_WAITS, Pool
from .product import Product, product_of
from .repeats import packed
from .routine import GridStep, LibraryStep, RoutineStep, UnitStep
from .shifted import shifted
from .unlocked import LOCK, Lock, TakeLock

ARRAY_DATA_OFFSET = 16
_ARENA, SCALARS, _POOL, FIRST_SYMBOL_WORD = 0, 1, 2, 3
# While steps are collected nobody knows how many symbols come before the arrays, so arrays are numbered from here.
_ARRAYS = 1 << 32
_BODY = [("closure", PTR), ("rank", I64), ("size", I64), ("number", I64), ("scratch", PTR)]
_SCRATCH_ALIGNMENT, _NULL = LINE_BYTES, Reg("null", PTR)
# More pointers than this are copied into the closure by a loop.
_MANY_POINTERS = 128


@dataclass(frozen=True, slots=True)
class Address:
    """`offset` bytes from what a word of the table points to; arrays are counted from _ARRAYS. `scratch`: of scratch
    memory in a shared step, how many bytes into its own a worker has it."""

    word: int
    offset: int
    scratch: int | None = None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel on addresses; `units`: of its cut (0 too), or None; `checks`: whether it tells if it failed."""

    name: str
    units: int | None
    checks: bool
    operands: tuple

    words = ()

    @property
    def token(self):
        """What a loop over steps like this one has in common."""
        return self.name, tuple(a.scratch for a in self.operands)

    def emit(self, part, operands):
        if self.units is not None:
            part.some(self.units, lambda first, stop: self._call(part, [*operands, first, stop]))
        else:
            part.alone(lambda: self._call(part, operands))

    def _call(self, part, operands):
        if not self.checks:
            part.b.call("void", self.name, operands)
            return
        failed = part.b.call(I1, self.name, operands)
        with part.b.when(failed):
            part.note(FAILED)


@dataclass(frozen=True, slots=True)
class ProductCall(LibraryStep):
    """A batch of products, or the units of a Cut; `operands`: left, right, result and scratch memory."""

    product: Product
    function: int
    cut: object
    operands: tuple

    @property
    def token(self):
        return self.product, self.function, self.cut, self.operands[-1].scratch

    def emit(self, part, pointers):
        *pointers, scratch = pointers
        work = (pointers, part.word(self.function), scratch)
        if self.cut is None:
            part.alone(lambda: self.product.emit(part.b, *work))
        elif part.turns is not None and self.product.turns_by_columns(self.cut, part.turns.n_turns):
            self._emit_turns(part, work)
        else:
            part.some(self.units, lambda first, stop: self.product.emit_units(part.b, *work, self.cut, first, stop))

    def _emit_turns(self, part, work):
        """All of a member's units in every turn, and some columns of them."""
        b, turns = part.b, part.turns
        first, stop = part.some_units(self.units)

        def one(turn):
            with b.when(b.cmp("lt", first, stop)):
                some = self.product.columns_of(b, turn, turns.n_turns)
                self.product.emit_units(b, *work, self.cut, first, stop, some)

        turns.each(part, one)


@dataclass(frozen=True, slots=True)
class Wait:
    """All members wait until every one has done all steps so far."""

    units, words, operands, token = None, (_POOL,), (), "wait"

    def emit(self, part, pointers):
        part.wait()


@dataclass(frozen=True, slots=True)
class LeaveIfFailed:
    """Before anything is written that outlives the call. Members must have waited for the checks."""

    units, words, operands, token = None, (), (), "leave"

    def emit(self, part, pointers):
        part.leave_if_failed()


class Program:
    """The steps of a program while they are collected; `finish` writes it. Kernels of equal text are emitted once."""

    def __init__(self, module, n_inputs, team=None, is_awaited=False):
        """`team`: a Team (parallel.py), or None for one thread. `is_awaited`: somebody waits for the code. What calls
        the kernels is made without LLVM's optimizations then: they take a fifth of its time and win nothing there."""
        self.module, self.n_inputs, self.team, self.is_awaited = module, n_inputs, team, is_awaited
        self.kernels, self.names, self.symbols, self.tables = {}, {}, {}, {}
        self.steps, self.slots = [], {}
        self.n_waits = 0
        self.lock = None

    # --- steps --------------------------------------------------------------------------------------------------------
    def call_kernel(self, kernel, places, scratch, first_scalars=(0,)):
        """Call a kernel on places. `scratch`: which parameters are scratch memory, and of how many bytes;
        `first_scalars`: which of the program's run-time scalars is the first of each stretch."""
        name, shifts = self.named(kernel)
        operands, start = [], 0
        for k, place in enumerate(places):
            is_own = kernel.cut and k in scratch
            operands.append(self.address(place, shifts[k], start if is_own else None))
            if is_own:
                start += -(-scratch[k] // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT
        operands += [Address(SCALARS, 8 * slot) for slot in first_scalars]
        self.steps.append(KernelCall(name, kernel.cut and kernel.cut.units, kernel.checks, tuple(operands)))
        return name

    def named(self, kernel):
        """(the name of its function, how many bytes on each parameter begins), found once: equal groups have one."""
        if id(kernel) not in self.names:
            kept, shifts = shifted(kernel)
            text = str(kept)
            if text not in self.kernels:
                emit_kernel(self.module, kept, self.kernels.setdefault(text, f"k{len(self.kernels)}"))
            self.names[id(kernel)] = self.kernels[text], shifts
        return self.names[id(kernel)]

    def call_product(self, left, right, out, scratch, cut=None):
        """out = left @ right for operands ((place, Access)), over all leading dimensions; or the units of a Cut."""
        (left_place, x), (right_place, y) = left, right
        out_place, result = out
        size = result.dtype.size_bytes
        product = product_of(x, y, result, size)
        operands = (
            self.address(left_place, x.offset * size),
            self.address(right_place, y.offset * size),
            self.address(out_place),
            self.address(scratch, scratch=0 if cut else None),
        )
        element = element_of(result.dtype)
        routine = "gemv" if 1 in result.shape[-2:] else "gemm"
        self.steps.append(ProductCall(product, self.symbol(f"{routine}_{element}"), cut, operands))
        return f"weft_gemm_{element}"

    def call_routine(self, symbol, arrays, n_rows, sizes, scratch, cut=None):
        """Call a routine on `arrays`: (place, bytes of a row) of the operands and the result."""
        places, row_bytes = zip(*arrays)
        operands = self.operands(places, scratch, cut)
        self.steps.append(RoutineStep(self.symbol(symbol), row_bytes, n_rows, tuple(sizes), cut, operands))
        return f"weft_{symbol}"

    def call_grid_product(self, element, places, words, units, scratch, cut=None):
        """Products over grids, of which `words` tell, on the places of a, b and the result."""
        table = self.tables.setdefault(str(words), f"grids{len(self.tables)}")
        symbol = f"grid_{element}"
        self.steps.append(GridStep(self.symbol(symbol), table, words, units, cut, self.operands(places, scratch, cut)))
        return f"weft_{symbol}"

    def call_units(self, symbol, places, n_units, sizes, scratch, cut=None):
        """Call a routine that works in units, on the operands and the result at `places`."""
        self.steps.append(
            UnitStep(self.symbol(symbol), n_units, tuple(sizes), cut, self.operands(places, scratch, cut))
        )
        return f"weft_{symbol}"

    def inner(self, n_inputs):
        """A Program of one step of many: its calls are collected apart, and its kernels are this one's."""
        other = copy(self)
        other.steps, other.n_inputs, other.team = [], n_inputs, None
        return other

    def operands(self, places, scratch, cut):
        """Addresses of places, and of scratch memory, which every member has of its own if the work is cut."""
        return *map(self.address, places), self.address(scratch, scratch=0 if cut else None)

    def symbol(self, name):
        """The word of a routine of that name."""
        return FIRST_SYMBOL_WORD + self.symbols.setdefault(name, len(self.symbols))

    def wait(self):
        self.steps.append(Wait())

    def leave_if_failed(self):
        self.steps.append(LeaveIfFailed())

    def leave_if_interrupted(self):
        self.steps.append(self.look())
        if self.team is not None:
            self.wait()
        self.leave_if_failed()

    def in_turns(self, n_turns):
        """The last step can be interrupted in its middle, if its work is cut."""
        step = self.steps[-1]
        if step.units is not None:
            self.steps[-1] = InTurns(step, n_turns, self.look())

    def let_go_of_lock(self):
        self.lock = Lock(self)

    def take_lock(self):
        self.steps.append(TakeLock(self.lock))

    def look(self):
        return Look((self.symbol(SEEN), self.symbol(AGAIN)))

    def address(self, place, offset=0, scratch=None):
        """The Address of a Place."""
        if place.kind == "arena":
            return Address(_ARENA, place.index + offset, scratch)
        array = place.index + (self.n_inputs if place.kind == "output" else 0)
        return Address(_ARRAYS + array, offset, scratch)

    def slot(self, word):
        """Where the closure holds what a word of the table points to."""
        return self.slots.setdefault(word, 1 + len(self.slots))

    # --- functions ----------------------------------------------------------------------------------------------------
    def finish(self, in_one=False):
        """`in_one`: every step stands in the body once, however long it gets."""
        functions = [[(self.steps, None)]] if in_one else packed(self.steps)
        if len(functions) == 1:
            body = _Part(self, "body")
            body.stretches(functions[0])
            body.finish_body()
        else:
            self.emit_parts(functions)
        assert self.n_waits <= MOST_WAITS, f"a program with more than {MOST_WAITS} waits"
        self.emit_entry()

    def emit_parts(self, functions):
        for k, stretches in enumerate(functions):
            part = _Part(self, f"part{k}")
            part.stretches(stretches)
            part.finish_part()
        body = _Part(self, "body")
        for k in range(len(functions)):
            body.call_part(f"part{k}")
        body.finish_body()

    def emit_entry(self):
        self.note_calls_kernels("weft_program")
        b = Builder(self.module, "weft_program", [("table", PTR)], result="i64")
        (table,) = b.arguments
        closure = b.alloca(I64, 1 + len(self.slots))
        b.store(b.i64(0), closure)
        self.fill_closure(b, table, closure)
        if self.lock is not None:
            self.lock.let_go(b, table, closure)
        if self.team is not None and self.team.largest_ns is not None:
            small, large = b.label("small"), b.label("large")
            b.branch_if(b.cmp("lt", b.i64(self.team.largest_ns), b.i64(self.module.target.large_ns)), small, large)
            b.start(small)
            b.leave(self.go_alone(b, closure))
            b.start(large)
        result = self.go_alone(b, closure) if self.team is None else self.go_together(b, table, closure)
        if self.lock is not None:
            self.lock.take(b, closure)
        b.finish(result)

    def note_calls_kernels(self, name):
        """The function of this name does little itself."""
        if self.is_awaited:
            self.module.made_quickly.add(name)

    @staticmethod
    def go_alone(b, closure):
        return b.call(I64, "body", [closure, b.i64(0), b.i64(1), b.i64(0), _NULL])

    def go_together(self, b, table, closure):
        most, ahead_ns = b.i64(self.team.most), b.i64(self.team.ahead_ns)
        if is_open(self.team.most):
            most = b.select(b.cmp("lt", most, b.i64(2)), b.i64(2), most)
        self.module.globals["state"] = (
            f"@state = internal global [{STATE_WORDS} x i64] zeroinitializer, align {LINE_BYTES}"
        )
        state, body = Reg("@state", PTR), Reg("@body", PTR)
        pool = b.load(b.offset(table, _POOL, 8), PTR)
        begin, end = (b.load(b.offset(pool, offset_of(Pool, name), 1), PTR) for name in ("begin", "end"))
        size = b.call(I64, begin, [pool, state, body, closure, most, ahead_ns])
        number = b.load(b.offset(pool, offset_of(Pool, "generation"), 1), I64)
        b.call(I64, "body", [closure, b.i64(0), size, number, _NULL])
        b.call("void", end, [pool, state, size])
        # Other members may have noted a failure after the caller was done.
        return b.load(closure, I64)

    def fill_closure(self, b, table, closure):
        first = FIRST_SYMBOL_WORD + len(self.symbols) - _ARRAYS
        arrays = [x for word, slot in self.slots.items() if word >= _ARRAYS for x in (first + word, slot)]
        by_loop = len(arrays) > 2 * _MANY_POINTERS
        for word, slot in self.slots.items():
            if LOCK != word < _ARRAYS:
                b.store(b.load(b.offset(table, word, 8), PTR), b.offset(closure, slot, 8))
            elif word != LOCK and not by_loop:
                self.copy_data_pointer(b, table, first + word, closure, slot)
        if by_loop:
            rows = self.module.constant_table("arrays", "i64", arrays)
            with b.loop(0, len(arrays) // 2, 1) as k:
                row = b.offset(rows, k, 16)
                self.copy_data_pointer(b, table, b.load(row, I64), closure, b.load(b.offset(row, 1, 8), I64))

    @staticmethod
    def copy_data_pointer(b, table, word, closure, slot):
        array = b.load(b.offset(table, word, 8), PTR)
        data = b.load(b.offset(array, ARRAY_DATA_OFFSET, 1), PTR)
        b.store(data, b.offset(closure, slot, 8))


class _Part:
    """A function of the body's signature while it is written."""

    def __init__(self, program, name):
        self.program = program
        program.note_calls_kernels(name)
        self.b = Builder(program.module, name, _BODY, result="i64", linkage="internal")
        self.closure, self.rank, self.size, self.number, self.own_scratch = self.b.arguments
        self.pointers, self.units = {}, {}
        self.failed = self.turns = None
        # In a loop over steps: which wait of the program the first wait of this iteration is, less that of the first.
        self.waits_before = None
        self.is_caller = self.b.cmp("eq", self.rank, self.b.i64(0))

    # --- memory -------------------------------------------------------------------------------------------------------
    def word(self, k):
        """A word of the table, or the data pointer of an array in it."""
        if k not in self.pointers:
            place = self.b.offset(self.closure, self.program.slot(k), 8)
            self.pointers[k] = self.b.load(place, PTR)
        return self.pointers[k]

    def pointer(self, address):
        """What an Address is: of scratch memory the caller's is in the arena."""
        return self.own(address, self.b.offset(self.word(address.word), address.offset, 1))

    def own(self, address, callers):
        if address.scratch is None:
            return callers
        return self.b.select(self.is_caller, callers, self.b.offset(self.own_scratch, address.scratch, 1))

    # --- steps --------------------------------------------------------------------------------------------------------
    def stretches(self, stretches):
        for steps, period in stretches:
            if period:
                self.repeat(steps, period)
            else:
                for step in steps:
                    step.emit(self, [self.pointer(a) for a in step.operands])

    def repeat(self, steps, period):
        """A loop: `period` steps, whose addresses a table gives for every iteration where they differ."""
        b, count, columns = self.b, len(steps) // period, Columns()
        body = steps[:period]
        # What is the same in all iterations is computed before the loop.
        for step in body:
            for word in step.words:
                self.word(word)
            if step.units is not None:
                self.some_units(step.units)
        operands = [
            [columns.operand(self, [s.operands[k] for s in steps[n::period]]) for k in range(len(step.operands))]
            for n, step in enumerate(body)
        ]
        table = columns.emit(self.program.module)
        n_waits = sum(isinstance(step, Wait) for step in body)
        with b.loop(0, count, 1) as k:
            row = columns.load(b, table, k)
            self.waits_before = b.mul(k, b.i64(n_waits)) if n_waits else None
            for step, made in zip(body, operands):
                step.emit(self, [make(row) for make in made])
        self.waits_before = None
        self.program.n_waits += n_waits * (count - 1)

    def alone(self, emit):
        """A step that one thread does."""
        if self.program.team is None:
            emit()
            return
        with self.b.when(self.is_caller):
            emit()

    def some(self, units, emit):
        """A step of which every member does some units: emit(first, stop)."""
        first, stop = self.some_units(units)
        if self.turns is not None:
            self.turns.some(self, first, stop, emit)
            return
        with self.b.when(self.b.cmp("lt", first, stop)):
            emit(first, stop)

    def some_units(self, units):
        # By what it says: an extent that happens to be another one's number is not that one.
        b, key = self.b, str(units)
        if key not in self.units:
            edges = [b.mul(b.i64(units), rank) for rank in (self.rank, b.add(self.rank, b.i64(1)))]
            self.units[key] = [b.div(edge, self.size) for edge in edges]
        return self.units[key]

    def wait(self):
        b, program = self.b, self.program
        program.n_waits += 1
        number = b.add(self.number, b.i64(program.n_waits))
        if self.waits_before is not None:
            number = b.add(number, self.waits_before)
        pool = self.word(_POOL)
        # In a register whose name says what it is.
        function = Reg(b.fresh("wait"), PTR)
        b.lines.append(f"  {function.name} = load ptr, {b.offset(pool, offset_of(Pool, 'wait'), 1)}, align 8")
        b.call("void", function, [pool, self.rank, self.size, number])

    # --- checks -------------------------------------------------------------------------------------------------------
    def note(self, what):
        """FAILED or INTERRUPTED, in the closure, where several members may note something at the same time."""
        self.b.emit(I64, f"atomicrmw or {self.closure}, i64 {what} monotonic, align 8")

    def leave_if_failed(self):
        self.leave_if(lambda: self.b.load(self.closure, I64))

    def leave_if(self, make_number):
        """Return what the closure says of failures, if a number is not 0."""
        self.failed = self.failed or self.b.label("failed")
        following = self.b.label("following")
        self.b.branch_if(self.b.cmp("ne", make_number(), self.b.i64(0)), self.failed, following)
        self.b.start(following)

    # --- the whole function -------------------------------------------------------------------------------------------
    def call_part(self, name):
        """Everything a part does, which returns whether to leave."""
        self.leave_if(lambda: self.b.call(I64, name, self.b.arguments))

    def finish_body(self):
        self.end_failed()
        self.b.finish(self.b.load(self.closure, I64))

    def finish_part(self):
        self.end_failed()
        self.b.finish(self.b.i64(0))

    def end_failed(self):
        b = self.b
        if self.failed is not None:
            done = b.label("succeeded")
            b.branch(done)
            b.start(self.failed)
            b.lines.append(f"  ret {b.load(self.closure, I64)}")
            b.start(done)
