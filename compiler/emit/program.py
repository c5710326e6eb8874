"""The program: one function that calls the kernels of a schedule in order.

    i64 @weft_program(ptr table)     0, or 1 if a check failed

The table's words: the arena, the run-time scalars, the matrix kernels for f32 and f64, the thread pool, then one NumPy
array object per input and per output, whose data pointer is read at ARRAY_DATA_OFFSET.

Work that threads share is called through the pool: a part, `void (ptr closure, i64 first, i64 stop, ptr scratch)`,
does the units first .. stop - 1 of it. The closure is the array of pointers the whole needs; `scratch` is null in the
calling thread, which uses the scratch memory of the closure, and a worker's own memory elsewhere.
"""

from math import prod

from ..ops.comparison import element_of
from .builder import I1, I64, PTR, Builder, Reg
from .kernel import emit_kernel
from .pool import FIELDS
from .pool_choice import STATE_WORDS

ARRAY_DATA_OFFSET = 16
_ARENA, _SCALARS, _GEMM, _POOL = 0, 1, {"f32": 2, "f64": 3}, 4
FIRST_ARRAY_WORD = 5
_PART = [("closure", PTR), ("first", I64), ("stop", I64), ("scratch", PTR)]
_SCRATCH_ALIGNMENT = 64
_STATE = Reg("@state", PTR)


class Program:
    """The entry function while it is written. Kernels of equal text are emitted once."""

    def __init__(self, module, n_inputs, memory):
        self.module, self.n_inputs, self.memory = module, n_inputs, memory
        self.kernels, self.parts = {}, {}
        self.b = Builder(module, "weft_program", [("table", PTR)], result="i64")
        self.words, self.data = {}, {}
        self.failed = None
        self.closure_words = 0
        self.run = self.limit = None

    def word(self, k):
        """A word of the table. Read once, in the entry block: later blocks may not be reached from each other."""
        if k not in self.words:
            self.words[k] = self._load(self.b.arguments[0], 8 * k)
        return self.words[k]

    def _load(self, pointer, offset):
        return self.b.load(self.b.offset(pointer, offset, 1), PTR)

    def address(self, place):
        """The address of a Place."""
        if place.kind == "arena":
            return self.b.offset(self.word(_ARENA), place.index, 1)
        k = FIRST_ARRAY_WORD + place.index + (self.n_inputs if place.kind == "output" else 0)
        if k not in self.data:
            self.data[k] = self._load(self.word(k), ARRAY_DATA_OFFSET)
        return self.data[k]

    def call_kernel(self, kernel, places, scratch, share=None):
        """Call a kernel on places; with a Share, some of it in every thread. `scratch`: which parameters are scratch
        memory, and of how many bytes."""
        text = str(kernel)
        if text not in self.kernels:
            self.kernels[text] = f"k{len(self.kernels)}"
            emit_kernel(self.module, kernel, self.kernels[text])
        name = self.kernels[text]
        operands = [*(self.address(p) for p in places), self.word(_SCALARS)]
        if share is not None:
            key = (name, tuple(scratch.items()))
            self.share(self.part(key, lambda b: _kernel_part(b, name, len(operands), scratch)), operands, share)
        elif kernel.checks:
            self.stop_if(self.b.call(I1, name, operands))
        else:
            self.b.call("void", name, operands)
        return name

    def stop_if(self, bad):
        self.failed = self.failed or self.b.label("failed")
        following = self.b.label("following")
        self.b.branch_if(bad, self.failed, following)
        self.b.start(following)

    def call_product(self, left, right, out, scratch, share=None):
        """out = left @ right for operands ((place, Access)), over all leading dimensions; with a Share, some of it in
        every thread."""
        (left_place, x), (right_place, y) = left, right
        out_place, result = out
        element = element_of(result.dtype)
        product = _Product(x.strides, y.strides, result.shape, x.shape[-1], result.dtype.size_bytes)
        operands = [
            self.b.offset(self.address(left_place), x.offset, product.size),
            self.b.offset(self.address(right_place), y.offset, product.size),
            self.address(out_place),
            self.word(_GEMM[element]),
            self.address(scratch),
        ]
        if share is None:
            product.emit(self.b, *operands)
            return
        part = self.part((product.key, share.cut), lambda b: _product_part(b, product, share.cut))
        self.share(part, operands, share)

    # --- work that threads share --------------------------------------------------------------------------------------
    def part(self, key, write):
        """The name of the part function write(builder) makes; one per key."""
        if key not in self.parts:
            self.parts[key] = f"part{len(self.parts)}"
            b = Builder(self.module, self.parts[key], _PART, linkage="internal")
            write(b)
            b.finish()
        return self.parts[key]

    def share(self, part, operands, share):
        b = self.b
        closure = Reg("%closure", PTR)
        for k, operand in enumerate(operands):
            b.store(operand, b.offset(closure, k, 8))
        self.closure_words = max(self.closure_words, len(operands))
        pool = self.word(_POOL)
        if self.limit is None:
            self.begin_sharing(pool)
        threads = b.intrinsic("smin", self.limit, b.i64(share.threads))
        numbers = [b.i64(share.cut.units), threads, b.i64(share.ahead_ns)]
        b.call("void", self.run, [pool, Reg(f"@{part}", PTR), closure, *numbers])

    def begin_sharing(self, pool):
        """Ask the pool how many threads to use this time: it compares ways by the time from here to the end."""
        b = self.b
        self.module.globals["state"] = f"@state = internal global [{STATE_WORDS} x i64] zeroinitializer, align 64"
        self.run = self._load(pool, FIELDS["RUN"])
        self.limit = b.call(I64, self._load(pool, FIELDS["BEGIN"]), [pool, _STATE])

    def finish(self):
        if self.limit is not None:
            self.b.call(I64, self._load(self.word(_POOL), FIELDS["END"]), [self.word(_POOL), _STATE])
            # All shared work uses one closure: the pool is done with it when it returns.
            self.b.lines.insert(1, f"  %closure = alloca ptr, i64 {self.closure_words}, align 64")
        if self.failed is None:
            self.b.finish(self.b.i64(0))
            return
        done = self.b.label("succeeded")
        self.b.branch(done)
        self.b.start(self.failed)
        self.b.lines.append("  ret i64 1")
        self.b.start(done)
        self.b.finish(self.b.i64(0))


