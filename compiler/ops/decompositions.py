"""Decompositions of matrices: QR, LU, eigenvalues and singular values.

The factors are one packed value (packed.py). The zeros that are the cotangents of factors which nothing depends on stay
zeros where vectors have no derivative (between equal values), so that values alone always have one.

Of complex matrices all factors are packed as complex numbers, real ones (values) without an imaginary part. Singular
and eigenvectors have a phase that is free: a cotangent that asks for it is refused in backward, as in PyTorch. The
derivatives are those of the sources, with the adjoint for the transpose; Wan and Zhang, "Automatic differentiation for
complex valued SVD" (1909.02659) have the term that only complex singular vectors have.
"""

from math import prod

import numpy as np

from .. import dtypes
from . import lapack, samples
from .arithmetic import add, div, mul, sub
from .comparison import cast, eq, logical_or, where
from .complex_numbers import real_part
from .contraction import matmul, swap_last
from .indexing import gather
from .kinds import NotImplementedRule, library, like_first, no_derivative
from .linear_algebra import (
    _checked,
    _explained,
    _matrices,
    adjoint,
    columns,
    diagonal_matrix,
    diagonal_part,
    identity,
    of_any_size,
    require_matrices,
    rows,
    solve_triangular,
)
from .ordering import argsort
from .packed import is_exact, pack, size, unpack
from .samples import Sample
from .small_matrices import lu_rows
from .spelling import tril, triu
from .table import Meta
from .view import cat, expand, reshape

_CONJUGATE = frozenset(["conjugate"])


def _packed(name, shapes, square=False):
    """The shape rule: `shapes` gives those of the factors of an m by n matrix."""

    def infer(operands, attributes):
        require_matrices(name, operands[0], square, complex_too=True)
        *batch, m, n = operands[0].shape
        return Meta((*batch, size(shapes(m, n, **attributes))), operands[0].dtype)

    return infer


def _evaluate_settled(inner, of):
    turned = inner.imag.diagonal(0, -2, -1)
    if (abs(turned) > 1e-2).any():
        raise RuntimeError(
            f"{of}_backward: the vectors of complex matrices are specified up to multiplication by e^{{i phi}}. The "
            "specified loss function depends on this quantity, so it is ill-defined; make it depend on what has no "
            "phase, such as abs() of the vectors, or products of a vector with its own conjugate"
        )
    return inner


# The products of vectors with their cotangents; an error if their diagonal asks for a derivative by the phase.
settled = library(
    "settled_phase", like_first, _evaluate_settled, vjp=(lambda g, out, x, of: g,), on_complex=True, traits=_CONJUGATE
)


# --- QR ---------------------------------------------------------------------------------------------------------------
def qr_shapes(m, n, mode):
    k = m if mode == "complete" else min(m, n)
    return (m, k), (k, n)


def _solve_right(g, r):
    """G R^-T for an upper triangle R."""
    return swap_last(solve_triangular(r, swap_last(g), upper=True, unit=False))


def _qr_square(gq, gr, q, r):
    """m >= n: (gQ + Q copy(R gR^H - gQ^H Q)) R^-H, where copy mirrors the lower triangle (Walter and Lehmann 2012)."""
    inner = sub(matmul(r, adjoint(gr)), matmul(adjoint(gq), q))
    lower = tril(inner, diagonal=-1)
    # R's diagonal is real, so that of the product is too.
    mirrored = add(add(lower, adjoint(lower)), real_part(diagonal_part(inner)))
    return adjoint(solve_triangular(r, adjoint(add(gq, matmul(q, mirrored))), upper=True, unit=False))


def _qr_vjp(g, out, x, mode):
    m, n = x.shape[-2:]
    if mode == "complete" and m > n:
        return no_derivative(x, message="linalg.qr: no derivative is known when mode='complete' and nrows > ncols")
    (gq, gr), (q, r) = unpack(g, qr_shapes(m, n, mode)), unpack(out, qr_shapes(m, n, mode))
    if m >= n:
        return _qr_square(gq, gr, q, r)
    # A = [X | Y], R = [U | V] with Y = Q V. (What a rule reads may not depend on the shape: Y is not taken from A.)
    u, gu, gv = columns(r, 0, m), columns(gr, 0, m), columns(gr, m, n - m)
    y = matmul(q, columns(r, m, n - m))
    gx = _qr_square(add(gq, matmul(y, adjoint(gv))), gu, q, u)
    return cat(gx, matmul(q, gv), axis=len(x.shape) - 1)


