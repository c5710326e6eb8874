"""Distributions over a finite set: Categorical and what is made of it."""

import math

from ..creation import arange, eye, full, zeros
from ..nn import functional as F
from ..ordering import multinomial
from ..runtime.state.modes import no_grad
from ..shaping import broadcast_tensors
from . import constraints
from .counts import Binomial, along_first
from .distribution import Distribution, broadcast_all, lazy_property, logits_to_probs, probs_to_logits

_MANY = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(Distribution):
    """Numbers 0, 1, ... with the probabilities in the last dimension of `probs`, which are normalised, or of
    exp(`logits`)."""

    arg_constraints = _MANY
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        if given.ndim < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @property
    def _param(self):
        name = "probs" if "probs" in vars(self) else "logits"
        return getattr(self, name)

    @property
    def param_shape(self):
        return self._param.shape

    @property
    def _num_events(self):
        return self._param.shape[-1]

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits)

    @property
    def mean(self):
        return full(self._batch_shape, math.nan, dtype=self._param.dtype)

    @property
    def mode(self):
        return self.probs.argmax(-1)

    @property
    def variance(self):
        return full(self._batch_shape, math.nan, dtype=self._param.dtype)

    def sample(self, sample_shape=()):
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = multinomial(rows, math.prod(sample_shape), True)
            return drawn.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        value = self._checked(value).long().unsqueeze(-1)
        value, logits = broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        # 0 * -inf is 0 here.
        smallest = -3.4028234663852886e38 if self.logits.dtype.name == "float32" else -1.7976931348623157e308
        return -(self.logits.clamp(min=smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        return along_first(arange(self._num_events), self._batch_shape, expand)


class _OfCategorical(Distribution):
    """A distribution of vectors, by the probabilities of their positions."""

    arg_constraints = _MANY

    def __init__(self, categorical, validate_args):
        self._categorical = categorical
        super().__init__(categorical.batch_shape, categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = type(self).__new__(type(self)) if _instance is None else _instance
        vars(new).update(vars(self), _categorical=self._categorical.expand(batch_shape))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def _param(self):
        return self._categorical._param

    @property
    def param_shape(self):
        return self._categorical.param_shape

    @property
    def probs(self):
        return self._categorical.probs

    @property
    def logits(self):
        return self._categorical.logits


class OneHotCategorical(_OfCategorical):
    """Vectors with a 1 at the position that Categorical gives."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        super().__init__(Categorical(probs, logits), validate_args)

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        return F.one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        drawn = self._categorical.sample(sample_shape)
        return F.one_hot(drawn, self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value):
        return self._categorical.log_prob(self._checked(value).argmax(-1))

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._event_shape[0]
        values = eye(n, dtype=self._param.dtype).reshape(n, *(1 for _ in self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same with the derivative of the probabilities for that of a draw (Bengio et al., 1308.3432)."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_OfCategorical):
    """How often every position comes up in `total_count` draws of Categorical."""

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError(
                f"Multinomial: total_count must be one int for the whole batch, got {type(total_count).__name__}; "
                "make a distribution for each count"
            )
        self.total_count = total_count
        super().__init__(Categorical(probs, logits), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    @property
    def mean(self):
        return self.probs * self.total_count

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        counts = zeros(self._extended_shape(sample_shape), dtype=self.probs.dtype)
        ones = counts.new_ones(*drawn.shape)
        return counts.scatter_add(-1, drawn.movedim(0, -1), ones.movedim(0, -1))

    def entropy(self):
        n = self.probs.new_full((), float(self.total_count))
        binomial = Binomial(self.total_count, probs=self.probs)
        support = binomial.enumerate_support(expand=False)[1:]
        expected = (binomial.log_prob(support).exp() * (support + 1).lgamma()).sum([0, -1])
        return n * self._categorical.entropy() - (n + 1).lgamma() + expected

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, self._checked(value))
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0.0)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (logits * value).sum(-1)
