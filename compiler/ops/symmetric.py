"""The factorization A = L D L^T of symmetric matrices that need not be positive definite, and what is solved with it.

The pivoting of Bunch and Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems"
(1977): D has blocks of one row or of two. Factors and pivots are laid out as LAPACK's `sytrf` does for the lower
triangle, which is PyTorch's format: pivot p > 0 says that rows k and p - 1 were exchanged, two equal pivots -p that
rows k + 1 and p - 1 were, and that k and k + 1 are a block of two. Neither has a derivative, as in PyTorch.
"""

from math import prod

import numpy as np

from ..shapes import broadcast_shapes
from .kinds import NotImplementedRule, library
from .linear_algebra import _checked, require_matrices
from .packed import pack
from .packed import size as size_of
from .samples import Sample, numbers
from .table import Meta, OpError

# Up to here a diagonal element serves as a pivot: growth of the elements is bounded best.
_ALPHA = (1 + 17**0.5) / 8


# --- factorization ----------------------------------------------------------------------------------------------------
def _chosen_pivot(a, k):
    """(row to exchange, size of the block) at step k; a block of 0 rows if the column is zero."""
    n, own = len(a), abs(a[k, k])
    if k == n - 1:
        return k, int(own > 0)
    largest = k + 1 + int(np.argmax(np.abs(a[k + 1 :, k])))
    in_column = abs(a[largest, k])
    if max(own, in_column) == 0:
        return k, 0
    if own >= _ALPHA * in_column:
        return k, 1
    in_row = max(np.abs(a[largest, k:largest]).max(), np.abs(a[largest + 1 :, largest]).max(initial=0))
    if own >= _ALPHA * in_column * (in_column / in_row):
        return k, 1
    return largest, 1 if abs(a[largest, largest]) >= _ALPHA * in_row else 2


def _exchange(a, k, other):
    """Rows and columns k and other > k of a symmetric matrix of which the lower triangle from k on is there."""
    a[other + 1 :, k], a[other + 1 :, other] = a[other + 1 :, other].copy(), a[other + 1 :, k].copy()
    a[k + 1 : other, k], a[other, k + 1 : other] = a[other, k + 1 : other].copy(), a[k + 1 : other, k].copy()
    a[k, k], a[other, other] = a[other, other], a[k, k]


def _eliminate(a, k, size):
    """Columns k to k + size of L, and what they leave of the rest."""
    below = a[k + size :, k : k + size].copy()
    if size == 1:
        factors = below / a[k, k]
    else:
        # By the inverse of the block, scaled with what is off its diagonal, which is large.
        off = a[k + 1, k]
        first, last = a[k + 1, k + 1] / off, a[k, k] / off
        scale = 1 / (first * last - 1) / off
        factors = np.stack(
            [scale * (first * below[:, 0] - below[:, 1]), scale * (last * below[:, 1] - below[:, 0])], axis=1
        )
    a[k + size :, k + size :] -= np.tril(factors @ below.T)
    a[k + size :, k : k + size] = factors


def _factored(matrix):
    """(L and D in one matrix, pivots, info: 0, or the first step, from 1, where D is 0) of one matrix."""
    a, k, info = np.tril(matrix), 0, 0
    pivots = np.empty(len(a), np.int32)
    while k < len(a):
        other, size = _chosen_pivot(a, k)
        if not size:
            info = info or k + 1
        moved = k + max(size, 1) - 1
        if other != moved and size:
            _exchange(a, moved, other)
            if size == 2:
                a[k + 1, k], a[other, k] = a[other, k], a[k + 1, k]
        if size:
            _eliminate(a, k, size)
        pivots[k : k + max(size, 1)] = other + 1 if size < 2 else -(other + 1)
        k += max(size, 1)
    return a, pivots, np.int32(info)


def _evaluate(x):
    matrices = x.reshape(prod(x.shape[:-2]), *x.shape[-2:])
    found = [pack(*_factored(matrix), n_batch=0, dtype=x.dtype) for matrix in matrices]
    return np.asarray(found, x.dtype).reshape(*x.shape[:-2], size_of(shapes(*x.shape[-2:])))


def shapes(m, n):
    """Of L and D in one matrix, the pivots, and the info: 0, or the first step, from 1, where D is 0."""
    return (n, n), (n,), ()


def _infer(operands, attributes):
    x = operands[0]
    require_matrices("linalg.ldl_factor", x, square=True)
    return Meta((*x.shape[:-2], size_of(shapes(*x.shape[-2:]))), x.dtype)