qr = library(
    "linalg_qr",
    _packed("linalg.qr", qr_shapes),
    _explained("qr", lambda x, mode: lapack.qr(x, qr_shapes(*x.shape[-2:], mode), mode)),
    vjp=(_qr_vjp,),
    on_complex=True,
    traits=_CONJUGATE,
    samples=lambda: [Sample(_matrices(k, s), {"mode": "reduced"}) for k, s in enumerate(((3, 3), (4, 2), (2, 2, 3)))],
    oracle=lambda torch, x, mode: _torch_pack(torch, x, torch.linalg.qr(x, mode)),
)


def _torch_pack(torch, x, factors):
    return torch.cat([f.flatten(x.ndim - 2) for f in factors], -1)


def reflections_shapes(m, n):
    return (m, n), (min(m, n),)


def _evaluate_reflections(x):
    turned, scales = np.linalg.qr(x, mode="raw")
    return pack(turned.swapaxes(-1, -2), scales, n_batch=x.ndim - 2)


# R above and the reflections below the diagonal, as LAPACK leaves them; and the scale of each reflection.
reflections = library(
    "geqrf",
    _packed("geqrf", reflections_shapes),
    _checked("geqrf", _evaluate_reflections),
    vjp=(NotImplementedRule("geqrf"),),
    samples=lambda: [Sample(_matrices(k, s)) for k, s in enumerate(((3, 3), (4, 2), (2, 2, 3)))],
    oracle=lambda torch, x: _torch_pack(torch, x, torch.geqrf(x.detach())),
)


# --- eigenvalues of symmetric matrices --------------------------------------------------------------------------------
def eigh_shapes(m, n, upper):
    return (n,), (n, n)


def _over_gaps(x, values):
    """x[i, j] / (w_j - w_i), 0 where x is 0."""
    n, batch = values.shape[-1], values.shape[:-1]
    gaps = sub(reshape(values, shape=(*batch, 1, n)), reshape(values, shape=(*batch, n, 1)))
    nothing = logical_or(eq(x, 0.0), eq(identity(values, n), 1.0))
    return where(nothing, 0.0, div(x, where(nothing, 1.0, gaps)))


def _eigh_vjp(g, out, x, upper):
    """V (diag(gw) + (V^H gV) / (w_j - w_i)) V^H, made symmetric."""
    n = x.shape[-1]
    (gw, gv), (w, v) = unpack(g, eigh_shapes(n, n, upper)), unpack(out, eigh_shapes(n, n, upper))
    turned = matmul(adjoint(v), gv)
    turned = settled(turned, of="linalg_eigh") if x.dtype.is_complex else turned
    inner = add(diagonal_matrix(real_part(gw)), _over_gaps(turned, real_part(w)))
    whole = matmul(matmul(v, inner), adjoint(v))
    return mul(add(whole, adjoint(whole)), 0.5)


def _symmetric(seed, shape):
    x = samples.numbers(seed, shape, -0.25, 0.25) + np.diag(np.arange(1.0, shape[-1] + 1))
    return x + x.swapaxes(-1, -2)


def _symmetric_samples():
    return [Sample((_symmetric(k, s),), {"upper": False}) for k, s in enumerate(((3, 3), (2, 2, 2)))]


eigh = library(
    "linalg_eigh",
    _packed("linalg.eigh", eigh_shapes, square=True),
    _explained("eigh", lambda x, upper: lapack.eigh(x, eigh_shapes(*x.shape[-2:], upper), upper)),
    vjp=(_eigh_vjp,),
    on_complex=True,
    traits=_CONJUGATE,
    samples=_symmetric_samples,
    oracle=lambda torch, x, upper: _torch_pack(torch, x, _torch_eigh(torch, x)),
)


