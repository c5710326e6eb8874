"""Factorizations of real matrices, and what is solved with them, as routines of our own; where LAPACK does it too, of
matrices of up to MOST_ROWS rows.

A routine tells with its result whether it could be computed; `succeeded` looks at that, and raises what users see.
"""

from math import prod

import numpy as np

from ..dtypes import SIZES
from ..kernels.library import UnitRoutine
from ..later import later
from . import samples
from .kinds import elementwise, routine
from .samples import Sample
from .table import Meta
from .view import reshape, slice_

# Up to here they take no longer than LAPACK on one thread; beyond, its threads and its packed blocks pay.
MOST_ROWS = 512


class LinAlgError(RuntimeError, ValueError):
    """A matrix that a decomposition or a solver cannot take: singular, or not positive definite. A ValueError too: in a
    compiled call it takes the place of what a distribution says of its covariance matrix."""


REASONS = {
    "Singular matrix": "The solver failed because the input matrix is singular.",
    "Matrix is not positive definite": (
        "The factorization could not be completed because the input is not positive-definite; "
        "add a small multiple of the identity, or check the matrix"
    ),
}
_FAILURES = {"cholesky": "Matrix is not positive definite", "solve": "Singular matrix", "inv": "Singular matrix"}


def is_small(*operands):
    """Whether routines compute what is asked of these matrices, of which the first is square."""
    for x in operands:
        if x.dtype.element not in ("f32", "f64") or 0 in x.shape:
            return False
    return operands[0].shape[-1] <= MOST_ROWS


# --- whether it could be computed -------------------------------------------------------------------------------------
def _evaluate_succeeded(x, status, of):
    if not (status > 0).all():
        raise LinAlgError(f"linalg.{of}: {REASONS[_FAILURES[of]]}")
    return x


def _lower_succeeded(b, x, status, fail, of):
    fail(b.not_(b.cmp("gt", status, b.const(0, status.type))))
    return x


# x, if the numbers beside it are above 0.
succeeded = elementwise(
    "succeeded",
    2,
    lambda operands, default_float: (tuple(x.dtype for x in operands), operands[0].dtype),
    evaluate=_evaluate_succeeded,
    lower=_lower_succeeded,
    vjp=(lambda g, out, x, status, of: g, None),
    samples=lambda: [Sample((samples.numbers(0, (2, 2)), samples.numbers(1, (2, 1), 0.5, 1.0)), {"of": "solve"})],
    oracle=lambda torch, x, status, of: x + torch.zeros_like(status),
    traits=frozenset(["checks"]),
)


# --- routines ---------------------------------------------------------------------------------------------------------
def _factorization(name):
    return later(f"compiler.emit.factorizations:{name}")


_scratch_elements = _factorization("scratch_elements")


def _by_matrices(name, infer, emit, sizes, n_flops, n_scratch=_scratch_elements, **facts):
    """An entry whose units of work are matrices. `infer`, `sizes` and `n_flops` are functions of the shapes of its
    operands and their attributes; `n_flops` gives those of one matrix, `n_scratch` the elements of scratch memory."""

    def scratch(element, shapes, attributes):
        return n_scratch(*shapes[0][-2:]) * SIZES[element]

    kernel = UnitRoutine(
        name.removesuffix("_rows"),
        emit,
        lambda shapes, attributes: prod(shapes[0][:-2]),
        sizes,
        scratch,
        lambda shapes, attributes: prod(shapes[0][:-2]) * n_flops(shapes, attributes),
    )
    return routine(
        name,
        lambda operands, attributes: Meta(infer(*(x.shape for x in operands)), operands[0].dtype),
        kernel,
        vjp=(None,) * 2,
        **facts,
    )


def _cube(n):
    return n * n * n


def _matrix(k, shape, positive=False):
    x = samples.numbers(k, shape) + 3 * np.eye(*shape[-2:])
    return x @ x.swapaxes(-1, -2) if positive else x


_SQUARE, _PAIRS = ((3, 3), (2, 2, 2), (9, 9)), (((3, 3), (3, 2)), ((2, 2, 2), (2, 2, 3)), ((11, 11), (11, 9)))

# L of x = L L^T; NaN everywhere where x is not positive definite.
cholesky_rows = _by_matrices(
    "cholesky_rows",
    lambda x: x,
    _factorization("emit_cholesky"),
    lambda shapes, attributes: (shapes[0][-1],),
    lambda shapes, attributes: _cube(shapes[0][-1]) // 3,
    samples=lambda: [Sample((_matrix(k, s, positive=True),)) for k, s in enumerate(_SQUARE)],
    oracle=lambda torch, x: torch.linalg.cholesky(x.detach()),
)
# X with T X = y.
triangular_rows = _by_matrices(
    "triangular_rows",
    lambda t, y: y,
    _factorization("emit_triangular"),
    lambda shapes, a: (*shapes[1][-2:], int(a["upper"]), int(a["unit"])),
    lambda shapes, attributes: shapes[1][-1] * shapes[1][-2] * shapes[1][-2],
    n_scratch=lambda m, n: 0,
    samples=lambda: [
        Sample((_matrix(k, t), samples.numbers(k + 9, y)), {"upper": upper, "unit": unit})
        for k, (t, y) in enumerate(_PAIRS)
        for upper in (False, True)
        for unit in (False, True)
    ],
    oracle=lambda torch, t, y, upper, unit: torch.linalg.solve_triangular(
        t.detach(), y.detach(), upper=upper, unitriangular=unit
    ),
)


