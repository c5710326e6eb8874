"""Distribution: what all distributions share, and what their formulas are written with.

    batch_shape    the shape of the parameters: as many distributions that know nothing of each other
    event_shape    the shape of one draw of one of them
    sample(s)      a tensor of shape s + batch_shape + event_shape; rsample has derivatives for the parameters
    log_prob(x)    of shape s + batch_shape

Parameters are attributes by the names in `arg_constraints`; `expand` finds them there. In a compiled call
checks are part of its program.
"""

from functools import update_wrapper

from ..autograd import grad
from ..caught import demand
from ..creation import randn, tensor
from ..nn import functional as F
from ..placement import beside
from ..runtime.state.modes import enable_grad, no_grad, state
from ..runtime.state.said import warn
from ..runtime.state.size import Size
from ..runtime.state.tensor import Tensor
from ..shaping import broadcast_tensors
from . import constraints

euler_constant = 0.5772156649015329
_NUMBERS = (bool, int, float)
_PACKAGE = __name__.rpartition(".")[0]


class lazy_property:
    """An attribute computed when it is first read, and kept."""

    def __init__(self, compute):
        self.compute = compute
        update_wrapper(self, compute)

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with enable_grad():
            value = self.compute(instance)
        vars(instance)[self.compute.__name__] = value
        return value


def _standard_normal(shape, dtype, device):
    """Draws of the standard normal distribution, which gradients do not pass: programs import it from PyTorch's
    distributions.utils."""
    return randn(shape, dtype=dtype, device=device)


