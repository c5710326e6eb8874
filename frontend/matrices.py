"""Functions on matrices that PyTorch has at its top level and as methods: older names of linalg's, and their kin."""

from . import linalg
from .compiler.dtypes import int32
from .compiler.ops import decompositions
from .compiler.ops import linear_algebra as algebra
from .compiler.ops.table import OpError
from .creation import eye
from .norms import old_norm
from .results import result_type
from .shaping import expand

det, slogdet, logdet, matrix_exp, matrix_power, matrix_rank = (
    getattr(linalg, name) for name in str.split("det slogdet logdet matrix_exp matrix_power matrix_rank")
)
norm = old_norm
_Svd, _Qr = result_type("svd", "U", "S", "V"), result_type("qr", "Q", "R")
_TriangularSolve = result_type("triangular_solve", "solution", "cloned_coefficient")
_LuUnpack = result_type("lu_unpack", "P", "L", "U")


def inverse(input):
    """The inverse; LinAlgError for a singular matrix."""
    return linalg.inv(input)


def pinverse(input, rcond=1e-15):
    """The pseudo-inverse."""
    return linalg.pinv(input, rcond)


def cholesky(input, upper=False):
    """The lower triangle L with A = L L^T, or the upper one."""
    return linalg.cholesky(input, upper=upper)


def cholesky_solve(input, L, upper=False):
    """X with A X = input, from the Cholesky triangle of A."""
    if input.ndim < 2 or L.ndim < 2:
        raise OpError(
            f"cholesky_solve: both arguments must have at least 2 dimensions, got {input.shape} and {L.shape}"
        )
    low = L.mT if upper else L
    half = algebra.solve_triangular(low, input, upper=False, unit=False)
    return algebra.solve_triangular(low.mT, half, upper=True, unit=False)


def cholesky_inverse(L, upper=False):
    """The inverse of A from its Cholesky triangle."""
    algebra.require_matrices("cholesky_inverse", L, square=True)
    return cholesky_solve(expand(eye(L.shape[-1], dtype=L.dtype), L.shape), L, upper)


def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """(X with A X = b, A) for a triangular A, or its transpose."""
    if b.ndim < 2 or A.ndim < 2:
        raise OpError(f"triangular_solve: both arguments need at least 2 dimensions, got {b.shape} and {A.shape}")
    coefficients, upper = (A.mT, not upper) if transpose else (A, upper)
    solution = linalg.solve_triangular(coefficients, b, upper=upper, unitriangular=unitriangular)
    return _TriangularSolve(solution, A.clone())


def qr(input, some=True):
    """(Q, R)."""
    return _Qr(*linalg.qr(input, "reduced" if some else "complete"))


def svd(input, some=True, compute_uv=True):
    """(U, S, V) with input = U diag(S) V^T."""
    u, s, vh = linalg.svd(input, not some)
    if not compute_uv:
        u, vh = u.detach() * 0, vh.detach() * 0
    return _Svd(u, s, vh.mT)


def lu_solve(b, LU_data, LU_pivots):
    """X with A X = b, from lu_factor(A)."""
    return linalg.lu_solve(LU_data, LU_pivots, b)


def lu(A, pivot=True, get_infos=False):
    """(LU, pivots), as linalg.lu_factor; with get_infos also an info per matrix, 0 where all went well."""
    infos = (A.new_zeros(A.shape[:-2], dtype=int32),) if get_infos else ()
    return (*linalg.lu_factor(A, pivot=pivot), *infos)


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """(P, L, U) of lu_factor's result."""
    nothing = LU_data.new_empty(0)
    p = linalg.permutation_matrix(LU_pivots, LU_data.shape[-2], LU_data.dtype) if unpack_pivots else nothing
    if not unpack_data:
        return _LuUnpack(p, nothing, nothing)
    return _LuUnpack(p, decompositions.lower_factor(LU_data), decompositions.upper_factor(LU_data))


METHODS = str.split("""
    inverse pinverse cholesky cholesky_solve cholesky_inverse triangular_solve qr svd det logdet slogdet matrix_exp
    matrix_power lu_solve lu norm
""")
PUBLIC = [*METHODS, *str.split("lu_unpack matrix_rank")]
