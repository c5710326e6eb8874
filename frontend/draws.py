"""Random numbers of other distributions, in place and new: every draw starts from the generator's uniform numbers."""

import math

import numpy as np

from .compiler import dtypes
from .compiler.ops.comparison import within
from .compiler.ops.random import below, exponential, whole_between
from .compiler.storage import convert, readable
from .creation import plain, randint
from .functions import to_dtype
from .inplace import redrawn, written
from .placement import beside
from .runtime.state import random
from .runtime.state.tensor import Tensor, tensor_of


def _uniform(like, generator, dtype=None):
    """Uniform numbers in (0, 1)."""
    dtype = dtype or (like.dtype.wide if like.dtype.is_floating_point else dtypes.float32)
    draw = beside(random.uniform(like.shape, dtype, generator), like)
    return draw + _above_0(dtype)


def _above_0(dtype):
    """Half of the distance between two draws."""
    return 2.0**-25 if dtype is dtypes.float32 else 2.0**-54


_NUMBERS = (float, int)


def _require(name, condition, what):
    if not condition:
        raise RuntimeError(f"{name} expects {what}")


def exponential_(self, lambd=1.0, *, generator=None):
    """Fill with exponentially distributed numbers of the rate lambd."""
    _require("exponential_", lambd > 0, f"lambda > 0.0, but found lambda={lambd}")
    if lambd.__class__ in _NUMBERS and redrawn(self, exponential, (_above_0(self.dtype), float(lambd)), generator):
        return self
    return written("exponential", self, -_uniform(self, generator).log() / lambd)


def geometric_(self, p, *, generator=None):
    """Fill with the number of trials up to the first success, each of the probability p."""
    _require("geometric_", 0 < p < 1, f"p to be in (0, 1), but got p={p}")
    draw = _uniform(self, generator, dtypes.float64)
    return written("geometric", self, to_dtype((draw.log() / math.log1p(-p)).ceil(), self.dtype))


def cauchy_(self, median=0.0, sigma=1.0, *, generator=None):
    """Fill with numbers of the Cauchy distribution."""
    _require("cauchy_", sigma > 0, f"sigma > 0.0, but found sigma={sigma}")
    return written("cauchy", self, (math.pi * (_uniform(self, generator) - 0.5)).tan() * sigma + median)


def log_normal_(self, mean=1.0, std=2.0, *, generator=None):
    """Fill with numbers whose logarithms are normal."""
    _require("log_normal_", std > 0, f"std > 0.0, but found std={std}")
    return written("log_normal", self, (random.normal(self.shape, self.dtype, generator) * std + mean).exp())


def bernoulli_(self, p=0.5, *, generator=None):
    """Fill with 1 with the probability p (a number, or a tensor of one for each), else 0."""
    if not isinstance(p, Tensor):
        _require("bernoulli_", 0 <= p <= 1, f"p to be in [0, 1], but got p={p}")
    else:
        p = within(p, low=0.0, high=1.0, message="bernoulli_ expects all elements of p to be in [0, 1]")
    if p.__class__ in _NUMBERS:
        if redrawn(self, below, (float(p),), generator, dtype=dtypes.float64, type=self.dtype):
            return self
        drawn = random.draw(below, (float(p),), self.shape, dtypes.float64, generator, type=self.dtype)
        return written("bernoulli", self, drawn)
    draw = beside(random.uniform(self.shape, dtypes.float64, generator), self)
    return written("bernoulli", self, to_dtype(draw < p, self.dtype))


def random_(self, from_=0, to=None, *, generator=None):
    """Fill with whole numbers in [from_, to); from_ alone is the end. By default up to what the type holds exactly."""
    if to is None:
        from_, to = (0, from_) if from_ else (0, _largest(self.dtype))
    _require("random_", from_ < to, f"'from' to be less than 'to', but got from={from_} >= to={to}")
    if from_.__class__ is int and to.__class__ is int:
        numbers = float(to - from_), float(from_)
        if redrawn(self, whole_between, numbers, generator, dtype=dtypes.float64, type=self.dtype):
            return self
    drawn = randint(from_, to, self.shape, generator=generator)
    return written("random", self, to_dtype(drawn, self.dtype))


def _largest(dtype):
    digits = {"float32": 24, "float64": 53, "bool": 1, "int32": 31, "float16": 11, "bfloat16": 8}
    digits |= {"uint8": 8, "int8": 7, "int16": 15}
    return 2 ** digits.get(dtype.name, 53)


def poisson(input, generator=None):
    """Numbers of the Poisson distribution with the rates given by input."""
    rates = readable(input.detach().array)
    if (rates < 0).any():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return tensor_of(convert(np.asarray(numpy_generator(generator).poisson(rates)), input.dtype))


def binomial(count, prob, generator=None):
    """Numbers of successes in `count` trials of the probability `prob`."""
    n, p = np.broadcast_arrays(readable(count.detach().array), readable(prob.detach().array))
    return tensor_of(convert(np.asarray(numpy_generator(generator).binomial(n.astype(np.int64), p)), prob.dtype))


def numpy_generator(generator):
    """NumPy's generator, seeded by the next number of ours."""
    draw = random.uniform((), dtypes.float64, generator)
    return np.random.default_rng(int(plain(draw) * 2**53))


METHODS = str.split("exponential_ geometric_ cauchy_ log_normal_ bernoulli_ random_")
PUBLIC = str.split("poisson binomial")
