"""Functions on matrices that PyTorch has at its top level and as methods: older names of linalg's, and their kin."""

from . import linalg
from .casting import all_in_wide
from .compiler.dtypes import int32
from .compiler.ops import decompositions
from .compiler.ops import linear_algebra as algebra
from .compiler.ops.packed import results
from .compiler.ops.table import OpError
from .complex_numbers import conj
from .creation import eye
from .functions import matmul
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
    low = conj(L.mT) if upper else L
    half = algebra.solve_triangular(low, input, upper=False, unit=False)
    return algebra.solve_triangular(conj(low.mT), half, upper=True, unit=False)


def cholesky_inverse(L, upper=False):
    """The inverse of A from its Cholesky triangle."""
    algebra.require_matrices("cholesky_inverse", L, square=True, complex_too=True)
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
    """(U, S, V) with input = U diag(S) V^H."""
    u, s, vh = linalg.svd(input, not some)
    if not compute_uv:
        u, vh = u.detach() * 0, vh.detach() * 0
    return _Svd(u, s, conj(vh.mT))


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


_Geqrf = result_type("geqrf", "a", "tau")


def geqrf(input):
    """(a, tau): R above and the reflections below the diagonal, as LAPACK leaves them. Without a derivative."""
    packed = decompositions.reflections(input)
    return _Geqrf(*results(packed, decompositions.reflections_shapes(*input.shape[-2:]), "Geqrf"))


orgqr = linalg.householder_product


def ormqr(input, tau, other, left=True, transpose=False):
    """The product of Q (its transpose) with other, Q being the product of reflections, or of other with it."""
    if input.ndim < 2 or other.ndim < 2:
        raise OpError(f"ormqr: both matrices must have at least 2 dimensions, got {input.shape} and {other.shape}")
    rows = other.shape[-2 if left else -1]
    if tau.shape[-1] > input.shape[-1]:
        raise OpError(f"ormqr: tau.shape[-1] must be at most input.shape[-1], got {tau.shape} and {input.shape}")
    if rows != input.shape[-2]:
        raise OpError(
            f"ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2]: {other.shape}, {input.shape}"
        )
    q = linalg._reflected(input, tau, expand(eye(rows, dtype=input.dtype), (*input.shape[:-2], rows, rows)))
    q = conj(q.mT) if transpose else q
    return matmul(q, other) if left else matmul(other, q)


def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V) of the q largest singular values. They are exact here: the matrix is decomposed whole."""
    if not 0 <= q <= min(A.shape[-2:]):
        raise ValueError(f"svd_lowrank: q(={q}) must be non-negative integer and not greater than min(m, n)={A.shape}")
    u, s, v = svd(A if M is None else A - M)
    return u[..., :q], s[..., :q], v[..., :q]


def pca_lowrank(A, q=None, center=True, niter=2):
    """svd_lowrank of the matrix, its columns centred."""
    q = min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A - A.mean(-2, True) if center else A, q)


def lobpcg(
    A, k=None, B=None, X=None, n=None, iK=None, niter=None, tol=None, largest=None, method=None, tracker=None,
    ortho_iparams=None, ortho_fparams=None, ortho_bparams=None,
):  # fmt: skip
    """(eigenvalues (..., k), eigenvectors (..., m, k)) of A v = B v lambda for symmetric A (..., m, m): the k largest,
    falling, or the smallest, rising. `k` is 1, or the number of columns of X.

    They are exact here: the matrix is decomposed whole. A first guess, limits of iterations and what makes iterations
    quicker change nothing, and a `tracker`, which follows them, is refused. ValueError where m < 3 k, as in PyTorch.
    """
    if tracker is not None:
        raise NotImplementedError("lobpcg: tracker follows iterations, and there are none; leave it out")
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise OpError(f"lobpcg: A must be square, got shape {A.shape}")
    if not A.dtype.is_floating_point:
        raise OpError(f"lobpcg: expected A of a floating point type, got {A.dtype.name}; convert it with .double()")
    k = (1 if X is None else X.shape[-1]) if k is None else k
    if k < 1 or A.shape[-1] < 3 * k:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={A.shape[-1]}) is smaller than 3 x the "
            f"number of requested eigenpairs (={k}), of which there must be one at least"
        )
    A = (A + A.mT) / 2
    if B is not None:
        # B = L L^T: the same eigenvalues as those of L^-1 A L^-T, whose vectors are L^T v.
        factor = linalg.cholesky(B)
        half = linalg.solve_triangular(factor, A, upper=False)
        A = linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = linalg.eigh(A)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    values, vectors = values[..., :k], vectors[..., :k]
    return values, vectors if B is None else linalg.solve_triangular(factor.mT, vectors, upper=True)


# In mixed precision these are computed in float32.
all_in_wide(str.split("cholesky_solve cholesky_inverse triangular_solve lu_solve geqrf ormqr"), globals())

METHODS = str.split("""
    inverse pinverse cholesky cholesky_solve cholesky_inverse triangular_solve qr svd det logdet slogdet matrix_exp
    matrix_power lu_solve lu norm geqrf ormqr orgqr
""")
PUBLIC = [*METHODS, *str.split("lu_unpack matrix_rank svd_lowrank pca_lowrank lobpcg")]
