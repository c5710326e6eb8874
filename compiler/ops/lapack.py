"""LAPACK's factorizations by NumPy's inner functions, which write all factors of a batch into one packed array.

numpy.linalg's own functions do the same around the same calls: they find out types, convert, make arrays and a tuple,
which takes longer than LAPACK does for small matrices. Bits are equal. These inner functions are no part of NumPy's
interface: where one is not there under its name, numpy.linalg's function is called.

Elements of 4 bytes are computed in float64 and rounded, as numpy.linalg does.
"""

from functools import cache
from math import prod

import numpy as np
from numpy.linalg import LinAlgError

from .packed import pack

try:
    from numpy.linalg import _umath_linalg as _inner
except ImportError:
    _inner = None
try:
    from numpy._core.umath import _extobj_contextvar, _make_extobj
except ImportError:
    _make_extobj = None


def _found(*names):
    """NumPy's inner functions, or None if one is missing."""
    functions = tuple(getattr(_inner, name, None) for name in names)
    return None if None in functions else functions


_SVD, _QR = _found("svd_s", "svd_f"), _found("qr_r_raw", "qr_reduced", "qr_complete")
_EIGH = _found("eigh_lo", "eigh_up")


def _failing(message):
    def fail(error, flag):
        raise LinAlgError(message)

    how = {"call": fail, "invalid": "call", "over": "ignore", "divide": "ignore", "under": "ignore"}
    settings = None if _make_extobj is None else _make_extobj(**how)

    def ignoring():
        """A `with` block in which nothing but a failure is looked at."""
        return np.errstate(**how) if settings is None else _Ignoring(settings)

    return ignoring


class _Ignoring:
    """np.errstate with settings that were made before, which takes it longer than a small factorization does."""

    __slots__ = ("settings", "before")

    def __init__(self, settings):
        self.settings = settings

    def __enter__(self):
        self.before = _extobj_contextvar.set(self.settings)

    def __exit__(self, *_):
        _extobj_contextvar.reset(self.before)


_svd_failing, _eigh_failing = _failing("SVD did not converge"), _failing("Eigenvalues did not converge")
_qr_failing = _failing("Incorrect argument found while performing QR factorization")


def _parted(like, shapes):
    """(array for factors of these shapes, of every matrix of `like`; a view of each factor)"""
    batch, sizes = like.shape[:-2], [prod(s) for s in shapes]
    packed, start, parts = np.empty((*batch, sum(sizes)), like.dtype), 0, []
    for shape, n in zip(shapes, sizes):
        parts.append(packed[..., start : start + n].reshape(*batch, *shape))
        start += n
    return packed, parts


def svd(x, shapes, full):
    """U, S and V^H, packed."""
    if _SVD is None:
        return pack(*np.linalg.svd(x, full_matrices=full), n_batch=x.ndim - 2)
    packed, parts = _parted(x, shapes)
    with _svd_failing():
        _SVD[full](x, *parts, signature="D->DdD" if x.dtype.kind == "c" else "d->ddd")
    return packed


def eigh(x, shapes, upper):
    """Eigenvalues and eigenvectors, packed."""
    if _EIGH is None:
        return pack(*np.linalg.eigh(x, "U" if upper else "L"), n_batch=x.ndim - 2)
    packed, parts = _parted(x, shapes)
    with _eigh_failing():
        _EIGH[upper](x, *parts, signature="D->dD" if x.dtype.kind == "c" else "d->dd")
    return packed


@cache
def _below(m, n):
    """Where m by n matrices are below their diagonal."""
    return np.tri(m, n, -1, dtype=bool)


def qr(x, shapes, mode):
    """Q and R, packed."""
    if _QR is None:
        return pack(*np.linalg.qr(x, mode), n_batch=x.ndim - 2)
    packed, (q, r) = _parted(x, shapes)
    is_complex, n = x.dtype.kind == "c", x.shape[-1]
    made = x.astype(np.complex128 if is_complex else np.float64)
    first, reduced, complete = _QR
    with _qr_failing():
        scales = first(made, signature="D->D" if is_complex else "d->d")
        last = complete if q.shape[-1] > n else reduced
        last(made, scales, q, signature="DD->D" if is_complex else "dd->d")
        rows = r.shape[-2]
        np.copyto(r, made[..., :rows, :], casting="same_kind")
        np.copyto(r, 0, where=_below(rows, n))
    return packed
