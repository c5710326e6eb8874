"""The same vocabulary for a GPU: a vector is a warp, each of whose 32 threads has one lane of it in a register.

    add, fma, cmp, select, ...    what they are elsewhere, of one lane
    load, store, gather, scatter  each thread its element; those that a mask clears touch nothing
    shuffle, combine, any_lane    the threads of the warp exchange registers

So loop nests become kernels of a GPU through the writer that makes those of a CPU (emit/kernel.py) and through the ops'
own lowerings, and a sum, whose order is one of 32 lanes (emit/reduce.py), is the same additions in the same order.

What is one number for all lanes (bounds of loops, addresses of rows) every thread computes for itself; it is stored by
lane 0. All threads of a warp take the same way but for masked loads and stores, so they are together where they
exchange registers. Warps know nothing of each other.

Multiplications and additions are rounded one by one unless `fma` says otherwise: LLVM writes `mul.rn` and `add.rn`,
which the assembler does not contract.
"""

from ..extent import is_open
from .builder import I8, I32, I64, PTR, Builder, Reg, Type
from .module import Module, literal

_EVERY = "i32 -1"  # threads of a warp that take part
_LAST = 31
_HALF_OF_WORD = 32
# Of signed integers, as floats: the least, and the first that is too large.
_RANGE = {"i32": (-(2.0**31), 2.0**31), "i64": (-(2.0**63), 2.0**63)}


class NoWarpKernel(Exception):
    """Something that has no form for a GPU."""


class LaneType(Type):
    """A vector's type in the text of one thread: that of an element."""

    __slots__ = ()

    def __str__(self):
        return str(Type(self.element))

    @property
    def mangled(self):
        return Type(self.element).mangled

    def of(self, element):
        return LaneType(element, self.lanes)


class WarpModule(Module):
    """Kernels of a GPU, and what they declare."""

    def __str__(self):
        threads = self.target.warp * self.target.block_warps
        parts = [*self.globals.values(), *self.declarations.values(), *self.functions]
        attributes = f'attributes #0 = {{ convergent nounwind "nvvm.maxntid"="{threads}" }}'
        return "\n".join([*parts, attributes, ""])


