"""Distributions against PyTorch's: densities, moments, derivatives, divergences, errors; draws by their moments."""

import copy
import math
import pickle

import numpy as np
import pytest
from distribution_parts import close, numbers

import weft
from weft import distributions

# How to make each: (library, distributions of the library) -> distribution. `t` makes a float64 tensor.


CONTINUOUS = {
    "Normal": lambda d, t: d.Normal(t(0.5, -1), t(1.5, 0.3)),
    "Normal of numbers": lambda d, t: d.Normal(0.5, 2.0),
    "LogNormal": lambda d, t: d.LogNormal(t(0.5, -1), t(0.5, 0.3)),
    "Laplace": lambda d, t: d.Laplace(t(0.5, -1), t(1.5, 0.3)),
    "Cauchy": lambda d, t: d.Cauchy(t(0.5, -1), t(1.5, 0.3)),
    "Exponential": lambda d, t: d.Exponential(t(0.5, 3)),
    "Uniform": lambda d, t: d.Uniform(t(-3, 0), t(1, 5)),
    "HalfNormal": lambda d, t: d.HalfNormal(t(0.5, 3)),
    "HalfCauchy": lambda d, t: d.HalfCauchy(t(0.5, 3)),
    "Gumbel": lambda d, t: d.Gumbel(t(0.5, -1), t(1.5, 0.3)),
    "Weibull": lambda d, t: d.Weibull(t(0.5, 2), t(1.5, 3)),
    "Pareto": lambda d, t: d.Pareto(t(0.1, 0.2), t(3.5, 2.5)),
    "Kumaraswamy": lambda d, t: d.Kumaraswamy(t(1.5, 2), t(1.5, 3)),
    "Gamma": lambda d, t: d.Gamma(t(0.5, 3), t(1.5, 0.3)),
    "Chi2": lambda d, t: d.Chi2(t(0.5, 3)),
    "InverseGamma": lambda d, t: d.InverseGamma(t(2.5, 3), t(1.5, 0.3)),
    "Beta": lambda d, t: d.Beta(t(0.5, 3), t(1.5, 2.3)),
    "Beta of numbers": lambda d, t: d.Beta(2.0, 3.0),
    "StudentT": lambda d, t: d.StudentT(t(2.5, 1.5), t(0.5, -1), t(1.5, 0.3)),
    "FisherSnedecor": lambda d, t: d.FisherSnedecor(t(2.5, 5), t(3.5, 7)),
    "ContinuousBernoulli": lambda d, t: d.ContinuousBernoulli(t(0.2, 0.5)),
    "GeneralizedPareto": lambda d, t: d.GeneralizedPareto(
        t(0.5, 1, 0).float(), t(1, 2, 1).float(), t(0.2, -0.5, 0).float()
    ),
    "RelaxedBernoulli": lambda d, t: d.RelaxedBernoulli(t(0.7), probs=t(0.2, 0.6)),
}
DISCRETE = {
    "Bernoulli": lambda d, t: d.Bernoulli(t(0.2, 0.5)),
    "Bernoulli of logits": lambda d, t: d.Bernoulli(logits=t(0.2, -1)),
    "Geometric": lambda d, t: d.Geometric(t(0.2, 1.0)),
    "Binomial": lambda d, t: d.Binomial(5, t(0.2, 0.7)),
    "NegativeBinomial": lambda d, t: d.NegativeBinomial(t(2, 3), logits=t(0.2, -1)),
    "Poisson": lambda d, t: d.Poisson(t(0.5, 4)),
    "Categorical": lambda d, t: d.Categorical(t(0.2, 0.5, 1.3)),
    "Categorical of logits": lambda d, t: d.Categorical(logits=t(0.2, 0.5, 1.3).repeat(2, 1)),
}
VECTORS = {
    "Dirichlet": lambda d, t: d.Dirichlet(t(0.5, 1.5, 3)),
    "OneHotCategorical": lambda d, t: d.OneHotCategorical(t(0.2, 0.5, 0.3)),
    "straight through": lambda d, t: d.OneHotCategoricalStraightThrough(logits=t(0.2, 0.5, 0.3)),
    "Multinomial": lambda d, t: d.Multinomial(4, t(0.2, 0.5, 0.3)),
    "RelaxedOneHotCategorical": lambda d, t: d.RelaxedOneHotCategorical(t(0.7)[0], logits=t(0.2, 0.6, 1)),
    "MultivariateNormal": lambda d, t: d.MultivariateNormal(t(0.5, 1), t(2, 0.5, 0.5, 1).reshape(2, 2)),
    "of a precision": lambda d, t: d.MultivariateNormal(t(0.5, 1), precision_matrix=t(2, 0.5, 0.5, 1).reshape(2, 2)),
    "of a factor": lambda d, t: d.MultivariateNormal(t(0.5, 1).repeat(3, 1), scale_tril=t(2, 0, 0.5, 1).reshape(2, 2)),
    "LowRank": lambda d, t: d.LowRankMultivariateNormal(t(0.5, 1), t(2, 0.5).reshape(2, 1), t(0.3, 1)),
    "LKJCholesky": lambda d, t: d.LKJCholesky(3, t(1.5, 0.7)),
    "Wishart": lambda d, t: d.Wishart(t(3.5)[0], t(2, 0.5, 0.5, 1).reshape(2, 2)),
    "Wishart of a factor": lambda d, t: d.Wishart(t(2.5, 4), scale_tril=t(2, 0, 0.5, 1).reshape(2, 2)),
    "Independent": lambda d, t: d.Independent(d.Normal(t(0.5, -1), t(1.5, 0.3)), 1),
    "LogisticNormal": lambda d, t: d.LogisticNormal(t(0.5, -1), t(1.5, 0.3)),
    "MixtureSameFamily": lambda d, t: d.MixtureSameFamily(d.Categorical(t(0.3, 0.7)), d.Normal(t(0, 3), t(1, 0.5))),
    "mixture of vectors": lambda d, t: d.MixtureSameFamily(
        d.Categorical(t(0.3, 0.7)), d.Independent(d.Normal(t(0, 3, 1, 2).reshape(2, 2), t(1, 0.5)), 1)
    ),
    "TransformedDistribution": lambda d, t: d.TransformedDistribution(
        d.Normal(t(0.5, -1), t(1.5, 0.3)), [d.AffineTransform(1.0, t(2, -3)), d.SigmoidTransform()]
    ),
}
ALL = {**CONTINUOUS, **DISCRETE, **VECTORS}


