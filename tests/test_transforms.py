"""Constraints and transforms of distributions against PyTorch's, and those that users write."""

import math

import pytest
from distribution_parts import close, numbers

import weft
from weft import distributions

TRANSFORMS = {
    "ExpTransform": lambda d, t: d.ExpTransform(),
    "PowerTransform": lambda d, t: d.ComposeTransform([d.ExpTransform(), d.PowerTransform(t(2, -0.5, 3))]),
    "SigmoidTransform": lambda d, t: d.SigmoidTransform(),
    "SoftplusTransform": lambda d, t: d.SoftplusTransform(),
    "TanhTransform": lambda d, t: d.TanhTransform(),
    "AffineTransform": lambda d, t: d.AffineTransform(t(1, 2, 3), t(2, -1, 0.5), event_dim=1),
    "of numbers": lambda d, t: d.AffineTransform(1.0, -2.0),
    "StickBreakingTransform": lambda d, t: d.StickBreakingTransform(),
    "ReshapeTransform": lambda d, t: d.ReshapeTransform((3,), (3, 1)),
    "IndependentTransform": lambda d, t: d.IndependentTransform(d.ExpTransform(), 1),
    "CatTransform": lambda d, t: d.CatTransform([d.ExpTransform(), d.SigmoidTransform()], -1, [1, 2]),
    "StackTransform": lambda d, t: d.StackTransform([d.ExpTransform(), d.SigmoidTransform(), d.TanhTransform()], -1),
    "CorrCholeskyTransform": lambda d, t: d.CorrCholeskyTransform(),
    "CumulativeDistribution": lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(0.5)[0], 2.0)),
    "inverse": lambda d, t: d.ComposeTransform(
        [d.SigmoidTransform(), d.ExpTransform().inv, d.AffineTransform(0.0, 2.0)]
    ),
    "biject to greater": lambda d, t: d.biject_to(d.constraints.greater_than(2.0)),
    "biject to an interval": lambda d, t: d.biject_to(d.constraints.interval(t(-1, 0, 1), t(2, 2, 2))),
    "transform to less": lambda d, t: d.transform_to(d.constraints.independent(d.constraints.less_than(2.0), 1)),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_like_pytorch(name):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        transform = TRANSFORMS[name](library.distributions, numbers(library))
        x = library.linspace(-1, 1, 6, dtype=library.float64).reshape(2, 3)
        y = transform(x)
        found.append([y, transform.inv(y), transform.log_abs_det_jacobian(x, y)])
        shapes = [tuple(transform.forward_shape((2, 3))), tuple(transform.inverse_shape(tuple(y.shape)))]
        found[-1].append(shapes)
        assert bool(transform.codomain.check(y).all()) and transform.inv.inv == transform
    for a, b in zip(found[0][:3], found[1][:3]):
        close(a, b, name)
    assert found[0][3] == found[1][3]


def test_transforms_that_are_not_injective_and_caches():
    x = weft.tensor([[0.3, -1.0], [2.0, 0.5]]).double()
    factor = distributions.transform_to(distributions.constraints.lower_cholesky)(x)
    assert distributions.constraints.lower_cholesky.check(factor) and factor[0, 0].item() == math.exp(x[0, 0].item())
    matrix = distributions.transform_to(distributions.constraints.positive_definite)(x)
    assert distributions.constraints.positive_definite.check(matrix) and matrix.allclose(factor @ factor.mT)
    assert distributions.transform_to(distributions.constraints.simplex)(x).sum(-1).allclose(weft.ones(2).double())
    cached = distributions.ExpTransform(cache_size=1)
    y = cached(x)
    assert cached.inv(y) is x and cached(x) is y
    assert distributions.ExpTransform() == distributions.ExpTransform() != distributions.TanhTransform()
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        distributions.ExpTransform(cache_size=2)
    with pytest.raises(NotImplementedError, match="Cannot transform _Boolean constraints"):
        distributions.biject_to(distributions.constraints.boolean)
    with pytest.raises(ValueError, match="different numbers of elements"):
        distributions.ReshapeTransform((2,), (3,))


class Shifted(distributions.Transform):
    """As users write one."""

    bijective = True
    domain = codomain = distributions.constraints.real

    def __init__(self, by):
        super().__init__(cache_size=1)
        self.by = by

    def _call(self, x):
        return x + self.by

    def _inverse(self, y):
        return y - self.by

    def log_abs_det_jacobian(self, x, y):
        return weft.zeros_like(x)


class Spread(distributions.Normal):
    def __init__(self, spread):
        super().__init__(0.0, spread)
        self.spread = spread


class Constant(distributions.Distribution):
    arg_constraints = {}

    def __init__(self, value):
        self.value = value
        super().__init__(value.shape, validate_args=False)

    def sample(self, sample_shape=()):
        return self.value.expand(self._extended_shape(sample_shape))


def test_transforms_and_distributions_of_users():
    flow = distributions.TransformedDistribution(distributions.Normal(0.0, 1.0), [Shifted(2.0), Shifted(1.0)])
    assert flow.log_prob(weft.tensor(3.0)).item() == distributions.Normal(0.0, 1.0).log_prob(weft.tensor(0.0)).item()
    assert Shifted(1.0) != Shifted(1.0)
    other = distributions.TransformedDistribution(distributions.Normal(0.0, 1.0), [Shifted(5.0)])
    with pytest.raises(NotImplementedError, match="different transforms"):
        distributions.kl_divergence(flow, other)
    assert Constant(weft.ones(2)).sample((3,)).shape == (3, 2)
    for distribution in (Spread(2.0), Constant(weft.ones(2))):
        with pytest.raises(NotImplementedError, match=r"must define expand\(batch_shape\)"):
            distribution.expand((2,))
    with pytest.raises(NotImplementedError, match="Constant does not define log_prob"):
        Constant(weft.ones(2)).log_prob(weft.ones(2))
