"""A small writer of LLVM IR text: typed registers, explicit vectors, structured loops.

Kernels are written as text because text builds about twenty times faster than a tree of IR objects, and with explicit
vectors because then no LLVM optimisation pass is needed. The vocabulary names operations (`fma`, `scale_pow2`), never
one CPU's instructions, so that another target needs another `Builder`, not other kernels.

    module = Module()
    b = Builder(module, "axpy", [("n", I64), ("x", PTR), ("y", PTR)])
    n, x, y = b.arguments
    with b.loop(b.i64(0), n, 16) as i:
        mask = b.lane_mask(i, n, 16)
        v = b.load(b.offset(x, i, 4), Type("f32", 16), mask)
        b.store(b.mul(v, v), b.offset(y, i, 4), mask)
    b.finish()
    text = str(module)
"""

from contextlib import contextmanager

from ..extent import Ratio, is_open
from ..target import LINE_BYTES
from .module import F32, F64, I1, I8, I32, I64, PTR, Module, Reg, Type, literal
from .stored import STORED, between
from .tails import store_first

__all__ = ["F32", "F64", "I1", "I8", "I32", "I64", "PTR", "Builder", "Loop", "Module", "Reg", "Type", "literal"]

_FLOAT_PREDICATES = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une", "uno": "uno"}
_INT_PREDICATES = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne", "ult": "ult"}


