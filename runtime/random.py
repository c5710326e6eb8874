"""The random generator: a seed and a count of calls. What a call draws depends on these two numbers alone."""

import os

from ..compiler import dtypes
from ..compiler.ops.random import call_key, normal_from
from ..compiler.ops.random import uniform as uniform_op
from .tensor import _apply


class Generator:
    """Counter-based generator; the default one is `weft.default_generator`."""

    def __init__(self, seed=0):
        self.seed = seed
        self.calls = 0

    def manual_seed(self, seed):
        self.seed, self.calls = int(seed), 0
        return self

    def next_key(self):
        key = call_key(self.seed, self.calls)
        self.calls += 1
        return key

    def get_state(self):
        return (self.seed, self.calls)

    def set_state(self, state):
        self.seed, self.calls = state


default_generator = Generator(int.from_bytes(os.urandom(8), "little") >> 1)


def manual_seed(seed):
    """Start the default generator anew; equal seeds give equal draws, eager or compiled."""
    return default_generator.manual_seed(seed)


def uniform(shape, dtype, generator=None):
    """Uniform numbers in [0, 1)."""
    key = (generator or default_generator).next_key()
    return _apply(uniform_op, (key,), {"shape": tuple(shape), "dtype": dtype})


def normal(shape, dtype, generator=None):
    """Standard normal numbers."""
    return normal_from(uniform(shape, dtype, generator), uniform(shape, dtype, generator))


def permutation(n, generator=None):
    """A random order of 0 ... n-1 as an int64 NumPy array: positions sorted by a 53-bit draw each."""
    return uniform((n,), dtypes.float64, generator).array.argsort(kind="stable")
