"""Reductions over a set of axes, in one order that depends on the logical shape and axes alone.

The order (see docs/architecture.md; emit/reduce.py writes it): neighbouring axes are one run, and the last run is
reduced first, each into a value of the dtype. With n elements in the run and `inner` elements after it in a row:

    inner = 1   Element k goes to lane k mod 32 of an accumulator that starts at the identity. Sums of floats close a
                block every 2048 elements: the block is added to a total per lane by Knuth's two-sum, whose errors are
                added up (those of infinite or NaN totals are dropped) and added to the total at the end. Then lane l
                is combined with lane l + 16, then with l + 8, ... l + 1.
    inner > 1   Every column combines its elements in order. Sums of floats close a block every 128 rows, likewise.

Lanes and blocks that have no elements change nothing (x + 0.0 is x, for a sum that started at 0.0), so short rows do
not compute them. Extremes: a NaN stays; of 0.0 and -0.0 the later one does. Eager mode runs the same emitters.
"""

from math import prod as product

import numpy as np

from .. import dtypes
from ..kernels.loop import Reduction
from ..kernels.nest import Search
from ..plain import Plain
from ..shapes import contiguous_strides, joint_runs, normalize_axes, reduced_shape
from . import samples
from .arithmetic import add, div, mul
from .comparison import eq, logical_or, ne, where
from .kinds import composite
from .samples import Sample
from .source import full_like
from .table import Meta, Op, OutOfRange, register
from .view import cat, expand, permute, reshape, slice_

_REDUCTION = Reduction()


class Combine(Plain):
    """How two partial results are combined: the identity and the step (builder, accumulator, x) -> accumulator.

    `compensated` totals of floats keep the rounding error of every block (TwoSum: Knuth, TAOCP 2, 4.2.2 theorem B).
    `rounds`: whether steps on floats round, so that one after the other is another result than block by block.
    """

    __slots__ = ("identity", "step", "compensated", "rounds")

    def __init__(self, identity, step, compensated=False, rounds=False):
        self.identity = identity
        self.step = step
        self.compensated = compensated
        self.rounds = rounds

    def goes_by_blocks(self, element):
        """Whether the results of blocks, combined in order, are the result of the whole."""
        return self.compensated or not self.rounds or not element.startswith("f")


def _axes_samples(low=-2.0, high=2.0, make=None, empty=True):
    cases = [((), ()), ((3,), (0,)), ((2, 3), (1,)), ((2, 3), (0,)), ((4, 3, 5), (0, 2)), ((3, 130), (1,))]
    cases += [((70, 5), (0,)), ((2, 3), (0, 1)), ((2500,), (0,))] + ([((0, 3), (0,))] if empty else [])

    def run():
        build = make or (lambda k, s: samples.numbers(k, s, low, high))
        return [
            Sample((build(k, s),), {"axes": a, "keepdim": keep})
            for k, (s, a) in enumerate(cases)
            for keep in (False, True)
        ]

    return run


def spread(g, x, axes, keepdim):
    """A reduction's cotangent (or result), shaped to broadcast against the operand x."""
    if keepdim:
        return g
    return reshape(g, shape=reduced_shape(x.shape, axes, True))


def _reduction(name, result_dtype, lower, vjp, *, make_samples, operand_dtype=None, kernel=_REDUCTION, **facts):
    def compute_dtype(operands, default_float):
        wanted = operand_dtype(operands[0].dtype) if operand_dtype else operands[0].dtype
        return (wanted,), result_dtype(operands[0].dtype)

    def infer(operands, attributes, default_float):
        x = operands[0]
        axes = attributes["axes"]
        assert axes == normalize_axes(name, axes, len(x.shape)) or axes == (), (name, axes)
        if isinstance(lower, Combine) and lower.identity is None and 0 in [x.shape[a] for a in axes]:
            raise OutOfRange(f"{name}: shape {x.shape} has no elements along dim {axes}, and {name} has no identity")
        return Meta(reduced_shape(x.shape, axes, attributes["keepdim"]), result_dtype(x.dtype))

    return register(
        Op(
            name,
            "reduction",
            infer,
            None,
            (vjp,) if vjp else (),
            lower,
            compute_dtype=compute_dtype,
            kernel=kernel,
            samples=make_samples,
            **facts,
        )
    )


def _widened(d):
    return d if d.is_differentiable else dtypes.int64


def _numbered(name):
    """PyTorch's node is ...Backward0 over all dimensions and ...Backward1 over chosen ones."""
    return lambda operands, attributes: f"{name}Backward{int(attributes['axes'] != tuple(range(operands[0].ndim)))}"


sum_ = _reduction(
    "sum",
    _widened,
    Combine(0, lambda b, acc, x: b.add(acc, x), compensated=True),
    lambda g, out, x, axes, keepdim: expand(spread(g, x, axes, keepdim), shape=x.shape),
    operand_dtype=_widened,
    node_name=_numbered("Sum"),
    make_samples=_axes_samples(),
    on_complex=True,
    oracle="sum",
)


