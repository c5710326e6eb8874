"""Ops that convert their operands, again and again, until native code computes them: it converts what Python does.

Native code wrote behind the end of memory: parts of another type, and results wider than an op had said.
"""

import numpy as np
import pytest

import weft
from weft.compiler.ops import TABLE, indexing, view

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


@pytest.mark.parametrize("types", [("float32", "float64"), ("float64", "float32")])
@pytest.mark.parametrize("with_gradients", [False, True])
def test_batch_norm_with_parameters_of_another_type(types, with_gradients):
    """The wider type, whoever computes it. Native code had memory for the first operand's type only."""
    first, second = (getattr(weft, d) for d in types)

    def normed(x, weight, bias):
        return weft.nn.functional.batch_norm(x, None, None, weight, bias, training=True)

    compiled, seen = weft.compile(normed), []
    for function in [normed] * N_CALLS + [compiled] * 3:
        x = weft.arange(15, dtype=first).view(5, 3).sin().requires_grad_(with_gradients)
        weight, bias = weft.arange(3, dtype=second) + 1, weft.ones(3, dtype=second)
        out = function(x, weight, bias)
        seen.append((out.dtype, out.tolist()))
        if with_gradients:
            (out * out.detach().sin()).sum().backward()
            seen[-1] += (x.grad.dtype, x.grad.tolist())
    assert seen[0][0] is weft.float64 and seen == [seen[0]] * len(seen)


def test_routines_read_operands_of_one_type():
    rows = weft.ones(2, 3, 4)
    with pytest.raises(RuntimeError, match="attention_rows: operands must have one dtype, got float32, float64"):
        TABLE["attention_rows"](rows, rows.double(), rows, scale=1.0, causal=False)
