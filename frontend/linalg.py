"""weft.linalg: linear algebra on batches of matrices, in PyTorch's spelling. Derivatives are ops."""

import math
from functools import cache

import numpy as np

from . import info_numbers as infos
from .absent import names_in
from .casting import all_in_wide, lowered
from .caught import tried_if_caught
from .compiler.dtypes import int32, int64
from .compiler.ops import decompositions as factors
from .compiler.ops import eigenvalues as general
from .compiler.ops import linear_algebra as algebra
from .compiler.ops import symmetric
from .compiler.ops.arithmetic import maximum as _maximum
from .compiler.ops.linear_algebra import LinAlgError
from .compiler.ops.packed import result, results
from .compiler.ops.table import OpError
from .compiler.ops.transcendental import log
from .compiler.shapes import broadcast_shapes, normalize_axis
from .complex_numbers import conj
from .composed import diagonal as _diagonal
from .creation import as_tensor, eye, full, zeros
from .functions import clamp_min, to_dtype, where
from .functions import matmul as matmul
from .kinds import put_doors
from .limits import finfo
from .norms import matrix_norm as matrix_norm
from .norms import norm as norm
from .norms import vector_norm as vector_norm
from .out import take_out
from .products import cross as _cross
from .products import multi_dot as multi_dot
from .public import of_module
from .reducing import sum
from .reference import document
from .results import result_type
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, shape_of, tensor_of
from .shaping import cat, expand, movedim, reshape, stack, unsqueeze

__getattr__, __dir__ = of_module(__name__)

_Qr, _Eigh = result_type("linalg_qr", "Q", "R"), result_type("linalg_eigh", "eigenvalues", "eigenvectors")
_Eig = result_type("linalg_eig", "eigenvalues", "eigenvectors")
_Svd = result_type("linalg_svd", "U", "S", "Vh")
_Slogdet = result_type("linalg_slogdet", "sign", "logabsdet")
_Lu, _LuFactor = result_type("linalg_lu", "P", "L", "U"), result_type("linalg_lu_factor", "LU", "pivots")
_LdlFactor = result_type("linalg_ldl_factor", "LD", "pivots")
_LdlFactorEx = result_type("linalg_ldl_factor_ex", "LD", "pivots", "info")
_Lstsq = result_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


# --- determinants and inverses ----------------------------------------------------------------------------------------
def det(A):
    """The determinant."""
    return algebra.det(A)


def slogdet(A):
    """(sign, logabsdet) of the determinant."""
    packed, kind = algebra.slogdet(A), A.dtype
    return _Slogdet(*results(packed, algebra.SLOGDET_SHAPES, "LinalgSlogdet", (kind, kind.to_real())))


def logdet(input):
    """The logarithm of the determinant; NaN where that is negative."""
    sign, size = slogdet(input)
    return log(sign) + size if input.dtype.is_complex else where(sign < 0, math.nan, size)


def inv(A):
    """The inverse; LinAlgError for a singular matrix."""
    return tried_if_caught(algebra.inv, A)