def shift(x, axis, distance, fill=1):
    """x moved along axis by `distance` places, with the number `fill` coming in."""
    size = x.shape[axis]
    span = max(size - abs(distance), 0)

    def spec(start, length):
        return tuple((start, 1, length) if k == axis else (0, 1, d) for k, d in enumerate(x.shape))

    shape = tuple(min(abs(distance), size) if k == axis else d for k, d in enumerate(x.shape))
    ones = full_like(slice_(x, spec=spec(0, shape[axis])), fill)
    if distance > 0:
        return cat(ones, slice_(x, spec=spec(0, span)), axis=axis)
    return cat(slice_(x, spec=spec(size - span, span)), ones, axis=axis)


def _prod_vjp(g, out, x, axes, keepdim):
    return mul(spread(g, x, axes, keepdim), product_of_others(x, axes=axes))


prod = _reduction(
    "prod",
    _widened,
    Combine(1, lambda b, acc, x: b.mul(acc, x), rounds=True),
    _prod_vjp,
    operand_dtype=_widened,
    node_name=_numbered("Prod"),
    make_samples=_axes_samples(0.8, 1.2),
    on_complex=lambda x, axes, keepdim: np.multiply.reduce(x, axes, keepdims=keepdim),
    oracle="prod",
)


def _product_of_others(x, axes):
    """The product of all divided by the element, as PyTorch's; of a zero the product of the rest, if it is alone."""
    is_zero = eq(x, 0)
    rest = where(is_zero, 1, x)
    whole, count = prod(rest, axes=axes, keepdim=True), sum_(is_zero, axes=axes, keepdim=True)
    return where(is_zero, where(eq(count, 1), whole, 0), where(eq(count, 0), div(whole, rest), 0))


def _product_of_others_vjp(g, out, x, axes):
    """The product of all others has this derivative where elements are zero, too; that quotient has not.

    The others of element i are those before it and those after it. The product of those before it depends on element j
    by the product of all but these two: what lies before j, times what lies between. So cotangents of the products are
    summed from both ends, times what lies between.
    """
    order = [k for k in range(len(x.shape)) if k not in axes] + list(axes)
    kept = tuple(x.shape[k] for k in order[: len(order) - len(axes)])
    turned = [reshape(permute(y, axes=tuple(order)), shape=(*kept, product(x.shape[a] for a in axes))) for y in (g, x)]
    axis, (g_rows, rows) = len(kept), turned
    left, right = shift(rows, axis, 1), shift(rows, axis, -1)
    before, after = _running(left, axis, 1), _running(right, axis, -1)
    of_before, of_after = (shift(mul(g_rows, y), axis, d, 0) for y, d in ((after, -1), (before, 1)))
    sums = _running(right, axis, -1, of_before), _running(left, axis, 1, of_after)
    result = add(mul(before, sums[0]), mul(after, sums[1]))
    result = reshape(result, shape=tuple(x.shape[k] for k in order))
    return permute(result, axes=tuple(int(k) for k in np.argsort(order)))


def _running(factors, axis, direction, terms=None):
    """Products that run along an axis from its beginning, or from its end (direction -1), by doubling; with terms, the
    sums h[k] = terms[k] + factors[k] h[k - direction]."""
    distance = 1
    while distance < factors.shape[axis]:
        if terms is not None:
            terms = add(terms, mul(factors, shift(terms, axis, direction * distance, 0)))
        factors = mul(factors, shift(factors, axis, direction * distance))
        distance *= 2
    return factors if terms is None else terms


def _torch_others(torch, x, axes):
    last = tuple(range(-len(axes), 0))
    turned = x.movedim(axes, last)
    rows = turned.flatten(x.ndim - len(axes))
    others = [torch.cat([rows[..., :k], rows[..., k + 1 :]], -1).prod(-1) for k in range(rows.shape[-1])]
    return torch.stack(others, -1).reshape(turned.shape).movedim(last, axes)


# For every element the product of all others along axes.
product_of_others = composite(
    "product_of_others",
    lambda operands, attributes, default_float: Meta(operands[0].shape, operands[0].dtype),
    _product_of_others,
    vjp=(_product_of_others_vjp,),
    on_complex=True,
    samples=lambda: [
        Sample((samples.numbers(0, (3, 5), 0.5, 2.0),), {"axes": (1,)}),
        Sample((samples.numbers(1, (2, 3, 4), 0.5, 2.0),), {"axes": (0, 2)}),
        Sample((samples.numbers(2, (4,), 0.5, 2.0),), {"axes": (0,)}),
    ],
    oracle=_torch_others,
)


def _extreme_vjp(g, out, x, axes, keepdim):
    """Ties share the cotangent evenly, as PyTorch's amax. A NaN equals nothing: 0 / 0 is its gradient."""
    return _shared(g, eq(x, spread(out, x, axes, keepdim)), x, axes, keepdim)


