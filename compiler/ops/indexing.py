"""Reading and adding at computed positions. Indices are integer tensors, checked against the size before use."""

from math import prod

import numpy as np

from .. import dtypes
from ..kernels.kernel import Read
from ..kernels.loop import Lookup
from ..kernels.nest import Change
from ..shapes import contiguous_strides
from . import samples
from .comparison import cast, eq
from .kinds import composite, elementwise
from .samples import Sample
from .source import arange, zeros_like
from .table import TABLE, Meta, Op, OpError, OutOfRange, register
from .view import expand, reshape


def _require_index(name, index):
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise OpError(f"{name}: the index must be an int64 or int32 tensor, got {index.dtype.name}")


def _require_positions(name, index):
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise OpError(
            f"{name}: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
            f"but got {index.dtype.name} instead: convert it with .long()"
        )


def check_range(name, index, size):
    """OutOfRange if an index is outside [0, size)."""
    if index.size and (index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)].reshape(-1)[0]
        raise OutOfRange(f"{name}: index {int(bad)} is out of bounds for a dimension of size {size}")


def _first_is_float(position):
    """dtype rule: operand `position` is an integer index and stays as it is."""

    def rule(operands, default_float):
        return tuple(o.dtype if k == position else operands[0].dtype for k, o in enumerate(operands)), operands[0].dtype

    return rule


# --- gather: out[i][j] = x[i][index[i][j]] along `axis`; every other position is shared ------------------------------
def _gather_infer(operands, attributes, default_float):
    x, index = operands
    axis = attributes["axis"]
    _require_index("gather", index)
    fits = len(x.shape) == len(index.shape) and all(
        b <= a for k, (a, b) in enumerate(zip(x.shape, index.shape)) if k != axis
    )
    if not fits:
        raise OpError(f"gather: index {index.shape} does not fit input {x.shape} in every dimension but {axis}")
    return Meta(index.shape, x.dtype)


def _corner(x, shape, axis):
    """x cut to the index's sizes in every dimension but axis."""
    return x[tuple(slice(None) if k == axis else slice(d) for k, d in enumerate(shape))]


def _evaluate_gather(x, index, axis):
    if x.ndim == 0:
        return np.array(x)
    check_range("gather", index, x.shape[axis])
    return np.take_along_axis(_corner(x, index.shape, axis), index, axis)


def _gather_reads(value, table, index):
    if not value.shape:
        return [Read(table.over((), ()), fusable=False), Read(index)]
    axis = value.attributes["axis"]
    at = table.over(value.shape, tuple(0 if k == axis else s for k, s in enumerate(table.strides)))
    return [Read(at, fusable=False, indexed=(1, table.strides[axis], table.shape[axis])), Read(index)]


gather = register(
    Op(
        "gather",
        "indexing",
        _gather_infer,
        _evaluate_gather,
        (lambda g, out, x, index, axis: scatter_add(zeros_like(x), index, g, axis=axis), None),
        kernel=Lookup(_gather_reads),
        traits=frozenset(["moves"]),
        cost="gather",
        compute_dtype=_first_is_float(1),
        samples=lambda: [
            Sample((samples.numbers(0, (3, 4)), samples.integers(1, (3, 2), 0, 4)), {"axis": 1}),
            Sample((samples.numbers(2, (3, 4)), samples.integers(3, (5, 4), 0, 3)), {"axis": 0}),
            Sample((samples.numbers(4, (2, 3, 4)), samples.integers(5, (2, 3, 1), 0, 4)), {"axis": 2}),
        ],
    )
)


def _never(*_):
    return False


_add_at = _never


def set_add_at(function):
    """What adds a part where an index says if it can, and says whether it has: runtime/code/lookups.py."""
    global _add_at
    _add_at = function