def made(name, library=weft):
    return ALL[name](library.distributions, numbers(library))


def value_or_error(function):
    try:
        return function()
    except NotImplementedError:
        return NotImplementedError


@pytest.mark.oracle
@pytest.mark.parametrize("name", ALL)
def test_values_like_pytorch(name):
    torch = pytest.importorskip("torch")
    ours, theirs = made(name), made(name, torch)
    assert ours.batch_shape == tuple(theirs.batch_shape) and ours.event_shape == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    for what in ("mean", "mode", "variance", "stddev"):
        close(
            value_or_error(lambda what=what: getattr(ours, what)),
            value_or_error(lambda what=what: getattr(theirs, what)),
            what,
        )
    close(value_or_error(ours.entropy), value_or_error(theirs.entropy), "entropy")
    torch.manual_seed(0)
    drawn = theirs.sample((5,))
    x = weft.tensor(drawn.numpy())
    close(ours.log_prob(x), theirs.log_prob(drawn), "log_prob")
    assert bool(ours.support.check(x).all())
    for what in ("cdf", "icdf"):
        given = (
            drawn
            if what == "cdf"
            else torch.linspace(0.1, 0.9, drawn.numel(), dtype=torch.float64).reshape(drawn.shape)
        )
        expected = value_or_error(lambda given=given, what=what: getattr(theirs, what)(given))
        if name not in VECTORS:
            close(
                value_or_error(lambda given=given, what=what: getattr(ours, what)(weft.tensor(given.numpy()))),
                expected,
                what,
            )
    if theirs.has_enumerate_support:
        for expand in (True, False):
            close(ours.enumerate_support(expand), theirs.enumerate_support(expand), "enumerate_support")
    wide, expected = ours.expand((3, *ours.batch_shape)), theirs.expand((3, *theirs.batch_shape))
    assert type(wide) is type(ours) and wide.batch_shape == tuple(expected.batch_shape)
    close(wide.log_prob(x[:1]), expected.log_prob(drawn[:1]), "expanded")
    assert wide.sample((2,)).shape == (2, *wide.batch_shape, *wide.event_shape)
    assert repr(ours).split("(")[0] == repr(theirs).split("(")[0]