class Builder:
    """Writes one function. Every method that computes appends one instruction and returns its register."""

    def __init__(self, module, name, parameters, *, result="void", linkage=""):
        self.module, self.name = module, name
        self.result, self.linkage = result, linkage
        self.arguments = [Reg(f"%{n}", t) for n, t in parameters]
        self.lines = ["entry:"]
        self.extents = {}  # extents in registers, loaded at the beginning
        self.block = "entry"
        self._count = 0

    # --- registers, constants -------------------------------------------------------------------------------------
    def fresh(self, stem="v"):
        self._count += 1
        return f"%{stem}{self._count}"

    def emit(self, type, text):
        register = Reg(self.fresh(), type)
        self.lines.append(f"  {register.name} = {text}")
        return register

    def const(self, value, type):
        """The constant in every lane of `type`."""
        if is_open(value):
            number = self.open_number(value)
            if type.is_float:
                number = self.convert(self.convert(number, "f64"), type.element)
            return self.splat(number, type.lanes) if type.lanes else number
        text = literal(value, type.element)
        return Reg(f"splat ({Type(type.element)} {text})" if type.lanes else text, type)

    def open_number(self, value):
        """An extent, or what is divided by one."""
        if not isinstance(value, Ratio):
            return self.i64(value)
        return self.div(self.const(value.numerator, F64), self.convert(self.i64(value.divisor), "f64"))

    def i64(self, value):
        if is_open(value):
            return self.extent(value)
        return value if isinstance(value, Reg) else Reg(str(int(value)), I64)

    def extent(self, extent):
        """The register of an extent known at run time."""
        text = str(extent)
        if text not in self.extents:
            self.extents[text] = Reg(self.fresh("extent"), I64)
        return self.extents[text]

    def iota(self, type, step=1):
        """0, step, 2 * step, ... over the lanes of an integer vector type."""
        lane = Type(type.element)
        return Reg("<" + ", ".join(f"{lane} {k * step}" for k in range(type.lanes)) + ">", type)

    # --- arithmetic -----------------------------------------------------------------------------------------------
    def _binary(self, float_name, int_name, x, y):
        name = float_name if x.type.is_float else int_name
        assert name and x.type == y.type, (self.name, float_name, int_name, x, y)
        return self.emit(x.type, f"{name} {x.type} {x.name}, {y.name}")

    def add(self, x, y):
        return self._binary("fadd", "add", x, y)

    def sub(self, x, y):
        return self._binary("fsub", "sub", x, y)

    def mul(self, x, y):
        return self._binary("fmul", "mul", x, y)

    def div(self, x, y):
        """Float division, or integer division toward zero."""
        return self._binary("fdiv", "sdiv", x, y)

    def rem(self, x, y):
        """Remainder with the sign of x (C's fmod, or the integer remainder of truncating division)."""
        return self._binary("frem", "srem", x, y)

    def and_(self, x, y):
        return self._binary(None, "and", x, y)

    def or_(self, x, y):
        return self._binary(None, "or", x, y)

    def xor(self, x, y):
        return self._binary(None, "xor", x, y)

    def shl(self, x, y):
        return self._binary(None, "shl", x, y)

    def lshr(self, x, y):
        return self._binary(None, "lshr", x, y)

    def ashr(self, x, y):
        return self._binary(None, "ashr", x, y)

    def not_(self, x):
        return self.xor(x, self.const(1 if x.type.element == "i1" else -1, x.type))

    def neg(self, x):
        if x.type.is_float:
            return self.emit(x.type, f"fneg {x}")
        return self.sub(self.const(0, x.type), x)

    def fma(self, x, y, z):
        """x * y + z with one rounding."""
        return self.intrinsic("fma", x, y, z)

    def sqrt(self, x):
        return self.intrinsic("sqrt", x)

    def abs(self, x):
        if x.type.is_float:
            return self.intrinsic("fabs", x)
        return self.select(self.cmp("lt", x, self.const(0, x.type)), self.neg(x), x)

    def floor(self, x):
        return self.intrinsic("floor", x)

    def ceil(self, x):
        return self.intrinsic("ceil", x)

    def trunc(self, x):
        return self.intrinsic("trunc", x)

    def round_even(self, x):
        return self.intrinsic("roundeven", x)

    def copysign(self, magnitude, sign):
        return self.intrinsic("copysign", magnitude, sign)

    def intrinsic(self, name, *operands):
        """An intrinsic overloaded on one type that its result and all operands share."""
        t = operands[0].type
        full = f"llvm.{name}.{t.mangled}"
        self.module.declare(full, t, [o.type for o in operands])
        return self.emit(t, f"call {t} @{full}({', '.join(map(str, operands))})")

    def scale_pow2(self, x, n):
        """x * 2**n for integer n (i32 lanes for f32, i64 lanes for f64), rounded once; exact unless the result is
        subnormal. Two multiplications, because 2**n alone may be out of range; |n| up to about 2000 (f64) or 250."""
        integer, bias, shift = ("i32", 127, 23) if x.type.element == "f32" else ("i64", 1023, 52)
        t = x.type.of(integer)
        half = self.ashr(n, self.const(1, t))
        for part in (half, self.sub(n, half)):
            biased = self.shl(self.add(part, self.const(bias, t)), self.const(shift, t))
            x = self.mul(x, self.bitcast(biased, x.type.element))
        return x

    # --- comparison, selection, conversion ------------------------------------------------------------------------
    def cmp(self, predicate, x, y):
        """lt le gt ge eq ne: false on NaN except ne; uno: either is NaN; ult: unsigned integers. Result: i1 lanes."""
        assert x.type == y.type, (self.name, predicate, x, y)
        if x.type.is_float:
            text = f"fcmp {_FLOAT_PREDICATES[predicate]} {x.type} {x.name}, {y.name}"
        else:
            text = f"icmp {_INT_PREDICATES[predicate]} {x.type} {x.name}, {y.name}"
        return self.emit(x.type.of("i1"), text)

    def select(self, mask, x, y):
        assert x.type == y.type, (self.name, x, y)
        return self.emit(x.type, f"select {mask}, {x}, {y}")

    def bitcast(self, x, element):
        t = x.type.of(element)
        return x if t == x.type else self.emit(t, f"bitcast {x} to {t}")

    def convert(self, x, element):
        """Numeric conversion: float to signed integer truncates toward zero; i1 becomes 0 or 1; to i1 tests != 0."""
        source, t = x.type, x.type.of(element)
        if source == t:
            return x
        if element in STORED or source.element in STORED:
            return between(self, x, element)
        if element == "i1":
            return self.cmp("ne", x, self.const(0, source))
        if source.element == "i1":
            return self.emit(t, f"{'uitofp' if t.is_float else 'zext'} {x} to {t}")
        if source.is_float:
            name = "fptosi" if not t.is_float else "fpext" if t.element == "f64" else "fptrunc"
        elif t.is_float:
            name = "sitofp"
        else:
            name = "sext" if t.element_bytes > source.element_bytes else "trunc"
        return self.emit(t, f"{name} {x} to {t}")

    def freeze(self, x):
        """x itself, but the code generator no longer sees how it was computed and keeps it in a register."""
        return self.emit(x.type, f"freeze {x}")

    # --- lanes ----------------------------------------------------------------------------------------------------
    # Whether elements that lie near each other are best loaded together and shuffled.
    loads_neighbours = True

    def vector(self, element, lanes):
        """The type of a vector."""
        return Type(element, lanes)

    def combine(self, x, step, count=None):
        """All lanes, or the first `count` of them, by halving: in every lane step(..., the upper half)."""
        lanes = x.type.lanes
        # The upper half onto the lower one, in ever narrower vectors. (Rotating a whole vector onto itself gives the
        # same lane 0, but LLVM 22 gets it wrong for f64 on AVX-512 where the result is scaled and spread: it adds lane
        # 0 twice.)
        while x.type.lanes > 1:
            half = x.type.lanes // 2
            lower = self.shuffle(x, x, range(half))
            if count is None or count > half:
                x = step(self, lower, self.shuffle(x, x, range(half, 2 * half)))
            else:
                x = lower
        return self.shuffle(x, x, [0] * lanes)

    def meet(self):
        """What a lane has stored can be read by the others from here on."""

    def splat(self, scalar, lanes):
        t = Type(scalar.type.element, lanes)
        first = self.emit(t, f"insertelement {t} poison, {scalar}, i64 0")
        return self.emit(t, f"shufflevector {first}, {t} poison, <{lanes} x i32> zeroinitializer")

    def extract(self, vector, lane):
        return self.emit(Type(vector.type.element), f"extractelement {vector}, {self.i64(lane)}")

    def insert(self, vector, scalar, lane):
        return self.emit(vector.type, f"insertelement {vector}, {scalar}, {self.i64(lane)}")

    def shuffle(self, x, y, lanes):
        """Lanes picked by constant index from x followed by y."""
        t = Type(x.type.element, len(lanes))
        picks = ", ".join(f"i32 {k}" for k in lanes)
        return self.emit(t, f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{picks}>")

    def each_lane(self, vector, empty, compute):
        """compute(a lane's number) for lane after lane, in scalar code: the results, in vectors like `empty`."""
        with self.loop(0, vector.type.lanes, 1, carried=empty) as (lane, loop):
            results = compute(self.extract(vector, lane))
            loop.next([self.insert(v, x, lane) for v, x in zip(loop.values, results, strict=True)])
        return loop.results

    def any_lane(self, mask):
        """i1 scalar: whether any lane of an i1 vector is set, or the one of a scalar."""
        if not mask.type.lanes:
            return mask
        full = f"llvm.vector.reduce.or.{mask.type.mangled}"
        self.module.declare(full, I1, [mask.type])
        return self.emit(I1, f"call i1 @{full}({mask})")

    def lane_mask(self, index, stop, lanes):
        """Lane k is set where index + k < stop (i64 scalars); in i64 a mask of AVX2 took 9 instructions."""
        rest = self.intrinsic("smin", self.sub(self.i64(stop), self.i64(index)), self.i64(lanes))
        within = self.intrinsic("smax", rest, self.i64(0))
        return self.cmp("lt", self.iota(Type("i32", lanes)), self.splat(self.convert(within, "i32"), lanes))

    def first_lanes(self, count, lanes):
        """The mask whose first `count` lanes are set: a constant, unless the count is known at run time only."""
        if is_open(count):
            return self.lane_mask(0, count, lanes)
        bits = ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(lanes))
        return Reg(f"<{bits}>", Type("i1", lanes))

    # --- memory ---------------------------------------------------------------------------------------------------
    def offset(self, pointer, index, element_bytes):
        """pointer + index * element_bytes; index is an int or an i64 register, or both are extents."""
        if is_open(element_bytes) or is_open(index):
            if isinstance(index, Reg):
                n_bytes = self.mul(index, self.i64(element_bytes))
            else:
                n_bytes = self.i64(index * element_bytes)
            return self.emit(PTR, f"getelementptr i8, {pointer}, {n_bytes}")
        if isinstance(index, int):
            if index == 0:
                return pointer
            return self.emit(PTR, f"getelementptr i8, {pointer}, i64 {index * element_bytes}")
        return self.emit(PTR, f"getelementptr [{element_bytes} x i8], {pointer}, {index}")

    def load(self, pointer, type, mask=None):
        """Load `type` (alignment of one element). Lanes that `mask` clears are not read and hold zero."""
        if mask is None:
            return self.emit(type, f"load {type}, {pointer}, align {type.element_bytes}")
        full = f"llvm.masked.load.{type.mangled}.p0"
        self.module.declare(full, type, [PTR, mask.type, type])
        zero = f"{type} zeroinitializer"
        return self.emit(type, f"call {type} @{full}(ptr align {type.element_bytes} {pointer.name}, {mask}, {zero})")

    def store(self, value, pointer, mask=None):
        t = value.type
        if mask is None:
            # Of what a select leaves as it is in memory LLVM would store the other lanes alone.
            value = self.emit(t, f"freeze {value}") if t.lanes and self.module.target.stores_masked_slowly else value
            self.lines.append(f"  store {value}, {pointer}, align {t.element_bytes}")
            return
        if self.module.target.stores_masked_slowly and store_first(self, value, pointer, mask):
            return
        full = f"llvm.masked.store.{t.mangled}.p0"
        self.module.declare(full, "void", [t, PTR, mask.type])
        self.lines.append(f"  call void @{full}({value}, ptr align {t.element_bytes} {pointer.name}, {mask})")

    def prefetch(self, pointer):
        """Ask for what is there, to be read soon; it need not be memory of the program."""
        self.module.declare("llvm.prefetch.p0", "void", [PTR, I32, I32, I32])
        self.lines.append(f"  call void @llvm.prefetch.p0({pointer}, i32 0, i32 3, i32 1)")

    def gather(self, pointer, indices, type, mask=None):
        """Lane k: the element at pointer + indices[k] * element size (i64 lanes), where mask is set; else zero."""
        if mask is None:
            return self._gather_all(pointer, indices, type)
        pointers_type = Type("ptr", type.lanes)
        address = f"getelementptr [{type.element_bytes} x i8], {pointer}, {indices}"
        pointers = self.emit(pointers_type, address)
        full = f"llvm.masked.gather.{type.mangled}.{pointers_type.mangled}"
        self.module.declare(full, type, [pointers_type, mask.type, type])
        zero = f"{type} zeroinitializer"
        operand = f"{pointers_type} align {type.element_bytes} {pointers.name}"
        return self.emit(type, f"call {type} @{full}({operand}, {mask}, {zero})")

    def _gather_all(self, pointer, indices, type):
        """Loads one by one: half the time of a processor's gather, where what they read is in a cache."""
        x = Reg("poison", type)
        for k in range(type.lanes):
            place = self.emit(PTR, f"getelementptr [{type.element_bytes} x i8], {pointer}, {self.extract(indices, k)}")
            x = self.insert(x, self.load(place, Type(type.element)), k)
        return x

    def scatter(self, value, pointer, indices, mask):
        """Store lane k of value at pointer + indices[k] * element size, where mask is set."""
        t = value.type
        pointers_type = Type("ptr", t.lanes)
        pointers = self.emit(pointers_type, f"getelementptr [{t.element_bytes} x i8], {pointer}, {indices}")
        full = f"llvm.masked.scatter.{t.mangled}.{pointers_type.mangled}"
        self.module.declare(full, "void", [t, pointers_type, mask.type])
        operand = f"{pointers_type} align {t.element_bytes} {pointers.name}"
        self.lines.append(f"  call void @{full}({value}, {operand}, {mask})")

    def alloca(self, type, count=1):
        """Stack space, placed in the entry block whatever the current position."""
        register = Reg(self.fresh("stack"), PTR)
        self.lines.insert(1, f"  {register.name} = alloca {type}, i64 {count}, align {LINE_BYTES}")
        return register

    # --- control --------------------------------------------------------------------------------------------------
    def label(self, stem="block"):
        return self.fresh(stem)[1:]

    def start(self, label):
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label):
        self.lines.append(f"  br label %{label}")

    def branch_if(self, condition, then, otherwise):
        self.lines.append(f"  br {condition}, label %{then}, label %{otherwise}")

    def phi(self, type, incoming):
        """incoming: (register, block label) pairs."""
        text = ", ".join(f"[ {r.name}, %{block} ]" for r, block in incoming)
        return self.emit(type, f"phi {type} {text}")

    @contextmanager
    def loop(self, start, stop, step, carried=()):
        """for i in range(start, stop, step), possibly zero times, with loop-carried registers.

        Without `carried` yields the index register. With it yields (index, Loop): `loop.values` are the carried
        registers inside; `loop.next(values)` must be called before the body ends; `loop.results` hold them after.
        """
        start, stop, step = self.i64(start), self.i64(stop), self.i64(step)
        head, body, latch, done = (self.label(s) for s in ("head", "body", "latch", "done"))
        before = self.block
        self.branch(head)
        self.start(head)
        index = Reg(self.fresh("i"), I64)
        values = [Reg(self.fresh("carried"), c.type) for c in carried]
        at = len(self.lines)
        condition = self.cmp("lt", index, stop)
        self.branch_if(condition, body, done)
        self.start(body)
        state = Loop(values)
        yield (index, state) if carried else index
        self.branch(latch)
        self.start(latch)
        following = self.add(index, step)
        self.branch(head)
        assert len(state.following) == len(values), f"{self.name}: loop.next not called"
        phis = [f"  {index.name} = phi i64 [ {start.name}, %{before} ], [ {following.name}, %{latch} ]"]
        for value, initial, new in zip(values, carried, state.following, strict=True):
            assert value.type == new.type, (self.name, value, new)
            phis.append(f"  {value.name} = phi {value.type} [ {initial.name}, %{before} ], [ {new.name}, %{latch} ]")
        self.lines[at:at] = phis
        state.results = values
        self.start(done)

    @contextmanager
    def when(self, condition):
        """Run the body only if the i1 scalar is set. Registers made inside must not be used after."""
        then, done = self.label("then"), self.label("done")
        self.branch_if(condition, then, done)
        self.start(then)
        yield
        self.branch(done)
        self.start(done)

    def when_value(self, condition, otherwise, compute):
        """compute() if the i1 scalar is set, else `otherwise`: a rare path beside the common one."""
        return self._when_values(condition, [otherwise], lambda: [compute()], "")[0]

    def when_rarely(self, condition, otherwise, compute):
        """The same of several values, by a branch marked unlikely. Without the mark the register allocator counts the
        rare path as half of all work, and spills constants of the common path to make room for those of it."""
        return self._when_values(condition, otherwise, compute, ', !prof !{!"branch_weights", i32 1, i32 1000000}')

    def _when_values(self, condition, otherwise, compute, weights):
        then, done, before = self.label("rare"), self.label("done"), self.block
        self.lines.append(f"  br {condition}, label %{then}, label %{done}{weights}")
        self.start(then)
        values, last = compute(), self.block
        self.branch(done)
        self.start(done)
        return [self.phi(x.type, [(y, before), (x, last)]) for x, y in zip(values, otherwise, strict=True)]

    def call(self, result, target, operands):
        """Call a function of this module by name ("f") or through a pointer register."""
        if not isinstance(target, Reg):
            self.module.meet(target, result, operands)
        callee = target.name if isinstance(target, Reg) else f"@{target}"
        text = f"call {result} {callee}({', '.join(map(str, operands))})"
        return self.lines.append(f"  {text}") if result == "void" else self.emit(result, text)

    def leave(self, value=None):
        """Return from the function, which has other blocks still."""
        self.lines.append(f"  ret {value}" if value is not None else "  ret void")

    def finish(self, value=None):
        self.leave(value)
        self.close()

    def start_checks(self):
        """The address of a byte: what fails stores 1 there."""
        flag = self.alloca(I8)
        self.store(self.const(0, I8), flag)
        return flag

    def finish_checks(self, flag):
        """Return whether something has failed."""
        self.finish(self.cmp("ne", self.load(flag, I8), self.const(0, I8)))

    def close(self):
        """The function is written, to the last `ret`."""
        self.module.meet(self.name, self.result, self.arguments)
        loads = [
            f"  {register.name} = load i64, ptr {self.module.extent(text).name}, align 8"
            for text, register in self.extents.items()
        ]
        self.lines[1:1] = loads
        parameters = ", ".join(f"{r.type} {r.name}" for r in self.arguments)
        head = f"define {self.linkage} {self.result} @{self.name}({parameters}) ".replace("  ", " ")
        self.module.functions.append("\n".join([f"{head}{self.module.group_of(self.name)} {{", *self.lines, "}"]))


class Loop:
    """The carried registers of a loop: `values` inside, `next(...)` at the end of the body, `results` after."""

    def __init__(self, values):
        self.values = values
        self.following = []
        self.results = None

    def next(self, values):
        self.following = list(values)
