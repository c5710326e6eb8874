"""Distributions with a location and a scale, and the exponential, uniform and circular ones."""

import math

import numpy as np

from ..compiler.dtypes import float64
from ..compiler.storage import convert
from ..creation import full_like, rand, randn, zeros_like
from ..draws import numpy_generator
from ..functions import where
from ..placement import beside
from ..runtime.state.tensor import tensor_of
from ..special import i0e, i1e
from . import constraints
from .distribution import Distribution, ExponentialFamily, broadcast_all, epsilon


class _LocationScale:
    """Mixin: parameters `loc` and `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mode(self):
        return self.loc


class Normal(_LocationScale, ExponentialFamily):
    """Mean `loc`, standard deviation `scale`."""

    @property
    def mean(self):
        return self.loc

    @property
    def stddev(self):
        return self.scale

    @property
    def variance(self):
        return self.scale.pow(2)

    def rsample(self, sample_shape=()):
        return self.loc + beside(randn(self._extended_shape(sample_shape), dtype=self.loc.dtype), self.loc) * self.scale

    def log_prob(self, value):
        distance = self._checked(value) - self.loc
        return -(distance**2) / (2 * self.scale**2) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value):
        return 0.5 * (1 + ((self._checked(value) - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def icdf(self, value):
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self):
        return self.loc / self.scale.pow(2), -0.5 * self.scale.pow(2).reciprocal()

    def _log_normalizer(self, x, y):
        return -0.25 * x.pow(2) / y + 0.5 * (-math.pi / y).log()


class Laplace(_LocationScale, Distribution):
    """Density exp(-|x - loc| / scale) / (2 scale)."""

    @property
    def mean(self):
        return self.loc

    @property
    def variance(self):
        return 2 * self.scale.pow(2)

    @property
    def stddev(self):
        return 2**0.5 * self.scale

    def rsample(self, sample_shape=()):
        drawn = rand(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        # In (-1, 1): the ends would give infinities.
        u = drawn * (2 - epsilon(drawn)) + (epsilon(drawn) - 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value):
        return -(2 * self.scale).log() - (self._checked(value) - self.loc).abs() / self.scale

    def cdf(self, value):
        distance = self._checked(value) - self.loc
        return 0.5 - 0.5 * distance.sign() * (-distance.abs() / self.scale).expm1()

    def icdf(self, value):
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self):
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale, Distribution):
    """Density 1 / (pi scale (1 + ((x - loc) / scale)^2)): without mean and variance."""

    @property
    def mean(self):
        return full_like(self.loc, math.nan)

    @property
    def variance(self):
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape=()):
        drawn = rand(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (math.pi * (drawn - 0.5)).tan() * self.scale

    def log_prob(self, value):
        relative = (self._checked(value) - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (relative**2).log1p()

    def cdf(self, value):
        return ((self._checked(value) - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value):
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class Exponential(ExponentialFamily):
    """Density rate exp(-rate x) for x >= 0."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.rate.reciprocal()

    @property
    def mode(self):
        return zeros_like(self.rate)

    @property
    def stddev(self):
        return self.rate.reciprocal()

    @property
    def variance(self):
        return self.rate.pow(-2)

    def rsample(self, sample_shape=()):
        return -(-rand(self._extended_shape(sample_shape), dtype=self.rate.dtype)).log1p() / self.rate

    def log_prob(self, value):
        return self.rate.log() - self.rate * self._checked(value)

    def cdf(self, value):
        return 1 - (-self.rate * self._checked(value)).exp()

    def icdf(self, value):
        return -(-value).log1p() / self.rate

    def entropy(self):
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self):
        return (-self.rate,)

    def _log_normalizer(self, x):
        return -(-x).log()


class Uniform(Distribution):
    """Density 1 / (high - low) in [low, high)."""

    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def arg_constraints(self):
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    @property
    def mean(self):
        return (self.high + self.low) / 2

    @property
    def mode(self):
        return math.nan * self.high

    @property
    def stddev(self):
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self):
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape=()):
        drawn = rand(self._extended_shape(sample_shape), dtype=self.low.dtype)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value):
        inside = (self.low <= self._checked(value)) & (self.high > value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value):
        return ((self._checked(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()


class VonMises(Distribution):
    """Angles: density exp(concentration cos(x - loc)) / (2 pi I0(concentration))."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self):
        """The circular mean."""
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        """The circular variance."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        loc, kappa = (convert(x.detach().array, float64) for x in (self.loc, self.concentration))
        drawn = numpy_generator(None).vonmises(loc, kappa, shape)
        return tensor_of(convert(np.asarray(drawn), self.loc.dtype))

    def log_prob(self, value):
        k = self.concentration
        normalizer = math.log(2 * math.pi) + i0e(k).log() + k
        return k * (self._checked(value) - self.loc).cos() - normalizer


class GeneralizedPareto(Distribution):
    """What exceeds a threshold `loc`: the survival function is (1 + c (x - loc) / scale)^(-1 / c) for the concentration
    c, and exp(-(x - loc) / scale) where it is 0."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, where(self.concentration < 0, end, math.inf))

    def _split(self):
        """(where the concentration counts as 0, a concentration to divide by)."""
        is_zero = self.concentration.abs() <= 1e-8
        return is_zero, where(is_zero, 1.0, self.concentration)

    @property
    def mean(self):
        c = self.concentration
        return where(c < 1, self.loc + self.scale / (1 - where(c < 1, c, 0.5)), math.nan)

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        c = where(self.concentration < 0.5, self.concentration, 0.25)
        found = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return where(self.concentration < 0.5, found, math.nan)

    def rsample(self, sample_shape=()):
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_prob(self, value):
        z, (is_zero, c) = (self._checked(value) - self.loc) / self.scale, self._split()
        return -self.scale.log() - where(is_zero, z, (1 / c + 1) * (c * z).log1p())

    def log_survival_function(self, value):
        """The logarithm of the probability of more than a value."""
        z, (is_zero, c) = (self._checked(value) - self.loc) / self.scale, self._split()
        return where(is_zero, -z, -(c * z).log1p() / c)

    def log_cdf(self, value):
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value):
        return self.log_cdf(value).exp()

    def icdf(self, value):
        above, (is_zero, c) = (-value).log1p(), self._split()
        return self.loc + where(is_zero, -self.scale * above, self.scale / c * (-c * above).expm1())

    def entropy(self):
        return self.scale.log() + self.concentration + 1
