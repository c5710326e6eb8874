"""Norms of vectors and matrices: linalg.norm, vector_norm, matrix_norm, and weft.norm with its older rules."""

import math

from .compiler.dtypes import dtype_of, float32, float64
from .compiler.ops import decompositions, statistics
from .compiler.ops.table import OpError
from .compiler.shapes import is_whole, normalize_axes, normalize_axis
from .functions import to_dtype
from .operands import flag
from .reducing import amax, amin, sum
from .reducing import norm as _vector_norm
from .runtime.state.tensor import Tensor, shape_of
from .shaping import movedim, unsqueeze


def _converted(name, x, dtype):
    dtype = None if dtype is None else dtype_of(dtype)
    if dtype is not None and not dtype.is_differentiable:
        raise OpError(f"{name}: dtype should be floating point or complex, but got {dtype.name}")
    x = x if dtype is None else to_dtype(x, dtype)
    if not x.dtype.is_differentiable:
        raise OpError(f"{name}: Expected a floating point or complex tensor as input, got {x.dtype.name}")
    return x


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """(sum |x|^ord)^(1/ord) of all elements, or along dim; ord 0 counts, inf and -inf give extremes."""
    x = _converted("linalg.vector_norm", x, dtype)
    if isinstance(ord, str):
        raise TypeError(f"linalg.vector_norm(): argument 'ord' must be Number, not str: {ord!r}")
    if not x.numel() and (ord < 0 or ord == math.inf):
        axes = range(x.ndim) if dim is None else [dim] if is_whole(dim) else dim
        if any(x.shape[d] == 0 for d in axes) or not x.ndim:
            raise RuntimeError(f"linalg.vector_norm cannot compute the {ord} norm on an empty dimension: {x.shape}")
    return _vector_norm(x, ord, dim, keepdim)


_ORDERS = (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc")


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """The norm of the matrices that two dimensions span: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    A = _converted("linalg.matrix_norm", A, dtype)
    if A.ndim < 2:
        raise OpError(f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got shape {A.shape}")
    if is_whole(dim) or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    if ord not in _ORDERS:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    row, column = (normalize_axis("linalg.matrix_norm", d, A.ndim) for d in dim)
    if row == column:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return _vector_norm(A, 2, (row, column), keepdim)
    matrices = movedim(A, (row, column), (-2, -1))
    result = _of_matrices(matrices, ord)
    if keepdim:
        for axis in sorted((row, column)):
            result = unsqueeze(result, axis)
    return result


def _of_matrices(A, ord):
    if ord in (2, -2, "nuc"):
        values = decompositions.singular_values(A)
        if ord == "nuc" or ord == 2 and not values.shape[-1]:
            return sum(values, -1)
        return amax(values, -1) if ord == 2 else amin(values, -1)
    totals = sum(A.abs(), -2 if ord in (1, -1) else -1)
    if ord > 0 and not totals.shape[-1]:
        return sum(totals, -1)
    return amax(totals, -1) if ord > 0 else amin(totals, -1)


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """The vector norm of all elements if neither ord nor dim is given; else by their kind that of vectors, matrices."""
    if dim is None and ord is None:
        return vector_norm(A, 2, None, keepdim, dtype=dtype)
    if dim is None and A.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        )
    pair = dim is not None and not is_whole(dim) and len(dim) == 2
    if (A.ndim == 2 if dim is None else pair) and (ord is not None or dim is None):
        return matrix_norm(A, "fro" if ord is None else ord, dim or (-2, -1), keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise RuntimeError(
            f"linalg.norm: If ord={ord!r}, the input must be a matrix or dim a pair, got shape {A.shape}"
        )
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


def old_norm(input, p="fro", dim=None, keepdim=False, *, dtype=None):
    """weft.norm: the vector norm of all elements or along dim; "nuc" is the sum of the singular values."""
    if dtype is None and p.__class__ in (str, int) and p in ("fro", 2) and isinstance(input, Tensor):
        kind = input.dtype
        if kind is float32 or kind is float64:
            # What most norms are.
            keepdim = keepdim if keepdim.__class__ is bool else flag("norm", "keepdim", keepdim)
            return statistics.norm(input, axes=normalize_axes("norm", dim, len(shape_of(input))), keepdim=keepdim)
    input = input if dtype is None else to_dtype(input, dtype)
    if p == "nuc":
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    return _vector_norm(input, 2 if p is None else p, dim, keepdim)
