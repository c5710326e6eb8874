"""kl_divergence(p, q), the expectation under p of log p(x) - log q(x), by a table of formulas for pairs of classes.

The formula for the nearest base classes counts. Those without a comment are the integrals written out; the rest say
where p has draws that q cannot have, which makes the divergence infinite.
"""

import math

from ..autograd import grad
from ..creation import eye, full_like
from ..functions import where
from ..linalg import solve_triangular
from ..nn import functional as F
from ..runtime.state.modes import enable_grad
from ..runtime.state.said import warn
from .categories import Categorical, OneHotCategorical
from .continuous_bernoulli import ContinuousBernoulli
from .counts import Bernoulli, Binomial, Geometric, Poisson
from .distribution import Distribution, ExponentialFamily, euler_constant, sum_rightmost
from .gammas import Beta, Dirichlet, Gamma
from .locations import Cauchy, Exponential, Laplace, Normal, Uniform
from .multivariate import LowRankMultivariateNormal, MultivariateNormal, squared_distance
from .transformed import Gumbel, HalfNormal, Independent, Pareto, TransformedDistribution

_FORMULAS = {}


def register_kl(type_p, type_q):
    """Decorator: this function of (p, q) is the divergence for distributions of these classes."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        # Of any class: libraries have distributions that are none of weft's.
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a class of distributions but got {kind}")

    def register(function):
        _FORMULAS[type_p, type_q] = function
        # Whoever has prepared a call with distributions compares their classes, which are others now (pure_code.py).
        Distribution._n_formulas = len(_FORMULAS)
        return function

    return register


def kl_divergence(p, q):
    """The Kullback-Leibler divergence of q from p. NotImplementedError for pairs without a formula."""
    formula = _formula_of(type(p), type(q))
    if formula is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return formula(p, q)


def _formula_of(type_p, type_q):
    matches = [(a, b) for a, b in _FORMULAS if issubclass(type_p, a) and issubclass(type_q, b)]
    if not matches:
        return None
    by_p = min(matches, key=lambda pair: (_distance(type_p, pair[0]), _distance(type_q, pair[1])))
    by_q = min(matches, key=lambda pair: (_distance(type_q, pair[1]), _distance(type_p, pair[0])))
    if _FORMULAS[by_p] is not _FORMULAS[by_q]:
        warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({by_p[0].__name__}, {by_q[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _FORMULAS[by_p]


def _distance(kind, base):
    places = kind.__mro__
    return places.index(base) if base in places else len(places)


def _infinite(name):
    """A divergence that is infinite, in the shape of a parameter of p."""
    return lambda p, q: full_like(getattr(p, name), math.inf)


for _p, _name, _qs in (
    (ContinuousBernoulli, "probs", (Pareto,)),
    (Exponential, "rate", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gamma, "concentration", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gumbel, "loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Laplace, "loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Normal, "loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Pareto, "scale", (Beta, ContinuousBernoulli, Uniform)),
    (Poisson, "rate", (Bernoulli, Binomial)),
    (Beta, "concentration1", (Pareto,)),
):
    for _q in _qs:
        register_kl(_p, _q)(_infinite(_name))


# --- made of others ---------------------------------------------------------------------------------------------------
@register_kl(ExponentialFamily, ExponentialFamily)
def _families(p, q):
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            "divergences"
        )
    ours = [x.detach().requires_grad_() for x in p._natural_params]
    with enable_grad():
        normalizer = p._log_normalizer(*ours)
        slopes = grad(normalizer.sum(), ours, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for a, b, slope in zip(ours, q._natural_params, slopes):
        result = result - sum_rightmost((b - a) * slope, len(q.event_shape))
    return result


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: the two Independent have different reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("kl_divergence: the two have different transforms, or events of different shapes")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(HalfNormal, HalfNormal)
def _half_normals(p, q):
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hots(p, q):
    return kl_divergence(p._categorical, q._categorical)


# --- of one class -----------------------------------------------------------------------------------------------------
@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p, q):
    ones = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    ones = where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, ones))
    zeros = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    return ones + where(p.probs == 1, 0.0, where(q.probs == 1, math.inf, zeros))


@register_kl(Beta, ContinuousBernoulli)
@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _to_continuous_bernoullis(p, q):
    """The logarithm of q's density is a straight line, so the mean of p says what its mean is."""
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_norm()


