"""Sums, products and functions of elements.

What maps 0 to 0 is computed of the values that are kept; where several are of one place they are added first, unless
the function is linear. Products keep the places that both factors have, sums those that either has.
"""

import numpy as np

from ..compiler.dtypes import bool_, promote
from ..runtime.state.modes import state
from ..runtime.state.tensor import Tensor, tensor_of
from ..shaping import cat
from . import coordinates
from .conversion import coalesce, picked, values_at
from .creation import empty_of
from .tensors import Sparse, SparseTensor

_SPARSE_AND_DENSE = "add(sparse, dense) is not supported. Use add(dense, sparse) instead."


def is_number(x):
    """A number, or a dense tensor of one without dimensions."""
    return isinstance(x, (int, float, complex, np.generic)) or isinstance(x, Tensor) and x.has_array and not x.ndim


# --- sums -------------------------------------------------------------------------------------------------------------
def add(input, other, *, alpha=1):
    """input + alpha * other: of two sparse tensors, or a dense one first."""
    if not isinstance(other, Sparse):
        raise RuntimeError(_SPARSE_AND_DENSE)
    _require_one_shape("add", input, other)
    if isinstance(input, Sparse) and not isinstance(input, SparseTensor) and type(input) is type(other):
        return add(as_coordinates(input), other, alpha=alpha).to_sparse(layout=input.layout, blocksize=input.blocksize)
    other = as_coordinates(other)
    values = scaled(other._values_kept, alpha)
    if not isinstance(input, Sparse):
        return _added_to(input, other, values)
    input = as_coordinates(input)
    if input.sparse_dim() != other.sparse_dim():
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same number of sparse dims, but {input.sparse_dim()} != "
            f"{other.sparse_dim()}"
        )
    dtype = promote(input.dtype, values.dtype)
    values = values.to(dtype)
    if input._indices_kept is other._indices_kept:
        return input._with(input._values_kept.to(dtype) + values)
    indices = np.concatenate((input._indices_kept, other._indices_kept), 1)
    joined = SparseTensor.of(indices, cat((input._values_kept.to(dtype), values)), tuple(input.shape))
    return coalesce(joined) if input._is_rising and other._is_rising else joined


def as_coordinates(x):
    return x if isinstance(x, SparseTensor) else x.to_sparse()


def scaled(values, alpha):
    return values if isinstance(alpha, (int, float)) and alpha == 1 else values * alpha


def _require_one_shape(name, input, other):
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(
            f"{name}: expected sizes of 'self' and 'other' to match, but {list(input.shape)} != {list(other.shape)}"
        )


def _added_to(dense, other, values):
    """A dense tensor with values added at the places of a sparse one."""
    sizes = other.sparse_sizes
    dtype = promote(dense.dtype, values.dtype)
    rows = dense.to(dtype).reshape(coordinates.n_places(sizes), *other.dense_sizes)
    places = coordinates.flat(other._indices_kept, sizes)
    return rows.index_add(0, tensor_of(places), values.to(dtype)).reshape(dense.shape)


def sub(input, other, *, alpha=1):
    """input - alpha * other."""
    return add(input, other, alpha=-alpha)


def rsub(input, other, *, alpha=1):
    """other - alpha * input."""
    return add(other, input, alpha=-alpha)


# --- products ---------------------------------------------------------------------------------------------------------
def mul(input, other):
    """Element by element: with a number, a dense tensor (broadcast to the sparse one's shape) or a sparse one."""
    if not isinstance(input, Sparse):
        input, other = other, input
    if is_number(other):
        return input._with(input._values_kept * other)
    if not isinstance(other, Sparse):
        return input._with(input._values_kept * values_at(_broadcast(other, input), input))
    _require_one_shape("mul", input, other)
    if not isinstance(input, SparseTensor):
        return input._with(input._values_kept * values_at(other, input))
    left, right = coalesce(input), coalesce(as_coordinates(other))
    if left.sparse_dim() != right.sparse_dim():
        raise RuntimeError(f"mul: sparse_dim of the factors differ: {left.sparse_dim()} and {right.sparse_dim()}")
    of_left, of_right = coordinates.common(*(coordinates.flat(x._indices_kept, x.sparse_sizes) for x in (left, right)))
    values = picked(left._values_kept, of_left) * picked(right._values_kept, of_right)
    indices = np.ascontiguousarray(left._indices_kept[:, of_left])
    return SparseTensor.of(indices, values, tuple(left.shape), True)


def _broadcast(dense, other):
    try:
        return dense.expand(other.shape)
    except RuntimeError:
        raise RuntimeError(
            f"mul: a dense tensor of shape {tuple(dense.shape)} does not broadcast to the sparse one's "
            f"{tuple(other.shape)}"
        ) from None


def div(input, other, *, rounding_mode=None):
    """By a number."""
    if not is_number(other) or not isinstance(input, Sparse):
        shape = list(other.shape) if isinstance(other, Tensor) else other
        raise RuntimeError(
            f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {shape} for divisor)"
        )
    if rounding_mode is not None:
        input = merged(input)
    return input._with(input._values_kept.div(other, rounding_mode=rounding_mode))


def floor_divide(input, other):
    """By a number, rounded down."""
    return div(input, other, rounding_mode="floor")


def merged(x):
    """The same tensor with every place once."""
    return coalesce(x) if isinstance(x, SparseTensor) else x