def _indefinite(seed, shape):
    x = numbers(seed, shape, -2.0, 2.0)
    return x + x.swapaxes(-1, -2)


def _samples():
    return [Sample((_indefinite(k, s),)) for k, s in enumerate(((3, 3), (5, 5), (2, 4, 4)))]


def _torch_factors(torch, x):
    found = torch.linalg.ldl_factor_ex(x.detach())
    return torch.cat([part.flatten(x.ndim - 2) if part.ndim > x.ndim - 2 else part[..., None] for part in found], -1)


factor = library(
    "linalg_ldl_factor",
    _infer,
    _checked("ldl_factor", _evaluate),
    vjp=(NotImplementedRule("linalg_ldl_factor"),),
    samples=_samples,
    oracle=_torch_factors,
)


# --- solver -----------------------------------------------------------------------------------------------------------
def _blocks(pivots):
    """(first row, size of the block, row it was exchanged with) of all blocks of D."""
    k, found = 0, []
    while k < len(pivots):
        size = 1 if pivots[k] > 0 else 2
        found.append((k, size, abs(int(pivots[k])) - 1))
        k += size
    return found


def _over_block(block, b):
    """A block of D into its rows of b; infinite where D is 0, as in PyTorch."""
    if len(block) == 1:
        return b / block[0, 0]
    off = block[1, 0]
    first, last, (upper, lower) = block[0, 0] / off, block[1, 1] / off, b / off
    return np.stack([last * upper - lower, first * lower - upper]) / (first * last - 1)


def _product(x, y):
    """x @ y with the same bits wherever they lie in memory, which BLAS does not promise."""
    return np.add.reduce(np.multiply(x.T[:, :, None], y[:, None, :], order="C"), axis=0)


def _solved(factors, pivots, b):
    """x with L D L^T x = b: down through L and D, and up through L^T."""
    x, blocks = b.copy(), _blocks(pivots)
    for k, size, other in blocks:
        rows, moved = slice(k, k + size), k + size - 1
        x[[moved, other]] = x[[other, moved]]
        x[k + size :] -= _product(factors[k + size :, rows], x[rows])
        x[rows] = _over_block(factors[rows, rows], x[rows])
    for k, size, other in reversed(blocks):
        rows, moved = slice(k, k + size), k + size - 1
        x[rows] -= _product(factors[k + size :, rows].T, x[k + size :])
        x[[moved, other]] = x[[other, moved]]
    return x


def _evaluate_solve(factors, pivots, b):
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    made = np.empty((*batch, *b.shape[-2:]), b.dtype)
    parts = (np.broadcast_to(x, (*batch, *x.shape[x.ndim - kept :])) for x, kept in ((factors, 2), (pivots, 1), (b, 2)))
    factors, pivots, b = parts
    for index in np.ndindex(batch):
        made[index] = _solved(factors[index], pivots[index], b[index])
    return made


def _solve_infer(operands, attributes):
    factors, pivots, b = operands
    name = "linalg.ldl_solve"
    require_matrices(name, factors, square=True)
    if len(b.shape) < 2 or b.shape[-2] != factors.shape[-1]:
        raise OpError(f"{name}: Incompatible matrix sizes: LD is {factors.shape} and B {b.shape}")
    if pivots.shape != factors.shape[:-1]:
        raise OpError(f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, got {pivots.shape}")
    if pivots.dtype.category != 1:
        raise OpError(f"{name}: Expected pivots to be integers, got {pivots.dtype.name}")
    if factors.dtype is not b.dtype:
        raise OpError(f"{name}: LD and B must have one dtype, got {factors.dtype.name} and {b.dtype.name}")
    return Meta((*broadcast_shapes(name, [factors.shape[:-2], b.shape[:-2]]), *b.shape[-2:]), b.dtype)


def _solve_samples():
    factored = [(_factored(_indefinite(k, (n, n))), numbers(k, (n, 2))) for k, n in enumerate((3, 5))]
    return [Sample((factors, pivots, b)) for (factors, pivots, _), b in factored]


solve = library(
    "ldl_solve",
    _solve_infer,
    _checked("ldl_solve", _evaluate_solve),
    vjp=(NotImplementedRule("linalg_ldl_solve"), None, NotImplementedRule("linalg_ldl_solve")),
    samples=_solve_samples,
    oracle=lambda torch, factors, pivots, b: torch.linalg.ldl_solve(factors.detach(), pivots, b.detach()),
)
