"""The random generators: a seed and a count of calls. What a call draws depends on these two numbers alone."""

import os

import numpy as np

from ...compiler import dtypes
from ...compiler.ops.arithmetic import floor, mul
from ...compiler.ops.comparison import cast
from ...compiler.ops.complex_numbers import complex_
from ...compiler.ops.random import box_muller, call_key
from ...compiler.ops.random import uniform as uniform_op
from .device import CPU, require_cpu
from .tensor import Tensor, _apply, tensor_of

_HALF_BITS = {dtypes.float16: 11, dtypes.bfloat16: 8}
_LOWEST, _END = -(1 << 63), 1 << 64


class Generator:
    """Counter-based generator: draws with `generator=` are a stream of their own. The default one is
    `weft.default_generator`."""

    device = CPU

    def __init__(self, device="cpu"):
        """`device` names the CPU, as in PyTorch. (A number is a seed.)"""
        self._seed, self._calls = 0, 0
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
        key = call_key(self._seed, self._calls)
        self._calls += 1
        return key

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
        self._seed, self._calls = state


default_generator = Generator()
default_generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)


def manual_seed(seed):
    """Start the default generator anew; equal seeds give equal draws, eager or compiled."""
    return default_generator.manual_seed(seed)


def uniform(shape, dtype, generator=None):
    """Uniform numbers in [0, 1); in both parts of complex ones. NotImplementedError for whole numbers."""
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


def normal(shape, dtype, generator=None):
    """Standard normal numbers; of complex ones both parts have the variance 1/2. NotImplementedError for whole ones."""
    if dtype is dtypes.float32 or dtype is dtypes.float64:
        return box_muller(uniform(shape, dtype, generator), uniform(shape, dtype, generator))
    _require_continuous("normal numbers", dtype)
    if dtype.is_complex:
        parts = (mul(normal(shape, dtype.to_real(), generator), 0.5**0.5) for _ in range(2))
        return complex_(*parts)
    if dtype.is_half:
        return cast(normal(shape, dtype.wide, generator), dtype=dtype)
    raise AssertionError(dtype)


def permutation(n, generator=None):
    """A random order of 0 ... n-1 as an int64 NumPy array: positions sorted by a 53-bit draw each."""
    return uniform((n,), dtypes.float64, generator).array.argsort(kind="stable")
