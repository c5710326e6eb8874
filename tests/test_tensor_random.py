"""Random numbers: seeds repeat them, distributions are what they say, generators are independent."""

import numpy as np
import pytest
from scipy import stats

import weft
from weft.runtime.state import random


def drawn(seed):
    weft.manual_seed(seed)
    return [
        weft.rand(3).tolist(),
        weft.randn(2, 2).tolist(),
        weft.randint(0, 10, (4,)).tolist(),
        weft.randperm(5).tolist(),
        weft.bernoulli(weft.full((4,), 0.5)).tolist(),
        weft.empty(3).uniform_(-1, 1).tolist(),
        weft.empty(3).normal_(2, 3).tolist(),
    ]


def test_a_seed_repeats_every_draw():
    assert drawn(1) == drawn(1)
    assert all(a != b for a, b in zip(drawn(1)[:2], drawn(2)[:2]))


def test_a_draw_depends_on_seed_and_call_alone():
    """Not on the shape drawn before: the generator counts calls, not numbers."""
    weft.manual_seed(0)
    weft.rand(3)
    second = weft.rand(4)
    weft.manual_seed(0)
    weft.rand(1000)
    assert weft.rand(4).tolist() == second.tolist()
    weft.manual_seed(0)
    weft.rand(1)
    assert weft.rand(9)[:4].tolist() == second.tolist()