PARAMETERS = {
    "Normal": (0.5, 1.5), "Laplace": (0.5, 1.5), "Cauchy": (0.5, 1.5), "Exponential": (1.5,), "Gumbel": (0.5, 1.5),
    "LogNormal": (0.5, 0.7), "HalfNormal": (1.5,), "Weibull": (1.5, 2.5), "Pareto": (1.5, 2.5), "Gamma": (1.5, 2.5),
    "Beta": (1.5, 2.5), "StudentT": (2.5, 0.5, 1.5), "Kumaraswamy": (1.5, 2.5), "InverseGamma": (1.5, 2.5),
    "Bernoulli": (0.3,), "Geometric": (0.3,), "Poisson": (1.5,), "Chi2": (3.5,), "FisherSnedecor": (2.5, 3.5),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", PARAMETERS)
def test_derivatives_like_pytorch(name):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        parameters = [library.tensor(p, dtype=library.float64, requires_grad=True) for p in PARAMETERS[name]]
        distribution = getattr(library.distributions, name)(*parameters)
        x = library.tensor(1.0 if name in ("Bernoulli", "Geometric", "Poisson") else 0.6, dtype=library.float64)
        if name == "Pareto":
            x = x + 2
        x.requires_grad_(name not in ("Bernoulli",))
        loss = distribution.log_prob(x)
        if name != "Poisson" and value_or_error(distribution.entropy) is not NotImplementedError:
            loss = loss + 2 * distribution.entropy()
        gradients = library.autograd.grad(loss, [*parameters, *([x] if x.requires_grad else [])])
        found.append([g.item() for g in gradients])
    np.testing.assert_allclose(found[0], found[1], 1e-8)


def moments_of(name, n=20000):
    weft.manual_seed(3)
    distribution = made(name)
    drawn = distribution.sample((n,)).double()
    return distribution, drawn, (drawn.var(0).sqrt() / n**0.5).clamp(min=1e-9)


@pytest.mark.parametrize("name", [k for k in ALL if "Cauchy" not in k])
def test_draws_have_the_right_moments(name):
    distribution, drawn, error = moments_of(name)
    assert drawn.shape == (20000, *distribution.batch_shape, *distribution.event_shape)
    assert not drawn.requires_grad
    mean = value_or_error(lambda: distribution.mean)
    if name.startswith("Categorical"):
        mean = (distribution.probs * weft.arange(3)).sum(-1)
    if name == "LogisticNormal" or mean is NotImplementedError:
        return
    mean = mean.where(mean.isfinite(), drawn.mean(0))
    heavy = 4 if name in ("Pareto", "StudentT", "FisherSnedecor", "InverseGamma") else 1
    assert ((drawn.mean(0) - mean).abs() < 5 * heavy * error).all(), (drawn.mean(0), mean, error)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_follow_the_distribution_function(name):
    distribution, drawn, _ = moments_of(name, 4000)
    levels = value_or_error(lambda: distribution.cdf(drawn))
    if levels is NotImplementedError:
        return
    for level in (0.1, 0.5, 0.9):
        assert ((levels < level).double().mean(0) - level).abs().max().item() < 0.03


@pytest.mark.oracle
def test_derivatives_of_gamma_draws_like_pytorch():
    torch = pytest.importorskip("torch")
    from weft.distributions.gamma_draws import standard_gamma_derivative

    concentration = np.array([1e-2, 0.3, 1, 2.5, 30, 150, 250, 3e3])[:, None] * np.ones((1, 40))
    generator = np.random.default_rng(0)
    drawn = np.maximum(generator.standard_gamma(concentration), 1e-300)
    expected = torch._standard_gamma_grad(torch.tensor(concentration), torch.tensor(drawn)).numpy()
    found = standard_gamma_derivative(concentration, drawn)
    # PyTorch's are approximations, to 1e-3 in places.
    np.testing.assert_allclose(found, expected, 4e-3, 1e-300)


def test_derivatives_of_gamma_draws_by_differences():
    special = pytest.importorskip("scipy.special")
    from weft.distributions.gamma_draws import standard_gamma_derivative

    a = np.array([0.05, 0.7, 3.0, 40.0, 190.0, 900.0, 1100.0, 5000.0])[:, None]
    levels = np.array([0.01, 0.3, 0.7, 0.99])
    x, step = special.gammaincinv(a, levels), a * 1e-5
    difference = (special.gammaincinv(a + step, levels) - special.gammaincinv(a - step, levels)) / (2 * step)
    np.testing.assert_allclose(standard_gamma_derivative(a, x), difference, 1e-5)


def test_derivatives_of_dirichlet_draws_by_differences():
    special = pytest.importorskip("scipy.special")
    from weft.distributions.dirichlet_draws import dirichlet_derivative

    a = np.array([0.1, 0.5, 1.0, 2.5, 30.0, 700.0, 1e5])[:, None, None]
    b = np.array([0.5, 1.0, 3.5, 20.0, 900.0, 1e4])[:, None]
    x, step = special.betaincinv(a, b, np.array([0.001, 0.1, 0.5, 0.9])), a * 1e-5
    levels = special.betainc(a, b, x)
    difference = special.betaincinv(a + step, b, levels) - special.betaincinv(a - step, b, levels)
    known = 1 - x > 1e-4  # closer to 1 the differences have no digits
    found = dirichlet_derivative(x, a + 0 * x, a + b)
    np.testing.assert_allclose(found[known], (difference / (2 * step * (1 - x)))[known], 1e-5)
    assert np.isfinite(found).all()


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["Beta", "Dirichlet"])
def test_derivatives_of_the_same_draws_are_those_of_pytorch(name, monkeypatch):
    torch = pytest.importorskip("torch")
    values = np.array([[0.4, 1.5, 7.0], [20.0, 3.0, 0.9]])
    given = [values[:, 0], values[:, 1]] if name == "Beta" else [values]
    weft.manual_seed(3)
    ours = [weft.tensor(v).requires_grad_() for v in given]
    drawn = getattr(distributions, name)(*ours).rsample((50,))
    vectors = np.stack([drawn.detach().numpy(), 1 - drawn.detach().numpy()], -1) if name == "Beta" else drawn.detach()
    monkeypatch.setattr(torch, "_sample_dirichlet", lambda *_: torch.tensor(np.array(vectors)))
    theirs = [torch.tensor(v).requires_grad_() for v in given]
    expected = getattr(torch.distributions, name)(*theirs).rsample((50,))
    (drawn**2).mean(0).sum().backward()
    (expected**2).mean(0).sum().backward()
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 1e-3)  # PyTorch's are approximations