class Distribution:
    """Base of all distributions. Subclasses set `arg_constraints` and `support`, and define `rsample` or `sample`,
    `log_prob` and what else they can say."""

    has_rsample = False
    has_enumerate_support = False
    support = None
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        """Whether distributions check their parameters and values from now on."""
        if value not in (True, False):
            raise ValueError("set_default_validate_args: the value must be True or False")
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self):
        try:
            needed = self.arg_constraints
        except NotImplementedError:
            warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize "
                "the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, constraint in needed.items():
            computed = name not in vars(self) and isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or computed:
                continue
            self._check_parameter(name, getattr(self, name), constraint)

    def _check_parameter(self, name, value, constraint):
        demand(
            constraint.check(value),
            lambda: (
                f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
            ),
            f"Expected parameter {name} of distribution {type(self).__name__} to satisfy the constraint "
            f"{constraints.in_short(constraint)}, but found invalid values",
        )

    def expand(self, batch_shape, _instance=None):
        """The same distributions, repeated to a larger batch_shape without copying."""
        owner = next(kind for kind in type(self).__mro__ if "__init__" in vars(kind))
        if _instance is None and (owner is Distribution or not owner.__module__.startswith(_PACKAGE)):
            raise NotImplementedError(f"{type(self).__name__} must define expand(batch_shape), as it has an __init__")
        new = type(self).__new__(type(self)) if _instance is None else _instance
        batch_shape = Size(batch_shape)
        for name, value in self._parameters_in_place():
            event = value.shape[value.ndim - self.arg_constraints[name].event_dim :]
            vars(new)[name] = value.expand(*batch_shape, *event)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _parameters_in_place(self):
        return [(name, vars(self)[name]) for name in self.arg_constraints if isinstance(vars(self).get(name), Tensor)]

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    @property
    def arg_constraints(self):
        raise NotImplementedError(f"{type(self).__name__} does not define arg_constraints")

    @property
    def mean(self):
        raise NotImplementedError(f"{type(self).__name__} does not define mean")

    @property
    def mode(self):
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self):
        raise NotImplementedError(f"{type(self).__name__} does not define variance")

    @property
    def stddev(self):
        return self.variance.sqrt()

    def sample(self, sample_shape=()):
        """Draws, without derivatives."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Draws with derivatives for the parameters, where there are any."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; use sample and log_prob")

    def sample_n(self, n):
        """`sample((n,))`."""
        return self.sample((n,))

    def log_prob(self, value):
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_prob")

    def cdf(self, value):
        raise NotImplementedError(f"{type(self).__name__} does not define cdf")

    def icdf(self, value):
        raise NotImplementedError(f"{type(self).__name__} does not define icdf")

    def enumerate_support(self, expand=True):
        """All values of a discrete distribution, along the first dimension."""
        raise NotImplementedError(f"{type(self).__name__} does not define enumerate_support")

    def entropy(self):
        raise NotImplementedError(f"{type(self).__name__} does not define entropy")

    def perplexity(self):
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=()):
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value):
        """ValueError for values that cannot be drawn."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        n_event = len(self._event_shape)
        if value.shape[value.ndim - n_event :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        expected = (*self._batch_shape, *self._event_shape)
        if any(a != b and 1 not in (a, b) for a, b in zip(reversed(value.shape), reversed(expected))):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {expected}.")
        if self.support is None:
            warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
        else:
            demand(
                self.support.check(value),
                lambda: (
                    f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within "
                    f"the support ({self.support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
                ),
                f"Expected value argument to be within the support ({constraints.in_short(self.support)}) of the "
                f"distribution {type(self).__name__}, but found invalid values",
            )

    def _checked(self, value):
        """The value, which is checked if values are."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def __repr__(self):
        parameters = [(name, vars(self)[name]) for name in self.arg_constraints if name in vars(self)]
        return f"{type(self).__name__}({', '.join(f'{k}: {_short(x)}' for k, x in parameters)})"


def _short(x):
    return x if not isinstance(x, Tensor) or x.numel() == 1 else f"{x.shape}"


class ExponentialFamily(Distribution):
    """Densities exp(<t(x), theta> - A(theta)): entropies and divergences follow from A, `_log_normalizer`, and its
    derivative at the natural parameters theta."""

    _mean_carrier_measure = 0

    def entropy(self):
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with enable_grad():
            normalizer = self._log_normalizer(*natural)
            gradients = grad(normalizer.sum(), natural, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(natural, gradients):
            result = result - (p * g).reshape(*self._batch_shape, -1).sum(-1)
        return result


# --- parameters -------------------------------------------------------------------------------------------------------
def is_number(x):
    return isinstance(x, _NUMBERS)


def broadcast_all(*values):
    """Tensors of one shape; numbers get the type of the first tensor, or the default one."""
    if not all(isinstance(x, (Tensor, *_NUMBERS)) for x in values):
        raise ValueError("Input arguments must all be instances of Number or Tensor.")
    first = next((x for x in values if isinstance(x, Tensor)), None)
    dtype = state.default_dtype if first is None else first.dtype
    made = [x if isinstance(x, Tensor) else tensor(x, dtype=dtype) for x in values]
    return broadcast_tensors(*(made if first is None else [beside(x, first) for x in made]))


def sum_rightmost(value, count):
    """The sum over the last `count` dimensions."""
    return value.reshape(*value.shape[: value.ndim - count], -1).sum(-1) if count else value


_sum_rightmost = sum_rightmost  # libraries of flows import it by this name


def clamp_probs(probs):
    """Probabilities that are not 0 and not 1."""
    eps = epsilon(probs)
    return probs.clamp(eps, 1 - eps)


def epsilon(x):
    return 2.0**-23 if x.dtype.name == "float32" else 2.0**-52


def tiny(x):
    """The smallest normal number of the type."""
    return 2.0**-126 if x.dtype.name == "float32" else 2.0**-1022


def probs_to_logits(probs, is_binary=False):
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


def logits_to_probs(logits, is_binary=False):
    return logits.sigmoid() if is_binary else F.softmax(logits, -1)


class BinaryLogits:
    """Mixin: a distribution given by `probs` or by `logits`, each the other's log odds."""

    def _set_logits(self, probs, logits, *others):
        """Set the one that is given; returns the others, of the same shape."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        *others, given = broadcast_all(*others, given)
        vars(self)[name] = given
        return [x.to(given.dtype) for x in others]

    @property
    def _param(self):
        name = "probs" if "probs" in vars(self) else "logits"
        return getattr(self, name)

    @property
    def param_shape(self):
        return self._param.shape

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=True)

    def _parameters_in_place(self):
        # One of the two: the other may have been computed meanwhile.
        found = dict(super()._parameters_in_place())
        if "probs" in found and "logits" in found:
            found.pop("logits" if self._param is found["probs"] else "probs")
        return list(found.items())
