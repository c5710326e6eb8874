"""Distributions in compiled functions and in calls on arrays: their checks are part of what is computed."""

import numpy as np
import pytest
from prepared_parts import is_prepared, prepared, same_as_tensors

import weft
from weft import distributions as D
from weft.distributions import Bernoulli, Gamma, Geometric, Independent, MultivariateNormal, Normal, Uniform
from weft.runtime.replay.native import native_code_is_used

DATA = weft.tensor(np.random.default_rng(0).uniform(0.1, 0.9, 50))
POINT = np.array([0.5, -0.3, 0.2])
EYE = weft.eye(3, dtype=weft.float64)
PRIOR = Independent(Normal(weft.zeros(3, dtype=weft.float64), weft.ones(3, dtype=weft.float64)), 1)
CASES = {
    "normal": lambda x: -Normal(x[0], weft.exp(x[1])).log_prob(DATA).sum(),
    "prior": lambda x: PRIOR.log_prob(x) + Gamma(weft.exp(x[0]), 1.0).log_prob(weft.exp(x[1])),
    "bounds": lambda x: Uniform(-9.0, 9.0).log_prob(x).sum() + D.Beta(2.0, weft.exp(x[0])).log_prob(DATA).mean(),
    "logits": lambda x: Bernoulli(logits=x).log_prob((DATA[:3] > 0.5) * 1.0).sum() + Geometric(x.exp() / 9).mean.sum(),
    "mixture": lambda x: D.MixtureSameFamily(D.Categorical(logits=x), Normal(x, weft.exp(x))).log_prob(DATA).sum(),
    "matrix": lambda x: MultivariateNormal(x, EYE * weft.exp(x[0])).log_prob(x * 2),
    "factor": lambda x: MultivariateNormal(x, scale_tril=EYE * weft.exp(x[0])).log_prob(x * 2),
    "moved": lambda x: D.TransformedDistribution(Normal(x[0], 1.0), [D.ExpTransform()]).log_prob(DATA).sum(),
    "divergence": lambda x: D.kl_divergence(Normal(x, weft.exp(x)), Normal(0.0, 1.0)).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_likelihoods_of_distributions_are_one_program(name):
    function = CASES[name]
    both = prepared(weft.value_and_grad(function), POINT)
    assert is_prepared(both), both.explain()
    assert same_as_tensors(both, function, POINT) and same_as_tensors(both, function, POINT * 2)
    compiled = weft.compile(function, fullgraph=True)
    x = weft.tensor(POINT)
    assert [compiled(x).item() for _ in range(3)] == [function(x).item()] * 3


def log_density(x):
    return Normal(0.0, x).log_prob(DATA[:3]).sum()


def test_parameters_are_checked_where_they_are_computed():
    good, bad = weft.ones(3, dtype=weft.float64), weft.tensor([1.0, -1.0, 2.0], dtype=weft.float64)
    compiled = weft.compile(log_density)
    for _ in range(3):
        assert compiled(good).item() == log_density(good).item()
        with pytest.raises(ValueError, match="parameter scale of distribution Normal .*greater_than|GreaterThan"):
            compiled(bad)
    with pytest.raises(ValueError, match=r"at \(1,\)"):
        compiled(bad)
    both = prepared(weft.value_and_grad(log_density), good.numpy())
    for _ in range(3):
        with pytest.raises(ValueError, match="parameter scale of distribution Normal"):
            both(bad.numpy())
        assert same_as_tensors(both, log_density, good.numpy())


def test_values_outside_of_the_support():
    compiled = weft.compile(lambda x: D.Beta(2.0, 3.0).log_prob(x).sum())
    assert compiled(DATA).item() == D.Beta(2.0, 3.0).log_prob(DATA).sum().item()
    with pytest.raises(ValueError, match="within the support .*Interval.* of the distribution Beta"):
        compiled(DATA + 1)


def test_an_error_that_the_function_catches():
    def f(x):
        try:
            return log_density(x)
        except ValueError:
            return x.sum()

    compiled = weft.compile(f)
    for values in ([1.0, 2.0, 3.0], [1.0, -2.0, 3.0], [2.0, 2.0, 3.0], [0.0, 2.0, 3.0]) * 2:
        x = weft.tensor(values, dtype=weft.float64)
        assert compiled(x).item() == f(x).item()


def test_a_matrix_that_is_not_definite():
    compiled = weft.compile(lambda x: MultivariateNormal(x, EYE * x).log_prob(x))
    one, other = weft.ones(3, dtype=weft.float64), weft.tensor([1.0, -1.0, 1.0], dtype=weft.float64)
    assert compiled(one).item() == MultivariateNormal(one, EYE).log_prob(one).item()
    with pytest.raises(weft.linalg.LinAlgError) as caught:
        compiled(other)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, RuntimeError)
    skew = weft.compile(lambda x: MultivariateNormal(x, EYE + weft.diag(x[:2], 1)).log_prob(x))
    with pytest.raises(ValueError, match="covariance_matrix of distribution MultivariateNormal"):
        skew(one)


def test_a_matrix_that_is_not_definite_is_caught_as_in_eager_mode():
    def log_density(x):
        try:
            return MultivariateNormal(x, EYE * x).log_prob(x)
        except ValueError:
            return -x.sum()

    compiled = weft.compile(log_density)
    for values in ([1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [2.0, 1.0, 1.0]) * 2:
        x = weft.tensor(values, dtype=weft.float64)
        assert compiled(x).item() == log_density(x).item()


def test_checks_that_are_turned_off_and_on():
    bad = -weft.ones(3, dtype=weft.float64).numpy()
    both = weft.value_and_grad(log_density)
    D.Distribution.set_default_validate_args(False)
    try:
        prepared(both, bad)
        assert is_prepared(both)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="parameter scale"):
        both(bad)


def test_distributions_that_change():
    prior = Normal(0.0, weft.ones((), dtype=weft.float64))

    def f(x):
        return prior.log_prob(x).sum()

    both = prepared(weft.value_and_grad(f), POINT)
    assert is_prepared(both)
    prior.scale = weft.full((), 2.0, dtype=weft.float64)
    assert same_as_tensors(both, f, POINT)
    prior.scale.mul_(2)
    assert same_as_tensors(both, f, POINT)
    prior.log_prob = lambda x: x
    assert same_as_tensors(both, f, POINT)


def test_divergences_that_are_registered_anew():
    class Own(Normal):
        pass

    own, normal = Own(weft.zeros((), dtype=weft.float64), 1.0), Normal(0.0, 1.0)

    def of_own(x):
        return D.kl_divergence(own, normal) + (x * x).sum()

    def of_ours(x):
        return D.kl_divergence(Normal(x, 2.0), normal).sum()

    functions, formulas = [of_own, of_ours], dict(D.kl._FORMULAS)
    all_both = [prepared(weft.value_and_grad(function), POINT) for function in functions]
    try:
        for pair in ((Own, Normal), (Normal, Normal)):
            D.register_kl(*pair)(lambda p, q: p.loc * 3 + 7.0)
            for both, function in zip(all_both, functions):
                assert same_as_tensors(both, function, POINT)
                prepared(both, POINT, calls=40)
                assert same_as_tensors(both, function, POINT)
            assert is_prepared(all_both[1]) == (pair[0] is Own) or not native_code_is_used()
    finally:
        D.kl._FORMULAS.clear()
        D.kl._FORMULAS.update(formulas)