def _with_status(a, y):
    return (*y[:-2], y[-2] * y[-1] + 1)


# X with A X = y, its rows one after the other, and last 1, or 0 if A is singular.
solve_rows = _by_matrices(
    "solve_rows",
    _with_status,
    _factorization("emit_solve"),
    lambda shapes, attributes: shapes[1][-2:],
    lambda shapes, attributes: 2 * _cube(shapes[1][-2]) // 3 + 2 * prod(shapes[1][-2:]) * shapes[1][-2],
    samples=lambda: [Sample((_matrix(k, a), samples.numbers(k + 9, y))) for k, (a, y) in enumerate(_PAIRS)],
    oracle=lambda torch, a, y: torch.cat(
        [torch.linalg.solve(a.detach(), y.detach()).flatten(-2), torch.ones(*y.shape[:-2], 1, dtype=y.dtype)], -1
    ),
)
# The diagonal of U and the sign of the permutation, of A = P L U.
pivots = _by_matrices(
    "pivots_rows",
    lambda a: (*a[:-2], a[-1] + 1),
    _factorization("emit_pivots"),
    lambda shapes, attributes: (shapes[0][-1],),
    lambda shapes, attributes: 2 * _cube(shapes[0][-1]) // 3,
    samples=lambda: [Sample((_matrix(k, s),)) for k, s in enumerate(_SQUARE)],
    oracle=lambda torch, a: _torch_pivots(torch, a.detach()),
)


def _torch_pivots(torch, a):
    p, _, u = torch.linalg.lu(a)
    return torch.cat([u.diagonal(dim1=-2, dim2=-1), torch.linalg.det(p)[..., None]], -1)


def _with_rows(a):
    m, n = a[-2:]
    return (*a[:-2], m * n + min(m, n) + m)


# L and U of P A = L U in one matrix, the rows that were exchanged, counted from 1, and the order of those of P A. Of
# matrices of any size: LAPACK's routine is none of those that NumPy has.
lu_rows = _by_matrices(
    "lu_rows",
    _with_rows,
    _factorization("emit_lu"),
    lambda shapes, a: (*shapes[0][-2:], int(a["pivot"])),
    lambda shapes, attributes: prod(shapes[0][-2:]) * min(shapes[0][-2:]),
    samples=lambda: [Sample((_matrix(k, s),), {"pivot": True}) for k, s in enumerate((*_SQUARE, (2, 11, 9), (9, 19)))],
    oracle=lambda torch, a, pivot: _torch_lu(torch, a.detach()),
)


def _torch_lu(torch, a):
    lu, exchanged = torch.linalg.lu_factor(a)
    order = torch.lu_unpack(lu, exchanged)[0].argmax(-2)
    return torch.cat([x.flatten(a.ndim - 2).to(a.dtype) for x in (lu, exchanged, order)], -1)


# det(A) A^-T, right for singular matrices too.
cofactor_rows = _by_matrices(
    "cofactors_rows",
    lambda a: a,
    _factorization("emit_cofactors"),
    lambda shapes, attributes: (shapes[0][-1],),
    lambda shapes, attributes: 3 * _cube(shapes[0][-1]),
    n_scratch=_factorization("cofactors_scratch"),
    samples=lambda: [Sample((_matrix(k, s),)) for k, s in enumerate(_SQUARE[:2])],
    oracle=lambda torch, a: (torch.linalg.det(a)[..., None, None] * torch.linalg.inv(a).mT).detach(),
)


# --- what they are used for -------------------------------------------------------------------------------------------
def factor(x):
    """L of x = L L^T."""
    found, n = cholesky_rows(x), x.shape[-1]
    lead = [(0, 1, d) for d in x.shape[:-2]]
    return succeeded(found, slice_(found, spec=(*lead, (n - 1, 1, 1), (n - 1, 1, 1))), of="cholesky")


def solution(a, y, of):
    """X with A X = y."""
    found, n = solve_rows(a, y), y.shape[-2] * y.shape[-1]
    lead, batch = [(0, 1, d) for d in y.shape[:-2]], y.shape[:-2]
    x = reshape(slice_(found, spec=(*lead, (0, 1, n))), shape=y.shape)
    return succeeded(x, reshape(slice_(found, spec=(*lead, (n, 1, 1))), shape=(*batch, 1, 1)), of=of)


def triangular_solution(t, y, upper, unit):
    """X with T X = y."""
    return triangular_rows(t, y, upper=upper, unit=unit)