def test_a_dirichlet_draw_of_one_element_does_not_depend_on_its_concentration():
    concentration = weft.tensor([[2.0], [0.3]], requires_grad=True)
    drawn = distributions.Dirichlet(concentration).rsample()
    drawn.sum().backward()
    assert drawn.tolist() == [[1.0], [1.0]] and concentration.grad.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("name", ["Normal", "Gamma", "Beta", "Dirichlet", "StudentT", "MultivariateNormal", "Gumbel"])
def test_draws_have_derivatives(name):
    """The derivative of a mean of draws is that of the mean."""
    weft.manual_seed(0)
    parameters = {
        "Normal": (0.5, 1.5), "Gamma": (2.0, 1.5), "Beta": (2.0, 1.5), "StudentT": (8.0, 0.5, 1.0), "Gumbel": (0.5, 1.5)
    }.get(name)  # fmt: skip
    if parameters is None:
        parameters = [weft.tensor([1.5, 2.0, 0.7]).double()]
        if name == "MultivariateNormal":
            parameters.append(weft.eye(3).double() * 2)
    leaves = [(p if isinstance(p, weft.Tensor) else weft.tensor(p).double()).requires_grad_() for p in parameters]
    distribution = getattr(distributions, name)(*leaves)
    drawn = distribution.rsample((20000,))
    assert drawn.requires_grad
    weight = weft.arange(1.0, 4.0).double() if distribution.event_shape else 1.0
    found = weft.autograd.grad((drawn.mean(0) * weight).sum(), leaves)
    expected = weft.autograd.grad((distribution.mean * weight).sum(), leaves, allow_unused=True)
    for a, b in zip(found, expected):
        if b is not None:
            np.testing.assert_allclose(a.numpy(), b.numpy(), atol=0.06)


