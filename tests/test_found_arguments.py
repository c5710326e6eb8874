"""Calls with arguments that are seldom given and were once answered otherwise than by PyTorch, each against PyTorch."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def flat(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


def leaves(module, *values):
    return [module.tensor(v, dtype=module.float64, requires_grad=True) for v in values]


def derived(module, function, *values):
    """The result and the gradients, 0 where there is none."""
    xs = leaves(module, *values)
    result = function(*xs)
    result.sum().backward()
    return [result, *(module.zeros_like(x) if x.grad is None else x.grad for x in xs)]


def agree(call):
    """call(module) gives equal tensors of one type in both libraries, eagerly and compiled."""
    theirs = flat(call(torch))
    compiled = weft.compile(lambda: call(weft))
    for ours in (call(weft), compiled(), compiled()):
        ours = flat(ours)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert str(a.dtype).partition(".")[2] == str(b.dtype).partition(".")[2]
            assert tuple(a.shape) == tuple(b.shape)
            b = b.detach().resolve_conj().numpy()
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-6, atol=1e-12, equal_nan=True)


VALUES = {
    "an index without dimensions": lambda m: m.zeros(3).scatter(0, m.tensor(1), m.tensor(2.0)),
    "a number at such an index": lambda m: m.zeros(3).scatter_(0, m.tensor(1), 2.0),
    "more at such an index": lambda m: m.ones(3).scatter_add_(0, m.tensor(1), m.tensor(2.0)),
    "extremes at such an index": lambda m: m.ones(3).scatter_reduce(0, m.tensor(1), m.tensor(2.0), "amax"),
    "a bias for all": lambda m: m.nn.functional.linear(m.ones(2, 3), m.ones(4, 3), m.full((1,), 0.5)),
    "a number as a bias": lambda m: derived(
        m, lambda x, b: m.nn.functional.linear(x, x * 2, b), [[1.0, 2.0], [3.0, 4.0]], 0.5
    ),
    "windows without elements": lambda m: derived(m, lambda x: x.unfold(0, 0, 1), [1.0, 2.0]),
    "quotients by zero, cut": lambda m: derived(
        m, lambda x, y: m.div(x, y, rounding_mode="trunc"), [0.0, 3.0, float("nan"), -5.0], [0.0, 0.0, 1.0, 2.0]
    ),
    "signs of what is no number": lambda m: derived(
        m, m.copysign, [0.0, float("nan"), -2.0, float("inf")], [-1.0, 1.0, -1.0, 1.0]
    ),
    "addr of integers": lambda m: m.addr(
        m.tensor([[4, 7]]), m.tensor([1.5]), m.tensor([2.5, 1.0]), beta=0.5, alpha=0.25
    ),
    "a NumPy factor": lambda m: m.addmm(m.ones(2, 2), m.ones(2, 2), m.ones(2, 2), alpha=np.float32(0.5)),
    "addcmul of integers": lambda m: m.addcmul(m.tensor([1, 2]), m.tensor([1, 2]), m.tensor([3, 2]), value=2.5),
    "addcmul of some": lambda m: m.addcmul(m.tensor([1, 2]), m.tensor([1.0, 2]), m.tensor([3, 2]), value=2.5),
    "whole quotients": lambda m: m.div(m.tensor([2**53 + 1, -(2**62) - 1, 7]), 3, rounding_mode="trunc"),
    "whole quotients in place": lambda m: m.tensor([2**53 + 1, -7]).div_(m.tensor([3, 2]), rounding_mode="trunc"),
    "quotients of truths": lambda m: m.div(m.tensor([True, False]), 1, rounding_mode="trunc"),
    "quotients of a number": lambda m: m.div(m.tensor(-7), m.tensor([2, 3], dtype=m.int32), rounding_mode="trunc"),
    "a margin that is whole": lambda m: m.nn.functional.margin_ranking_loss(
        m.tensor([1, 2]), m.tensor([3, 1]), m.tensor([1, -1]), margin=0, reduction="none"
    ),
    "a margin beside integers": lambda m: m.nn.functional.hinge_embedding_loss(
        m.tensor([1, 2, 3]), m.tensor([1, -1, -1]), margin=2.5, reduction="none"
    ),
    "classes of one input": lambda m: m.nn.functional.multilabel_soft_margin_loss(
        m.tensor([[1.5], [2.0]]), m.tensor([0.5, 1.0, 0.0])
    ),
    "ends that cross": lambda m: [m.logit(m.tensor([0.0, 0.3, 0.5, 1.0]), eps) for eps in (0.7, 1.0, 0.5)],
    "a conjugate number": lambda m: [
        x.clone() for x in (m.tensor(1 + 2j).H, m.tensor(1 + 2j).mH, m.tensor(2j).adjoint())
    ],
    "stft of complex": lambda m: [
        m.stft(m.arange(20.0).to(m.complex64), 4, window=m.ones(4), return_complex=c) for c in (False, True)
    ],
    "a norm of a NumPy order": lambda m: m.norm(m.ones(3), np.float32(1.5)),
    "a NumPy weight": lambda m: m.lerp(m.ones(2), m.zeros(2), np.float64(0.25)),
    "NumPy's numbers": lambda m: [
        f(m.ones(2) - 2, n)
        for n in (np.float64(0.5), np.float32(0.5), np.int64(2))
        for f in (lambda x, n: m.nn.functional.threshold(x, n, n), m.nn.functional.hardshrink, m.clamp_max)
    ],
    "a matrix of no matrix": lambda m: m.tensor(2.0).mT.clone(),
    "vectors of nothing": lambda m: m.cat([m.zeros(0), m.zeros(0)], dim=1),
    "eps of NumPy": lambda m: m.nn.functional.gaussian_nll_loss(m.ones(2), m.ones(2), m.ones(2), eps=np.float32(0.5)),
    "nothing to roll": lambda m: m.roll(m.ones(0, 3), 0, 2),
    "no combination": lambda m: m.combinations(m.ones(1), 0),
    "by its name": lambda m: [m.dot(m.ones(2), tensor=m.ones(2)), m.ones(2).dot(tensor=m.ones(2))],
}  # fmt: skip
GRADIENTS = {
    "remainders of infinities": (
        lambda m, x, y: m.remainder(x, y), [5.0, -7.0, -3.0, 3.0, 6.0], [2.0, np.inf, np.inf, -np.inf, 0.1]
    ),
    "cut ends": (lambda m, x: m.nn.functional.hardtanh(x), [1.0, -1.0, 0.5, np.nan]),
    "a slope that is not used": (lambda m, x, w: m.nn.functional.prelu(x, w), [np.inf, -1.0, 2.0, 0.0], [0.5]),
    "batches of nothing": (
        lambda m, x, w, b: m.nn.functional.batch_norm(x, None, None, w, b, training=True),
        np.zeros((0, 3)), np.ones(3), np.ones(3),
    ),
    "angles": (lambda m, x: m.angle(x), [1.0, -1.0, 0.0, np.nan]),
    "how many are not 0": (lambda m, x: m.linalg.vector_norm(x, 0) + x.sum(), [1.0, 0.0, -2.0]),
    "counted distances": (lambda m, x, y: m.cdist(x, y, 0.0), [[1.0, 2.0]], [[3.0, 2.0]]),
    "an order below 0": (lambda m, x: m.linalg.norm(x, -1), [0.0, 2.0, -3.0]),
    "an order below 0 of zeros": (lambda m, x: m.linalg.norm(x, -2.5), [0.0, 0.0]),
    "an order below 0 of others": (lambda m, x: m.linalg.norm(x, -2.5), [1.0, -3.0]),
}  # fmt: skip
REFUSED = {
    "outer": lambda m: m.outer(m.ones(2), m.ones(2, 1)),
    "index_copy": lambda m: m.index_copy(m.ones(5, 5), 1, m.tensor([2, 0]), m.tensor(3.0)),
    "index_reduce": lambda m: m.index_reduce(m.ones(5), 0, m.tensor([0]), m.ones(3), "amin"),
    "soft_margin_loss": lambda m: m.nn.functional.soft_margin_loss(m.ones(3, 1), m.ones(2), reduction="none"),
    "gather": lambda m: m.gather(m.tensor(1.0), 2, m.tensor([0])),
    "tile": lambda m: m.tile(m.ones(1), (-1,)),
    "cartesian_prod": lambda m: m.cartesian_prod(m.ones(1), m.tensor(1.0)),
    "diff": lambda m: m.diff(m.ones(5, 5), 0, 0, m.ones(5)),
    "meshgrid of nothing": lambda m: m.meshgrid(indexing="ij"),
    "meshgrid": lambda m: m.meshgrid(m.ones(1), m.ones(2, dtype=m.float64), indexing="ij"),
    "mT": lambda m: m.ones(2).mT,
    "mH": lambda m: m.ones(2).mH,
    "pdist": lambda m: m.pdist(m.ones(2, 2), -1.0),
    "gaussian_nll_loss": lambda m: m.nn.functional.gaussian_nll_loss(m.tensor(1.0), m.ones(5, 1), m.ones(5, 1)),
    "histogram": lambda m: m.histogram(m.ones(4, dtype=m.bfloat16), 3),
    "division by no number": lambda m: m.div(m.tensor([5, 3]), 0, rounding_mode="trunc"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    agree(VALUES[name])


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    function, *values = GRADIENTS[name]
    agree(lambda m: derived(m, lambda *xs: function(m, *xs), *values))


RESAMPLED = {
    "adaptive_avg_pool1d": lambda m, x: m.nn.functional.adaptive_avg_pool1d(x[0], 5),
    "adaptive_avg_pool2d": lambda m, x: m.nn.functional.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive_avg_pool3d": lambda m, x: m.nn.functional.adaptive_avg_pool3d(x, (3, 4, 5)),
    "area": lambda m, x: m.nn.functional.interpolate(x, size=(3, 11), mode="area"),
    "bilinear": lambda m, x: m.nn.functional.interpolate(x, size=(5, 4), mode="bilinear", antialias=True),
    "bicubic": lambda m, x: m.nn.functional.interpolate(x, size=(6, 4), mode="bicubic", antialias=True),
}  # fmt: skip


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 1.0])
@pytest.mark.parametrize("name", RESAMPLED)
def test_an_infinity_stays_where_it_is(name, special):
    """Of an image and of a cotangent: what does not lie beside it is a number."""
    image = np.random.default_rng(0).standard_normal((1, 2, 7, 9))
    image[0, 1, 3, 4] = special

    def call(m):
        (x,) = leaves(m, image)
        result = RESAMPLED[name](m, x)
        cotangent = np.ones(tuple(result.shape))
        cotangent.flat[cotangent.size // 2 :][:1] = special
        return [result, m.autograd.grad(result, x, m.tensor(cotangent))[0]]

    agree(call)


@pytest.mark.parametrize(
    "kind, shape", [("BatchNorm1d", (0, 3)), ("BatchNorm2d", (0, 3, 2, 2)), ("InstanceNorm1d", (4, 3, 0))]
)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_nothing_moves_no_statistics(kind, shape, momentum):
    def call(m):
        layer = getattr(m.nn, kind)(3, momentum=momentum or 0.1, track_running_stats=True)
        layer.momentum = momentum if kind != "InstanceNorm1d" else 0.1
        return [layer(m.zeros(shape)), layer.running_mean, layer.running_var, layer.num_batches_tracked]

    agree(call)


def test_what_has_the_shape_stays():
    for m in (torch, weft):
        x, y = m.ones(2, requires_grad=True), m.ones(())
        same, spread = m.broadcast_tensors(x, y)
        assert same is x and tuple(spread.shape) == (2,)
        normal = m.distributions.Normal(x, 1.0)
        normal.log_prob(m.zeros(2)).sum().backward()
        assert normal.loc.grad.tolist() == [-1.0, -1.0]


def bernoullis(m, parameter=(0.2, 0.5, 0.9)):
    return m.distributions.ContinuousBernoulli(m.tensor(parameter, dtype=m.float64))


OTHERS = {
    "ContinuousBernoulli": lambda m: bernoullis(m, (0.4, 0.7, 0.1)),
    "Normal": lambda m: m.distributions.Normal(m.tensor(0.3, dtype=m.float64), m.tensor(1.5, dtype=m.float64)),
    "Exponential": lambda m: m.distributions.Exponential(m.tensor(1.5, dtype=m.float64)),
    "Beta": lambda m: m.distributions.Beta(m.tensor(1.5, dtype=m.float64), m.tensor(0.5, dtype=m.float64)),
    "Uniform": lambda m: m.distributions.Uniform(m.tensor(-0.5, dtype=m.float64), m.tensor(1.5, dtype=m.float64)),
    "narrow Uniform": lambda m: m.distributions.Uniform(m.tensor(0.1, dtype=m.float64), m.tensor(0.5, dtype=m.float64)),
    "Gamma": lambda m: m.distributions.Gamma(m.tensor(1.5, dtype=m.float64), m.tensor(0.5, dtype=m.float64)),
    "Pareto": lambda m: m.distributions.Pareto(m.tensor(1.5, dtype=m.float64), m.tensor(0.5, dtype=m.float64)),
    "Laplace": lambda m: m.distributions.Laplace(m.tensor(1.5, dtype=m.float64), m.tensor(0.5, dtype=m.float64)),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_divergences_of_continuous_bernoullis(name, turned):
    def call(m):
        pair = bernoullis(m), OTHERS[name](m)
        return m.distributions.kl_divergence(*(pair[::-1] if turned else pair))

    try:
        call(torch)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            call(weft)
        return
    agree(call)


@pytest.mark.parametrize("name", ["LogNormal", "Weibull", "InverseGamma"])
def test_distributions_have_values_at_their_ends(name):
    agree(lambda m: getattr(m.distributions, name)(m.tensor(1.5), m.tensor(0.5)).cdf(m.tensor([0.0, 1.0])))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    with pytest.raises(Exception) as theirs:
        REFUSED[name](torch)
    with pytest.raises(type(theirs.value)):
        REFUSED[name](weft)
