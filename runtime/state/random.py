"""The random generators: a seed and a count of calls. What a call draws depends on these two numbers alone."""

import os
from contextlib import suppress
from math import prod

import numpy as np

from ...compiler import dtypes
from ...compiler.later import later
from ...compiler.ops.arithmetic import floor, mul
from ...compiler.ops.comparison import cast
from ...compiler.ops.complex_numbers import complex_
from ...compiler.ops.random import between as drawn_between
from ...compiler.ops.random import call_key, call_keys, scaled_normal
from ...compiler.ops.random import normal as drawn_normal
from ...compiler.ops.random import uniform as uniform_op
from . import tensor
from .device import CPU, require_cpu
from .modes import state, watching
from .tensor import Tensor, _apply, tensor_of

_HALF_BITS = {dtypes.float16: 11, dtypes.bfloat16: 8}
_NUMBERS = (float, int)
_NOT_READY = (), 0, 0  # keys that were made before they are asked for, the draw of the first, and their seed
_ONE_BY_ONE = 8  # draws after which a seed is likely to have many more
_KEYS_AT_ONCE, _MOST_KEYS = 64, 1024  # 64 take as long as a dozen one by one; as many as there were, then, up to 1024
_MOST_AT_ONCE = 1 << 12  # elements: of more the steps take longer than the calls
_LOWEST, _END = -(1 << 63), 1 << 64


class DrawnLater(int):
    """Stands for the key of the draw of this number in a call that is only looked at (replay/native_functions.py)."""


class Generator:
    """Counter-based generator: draws with `generator=` are a stream of their own. The default one is
    `weft.default_generator`."""

    device = CPU

    def __init__(self, device="cpu"):
        """`device` names the CPU, as in PyTorch. (A number is a seed.)"""
        self._seed, self._calls = 0, 0
        self._ready = _NOT_READY
        if isinstance(device, int):
            self.manual_seed(device)
        else:
            require_cpu("Generator", device)

    def manual_seed(self, seed):
        """Start anew: equal seeds give equal draws."""
        seed = int(seed)
        if not _LOWEST <= seed < _END:
            raise RuntimeError(f"manual_seed: a seed is at least -2**63 and less than 2**64, got {seed}")
        self._seed, self._calls = seed % _END, 0
        return self

    def seed(self):
        """Start anew with a seed from the system's source of randomness; returns it."""
        return self.manual_seed(int.from_bytes(os.urandom(8), "little")).initial_seed()

    def initial_seed(self):
        """The seed that the draws depend on."""
        return self._seed

    def next_key(self):
        call = self._calls
        keys, start, seed = self._ready
        if 0 <= call - start < len(keys) and seed == self._seed:
            self._calls = call + 1
            return keys[call - start]
        return self.next_keys(1)[0]

    def next_keys(self, n):
        """The keys of the next n draws."""
        first = self._calls
        self._calls = first + n
        keys, start, seed = self._ready
        at = first - start
        if 0 <= at <= len(keys) - n and seed == self._seed:
            return keys[at : at + n]
        seed = self._seed
        if first < _ONE_BY_ONE:
            return tuple([call_key(seed, call) for call in range(first, first + n)])
        keys = call_keys(seed, first, max(n, _KEYS_AT_ONCE, min(first, _MOST_KEYS)))
        self._ready = keys, first, seed
        return keys[:n]

    def get_state(self):
        """All there is to know of it, as an int64 tensor: the seed, and how many draws have been made."""
        seed = self._seed - _END if self._seed >= 1 << 63 else self._seed
        return tensor_of(np.array([seed, self._calls], dtype=np.int64))

    def set_state(self, new_state):
        """Go on where `get_state` was called. TypeError for what is no such state."""
        if not isinstance(new_state, Tensor) or new_state.shape != (2,) or new_state.dtype is not dtypes.int64:
            raise TypeError("set_state: expected the int64 tensor of two elements that get_state() of weft returned")
        seed, calls = new_state.array.tolist()
        self._seed, self._calls = seed % _END, calls
        return self

    def clone_state(self):
        """Another generator that will draw what this one will draw."""
        return Generator().set_state(self.get_state())

    def __getstate__(self):
        return self._seed, self._calls

    def __setstate__(self, state):
        self._ready = _NOT_READY
        self._seed, self._calls = state


