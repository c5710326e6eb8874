"""Functions that make tensors."""

import functools
from math import ceil, inf, isfinite, prod

import numpy as np

from .compiler import dtypes
from .compiler.dtypes import dtype_of
from .compiler.ops import comparison, source
from .compiler.ops.random import below, whole_between
from .compiler.ops.table import OpError
from .compiler.shapes import shape_given
from .compiler.storage import convert
from .data_given import array_of, type_of_numbers
from .placement import beside, check_placement, gpu_for, made_like, made_on, place_like
from .runtime.state import marks, random
from .runtime.state.aligned import PAGED_BYTES, zeroed_array
from .runtime.state.device import gpu_given
from .runtime.state.exposure import shown
from .runtime.state.modes import state, watching
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor, _apply, shape_of, tensor_of
from .spacing import facts_of, spaced, whole_spacing


def plain(number):
    """A Python number for a NumPy scalar or a tensor of one element."""
    return number.item() if isinstance(number, (np.generic, Tensor)) else number


def size_given(sizes, size=None):
    """zeros(2, 3), zeros((2, 3)), zeros([2, 3]) and zeros(size=(2, 3)) alike."""
    size = sizes if size is None else (size,)
    given = size[0] if len(size) == 1 and isinstance(size[0], tuple) else size
    for d in given:
        if d.__class__ is not int or d < 0:
            break
    else:
        if given:
            return given
    shape = shape_given(size)
    if shape and min(shape) < 0:
        raise RuntimeError(f"trying to create a tensor with negative dimension: {shape}")
    return shape


def _finish(tensor, requires_grad):
    if requires_grad:
        tensor.requires_grad = True
    return tensor


def tensor(data, *, dtype=None, requires_grad=False, **placement):
    """A leaf tensor holding a copy of `data`: a number, nested lists, an array, a tensor.

    Python floats get the default dtype (float32), ints int64, bools bool; arrays keep theirs. ValueError for ragged
    lists, TypeError for types weft does not have.
    """
    if placement and (gpu := gpu_for("tensor", placement)):
        return made_on(gpu, tensor, data, dtype=dtype, requires_grad=requires_grad)
    made = tensor_of(array_of(data, dtype))
    if requires_grad:
        made.requires_grad = True
    return made


def _from_user(*data):
    """Tensor's constructor as in PyTorch: Tensor(2, 3) has that shape, as has Tensor(x.shape), and Tensor([2, 3])
    those elements.

    The default dtype, whatever the elements are; of a tensor, the tensor under another name; of an array of the
    default dtype, the array's memory. TypeError for a number that is no size.
    """
    if len(data) == 1 and isinstance(data[0], np.ndarray):
        if data[0].ndim or data[0].dtype.kind not in "iu":
            return from_numpy(data[0]).to(state.default_dtype)
        data = (int(data[0]),)
    if len(data) == 1 and isinstance(data[0], Size):
        data = data[0]
    if all(isinstance(d, (int, np.integer)) and not isinstance(d, bool) for d in data):
        return empty(*data)
    if len(data) > 1:
        given = ", ".join(type(d).__name__ for d in data)
        raise TypeError(f"Tensor: got ({given}); expected sizes, as in Tensor(2, 3), or one sequence of numbers")
    if isinstance(data[0], Tensor):
        return data[0].view(data[0].shape)
    if not _is_sequence(data[0]):
        raise TypeError(f"Tensor: data must be a sequence (got {type(data[0]).__name__}); use weft.tensor for a number")
    return tensor(list(data[0]), dtype=state.default_dtype)


def _instance(cls, *data):
    made = _from_user(*data)
    return made if cls is Tensor else made.as_subclass(cls)


Tensor._from_user = staticmethod(_instance)


def _is_sequence(x):
    """What the older constructors take elements from: lists and tuples, columns of a table, what a user's class has."""
    if isinstance(x, (str, bytes, dict, np.generic)):
        return False
    return hasattr(type(x), "__len__") and hasattr(type(x), "__getitem__")


def tensor_of_others(value):
    """Arrays of NumPy's and tensors of other libraries as tensors of weft's; anything else as it is."""
    if isinstance(value, (Tensor, np.generic)) or not hasattr(value, "__array__"):
        return value
    value = value.detach() if hasattr(value, "detach") else value
    return tensor(np.asarray(value))


