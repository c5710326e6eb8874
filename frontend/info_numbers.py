"""Functions of `linalg` that say of each matrix how it went, in place of an error: `cholesky_ex` and its relatives.

A batch is computed at once. Where that fails each matrix is computed by itself, so that one that cannot be factored
spoils no other.
"""

import math

import numpy as np

from .compiler.ops.linear_algebra import LinAlgError
from .compiler.shapes import broadcast_shapes
from .creation import as_tensor, full
from .results import result_type
from .runtime.state.tensor import tensor_of
from .shaping import stack


def with_info(name, names, function, failed):
    """failed(array, *other arguments, **options): what stands for one matrix that cannot be computed, its number."""
    made = result_type(f"linalg_{name}", *names, "info")

    def run(A, *args, check_errors=False, **options):
        try:
            found = function(A, *args, **options)
        except LinAlgError:
            if check_errors:
                raise
            *found, info = _apart(function, failed, A, args, options)
        else:
            found = found if isinstance(found, tuple) else (found,)
            info = tensor_of(np.zeros(A.shape[:-2], np.int32))
        return made(*found, info)

    run.__name__ = name
    run.__doc__ = (
        f"{function.__name__}, and an info per matrix: 0, or the order of the first leading part that cannot be "
        "factored."
    )
    return run


def _apart(function, failed, A, args, options):
    """What the function gives for each matrix, and the numbers, as batches."""
    lead, rest, is_vector = A.shape[:-2], args, False
    if args:
        (B,) = args
        is_vector = B.ndim == 1 or A.shape[:-1] == B.shape
        B = B.unsqueeze(-1) if is_vector else B
        lead = broadcast_shapes("linalg.solve_ex", (lead, B.shape[:-2]))
        rest = (B.expand(*lead, *B.shape[-2:]).reshape(-1, *B.shape[-2:]),)
    matrices = A.expand(*lead, *A.shape[-2:]).reshape(-1, *A.shape[-2:])
    columns = []
    for k in range(len(matrices)):
        given = matrices[k], *(x[k] for x in rest)
        try:
            found = function(*given, **options)
            columns.append((*(found if isinstance(found, tuple) else (found,)), as_tensor(np.int32(0))))
        except LinAlgError:
            columns.append(failed(*given, **options))
    found = [stack(column).reshape(*lead, *column[0].shape) for column in zip(*columns)]
    if is_vector:
        found[0] = found[0].squeeze(-1)
    return found


def part_of_cholesky(A, *, upper=False):
    """L up to the first leading minor that is not positive, with what would have to be the square of its corner."""
    a = A.detach().numpy()
    L = np.tril(a.conj().T if upper else a)
    for k in range(len(L)):
        corner = (L[k, k] - L[k, :k] @ L[k, :k].conj()).real
        if not corner > 0:
            L[k, k] = corner
            break
        L[k, k] = np.sqrt(corner)
        L[k + 1 :, k] = (L[k + 1 :, k] - L[k + 1 :, :k] @ L[k, :k].conj()) / L[k, k]
    return tensor_of(np.ascontiguousarray(L.conj().T) if upper else L), as_tensor(np.int32(k + 1))


def no_inverse(A):
    return full(A.shape, math.nan, dtype=A.dtype), _first_zero(A)


def no_solution(A, B, *, left=True):
    return full(B.shape, math.nan, dtype=A.dtype), _first_zero(A if left else A.mT)


def _first_zero(A):
    """The order of the first leading part of the matrix, its rows exchanged, that is singular."""
    u = A.detach().numpy().copy()
    for k in range(len(u)):
        best = k + np.abs(u[k:, k]).argmax()
        if u[best, k] == 0:
            break
        u[[k, best]] = u[[best, k]]
        u[k + 1 :] -= np.outer(u[k + 1 :, k] / u[k, k], u[k])
    return as_tensor(np.int32(k + 1))


def zeros_on_the_diagonal(function, name):
    """The same of factors that are there in any case."""
    made = result_type(f"linalg_{name}", "LU", "pivots", "info")

    def run(A, *, pivot=True, check_errors=False):
        LU, pivots = function(A, pivot=pivot)
        is_zero = LU.diagonal(0, -2, -1) == 0
        if is_zero.shape[-1] == 0:
            return made(LU, pivots, tensor_of(np.zeros(A.shape[:-2], np.int32)))
        info = (is_zero.any(-1) * (is_zero.int().argmax(-1) + 1)).int()
        if check_errors and (info != 0).any().item():
            raise LinAlgError(f"linalg.{name}: the diagonal element {info.max().item()} of U is zero")
        return made(LU, pivots, info)

    run.__name__ = name
    run.__doc__ = f"{function.__name__}, and an info per matrix: 0, or the first element of U's diagonal that is 0."
    return run
