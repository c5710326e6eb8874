"""Distributions of counts: trials, failures, arrivals."""

import math

from ..caught import demand
from ..creation import arange, bernoulli, rand, zeros_like
from ..draws import binomial, poisson
from ..functions import where
from ..nn import functional as F
from ..runtime.state.modes import no_grad
from . import constraints
from .distribution import (
    BinaryLogits,
    Distribution,
    ExponentialFamily,
    broadcast_all,
    lazy_property,
    tiny,
)
from .gammas import Gamma

_BINARY = {"probs": constraints.unit_interval, "logits": constraints.real}


def along_first(values, batch_shape, expand):
    """Values of a support as the first dimension, before those of a batch."""
    values = values.reshape(-1, *(1 for _ in batch_shape))
    return values.expand(-1, *batch_shape) if expand else values


class Bernoulli(BinaryLogits, ExponentialFamily):
    """1 with the probability `probs`, else 0; `logits` are its log odds."""

    arg_constraints = _BINARY
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._set_logits(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        return where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, self._checked(value))
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        return along_first(arange(2, dtype=self._param.dtype), self._batch_shape, expand)

    @property
    def _natural_params(self):
        return (self.probs.logit(),)

    def _log_normalizer(self, x):
        return x.exp().log1p()


class Geometric(BinaryLogits, Distribution):
    """How many trials of the probability `probs` fail before the first success."""

    arg_constraints = _BINARY
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._set_logits(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            demand(
                self.probs > 0,
                lambda: (
                    f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) of "
                    f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
                ),
                "Expected parameter probs of distribution Geometric to be positive but found invalid values",
            )

    @property
    def mean(self):
        return 1.0 / self.probs - 1.0

    @property
    def mode(self):
        return zeros_like(self.probs)

    @property
    def variance(self):
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape=()):
        with no_grad():
            u = rand(self._extended_shape(sample_shape), dtype=self.probs.dtype).clamp_min(tiny(self.probs))
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        value, probs = broadcast_all(self._checked(value), self.probs)
        # No failures, for sure: 0 * log 0 is 0 here.
        failing = where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-failing).log1p() + self.probs.log()

    def entropy(self):
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(BinaryLogits, Distribution):
    """How many of `total_count` trials of the probability `probs` succeed."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, **_BINARY}
    has_enumerate_support = True

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        (self.total_count,) = self._set_logits(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self):
        return self.total_count * self.probs

    @property
    def mode(self):
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        n, k = self.total_count, self._checked(value)
        ways = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        # log(1 + exp(logits)) without overflow; clamp as written has the derivative of the average at 0.
        positive = (self.logits.clamp(min=0) + self.logits - self.logits.clamp(max=0)) / 2
        return k * self.logits + ways - n * positive - n * (-self.logits.abs()).exp().log1p()

    def _common_count(self, what):
        count = int(self.total_count.max().item())
        if self.total_count.min().item() != count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{what}`.")
        return count

    def entropy(self):
        self._common_count("entropy")
        found = self.log_prob(self.enumerate_support(False))
        return -(found.exp() * found).sum(0)

    def enumerate_support(self, expand=True):
        values = arange(1 + self._common_count("enumerate_support"), dtype=self._param.dtype)
        return along_first(values, self._batch_shape, expand)


class NegativeBinomial(BinaryLogits, Distribution):
    """How many trials of the probability `probs` succeed before `total_count` of them fail."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        (self.total_count,) = self._set_logits(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.total_count * self.logits.exp()

    @property
    def mode(self):
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self):
        return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self):
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape=()):
        with no_grad():
            return poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value):
        n, k = self.total_count, self._checked(value)
        power = n * F.logsigmoid(-self.logits) + k * F.logsigmoid(self.logits)
        ways = (n + k).lgamma() - (1.0 + k).lgamma() - n.lgamma()
        return power + where(n + k == 0, 0.0, ways)


class Poisson(ExponentialFamily):
    """How many events of a `rate` happen."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.rate

    @property
    def mode(self):
        return self.rate.floor()

    @property
    def variance(self):
        return self.rate

    def sample(self, sample_shape=()):
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        rate, value = broadcast_all(self.rate, self._checked(value))
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    def entropy(self):
        raise NotImplementedError("Poisson: the entropy has no closed form")

    @property
    def _natural_params(self):
        return (self.rate.log(),)

    def _log_normalizer(self, x):
        return x.exp()
