"""Linear algebra: batches of matrices in the last two dimensions.

Factorizations of real matrices of up to MOST_ROWS rows, and what is solved with them, are routines of our own
(small_matrices.py). Larger ones, complex ones and all other functions are computed by LAPACK, through NumPy, which no
program can call.

Derivatives are written with these ops and the matrix product, so they hold to any order; G is the cotangent. Sources:
Giles, "An extended collection of matrix derivative results" (2008); Golub and Pereyra (1973) for the pseudo-inverse;
Higham, "Functions of Matrices" (2008), 10.6 for the exponential. Entries with several results are in decompositions.py.
"""

import numpy as np

from .. import dtypes
from ..extent import identical
from ..shapes import broadcast_shapes
from . import samples
from .arithmetic import abs_, add, mul, neg, sign, sub
from .comparison import cast, eq
from .complex_numbers import conjugate, imag, real_part
from .contraction import matmul, swap_last
from .kinds import composite, library, like_first, require_floating
from .packed import pack, size, unpack
from .reduction import prod, sum_
from .samples import Sample
from .small_matrices import REASONS, LinAlgError, cofactor_rows, factor, is_small, pivots, solution, triangular_solution
from .source import arange, full_like
from .spelling import tril, triu
from .table import Meta, OpError
from .transcendental import log
from .view import cat, expand, reshape, slice_

_CONJUGATE = frozenset(["conjugate"])


# --- shapes and matrices ----------------------------------------------------------------------------------------------
def require_matrices(name, x, square=False, complex_too=False, integers_too=False):
    if not (complex_too and x.dtype.is_complex or integers_too and x.dtype.category == 1):
        require_floating(name, x)
    shape = x.shape
    if len(shape) < 2:
        raise OpError(f"{name}: The input tensor A must have at least 2 dimensions, got shape {tuple(x.shape)}")
    if square and shape[-1] != shape[-2]:
        raise OpError(f"{name}: A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]}")


def _square(name):
    def infer(operands, attributes):
        require_matrices(name, operands[0], square=True, complex_too=True)
        return like_first(operands, attributes)

    return infer


def _number_of(name, dtype=lambda dtype: dtype):
    def infer(operands, attributes):
        require_matrices(name, operands[0], square=True, complex_too=True)
        return Meta(operands[0].shape[:-2], dtype(operands[0].dtype))

    return infer


def columns(x, start, length):
    """Columns of matrices, as a view."""
    lead = [(0, 1, d) for d in x.shape[:-1]]
    return slice_(x, spec=(*lead, (start, 1, length)))


def rows(x, start, length):
    """Rows of matrices, as a view."""
    lead = [(0, 1, d) for d in x.shape[:-2]]
    return slice_(x, spec=(*lead, (start, 1, length), (0, 1, x.shape[-1])))


def scaled(number, matrix):
    """Every matrix times its number."""
    return mul(reshape(number, shape=(*number.shape, 1, 1)), matrix)


def diagonal_matrix(vector):
    """Matrices with the last dimension on their diagonal."""
    n = vector.shape[-1]
    return mul(identity(vector, n), reshape(vector, shape=(*vector.shape[:-1], n, 1)))


def identity(like, n):
    """(n, n), of like's type."""
    positions = like.apply_op(arange, (0, 1), {"shape": (n,), "dtype": dtypes.int64})
    return cast(eq(positions, reshape(positions, shape=(n, 1))), dtype=like.dtype)


def trace_of_product(x, y):
    """tr(x^T y), the sum of the products of the elements."""
    product = mul(x, y)
    return sum_(product, axes=(len(product.shape) - 2, len(product.shape) - 1), keepdim=False)


def _checked(name, function):
    """The NumPy function, whose error says what is wrong with which op."""

    def evaluate(*arrays, **attributes):
        with np.errstate(all="ignore"):
            return function(*arrays, **attributes)

    return _explained(name, evaluate)


def _explained(name, function):
    def evaluate(*arrays, **attributes):
        try:
            return function(*arrays, **attributes)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.{name}: {REASONS.get(str(error), error)}") from None

    return evaluate


