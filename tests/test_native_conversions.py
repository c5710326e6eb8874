"""Ops that convert their operands, again and again, until native code computes them: it converts what Python does.

Eager mode took the bytes of a part of another type for elements of the target's, and wrote behind its end.
"""

import numpy as np
import pytest

import weft
from weft.compiler.ops import indexing, view

N_CALLS = 24  # enough for native code to take over
INDEX = [0, 2, 1]


def _changes(part):
    """(function of a new target, what NumPy makes of the target) by name."""
    index, rows, numbers = weft.tensor(INDEX), weft.tensor(INDEX)[:, None].expand(3, 4), part.detach().numpy()

    def put(target):
        target[index] = part

    def put_slice(target):
        target[1:] = part[1:]

    def put_at_places(target):
        target[index, index] = part[:, 0]

    def added(x):
        np.add.at(x, INDEX, numbers.astype(x.dtype))

    def written(x):
        x[INDEX] = numbers

    def sliced(x):
        x[1:] = numbers[1:]

    def diagonal(x):
        x[INDEX, INDEX] = numbers[:, 0]

    made = {
        "put": (put, written),
        "put_slice": (put_slice, sliced),
        "put_at_places": (put_at_places, diagonal),
        "index_add": (lambda x: indexing.index_add(x, index, part, axis=0), added),
        "scatter_add": (lambda x: indexing.scatter_add(x, rows, part, axis=0), added),
        "slice_scatter": (lambda x: view.slice_scatter(x, part[1:], spec=((1, 1, 2), (0, 1, 4))), sliced),
    }
    return made


@pytest.mark.parametrize("target", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("given", ["float32", "float64", "int64", "int32", "bool"])
@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("name", ["put", "put_slice", "put_at_places", "index_add", "scatter_add", "slice_scatter"])
def test_parts_of_another_type(name, target, given, with_gradients):
    target, given = getattr(weft, target), getattr(weft, given)
    if with_gradients and not given.is_floating_point:
        with_gradients = False
    part = (weft.arange(12).view(3, 4) + 1).to(given).requires_grad_(with_gradients)
    change, expected = _changes(part * 1 if with_gradients else part)[name]
    for _ in range(N_CALLS):
        x = weft.zeros(3, 4, dtype=target)
        out = change(x)
        array = np.zeros((3, 4), target.numpy)
        expected(array)
        assert (x if out is None else out).tolist() == array.tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["index_add_", "scatter_add_"])
@pytest.mark.parametrize("ours, theirs", [("float32", "float64"), ("float64", "float32"), ("int64", "float32")])
def test_types_that_do_not_fit_are_refused(name, ours, theirs):
    """As by PyTorch, and with nothing changed."""
    import torch

    for ns in (torch, weft):
        x, part = ns.zeros(3, 4, dtype=getattr(ns, ours)), ns.ones(3, 4, dtype=getattr(ns, theirs))
        index = ns.tensor(INDEX) if name == "index_add_" else ns.tensor(INDEX)[:, None].expand(3, 4)
        with pytest.raises(RuntimeError):
            getattr(x, name)(0, index, part)
        assert x.tolist() == [[0] * 4] * 3 and x._version == 0
