"""Training steps over many batch sizes, some of which are widths of the model: few programs, the bits of eager mode."""

import pytest

import weft
from weft import nn
from weft.compiler.extent import Scope, estimated, identical
from weft.runtime.code.cache import default_cache

functional = nn.functional


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 16, 3)
        self.wide, self.last = nn.Linear(16, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = functional.max_pool2d(self.first(x).relu(), 2)
        x = functional.max_pool2d(self.second(x).relu(), 2)
        return self.last(self.wide(x.flatten(1)).relu())


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.last = nn.Linear(8, 16), nn.Linear(16, 10)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        x = self.wide(x)
        return self.last((x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.last = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x):
        return self.last(self.steps(x)[0][:, -1])


def layered():
    return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 10))


MODELS = {
    "mlp": (layered, (8,)),
    "convolutional": (Convolutional, (1, 8, 8)),
    "attention": (Attentive, (6, 8)),
    "lstm": (Recurrent, (3, 8)),
}
# Coincidences: 6, 8, 10 and 16 are numbers of the models, and so is 6 * 8 = 48.
SIZES = (13, 22, 6, 8, 10, 16, 48)


def training(name):
    weft.manual_seed(0)
    make, shape = MODELS[name]
    model = make()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, model, [(weft.randn(n, *shape), weft.randint(0, 10, (n,))) for n in SIZES]


def programs_of(f):
    """(those for several sizes, those for one size alone)"""
    families = [family for form in f._sizes.forms.values() for family in form.families]
    several = [p for family in families for programs in family.programs.values() for p in programs]
    return len(several), sum("n" not in p.meta for r in f.recordings for p in r.programs)


@pytest.fixture
def without_disk(monkeypatch):
    """A program for several sizes that is found on disk may have been made for others first."""

    def start():
        monkeypatch.setenv("WEFT_CACHE", "0")
        default_cache.cache_clear()

    yield start
    default_cache.cache_clear()


@pytest.mark.parametrize("name", MODELS)
def test_a_step_takes_two_programs(name, without_disk):
    """That of the first size, and one for all others."""
    step, model, batches = training(name)
    expected = [step(*batch).item() for batch in batches], [p.tolist() for p in model.parameters()]
    step, model, batches = training(name)
    f = weft.compile(step)
    without_disk()
    found = [f(*batch).item() for batch in batches], [p.tolist() for p in model.parameters()]
    assert found == expected
    several, alone = programs_of(f)
    assert several == 1 and alone == 1
    assert f.breaks == () and not f._sizes.refusals