def _torch_eigh(torch, x):
    """PyTorch's factors with NumPy's signs."""
    w, v = torch.linalg.eigh(x)
    ours = torch.tensor(np.linalg.eigh(x.detach().numpy())[1])
    return w, v * torch.sign((v.detach() * ours).sum(-2))[..., None, :]


def _values_like(name, square):
    def infer(operands, attributes):
        require_matrices(name, operands[0], square, complex_too=True)
        *batch, m, n = operands[0].shape
        return Meta((*batch, min(m, n)), operands[0].dtype.to_real())

    return infer


def _eigenvalues_vjp(g, out, x, upper):
    """V diag(g) V^H"""
    n = x.shape[-1]
    _, v = unpack(eigh(x, upper=upper), eigh_shapes(n, n, upper))
    return matmul(mul(v, reshape(g, shape=(*g.shape[:-1], 1, n))), adjoint(v))


eigenvalues = library(
    "linalg_eigvalsh",
    _values_like("linalg.eigvalsh", True),
    _checked("eigvalsh", lambda x, upper: np.linalg.eigvalsh(x, "U" if upper else "L")),
    on_complex=True,
    traits=_CONJUGATE,
    vjp=(_eigenvalues_vjp,),
    node_name="LinalgEighBackward0",
    samples=_symmetric_samples,
    oracle=lambda torch, x, upper: torch.linalg.eigvalsh(x),
)


# --- singular values --------------------------------------------------------------------------------------------------
def svd_shapes(m, n, full):
    k = min(m, n)
    return ((m, m), (k,), (n, n)) if full else ((m, k), (k,), (k, n))


def _skew_part(x):
    return sub(x, adjoint(x))


def _outer_space(g, u):
    """(I - U U^H) G"""
    return sub(g, matmul(u, matmul(adjoint(u), g)))


def _svd_vjp(g, out, x, full):
    """Townsend, "Differentiating the singular value decomposition" (2016). Further columns of U and rows of V^H may be
    any basis: their cotangents count for nothing, as in PyTorch."""
    m, n = x.shape[-2:]
    (gu, gs, gvh), (u, s, vh) = unpack(g, svd_shapes(m, n, full)), unpack(out, svd_shapes(m, n, full))
    k = min(m, n)
    gu, u, gvh, vh = columns(gu, 0, k), columns(u, 0, k), rows(gvh, 0, k), rows(vh, 0, k)
    gv, v = adjoint(gvh), adjoint(vh)
    s, gs = real_part(s), real_part(gs)
    row, column = (reshape(s, shape=(*s.shape[:-1], *shape)) for shape in ((1, k), (k, 1)))
    of_u, of_v = _skew_part(matmul(adjoint(u), gu)), _skew_part(matmul(vh, gv))
    left, right = mul(_over_gaps(of_u, mul(s, s)), row), mul(column, _over_gaps(of_v, mul(s, s)))
    inner = add(add(left, right), diagonal_matrix(gs))
    if x.dtype.is_complex:
        # U and V turning against each other; that they turn together changes nothing.
        together = settled(add(of_u, of_v), of="linalg_svd")
        inner = add(inner, div(diagonal_part(sub(of_u, mul(together, 0.5))), mul(row, 2.0)))
    result = matmul(matmul(u, inner), vh)
    if m > n:
        result = add(result, matmul(_outer_space(div(gu, row), u), vh))
    if n > m:
        result = add(result, matmul(u, adjoint(_outer_space(div(gv, row), v))))
    return result


svd = library(
    "linalg_svd",
    _packed("linalg.svd", svd_shapes),
    _explained("svd", lambda x, full: lapack.svd(x, svd_shapes(*x.shape[-2:], full), full)),
    vjp=(_svd_vjp,),
    on_complex=True,
    traits=_CONJUGATE,
    samples=lambda: [Sample((_spread(k, s),), {"full": False}) for k, s in enumerate(((3, 3), (4, 2), (2, 2, 3)))],
    # The vectors' signs are free: what is compared does not depend on them (see test_linalg.py).
    oracle=lambda torch, x, full: _torch_pack(torch, x, _torch_svd(torch, x, full)),
)


