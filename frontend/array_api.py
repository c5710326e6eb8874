"""The functions of the Python array API standard (2024.12), on weft's tensors: `x.__array_namespace__()`.

Libraries that are written for any array, such as parts of SciPy and scikit-learn, take these names and keywords
(`axis`, `keepdims`) where weft has PyTorch's. Everything here is made of weft's functions, so gradients go through, and
compiled functions compile it. What the standard leaves open is as in PyTorch. Tensors keep `size()` as the method that
it is in PyTorch; `array_api_compat.size(x)` asks for the number of elements.

Source: https://data-apis.org/array-api/2024.12
"""

import sys as _sys
from collections import namedtuple as _namedtuple
from math import e, inf, nan, pi  # noqa: F401
from math import prod as _product

from . import array_api_fft as fft  # noqa: F401
from . import array_api_linalg as linalg  # noqa: F401
from .array_api_linalg import matmul, matrix_transpose, tensordot, vecdot  # noqa: F401

_weft = _sys.modules[__name__.rpartition(".")[0]]
__array_api_version__ = "2024.12"
newaxis = None

# The same function under the same name.
_SAME = str.split("""
    abs acos acosh asin asinh atan atanh add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor ceil copysign cos cosh exp expm1 floor floor_divide greater greater_equal hypot imag isfinite
    isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor
    maximum minimum multiply negative nextafter not_equal pow reciprocal remainder round sign signbit sin sinh
    square sqrt subtract tan tanh trunc can_cast conj from_dlpack real searchsorted
""")
_DTYPES = str.split("""
    bool int8 int16 int32 int64 uint8 float32 float64 complex64 complex128
""")
for _name in (*_SAME, *_DTYPES):
    globals()[_name] = getattr(_weft, _name)
bitwise_invert, divide, equal = _weft.bitwise_not, _weft.true_divide, _weft.eq


def _is_tensor(x):
    return isinstance(x, _weft.Tensor)


def _axes(x, axis):
    """Axes as a tuple of numbers from 0 on; all of them for None."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(k % (x.ndim or 1) for k in (axis if isinstance(axis, tuple) else (axis,)))


# --- making arrays ----------------------------------------------------------------------------------------------------
def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """A tensor of numbers, lists, arrays or tensors; the same memory where that can be and `copy` is not True."""
    if _is_tensor(obj):
        wanted = obj.dtype if dtype is None else dtype
        if wanted is obj.dtype:
            return obj.clone() if copy else obj
        if copy is False:
            raise ValueError(f"asarray: a tensor of {obj.dtype} cannot become one of {wanted} without a copy")
        return obj.to(wanted)
    if copy is False:
        return _weft.from_dlpack(obj) if dtype is None else asarray(_weft.from_dlpack(obj), dtype=dtype, copy=False)
    return _weft.tensor(obj, dtype=dtype) if copy else _weft.as_tensor(obj, dtype=dtype)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    start, stop = (0, start) if stop is None else (start, stop)
    if (stop - start) * step <= 0:
        floating = isinstance(start + stop + step, float)
        return _weft.empty(0, dtype=dtype or (_weft.get_default_dtype() if floating else _weft.int64))
    return _weft.arange(start, stop, step, dtype=dtype)


def _of_shape(make):
    def made(shape, *, dtype=None, device=None):
        return make(shape if isinstance(shape, tuple) else (shape,), dtype=dtype)

    made.__name__ = make.__name__
    return made


empty, ones, zeros = map(_of_shape, (_weft.empty, _weft.ones, _weft.zeros))


def _like(make):
    def made(x, /, *, dtype=None, device=None):
        return make(x, dtype=dtype)

    made.__name__ = make.__name__
    return made


empty_like, ones_like, zeros_like = map(_like, (_weft.empty_like, _weft.ones_like, _weft.zeros_like))


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return _weft.full_like(x, fill_value, dtype=dtype)


def tril(x, /, *, k=0):
    return _weft.tril(x, k)


def triu(x, /, *, k=0):
    return _weft.triu(x, k)


def full(shape, fill_value, *, dtype=None, device=None):
    return _weft.full(shape if isinstance(shape, tuple) else (shape,), fill_value, dtype=dtype)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    n_cols = n_rows if n_cols is None else n_cols
    distance = _weft.arange(n_cols) - _weft.arange(n_rows).reshape(-1, 1)
    return (distance == k).to(dtype or _weft.get_default_dtype())


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    if endpoint:
        return _weft.linspace(start, stop, num, dtype=dtype)
    return _weft.linspace(start, stop, num + 1, dtype=dtype)[:-1]


def meshgrid(*arrays, indexing="xy"):
    return list(_weft.meshgrid(*arrays, indexing=indexing)) if arrays else []


# --- types ------------------------------------------------------------------------------------------------------------
def astype(x, dtype, /, *, copy=True, device=None):
    return x.to(dtype, copy=copy)


_Floats = _namedtuple("finfo_object", "bits eps max min smallest_normal dtype")
_Integers = _namedtuple("iinfo_object", "bits max min dtype")


def finfo(type, /):
    """The limits of a floating type, or of a tensor's; of complex numbers those of their parts."""
    found = _weft.finfo(getattr(type, "dtype", type))
    return _Floats(found.bits, found.eps, found.max, found.min, found.smallest_normal, getattr(_weft, found.dtype))


