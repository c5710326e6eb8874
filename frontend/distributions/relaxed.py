"""Continuous relatives of Bernoulli and OneHotCategorical: their draws have derivatives (Maddison, 1611.00712)."""

import math

from ..creation import rand
from ..runtime.state.tensor import Tensor
from . import constraints
from .categories import Categorical, _OfCategorical
from .distribution import BinaryLogits, Distribution, broadcast_all, clamp_probs
from .transformed import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform


def _log(temperature):
    return temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)


class LogitRelaxedBernoulli(BinaryLogits, Distribution):
    """The log odds of RelaxedBernoulli."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        self._set_logits(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, type(self).__new__(type(self)) if _instance is None else _instance)
        new.temperature = self.temperature
        return new

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(rand(shape, dtype=probs.dtype))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, self._checked(value))
        difference = logits - value * self.temperature
        return _log(self.temperature) + difference - 2 * difference.exp().log1p()


class _Relaxed(TransformedDistribution):
    has_rsample = True

    def expand(self, batch_shape, _instance=None):
        return super().expand(batch_shape, type(self).__new__(type(self)) if _instance is None else _instance)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class RelaxedBernoulli(_Relaxed):
    """Numbers in (0, 1) that are near 0 or 1 when the temperature is low."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(_OfCategorical):
    """The logarithms of RelaxedOneHotCategorical."""

    support = constraints.real_vector
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        super().__init__(Categorical(probs, logits), validate_args)

    def rsample(self, sample_shape=()):
        u = clamp_probs(rand(self._extended_shape(sample_shape), dtype=self.logits.dtype))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value):
        size = self._event_shape[0]
        logits, value = broadcast_all(self.logits, self._checked(value))
        score = logits - value * self.temperature
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        return score + (math.lgamma(size) + (size - 1) * _log(self.temperature))


class RelaxedOneHotCategorical(_Relaxed):
    """Probabilities that are near a corner when the temperature is low."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
