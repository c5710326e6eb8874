"""Positions of elements as numbers: what layouts compute with indices, on arrays of int64.

indices  (n_sparse, n_elements)      one column for each element
flat     (n_elements,)               the same as places in row-major order
starts   (n_rows + 1,)               of rows that lie one after another: where each begins
"""

from math import prod

import numpy as np


def flat(indices, sizes):
    """Places in row-major order."""
    places = np.zeros(indices.shape[1], np.int64)
    for row, size in zip(indices, sizes):
        places = places * size + row
    return places


def unflat(places, sizes):
    """The indices of places."""
    indices = np.empty((len(sizes), places.shape[0]), np.int64)
    for axis in reversed(range(len(sizes))):
        places, indices[axis] = np.divmod(places, sizes[axis]) if sizes[axis] else (places, 0)
    return indices


def is_rising(places):
    """Whether every place is behind the one before."""
    return bool((places[1:] > places[:-1]).all())


def merged(indices, sizes):
    """(indices in row-major order, each once; for every element which of them is its own)"""
    places, numbers = np.unique(flat(indices, sizes), return_inverse=True)
    return unflat(places, sizes), numbers.reshape(-1)


def common(left, right):
    """(positions in left, positions in right) of the places that both have; both rise."""
    _, of_left, of_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return of_left, of_right


def starts_of(rows, n_rows):
    """Where each row begins, of elements whose rows never fall."""
    starts = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=starts[1:])
    return starts


def rows_of(starts):
    """The row of every element."""
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int64), np.diff(starts))


def pairs(columns, starts):
    """(positions on the left, positions on the right) of all products of a left element in column k and a right one in
    row k; `starts` are those of the rows on the right."""
    counts = starts[columns + 1] - starts[columns]
    left = np.repeat(np.arange(len(columns), dtype=np.int64), counts)
    begun = np.cumsum(counts) - counts
    right = np.arange(len(left), dtype=np.int64) - np.repeat(begun - starts[columns], counts)
    return left, right


def without(sizes, axes):
    """The sizes of the axes that stay."""
    return [size for axis, size in enumerate(sizes) if axis not in axes]


def n_places(sizes):
    """How many places there are."""
    return prod(sizes)
