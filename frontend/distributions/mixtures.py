"""Mixtures of distributions of one kind."""

from ..nn import functional as F
from ..runtime.state.modes import no_grad
from . import constraints
from .categories import Categorical
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """A draw of the component that a Categorical names: components are the last batch dimension of theirs."""

    arg_constraints = {}

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of weft.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of weft.distributions.Distribution")
        mixed, inner = mixture_distribution.batch_shape, component_distribution.batch_shape
        if any(a != b and 1 not in (a, b) for a, b in zip(reversed(mixed), reversed(inner[:-1]))):
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with "
                f"`component_distribution.batch_shape`({inner[:-1]})"
            )
        if mixture_distribution.param_shape[-1] != inner[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.param_shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({inner[-1]})"
            )
        self._num_component, self._event_ndims = inner[-1], len(component_distribution.event_shape)
        super().__init__(inner[:-1], component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        vars(new).update(vars(self))
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    def _shares(self):
        """The probabilities of components, with dimensions of 1 for the event."""
        probs = self._mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1 for _ in self._event_shape))

    def _over_components(self, x):
        return (self._shares() * x).sum(-1 - self._event_ndims)

    @property
    def mean(self):
        return self._over_components(self._component_distribution.mean)

    @property
    def variance(self):
        within = self._over_components(self._component_distribution.variance)
        distance = self._component_distribution.mean - self._pad(self.mean)
        return within + self._over_components(distance.pow(2.0))

    def cdf(self, x):
        return (self._component_distribution.cdf(self._pad(x)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        inner = self._component_distribution.log_prob(self._pad(self._checked(x)))
        return (inner + F.log_softmax(self._mixture_distribution.logits, -1)).logsumexp(-1)

    def sample(self, sample_shape=()):
        with no_grad():
            chosen = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self._batch_shape)
            index = chosen.reshape(*chosen.shape, *(1 for _ in range(1 + self._event_ndims)))
            index = index.expand(*drawn.shape[:dim], 1, *self._event_shape)
            return drawn.gather(dim, index).squeeze(dim)

    def _pad(self, x):
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