def as_tensor(data, dtype=None, device=None):
    """Like `tensor`, but without a copy where the data already is a tensor or array of the type."""
    gpu = None if device is None else gpu_given("as_tensor", device)
    if gpu is not None or device is not None and isinstance(data, Tensor):
        made = as_tensor(data, dtype)
        return made.to(device)
    if dtype is None:
        found = shown(data)
        if found is not None:
            return found
    else:
        dtype = dtype_of(dtype)
    if isinstance(data, Tensor):
        return data if dtype is None or dtype is data.dtype else comparison.cast(data, dtype=dtype)
    if (
        isinstance(data, np.ndarray)
        and data.dtype in dtypes._BY_NUMPY
        and dtype in (None, dtypes._BY_NUMPY[data.dtype])
        and _has_whole_strides(data)
    ):
        return Tensor.showing(data)
    return tensor(data, dtype=dtype)


def _has_whole_strides(array):
    """Whether neighbours are a whole number of elements apart: not so in fields of records, say."""
    return not any(step % array.itemsize for step in array.strides)


def from_numpy(array):
    """A tensor sharing memory with the array. TypeError for types weft does not have, ValueError for strides that are
    no whole numbers of elements."""
    found = shown(array)
    if found is not None:
        return found
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    dtypes.from_numpy(array.dtype)
    if not _has_whole_strides(array):
        raise ValueError(
            f"from_numpy: given numpy array strides {array.strides} not a multiple of the element byte size "
            f"{array.itemsize}. Copy the array to reallocate the memory."
        )
    return Tensor.showing(array)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None):
    """`tensor` or `as_tensor` of anything: copy=True copies, copy=False is a ValueError where it cannot be avoided.

    requires_grad: False cuts the result from the graph that obj may be of.
    """
    if gpu_given("asarray", device) is not None:
        return _finish(asarray(obj, dtype=dtype).to(device), requires_grad)
    shared = as_tensor(obj, dtype=dtype)
    shares = isinstance(obj, (Tensor, np.ndarray)) and np.may_share_memory(shared.detach().array, _array_of(obj))
    if copy is False and not shares:
        raise ValueError("asarray: can't alias or convert this without a copy; leave copy=False out")
    made = shared.clone() if copy and shares else shared
    return made.detach() if requires_grad is False and made.requires_grad else _finish(made, requires_grad)


def _array_of(obj):
    return obj.detach().array if isinstance(obj, Tensor) else obj


def full(size, fill_value, *, dtype=None, requires_grad=False, **placement):
    if placement and (gpu := gpu_for("full", placement)):
        return made_on(gpu, full, size, fill_value, dtype=dtype, requires_grad=requires_grad)
    if dtype is None and fill_value.__class__ in _NUMBERS and size.__class__ is tuple:
        return filled(size_given((size,)), fill_value, type_of_numbers(fill_value.__class__), requires_grad)
    if isinstance(size, (int, np.integer)):
        size = (size,)
    if dtype is None and isinstance(fill_value, Tensor):
        dtype = fill_value.dtype
    fill_value = plain(fill_value)
    if not hasattr(fill_value, "__float__") and not isinstance(fill_value, complex):
        raise TypeError(f"full(): argument 'fill_value' (position 2) must be Number, not {type(fill_value).__name__}")
    dtype = type_of_numbers(type(fill_value)) if dtype is None else dtype
    return filled(size_given((size,)), fill_value, dtype, requires_grad)


def filled(shape, number, dtype, requires_grad):
    if dtype.__class__ is not dtypes.DType:
        dtype = dtype_of(dtype)
    made = _zeros_at_once(shape, dtype) if number.__class__ is int and number == 0 else None
    if made is None:
        made = _apply(source.full, (number,), {"shape": shape, "dtype": dtype})
    return _finish(made, requires_grad) if requires_grad else made


def _zeros_at_once(shape, dtype):
    """A tensor, if an op would take longer to find than the few elements take, which are of another shape each time in
    many loops, or so many need not be written: outside of calls in flight, where nobody looks on."""
    made = marks.zeros(shape, dtype.numpy) if dtype.__class__ is dtypes.DType else None
    if made is not None:
        return made
    if dtype not in _PLAIN or state.frame is not None or watching:
        return None
    n = prod(shape)
    if n <= _SMALL:
        return tensor_of(np.zeros(shape, dtype.numpy))
    return tensor_of(zeroed_array(shape, dtype.numpy)) if n * dtype.size_bytes >= PAGED_BYTES else None


_PLAIN = frozenset((dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_))


