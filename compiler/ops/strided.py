"""strided: elements of a vector by any strides, each at most once, as a view of its memory."""

from itertools import pairwise
from math import prod

import numpy as np

from .. import dtypes
from . import samples
from .arithmetic import add
from .indexing import scatter_add
from .padded import padded
from .samples import Sample
from .source import arange, full
from .table import Meta, Op, register
from .view import VIEW, expand, permute, reshape


def _evaluate(x, size, stride, start):
    steps = [x.strides[0] * step for step in stride]
    if not x.flags.c_contiguous or 0 in size:
        return np.lib.stride_tricks.as_strided(x[start:], size, steps)
    # Unlike what as_strided gives, its base is x itself, by which owners of memory are found.
    return np.ndarray(size, x.dtype, x, start * x.itemsize, steps)


def _positions(g, size, stride, start):
    """Where in the vector each element is."""
    where = g.apply_op(full, (start,), {"shape": size, "dtype": dtypes.int64})
    for axis, (count, step) in enumerate(zip(size, stride)):
        along = g.apply_op(arange, (0, step), {"shape": (count,), "dtype": dtypes.int64})
        shape = tuple(count if k == axis else 1 for k in range(len(size)))
        where = add(where, expand(reshape(along, shape=shape), shape=size))
    return reshape(where, shape=(prod(size),))


def nested(size, stride):
    """The axes from the longest steps to the shortest, where those of one axis all fit between two steps of the one
    before: then no element is shown twice. None if they do not, and where there is nothing to put in order."""
    axes = sorted((k for k, n in enumerate(size) if n != 1), key=lambda k: -stride[k])
    if not axes or 0 in size or stride[axes[-1]] <= 0:
        return None
    fits = all(stride[a] % stride[b] == 0 and size[b] * stride[b] <= stride[a] for a, b in pairwise(axes))
    return axes if fits else None


def _put(g, axes, n, size, stride, start):
    """Zeros but for the elements of g at their places, axis by axis: without a place in memory for each."""
    order = [k for k, count in enumerate(size) if count == 1] + axes
    g = reshape(permute(g, axes=tuple(order)), shape=(*[size[k] for k in axes], 1))
    lengths = [stride[a] // stride[b] for a, b in pairwise(axes)] + [stride[axes[-1]]]
    g = padded(g, ((0, 0), *[(0, room - n) for room, n in zip(lengths, g.shape[1:])]))
    row = reshape(g, shape=(prod(g.shape),))
    return padded(row, ((start, n - start - row.shape[0]),))


def _vjp(g, out, x, size, stride, start):
    axes = nested(size, stride)
    if axes is not None:
        return _put(g, axes, x.shape[0], size, stride, start)
    zeros = g.apply_op(full, (0,), {"shape": x.shape, "dtype": g.dtype})
    where = _positions(g, size, stride, start)
    return scatter_add(zeros, where, reshape(g, shape=where.shape), axis=0, inside=True)


# The caller has seen to it that all elements are there and that none is shown twice.
strided = register(
    Op(
        "strided",
        "view",
        lambda operands, attributes, default_float: Meta(attributes["size"], operands[0].dtype),
        _evaluate,
        (_vjp,),
        lambda old, strides, offset, size, stride, start: (
            tuple(step * strides[0] for step in stride),
            offset + start * strides[0],
        ),
        samples=lambda: [
            Sample((samples.numbers(k, (12,)),), {"size": size, "stride": stride, "start": start})
            for k, (size, stride, start) in enumerate((((3,), (5,), 1), ((2, 3), (1, 4), 0), ((), (), 7)))
        ],
        kernel=VIEW,
        node_name="AsStridedBackward0",
        oracle=lambda torch, x, size, stride, start: torch.as_strided(x, size, stride, start),
    )
)
