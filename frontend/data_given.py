"""Arrays of what `weft.tensor` is given: numbers, nested lists, arrays, tensors."""

import functools
from itertools import chain

import numpy as np

from .compiler import dtypes
from .compiler.dtypes import dtype_of
from .compiler.ops.table import OpError
from .compiler.storage import check_fits, convert
from .runtime.state.aligned import ALIGNED_BYTES, owned_copy
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor

_LISTS = {list, tuple}
_KINDS = {bool: dtypes.bool_, int: dtypes.int64, float: None, complex: None}
_FLOATS = dtypes.float32, dtypes.float64
_LARGEST = float(np.finfo(np.float32).max)
_FEW = 32  # numbers that are looked through


def type_of_numbers(kind):
    """The type of Python's numbers of a kind."""
    default = state.default_dtype
    return _KINDS[kind] or (default if kind is float else default.to_complex())


def array_of(data, dtype):
    """A new array of the data, with PyTorch's default types for Python numbers."""
    dtype = None if dtype is None else dtype_of(dtype)
    array = _of_array(data, dtype) if data.__class__ is np.ndarray else _of_one_kind(data, dtype)
    if array is not None:
        return array
    if isinstance(data, Tensor):
        data = data.detach().array
    elif isinstance(data, (list, tuple)) and _holds_tensors(data):
        dtype = dtype or functools.reduce(dtypes.promote, _types_in(data))
        data = _numbers_in(data, _depth(data), dtype)
    if isinstance(data, (np.ndarray, np.generic)):
        array = owned_copy(data)
        if array.dtype not in dtypes._BY_NUMPY:
            array = _narrowed(array)
        array = convert(array, dtype) if dtype else array
    else:
        array = _numbers(data)
        wanted = dtype or _common_type(data, array)
        array = _fitted(array, wanted) if wanted else array
    dtypes.from_numpy(array.dtype)
    return np.ascontiguousarray(array) if array.ndim else array


def _of_array(data, dtype):
    """The copy of a small array, or its real numbers as floats; None of others."""
    if data.nbytes >= ALIGNED_BYTES or data.dtype not in dtypes._BY_NUMPY:
        return None
    if dtype is None or data.dtype == dtype.numpy:
        return data.copy()
    if dtype not in _FLOATS or data.dtype.kind not in "fiub":
        return None
    if dtype is dtypes.float64:
        return data.astype(dtype.numpy, "C")
    with np.errstate(all="ignore"):
        return data.astype(dtype.numpy, "C")


def _of_one_kind(data, dtype):
    """The array of Python's numbers that are all of one kind, as most are; None of others, and of those that somebody
    has to be told of."""
    kind = data.__class__
    if kind is float:
        return _of_floats(data, -_LARGEST <= data <= _LARGEST, dtype or state.default_dtype)
    if kind in _LISTS:
        numbers = _flat(data)
        kinds = {*map(type, numbers)}
        kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if kind is float:
            # Where a NaN stands first nobody knows.
            are_held = len(numbers) <= _FEW and max(numbers) <= _LARGEST and min(numbers) >= -_LARGEST
            return _of_floats(data, are_held, dtype or state.default_dtype)
        if kind is int or kind is bool:
            return _of_whole(data, _KINDS[kind], dtype)
    except ValueError:
        pass  # lists of different lengths
    return None


def _flat(data):
    """What is in nested lists, one after the other; a list among it where they are not equally deep."""
    while data and data[0].__class__ in _LISTS and {*map(type, data)} <= _LISTS:
        data = [*chain.from_iterable(data)]
    return data


def _of_floats(data, are_held, dtype):
    if dtype.category < 2:
        return None
    # NumPy warns of what float32 does not hold. Looking for that is quicker than telling NumPy to be silent.
    if dtype is dtypes.float32 and are_held:
        return np.array(data, dtype.numpy)
    return convert(np.array(data), dtype)


def _of_whole(data, own, dtype):
    array = np.array(data)
    if array.dtype != own.numpy:
        return None  # an int above 64 bits
    if dtype is None or dtype is own:
        return array
    return convert(array, dtype) if dtype.category >= 2 else None


