"""Every op of the table on its samples against PyTorch: values, first and second derivatives."""

import numpy as np
import pytest
from helpers import (
    assert_equal_to_torch,
    call,
    differentiable_positions,
    leaves_of,
    operands_of,
    projection,
    sampled_ops,
    to_torch,
    torch_call,
)

import weft
from weft.compiler.ops import TABLE
from weft.compiler.ops.orthogonal import FAMILIES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

NAMES = [op.name for op in sampled_ops()]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
# Draws of our own generator: PyTorch has no function of the same values.
OWN = {"uniform", "data"}  # x.data is no function in PyTorch: tests/test_data_attribute.py
# PyTorch refuses to differentiate them; the derivatives of floor_divide and of the sign of a real determinant are 0.
REFUSED = {"floor_divide", "sign_det", "sign_det_by_lapack", "airy_ai", "polynomial_derivative"} | set(FAMILIES)
REFUSED |= {name for name in NAMES if "bessel_" in name}


def theirs_of(sample, dtype, requires_grad=False):
    arrays = [x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in sample.operands]
    return [to_torch(torch, x, requires_grad) for x in arrays]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in OWN])
def test_forward(name, dtype):
    op = TABLE[name]
    for sample in op.samples():
        ours = call(op, operands_of(sample, dtype), sample.attributes)
        theirs = torch_call(torch, op, theirs_of(sample, dtype), sample.attributes)
        allowed = max(TOLERANCE[dtype], op.tolerance or 0)
        assert_equal_to_torch(ours, theirs, allowed, allowed)


def gradients(ours, inputs, theirs, their_inputs, seed, create_graph):
    weights = projection(ours.shape, seed)
    mine = weft.autograd.grad(
        ours, inputs, weft.tensor(weights, dtype=ours.dtype), create_graph=create_graph, allow_unused=True
    )
    other = torch.autograd.grad(
        theirs, their_inputs, torch.tensor(weights, dtype=theirs.dtype), create_graph=create_graph, allow_unused=True
    )
    return mine, other


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OWN | REFUSED])
def test_gradients(name):
    """First order, then the gradient of a random projection of the first order."""
    op = TABLE[name]
    for sample in op.samples():
        ours_in, theirs_in = leaves_of(op, sample), theirs_of(sample, "float64", True)
        positions = differentiable_positions(op, ours_in)
        ours = call(op, ours_in, sample.attributes)
        theirs = torch_call(torch, op, theirs_in, sample.attributes)
        assert ours.requires_grad == (bool(positions) and ours.dtype.is_floating_point) == theirs.requires_grad
        if not ours.requires_grad:
            continue
        inputs, their_inputs = [ours_in[k] for k in positions], [theirs_in[k] for k in positions]
        first, their_first = gradients(ours, inputs, theirs, their_inputs, 0, True)
        for a, b in zip(first, their_first):
            assert (a is None) == (b is None)
            if a is not None:
                assert_equal_to_torch(a, b, op.tolerance or 1e-10, 1e-12)
        for a, b in zip(first, their_first):
            if a is None or not b.requires_grad:
                assert a is None or not a.requires_grad or zero_second(a, inputs), name
                continue
            if not a.requires_grad:
                zeros = torch.autograd.grad(b, their_inputs, torch.ones_like(b), allow_unused=True, retain_graph=True)
                assert all(z is None or not z.numel() or z.abs().max() < 1e-12 for z in zeros), name
                continue
            second, their_second = gradients(a, inputs, b, their_inputs, 1, True)
            for c, d, x in zip(second, their_second, inputs):
                c = weft.zeros_like(x) if c is None else c
                d = torch.zeros(x.shape, dtype=torch.float64) if d is None else d
                assert_equal_to_torch(c, d, op.tolerance or 1e-9, 1e-11)


def zero_second(gradient, inputs):
    found = weft.autograd.grad(gradient.sum(), inputs, allow_unused=True, retain_graph=True)
    return all(g is None or not g.numpy().any() for g in found)
