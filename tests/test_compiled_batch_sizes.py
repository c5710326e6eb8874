"""Training steps over many batch sizes, some of which are widths of the model: few programs, the bits of eager mode."""

import pytest

import weft
from weft import nn
from weft.compiler.extent import Scope, identical
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


MODELS = {
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
def test_a_step_takes_three_programs(name, without_disk):
    """That of the first size, and for all others two at most: a small one for one thread, and one for several."""
    step, model, batches = training(name)
    expected = [step(*batch).item() for batch in batches], [p.tolist() for p in model.parameters()]
    step, model, batches = training(name)
    f = weft.compile(step)
    without_disk()
    found = [f(*batch).item() for batch in batches], [p.tolist() for p in model.parameters()]
    assert found == expected
    several, alone = programs_of(f)
    assert several <= 2 and alone == 1
    assert f.breaks == () and not f._sizes.refusals


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
