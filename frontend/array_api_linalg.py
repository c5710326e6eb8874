"""The extension `linalg` of the array API standard, with its keywords."""

# ruff: noqa: F401

from . import linalg as _linalg
from .functions import matmul
from .functions import outer as _outer
from .linalg import (
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    matrix_power,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    svdvals,
)
from .products import tensordot as _tensordot


def matrix_transpose(x, /):
    return x.mT


def tensordot(x1, x2, /, *, axes=2):
    return _tensordot(x1, x2, axes if isinstance(axes, int) else [list(a) for a in axes])


def vecdot(x1, x2, /, *, axis=-1):
    return _linalg.vecdot(x1, x2, dim=axis)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    return _linalg.vector_norm(x, ord, axis, keepdims)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    return _linalg.matrix_norm(x, ord, keepdim=keepdims)


def diagonal(x, /, *, offset=0):
    return _linalg.diagonal(x, offset=offset)


def trace(x, /, *, offset=0, dtype=None):
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


def cross(x1, x2, /, *, axis=-1):
    return _linalg.cross(x1, x2, dim=axis)


def outer(x1, x2, /):
    return _outer(x1, x2)