def regression():
    """A Gaussian process: the marginal likelihood of a kernel's three numbers, by Cholesky."""
    weft.manual_seed(0)
    length, noise, scale = parameters = [weft.zeros((), requires_grad=True) for _ in range(3)]
    optimizer = weft.optim.Adam(parameters, lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        difference = x.unsqueeze(1) - x.unsqueeze(0)
        kernel = scale.exp() * (-0.5 * (difference * difference).sum(-1) / length.exp() ** 2).exp()
        factor = weft.linalg.cholesky(kernel + (noise.exp() + 1e-3) * weft.eye(x.shape[0]))
        alpha = weft.cholesky_solve(y.unsqueeze(1), factor)
        loss = 0.5 * (y.unsqueeze(1) * alpha).sum() + factor.diagonal().log().sum()
        loss.backward()
        optimizer.step()
        return loss

    return step, parameters, [(weft.randn(n, 3), weft.randn(n)) for n in (13, 22, 6, 3, 16, 48, 150)]


def test_a_gaussian_process_takes_two_programs(without_disk):
    step, parameters, batches = regression()
    expected = [step(*batch).item() for batch in batches], [p.item() for p in parameters]
    step, parameters, batches = regression()
    f = weft.compile(step)
    without_disk()
    assert ([f(*batch).item() for batch in batches], [p.item() for p in parameters]) == expected
    assert programs_of(f) == (1, 1)


def test_sizes_from_one_on_in_any_order_take_three_programs(without_disk):
    """A program for one sample is another one; numbers of the model come first, so that little can be supposed."""
    step, model, _ = training("convolutional")
    f = weft.compile(step)
    without_disk()
    for n in (2, 6, 1, 16, 3, 84, 10, 5, 300, 4, 130):
        f(weft.randn(n, 1, 8, 8), weft.randint(0, 10, (n,)))
    several, alone = programs_of(f)
    assert several == 1 and several + alone <= 3 and not f.breaks


@pytest.mark.parametrize(("channels", "size", "kernel"), [((1, 6), 28, 5), ((32, 8), 8, 3)])
def test_how_a_convolution_is_computed_does_not_depend_on_how_many_samples_there_are(channels, size, kernel):
    """Where few samples were multiplied another way, their gradients were rounded in another order, and a weight that
    is infinite made other NaNs of the padding."""
    weight = weft.randn(channels[1], channels[0], kernel, kernel)
    weight[0, 0, 0, 0] = float("inf")
    images, cotangent = weft.randn(90, channels[0], size, size), weft.randn(90, channels[1], size, size)

    def both(n):
        x = images[:n].clone().requires_grad_()
        result = functional.conv2d(x, weight, padding=kernel // 2)
        result.backward(cotangent[:n])
        return [t[:2].numpy().tobytes() for t in (result.detach(), x.grad)]

    assert both(2) == both(17) == both(90)


def test_a_program_for_many_sizes_decides_when_it_runs_whether_to_share(without_disk):
    """Compiled for 3 rows, it is for one thread there, and for several where that pays."""
    f = weft.compile(lambda x: (x.exp() * x).sum(0), dynamic=True)
    without_disk()
    before = weft.get_num_threads()
    weft.set_num_threads(2)
    try:
        for n in (3, 20_000, 5, 4_000):
            x = weft.randn(n, 64)
            for _ in range(12):
                assert f(x).tolist() == (x.exp() * x).sum(0).tolist()
    finally:
        weft.set_num_threads(before)
    assert programs_of(f) == (1, 0)
    (program,) = f.recordings[0].programs
    assert program.meta["has_team"]


def test_equality_for_every_n_asks_nothing():
    scope = Scope(10)
    n = scope.n
    with scope.equal_for_every_n():
        assert n != 10 and n * 2 == n + n and len({n, scope.n * 1, 10}) == 2
    assert not scope.guards
    assert (
        n * 6 == scope.n * 6 and str(n * n // (n * 16)) == str(n // 16) and str(-(-n * n // (8 * n))) == str(-(-n // 8))
    )


def test_times_are_estimated_for_another_size_than_this():
    scope = Scope(10)
    extents = scope.n * 3 + 1, scope.n // 4, scope.n * scope.n
    scope.estimate_for(100)
    assert [estimated(x) for x in extents] == [301, 25, 10_000] and estimated(7) == 7
    assert scope.n < 11 and [x.number for x in extents] == [31, 2, 100]


def test_shapes_are_compared_without_asking():
    """(n, 10) is not (10,), whatever n is: no program is compiled for n = 10."""
    scope = Scope(10)
    n = scope.n
    assert not identical((n, 10), (10,)) and not identical((n, 6), (6, n)) and identical((n, 2 * n), (n, n + n))
    assert not identical(n, 10) and identical((3, (4, 5)), (3, (4, 5))) and not identical((3, (n, 5)), (3, (10, 5)))
    assert not scope.guards


def test_what_no_number_is_needs_no_guard():
    scope = Scope(13)
    n = scope.n
    assert n * 6 != 64 and n * 16 + 3 != 8 and n + 5 != 5 and 7 - n * 2 != 0
    assert not scope.guards
    assert n * 6 != 66 and list(scope.guards) == [("6*n+-66", "==")]