def _scatter_add_infer(operands, attributes, default_float):
    x, index, part = operands
    _require_index("scatter_add", index)
    axis = attributes["axis"]
    if index.shape != part.shape or len(x.shape) != len(index.shape):
        raise OpError(f"scatter_add: input {x.shape}, index {index.shape} and source {part.shape} do not fit")
    if any(b > a for k, (a, b) in enumerate(zip(x.shape, index.shape)) if k != axis):
        raise OpError(f"scatter_add: index {index.shape} does not fit input {x.shape} in dimensions other than {axis}")
    return Meta(x.shape, x.dtype)


def _change_scatter_add(x, index, part, axis, inside=False):
    if x.ndim == 0:
        x += part
        return
    check_range("scatter_add", index, x.shape[axis])
    loops = [
        (n, (0 if k == axis else x.strides[k], part.strides[k], index.strides[k])) for k, n in enumerate(index.shape)
    ]
    if _add_at(x, part, index, loops, 1, x.strides[axis]):
        return
    # ufunc.at adds one element after the other in row-major order of the index: the order the kernel keeps.
    np.add.at(x, _each_place(index, axis), part)


def _each_place(index, axis):
    where = list(np.indices(index.shape, sparse=True))
    where[axis] = index
    return tuple(where)


def _write_scatter(op):
    """The base, and the elements of the part, in row-major order of the index, combined with (op) or put over (None)
    those at its places."""

    def write(writer):
        value = writer.value
        strides = contiguous_strides(value.shape)
        _, index, part = writer.accesses
        writer.copy_operand(0, strides, 0)
        axis = value.attributes["axis"] if value.shape else 0
        others = tuple(0 if k == axis else s for k, s in enumerate(strides))
        stride, size = (strides[axis], value.shape[axis]) if value.shape else (0, 1)

        def body(names):
            where, x = writer.load(1, names, index.strides), writer.load(2, names, part.strides)
            return [where, x, writer.update(names, others, where, stride, size, op, x)]

        writer.nest(index.shape, body)

    return write


# A copy of x with part[...] added at index along axis, in row-major order of the index. `inside`: the index was
# computed as positions of x, so no program has to tell whether it is in range before it changes what outlives it.
scatter_add = register(
    Op(
        "scatter_add",
        "indexing",
        _scatter_add_infer,
        vjp=(
            lambda g, out, x, index, part, axis, inside=False: g,
            None,
            lambda g, out, x, index, part, axis, inside=False: gather(g, index, axis=axis),
        ),
        change=_change_scatter_add,
        kernel=Change(_write_scatter(TABLE["add"]), checks=True),
        compute_dtype=_first_is_float(1),
        samples=lambda: [
            Sample(
                (samples.numbers(0, (3, 4)), samples.integers(1, (3, 6), 0, 4), samples.numbers(2, (3, 6))), {"axis": 1}
            ),
            Sample(
                (samples.numbers(3, (3, 4)), samples.integers(4, (5, 4), 0, 3), samples.numbers(5, (5, 4))), {"axis": 0}
            ),
        ],
    )
)


def _change_scatter(x, index, part, axis):
    check_range("scatter", index, x.shape[axis])
    # Elements are put one after the other: of those with one place the last one stays.
    x[_each_place(index, axis)] = part


# A copy of x with part[...] put at index along axis, in row-major order of the index.
scatter = register(
    Op(
        "scatter",
        "indexing",
        _scatter_add_infer,
        # Where several parts have one place all of them receive its cotangent, as in PyTorch.
        vjp=(
            lambda g, out, x, index, part, axis: scatter(g, index, zeros_like(part), axis=axis),
            None,
            lambda g, out, x, index, part, axis: gather(g, index, axis=axis),
        ),
        change=_change_scatter,
        kernel=Change(_write_scatter(None), checks=True),
        traits=frozenset(["moves"]),
        compute_dtype=_first_is_float(1),
        samples=lambda: [
            Sample((samples.numbers(0, (3, 4)), np.array([[1, 0], [3, 2]]), samples.numbers(1, (2, 2))), {"axis": 1}),
            Sample((samples.numbers(2, (3, 4)), np.array([[2, 0, 1, 2]]), samples.numbers(3, (1, 4))), {"axis": 0}),
            Sample((samples.numbers(4, (5,)), np.array([4, 0, 1]), samples.numbers(5, (3,))), {"axis": 0}),
        ],
        oracle=lambda torch, x, index, part, axis: x.scatter(axis, index, part),
    )
)


