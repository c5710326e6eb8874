"""What groups are lowered to: a loop nest, a product, or a call of a routine. All answer the same questions:

scratch          bytes of each scratch buffer they need
checks           whether they can fail
writes           numbers of the values they write
cost_ns          how long they take, roughly
cuts, touches    how threads may share them, and what memory each thread then touches (parallel.py, regions.py)
with_cut         the same, shared
emit             their call in a program (emit/program.py); the function's name
"""

from dataclasses import dataclass, replace
from math import prod

from .dtypes import element_of
from .emit.gemm import scratch_bytes
from .extent import estimated
from .loopnest import SIZES, Cut, Kernel, Store, Update, statements
from .parallel import COLUMNS, kernel_cost_ns, kernel_cuts, product_cost_ns
from .regions import CALLER, Part, Touch, kernel_parts, part, product_parts
from .target import AVX2, AVX512


def touch(value, memory, writes, owner):
    return Touch(memory.place[value.number], prod(value.shape) * value.dtype.size_bytes, writes, owner)


@dataclass(frozen=True, slots=True)
class Loops:
    """A kernel, and per parameter what it points to: ("value", number) or ("scratch", bytes). `first_scalars`: the slot
    in the program where each stretch of its run-time scalars begins."""

    kernel: Kernel
    bindings: tuple
    first_scalars: tuple = (0,)

    def __str__(self):
        return str(self.kernel)

    @property
    def cut(self):
        return self.kernel.cut

    @property
    def scratch(self):
        return [what for kind, what in self.bindings if kind == "scratch"]

    @property
    def checks(self):
        return self.kernel.checks

    @property
    def writes(self):
        stored = self._stored()
        return [number for name, number in self._values() if name in stored]

    def _stored(self):
        return {s.parameter for s in statements(self.kernel.body) if isinstance(s, (Store, Update))}

    def _values(self):
        """(parameter's name, number of the value in it), without scratch."""
        return [(p.name, what) for p, (kind, what) in zip(self.kernel.parameters, self.bindings) if kind == "value"]

    # --- threads ------------------------------------------------------------------------------------------------------
    def cost_ns(self, target):
        return kernel_cost_ns(self.kernel, target)

    def cuts(self, target, memory, owners):
        elements, values = {p.name: p.element for p in self.kernel.parameters}, self._values()
        wished = [(SIZES[elements[name]], owners.get(memory.place[number])) for name, number in values]
        first = {}
        # Parameters that point to the same memory: what a kernel replaces, and by what.
        aliases = {name: first.setdefault(memory.place[number], name) for name, number in values}
        wished = [(size, part) for size, part in wished if isinstance(part, Part)]
        return kernel_cuts(self.kernel, aliases, wished, target)

    def touches(self, graph, memory, cut):
        numbers = dict(self._values())
        if cut is None:
            stored = self._stored()
            owners = {(name, name in stored): CALLER for name in numbers}
        else:
            owners = kernel_parts(self.kernel, cut)
        return [
            touch(graph.values[numbers[name]], memory, writes, owner)
            for (name, writes), owner in owners.items()
            if name in numbers
        ]

    def with_cut(self, cut, known):
        """`known`: (kernel, cut) -> the kernel with that cut, so that equal ones stay one."""
        key = id(self.kernel), cut
        if key not in known:
            known[key] = replace(self.kernel, cut=cut)
        return replace(self, kernel=known[key])

    # --- the program --------------------------------------------------------------------------------------------------
    def emit(self, program, memory, scratch):
        places, own, scratch = [], {}, iter(scratch)
        for position, (kind, what) in enumerate(self.bindings):
            if kind == "scratch":
                places.append(next(scratch))
                own[position] = what
            else:
                places.append(memory.place[what])
        return program.call_kernel(self.kernel, places, own, self.first_scalars)


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Products of matrices: `value` is of the operands with these Accesses, over all leading dimensions."""

    value: object
    left: object
    right: object
    cut: Cut | None = None

    checks = False

    def __str__(self):
        return ""

    @property
    def scratch(self):
        # The matrix kernel is the runtime's: it may have wider vectors than this program.
        element, depth = element_of(self.value.dtype), self.left.shape[-1]
        return [max(scratch_bytes(element, depth, target) for target in (AVX2, AVX512))]

    @property
    def writes(self):
        return [self.value.number]

    def cost_ns(self, target):
        return product_cost_ns(self.value, target)

    def cuts(self, target, memory, owners):
        *batch, m, n = self.value.shape
        if prod(batch) > 1:
            return [Cut("matrices", 1, prod(batch))]
        # In the gradient of a weight the rows are features.
        many, wide = estimated(m), estimated(n)
        is_transposed = self.left.strides[-1] != 1 and many >= target.few_columns
        if wide >= target.few_columns and many <= target.many_rows and not is_transposed:
            return [Cut("columns", COLUMNS, -(-n // COLUMNS))]
        unit = COLUMNS if is_transposed else target.tile_heights[0]
        return [Cut("rows", unit, -(-m // unit))]

    def touches(self, graph, memory, cut):
        owners = product_parts(cut, self.left, self.right, self.value) if cut else (CALLER,) * 3
        bases = (self.left.base, self.right.base, self.value)
        return [touch(b, memory, b is self.value, owner) for b, owner in zip(bases, owners)]

    def with_cut(self, cut, known):
        return replace(self, cut=cut)

    def emit(self, program, memory, scratch):
        left, right = ((memory.place[a.base.number], a) for a in (self.left, self.right))
        out = memory.place[self.value.number], self.value
        return program.call_product(left, right, out, scratch[0], self.cut)


@dataclass(frozen=True, slots=True, eq=False)
class RoutineCall:
    """A Routine (kernels/library.py) on operands that are in memory in row-major order: these, of any shape."""

    value: object
    operands: tuple
    kernel: object
    cut: Cut | None = None

    checks = False

    def __str__(self):
        return ""

    @property
    def shape(self):
        return self.value.operands[0].shape

    @property
    def n_rows(self):
        return prod(self.shape[:-1])

    @property
    def element(self):
        return element_of(self.value.operands[0].dtype)

    @property
    def arrays(self):
        """Operands and result, each with the elements of a row of it."""
        values = [*self.value.operands, self.value]
        return [(place, v, v.shape[-1]) for place, v in zip((*self.operands, self.value), values)]

    @property
    def scratch(self):
        return [self.kernel.scratch_bytes(self.element, self.shape, self.value.attributes)]

    @property
    def writes(self):
        return [self.value.number]

    def cost_ns(self, target):
        return self.kernel.cost_ns(tuple(estimated(d) for d in self.shape))

    def cuts(self, target, memory, owners):
        return [Cut("rows", 1, self.n_rows)]

    def touches(self, graph, memory, cut):
        found = []
        for base, value, n in self.arrays:
            owner = CALLER if cut is None else part(0, n, 1, self.n_rows, [(1, n)], value.dtype.size_bytes)
            found.append(touch(base, memory, value is self.value, owner))
        return found

    def with_cut(self, cut, known):
        return replace(self, cut=cut)

    def emit(self, program, memory, scratch):
        arrays = [(memory.place[base.number], n * value.dtype.size_bytes) for base, value, n in self.arrays]
        sizes = self.kernel.sizes(self.shape, self.value.attributes)
        symbol = f"{self.kernel.stem}_{self.element}"
        return program.call_routine(symbol, arrays, self.n_rows, sizes, scratch[0], self.cut)