def of_any_size(name, infer, decompose, evaluate, on_complex=True, is_own=is_small, by="lapack", **facts):
    """The function of matrices: by `decompose` into routines if `is_own`, else by NumPy's `evaluate`. The entry of the
    first is `name`, that of the other one has another end."""
    shared = {**facts, "on_complex": on_complex or None}
    other = library(f"{name.removeprefix('linalg_')}_by_{by}", infer, evaluate, **shared)
    own = composite(name, lambda operands, attributes, default_float: infer(operands, attributes), decompose, **facts)

    def function(*operands, **attributes):
        return (own if is_own(*operands) else other)(*operands, **attributes)

    return function


def _matrices(seed, *shapes, low=-1.0, high=1.0):
    """Matrices near the identity, so that they are well conditioned."""
    made = []
    for k, shape in enumerate(shapes):
        values = samples.numbers(seed + k, shape, low, high)
        made.append(values + 3 * np.eye(*shape[-2:]))
    return tuple(made)


def _samples(*shapes, **attributes):
    return lambda: [Sample(_matrices(k, s), attributes) for k, s in enumerate(shapes)]


# --- inverse and determinant ------------------------------------------------------------------------------------------
inv = of_any_size(
    "linalg_inv",
    _square("linalg.inv"),
    lambda x: solution(x, expand(identity(x, x.shape[-1]), shape=x.shape), of="inv"),
    _checked("inv", np.linalg.inv),
    vjp=(lambda g, out, x: neg(matmul(matmul(swap_last(out), g), swap_last(out))),),
    node_name="LinalgInvExBackward0",
    samples=_samples((3, 3), (2, 2, 2), (0, 0)),
    oracle="linalg.inv",
)


def _evaluate_cofactors(x):
    """det(x) inv(x)^T from the singular values, so that it is right for singular matrices too."""
    u, s, v = np.linalg.svd(x)
    n = s.shape[-1]
    others = np.where(np.eye(n, dtype=bool), x.dtype.type(1), s[..., None, :]).prod(-1)
    turned = np.linalg.det(u) * np.linalg.det(v)
    return turned[..., None, None] * ((u.conj() * others[..., None, :]) @ v.conj()) if x.size else x


def _cofactors_vjp(g, out, x):
    """C = det(x) x^-T: tr(G^T C) x^-T - x^-T G^T C, for invertible x."""
    inverse = swap_last(inv(x))
    return sub(scaled(trace_of_product(g, out), inverse), matmul(matmul(inverse, swap_last(g)), out))


cofactors = of_any_size(
    "cofactors",
    _square("linalg.det"),
    cofactor_rows,
    _checked("det", _evaluate_cofactors),
    vjp=(_cofactors_vjp,),
    samples=_samples((3, 3), (2, 2, 2)),
    oracle=lambda torch, x: torch.linalg.det(x)[..., None, None] * torch.linalg.inv(x).mT,
)


def _product_of_last(x):
    return prod(x, axes=(len(x.shape) - 1,), keepdim=False)


def _sum_of_last(x):
    return sum_(x, axes=(len(x.shape) - 1,), keepdim=False)


det = of_any_size(
    "linalg_det",
    _number_of("linalg.det"),
    lambda x: _product_of_last(pivots(x)),
    _checked("det", lambda x: np.asarray(np.linalg.det(x), x.dtype)),
    vjp=(lambda g, out, x: scaled(g, cofactors(x)),),
    samples=_samples((3, 3), (2, 2, 2), (0, 0)),
    oracle="linalg.det",
)


def _slogdet_infer(operands, attributes):
    require_matrices("linalg.slogdet", operands[0], square=True, complex_too=True)
    return Meta((*operands[0].shape[:-2], 2), operands[0].dtype)


def _slogdet_rows(x):
    found, n = pivots(x), x.shape[-1]
    sizes = log(abs_(columns(found, 0, n)))
    one = (*x.shape[:-2], 1)
    both = (reshape(y, shape=one) for y in (_product_of_last(sign(found)), _sum_of_last(sizes)))
    return cat(*both, axis=len(x.shape) - 2)


