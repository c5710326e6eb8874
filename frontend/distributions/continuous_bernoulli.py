"""The continuous Bernoulli distribution (Loaiza-Ganem and Cunningham, 1907.06845)."""

import math

from ..creation import rand
from ..functions import where
from ..nn import functional as F
from . import constraints
from .distribution import BinaryLogits, Distribution, broadcast_all, clamp_probs, lazy_property, logits_to_probs


class ContinuousBernoulli(BinaryLogits, Distribution):
    """Density C(p) p^x (1 - p)^(1 - x) in [0, 1], with C(p) = 2 atanh(1 - 2p) / (1 - 2p).

    Between the two `lims` the formulas would divide by what is nearly 0: their Taylor series at p = 1/2 count there.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        self._set_logits(probs, logits)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, type(self).__new__(type(self)) if _instance is None else _instance)
        new._lims = self._lims
        return new

    @lazy_property
    def probs(self):
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _is_stable(self):
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self):
        """Probabilities that no formula divides by 0 for."""
        return where(self._is_stable(), self.probs, self._lims[0])

    def _log_norm(self):
        p = self._cut_probs()
        outside = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5).pow(2)
        return where(self._is_stable(), outside, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self):
        p, x = self._cut_probs(), self.probs - 0.5
        outside = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        return where(self._is_stable(), outside, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def variance(self):
        p, x = self._cut_probs(), (self.probs - 0.5).pow(2)
        outside = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / ((-p).log1p() - p.log()).pow(2)
        return where(self._is_stable(), outside, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape=()):
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.probs.dtype))

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, self._checked(value))
        return self._log_norm() - F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value):
        p, value = self._cut_probs(), self._checked(value)
        outside = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return where(self._is_stable(), outside, value).where(value > 0, 0.0).where(value < 1, 1.0)

    def icdf(self, value):
        p = self._cut_probs()
        outside = ((-p + value * (2.0 * p - 1.0)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return where(self._is_stable(), outside, value)

    def entropy(self):
        zero, one = (-self.probs).log1p(), self.probs.log()
        return self.mean * (zero - one) - self._log_norm() - zero