default_generator = Generator()
default_generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)


def manual_seed(seed):
    """Start the default generator anew; equal seeds give equal draws, eager or compiled."""
    return default_generator.manual_seed(seed)


def uniform(shape, dtype, generator=None):
    """Uniform numbers in [0, 1); in both parts of complex ones. NotImplementedError for whole numbers."""
    if state.drawn_apart is not None:
        return state.drawn_apart(lambda shape: uniform(shape, dtype, generator), shape)
    if dtype is dtypes.float32 or dtype is dtypes.float64:
        key = (generator or default_generator).next_key()
        return _apply(uniform_op, (key,), {"shape": tuple(shape), "dtype": dtype})
    _require_continuous("uniform numbers", dtype)
    if dtype.is_complex:
        return complex_(uniform(shape, dtype.to_real(), generator), uniform(shape, dtype.to_real(), generator))
    if dtype.is_half:
        # As many bits as the type has: rounded ones could be 1.
        steps = 2.0 ** _HALF_BITS[dtype]
        return cast(mul(floor(mul(uniform(shape, dtype.wide, generator), steps)), 1 / steps), dtype=dtype)
    raise AssertionError(dtype)


def _require_continuous(what, dtype):
    if not dtype.is_differentiable:
        raise NotImplementedError(
            f"{what} are not implemented for {dtype.name}: draw floats, or whole numbers with randint or random_"
        )


def keys_for(drawn, generator):
    """The keys of what a `Drawn` draws."""
    generator = generator or default_generator
    return (generator.next_key(),) if drawn.n_draws == 1 else generator.next_keys(drawn.n_draws)


def at_once(n_elements):
    """Whether so many are drawn and made into what is asked for in one step of eager mode."""
    return 0 < n_elements <= _MOST_AT_ONCE


def draw(drawn, numbers, shape, dtype, generator=None, type=None):
    """What a `Drawn` makes of draws and numbers, in a type if it asks for one. The draws are of this shape and of
    float32 or float64."""
    if state.drawn_apart is not None:
        return state.drawn_apart(lambda shape: draw(drawn, numbers, shape, dtype, generator, type), shape)
    given = {"shape": shape, "dtype": dtype} if type is None else {"shape": shape, "dtype": dtype, "type": type}
    keys = keys_for(drawn, generator)
    # Native code knows only what was done here before, and nothing of calls that are recorded.
    out = tensor._native(drawn.op, keys + numbers, given)
    if out is not None:
        return out
    shape = given["shape"] = tuple(shape)
    # A compiled call records the draws one by one, and of many elements each step is a program.
    is_seen = watching and keys[0].__class__ is not DrawnLater
    if state.frame is None and not is_seen and at_once(prod(shape)):
        return _apply(drawn.op, keys + numbers, given)
    draws = [_apply(uniform_op, (key,), {"shape": shape, "dtype": dtype}) for key in keys]
    return drawn.rule(*draws, *numbers) if type is None else drawn.rule(*draws, *numbers, type=type)


def normal(shape, dtype, generator=None, std=None, mean=0.0):
    """Standard normal numbers, or such times `std` plus `mean`, numbers or tensors; of complex ones both parts have the
    variance 1/2. NotImplementedError for whole ones."""
    if dtype is dtypes.float32 or dtype is dtypes.float64:
        if std is None:
            return draw(drawn_normal, (), shape, dtype, generator)
        if std.__class__ in _NUMBERS and mean.__class__ in _NUMBERS:
            return draw(scaled_normal, (float(std), float(mean)), shape, dtype, generator)
    if std is not None:
        return normal(shape, dtype, generator) * std + mean
    _require_continuous("normal numbers", dtype)
    if dtype.is_complex:
        parts = (mul(normal(shape, dtype.to_real(), generator), 0.5**0.5) for _ in range(2))
        return complex_(*parts)
    if dtype.is_half:
        return cast(normal(shape, dtype.wide, generator), dtype=dtype)
    raise AssertionError(dtype)


