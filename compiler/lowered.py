"""What groups are lowered to: a loop nest, a product, or a call of a routine. All answer the same questions:

scratch          bytes of each scratch buffer they need
checks           whether they can fail
writes           numbers of the values they write
cost_ns          how long they take, roughly
cuts, touches    how threads may share them, and what memory each thread then touches (parallel.py, regions.py)
with_cut         the same, shared
in_blocks        the same in pieces, so that threads can share its sums (blocks.py)
emit             their call in a program (emit/program.py); the function's name
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from .blocks import in_blocks
from .dtypes import ALL as ALL_TYPES
from .dtypes import SIZES, element_of, memory_element
from .emit.gemm import scratch_bytes
from .extent import estimated, is_open
from .loopnest import Cut, Extreme, Kernel, Load, Store, StoreLanes, Update, statements
from .parallel import kernel_cost_ns, kernel_cuts, product_cost_ns
from .regions import ALL, CALLER, Part, Touch, kernel_parts, part, product_parts
from .target import targets_of_kernels

_DTYPES = {memory_element(d): d for d in ALL_TYPES if not d.is_complex}


def touch(value, memory, writes, owner):
    return Touch(memory.place[value.number], prod(value.shape) * value.dtype.size_bytes, writes, owner)


@dataclass(frozen=True, slots=True)
class Partial:
    """Memory between the pieces of a kernel: like a value, with a number below 0."""

    number: int
    shape: tuple
    dtype: object


@dataclass(frozen=True, slots=True)
class Loops:
    """A kernel, and per parameter what it points to: ("value", number), ("partial", Partial) or ("scratch", bytes).
    `first_scalars`: the slot in the program where each stretch of its run-time scalars begins."""

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
        return {s.parameter for s in statements(self.kernel.body) if isinstance(s, (Store, StoreLanes, Update))}

    def _values(self):
        """(parameter's name, number of the value or Partial in it), without scratch."""
        bound = zip(self.kernel.parameters, self.bindings)
        return [(p.name, what.number if kind == "partial" else what) for p, (kind, what) in bound if kind != "scratch"]

    # --- pieces -------------------------------------------------------------------------------------------------------
    def in_blocks(self, known, taken, target):
        """The Loops of its pieces, if threads can share its sums then and that pays; else of itself alone. `known`:
        kernel -> its Pieces, for equal ones; `taken`: numbers of Partials there are."""
        if self.cost_ns(target) < target.large_ns:
            return [self]
        key = id(self.kernel)
        if key not in known:
            bound = zip(self.kernel.parameters, self.bindings)
            scratch = {p.name: what for p, (kind, what) in bound if kind == "scratch"}
            known[key] = self.kernel, in_blocks(self.kernel, scratch, target)
        _, found = known[key]
        if found is None:
            return [self]
        partials = [Partial(-1 - taken - k, (n,), _DTYPES[e]) for k, (n, e) in enumerate(found.partials)]
        pieces = [
            replace(self, kernel=piece.kernel, bindings=tuple(self._source(s, partials) for s in piece.sources))
            for piece in found.pieces
        ]
        shared = sum(p.cost_ns(target) for p, piece in zip(pieces, found.pieces) if not piece.is_fold)
        alone = sum(p.cost_ns(target) for p in pieces) - shared + 2 * len(pieces) * target.wait_ns
        return pieces if alone < shared / 2 else [self]

    def _source(self, source, partials):
        kind, what = source
        return self.bindings[what] if kind == "given" else ("partial", partials[what]) if kind == "partial" else source

    def traffic(self, graph):
        """(values it writes, values it reads), Partials among them."""
        partials = {what.number: what for kind, what in self.bindings if kind == "partial"}
        read = [s for s in statements(self.kernel.body) if isinstance(s, (Load, Extreme))]
        loaded = {s.parameter for s in read} | {s.positions for s in read if isinstance(s, Extreme)}
        stored = self._stored()

        def values(names):
            return [partials.get(n) or graph.values[n] for name, n in self._values() if name in names]

        return values(stored), values(loaded)

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
        partials = {what.number: what for kind, what in self.bindings if kind == "partial"}
        if cut is None:
            stored = self._stored()
            owners = {(name, name in stored): CALLER for name in numbers}
        else:
            owners = kernel_parts(self.kernel, cut)
        return [
            touch(partials.get(numbers[name]) or graph.values[numbers[name]], memory, writes, owner)
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
                places.append(memory.place[what.number if kind == "partial" else what])
        return program.call_kernel(self.kernel, places, own, self.first_scalars)


class _Call:
    """What calls of routines have in common. `value`: what is computed; `cut`: how threads share it."""

    __slots__ = ()
    checks = False

    def __str__(self):
        return ""

    @property
    def writes(self):
        return [self.value.number]

    def with_cut(self, cut, known):
        return replace(self, cut=cut)

    def in_blocks(self, known, taken, target):
        return [self]


def _product_bytes(element, columns, depth, target):
    # The matrix kernel is the runtime's: it may have wider vectors than this program.
    return max(scratch_bytes(element, columns, depth, kernel) for kernel in targets_of_kernels(target))


_known_product_bytes = lru_cache(maxsize=256)(_product_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Product(_Call):
    """Products of matrices: `value` is of the operands with these Accesses, over all leading dimensions."""

    value: object
    left: object
    right: object
    target: object
    cut: Cut | None = None

    @property
    def scratch(self):
        element, (depth, columns) = element_of(self.value.dtype), self.right.shape[-2:]
        find = _product_bytes if is_open(depth) or is_open(columns) else _known_product_bytes
        return [find(element, columns, depth, self.target)]

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
            return [Cut("columns", target.columns, -(-n // target.columns))]
        unit = target.columns if is_transposed else target.tile_heights[0]
        return [Cut("rows", unit, -(-m // unit))]

    def touches(self, graph, memory, cut):
        owners = product_parts(cut, self.left, self.right, self.value) if cut else (CALLER,) * 3
        bases = (self.left.base, self.right.base, self.value)
        return [touch(b, memory, b is self.value, owner) for b, owner in zip(bases, owners)]

    def emit(self, program, memory, scratch):
        left, right = ((memory.place[a.base.number], a) for a in (self.left, self.right))
        out = memory.place[self.value.number], self.value
        return program.call_product(left, right, out, scratch[0], self.cut)


@dataclass(frozen=True, slots=True, eq=False)
class PanelProduct(Product):
    """The same of a right matrix that lies in panels (ops/panels.py)."""

    def touches(self, graph, memory, cut):
        left, panels, result = Product.touches(self, graph, memory, cut)
        return [left, panels if cut is None else replace(panels, by=ALL), result]


@dataclass(frozen=True, slots=True, eq=False)
class RoutineCall(_Call):
    """A Routine (kernels/library.py) on operands that are in memory in row-major order: these, of any shape."""

    value: object
    operands: tuple
    kernel: object
    cut: Cut | None = None

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

    def emit(self, program, memory, scratch):
        arrays = [(memory.place[base.number], n * value.dtype.size_bytes) for base, value, n in self.arrays]
        sizes = self.kernel.sizes(self.shape, self.value.attributes)
        symbol = f"{self.kernel.stem}_{self.element}"
        return program.call_routine(symbol, arrays, self.n_rows, sizes, scratch[0], self.cut)


class _InUnits(_Call):
    """A routine with units of its own, on `operands`, which are in memory in row-major order."""

    __slots__ = ()

    def cuts(self, target, memory, owners):
        return [Cut("rows", 1, self.n_units)]

    def touches(self, graph, memory, cut):
        # Which unit touches what is the routine's affair.
        owner = CALLER if cut is None else ALL
        return [touch(v, memory, v is self.value, owner) for v in (*self.operands, self.value)]

    def places(self, memory):
        return [memory.place[v.number] for v in (*self.operands, self.value)]

    @property
    def element(self):
        return element_of(self.value.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class GridCall(_InUnits):
    """Products over grids on operands in row-major order: a, then b."""

    value: object
    operands: tuple
    products: object
    cut: Cut | None = None

    @property
    def scratch(self):
        return [self.products.scratch_bytes]

    def cost_ns(self, target):
        return estimated(self.products.flops) / target.flops_per_ns[self.element]

    @property
    def n_units(self):
        return self.products.units(self.value.dtype.size_bytes)

    def emit(self, program, memory, scratch):
        places = self.places(memory)
        words = tuple(self.products.words(self.value.dtype.size_bytes))
        return program.call_grid_product(self.element, places, words, self.n_units, scratch[0], self.cut)


@dataclass(frozen=True, slots=True, eq=False)
class UnitCall(_InUnits):
    """A UnitRoutine (kernels/library.py) on operands that are in memory in row-major order: these, of any shape."""

    value: object
    operands: tuple
    kernel: object
    cut: Cut | None = None

    @property
    def shapes(self):
        return tuple(o.shape for o in self.value.operands)

    @property
    def n_units(self):
        return self.kernel.units(self.shapes, self.value.attributes)

    @property
    def scratch(self):
        return [self.kernel.scratch(self.element, self.shapes, self.value.attributes)]

    def cost_ns(self, target):
        return estimated(self.kernel.n_flops(self.shapes, self.value.attributes)) / target.flops_per_ns[self.element]

    def emit(self, program, memory, scratch):
        places = self.places(memory)
        sizes = self.kernel.sizes(self.shapes, self.value.attributes)
        symbol = f"{self.kernel.stem}_{self.element}"
        return program.call_units(symbol, places, self.n_units, sizes, scratch[0], self.cut)
