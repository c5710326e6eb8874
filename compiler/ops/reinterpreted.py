"""The whole of a tensor as something else: its bytes as numbers of another type (`x.view(dtype)`, without a
derivative), and the same elements under another name."""

from ..dtypes import dtype_of
from ..kernels.kernel import View
from . import samples
from .table import Meta, Op, OpError, register


def _sizes(x, dtype):
    """How many elements of the new type are one of the old, and how many of the old one of the new."""
    old, new = x.dtype.size_bytes, dtype.size_bytes
    return old // new, new // old


def _infer(operands, attributes, default_float):
    x, dtype = operands[0], dtype_of(attributes["dtype"])
    finer, coarser = _sizes(x, dtype)
    if finer == coarser == 1:
        return Meta(x.shape, dtype)
    words = f"to view {x.dtype.name} as {dtype.name} (different element sizes)"
    if not x.shape:
        raise OpError(f"self.dim() cannot be 0 {words}")
    if finer:
        return Meta((*x.shape[:-1], x.shape[-1] * finer), dtype)
    if x.shape[-1] % coarser:
        raise OpError(f"self.size(-1) must be divisible by {coarser} {words}, but got {x.shape[-1]}")
    return Meta((*x.shape[:-1], x.shape[-1] // coarser), dtype)


def _evaluate(array, dtype):
    kind = dtype_of(dtype).numpy
    if kind.itemsize != array.itemsize and array.size and array.strides[-1] != array.itemsize:
        raise OpError(
            f"self.stride(-1) must be 1 to view {array.dtype} as {kind} (different element sizes), but got "
            f"{array.strides[-1] // array.itemsize}"
        )
    if kind.itemsize > array.itemsize and any(step % kind.itemsize for step in array.strides[:-1]):
        raise OpError(f"strides must be divisible by the new size to view {array.dtype} as {kind}")
    return array.view(kind)


# Bytes have no derivative, and types that have no kernels may come of it: it runs eagerly in compiled calls.
reinterpreted = register(
    Op(
        "reinterpreted",
        "view",
        _infer,
        _evaluate,
        (None,),
        extra={"eager_only": lambda dtypes, attributes: "the bytes of one type as another have no generated kernel"},
        kernel=View(),
        on_complex=True,
    )
)

# What a tensor is as an instance of a class of the user's.
another = register(
    Op(
        "alias",
        "view",
        lambda operands, attributes, default_float: Meta(operands[0].shape, operands[0].dtype),
        lambda x: x.view(),
        (lambda g, out, x: g,),
        lambda old, strides, offset: (strides, offset),
        samples=samples.unary(),
        kernel=View(),
        oracle=lambda torch, x: x.view_as(x),
        on_complex=True,
    )
)