def neg(input):
    return input._with(-input._values_kept)


def pow_(input, exponent):
    """To a power above 0, which leaves zeros as they are."""
    if not is_number(exponent) or not isinstance(input, Sparse):
        raise NotImplementedError("pow: of a sparse tensor to a number; write x.to_dense() ** exponent")
    if float(exponent) <= 0:
        raise NotImplementedError(
            f"pow: 0 ** {exponent} is not 0, so the result would not be sparse; write x.to_dense() ** {exponent}"
        )
    x = merged(input)
    return x._with(x._values_kept.pow(exponent))


def of_elements(name):
    """A function that leaves zeros as they are."""

    def function(input, *args, **kwargs):
        x = merged(input)
        return x._with(getattr(x._values_kept, name)(*args, **kwargs))

    function.__name__ = function.__qualname__ = name
    return function


OF_ELEMENTS = {
    name: of_elements(name)
    for name in str.split("""
        abs absolute arcsin arcsinh arctan arctanh asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac
        isinf isnan isneginf isposinf log1p nan_to_num rad2deg relu round sgn sign signbit sin sinh sqrt tan tanh trunc
        fix square conj_physical
    """)
}


# --- other types ------------------------------------------------------------------------------------------------------
def to(input, *args, **kwargs):
    """Another type, as of any tensor; itself if it is of that type."""
    args = [x.dtype if isinstance(x, Sparse) else x for x in args]
    values = input._values_kept.to(*args, **kwargs)
    return input if values is input._values_kept else input._with(values)


def of_type(name):
    """A method that converts, such as `float`."""

    def function(input, memory_format=None):
        values = getattr(input._values_kept, name)()
        return input if values is input._values_kept else input._with(values)

    function.__name__ = function.__qualname__ = name
    return function


def elsewhere(name):
    """A method that moves to another device, of which there is none."""

    def function(input, *args, **kwargs):
        getattr(input._values_kept, name)(*args, **kwargs)
        return input

    return function


def type_(input, dtype=None, non_blocking=False):
    """In another type; without one, the name of PyTorch's class for its own."""
    if dtype is None:
        module, _, name = input._values_kept.type().rpartition(".")
        return f"{module}.sparse.{name}" if isinstance(input, SparseTensor) else f"{module}.{name}"
    return to(input, input._values_kept.type(dtype).dtype)


def itself(input, *args, **kwargs):
    return input


# --- in place ---------------------------------------------------------------------------------------------------------
def _changed(target, made):
    """Let a tensor be what was made of it, if it may."""
    if isinstance(target, Sparse):
        if target.requires_grad and target.is_leaf and state.grad_enabled:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        made = made if type(made) is type(target) else made.to_sparse(layout=target.layout)
        if made.dtype is not target.dtype:
            made = to(made, target.dtype)
        return target.become(made)
    return target.copy_(made)


def add_(input, other, *, alpha=1):
    """A sparse tensor added in place, to one, or to a dense one."""
    if isinstance(input, Sparse) or not isinstance(other, Sparse):
        return _changed(input, add(input, other, alpha=alpha))
    _require_one_shape("add_", input, other)
    other = as_coordinates(other)
    result = promote(input.dtype, other.dtype)
    if result is not input.dtype and result.category > input.dtype.category:
        raise RuntimeError(f"result type {result.name} can't be cast to the desired output type {input.dtype.name}")
    sizes = other.sparse_sizes
    places = coordinates.flat(other._indices_kept, sizes)
    values = scaled(other._values_kept, alpha).to(input.dtype)
    if not input.is_contiguous() or other.sparse_dim() == 0:
        return input.copy_(_added_to(input, other, values))
    rows = input if other.sparse_dim() == 1 else input.view(coordinates.n_places(sizes), *other.dense_sizes)
    rows.index_add_(0, tensor_of(places), values)
    return input


def sub_(input, other, *, alpha=1):
    return add_(input, other, alpha=-alpha)


def mul_(input, other):
    return _changed(input, mul(input, other))


def div_(input, other, *, rounding_mode=None):
    return _changed(input, div(input, other, rounding_mode=rounding_mode))


def changing(function):
    """The form in place of a function of elements."""

    def changed(input, *args, **kwargs):
        return _changed(input, function(input, *args, **kwargs))

    changed.__name__ = changed.__qualname__ = f"{function.__name__}_"
    return changed


def zero_(input):
    """Keep no element any more."""
    return _changed(input, zeros_like(input))


def copy_(input, src, non_blocking=False):
    """Be what another tensor is; a dense one gets the elements of a sparse one."""
    if not isinstance(input, Sparse):
        return input.copy_(src.to_dense())
    if not isinstance(src, Sparse):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented: write src.to_sparse()")
    _require_one_shape("copy_", input, src)
    return _changed(input, src.clone())


def zeros_like(input, *, dtype=None, requires_grad=False, **placement):
    """A tensor of that shape that keeps no element."""
    made = empty_of(tuple(input.shape), as_coordinates(input).sparse_dim(), dtype or input.dtype)
    made = made if isinstance(input, SparseTensor) else made.to_sparse(layout=input.layout)
    return made.requires_grad_() if requires_grad else made


def any_(input):
    """Whether an element is not zero, as a tensor."""
    values = input._values_kept
    return (values if values.dtype is bool_ else values != 0).any()