@register_kl(Uniform, ContinuousBernoulli)
def _uniforms_to_continuous_bernoullis(p, q):
    return where((p.high >= 1.0) | (p.low <= 0.0), math.inf, _to_continuous_bernoullis(p, q))


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoullis_to_uniforms(p, q):
    return where((q.low >= 0.0) | (q.high <= 1.0), math.inf, (q.high - q.low).log() - p.entropy())


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoullis_to_exponentials(p, q):
    return q.rate * p.mean - q.rate.log() - p.entropy()


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoullis_to_normals(p, q):
    spread = (p.variance + (p.mean - q.loc) ** 2) / (2.0 * q.scale**2)
    return spread + q.scale.log() + 0.5 * math.log(2.0 * math.pi) - p.entropy()


@register_kl(Categorical, Categorical)
def _categoricals(p, q):
    terms = p.probs * (p.logits - q.logits)
    return where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, terms)).sum(-1)


@register_kl(Binomial, Binomial)
def _binomials(p, q):
    if (p.total_count < q.total_count).any().item():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return where(p.total_count > q.total_count, math.inf, found)


@register_kl(Geometric, Geometric)
def _geometrics(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poissons(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Beta, Beta)
def _betas(p, q):
    of_p, of_q = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    found = q.concentration1.lgamma() + q.concentration0.lgamma() + of_p.lgamma()
    found = found - (p.concentration1.lgamma() + p.concentration0.lgamma() + of_q.lgamma())
    found = found + (p.concentration1 - q.concentration1) * p.concentration1.digamma()
    found = found + (p.concentration0 - q.concentration0) * p.concentration0.digamma()
    return found + (of_q - of_p) * of_p.digamma()


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    found = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return found + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Gamma, Gamma)
def _gammas(p, q):
    a, b = p.concentration, q.concentration
    found = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return found + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Exponential, Exponential)