def _slogdet_vjp(g, out, x):
    """log |det x| has the gradient x^-H. The sign of real matrices does not change; exp(i t) with t = Im log det x
    turns with t."""
    of_sign, of_log = unpack(g, SLOGDET_SHAPES)
    factor = real_part(of_log)
    if x.dtype.is_complex:
        # Not of `out`: a second derivative of the logarithm alone would go through the node of both, and free it.
        found, _ = unpack(slogdet(x), SLOGDET_SHAPES)
        factor = add(factor, mul(imag(mul(of_sign, conjugate(found))), 1j))
    return scaled(factor, adjoint(inv(x)))


# The sign and the logarithm of the absolute value of the determinant.
SLOGDET_SHAPES = ((), ())
slogdet = of_any_size(
    "linalg_slogdet",
    _slogdet_infer,
    _slogdet_rows,
    _checked("slogdet", lambda x: pack(*np.linalg.slogdet(x), n_batch=x.ndim - 2, dtype=x.dtype)),
    vjp=(_slogdet_vjp,),
    samples=_samples((3, 3), (2, 2, 2)),
    oracle=lambda torch, x: torch.stack([y.to(x.dtype) for y in torch.linalg.slogdet(x)], -1),
    traits=_CONJUGATE,
)


# --- solvers ----------------------------------------------------------------------------------------------------------
def _solve_infer(name):
    def infer(operands, attributes):
        a, b = operands
        require_matrices(name, a, square=True, complex_too=True)
        if len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
            raise OpError(f"{name}: Incompatible shapes of A and B for the equation AX = B: {a.shape} and {b.shape}")
        if a.dtype is not b.dtype:
            raise OpError(f"{name}: Expected A and B to have the same dtype, got {a.dtype.name} and {b.dtype.name}")
        batch = broadcast_shapes(name, [a.shape[:-2], b.shape[:-2]])
        return Meta((*batch, *b.shape[-2:]), b.dtype)

    return infer


def _of_one_batch(a, b):
    """Both for all matrices of the result."""
    batch = broadcast_shapes("linalg.solve", [a.shape[:-2], b.shape[:-2]])
    return [expand(x, shape=(*batch, *x.shape[-2:])) if x.shape[:-2] != batch else x for x in (a, b)]


def _solution_pairs(**attributes):
    return [
        Sample((_matrices(k, a)[0], samples.numbers(k + 9, b)), attributes)
        for k, (a, b) in enumerate((((3, 3), (3, 2)), ((2, 2, 2), (2, 3)), ((2, 2), (3, 2, 1))))
    ]


def _evaluate_solve(a, b):
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return np.linalg.solve(a, np.broadcast_to(b, (*batch, *b.shape[-2:])))


solve = of_any_size(
    "linalg_solve",
    _solve_infer("linalg.solve"),
    lambda a, b: solution(*_of_one_batch(a, b), of="solve"),
    _checked("solve", _evaluate_solve),
    vjp=(
        lambda g, out, a, b: neg(matmul(solve(swap_last(a), g), swap_last(out))),
        lambda g, out, a, b: solve(swap_last(a), g),
    ),
    node_name="LinalgSolveExBackward0",
    samples=_solution_pairs,
    oracle="linalg.solve",
)


def _evaluate_triangular(a, b, upper, unit):
    """Substitution, row by row."""
    n, batch = a.shape[-1], np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    # In rows, whatever b is: the order of additions is the memory's.
    a, x = np.ascontiguousarray(a), np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])), order="C")
    for k in reversed(range(n)) if upper else range(n):
        known = slice(k + 1, n) if upper else slice(0, k)
        x[..., k, :] -= (a[..., k, None, known] @ x[..., known, :])[..., 0, :]
        if not unit:
            x[..., k, :] /= a[..., k, k, None]
    return x


def _triangle(x, upper, unit):
    """The part of a cotangent that the solver has read."""
    return triu(x, diagonal=int(unit)) if upper else tril(x, diagonal=-int(unit))


def _transposed_solve(a, g, upper, unit):
    return solve_triangular(swap_last(a), g, upper=not upper, unit=unit)