# --- index_select: whole slices along one axis; embedding is the case of axis 0 --------------------------------------
def _index_select_infer(operands, attributes, default_float):
    x, index = operands
    axis = attributes["axis"]
    if "of" in attributes:
        _require_positions(attributes["of"], index)
    _require_index("index_select", index)
    if not x.shape:
        raise OpError("index_select: the input needs at least one dimension")
    return Meta((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)


def _evaluate_index_select(x, index, axis, of=None):
    check_range(f"{of}: index out of range in self" if of else "index_select", index, x.shape[axis])
    return np.take(x, index, axis)


def _index_select_reads(value, table, index):
    axis, n_index = value.attributes["axis"], len(index.shape)
    before, after = table.strides[:axis], table.strides[axis + 1 :]
    at = table.over(value.shape, (*before, *(0,) * n_index, *after))
    index_at = index.over(value.shape, (*(0,) * len(before), *index.strides, *(0,) * len(after)))
    return [Read(at, fusable=False, indexed=(1, table.strides[axis], table.shape[axis])), Read(index_at)]


# The index may have any shape: its dimensions take the place of `axis`. of: what errors call it (PyTorch's sentences).
index_select = register(
    Op(
        "index_select",
        "indexing",
        _index_select_infer,
        _evaluate_index_select,
        (lambda g, out, x, index, axis, of=None: index_add(zeros_like(x), index, g, axis=axis), None),
        kernel=Lookup(_index_select_reads),
        traits=frozenset(["moves"]),
        cost="gather",
        compute_dtype=_first_is_float(1),
        samples=lambda: [
            Sample((samples.numbers(0, (5, 3)), samples.integers(1, (4,), 0, 5)), {"axis": 0}),
            Sample((samples.numbers(2, (5, 3)), samples.integers(3, (2, 4), 0, 5)), {"axis": 0}),
            Sample((samples.numbers(4, (2, 5, 3)), samples.integers(5, (4,), 0, 5)), {"axis": 1}),
        ],
    )
)


def _index_add_infer(operands, attributes, default_float):
    x, index, part = operands
    _require_index("index_add", index)
    axis, shape = attributes["axis"], attributes.get("merged", x.shape)
    wanted = (*shape[:axis], *index.shape, *shape[axis + 1 :])
    if part.shape != wanted:
        raise OpError(f"index_add: the source has shape {part.shape}, index {index.shape} on {x.shape} needs {wanted}")
    return Meta(x.shape, x.dtype)


def _change_index_add(x, index, part, axis, merged=None):
    shape = merged or x.shape
    check_range("index_add", index, shape[axis])
    outer, inner, index = prod(shape[:axis]), prod(shape[axis + 1 :]), index.reshape(-1)
    rows, part = x.reshape(outer, shape[axis], inner), part.reshape(outer, index.size, inner)
    loops = [(outer, (rows.strides[0], part.strides[0], 0)), (index.size, (0, part.strides[1], index.strides[0]))]
    is_whole = inner == 1 or part.strides[2] == rows.strides[2] == x.itemsize
    if not (is_whole and _add_at(rows, part, index, loops, inner, rows.strides[1])):
        np.add.at(rows, (slice(None), index), part)


def _write_slices(writer, shape, op):
    """The base, and slices of the part combined with (op) or put over (None) its slices at the index, in order of the
    index. `shape` is the result's, in which one axis is indexed."""
    value = writer.value
    _, index, part = writer.accesses
    axis, n_index = value.attributes["axis"], len(index.shape)
    strides = contiguous_strides(shape)
    writer.copy_operand(0, contiguous_strides(value.shape), 0)
    lead_steps, slice_steps = part.strides[: axis + n_index], part.strides[axis + n_index :]
    to_steps = (*strides[:axis], *(0,) * n_index, *strides[axis + 1 :])
    inner = prod(shape[axis + 1 :])
    # The elements of a slice are walked in vectors where both sides are contiguous, else one by one.
    lane = int(inner > 1 and slice_steps == strides[axis + 1 :])

    def body(names):
        where = writer.load(1, names[axis : axis + n_index], index.strides)
        x = writer.load(2, names, (*lead_steps, *slice_steps), lane)
        update = writer.update(names, to_steps, where, strides[axis], shape[axis], op, x, lane)
        return [where, writer.sweep(inner, x, update)] if lane else [where, x, update]

    writer.nest((*shape[:axis], *index.shape, *(() if lane else shape[axis + 1 :])), body)


def _write_index_add(writer):
    _write_slices(writer, writer.value.attributes.get("merged", writer.value.shape), TABLE["add"])


def _write_index_put(writer):
    _write_slices(writer, writer.value.attributes["merged"], None)


def _index_add_vjp_part(g, out, x, index, part, axis, merged=None):
    return index_select(g if merged is None else reshape(g, shape=merged), index, axis=axis)


# A copy of x with the slices of part added at index along axis, in order of the index. `merged`: as below.
index_add = register(
    Op(
        "index_add",
        "indexing",
        _index_add_infer,
        vjp=(
            lambda g, out, x, index, part, axis, merged=None: g,
            None,
            _index_add_vjp_part,
        ),
        change=_change_index_add,
        kernel=Change(_write_index_add, checks=True),
        compute_dtype=_first_is_float(1),
        samples=lambda: [
            Sample(
                (samples.numbers(0, (5, 3)), samples.integers(1, (7,), 0, 5), samples.numbers(2, (7, 3))), {"axis": 0}
            ),
            Sample(
                (samples.numbers(3, (2, 5, 3)), samples.integers(4, (4,), 0, 5), samples.numbers(5, (2, 4, 3))),
                {"axis": 1},
            ),
            Sample(
                (samples.numbers(6, (2, 3)), np.array([4, 0]), samples.numbers(8, (2,))), {"axis": 0, "merged": (6,)}
            ),
        ],
    )
)


# --- index_put: x with slices replaced; `merged` is x's shape with the indexed axes as one ---------------------------
def _index_put_infer(operands, attributes, default_float):
    x, index, part = operands
    axis, merged = attributes["axis"], attributes["merged"]
    assert part.shape == (*merged[:axis], *index.shape, *merged[axis + 1 :]), (part.shape, merged, index.shape)
    return Meta(x.shape, x.dtype)


def _change_index_put(x, index, part, axis, merged):
    check_range("index_put", index, merged[axis])
    rows = x.reshape(prod(merged[:axis]), merged[axis], prod(merged[axis + 1 :]))
    rows[:, index.reshape(-1)] = part.reshape(rows.shape[0], index.size, rows.shape[2])


def _index_put_vjp_base(g, out, x, index, part, axis, merged):
    return index_put(g, index, zeros_like(part), axis=axis, merged=merged)


def _index_put_vjp_part(g, out, x, index, part, axis, merged):
    return index_select(reshape(g, shape=merged), index, axis=axis)


# Where an index repeats, the last part wins in the value, and all of them receive the cotangent (as in PyTorch).
index_put = register(
    Op(
        "index_put",
        "indexing",
        _index_put_infer,
        vjp=(_index_put_vjp_base, None, _index_put_vjp_part),
        change=_change_index_put,
        kernel=Change(_write_index_put, checks=True),
        traits=frozenset(["moves"]),
        compute_dtype=_first_is_float(1),
        samples=lambda: [
            Sample(
                (samples.numbers(0, (5, 3)), np.array([3, 0]), samples.numbers(1, (2, 3))),
                {"axis": 0, "merged": (5, 3)},
            )
        ],
    )
)


def _evaluate_in_range(index, size, axis):
    name = f"indexing dimension {axis}"
    if np.any(index < 0):
        # It was counted from the end, which the message undoes.
        check_range(name, np.where(index < 0, index - size, 0), size)
    check_range(name, index, size)
    return index


def _lower_in_range(b, index, fail, size, axis):
    t = index.type
    fail(b.or_(b.cmp("lt", index, b.const(0, t)), b.cmp("ge", index, b.const(size, t))))
    return index


# An index, checked to be in [0, size).
in_range = elementwise(
    "in_range",
    1,
    lambda operands, default_float: ((operands[0].dtype,), operands[0].dtype),
    evaluate=_evaluate_in_range,
    lower=_lower_in_range,
    samples=lambda: [Sample((samples.integers(0, (4,), 0, 5),), {"size": 5, "axis": 0})],
    traits=frozenset(["checks"]),
)


def _evaluate_position(index, size, axis):
    return _evaluate_in_range(np.where(index < 0, index + size, index), size, axis)


def _lower_position(b, index, fail, size, axis):
    t = index.type
    counted = b.select(b.cmp("lt", index, b.const(0, t)), b.add(index, b.const(size, t)), index)
    return _lower_in_range(b, counted, fail, size, axis)


# An index in [-size, size), counted from the beginning.
position = elementwise(
    "position",
    1,
    lambda operands, default_float: ((operands[0].dtype,), operands[0].dtype),
    evaluate=_evaluate_position,
    lower=_lower_position,
    samples=lambda: [Sample((samples.integers(0, (4,), -5, 5),), {"size": 5, "axis": 0})],
    oracle=lambda torch, x, size, axis: torch.where(x < 0, x + size, x),
    traits=frozenset(["checks"]),
)

_ROWS = {"axis": 0, "of": "embedding"}
embedding = composite(
    "embedding",
    lambda operands, attributes, default_float: _index_select_infer(operands, _ROWS, default_float),
    lambda weight, index: index_select(weight, index, **_ROWS),
    vjp=(lambda g, out, weight, index: index_add(zeros_like(weight), index, g, axis=0), None),
    samples=lambda: [Sample((samples.numbers(0, (5, 3)), samples.integers(1, (2, 4), 0, 5)))],
)


def _evaluate_one_hot_class(index, count):
    if index.size and index.min() < 0:
        raise RuntimeError(f"one_hot: Class values must be non-negative, got {index.min()}")
    if index.size and index.max() >= count:
        raise RuntimeError(f"one_hot: Class values must be smaller than num_classes {count}, got {index.max()}")
    return index


def _lower_one_hot_class(b, index, fail, count):
    return _lower_in_range(b, index, fail, count, 0)


# An index, checked to be one of so many classes.
one_hot_class = elementwise(
    "one_hot_class",
    1,
    lambda operands, default_float: ((operands[0].dtype,), operands[0].dtype),
    evaluate=_evaluate_one_hot_class,
    lower=_lower_one_hot_class,
    samples=lambda: [Sample((samples.integers(0, (4,), 0, 5),), {"count": 5})],
    traits=frozenset(["checks"]),
)


def _one_hot(index, count):
    index = one_hot_class(index, count=count)
    classes = index.apply_op(arange, (0, 1), {"shape": (count,), "dtype": dtypes.int64})
    hits = eq(expand(reshape(index, shape=(*index.shape, 1)), shape=(*index.shape, count)), classes)
    return cast(hits, dtype=dtypes.int64)


# int64 rows with a 1 at the index.
one_hot = composite(
    "one_hot",
    lambda operands, attributes, default_float: Meta((*operands[0].shape, attributes["count"]), dtypes.int64),
    _one_hot,
    samples=lambda: [Sample((samples.integers(0, (4,), 0, 5),), {"count": 5})],
)