def _numbers(data):
    try:
        array = np.array(data)
        if array.dtype.kind in "biufc":
            return array
    except ValueError:
        pass  # lists of different lengths
    said = "expected numbers in equally long nested lists"
    strange = next((x for x in _leaves(data) if not isinstance(x, (int, float, complex, np.generic, np.ndarray))), None)
    if isinstance(strange, str):
        raise TypeError(f"tensor: invalid data type 'str': {said}, got {_clip(data)}")
    if not isinstance(data, (list, tuple)) or strange is not None or None in _leaves(data):
        raise RuntimeError(f"tensor: Could not infer dtype of {type(strange).__name__}; {said}, got {_clip(data)}")
    if len({*_depths(data)}) > 1:
        raise TypeError(f"tensor: {said}, got {_clip(data)}, where a list and a number are side by side")
    raise OpError(f"tensor: {said}, got {_clip(data)}")


def _leaves(data):
    """What is in nested lists, one after the other."""
    return chain.from_iterable(map(_leaves, data)) if isinstance(data, (list, tuple)) else (data,)


def _depths(data):
    """How deep in nested lists each of their leaves is."""
    if not isinstance(data, (list, tuple)):
        return (0,)
    return chain.from_iterable((depth + 1 for depth in _depths(part)) for part in data)


def _common_type(data, array):
    """The type of nested lists: that of NumPy's numbers in them, with the default type for Python floats."""
    if array.dtype.kind not in "fc" and array.size:
        return None
    found = _types_in(data)
    return functools.reduce(dtypes.promote, found) if found else state.default_dtype


def _types_in(data):
    if isinstance(data, Tensor):
        return {data.dtype}
    if isinstance(data, (list, tuple)):
        kinds = set(map(type, data))
        if kinds <= _KINDS.keys():
            return set(map(type_of_numbers, kinds))
        return set().union(*map(_types_in, data))
    kind = None if isinstance(data, np.generic) else next((kind for kind in _KINDS if isinstance(data, kind)), None)
    if kind is not None:
        return {type_of_numbers(kind)}
    return {dtypes.from_numpy(_narrowed(np.asarray(data)).dtype)}


def _narrowed(array):
    """Types weft does not have, where a wider one holds every value exactly."""
    kind = {"u2": np.int64, "u4": np.int64}
    wider = kind.get(array.dtype.str[1:])
    return array if wider is None else array.astype(wider)


def _fitted(array, dtype):
    """Python's numbers as elements of a type, which must hold them; unsigned ones wrap around."""
    if array.dtype.kind == "c" and not dtype.is_complex and dtype.category:
        raise TypeError(f"tensor: must be real numbers for {dtype.name}, not complex")
    if dtype.category == 1 and array.dtype.kind in "iuf" and array.size:
        check_fits(array.min(), array.max(), dtype)
    return convert(array, dtype)


def _clip(data):
    text = repr(data)
    return text if len(text) < 80 else text[:77] + "..."


# --- tensors in lists -------------------------------------------------------------------------------------------------
def _depth(data):
    """How many dimensions nested lists have, by the first element of each."""
    depth = 0
    while isinstance(data, (list, tuple)):
        depth += 1
        if not data:
            return depth
        data = data[0]
    return depth + (data.ndim if isinstance(data, np.ndarray) else 0)


def _holds_tensors(data):
    return any(isinstance(x, Tensor) or isinstance(x, (list, tuple)) and _holds_tensors(x) for x in data)


def _numbers_in(data, depth, dtype):
    """Nested lists with tensors in them as lists of numbers: where a number should be, a tensor is the one that it
    holds; where a list should be, a tensor is the list of its elements."""
    if depth == 0:
        return _number_in(data, dtype) if isinstance(data, Tensor) else data
    if isinstance(data, Tensor) and data.ndim:
        data = list(data)
    if isinstance(data, (list, tuple)):
        return [_numbers_in(part, depth - 1, dtype) for part in data]
    if isinstance(data, Tensor):
        raise TypeError(f"tensor: not a sequence: a tensor without dimensions among lists: {data.item()}")
    return data


def _number_in(x, dtype):
    """The number in a tensor of one element, of any shape."""
    if x.numel() != 1:
        raise ValueError(
            f"tensor: only one element tensors can be converted to Python scalars, and one in the list has the shape "
            f"{tuple(x.shape)}; weft.stack makes one tensor of several"
        )
    if dtype.category == 1 and x.dtype.category > 1:
        raise TypeError(
            f"tensor: only integer tensors of a single element can be converted to an index: one in the list is "
            f"{x.dtype.name}, and {dtype.name} was asked for"
        )
    return x.item()