solve_triangular = of_any_size(
    "solve_triangular",
    _solve_infer("linalg.solve_triangular"),
    lambda a, b, upper, unit: triangular_solution(*_of_one_batch(a, b), upper=upper, unit=unit),
    _checked("solve_triangular", _evaluate_triangular),
    vjp=(
        lambda g, out, a, b, upper, unit: _triangle(
            neg(matmul(_transposed_solve(a, g, upper, unit), swap_last(out))), upper, unit
        ),
        lambda g, out, a, b, upper, unit: _transposed_solve(a, g, upper, unit),
    ),
    node_name="LinalgSolveTriangularBackward0",
    samples=lambda: [s for u in (False, True) for t in (False, True) for s in _solution_pairs(upper=u, unit=t)],
    oracle=lambda torch, a, b, upper, unit: torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit),
)


# --- Cholesky ---------------------------------------------------------------------------------------------------------
def _halved(x):
    """The lower triangle with half of the diagonal."""
    return sub(tril(x, diagonal=0), mul(diagonal_part(x), 0.5))


def diagonal_part(x):
    """The matrix without what is off its diagonal."""
    return mul(x, identity(x, x.shape[-1]))


def adjoint(x):
    """The transposed matrices, of complex numbers with the conjugates."""
    return conjugate(swap_last(x))


def _cholesky_vjp(g, out, x):
    """L^-H P L^-1 with P = half(L^H G), made symmetric."""
    inner, conjugated = _halved(matmul(adjoint(out), tril(g, diagonal=0))), conjugate(out)
    left = _transposed_solve(conjugated, inner, False, False)
    whole = adjoint(_transposed_solve(conjugated, adjoint(left), False, False))
    return mul(add(whole, adjoint(whole)), 0.5)


def _positive_definite(seed, shape):
    x = _matrices(seed, shape)[0]
    return x @ x.swapaxes(-1, -2)


cholesky = of_any_size(
    "linalg_cholesky",
    _square("linalg.cholesky"),
    factor,
    _checked("cholesky", np.linalg.cholesky),
    vjp=(_cholesky_vjp,),
    traits=_CONJUGATE,
    node_name="LinalgCholeskyExBackward0",
    samples=lambda: [Sample((_positive_definite(k, s),)) for k, s in enumerate(((3, 3), (2, 2, 2)))],
    # Of the symmetric part, which is all that a derivative by elements can mean.
    oracle=lambda torch, x: torch.linalg.cholesky((x + x.mT) / 2),
)


# --- pseudo-inverse and exponential -----------------------------------------------------------------------------------
def _pinv_infer(operands, attributes):
    require_matrices("linalg.pinv", operands[0], complex_too=True)
    shape = operands[0].shape
    return Meta((*shape[:-2], shape[-1], shape[-2]), operands[0].dtype)


