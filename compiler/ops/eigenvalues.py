"""Eigenvalues and eigenvectors of general matrices: complex numbers, also for real matrices.

    A V = V diag(w),   the columns of V of length 1

The length and the phase of an eigenvector are free. The derivative is that of vectors whose length stays 1; what a
function makes of the phase has no derivative (Boeddeker et al., 1701.00392), and a cotangent that asks for one is
refused, as in PyTorch.
"""

import numpy as np

from .arithmetic import add, mul, sub
from .complex_numbers import conj, real
from .contraction import matmul, swap_last
from .decompositions import _over_gaps, settled
from .kinds import library
from .linear_algebra import _checked, diagonal_matrix, identity, require_matrices, solve
from .packed import unpack
from .reduction import sum_
from .table import Meta
from .view import reshape

_CONJUGATE = frozenset(["conjugate"])


def eig_shapes(m, n):
    return (n,), (n, n)


def _complex_of(dtype):
    return dtype if dtype.is_complex else dtype.to_complex()


def _infer(name, size):
    def infer(operands, attributes):
        x = operands[0]
        require_matrices(name, x, square=True, complex_too=True)
        return Meta((*x.shape[:-2], size(x.shape[-1])), _complex_of(x.dtype))

    return infer


def _complex_type(x):
    return np.result_type(x.dtype, np.complex64)


def _evaluate_eig(x):
    values, vectors = np.linalg.eig(x)
    vectors = vectors.reshape(*vectors.shape[:-2], vectors.shape[-1] ** 2)
    return np.concatenate([values, vectors], -1).astype(_complex_type(x))


def _evaluate_eigenvalues(x):
    return np.linalg.eigvals(x).astype(_complex_type(x))


def _row(vector):
    return reshape(vector, shape=(*vector.shape[:-1], 1, vector.shape[-1]))


def _diagonal(matrix):
    return sum_(mul(matrix, identity(matrix, matrix.shape[-1])), axes=(len(matrix.shape) - 1,), keepdim=False)


def _eig_vjp(g, out, x):
    """V^-H (diag(gw) + (V^H gV - V^H V Re diag(V^H gV)) / conj(w_j - w_i)) V^H, the quotient without its diagonal."""
    n = x.shape[-1]
    (gw, gv), (w, v) = unpack(g, eig_shapes(n, n)), unpack(out, eig_shapes(n, n))
    adjoint = conj(swap_last(v))
    inner = settled(matmul(adjoint, gv), of="linalg_eig")
    # What would make the vectors longer has no effect, for their length stays 1.
    inner = sub(inner, mul(matmul(adjoint, v), _row(real(_diagonal(inner)))))
    inner = add(diagonal_matrix(gw), _over_gaps(inner, conj(w)))
    return solve(adjoint, matmul(inner, adjoint))


eig = library(
    "linalg_eig",
    _infer("linalg.eig", lambda n: n + n * n),
    _checked("eig", _evaluate_eig),
    vjp=(_eig_vjp,),
    on_complex=True,
    traits=_CONJUGATE,
)


def _eigenvalues_vjp(g, out, x):
    """V^-H diag(g) V^H"""
    n = x.shape[-1]
    adjoint = conj(swap_last(unpack(eig(x), eig_shapes(n, n))[1]))
    return solve(adjoint, matmul(diagonal_matrix(g), adjoint))


eigvals = library(
    "linalg_eigvals",
    _infer("linalg.eigvals", lambda n: n),
    _checked("eigvals", _evaluate_eigenvalues),
    vjp=(_eigenvalues_vjp,),
    node_name="LinalgEigBackward0",
    on_complex=True,
    traits=_CONJUGATE,
)