class WarpBuilder(Builder):
    """Writes one kernel, of pointers. `arguments` are those, and after `share` the units that this warp does; the last
    pointer is that of a byte which says whether a check of the program has failed, if `may_fail`."""

    loads_neighbours = False

    def __init__(self, module, name, pointers, may_fail=False):
        super().__init__(module, name, [*pointers, ("failed", PTR)] if may_fail else pointers)
        self.parameters = list(self.arguments)
        self.failed = self.arguments.pop() if may_fail else None
        self.thread = self._special("tid.x")
        self.lane = self.emit(I32, f"and {self.thread}, {_LAST}")
        self.lane64 = self.emit(I64, f"zext {self.lane} to i64")
        block = self._special("ctaid.x")
        inside = self.emit(I32, f"lshr {self.thread}, 5")
        first = self.emit(I32, f"mul {block}, {module.target.block_warps}")
        number = self.emit(I32, f"add {first}, {inside.name}")
        self.warp = self.emit(I64, f"zext {number} to i64")

    def _special(self, name):
        full = f"llvm.nvvm.read.ptx.sreg.{name}"
        self.module.declare(full, I32, [])
        return self.emit(I32, f"call i32 @{full}()")

    def leave_if_failed(self):
        """Do nothing if a check of a kernel before this one has failed."""
        go_on, done = self.label("unfailed"), self.label("failed")
        failed = super().load(self.failed, I8)
        self.branch_if(self.cmp("eq", failed, self.const(0, I8)), go_on, done)
        self.start(done)
        self.leave()
        self.start(go_on)

    def start_checks(self):
        return self.failed

    def finish_checks(self, flag):
        self.finish()

    def share(self, units, units_per_warp):
        """Leave if there is nothing for this warp; else its units are the last two arguments."""
        first = self.mul(self.warp, self.i64(units_per_warp))
        work, done = self.label("work"), self.label("idle")
        self.branch_if(self.cmp("lt", first, self.i64(units)), work, done)
        self.start(done)
        self.leave()
        self.start(work)
        stop = self.intrinsic("smin", self.add(first, self.i64(units_per_warp)), self.i64(units))
        self.arguments += [first, stop]

    def own(self, k, n_bytes):
        """Of the k-th pointer, to so many bytes for every warp, this warp's part."""
        self.arguments[k] = self.offset(self.arguments[k], self.warp, n_bytes)

    # --- types and constants ------------------------------------------------------------------------------------------
    def vector(self, element, lanes):
        return LaneType(element, lanes)

    def const(self, value, type):
        if is_open(value):
            raise NoWarpKernel("has an extent that is known at run time only, which no kernel for a GPU takes")
        return Reg(literal(value, type.element), type)

    def iota(self, type, step=1):
        lane = self.lane64 if type.element == "i64" else self.lane
        steps = lane if step == 1 else self.mul(lane, Reg(str(step), lane.type))
        return Reg(steps.name, type)

    # --- arithmetic that differs --------------------------------------------------------------------------------------
    def rem(self, x, y):
        if x.type.is_float:
            # What the GPU has instead divides, and rounds.
            raise NoWarpKernel("needs the exact remainder of floats, which no kernel for a GPU has")
        return super().rem(x, y)

    def convert(self, x, element):
        """A float that no integer holds becomes the least one, as on x86-64; a GPU would give the nearest."""
        if not (x.type.is_float and element in _RANGE):
            return super().convert(x, element)
        lowest, above = (self.const(v, x.type) for v in _RANGE[element])
        fits = self.and_(self.cmp("ge", x, lowest), self.cmp("lt", x, above))
        least = self.const(int(_RANGE[element][0]), x.type.of(element))
        return self.select(fits, super().convert(x, element), least)

    # --- lanes --------------------------------------------------------------------------------------------------------
    def splat(self, scalar, lanes):
        return Reg(scalar.name, LaneType(scalar.type.element, lanes))

    def extract(self, vector, lane):
        found = self._from(
            vector,
            self.emit(I32, f"trunc {self.i64(lane)} to i32") if not isinstance(lane, int) else Reg(str(lane), I32),
        )
        return Reg(found.name, Type(vector.type.element))

    def insert(self, vector, scalar, lane):
        here = self.cmp("eq", self.lane64, self.i64(lane))
        return self.select(Reg(here.name, vector.type.of("i1")), Reg(scalar.name, vector.type), vector)

    def shuffle(self, x, y, lanes):
        lanes, n = list(lanes), x.type.lanes
        if lanes == [lanes[0]] * n:
            return self._from(x, Reg(str(lanes[0]), I32))
        turn = lanes[0]
        assert x == y and lanes == [(k + turn) % n for k in range(n)], (self.name, lanes)
        ahead = self.emit(I32, f"add {self.lane}, {turn}")
        return self._from(x, self.emit(I32, f"and {ahead}, {_LAST}"))

    def combine(self, x, step, count=None):
        """The halves of a vector are the lanes with and without a bit. Every thread combines both in the same order, so
        all get the same."""
        distance = x.type.lanes // 2
        while distance:
            if count is None or count > distance:
                place = self.emit(I32, f"xor {self.lane}, {distance}")
                other = self._from(x, place)
                is_lower = Reg(self.cmp("lt", self.lane, place).name, x.type.of("i1"))
                x = step(self, self.select(is_lower, x, other), self.select(is_lower, other, x))
            distance //= 2
        return self._from(x, Reg("0", I32))

    def each_lane(self, vector, empty, compute):
        results = compute(Reg(vector.name, Type(vector.type.element)))
        return [Reg(x.name, e.type) for x, e in zip(results, empty, strict=True)]

    def any_lane(self, mask):
        if not mask.type.lanes:
            return mask
        full = "llvm.nvvm.vote.any.sync"
        self.module.declare(full, "i1", [I32, "i1"])
        return self.emit(Type("i1"), f"call i1 @{full}({_EVERY}, i1 {mask.name})")

    def lane_mask(self, index, stop, lanes):
        here = self.add(self.i64(index), self.lane64)
        return Reg(self.cmp("lt", here, self.i64(stop)).name, LaneType("i1", lanes))

    def first_lanes(self, count, lanes):
        return self.lane_mask(0, count, lanes)

    def meet(self):
        full = "llvm.nvvm.bar.warp.sync"
        self.module.declare(full, "void", [I32])
        self.lines.append(f"  call void @{full}({_EVERY})")

    def _from(self, x, place):
        """What another lane has in x."""
        if x.type.element_bytes == 8:
            return self._word_from(x, place)
        word = x
        if x.type.element == "f32":
            word = self.bitcast(x, "i32")
        elif x.type.element != "i32":
            word = self.emit(I32, f"zext {x} to i32")
        found = self._exchange(Reg(word.name, I32), place)
        if x.type.element == "f32":
            return self.emit(x.type, f"bitcast {found} to float")
        if x.type.element != "i32":
            return self.emit(x.type, f"trunc {found} to {x.type}")
        return Reg(found.name, x.type)

    def _word_from(self, x, place):
        word = self.bitcast(x, "i64")
        high = self.emit(I64, f"lshr {word}, {_HALF_OF_WORD}")
        low, high = (
            self.emit(I64, f"zext {self._exchange(self.emit(I32, f'trunc {part} to i32'), place)} to i64")
            for part in (word, high)
        )
        found = Reg(self.or_(low, self.shl(high, Reg(str(_HALF_OF_WORD), I64))).name, word.type)
        return self.bitcast(found, x.type.element)

    def _exchange(self, x, place):
        full = "llvm.nvvm.shfl.sync.idx.i32"
        self.module.declare(full, I32, [I32, I32, I32, I32])
        return self.emit(I32, f"call i32 @{full}({_EVERY}, {x}, {place}, i32 {_LAST})")

    # --- memory -------------------------------------------------------------------------------------------------------
    def load(self, pointer, type, mask=None):
        if not type.lanes:
            return super().load(pointer, type)
        return self._load_at(self.offset(pointer, self.lane64, type.element_bytes), type, mask)

    def _load_at(self, place, type, mask):
        def load():
            return self.emit(type, f"load {type}, {place}, align {type.element_bytes}")

        if mask is None or mask.name == "true":
            return load()
        return self.when_value(Reg(mask.name, Type("i1")), self.const(0, type), load)

    def store(self, value, pointer, mask=None):
        if value.type.lanes:
            self._store_at(value, self.offset(pointer, self.lane64, value.type.element_bytes), mask)
            return
        with self.when(self.cmp("eq", self.lane, Reg("0", I32))):
            super().store(value, pointer)

    def _store_at(self, value, place, mask):
        line = f"  store {value}, {place}, align {value.type.element_bytes}"
        if mask is None or mask.name == "true":
            self.lines.append(line)
            return
        with self.when(Reg(mask.name, Type("i1"))):
            self.lines.append(line)

    def gather(self, pointer, indices, type, mask=None):
        return self._load_at(self._element(pointer, indices, type), type, mask)

    def scatter(self, value, pointer, indices, mask):
        self._store_at(value, self._element(pointer, indices, value.type), mask)

    def _element(self, pointer, indices, type):
        return self.offset(pointer, Reg(indices.name, I64), type.element_bytes)

    # --- the end ------------------------------------------------------------------------------------------------------
    def close(self):
        assert not self.extents, self.name
        parameters = ", ".join(f"{PTR} {r.name}" for r in self.parameters)
        head = f"define ptx_kernel void @{self.name}({parameters}) #0 {{"
        self.module.functions.append("\n".join([head, *self.lines, "}"]))