def _spread(seed, shape):
    """A matrix with singular values that are far apart."""
    return samples.numbers(seed, shape, -0.25, 0.25) + np.eye(*shape[-2:]) * np.arange(1.0, shape[-1] + 1)


def _torch_svd(torch, x, full):
    """PyTorch's factors with NumPy's signs."""
    u, s, vh = torch.linalg.svd(x, full_matrices=full)
    ours = torch.tensor(np.linalg.svd(x.detach().numpy(), full_matrices=full)[0])
    signs = torch.sign((u.detach() * ours).sum(-2))
    return u * signs[..., None, :], s, vh * signs[..., :, None]


def _singular_values_vjp(g, out, x):
    """U diag(g) V^H"""
    m, n = x.shape[-2:]
    u, _, vh = unpack(svd(x, full=False), svd_shapes(m, n, False))
    return matmul(mul(u, reshape(g, shape=(*g.shape[:-1], 1, min(m, n)))), vh)


singular_values = library(
    "linalg_svdvals",
    _values_like("linalg.svdvals", False),
    _checked("svdvals", lambda x: np.linalg.svd(x, compute_uv=False)),
    on_complex=True,
    traits=_CONJUGATE,
    vjp=(_singular_values_vjp,),
    node_name="LinalgSvdBackward0",
    samples=lambda: [Sample(s.operands) for s in svd.samples()],
    oracle="linalg.svdvals",
)