def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse: singular values not above max(atol, rtol * the largest) count as 0."""
    if hermitian and A.shape[-1] != A.shape[-2]:
        raise OpError(f"linalg.pinv: A must be batches of square matrices, got shape {A.shape}")
    limits = _limits("pinv", A, atol, rcond if rtol is None else rtol)
    return _symmetric_pinv(A, **limits) if hermitian else algebra.pinv(A, **limits)


def _symmetric_pinv(A, atol, rtol):
    values, vectors = eigh(A)
    kept = values.abs() > clamp_min(values.abs().amax(-1, True) * rtol, atol) if values.numel() else values != 0
    inverse = where(kept, 1.0 / where(kept, values, 1.0), 0.0)
    return matmul(vectors * unsqueeze(inverse, -2), conj(vectors.mT))


def _limits(name, A, atol, rtol):
    algebra.require_matrices(f"linalg.{name}", A, complex_too=True)
    if isinstance(atol, Tensor) or isinstance(rtol, Tensor):
        atol, rtol = (x.array[..., None] if isinstance(x, Tensor) else x for x in (atol, rtol))
        if atol is not None and np.size(atol) == 1 or rtol is not None and np.size(rtol) == 1:
            atol, rtol = (None if x is None else float(np.reshape(x, ())) for x in (atol, rtol))
        else:
            raise NotImplementedError(f"linalg.{name}: atol and rtol are numbers here, got a tensor of several")
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * _eps(A.dtype)
    return {"atol": float(atol or 0.0), "rtol": float(rtol)}


@cache
def _eps(dtype):
    return finfo(dtype).eps


def cond(A, p=None):
    """The condition number: |A| |A^-1| in the norm p (2 if None)."""
    algebra.require_matrices("linalg.cond", A, complex_too=True)
    if p in (None, 2, -2):
        values = svdvals(A)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    if A.shape[-1] != A.shape[-2]:
        raise OpError(f"linalg.cond: with p={p!r} A must be batches of square matrices, got shape {A.shape}")
    try:
        return matrix_norm(A, p) * matrix_norm(inv(A), p)
    except LinAlgError:
        return full(A.shape[:-2], math.inf, dtype=A.dtype)


def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """How many singular values are above max(atol, rtol * the largest)."""
    algebra.require_matrices("linalg.matrix_rank", A, complex_too=True)
    values = eigvalsh(A).abs() if hermitian else svdvals(A)
    if not values.shape[-1]:
        return zeros(values.shape[:-1], dtype=int64)
    atol = tol if atol is None else atol
    absolute = 0.0 if atol is None else atol
    if rtol is None:
        default = max(A.shape[-2:]) * _eps(A.dtype)
        rtol = where(absolute > 0, 0.0, default) if isinstance(absolute, Tensor) else 0.0 if absolute > 0 else default
    limit = _maximum(values.amax(-1) * rtol, absolute)
    return sum(values > unsqueeze(limit, -1), -1)


# --- solvers ----------------------------------------------------------------------------------------------------------
def solve(A, B, *, left=True):
    """X with A X = B (X A = B if not left). B may be a vector, or a batch of as many vectors as A has matrices."""
    algebra.require_matrices("linalg.solve", A, square=True, complex_too=True)
    ours, theirs = shape_of(A), shape_of(B)
    as_vector = len(theirs) == 1 or ours[:-1] == theirs
    if as_vector:
        if not left:
            raise OpError("linalg.solve: left=False is not supported for vectors")
        return tried_if_caught(algebra.solve, A, unsqueeze(B, -1))[..., 0]
    if left:
        return tried_if_caught(algebra.solve, A, B)
    return tried_if_caught(algebra.solve, A.mT, B.mT).mT


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """X with A X = B for a triangular A, of which only that triangle is read."""
    options = {"unit": bool(unitriangular)}
    if B.ndim < 2:
        raise OpError(f"linalg.solve_triangular: The input tensor B must have at least 2 dimensions, got {B.shape}")
    if left:
        return algebra.solve_triangular(A, B, upper=bool(upper), **options)
    return algebra.solve_triangular(A.mT, B.mT, upper=not upper, **options).mT


def cholesky(A, *, upper=False):
    """The lower triangle L with A = L L^H (the upper one, its adjoint, if `upper`)."""
    result = tried_if_caught(algebra.cholesky, conj(A.mT) if upper else A)
    return conj(result.mT) if upper else result


def lstsq(A, B, rcond=None, *, driver=None):
    """(solution, residuals, rank, singular_values) of the least squares problem A X = B."""
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver!r}"
        )
    algebra.require_matrices("linalg.lstsq", A, complex_too=True)
    vector = B.ndim == A.ndim - 1
    target = unsqueeze(B, -1) if vector else B
    if target.ndim < 2 or target.shape[-2] != A.shape[-2]:
        raise OpError(f"linalg.lstsq: input.size(-2) should match other.size(-2): {A.shape} and {B.shape}")
    rtol, driver = _limits("lstsq", A, None, rcond)["rtol"], driver or "gelsy"
    (m, n), with_values = A.shape[-2:], driver in ("gelsd", "gelss")
    packed = algebra.least_squares(A, rtol=rtol, with_values=with_values)
    shapes = algebra.least_squares_shapes(m, n, with_values)
    inverse, rank, values = results(packed, shapes, "LinalgLstsq", (packed.dtype, int64, packed.dtype.to_real()))
    solution = matmul(inverse, target)
    residuals = _nothing(A.dtype.to_real().numpy)
    if driver != "gelsy" and m > n and (driver == "gels" or bool((rank == n).all())):
        residuals = sum((matmul(A, solution) - target).abs() ** 2, -2)
    rank = _nothing(np.int64) if driver == "gels" else rank
    values = values.detach() if with_values else _nothing(A.dtype.to_real().numpy)
    return _Lstsq(solution[..., 0] if vector else solution, residuals, rank, values)


def _nothing(dtype):
    return tensor_of(np.empty(0, dtype))


# --- decompositions ---------------------------------------------------------------------------------------------------
def qr(A, mode="reduced"):
    """(Q, R) with A = Q R; mode "reduced", "complete" or "r" (Q is empty then)."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced', 'r', or 'complete'")
    spelled = "reduced" if mode == "r" else mode
    packed = factors.qr(A, mode=spelled)
    q, r = factors.qr_shapes(*A.shape[-2:], spelled)
    if mode == "r":
        return _Qr(_nothing(A.dtype.numpy), result(packed, start=math.prod(q), shape=r, dtype=None, of="LinalgQr"))
    return _Qr(*results(packed, (q, r), "LinalgQr"))


