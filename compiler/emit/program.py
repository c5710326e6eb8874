"""The program: one function that calls the kernels of a schedule in order.

    i64 @weft_program(ptr table)     0, or 1 if a check failed

The table's words: the arena, the run-time scalars, the matrix kernels for f32 and f64, then one NumPy array object per
input and per output, whose data pointer is read at ARRAY_DATA_OFFSET.
"""

from ..ops.comparison import element_of
from .builder import I1, PTR, Builder
from .kernel import emit_kernel

ARRAY_DATA_OFFSET = 16
_ARENA, _SCALARS, _GEMM, _ARRAYS = 0, 1, {"f32": 2, "f64": 3}, 4


class Program:
    """The entry function while it is written. Kernels of equal text are emitted once."""

    def __init__(self, module, n_inputs, memory):
        self.module, self.n_inputs, self.memory = module, n_inputs, memory
        self.kernels = {}
        self.b = Builder(module, "weft_program", [("table", PTR)], result="i64")
        self.words, self.data = {}, {}
        self.failed = None

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
        k = _ARRAYS + place.index + (self.n_inputs if place.kind == "output" else 0)
        if k not in self.data:
            self.data[k] = self._load(self.word(k), ARRAY_DATA_OFFSET)
        return self.data[k]

    def call_kernel(self, kernel, places):
        text = str(kernel)
        if text not in self.kernels:
            self.kernels[text] = f"k{len(self.kernels)}"
            emit_kernel(self.module, kernel, self.kernels[text])
        name = self.kernels[text]
        operands = [*(self.address(p) for p in places), self.word(_SCALARS)]
        if not kernel.checks:
            self.b.call("void", name, operands)
            return name
        bad = self.b.call(I1, name, operands)
        self.failed = self.failed or self.b.label("failed")
        following = self.b.label("following")
        self.b.branch_if(bad, self.failed, following)
        self.b.start(following)
        return name

    def call_product(self, left, right, out, scratch):
        """out = left @ right for operands ((place, Access)), over all leading dimensions."""
        (left_place, x), (right_place, y) = left, right
        out_place, result = out
        element = element_of(result.dtype)
        size = result.dtype.size_bytes
        m, n = result.shape[-2:]
        scratch = self.address(scratch)
        pointers = [
            self.b.offset(self.address(left_place), x.offset, size),
            self.b.offset(self.address(right_place), y.offset, size),
            self.address(out_place),
        ]
        function = self.word(_GEMM[element])
        batch = result.shape[:-2]
        steps = [x.strides[:-2], y.strides[:-2], _batch_strides(batch, m * n)]

        def product(a, right, c):
            i64 = self.b.i64
            operands = [a, i64(x.strides[-2]), i64(x.strides[-1]), right, i64(y.strides[-2]), i64(y.strides[-1])]
            self.b.call("void", function, [*operands, c, i64(n), i64(m), i64(n), i64(x.shape[-1]), scratch])

        self._batched(batch, steps, pointers, size, product)

    def _batched(self, batch, steps, pointers, size, product):
        """product(...) for every index of the batch dimensions."""
        if not batch:
            product(*pointers)
            return
        if batch[0] == 1:
            self._batched(batch[1:], [s[1:] for s in steps], pointers, size, product)
            return
        with self.b.loop(0, batch[0], 1) as i:
            moved = [self.b.offset(p, self.b.mul(i, self.b.i64(s[0])), size) for p, s in zip(pointers, steps)]
            self._batched(batch[1:], [s[1:] for s in steps], moved, size, product)

    def finish(self):
        if self.failed is None:
            self.b.finish(self.b.i64(0))
            return
        done = self.b.label("succeeded")
        self.b.branch(done)
        self.b.start(self.failed)
        self.b.lines.append("  ret i64 1")
        self.b.start(done)
        self.b.finish(self.b.i64(0))


def _batch_strides(batch, step):
    strides = []
    for d in reversed(batch):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))
