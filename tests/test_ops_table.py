"""Every op of the table on its samples: complete entries, derivatives by finite differences, layouts, shapes."""

import numpy as np
import pytest
from helpers import (
    call,
    central_difference,
    differentiable_positions,
    direction,
    is_float,
    leaves_of,
    operands_of,
    projection,
    sampled_ops,
)

import weft
from weft.compiler.ops import TABLE
from weft.compiler.ops.kinds import number_meta

# `constant` stands for a number written in a rule; it is made by Graph.constant, never called on operands.
# Those of complex numbers have tests of their own (test_complex.py, test_fft.py).
WITHOUT_SAMPLES = {
    "constant",
    *("real", "imag", "view_as_real", "view_as_complex", "complex", "angle", "sgn", "fft_c2c", "fft_r2c", "fft_c2r"),
    *("linalg_eig", "linalg_eigvals"),
    # It raises.
    "no_derivative",
    # It passes on complex gradients, or raises.
    "settled_phase",
    # Its rule leaves out what users never get a cotangent of (test_several_results.py).
    "linalg_lstsq",
    # How large its results are, and which strides it takes, is a matter of the types (test_by_python.py).
    "reinterpreted",
}
NAMES = [op.name for op in sampled_ops()]


def test_every_entry_has_samples():
    assert {name for name, op in TABLE.items() if op.samples is None} == WITHOUT_SAMPLES
    assert all(op.samples() for op in sampled_ops())


def test_every_entry_computes():
    """An op is evaluated by NumPy, by the kernel of its lowering, by a routine, or by its decomposition."""
    for op in sampled_ops():
        assert op.evaluate or op.lower or op.decompose or op.kernel.family == "library", op


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_what_the_shape_rule_says(name, dtype):
    op = TABLE[name]
    for sample in op.samples():
        operands = operands_of(sample, dtype)
        metas = [x if isinstance(x, weft.Tensor) else number_meta(x) for x in operands]
        meta = op.infer(metas, sample.attributes, weft.float32)
        out = call(op, operands, sample.attributes)
        assert (out.shape, out.dtype) == (meta.shape, meta.dtype)
        assert op.kind == "view" or "view" in op.extra or out.array.flags.c_contiguous


def reorder(array):
    """The same values in memory that is neither contiguous, nor ascending, nor row-major."""
    spread = np.empty([2 * d for d in reversed(array.shape)], array.dtype)
    view = spread[(..., *[slice(None, None, -2)] * array.ndim)].T
    view[...] = array
    return view