def _is_upper(name, UPLO):
    if UPLO not in ("L", "U", "l", "u"):
        raise RuntimeError(f"{name}: Expected UPLO argument to be 'L' or 'U', but got {UPLO!r}")
    return UPLO in "Uu"


def eigh(A, UPLO="L"):
    """(eigenvalues, eigenvectors) of symmetric or Hermitian matrices, of which one triangle is read.

    Values rise, vectors are columns. What depends on the phase of complex vectors, which is free, has no derivative:
    RuntimeError in backward.
    """
    upper = _is_upper("linalg.eigh", UPLO)
    packed = factors.eigh(A, upper=upper)
    shapes = factors.eigh_shapes(*A.shape[-2:], upper)
    return _Eigh(*results(packed, shapes, "LinalgEigh", (packed.dtype.to_real(), packed.dtype)))


def eigvalsh(A, UPLO="L"):
    """The eigenvalues of symmetric matrices, rising."""
    if A.requires_grad and state.grad_enabled:
        # Their derivative needs the vectors.
        return eigh(A, UPLO).eigenvalues
    return factors.eigenvalues(A, upper=_is_upper("linalg.eigvalsh", UPLO))


def eig(A):
    """(eigenvalues, eigenvectors) of square matrices: complex, in no order, the vectors columns of length 1.

    What depends on the phase of the vectors, which is free, has no derivative: RuntimeError in backward.
    """
    n = A.shape[-1] if A.ndim else 0
    return _Eig(*results(general.eig(A), general.eig_shapes(n, n), "LinalgEig"))


def eigvals(A):
    """The eigenvalues of square matrices, complex, in no order."""
    return general.eigvals(A)


def svd(A, full_matrices=True, *, driver=None):
    """(U, S, Vh) with A = U diag(S) Vh, the singular values falling and real.

    What depends on the phases of complex vectors, which are free, has no derivative: RuntimeError in backward.
    """
    algebra.require_matrices("linalg.svd", A, complex_too=True)
    full = bool(full_matrices) and A.shape[-1] != A.shape[-2]
    packed, kind = factors.svd(A, full=full), A.dtype
    return _Svd(*results(packed, factors.svd_shapes(*A.shape[-2:], full), "LinalgSvd", (kind, kind.to_real(), kind)))