@pytest.mark.oracle
def test_angles_like_pytorch():
    torch = pytest.importorskip("torch")
    ours, theirs = (
        library.distributions.VonMises(numbers(library)(0.5, 3), numbers(library)(1.5, 8)) for library in (weft, torch)
    )
    x = np.array([[0.3, -2.0], [1.0, 3.0]])
    # PyTorch's Bessel functions are approximations.
    close(ours.log_prob(weft.tensor(x)), theirs.log_prob(torch.tensor(x)), "log_prob", 1e-6)
    close(ours.variance, theirs.variance, "variance", 1e-6)
    drawn = ours.sample((20000,))
    circular = (drawn - ours.loc).cos().mean(0)
    assert (circular - (1 - ours.variance)).abs().max().item() < 0.02 and drawn.abs().max().item() <= math.pi
    assert ours.expand((3, 2)).log_prob(weft.tensor(x)[:1]).shape == (3, 2)


def test_draws_without_derivatives_say_so():
    with pytest.raises(NotImplementedError, match="Bernoulli has no rsample"):
        distributions.Bernoulli(0.5).rsample()


KL = {
    "Bernoulli": (lambda d, t: d.Bernoulli(t(0.2, 1.0)), lambda d, t: d.Bernoulli(t(0.4, 0.0))),
    "Beta": (lambda d, t: d.Beta(t(1.5, 2), t(0.5, 3)),) * 2,
    "Binomial": (lambda d, t: d.Binomial(5, t(0.2, 0.3)), lambda d, t: d.Binomial(t(5, 4), t(0.4, 0.1))),
    "Categorical": (lambda d, t: d.Categorical(t(0.2, 0.8, 0)), lambda d, t: d.Categorical(t(0.5, 0.4, 0.1))),
    "Cauchy": (lambda d, t: d.Cauchy(t(1, 2), t(0.5, 3)), lambda d, t: d.Cauchy(t(2, 2), t(0.7, 1))),
    "Dirichlet": (lambda d, t: d.Dirichlet(t(1, 2, 3)), lambda d, t: d.Dirichlet(t(2, 0.5, 1))),
    "Exponential": (lambda d, t: d.Exponential(t(1, 2)), lambda d, t: d.Exponential(t(2, 0.5))),
    "Gamma": (lambda d, t: d.Gamma(t(1, 2), t(3, 4)), lambda d, t: d.Gamma(t(2, 0.5), t(1, 2))),
    "Geometric": (lambda d, t: d.Geometric(t(0.3, 0.6)), lambda d, t: d.Geometric(t(0.5, 0.5))),
    "Gumbel": (lambda d, t: d.Gumbel(t(1, 2), t(0.5, 3)), lambda d, t: d.Gumbel(t(2, 2), t(0.7, 1))),
    "HalfNormal": (lambda d, t: d.HalfNormal(t(1, 2)), lambda d, t: d.HalfNormal(t(2, 0.5))),
    "Laplace": (lambda d, t: d.Laplace(t(1, 2), t(0.5, 3)), lambda d, t: d.Laplace(t(2, 2), t(0.7, 1))),
    "LogNormal": (lambda d, t: d.LogNormal(t(1, 2), t(0.5, 3)), lambda d, t: d.LogNormal(t(2, 2), t(0.7, 1))),
    "MultivariateNormal": (VECTORS["MultivariateNormal"], VECTORS["of a factor"]),
    "LowRank": (VECTORS["LowRank"], lambda d, t: d.LowRankMultivariateNormal(t(0, 2), t(1, 1).reshape(2, 1), t(1, 2))),
    "Normal": (lambda d, t: d.Normal(t(1, 2), t(0.5, 3)), lambda d, t: d.Normal(t(2, 2), t(0.7, 1))),
    "OneHotCategorical": (VECTORS["OneHotCategorical"], lambda d, t: d.OneHotCategorical(t(0.5, 0.4, 0.1))),
    "Pareto": (lambda d, t: d.Pareto(t(1, 2), t(2.5, 3)), lambda d, t: d.Pareto(t(0.5, 3), t(1, 2))),
    "Poisson": (lambda d, t: d.Poisson(t(1, 2)), lambda d, t: d.Poisson(t(2, 0.5))),
    "Uniform": (lambda d, t: d.Uniform(t(0.2, 0.3), t(0.8, 0.9)), lambda d, t: d.Uniform(t(0, 0.5), t(1, 2))),
    "Independent": (VECTORS["Independent"], lambda d, t: d.Independent(d.Normal(t(0, 1), t(1, 1)), 1)),
    "StudentT": (CONTINUOUS["StudentT"],) * 2,
}
CROSS = [
    *[(p, q) for p in ("Beta", "Exponential", "Gamma", "Gumbel", "Laplace", "Pareto", "Uniform") for q in ("Normal",)],
    *[(p, q) for p in ("Beta", "Exponential", "Pareto", "Uniform", "Normal", "Laplace") for q in ("Gamma",)],
    *[("Beta", "Exponential"), ("Gamma", "Exponential"), ("Uniform", "Exponential"), ("Pareto", "Exponential")],
    *[("Beta", "Uniform"), ("Uniform", "Beta"), ("Uniform", "Pareto"), ("Normal", "Laplace"), ("Normal", "Gumbel")],
    *[("Exponential", "Gumbel"), ("Gamma", "Gumbel"), ("Uniform", "Gumbel"), ("Bernoulli", "Poisson")],
    *[("LowRank", "MultivariateNormal"), ("MultivariateNormal", "LowRank")],
    *[("Poisson", "Bernoulli"), ("Gumbel", "Beta"), ("Normal", "StudentT"), ("Beta", "Pareto")],
]