def between(shape, dtype, low, high, generator=None):
    """Uniform numbers in [low, high), both numbers."""
    width = high - low
    if (
        (dtype is dtypes.float32 or dtype is dtypes.float64)
        and width.__class__ in _NUMBERS
        and low.__class__ in _NUMBERS
    ):
        return draw(drawn_between, (float(width), float(low)), shape, dtype, generator)
    return uniform(shape, dtype, generator) * width + low


_MANY = 1 << 13  # draws, from which sorting numbers pays that hold draw and position
# Our own sorting takes a tenth of NumPy's time for a million, and half for a few. Loading it takes some milliseconds,
# as NumPy does for so many draws; a call counts as some more.
_OF_LOADING, _OF_A_CALL = 1 << 18, 1 << 9
_sorted = [0]  # draws so far
_argsort = later("compiler.ops.ordering:argsort")
_draw_order = later("runtime.code.kernels:draw_order")


def permutation(n, generator=None):
    """A random order of 0 ... n-1 as an int64 NumPy array."""
    return permuted(n, generator).array


def permuted(n, generator=None):
    """The same as a tensor: positions sorted by a 53-bit draw each."""
    drawn = uniform((n,), dtypes.float64, generator)
    _sorted[0] += n + _OF_A_CALL
    if _sorted[0] >= _OF_LOADING and state.frame is None:
        with suppress(ModuleNotFoundError):  # there may be no compiler
            return _argsort(drawn, axis=0, descending=False) if n < _MANY else tensor_of(_in_order(drawn.array))
    return tensor_of(order_of(drawn.array) if n < _MANY else order_of_many(drawn.array))


def _in_order(draws):
    """Positions sorted by the draws."""
    order, equal = _draw_order(draws)
    return _decided(order, draws, equal, np.floor(draws[order[equal]] * 2.0**32))


def _decided(order, draws, equal, keys):
    """The order, after draws that are equal to the next in their first bits, `keys`, which few are, were put in order
    by their others, then by their positions."""
    if equal.size:
        at, first = np.unique(np.concatenate((equal, equal + 1)), return_index=True)
        found = order[at]
        order[at] = found[np.lexsort((found, draws[found], np.concatenate((keys, keys))[first]))]
    return order


def order_of(draws):
    # Stable only where it matters, which is once in ten thousand times for a million: it takes five times as long.
    order = draws.argsort()
    ordered = draws[order]
    return order if (ordered[1:] > ordered[:-1]).all() else draws.argsort(kind="stable")


def order_of_many(draws):
    """The same, of multiples of 2^-53 below 1, in less than half of the time: sorting numbers is much quicker than
    finding their order, so as many bits of each draw as there is room for are sorted with its position behind them."""
    n = draws.size
    for_position = max((n - 1).bit_length(), _EXPONENT)
    positions, shift = np.uint64((1 << for_position) - 1), np.uint64(for_position)
    keys = np.empty(n, np.uint64)
    for some in _stretches(n):
        # In [1, 2) the bits behind the exponent are in the order of the draws; without the factor the largest gives 2.
        bits = (draws[some] * _BELOW_ONE + 1.0).view(np.uint64)
        bits >>= np.uint64(for_position - _EXPONENT)
        bits <<= shift
        np.bitwise_or(bits, np.arange(some.start, some.stop, dtype=np.uint64), out=keys[some])
    keys.sort()
    equal = [_equal_to_next(keys, some, positions) for some in _stretches(max(n - 1, 1))]
    keys &= positions
    order, (equal, its_keys) = keys.view(np.int64), map(np.concatenate, zip(*equal))
    return _decided(order, draws, equal, its_keys)


_BELOW_ONE = 1.0 - 2.0**-53
_EXPONENT, _STRETCH = 12, 1 << 14  # bits before a float64's fraction; elements of 128 KB, which stay in a level-2 cache


def _stretches(n):
    return [slice(k, min(k + _STRETCH, n)) for k in range(0, n, _STRETCH)]


def _equal_to_next(keys, some, positions):
    """(where keys are those of the next place but for their positions, these keys without them)."""
    differing = keys[some] ^ keys[some.start + 1 : some.stop + 1]
    at = np.flatnonzero(differing <= positions) + some.start
    return at, keys[at] | positions