def _exponentials(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Normal, Normal)
def _normals(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplaces(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchys(p, q):
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbels(p, q):
    ratio, at_q, at_p = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    found = -ratio.log() - at_q + at_p + ratio * euler_constant
    return found + (at_q + (1 + ratio).lgamma() - at_p).exp() - (1 + euler_constant)


@register_kl(Pareto, Pareto)
def _paretos(p, q):
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, found)


@register_kl(Uniform, Uniform)
def _uniforms(p, q):
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _multivariate_normals(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed"
        )
    n = p.event_shape[0]
    of_p, of_q = p.scale_tril, q.scale_tril
    inverse = solve_triangular(of_q, eye(n, dtype=q.loc.dtype), upper=False)
    spread = (inverse @ of_p).pow(2).sum((-2, -1))
    distance = squared_distance(of_q, q.loc - p.loc)
    return q.half_log_det() - p.half_log_det() + 0.5 * (spread + distance - n)


# --- of two classes ---------------------------------------------------------------------------------------------------
def _to_normal(mean, second_moment, q):
    """-E log q(x) for a normal q, from the moments of p."""
    variance = q.scale.pow(2)
    return 0.5 * (2 * math.pi * variance).log() + (second_moment - 2 * q.loc * mean + q.loc.pow(2)) / (2 * variance)


@register_kl(Beta, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _moments_to_normal(p, q):
    return -p.entropy() + _to_normal(p.mean, p.variance + p.mean.pow(2), q)


@register_kl(Pareto, Normal)
def _pareto_to_normal(p, q):
    # Up to alpha 2 the second moment is infinite.
    a = p.alpha.clamp(min=2)
    second = a * p.scale.pow(2) / (a - 2)
    return where(p.alpha <= 2, math.inf, -p.entropy() + _to_normal(a * p.scale / (a - 1), second, q))


def _to_gamma(mean, mean_log, q):
    """-E log q(x) for a gamma-distributed q."""
    a = q.concentration
    return a.lgamma() - a * q.rate.log() - (a - 1) * mean_log + q.rate * mean


@register_kl(Beta, Gamma)
def _beta_to_gamma(p, q):
    total = p.concentration1 + p.concentration0
    return -p.entropy() + _to_gamma(p.mean, p.concentration1.digamma() - total.digamma(), q)


@register_kl(Exponential, Gamma)
def _exponential_to_gamma(p, q):
    return -p.entropy() + _to_gamma(p.mean, -euler_constant - p.rate.log(), q)


@register_kl(Pareto, Gamma)
def _pareto_to_gamma(p, q):
    found = -p.entropy() + _to_gamma(p.mean, p.scale.log() + p.alpha.reciprocal(), q)
    return where(p.alpha <= 1, math.inf, found)


def _x_log_x(x):
    return x.xlogy(x)


@register_kl(Uniform, Gamma)
def _uniform_to_gamma(p, q):
    width = p.high - p.low
    mean_log = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    return where(p.low < 0, math.inf, -p.entropy() + _to_gamma(p.mean, mean_log, q))


@register_kl(Beta, Exponential)
@register_kl(Gamma, Exponential)
def _mean_to_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Uniform, Exponential)
def _uniform_to_exponential(p, q):
    return where(p.low < 0, math.inf, _mean_to_exponential(p, q))


@register_kl(Pareto, Exponential)
def _pareto_to_exponential(p, q):
    return where(p.alpha <= 1, math.inf, _mean_to_exponential(p, q))


@register_kl(Beta, Uniform)
def _beta_to_uniform(p, q):
    return where((q.low > 0) | (q.high < 1), math.inf, -p.entropy() + (q.high - q.low).log())


@register_kl(Uniform, Beta)
def _uniform_to_beta(p, q):
    width, c1, c0 = p.high - p.low, q.concentration1, q.concentration0
    log_x = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    log_rest = -(_x_log_x(1 - p.high) - _x_log_x(1 - p.low) + width) / width
    normalizer = c1.lgamma() + c0.lgamma() - (c1 + c0).lgamma()
    found = -width.log() - (c1 - 1) * log_x - (c0 - 1) * log_rest + normalizer
    return where((p.high > 1) | (p.low < 0), math.inf, found)


@register_kl(Uniform, Pareto)
def _uniform_to_pareto(p, q):
    width = p.high - p.low
    mean_log = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    found = mean_log * (q.alpha + 1) - (q.alpha * q.scale.pow(q.alpha) * width).log()
    return where(p.low < q.scale, math.inf, found)


@register_kl(Normal, Laplace)
def _normal_to_laplace(p, q):
    distance = p.loc - q.loc
    relative = distance / p.scale
    spread = math.sqrt(2 / math.pi) * p.scale * (-0.5 * relative.pow(2)).exp()
    mean = spread + distance * (math.sqrt(0.5) * relative).erf()
    return -p.entropy() + (2 * q.scale).log() + mean / q.scale


def _to_gumbel(p, mean_exponential, q):
    """For a Gumbel q; mean_exponential is E exp(-x / scale)."""
    relative = (p.mean - q.loc) / q.scale
    return -p.entropy() + q.scale.log() + relative + (q.loc / q.scale).exp() * mean_exponential


@register_kl(Normal, Gumbel)
def _normal_to_gumbel(p, q):
    return _to_gumbel(p, (-p.loc / q.scale + 0.5 * (p.scale / q.scale).pow(2)).exp(), q)


@register_kl(Exponential, Gumbel)
def _exponential_to_gumbel(p, q):
    product = p.rate * q.scale
    return _to_gumbel(p, product / (product + 1), q)


@register_kl(Gamma, Gumbel)
def _gamma_to_gumbel(p, q):
    return _to_gumbel(p, (1 + (p.rate * q.scale).reciprocal()).pow(-p.concentration), q)


@register_kl(Uniform, Gumbel)
def _uniform_to_gumbel(p, q):
    ratio = q.scale / (p.high - p.low)
    return _to_gumbel(p, ratio * ((-p.low / q.scale).exp() - (-p.high / q.scale).exp()), q)


@register_kl(Bernoulli, Poisson)
def _bernoulli_to_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)
