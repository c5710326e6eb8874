"""Every op of the table computed for all samples at once, as `vmap` does, gives what it gives sample by sample."""

import numpy as np
import pytest

import weft
from weft.compiler.ops.table import TABLE
from weft.runtime.batched.batch import FEW, Level, all_samples, tensor_of_batch

SIZE = FEW + 2
# What is made of an operand that has to be one of the same for all, or is no function of tensors alone.
WITHOUT = {"connect"}
NAMES = [name for name, op in TABLE.items() if op.samples is not None and name not in WITHOUT]


def is_tensor(x):
    return isinstance(x, np.ndarray | np.generic)


def batches_of(operands, varied):
    """The operands of all samples: those that vary have them in front, each a little smaller than the one before."""
    found = []
    for x, is_varied in zip(operands, varied):
        if not is_tensor(x) or not is_varied:
            found.append(x)
            continue
        factors = 1.0 - np.arange(SIZE) / 64
        rows = [np.asarray(x) * (f if x.dtype.kind in "fc" else 1) for f in factors]
        found.append(np.stack([row.astype(x.dtype) for row in rows]))
    return found


def tensors_of(operands):
    return [weft.tensor(x) if is_tensor(x) else x for x in operands]


def one_by_one(function, operands, varied):
    rows = [[x[k] if v else x for x, v in zip(operands, varied)] for k in range(SIZE)]
    return [weft.stack(column) for column in zip(*[function(*row) for row in rows])]


def at_once(function, operands, varied):
    with Level(SIZE) as level:
        given = [tensor_of_batch(level, x, True) if v else x for x, v in zip(operands, varied)]
        return [all_samples(level, x) for x in function(*given)]


def ways(operands):
    """Which operands vary: all, and each alone."""
    tensors = [is_tensor(x) for x in operands]
    found = [tensors]
    if sum(tensors) > 1:
        found += [[k == n for k in range(len(operands))] for n, is_one in enumerate(tensors) if is_one]
    return found


def same(a, b):
    return a.dtype is b.dtype and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy(), equal_nan=True)


def cases(name):
    op = TABLE[name]
    for sample in op.samples():
        for varied in ways(sample.operands) if any(map(is_tensor, sample.operands)) else ():
            yield op, sample.attributes, tensors_of(batches_of(sample.operands, varied)), varied


def check(function, operands, varied, attributes):
    try:
        expected = one_by_one(function, operands, varied)
    except (weft.OpError, NotImplementedError):
        return  # a smaller operand is none that the op takes, or there is no derivative
    found = at_once(function, operands, varied)
    for a, b in zip(found, expected, strict=True):
        assert same(a, b), (varied, attributes, [getattr(x, "shape", x) for x in operands])


@pytest.mark.parametrize("name", NAMES)
def test_results(name):
    for op, attributes, operands, varied in cases(name):
        check(lambda *given, op=op, attributes=attributes: (op(*given, **attributes),), operands, varied, attributes)


def gradients(op, attributes):
    """What vjp gives for cotangents that are the result itself: those of all operands that are differentiable."""

    def function(*given):
        places = [k for k, x in enumerate(given) if isinstance(x, weft.Tensor) and x.dtype.is_floating_point]

        def of_some(*some):
            operands = list(given)
            for k, x in zip(places, some):
                operands[k] = x
            return op(*operands, **attributes)

        result, back = weft.func.vjp(of_some, *[given[k] for k in places])
        return back(result)

    return function


@pytest.mark.parametrize("name", [name for name in NAMES if TABLE[name].vjp or TABLE[name].kind == "composite"])
def test_derivatives(name):
    for op, attributes, operands, varied in cases(name):
        if any(x.dtype.is_floating_point for x in operands if isinstance(x, weft.Tensor)):
            check(gradients(op, attributes), operands, varied, attributes)