def iinfo(type, /):
    """The limits of an integer type, or of a tensor's."""
    found = _weft.iinfo(getattr(type, "dtype", type))
    return _Integers(found.bits, found.max, found.min, getattr(_weft, found.dtype))


def result_type(*arrays_and_dtypes):
    """The type that PyTorch's promotion gives all of them."""
    tensors = [x if not isinstance(x, type(_weft.bool)) else _weft.empty(1, dtype=x) for x in arrays_and_dtypes]
    found = tensors[0]
    for x in tensors[1:]:
        found = _weft.empty(1, dtype=_weft.result_type(found, x))
    return found.dtype if _is_tensor(found) else _weft.as_tensor(found).dtype


_KINDS = {
    "bool": ["bool"],
    "signed integer": str.split("int8 int16 int32 int64"),
    "unsigned integer": ["uint8"],
    "real floating": str.split("float32 float64"),
    "complex floating": str.split("complex64 complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


def isdtype(dtype, kind):
    """Whether a type is one of a kind such as "real floating", is a type, or is one of a tuple of those."""
    if isinstance(kind, tuple):
        return True in [isdtype(dtype, k) for k in kind]
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: {kind!r} must be one of {', '.join(_KINDS)}")
        return dtype.name in _KINDS[kind]
    return dtype is kind


# --- one element after the other --------------------------------------------------------------------------------------
def positive(x, /):
    return +x


def clip(x, /, min=None, max=None):
    return x.clone() if min is None and max is None else _weft.clamp(x, min, max)


def where(condition, x1, x2, /):
    return _weft.where(condition, x1, x2)


# --- shapes -----------------------------------------------------------------------------------------------------------
def broadcast_to(x, /, shape):
    return _weft.broadcast_to(x, shape)


def broadcast_arrays(*arrays):
    return list(_weft.broadcast_tensors(*arrays))


def concat(arrays, /, *, axis=0):
    if axis is None:
        return _weft.cat([x.flatten() for x in arrays])
    return _weft.cat(list(arrays), axis)


def stack(arrays, /, *, axis=0):
    return _weft.stack(list(arrays), axis)


def unstack(x, /, *, axis=0):
    return tuple(_weft.unbind(x, axis))


def expand_dims(x, /, axis=0):
    return _weft.unsqueeze(x, axis)


def squeeze(x, /, axis):
    axes = _axes(x, axis)
    for k in axes:
        if x.shape[k] != 1:
            raise ValueError(f"squeeze: axis {k} of shape {tuple(x.shape)} has {x.shape[k]} elements, not one")
    return _weft.squeeze(x, axes)


def flip(x, /, *, axis=None):
    return _weft.flip(x, _axes(x, axis))


def moveaxis(x, source, destination, /):
    return _weft.moveaxis(x, source, destination)


def permute_dims(x, /, axes):
    return _weft.permute(x, axes)


def reshape(x, /, shape, *, copy=None):
    if copy is False:
        return x.view(shape)
    return _weft.reshape(x.clone() if copy else x, shape)


def repeat(x, repeats, /, *, axis=None):
    return _weft.repeat_interleave(x, repeats, dim=axis)


def roll(x, /, shift, *, axis=None):
    return _weft.roll(x, shift, axis)


def tile(x, repetitions, /):
    return _weft.tile(x, repetitions)


def take(x, indices, /, *, axis=None):
    return _weft.index_select(x, 0 if axis is None else axis, indices)


def take_along_axis(x, indices, /, *, axis=-1):
    return _weft.take_along_dim(x, indices, axis)


# --- sums and extremes ------------------------------------------------------------------------------------------------
def _wide(x, dtype):
    """The type of sums: at least 64 bits for integers."""
    return dtype or (_weft.int64 if isdtype(x.dtype, ("bool", "integral")) else x.dtype)


def _kept(result, x, axes, keepdims):
    """A reduction over all axes, with the shape that was asked for."""
    return result.reshape([1 if k in axes else d for k, d in enumerate(x.shape)]) if keepdims else result


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    axes = _axes(x, axis)
    x = x.to(_wide(x, dtype))
    return _weft.sum(x, axes, keepdim=keepdims) if axes else x.clone()


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    axes = sorted(_axes(x, axis), reverse=True)
    x = x.to(_wide(x, dtype))
    for k in axes:
        x = _weft.prod(x, k, keepdim=keepdims)
    return x if axes else x.clone()


def mean(x, /, *, axis=None, keepdims=False):
    axes = _axes(x, axis)
    return _weft.mean(x, axes, keepdim=keepdims) if axes else x.clone()


def max(x, /, *, axis=None, keepdims=False):
    axes = _axes(x, axis)
    return _weft.amax(x, axes, keepdim=keepdims) if axes else x.clone()


def min(x, /, *, axis=None, keepdims=False):
    axes = _axes(x, axis)
    return _weft.amin(x, axes, keepdim=keepdims) if axes else x.clone()


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    axes = _axes(x, axis)
    mean_ = mean(x, axis=axes, keepdims=True)
    n = _product(x.shape[k] for k in axes)
    return sum((x - mean_) ** 2, axis=axes, keepdims=keepdims) / (n - correction)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    return _weft.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def all(x, /, *, axis=None, keepdims=False):
    return _truths(_weft.all, x, axis, keepdims)


def any(x, /, *, axis=None, keepdims=False):
    return _truths(_weft.any, x, axis, keepdims)


def _truths(function, x, axis, keepdims):
    axes = sorted(_axes(x, axis), reverse=True)
    x = x.to(_weft.bool)
    for k in axes:
        x = function(x, k, keepdim=keepdims)
    return x if axes else x.clone()


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return sum(x != 0, axis=axis, keepdims=keepdims)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    return _running(_weft.cumsum, _weft.zeros, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    return _running(_weft.cumprod, _weft.ones, x, axis, dtype, include_initial)


def _running(function, initial, x, axis, dtype, include_initial):
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"an axis must be given for a tensor of {x.ndim} dimensions")
        axis = 0
    result = function(x.to(_wide(x, dtype)), axis)
    if include_initial:
        shape = [1 if k == axis % x.ndim else d for k, d in enumerate(x.shape)]
        result = _weft.cat([initial(shape, dtype=result.dtype), result], axis)
    return result


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    return _weft.diff(x, n, axis, prepend, append)


# --- order, search, sets ----------------------------------------------------------------------------------------------
def argmax(x, /, *, axis=None, keepdims=False):
    return _position(_weft.argmax, x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    return _position(_weft.argmin, x, axis, keepdims)


def _position(function, x, axis, keepdims):
    if axis is None:
        return _kept(function(x), x, _axes(x, None), keepdims)
    return function(x, axis, keepdim=keepdims)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return _weft.sort(x, dim=axis, descending=descending, stable=stable)[0]


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return _weft.argsort(x, dim=axis, descending=descending, stable=stable)


def nonzero(x, /):
    if x.ndim == 0:
        raise ValueError("nonzero: a tensor without dimensions has no positions")
    return tuple(_weft.nonzero(x, as_tuple=True))


_All = _namedtuple("unique_all_result", "values indices inverse_indices counts")
_Counts = _namedtuple("unique_counts_result", "values counts")
_Inverse = _namedtuple("unique_inverse_result", "values inverse_indices")


def unique_all(x, /):
    values, inverse, counts = _weft.unique(x, return_inverse=True, return_counts=True)
    flat = inverse.flatten()
    # The stable order puts the first position of every value at the beginning of its stretch.
    first = _weft.argsort(flat, stable=True)[_weft.cumsum(counts, 0) - counts]
    return _All(values, first, inverse.reshape(x.shape), counts)


def unique_counts(x, /):
    values, counts = _weft.unique(x, return_counts=True)
    return _Counts(values, counts)


def unique_inverse(x, /):
    values, inverse = _weft.unique(x, return_inverse=True)
    return _Inverse(values, inverse.reshape(x.shape))


def unique_values(x, /):
    return _weft.unique(x)


# --- what there is ----------------------------------------------------------------------------------------------------
class _Info:
    """`__array_namespace_info__()`: what this namespace offers."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        return _weft.device("cpu")

    def default_dtypes(self, *, device=None):
        floating = _weft.get_default_dtype()
        of_parts = _weft.complex128 if floating is _weft.float64 else _weft.complex64
        return {
            "real floating": floating,
            "complex floating": of_parts,
            "integral": _weft.int64,
            "indexing": _weft.int64,
        }

    def devices(self):
        return [_weft.device("cpu")]

    def dtypes(self, *, device=None, kind=None):
        return {name: globals()[name] for name in _DTYPES if kind is None or isdtype(globals()[name], kind)}


def __array_namespace_info__():
    return _Info()