def _inverted(x, atol, rtol):
    """(pseudo-inverse, singular values), of which those not above max(atol, rtol * the largest) count as 0."""
    u, s, v = np.linalg.svd(x, full_matrices=False)
    limit = np.maximum(atol, rtol * s.max(-1, initial=0.0, keepdims=True))
    inverse = np.where(s > limit, 1 / np.where(s > limit, s, 1), 0).astype(x.dtype)
    return (v.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ u.conj().swapaxes(-1, -2), s


def _pinv_vjp(g, out, x, atol, rtol):
    """Golub and Pereyra, 4.12: -P^H G P^H + (G - A P G)^H ... written for the cotangent."""
    p, pt, gt = out, adjoint(out), adjoint(g)
    main = neg(matmul(matmul(pt, g), pt))
    outside = sub(gt, matmul(x, matmul(p, gt)))
    inside = sub(gt, matmul(matmul(gt, p), x))
    return add(add(main, matmul(outside, matmul(p, pt))), matmul(matmul(pt, p), inside))


pinv = library(
    "linalg_pinv",
    _pinv_infer,
    _checked("pinv", lambda x, atol, rtol: _inverted(x, atol, rtol)[0]),
    vjp=(_pinv_vjp,),
    on_complex=True,
    traits=_CONJUGATE,
    samples=_samples((3, 2), (2, 4), (2, 3, 3), atol=0.0, rtol=1e-15),
    oracle=lambda torch, x, atol, rtol: torch.linalg.pinv(x, atol=atol, rtol=rtol),
)


def least_squares_shapes(m, n, with_values):
    """Of the pseudo-inverse, the rank, and the singular values if they are asked for, of an m by n matrix."""
    return (n, m), (), (min(m, n) if with_values else 0,)


def _least_squares_infer(operands, attributes):
    shape, dtype = _pinv_infer(operands, attributes).shape, operands[0].dtype
    shapes = least_squares_shapes(shape[-1], shape[-2], attributes["with_values"])
    return Meta((*shape[:-2], size(shapes)), dtype)


def _inverted_by_qr(x, rtol):
    """The pseudo-inverse of matrices that are of full rank beyond doubt: R^-1 Q^H, in a fraction of the time that
    singular values take; None for others. |R| |R^-1| in Frobenius' norm is the largest over the smallest at least."""
    if x.shape[-2] < x.shape[-1]:
        found = _inverted_by_qr(x.conj().swapaxes(-1, -2), rtol)
        return None if found is None else found.conj().swapaxes(-1, -2)
    q, r = np.linalg.qr(x)
    if not (abs(r.diagonal(0, -2, -1)) > 0).all():
        return None
    inverse = np.linalg.inv(r)
    condition = np.sqrt((abs(r) ** 2).sum((-2, -1)) * (abs(inverse) ** 2).sum((-2, -1)))
    return inverse @ q.conj().swapaxes(-1, -2) if (condition * max(rtol, _DOUBTFUL) < 1).all() else None


# With a larger quotient of singular values than its inverse the rank is counted, whatever the limit; and where they are
# few, because that takes no longer.
_DOUBTFUL, _FEW = 1e-12, 8


def _evaluate_least_squares(x, rtol, with_values):
    wide, k = x.astype(np.result_type(x.dtype, np.float64), copy=False), min(x.shape[-2:])
    inverse = None if with_values or k <= _FEW else _inverted_by_qr(wide, rtol)
    rank, values = np.full(x.shape[:-2], k), np.empty((*x.shape[:-2], 0))
    if inverse is None:
        inverse, values = _inverted(x, 0.0, rtol)
        rank = (values > rtol * values.max(-1, initial=0.0, keepdims=True)).sum(-1)
        values = values if with_values else values[..., :0]
    return pack(inverse, rank, values, n_batch=x.ndim - 2, dtype=x.dtype)


def _least_squares_vjp(g, out, x, rtol, with_values):
    """That of the values is left out: nobody gets it."""
    shapes = least_squares_shapes(*x.shape[-2:], with_values)
    return _pinv_vjp(unpack(g, shapes)[0], unpack(out, shapes)[0], x, 0.0, rtol)


least_squares = library(
    "linalg_lstsq",
    _least_squares_infer,
    _checked("lstsq", _evaluate_least_squares),
    vjp=(_least_squares_vjp,),
    on_complex=True,
    traits=_CONJUGATE,
)


def _evaluate_exponential(x):
    """Scaling, Taylor's series and squaring."""
    wide = x.astype(np.result_type(x.dtype, np.float64))
    size = np.abs(wide).sum(-1).max(-1, initial=0.0)
    squarings = np.maximum(0, np.ceil(np.log2(np.maximum(size, 1e-300)))).astype(int) + 2
    term = total = np.broadcast_to(np.eye(x.shape[-1]), x.shape).copy()
    step = wide / (2.0**squarings)[..., None, None]
    for k in range(1, 15):
        term = term @ step / k
        total = total + term
    for k in range(int(squarings.max(initial=0))):
        total = np.where((k < squarings)[..., None, None], total @ total, total)
    return total.astype(x.dtype)


def _exponential_vjp(g, out, x):
    """The upper right block of exp([[x^T, G], [0, x^T]])."""
    turned, n = swap_last(x), x.shape[-1]
    g = g if identical(g.shape, x.shape) else expand(g, shape=x.shape)
    last = len(x.shape) - 1
    top = cat(turned, g, axis=last)
    bottom = cat(full_like(turned, 0), turned, axis=last)
    return columns(rows(matrix_exp(cat(top, bottom, axis=last - 1)), 0, n), n, n)


matrix_exp = library(
    "matrix_exp",
    _square("linalg.matrix_exp"),
    _evaluate_exponential,
    on_complex=True,
    vjp=(_exponential_vjp,),
    node_name="LinalgMatrixExpBackward0",
    samples=_samples((3, 3), (2, 2, 2)),
    oracle="linalg.matrix_exp",
)