@pytest.mark.oracle
@pytest.mark.parametrize("pair", [(name, name) for name in KL] + CROSS, ids="-".join)
def test_divergences_like_pytorch(pair):
    torch = pytest.importorskip("torch")
    results = []
    for library in (weft, torch):
        p, q = (KL[name][k](library.distributions, numbers(library)) for k, name in enumerate(pair))
        results.append(value_or_error(lambda p=p, q=q, library=library: library.distributions.kl_divergence(p, q)))
    if results[1] is NotImplementedError:
        assert results[0] is NotImplementedError
    else:
        close(*results, str(pair))


def test_divergences_of_users():
    class Mine(distributions.Normal):
        pass

    @distributions.register_kl(Mine, distributions.Normal)
    def _kl(p, q):
        return weft.tensor(7.0)

    assert distributions.kl_divergence(Mine(0.0, 1.0), distributions.Normal(0.0, 1.0)).item() == 7
    assert distributions.kl_divergence(distributions.Normal(0.0, 1.0), Mine(0.0, 1.0)).item() == 0
    with pytest.raises(TypeError, match="Expected type_p to be a class of distributions"):
        distributions.register_kl(Mine(0.0, 1.0), distributions.Normal)


def test_divergences_of_distributions_that_are_none_of_wefts():
    class Point:
        def __init__(self, at):
            self.at = at

    @distributions.register_kl(Point, distributions.Distribution)
    def _(p, q):
        return -q.log_prob(p.at)

    normal = distributions.Normal(1.0, 2.0)
    at = weft.tensor(0.5)
    assert distributions.kl_divergence(Point(at), normal) == -normal.log_prob(at)


# --- compiled ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["Normal", "Gamma", "Categorical", "MultivariateNormal", "RelaxedBernoulli", "Independent"]
)
def test_compiled_calls_have_the_same_bits(name):
    def run(x):
        distribution = made(name)
        drawn = distribution.sample((3,))
        found = distribution.log_prob(drawn) * x
        return drawn, found, distribution.rsample((2,)) if distribution.has_rsample else found

    def bits(run):
        weft.manual_seed(1)
        return [[y.tolist() for y in run(weft.ones(1).double())] for _ in range(4)]

    assert bits(weft.compile(run)) == bits(run)


