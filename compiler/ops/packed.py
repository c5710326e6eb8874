"""Ops with several results: one computation gives one value, in which they lie one after another, and `result` takes
each out.

    packed value (..., n):    | U: m * k elements | S: k | V^H: k * n |
    result                      U (..., m, k)       S (..., k)   V^H (..., k, n)

Graphs, plans, recordings and programs know ops with one result, and need no other: that of such an op is the packed
value, which nobody else sees. A result is a tensor with memory and a version of its own, as a function's results are: a
change of one is none of another. Programs read packed values where they lie, if elements of results are all that
is asked for. Integers among the results are elements like the
others, if `is_exact`.

The cotangents of results add up to one packed cotangent, zeros for results that nothing depends on, so the op has one
derivative, of all of its results.
"""

from math import prod

import numpy as np

from . import samples
from .comparison import cast
from .complex_numbers import real
from .kinds import alias
from .samples import Sample
from .view import clone, reshape, slice_


def size(shapes):
    """How many elements results of these shapes are together."""
    return sum(prod(s) for s in shapes)


def is_exact(dtype, number):
    """Whether elements of a type can be all whole numbers up to this one."""
    return number <= 2 ** (np.finfo(dtype.numpy).nmant + 1)


def pack(*arrays, n_batch, dtype=None):
    """Arrays whose first n_batch dimensions are those of a batch, as one, of a type that holds all or the one given.
    (For `evaluate`.)"""
    flat = [a.reshape(*a.shape[:n_batch], prod(a.shape[n_batch:])) for a in arrays]
    return np.concatenate(flat, -1, dtype=dtype, casting="unsafe")


def unpack(packed, shapes):
    """The results, of these shapes each, as views. (For rules.)"""
    start, parts = 0, []
    for shape in shapes:
        parts.append(_shown(packed, start, shape))
        start += prod(shape)
    return parts


def _shown(packed, start, shape):
    batch = packed.shape[:-1]
    spec = (*((0, 1, d) for d in batch), (start, 1, prod(shape)))
    return reshape(slice_(packed, spec=spec), shape=(*batch, *shape))


def _taken(packed, start, shape, dtype, of):
    shown = _shown(packed, start, shape)
    if dtype is None or dtype is packed.dtype:
        return clone(shown)
    return clone(real(shown)) if packed.dtype.is_complex and dtype.is_differentiable else cast(shown, dtype=dtype)


# One of the results of an op: the elements from `start` on, of a shape, and of another dtype if it is not that of the
# others. `of` is the name of the function that it is a result of.
result = alias(
    "result",
    _taken,
    on_complex=True,
    node_name=lambda operands, attributes: f"{attributes['of']}Backward0",
    samples=lambda: [
        Sample((samples.numbers(k, s),), {"start": 1, "shape": shape, "dtype": None, "of": "LinalgSvd"})
        for k, (s, shape) in enumerate((((7,), (2, 3)), ((2, 5), (4,)), ((2, 3, 4), ())))
    ],
    oracle=lambda torch, x, start, shape, dtype, of: x[..., start : start + prod(shape)].reshape(*x.shape[:-1], *shape),
)


def results(packed, shapes, of, dtypes=()):
    """The results as tensors, of these shapes and (where they are not that of the packed value) dtypes."""
    start, parts = 0, []
    for k, shape in enumerate(shapes):
        parts.append(result(packed, start=start, shape=shape, dtype=dtypes[k] if dtypes else None, of=of))
        start += prod(shape)
    return parts