def zeros(*sizes, size=None, dtype=None, requires_grad=False, **placement):
    if placement and (gpu := gpu_for("zeros", placement)):
        return made_on(gpu, zeros, *sizes, size=size, dtype=dtype, requires_grad=requires_grad)
    shape, dtype = size_given(sizes, size), dtype or state.default_dtype
    made = _zeros_at_once(shape, dtype)
    return filled(shape, 0, dtype, requires_grad) if made is None or requires_grad else made


def ones(*sizes, size=None, dtype=None, requires_grad=False, **placement):
    if placement and (gpu := gpu_for("ones", placement)):
        return made_on(gpu, ones, *sizes, size=size, dtype=dtype, requires_grad=requires_grad)
    return filled(size_given(sizes, size), 1, dtype or state.default_dtype, requires_grad)


def empty(*sizes, size=None, dtype=None, requires_grad=False, **placement):
    """Zeros: memory that was never written would make results depend on the past."""
    if placement and (gpu := gpu_for("empty", placement)):
        return made_on(gpu, empty, *sizes, size=size, dtype=dtype, requires_grad=requires_grad)
    return filled(size_given(sizes, size), 0, dtype or state.default_dtype, requires_grad)


def full_like(input, fill_value, *, dtype=None, requires_grad=False, **placement):
    if placement or input._data is None:
        made = made_like("full_like", input, full, fill_value, dtype, requires_grad, placement)
        if made is not None:
            return made
    return full(input.shape, fill_value, dtype=dtype or input.dtype, requires_grad=requires_grad)


def zeros_like(input, *, dtype=None, requires_grad=False, **placement):
    if placement or input._data is None:
        made = made_like("zeros_like", input, full, 0, dtype, requires_grad, placement)
        if made is not None:
            return made
    return filled(shape_of(input), 0, dtype or input.dtype, requires_grad)


def ones_like(input, *, dtype=None, requires_grad=False, **placement):
    if placement or input._data is None:
        made = made_like("ones_like", input, full, 1, dtype, requires_grad, placement)
        if made is not None:
            return made
    return filled(input.shape, 1, dtype or input.dtype, requires_grad)


empty_like = zeros_like