def test_policy_gradients_and_autoencoders_compile():
    found = []
    for wrap in (weft.compile, lambda function: function):
        weft.manual_seed(0)
        encoder, decoder = weft.nn.Linear(4, 4), weft.nn.Linear(2, 4)
        optimizer = weft.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)

        @wrap
        def step(x, encoder=encoder, decoder=decoder, optimizer=optimizer):
            optimizer.zero_grad()
            mean, log_scale = encoder(x).chunk(2, -1)
            posterior = distributions.Normal(mean, log_scale.exp(), validate_args=False)
            prior = distributions.Normal(weft.zeros(2), weft.ones(2), validate_args=False)
            logits = decoder(posterior.rsample())
            likelihood = distributions.Bernoulli(logits=logits, validate_args=False).log_prob((x > 0).float())
            policy = distributions.Categorical(logits=logits, validate_args=False)
            action = policy.sample()
            loss = (
                distributions.kl_divergence(posterior, prior).sum() - likelihood.sum() - policy.log_prob(action).sum()
            )
            loss.backward()
            optimizer.step()
            return loss

        x = weft.linspace(-1, 1, 12).reshape(3, 4)
        found.append([step(x).item() for _ in range(6)])
    assert found[0] == found[1]


# --- errors and copies ------------------------------------------------------------------------------------------------
def test_copies():
    gamma = distributions.Gamma(weft.tensor([2.0]), weft.tensor([1.0]))
    for twin in (copy.deepcopy(gamma), pickle.loads(pickle.dumps(gamma))):
        assert twin.mean.tolist() == [2.0] and twin.concentration is not gamma.concentration


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.Normal(0.0, -1.0), r"Expected parameter scale \(Tensor of shape \(\)\) of distribution Normal"),
        (lambda d: d.Normal("0", 1.0), "Input arguments must all be instances of Number or Tensor"),
        (lambda d: d.Bernoulli(), "Either `probs` or `logits` must be specified, but not both"),
        (lambda d: d.Bernoulli(probs=1.5), "to satisfy the constraint Interval"),
        (lambda d: d.Categorical(weft.tensor(0.5)), "must be at least one-dimensional"),
        (lambda d: d.Normal(0.0, 1.0).log_prob(3.0), "The value argument to log_prob must be a Tensor"),
        (lambda d: d.Exponential(1.0).log_prob(weft.tensor(-1.0)), "to be within the support"),
        (lambda d: d.Normal(weft.zeros(2), 1.0).log_prob(weft.zeros(3)), "Value is not broadcastable"),
        (lambda d: d.Dirichlet(weft.ones(2)).log_prob(weft.ones(3)), "right-most size of value must match event_shape"),
        (lambda d: d.MultivariateNormal(weft.zeros(2)), "Exactly one of covariance_matrix or precision_matrix"),
        (lambda d: d.Independent(d.Normal(0.0, 1.0), 1), "Expected reinterpreted_batch_ndims <= "),
        (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), [3]), "must be a Transform or a list of Transforms"),
        (lambda d: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(0.0, 1.0)), "needs to be an  instance of"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(distributions)


def test_checks_can_be_switched_off():
    assert distributions.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    distributions.Distribution.set_default_validate_args(False)
    try:
        assert distributions.Exponential(1.0).log_prob(weft.tensor(-1.0)).item() == 1
    finally:
        distributions.Distribution.set_default_validate_args(True)


def test_distributions_of_single_numbers_draw_single_numbers():
    """Of a 0-d array NumPy's generators give a number of Python's."""
    weft.manual_seed(0)
    for made in [
        distributions.Gamma(1.5, 2.0), distributions.Beta(2.0, 3.0), distributions.Chi2(3.0),
        distributions.StudentT(3.0), distributions.FisherSnedecor(2.0, 3.0), distributions.InverseGamma(2.0, 3.0),
        distributions.VonMises(0.0, 1.0), distributions.Poisson(3.0), distributions.Binomial(3, 0.5),
        distributions.NegativeBinomial(3.0, 0.5), distributions.Geometric(0.3),
    ]:  # fmt: skip
        drawn = made.sample()
        assert drawn.shape == () and drawn.dtype == weft.float32 and made.log_prob(drawn).isfinite(), made
    shape = weft.tensor(1.5, requires_grad=True)
    distributions.Gamma(shape, weft.tensor(2.0)).rsample().backward()
    assert shape.grad.isfinite() and shape.grad.shape == ()
