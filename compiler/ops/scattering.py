"""Scatter with a product or an extreme: many elements meet at one position and are combined in order of the index."""

from math import prod

import numpy as np

from . import samples
from .arithmetic import div, mul, sub
from .comparison import cast, eq, where
from .indexing import _scatter_add_infer, check_range, gather, scatter_add
from .kinds import library
from .samples import Sample

_UFUNCS = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _evaluate(x, index, part, axis, reduce):
    check_range("scatter_reduce", index, x.shape[axis])
    result = np.array(x, order="C")
    where = list(np.indices(index.shape, sparse=True))
    where[axis] = index
    # By one index into all elements, which NumPy takes a tenth of the time for.
    steps = [prod(x.shape[d + 1 :]) for d in range(x.ndim)]
    places = sum(numbers * step for numbers, step in zip(where, steps))
    with np.errstate(all="ignore"):
        _UFUNCS[reduce].at(result.reshape(-1), places.reshape(-1), part.reshape(-1))
    return result


def _counted(base, index, hits, axis, own):
    """How many of the elements that meet at each position are hits; `own` are those of the base."""
    return scatter_add(cast(own, dtype=base.dtype), index, cast(hits, dtype=base.dtype), axis=axis)


def _extreme_shares(g, out, x, index, part, axis):
    """The cotangent shared evenly by all that equal the extreme: (of x, of part)."""
    own, hits = eq(x, out), eq(part, gather(out, index, axis=axis))
    share = div(g, _counted(x, index, hits, axis, own))
    return where(own, share, 0.0), where(hits, gather(share, index, axis=axis), 0.0)


def _product_shares(g, out, x, index, part, axis):
    """The cotangent times the product of the others.

    Of a zero that is the product of the rest if it is the only one at its position; of one of two, the rest times the
    other, which is what the sum of the zeros has besides it: 0, but its derivative is not. Of the other elements it is
    the whole product divided by the element, whose derivative is right also where it is 0.
    """
    own, hits = eq(x, 0.0), eq(part, 0.0)
    whole, whole_part = where(own, 1.0, x), where(hits, 1.0, part)
    rest = mul(g, scatter_reduce(whole, index, whole_part, axis=axis, reduce="prod"))
    count = _counted(x, index, hits, axis, own)
    zeros = scatter_add(where(own, x, 0.0), index, where(hits, part, 0.0), axis=axis)
    product = mul(g, out)
    at = [gather(value, index, axis=axis) for value in (rest, count, zeros, product)]
    of_part = where(hits, _share_of_zero(part, *at[:3]), div(at[3], whole_part))
    return where(own, _share_of_zero(x, rest, count, zeros), div(product, whole)), of_part


def _share_of_zero(value, rest, count, zeros):
    return where(eq(count, 1.0), rest, where(eq(count, 2.0), mul(rest, sub(zeros, value)), 0.0))


def _shares(g, out, x, index, part, axis, reduce):
    if reduce == "prod":
        return _product_shares(g, out, x, index, part, axis)
    return _extreme_shares(g, out, x, index, part, axis)


scatter_reduce = library(
    "scatter_reduce",
    lambda operands, attributes: _scatter_add_infer(operands, attributes, None),
    _evaluate,
    vjp=(
        lambda g, out, x, index, part, axis, reduce: _shares(g, out, x, index, part, axis, reduce)[0],
        None,
        lambda g, out, x, index, part, axis, reduce: _shares(g, out, x, index, part, axis, reduce)[1],
    ),
    samples=lambda: [
        Sample(
            (samples.numbers(0, (3, 4)), samples.integers(1, (3, 6), 0, 4), samples.numbers(2, (3, 6))),
            {"axis": 1, "reduce": r},
        )
        for r in ("prod", "amax", "amin")
    ],
    oracle=lambda torch, x, index, part, axis, reduce: x.scatter_reduce(axis, index, part, reduce),
)
