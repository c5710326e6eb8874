"""The matrix product: every element is one fused chain in the order of p, so its bits depend on nothing else."""

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from gemm_harness import gemm  # noqa: E402

ELEMENTS = ["f32", "f64"]


def chain(a, b):
    """The contract, with exact fractions and one rounding per step: slow."""
    round_to = a.dtype.type
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    for i, j in np.ndindex(out.shape):
        acc = round_to(0)
        for x, y in zip(a[i], b[:, j]):
            acc = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(acc)), round_to)
        out[i, j] = acc
    return out


def rounded(exact, round_to):
    """A fraction to the nearest float, ties to even; float(Fraction) rounds once, to binary64."""
    if round_to is np.float64:
        return np.float64(float(exact))
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def matrices(element, m, n, k, seed=0):
    r = np.random.default_rng(seed)
    dtype = gemm(element).dtype
    return r.standard_normal((m, k)).astype(dtype), r.standard_normal((k, n)).astype(dtype)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (3, 3, 3), (1, 5, 9), (9, 1, 17), (5, 18, 7), (13, 41, 3), (2, 3, 65)])
def test_each_element_is_one_fused_chain(element, m, n, k):
    a, b = matrices(element, m, n, k)
    assert (gemm(element)(a, b) == chain(a, b)).all()