def svdvals(A, *, driver=None):
    """The singular values, falling."""
    if A.requires_grad and state.grad_enabled:
        return svd(A, False).S
    return factors.singular_values(A)


def ldl_factor(A, *, hermitian=False):
    """(LD, pivots) of A = L D L^T for symmetric matrices, of which the lower triangle is read; without a derivative.

    D has blocks of one or two rows; both are laid out as LAPACK's sytrf lays them out.
    """
    factors, pivots, info = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return _LdlFactor(factors, pivots)


def ldl_factor_ex(A, *, hermitian=False, check_errors=False):
    """ldl_factor, and an info per matrix: 0, or where D has a zero on its diagonal, counted from 1."""
    packed = symmetric.factor(A)
    factors, pivots, info = results(packed, symmetric.shapes(*A.shape[-2:]), "LinalgLdlFactor", (A.dtype, int32, int32))
    if check_errors and (info != 0).any():
        raise LinAlgError("linalg.ldl_factor: a matrix is singular: its factor D has a zero on its diagonal")
    return _LdlFactorEx(factors, pivots, info)


def ldl_solve(LD, pivots, B, *, hermitian=False):
    """X with A X = B, from ldl_factor(A)."""
    return symmetric.solve(LD, pivots, B)


def _lu(A, pivot):
    """(LU, pivots, order of the rows)"""
    packed, shapes = factors.lu(A, pivot=bool(pivot)), factors.lu_shapes(*A.shape[-2:], pivot)
    return results(packed, shapes, "LinalgLuFactorEx", (packed.dtype, int32, int64))


def lu_factor(A, *, pivot=True):
    """(LU, pivots): both triangles in one matrix, and the row exchanges, counted from 1."""
    return _LuFactor(*_lu(A, pivot)[:2])


def lu(A, *, pivot=True):
    """(P, L, U) with A = P L U; without pivoting P is empty."""
    compact, _, order = _lu(A, pivot)
    low, up = factors.lower_factor(compact), factors.upper_factor(compact)
    return _Lu(_permutation(order, A.dtype) if pivot else _nothing(A.dtype.numpy), low, up)


def _permutation(order, dtype):
    """P, whose product with rows in that order puts them back."""
    return to_dtype(unsqueeze(order, -2) == as_tensor(np.arange(order.shape[-1])[:, None]), dtype)


def permutation_matrix(pivots, rows, dtype):
    """P of the row exchanges."""
    return _permutation(factors.lu_order(pivots, rows=rows, inverse=False), dtype)


def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """X with A X = B (X A = B if not left, A^T if adjoint), from lu_factor(A)."""
    if pivots.shape != LU.shape[:-1]:
        raise OpError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix, got "
            f"{pivots.shape} and {LU.shape}"
        )
    if not left:
        return conj(lu_solve(LU, pivots, conj(B.mT), adjoint=not adjoint).mT)
    rows = LU.shape[-1]
    batch = broadcast_shapes("linalg.lu_solve", [LU.shape[:-2], B.shape[:-2]])
    B = expand(B, (*batch, *B.shape[-2:]))

    def exchanged(x, inverse):
        order = factors.lu_order(pivots, rows=rows, inverse=inverse)
        return factors.exchange_rows(x, expand(order, (*batch, rows)))

    if adjoint:
        turned = conj(LU.mT)
        y = algebra.solve_triangular(turned, B, upper=False, unit=False)
        return exchanged(algebra.solve_triangular(turned, y, upper=True, unit=True), True)
    y = algebra.solve_triangular(LU, exchanged(B, False), upper=False, unit=True)
    return algebra.solve_triangular(LU, y, upper=True, unit=False)


def _reflected(A, tau, other):
    """The product of the reflections I - tau v v^T that the columns of A hold, times other: v^T conjugated."""
    m = A.shape[-2]
    for k in reversed(range(tau.shape[-1])):
        below = A[..., k + 1 :, k]
        batch = below.shape[:-1]
        v = cat([A.new_zeros((*batch, k)), A.new_ones((*batch, 1)), below], -1) if k < m else A[..., :, k] * 0
        column = unsqueeze(v, -1)
        other = other - unsqueeze(unsqueeze(tau[..., k], -1), -1) * matmul(column, matmul(conj(column.mT), other))
    return other