def arange(begin=None, /, end=..., step=1, *, start=None, dtype=None, requires_grad=False, **placement):
    """start, start + step, ... below end; arange(n) counts from 0. int64 if all three are ints, else the default."""
    if placement and (gpu := gpu_for("arange", placement)):
        return made_on(gpu, arange, begin, end, step=step, start=start, dtype=dtype, requires_grad=requires_grad)
    if begin is None or start is not None:
        start = _named_start(begin, start, end, step)
    elif end is ...:
        if step != 1:
            raise TypeError(
                'arange(): missing argument "end": a step stands after start and end, as in arange(0, 5, 2)'
            )
        start, end = 0, begin
    else:
        start = begin
    if dtype is None and start.__class__ is end.__class__ is step.__class__ is int and start <= end and step > 0:
        # Nearly always, and nothing has to be asked of these.
        shape = ((end - start + step - 1) // step,)
        at_once = not _SMALL < shape[0] < PAGED_BYTES // 8 and state.frame is None and not watching
        if at_once and -_EXACT < start <= end < _EXACT:
            return _finish(tensor_of(np.arange(start, end, step)), requires_grad)
        return _finish(_apply(source.arange, (start, step), {"shape": shape, "dtype": dtypes.int64}), requires_grad)
    if not (start.__class__ in _NUMBERS and end.__class__ in _NUMBERS and step.__class__ in _NUMBERS):
        # A bool counts as the number it is.
        start, end, step = (int(v) if isinstance(v, bool) else v for v in map(_real, (start, end, step)))
    if not isfinite(start) or not isfinite(end):
        raise RuntimeError(f"arange: unsupported range: {start} -> {end}")
    if step == 0:
        raise RuntimeError("arange: step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(f"arange: upper bound and lower bound inconsistent with step sign: {start}, {end}, {step}")
    whole = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
    dtype = dtype_of(dtype or (dtypes.int64 if whole else state.default_dtype))
    if dtype is dtypes.int64 and not whole:
        start, end, step = map(int, (start, end, step))
        if step == 0:
            raise OpError("arange: step must be nonzero, and it is less than 1 for integers")
    count = ceil((end - start) / step)
    if dtype.category == 1:
        # As PyTorch: the numbers lose their fractions before anything is added up. (Of smaller types than int64 there
        # are as many as without that.)
        start, step = int(start), int(step)
    return _finish(_apply(source.arange, (start, step), {"shape": (count,), "dtype": dtype}), requires_grad)


_NUMBERS = (int, float)


def _named_start(begin, start, end, step):
    """Where an arange starts whose bounds are given by name, which PyTorch takes in fewer ways."""
    if begin is not None:
        raise TypeError("arange(): got its start twice, by position and by name")
    if end is ...:
        raise TypeError('arange(): missing argument "end"')
    if start is None and step != 1:
        raise TypeError("arange(): a step needs a start, as in arange(start=0, end=5, step=2)")
    return start or 0


def _real(x):
    """A bound or step of arange as a plain number."""
    if isinstance(x, Tensor) and x.ndim:
        raise TypeError(f"arange(): bounds and step must be Number, not Tensor (of shape {tuple(x.shape)})")
    x = plain(x)
    if not hasattr(x, "__float__") and not isinstance(x, complex):
        raise TypeError(f"arange(): bounds and step must be Number, not {type(x).__name__}")
    if not isinstance(x, complex):
        return x
    raise RuntimeError(f"arange: value cannot be converted to type double without overflow: {x}")


def linspace(start, end, steps, *, dtype=None, requires_grad=False, **placement):
    """`steps` numbers from start to end, both included."""
    if placement and (gpu := gpu_for("linspace", placement)):
        return made_on(gpu, linspace, start, end, steps, dtype=dtype, requires_grad=requires_grad)
    start, end, steps = check_spacing("linspace", start, end, steps)
    dtype = dtype_of(dtype or type_of_numbers(complex if complex in (start.__class__, end.__class__) else float))
    if not dtype.is_floating_point:
        values = whole_spacing(start, end, steps, dtype) if dtype.category == 1 else np.linspace(start, end, steps)
        return _finish(tensor_of(convert(values, dtype)), requires_grad)
    if dtype.is_half:
        return _finish(comparison.cast(linspace(start, end, steps, dtype=dtype.wide), dtype=dtype), requires_grad)
    if steps <= _SMALL and start.__class__ in _NUMBERS and end.__class__ in _NUMBERS:
        return _finish(tensor_of(spaced(start, end, steps, dtype).copy()), requires_grad)
    if dtype is dtypes.float32 and steps > _SMALL:
        made = _apply(source.spaced, facts_of(start, end, steps), {"shape": (steps,), "dtype": dtype})
        return _finish(made, requires_grad)
    return _finish(tensor_of(spaced.__wrapped__(start, end, steps, dtype)), requires_grad)


def check_spacing(name, start, end, steps):
    """(start, end, steps) as plain numbers; an error for what is none."""
    if (
        isinstance(steps, (float, complex, str))
        or steps is None
        or isinstance(steps, Tensor)
        and steps.dtype.category > 1
    ):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    for which, x in (("start", start), ("end", end)):
        if isinstance(x, Tensor) and x.ndim:
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got {which} with {x.ndim} dimension(s)."
            )
    if steps < 0:
        raise RuntimeError(f"{name}: number of steps must be non-negative, got {steps}")
    return plain(start), plain(end), int(steps)


def eye(n, m=None, *, dtype=None, requires_grad=False, **placement):
    if placement and (gpu := gpu_for("eye", placement)):
        return made_on(gpu, eye, n, m, dtype=dtype, requires_grad=requires_grad)
    if n < 0 or m is not None and m < 0:
        raise RuntimeError(f"eye: n and m must be greater or equal to 0, got {n} and {m}")
    dtype = dtype_of(dtype or state.default_dtype)
    is_known = n.__class__ is int and (m is None or m.__class__ is int) and n * (n if m is None else m) <= _SMALL
    array = _identity(n, m, dtype).copy() if is_known else _identity.__wrapped__(n, m, dtype)
    return _finish(tensor_of(array), requires_grad)


_SMALL, _EXACT, _NUMBERS = 1 << 12, 1 << 60, (int, float)


marks.of_numbers(linspace, eye)


@functools.lru_cache(64)
def _identity(n, m, dtype):
    return np.eye(n, m, dtype=dtype.numpy) if dtype.numpy.kind in "biuf" else convert(np.eye(n, m), dtype)


# --- random ---------------------------------------------------------------------------------------------------------
def rand(*sizes, size=None, dtype=None, requires_grad=False, generator=None, **placement):
    """Uniform numbers in [0, 1)."""
    if placement and (gpu := gpu_for("rand", placement)):
        return made_on(gpu, rand, *sizes, size=size, dtype=dtype, requires_grad=requires_grad, generator=generator)
    dtype = state.default_dtype if dtype is None else dtype_of(dtype)
    made = random.uniform(size_given(sizes, size), dtype, generator)
    return _finish(made, requires_grad) if requires_grad else made


def randn(*sizes, size=None, dtype=None, requires_grad=False, generator=None, **placement):
    """Standard normal numbers."""
    if placement and (gpu := gpu_for("randn", placement)):
        return made_on(gpu, randn, *sizes, size=size, dtype=dtype, requires_grad=requires_grad, generator=generator)
    dtype = state.default_dtype if dtype is None else dtype_of(dtype)
    made = random.normal(size_given(sizes, size), dtype, generator)
    return _finish(made, requires_grad) if requires_grad else made


def rand_like(input, *, dtype=None, **options):
    place_like(input, options)
    return rand(input.shape, dtype=dtype or input.dtype, **options)


def randn_like(input, *, dtype=None, **options):
    place_like(input, options)
    return randn(input.shape, dtype=dtype or input.dtype, **options)


def randint_like(input, low=0, high=None, *, dtype=None, **options):
    if high is None:
        low, high = 0, low
    place_like(input, options)
    return randint(low, high, input.shape, dtype=dtype or input.dtype, **options)


def randint(low=0, high=None, size=None, *, dtype=None, requires_grad=False, generator=None, **placement):
    """Integers in [low, high), uniform up to a bias of 2^-53 times their number."""
    if placement and (gpu := gpu_for("randint", placement)):
        return made_on(gpu, randint, low, high, size, dtype=dtype, requires_grad=requires_grad, generator=generator)
    if size is None:
        low, high, size = 0, low, high
        if size is None:
            raise TypeError("randint(): argument 'size' is missing: randint(high, size) or randint(low, high, size)")
    elif high is None:
        low, high = 0, low
    if high <= low:
        raise RuntimeError(f"randint: expects low < high, got {low} and {high}")
    numbers, dtype = (float(high - low), float(low)), dtypes.int64 if dtype is None else dtype_of(dtype)
    made = random.draw(whole_between, numbers, size_given((size,)), dtypes.float64, generator, type=dtype)
    return _finish(made, requires_grad)


def randperm(n, *, dtype=None, requires_grad=False, generator=None, **placement):
    """A random permutation of 0 ... n-1."""
    if placement and (gpu := gpu_for("randperm", placement)):
        return made_on(gpu, randperm, n, dtype=dtype, requires_grad=requires_grad, generator=generator)
    order = random.permuted(n, generator)
    dtype = dtype_of(dtype or dtypes.int64)
    return _finish(order if dtype is dtypes.int64 else comparison.cast(order, dtype=dtype), requires_grad)


def normal(mean, std=1.0, size=None, *, dtype=None, generator=None, requires_grad=False, **placement):
    """Normal numbers; mean and std may be tensors, whose shape the result then has."""
    if placement:
        check_placement("normal", placement)
    if size is None:
        size, dtype = (mean, mean.dtype) if isinstance(mean, Tensor) else (std, std.dtype)
        size = size.shape
    if isinstance(std, Tensor):
        std = comparison.within(std, low=0.0, high=inf, message="normal expects all elements of std >= 0.0")
    elif not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    dtype = state.default_dtype if dtype is None else dtype_of(dtype)
    return _finish(random.normal(size_given((size,)), dtype, generator, std, mean), requires_grad)


def bernoulli(input, p=None, *, generator=None):
    """1 with the probability given by each element of input, or by the number p, and 0 otherwise."""
    continuous = input.dtype if input.dtype.is_differentiable else state.default_dtype
    if p is None:
        p = comparison.within(input, low=0.0, high=1.0, message="bernoulli: expects all elements to be in [0, 1]")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli expects p to be in [0, 1], but got p={p}")
    if isinstance(p, Tensor) or continuous.is_half or continuous.is_complex:
        draw = beside(random.uniform(input.shape, continuous, generator), input)
        return comparison.cast(comparison.lt(draw, p if isinstance(p, Tensor) else plain(p)), dtype=input.dtype)
    return beside(random.draw(below, (float(plain(p)),), input.shape, continuous, generator, type=input.dtype), input)


PUBLIC = str.split("""
    tensor as_tensor from_numpy full zeros ones empty full_like zeros_like ones_like empty_like arange linspace eye rand
    randn rand_like randn_like randint randint_like randperm normal bernoulli asarray
""")
METHODS = ["bernoulli"]