# --- LU ---------------------------------------------------------------------------------------------------------------
def _sizes(x):
    """What LAPACK chooses pivots by."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)


def _lu(x, pivot):
    """The packed factors by elimination, column after column."""
    (m, n), flat = x.shape[-2:], np.array(x).reshape(prod(x.shape[:-2]), *x.shape[-2:])
    k, every = min(m, n), np.arange(len(flat))
    exchanged = np.empty((len(flat), k), np.int32)
    with np.errstate(all="ignore"):
        for j in range(k):
            chosen = _sizes(flat[:, j:, j]).argmax(1) + j if pivot else np.full(len(flat), j)
            exchanged[:, j] = chosen + 1
            flat[every, j], flat[every, chosen] = flat[every, chosen], flat[every, j].copy()
            divisor = flat[:, j, j, None]
            flat[:, j + 1 :, j] = np.where(divisor == 0, flat[:, j + 1 :, j], flat[:, j + 1 :, j] / divisor)
            flat[:, j + 1 :, j + 1 :] -= flat[:, j + 1 :, j, None] * flat[:, j, None, j + 1 :]
    packed = pack(flat, exchanged, _evaluate_order(exchanged, m, False), n_batch=1, dtype=x.dtype)
    return packed.reshape(*x.shape[:-2], packed.shape[-1])


def lu_shapes(m, n, pivot):
    """Of both triangles in one matrix, of the row that each step exchanged with its own, counted from 1, and of the
    order that these exchanges leave rows in."""
    return (m, n), (min(m, n),), (m,)


def _lu_infer(operands, attributes):
    x = operands[0]
    if not is_exact(x.dtype, x.shape[-2] if len(x.shape) > 1 else 0):
        raise NotImplementedError(f"linalg.lu_factor: {x.dtype.name} has no {x.shape[-2]}; convert with .double()")
    return _packed("linalg.lu_factor", lu_shapes)(operands, attributes)


def lower_factor(compact):
    """L of the compact form: ones on its diagonal."""
    m, n = compact.shape[-2:]
    k = min(m, n)
    return _plus_identity(tril(columns(compact, 0, k), diagonal=-1))


def _plus_identity(x):
    """x with ones on its diagonal, where it has zeros."""
    m, k = x.shape[-2:]
    square = add(rows(x, 0, k), identity(x, k))
    return square if m == k else cat(square, rows(x, k, m - k), axis=len(x.shape) - 2)


def upper_factor(compact):
    """U of the compact form."""
    m, n = compact.shape[-2:]
    return triu(rows(compact, 0, min(m, n)), diagonal=0)


def _lu_vjp(g, out, x, pivot):
    """P L^-T (tril(L^T gL - gU2 U2^T, -1) + triu(gU U^T - L2^T gL2)) U^-T, where L2 and U2 are what is not square."""
    m, n = x.shape[-2:]
    k, shapes = min(m, n), lu_shapes(m, n, pivot)
    (g, _, _), (compact, _, order) = unpack(g, shapes), unpack(out, shapes)
    low, up = lower_factor(compact), upper_factor(compact)
    gl, gu = tril(columns(g, 0, k), diagonal=-1), triu(rows(g, 0, k), diagonal=0)
    low1, up1, gl1, gu1 = rows(low, 0, k), columns(up, 0, k), rows(gl, 0, k), columns(gu, 0, k)
    of_low, of_up = matmul(swap_last(low1), gl1), matmul(gu1, swap_last(up1))
    axis = len(x.shape) - 1
    if n > k:
        of_low = sub(of_low, matmul(columns(gu, k, n - k), swap_last(columns(up, k, n - k))))
    if m > k:
        of_up = sub(of_up, matmul(swap_last(rows(low, k, m - k)), rows(gl, k, m - k)))
    inner = add(tril(of_low, diagonal=-1), triu(of_up, diagonal=0))
    result = _solve_left(low1, _solve_right(inner, up1))
    if n > k:
        result = cat(result, _solve_left(low1, columns(gu, k, n - k)), axis=axis)
    if m > k:
        result = cat(result, _solve_right(rows(gl, k, m - k), up1), axis=axis - 1)
    order = cast(real_part(order), dtype=dtypes.int64)
    return exchange_rows(result, argsort(order, axis=len(order.shape) - 1, descending=False))


def _solve_left(low, b):
    """L^-T B for a lower triangle with ones on its diagonal."""
    return solve_triangular(swap_last(low), b, upper=True, unit=True)


def _evaluate_order(pivots, rows, inverse):
    """The order that the exchanges leave the rows in (or the order that undoes it)."""
    flat = pivots.reshape(prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(rows), (len(flat), 1))
    every = np.arange(len(flat))
    for k in range(pivots.shape[-1]):
        other = flat[:, k] - 1
        order[every, k], order[every, other] = order[every, other], order[every, k].copy()
    order = np.argsort(order, 1) if inverse else order
    return order.reshape(*pivots.shape[:-1], rows)


lu_order = library(
    "lu_order",
    lambda operands, attributes: Meta((*operands[0].shape[:-1], attributes["rows"]), dtypes.int64),
    _evaluate_order,
    vjp=(None,),
    samples=lambda: [Sample((np.array([2, 3, 3], np.int32),), {"rows": 3, "inverse": i}) for i in (False, True)],
    oracle=lambda torch, pivots, rows, inverse: _torch_order(torch, pivots, rows, inverse),
)


def _torch_order(torch, pivots, rows, inverse):
    permutation = torch.lu_unpack(torch.eye(rows), pivots)[0]
    return (permutation if inverse else permutation.mT).argmax(-1)


def exchange_rows(x, order):
    """The rows of matrices in another order."""
    index = reshape(order, shape=(*order.shape, 1))
    return gather(x, expand(index, shape=x.shape), axis=len(x.shape) - 2)


def _lu_samples():
    return [Sample(_matrices(k, s), {"pivot": True}) for k, s in enumerate(((3, 3), (2, 4), (4, 2), (2, 2, 2)))]


def _torch_lu(torch, x, pivot):
    lu, exchanged = torch.linalg.lu_factor(x, pivot=pivot)
    order = torch.lu_unpack(lu.detach(), exchanged)[0].real.argmax(-2)
    return _torch_pack(torch, x, [lu, *(part.to(x.dtype) for part in (exchanged, order))])


lu = of_any_size(
    "linalg_lu_factor",
    _lu_infer,
    lu_rows,
    _lu,
    is_own=lambda x: x.dtype.element in ("f32", "f64") and 0 not in x.shape,
    by="elimination",
    vjp=(_lu_vjp,),
    node_name="LinalgLuFactorExBackward0",
    samples=_lu_samples,
    oracle=_torch_lu,
)