def householder_product(A, tau):
    """The first columns of the product of the reflections that A and tau hold, as geqrf gives them."""
    algebra.require_matrices("linalg.householder_product", A, complex_too=True)
    m, n = A.shape[-2:]
    if m < n or n < tau.shape[-1]:
        raise OpError(
            f"householder_product: A must have at least as many rows as columns and reflections: {A.shape}, {tau.shape}"
        )
    start = expand(eye(m, n, dtype=A.dtype), A.shape)
    return _reflected(A, tau, start)


# --- powers -----------------------------------------------------------------------------------------------------------
def matrix_power(A, n):
    """A multiplied with itself n times; of the inverse, if n is negative."""
    algebra.require_matrices("linalg.matrix_power", A, square=True, complex_too=True, integers_too=n >= 0)
    if n < 0:
        return matrix_power(inv(A), -n)
    if n == 0:
        return expand(eye(A.shape[-1], dtype=A.dtype), A.shape).clone()
    result = None
    while n:
        if n & 1:
            result = A if result is None else matmul(result, A)
        A, n = (matmul(A, A) if n > 1 else A), n >> 1
    return result.clone() if result is A else result


def matrix_exp(A):
    """The exponential: I + A + A A / 2 + ..."""
    return algebra.matrix_exp(A)


# --- vectors ----------------------------------------------------------------------------------------------------------
def cross(input, other, *, dim=-1):
    """The vector product along dim."""
    return _cross(input, other, dim)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """A view of the diagonals of the matrices that two dimensions span."""
    return _diagonal(A, offset, dim1, dim2)


def vecdot(x, y, *, dim=-1):
    """The dot product along dim, x conjugated."""
    x, y = lowered(x, y)
    return sum(conj(x) * y, dim)


def vander(x, N=None):
    """Powers 0 to N - 1 of every element, in a new last dimension."""
    x = reshape(x, 1) if x.ndim == 0 else x
    x = x if x.dtype.is_differentiable else to_dtype(x, int64)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, got {count}")
    powers = [x * 0 + 1]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return stack(powers, -1)


def tensorinv(A, ind=2):
    """The inverse of A as a map from its last dimensions to its first `ind`."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', got {ind}")
    first, last = A.shape[:ind], A.shape[ind:]
    if math.prod(first) != math.prod(last):
        raise OpError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]): {A.shape}"
        )
    return reshape(inv(reshape(A, math.prod(first), -1)), (*last, *first))


def tensorsolve(A, B, dims=None):
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        dims = [normalize_axis("linalg.tensorsolve", d, A.ndim) for d in dims]
        A = movedim(A, dims, list(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim :]
    if math.prod(shape) != B.numel():
        raise OpError(
            "tensorsolve: Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), got {A.shape} and {B.shape}"
        )
    return reshape(solve(reshape(A, B.numel(), -1), reshape(B, -1)), shape)


# In mixed precision these are computed in float32.
all_in_wide(
    str.split(
        "cond matrix_rank solve cholesky svdvals eigvals eigvalsh inv householder_product tensorinv tensorsolve qr svd "
        "eig eigh lstsq"
    ),
    globals(),
)


# --- with a number that says how it went ------------------------------------------------------------------------------
inv_ex = infos.with_info("inv_ex", ["inverse"], inv, infos.no_inverse)
cholesky_ex = infos.with_info("cholesky_ex", ["L"], cholesky, infos.part_of_cholesky)
solve_ex = infos.with_info("solve_ex", ["result"], solve, infos.no_solution)
lu_factor_ex = infos.zeros_on_the_diagonal(lu_factor, "lu_factor_ex")

take_out("linalg", globals())
put_doors("linalg", globals(), names_in("linalg") & globals().keys())
document("linalg", __name__)