def test_generators():
    first, second = weft.Generator().manual_seed(7), weft.Generator().manual_seed(7)
    weft.manual_seed(0)
    expected = weft.rand(2).tolist()
    weft.manual_seed(0)
    a = weft.randn(3, generator=first)
    assert weft.rand(2).tolist() == expected
    assert a.tolist() == weft.randn(3, generator=second).tolist()
    state = first.get_state()
    b = weft.rand(3, generator=first)
    first.set_state(state)
    assert weft.rand(3, generator=first).tolist() == b.tolist()


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
def test_uniform_and_normal_moments(dtype):
    weft.manual_seed(3)
    n = 200_000
    u, z = weft.rand(n, dtype=dtype), weft.randn(n, dtype=dtype)
    assert u.dtype is dtype and z.dtype is dtype
    assert u.min().item() >= 0 and u.max().item() < 1
    assert u.mean().item() == pytest.approx(0.5, abs=5 / np.sqrt(12 * n))
    assert z.mean().item() == pytest.approx(0, abs=5 / np.sqrt(n))
    assert z.var().item() == pytest.approx(1, abs=5 * np.sqrt(2 / n))
    # Neighbours and draws are uncorrelated.
    assert abs(np.corrcoef(u.numpy()[1:], u.numpy()[:-1])[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(u.numpy(), weft.rand(n).numpy())[0, 1]) < 5 / np.sqrt(n)


def test_distributions_by_kolmogorov_smirnov():
    weft.manual_seed(11)
    assert stats.kstest(weft.rand(50_000).numpy(), "uniform").pvalue > 1e-4
    assert stats.kstest(weft.randn(50_000).numpy(), "norm").pvalue > 1e-4


def test_integers_cover_their_range():
    weft.manual_seed(5)
    draws = weft.randint(-2, 4, (6000,))
    assert draws.dtype is weft.int64
    values, counts = np.unique(draws.numpy(), return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2, 3]
    assert counts.min() > 850
    assert weft.randint(3, (100,)).max().item() == 2


def test_permutations():
    weft.manual_seed(1)
    p = weft.randperm(100)
    assert sorted(p.tolist()) == list(range(100)) and p.tolist() != list(range(100))
    assert weft.randperm(0).shape == (0,)


def test_bernoulli_and_normal_with_tensors():
    weft.manual_seed(2)
    p = weft.tensor([0.0, 1.0, 0.25])
    draws = weft.stack([weft.bernoulli(p) for _ in range(400)])
    mean = draws.mean(0).tolist()
    assert mean[:2] == [0, 1] and mean[2] == pytest.approx(0.25, abs=0.11)
    means = weft.tensor([0.0, 100.0])
    assert weft.normal(means, 0.0).tolist() == [0, 100]
    assert weft.normal(0.0, means).shape == (2,)


def test_dtypes_shapes_and_flags():
    assert weft.rand(2, 3).shape == weft.rand((2, 3)).shape == weft.rand(size=(2, 3)).shape == (2, 3)
    assert weft.rand(()).shape == () and weft.randn(0).shape == (0,)
    assert weft.rand(2, requires_grad=True).is_leaf
    x = weft.zeros(2, 2, dtype=weft.float64)
    assert weft.rand_like(x).dtype is weft.float64 and weft.randn_like(x, dtype=weft.float32).dtype is weft.float32


def test_draws_are_not_differentiated_but_what_follows_is():
    x = weft.ones(3, requires_grad=True)
    noise = weft.randn(3)
    (x * noise).sum().backward()
    assert x.grad.tolist() == noise.tolist()


# --- one step of eager mode -------------------------------------------------------------------------------------------
def _steps(shape, generator):
    """What draws are made of, written out."""
    u, v = (weft.rand(shape, generator=generator) for _ in range(2))
    normal = (-2.0 * (1.0 - u).log()).sqrt() * (v * 6.283185307179586).cos()
    w = weft.rand(shape, dtype=weft.float64, generator=generator)
    return normal, weft.floor(w * 7.0) + -2.0


@pytest.mark.parametrize("shape", [(), (3, 3), (0, 2), (2, 0), (65, 64)])
def test_draws_are_the_same_numbers_in_one_step_and_in_several(shape):
    one, other = weft.Generator().manual_seed(11), weft.Generator().manual_seed(11)
    for _ in range(70):  # one by one, by the dozen, in native code
        normal, whole = _steps(shape, other)
        assert weft.randn(shape, generator=one).tolist() == normal.tolist()
        assert weft.randint(-2, 5, shape, generator=one).tolist() == whole.tolist()
    assert one.get_state().tolist() == other.get_state().tolist()


FILLS = {
    "normal_": lambda x, g: x.normal_(2, 0.5, generator=g),
    "uniform_": lambda x, g: x.uniform_(-1, 3.5, generator=g),
    "bernoulli_": lambda x, g: x.bernoulli_(0.3, generator=g),
    "bernoulli": lambda x, g: weft.bernoulli(x, 0.3, generator=g),
    "normal": lambda x, g: weft.normal(1.0, 2, x.shape, generator=g),
    "randint": lambda x, g: weft.randint(9, x.shape, generator=g, dtype=weft.int32),
}


@pytest.mark.parametrize("name", FILLS)
def test_draws_do_not_depend_on_how_often_they_were_made(name):
    expected, generator = [], weft.Generator()
    for seed in range(40):
        generator.manual_seed(seed)
        expected.append([FILLS[name](weft.zeros(2, 3), generator).tolist() for _ in range(12)])
    for seed in range(40):
        # In another order, from states that are taken up again.
        generator.manual_seed(seed)
        for k in range(12):
            state = generator.get_state()
            weft.rand(3, generator=generator)
            generator.set_state(state)
            assert FILLS[name](weft.zeros(2, 3), generator).tolist() == expected[seed][k]


def test_compiled_draws_are_eager_ones():
    @weft.compile
    def f(x):
        return x + weft.randn(3, 3), weft.randint(0, 9, (4,)), weft.bernoulli(x, 0.5), weft.normal(1.0, 2.0, (2,))

    x = weft.ones(3, 3)
    for seed in range(30):
        weft.manual_seed(seed)
        compiled = f(x)
        weft.manual_seed(seed)
        eager = f.__wrapped__(x)
        assert [y.tolist() for y in compiled] == [y.tolist() for y in eager]


@pytest.mark.parametrize("n", [1, 2, 100, 5000, 16385, 40000])
@pytest.mark.parametrize("n_different", [1, 7, 1 << 53])
def test_permutations_of_many_have_the_order_of_the_draws(n, n_different):
    numbers = np.random.default_rng(n).integers(0, n_different, n) * ((1 << 53) // n_different)
    # Some differ in their last bit only, for which there is no room beside a position.
    draws = (numbers + np.arange(n) % 2 * (n_different < 1 << 53)) * 2.0**-53
    draws[:: n // 2 + 1] = 1.0 - 2.0**-53
    assert random.order_of_many(draws).tolist() == draws.argsort(kind="stable").tolist()
    assert random.order_of(draws).tolist() == draws.argsort(kind="stable").tolist()


def test_a_long_permutation_is_that_of_its_draws():
    weft.manual_seed(3)
    order = weft.randperm(20000)
    weft.manual_seed(3)
    draws = weft.rand(20000, dtype=weft.float64).numpy()
    assert order.tolist() == draws.argsort(kind="stable").tolist()


def test_tensors_filled_in_one_step_have_the_draws_of_many():
    """Few elements are drawn where the target is, without a tensor in between; compiled calls record the ops."""

    def fill(x):
        x.uniform_(-2, 3)
        x[1].normal_(1, 2.5)
        return x.normal_()

    def drawn(call, shape, dtype):
        weft.manual_seed(3)
        x = weft.zeros(shape, dtype=dtype)
        return [call(x).numpy().tobytes() for _ in range(20)]

    for shape in ((3, 4), (2, 5000)):
        for dtype in (weft.float32, weft.float64):
            assert drawn(fill, shape, dtype) == drawn(weft.compile(fill), shape, dtype)
    turned = weft.zeros(3, 4).t()
    weft.manual_seed(1)
    turned.uniform_()
    weft.manual_seed(1)
    assert turned.tolist() == weft.rand(4, 3).tolist()
    with pytest.raises(RuntimeError, match="leaf"):
        weft.zeros(3, requires_grad=True).uniform_()
    with pytest.raises(RuntimeError, match="single memory location"):
        weft.zeros(1).expand(3).normal_()


@pytest.mark.parametrize("n", [0, 1, 9, 1000, 8191, 8192, 100_000])
def test_permutations_are_the_same_whoever_sorts(monkeypatch, n):
    """The first ones of a process are NumPy's, so that few of them load nothing."""
    found = []
    for n_sorted in (-(1 << 40), 1 << 40):
        monkeypatch.setattr(random, "_sorted", [n_sorted])
        weft.manual_seed(5)
        found.append(weft.randperm(n).numpy())
        assert found[-1].dtype == np.int64
    weft.manual_seed(5)
    expected = random.uniform((n,), weft.float64).numpy().argsort(kind="stable")
    assert all((order == expected).all() for order in found)


def test_draws_with_equal_beginnings_are_ordered_by_the_rest():
    rng = np.random.default_rng(0)
    draws = rng.integers(0, 3000, 20000) * 2.0**-23 + rng.integers(0, 4, 20000) * 2.0**-53
    extremes = np.array([1 - 2.0**-53, 0.0, 0.5, 1 - 2.0**-53, 2.0**-53] * 3000)
    falling = np.arange(3000, 0, -1) * 2.0**-37  # 2 of 3 bytes are the same, and these fall
    for some in (draws, extremes, falling, draws[:1], draws[:2], extremes[:0]):
        assert (random._in_order(some) == some.argsort(kind="stable")).all()
