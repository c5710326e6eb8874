"""Which kernels and products threads share, and how they are cut.

Only work that no two threads can disagree about is cut: elements that depend on nothing but the inputs, and elements of
a product, each of which is a sum of its own. No sum is ever cut, so results have the same bits for any number of
threads. Kernels that check something are not cut.

    rows         the outermost loop of a kernel; rows of a product
    columns      the elements of the rows, whatever loops are around them; columns of a product
    matrices     of a batch of products

Reading what another thread has just written takes longer than computing it: 64 bytes from the cache of another core
took 10 ns, and the elementwise work on them 1 ns. So threads keep what is theirs from step to step: the features of a
batch of examples (columns of activations, and rows of weights and their gradients, which are stored by output feature),
or the examples if they are many. For the same reason a program that shares its products shares small kernels too.

How long work takes is estimated from the work alone; how many threads there are is known when the program runs.
"""

from dataclasses import dataclass
from math import prod

from .loopnest import (
    Accumulate,
    Apply,
    Constant,
    Cut,
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
from .ops.comparison import element_of
from .vmath import FUNCTIONS

# One step of this estimated time makes sharing pay; then steps of the second time are shared too.
_LARGE_NS, _SMALL_NS = 4000, 400
# No thread gets less, if there are more than two.
_PART_NS = 1000

# Rows and columns that threads get at once: those of a tile of emit/gemm.py with AVX-512, and a cache line of f32.
_ROWS, _COLUMNS = 8, 16
# Fewer columns are not cut, and more rows than this are cut in place of columns.
_FEW_COLUMNS, _MANY_ROWS = 64, 512

# Rough costs of one vector of 64 bytes, and of products, on one core of the machine docs/architecture.md names.
_MEMORY_NS, _GATHER_NS, _CHEAP_NS, _DIVIDE_NS, _FUNCTION_NS = 0.3, 5.0, 0.2, 3.0, 4.0
_DIVIDING = ("div", "sqrt", "rsqrt", "reciprocal", "fmod", "remainder", "floor_divide")
_FLOPS_PER_NS = {"f32": 100, "f64": 50}
_BYTES_PER_NS = 50


@dataclass(frozen=True, slots=True)
class Share:
    """A step that threads share: how it is cut, among how many threads at most, and the estimated nanoseconds of all
    shared work of the program from here on, which tell whether sleeping threads are woken for it."""

    cut: Cut
    threads: int
    ahead_ns: int


def share(costs, cuts):
    """The Share of every step, or None. `costs`: estimated nanoseconds; `cuts`: a Cut where the step has one."""
    if not any(cut and cost >= _LARGE_NS for cost, cut in zip(costs, cuts)):
        return [None] * len(costs)
    shares, ahead = [], 0
    for cost, cut in zip(reversed(costs), reversed(cuts)):
        threads = min(cut.units, max(2, int(cost / _PART_NS))) if cut and cost >= _SMALL_NS else 1
        ahead += cost if threads > 1 else 0
        shares.append(Share(cut, threads, int(ahead)) if threads > 1 else None)
    return shares[::-1]


# --- products ---------------------------------------------------------------------------------------------------------
def product_cost_ns(value):
    left, right = value.operands
    element, size = element_of(value.dtype), value.dtype.size_bytes
    n_bytes = size * sum(prod(v.shape) for v in (value, left, right))
    return max(2 * prod(value.shape) * left.shape[-1] / _FLOPS_PER_NS[element], n_bytes / _BYTES_PER_NS)


def product_cut(value, left):
    """The Cut of a product; `left`: the Access of its left operand."""
    *batch, m, n = value.shape
    if prod(batch) > 1:
        return Cut("matrices", 1, prod(batch))
    # In the gradient of a weight the rows are features.
    is_transposed = left.strides[-1] != 1 and m >= _FEW_COLUMNS
    if n >= _FEW_COLUMNS and m <= _MANY_ROWS and not is_transposed:
        return Cut("columns", _COLUMNS, -(-n // _COLUMNS))
    return Cut("rows", _ROWS, -(-m // _ROWS))


# --- kernels ----------------------------------------------------------------------------------------------------------
def kernel_cost_ns(kernel):
    return _cost_ns(kernel.body, kernel.lanes)


def kernel_cut(kernel, aliases):
    """The Cut of a kernel, or None. `aliases`: for parameters that point to the memory of another one, that other."""
    statements = list(_statements(kernel.body))
    if kernel.checks or any(isinstance(s, Update) for s in statements) or not _is_in_step(statements, aliases):
        return None
    rows, columns = _rows(kernel.body), _columns(kernel.body, statements)
    n_rows = prod(s.extent for s in statements if isinstance(s, Loop))
    return columns if columns and (rows is None or n_rows <= _MANY_ROWS) else rows


def _statements(body):
    for s in body:
        yield s
        if isinstance(s, (Loop, Sweep)):
            yield from _statements(s.body)


def _is_in_step(statements, aliases):
    """Whether all that is stored is read and written at one position of the loops only."""
    stored = {aliases.get(s.parameter, s.parameter) for s in statements if isinstance(s, Store)}
    positions = {}
    for s in statements:
        if isinstance(s, (Load, Store, Extreme)):
            name = aliases.get(s.parameter, s.parameter)
            if name in stored:
                positions.setdefault(name, set()).add((s.at, getattr(s, "indices", ())))
    return all(len(found) == 1 for found in positions.values())


def _rows(body):
    """The cut of a kernel that is one nest of loops, by its outermost loop."""
    *before, nest = body
    if not all(isinstance(s, _PURE) for s in before) or not isinstance(nest, Loop) or nest.columns:
        return None
    return Cut("rows", 1, nest.extent)


def _columns(body, statements):
    """The cut of a kernel that does the same for every column of its rows."""
    sweeps = [s for s in statements if isinstance(s, Sweep)]
    columns = [c for s in statements if isinstance(s, Loop) for c in s.columns]
    extents = {s.extent for s in sweeps} | {c.extent for c in columns}
    if len(extents) != 1 or any(s.unrolled or s.rotated for s in sweeps) or not all(c.storage for c in columns):
        return None
    (extent,) = extents
    across = any(isinstance(s, (Reduce, Extreme)) for s in statements) or _stores_numbers(body)
    return None if across or extent < _FEW_COLUMNS else Cut("columns", _COLUMNS, -(-extent // _COLUMNS))


def _stores_numbers(body):
    """Whether something is stored outside sweeps."""
    return any(isinstance(s, Store) or (isinstance(s, Loop) and _stores_numbers(s.body)) for s in body)


_PURE = (Constant, Scalar, Load, Position, Apply)


def _cost_ns(body, lanes):
    total = 0.0
    for s in body:
        if isinstance(s, Loop):
            total += s.extent * _cost_ns(s.body, lanes)
        elif isinstance(s, Sweep):
            total += -(-s.extent // lanes) * _cost_ns(s.body, lanes)
        else:
            total += _statement_ns(s)
    return total


def _statement_ns(s):
    if isinstance(s, (Load, Store)):
        return _GATHER_NS if s.at.lane > 1 or getattr(s, "indices", ()) else _MEMORY_NS
    if isinstance(s, Accumulate):
        return 2 * _MEMORY_NS
    if isinstance(s, Extreme):
        return s.count * _MEMORY_NS
    if isinstance(s, Apply) and s.op.name in FUNCTIONS:
        return _FUNCTION_NS
    return _DIVIDE_NS if isinstance(s, Apply) and s.op.name in _DIVIDING else _CHEAP_NS