def _shared(g, hits, x, axes, keepdim):
    """The cotangent in equal parts where something is hit."""
    return div(where(hits, spread(g, x, axes, keepdim), 0.0), sum_(hits, axes=axes, keepdim=True))


def total_extreme_vjp(g, out, x, axes):
    """As PyTorch's max of everything: all NaNs share the cotangent where the result is one."""
    return _shared(g, logical_or(eq(x, spread(out, x, axes, False)), ne(x, x)), x, axes, False)


def _keep(predicate):
    def step(b, acc, x):
        if acc.type.element == "i1":
            # As a signed number the bit 1 is -1.
            return b.or_(acc, x) if predicate == "gt" else b.and_(acc, x)
        keep = b.cmp(predicate, acc, x)
        if acc.type.is_float:
            keep = b.or_(keep, b.cmp("uno", acc, acc))
        return b.select(keep, acc, x)

    return step


amax = _reduction(
    "amax",
    lambda d: d,
    Combine(None, _keep("gt")),
    _extreme_vjp,
    make_samples=_axes_samples(empty=False),
    kernel=Reduction(of_bool="any"),
    extra={"start": "lowest"},
    oracle="amax",
)
amin = _reduction(
    "amin",
    lambda d: d,
    Combine(None, _keep("lt")),
    _extreme_vjp,
    make_samples=_axes_samples(empty=False),
    kernel=Reduction(of_bool="all"),
    extra={"start": "highest"},
    oracle="amin",
)


def _truth(d):
    """PyTorch's answer about bytes is a byte."""
    return d if d is dtypes.uint8 else dtypes.bool_


any_ = _reduction(
    "any",
    _truth,
    Combine(0, lambda b, acc, x: b.or_(acc, x)),
    None,
    operand_dtype=lambda d: dtypes.bool_,
    make_samples=_axes_samples(make=samples.bools),
    on_complex=True,
)
all_ = _reduction(
    "all",
    _truth,
    Combine(1, lambda b, acc, x: b.and_(acc, x)),
    None,
    operand_dtype=lambda d: dtypes.bool_,
    make_samples=_axes_samples(make=samples.bools),
    on_complex=True,
)


# --- positions of extremes ------------------------------------------------------------------------------------------
def _arg_samples():
    cases = [((3,), 0), ((2, 3), 1), ((2, 3), 0), ((4, 3, 5), 1), ((70, 5), 0)]
    return [Sample((samples.integers(k, s),), {"axis": a}) for k, (s, a) in enumerate(cases)]


def _write_first_extreme(writer):
    value = writer.value
    (x,) = writer.accesses
    if not x.shape:
        kept, x_steps, count, step = (), (), 1, 0
    else:
        axis = value.attributes["axis"]
        count, step = x.shape[axis], x.strides[axis]
        kept = x.shape[:axis] + x.shape[axis + 1 :]
        x_steps = x.strides[:axis] + x.strides[axis + 1 :]
    dims = joint_runs(kept, x_steps, contiguous_strides(kept))
    # Lanes go along the rows where those are contiguous, and long enough to fill them.
    by_rows = step == 1 and count >= 2 * writer.lanes
    looped = dims if by_rows else dims[:-1]
    steps, to_steps = [s for _, s, _ in looped], [s for _, _, s in looped]

    def body(names):
        if by_rows:
            find = writer.first_extreme(0, names, steps, count, step, value.op.lower)
            return [find, writer.store(names, to_steps, find)]
        extent, lane, _ = dims[-1]
        find = writer.first_extreme(0, names, steps, count, step, value.op.lower, lane)
        return [writer.sweep(extent, find, writer.store(names, to_steps, find, 1))]

    writer.nest([d for d, _, _ in looped], body)


def _arg(name, evaluate, predicate):
    def infer(operands, attributes, default_float):
        x, axis = operands[0], attributes["axis"]
        if x.shape[axis] == 0:
            raise OutOfRange(f"{name}: shape {x.shape} has no elements along dim {axis}")
        return Meta(reduced_shape(x.shape, (axis,), False), dtypes.int64)

    # `lower` is the comparison by which a later element replaces the best one so far: the first of equals wins, and
    # the first NaN wins over everything.
    return register(
        Op(
            name,
            "reduction",
            infer,
            lambda x, axis: np.asarray(evaluate(x, axis)),
            (),
            predicate,
            compute_dtype=lambda operands, default_float: ((operands[0].dtype,), dtypes.int64),
            kernel=Search(_write_first_extreme),
            samples=_arg_samples,
        )
    )


# The methods: NumPy's functions take a microsecond to call them.
argmax = _arg("argmax", np.ndarray.argmax, "gt")
argmin = _arg("argmin", np.ndarray.argmin, "lt")