def _kernel_part(b, name, n_operands, scratch):
    """A part that calls a shared kernel on some of its iterations. A worker's scratch memory is cut up in order."""
    closure, first, stop, memory = b.arguments
    operands = [b.load(b.offset(closure, k, 8), PTR) for k in range(n_operands)]
    start = 0
    for k, n_bytes in scratch.items():
        operands[k] = _own_scratch(b, operands[k], memory, start)
        start += -(-n_bytes // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT
    b.call("void", name, [*operands, first, stop])


def _own_scratch(b, callers, memory, start):
    is_caller = b.cmp("eq", memory, Reg("null", PTR))
    return b.select(is_caller, callers, b.offset(memory, start, 1))


class _Product:
    """A batch of matrix products of known shapes and strides (in elements): (..., m, k) by (..., k, n)."""

    def __init__(self, left, right, shape, depth, size):
        self.left, self.right, self.shape, self.depth, self.size = left, right, shape, depth, size
        self.batch = shape[:-2]
        self.m, self.n = shape[-2:]
        self.key = (left, right, shape, depth, size)
        self.steps = (left[:-2], right[:-2], _batch_strides(self.batch, self.m * self.n))

    def emit(self, b, left, right, out, function, scratch):
        """All products, whole."""
        self.batched(b, self.batch, self.steps, (left, right, out), lambda *at: self.call(b, at, function, scratch))

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

    # --- parts --------------------------------------------------------------------------------------------------------
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


def _product_part(b, product, cut):
    """A part that computes some rows, columns or matrices of a product."""
    closure, first, stop, memory = b.arguments
    *pointers, function, scratch = [b.load(b.offset(closure, k, 8), PTR) for k in range(5)]
    scratch = _own_scratch(b, scratch, memory, 0)
    total = {"rows": product.m, "columns": product.n, "matrices": prod(product.batch)}[cut.along]
    start = b.mul(first, b.i64(cut.unit))
    count = b.sub(b.intrinsic("smin", b.mul(stop, b.i64(cut.unit)), b.i64(total)), start)
    emit = {"rows": product.rows, "columns": product.columns, "matrices": product.matrices}[cut.along]
    emit(b, pointers, function, scratch, start, count)


def _batch_strides(batch, step):
    strides = []
    for d in reversed(batch):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))