@pytest.mark.parametrize("name", NAMES)
def test_layout_changes_no_bit(name):
    op = TABLE[name]
    for sample in op.samples():
        plain = operands_of(sample)
        strided = [weft.from_numpy(reorder(x.numpy())) if isinstance(x, weft.Tensor) else x for x in plain]
        expected, found = call(op, plain, sample.attributes), call(op, strided, sample.attributes)
        assert expected.dtype is found.dtype
        assert np.array_equal(expected.array, found.array, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_operands_stay_as_they_are(name):
    op = TABLE[name]
    for sample in op.samples():
        operands = leaves_of(op, sample)
        before = [x.detach().array.copy() if isinstance(x, weft.Tensor) else x for x in operands]
        out = call(op, operands, sample.attributes)
        if out.requires_grad:
            out.sum().backward()
        for x, y in zip(operands, before):
            assert not isinstance(x, weft.Tensor) or np.array_equal(x.detach().array, y, equal_nan=True)


# --- derivatives ------------------------------------------------------------------------------------------------------
# Piecewise constant: the derivative is 0, and a finite difference of a jump says nothing.
JUMPS = {"floor_divide", "frexp"}
# Read as symmetric matrices, of which they see one triangle: derivatives are those along symmetric directions.
SYMMETRIC = {"linalg_cholesky", "cholesky_by_lapack", "linalg_eigh", "linalg_eigvalsh"}
DIFFERENTIABLE = [op.name for op in sampled_ops() if op.name not in JUMPS]


def projected(op, sample, positions, weights):
    """arrays at the positions -> the projected output as a tensor."""

    def run(arrays):
        operands = operands_of(sample)
        for k, a in zip(positions, arrays):
            operands[k] = a if isinstance(a, weft.Tensor) else weft.tensor(a)
        return (call(op, operands, sample.attributes) * weights).sum()

    return run


def slope(function, arrays, directions):
    """(the derivative of function along the directions, differentiable again; the leaves it was taken at)."""
    leaves = [weft.tensor(a, requires_grad=True) for a in arrays]
    gradients = weft.autograd.grad(function(leaves), leaves, create_graph=True, allow_unused=True)
    parts = [(g * weft.tensor(d)).sum() for g, d in zip(gradients, directions) if g is not None]
    return sum(parts, weft.zeros((), dtype=weft.float64)), leaves


def check_first_order(function, arrays, directions):
    numeric = central_difference(lambda v: function(v).item(), arrays, directions)
    assert slope(function, arrays, directions)[0].item() == pytest.approx(numeric, rel=1e-7, abs=1e-7)


def check_second_order(function, arrays, first, second):
    along, leaves = slope(function, arrays, first)
    numeric = central_difference(lambda v: slope(function, v, first)[0].item(), arrays, second)
    if not along.requires_grad:
        assert abs(numeric) < 1e-6
        return
    gradients = weft.autograd.grad(along, leaves, allow_unused=True)
    exact = sum(float((g.numpy() * d).sum()) for g, d in zip(gradients, second) if g is not None)
    assert exact == pytest.approx(numeric, rel=1e-6, abs=1e-6)


def directed(name, shape, seed):
    along = direction(shape, seed)
    return along + along.swapaxes(-1, -2) if name in SYMMETRIC else along


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_by_finite_differences(name):
    """Of a random projection of the result, along a random direction; the second order of that along another."""
    op = TABLE[name]
    checked = 0
    for sample in op.samples():
        positions = differentiable_positions(op, operands_of(sample))
        out = call(op, operands_of(sample), sample.attributes)
        # A result in float32, or an integer, hides a small step.
        if positions and out.dtype is weft.float64:
            arrays = [np.array(sample.operands[k]) for k in positions]
            function = projected(op, sample, positions, weft.tensor(projection(out.shape, 1)))
            first, second = ([directed(name, a.shape, seed + k) for k, a in enumerate(arrays)] for seed in (2, 20))
            check_first_order(function, arrays, first)
            check_second_order(function, arrays, first, second)
            checked += 1
    assert bool(checked) == any(differentiable_positions(op, operands_of(s)) for s in op.samples())


def test_every_rule_is_checked():
    """Ops with a rule have a sample with a floating operand at each position that has one."""
    for op in sampled_ops():
        if op.vjp and not callable(op.vjp):
            positions = {
                k for s in op.samples() for k, x in enumerate(s.operands) if is_float(x) or isinstance(x, float)
            }
            assert {k for k, rule in enumerate(op.vjp) if rule} <= positions, op


def test_programs_can_compute_the_derivatives_of_what_they_can_compute():
    """An op with a kernel whose derivative had none would fail where a program is built."""
    from weft.compiler import dtypes
    from weft.compiler.autodiff import vjp
    from weft.compiler.decompose import decompose
    from weft.compiler.graph import Graph
    from weft.runtime.record.build import has_kernel

    def missing(graph):
        return {v.op.name for v in decompose(graph)[0].values if not has_kernel(v)}

    for op in list(TABLE.values()):
        for sample in op.samples() if op.samples else ():
            if any(isinstance(x, np.ndarray) and x.size == 0 for x in sample.operands):
                continue
            graph = Graph(op.name, dtypes.float32)
            operands = tuple(
                graph.input(x.shape, dtypes.from_numpy(x.dtype))
                if isinstance(x, np.ndarray)
                else graph.scalar(weft.tensor(x).dtype)
                for x in sample.operands
            )
            out = graph.apply(op, operands, sample.attributes)
            if not out.dtype.is_differentiable or missing(graph):
                continue
            cotangent = graph.input(out.shape, out.dtype)
            for k, x in enumerate(operands):
                if isinstance(sample.operands[k], np.ndarray) and x.dtype.is_differentiable:
                    vjp(op, k, cotangent, out, operands, sample.attributes)
            assert not missing(graph), op.name
