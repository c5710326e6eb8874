"""A thousand sizes through one function: at most three programs, flat memory, nothing that runs eagerly."""

import random
from functools import partial
from itertools import islice

import numpy as np
import pytest
from leaks import growth

import weft
from weft import nn

functional = nn.functional
MOST_PROGRAMS = 3


def trained(model, optimizer=weft.optim.SGD):
    steps = optimizer(model.parameters(), lr=0.01)

    @weft.compile
    def step(x, y):
        steps.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        steps.step()
        return loss

    return step, step


def perceptron():
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def convolutional():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last((x + functional.scaled_dot_product_attention(x, x, x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.last = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.steps(x)[0][:, -1])


def backward_outside():
    """The loss is computed in the call, and differentiated after it."""
    model = perceptron()
    loss_of = weft.compile(lambda x, y: functional.cross_entropy(model(x), y))

    def step(x, y):
        model.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        return loss

    return step, loss_of


def loss_outside():
    """The model alone is compiled."""
    model = perceptron()
    forward = weft.compile(lambda x: model(x))

    def step(x, y):
        model.zero_grad()
        loss = functional.cross_entropy(forward(x), y)
        loss.backward()
        return loss

    return step, forward


def values_and_gradients():
    weight = weft.randn(6)
    found = weft.compile(weft.func.grad_and_value(lambda w, x, y: ((x @ w - y) ** 2).mean()))
    return (lambda x, y: found(weight, x, y)[1]), found


# (what is called and what is compiled, the shape of the first argument for a size, how many sizes)
CASES = {
    "perceptron": (lambda: trained(perceptron()), lambda n: (n, 6), 1000),
    "adam": (lambda: trained(perceptron(), weft.optim.Adam), lambda n: (n, 6), 150),
    "convolutional": (lambda: trained(convolutional()), lambda n: (n, 1, 6, 6), 150),
    "lengths": (lambda: trained(Recurrent()), lambda n: (3, 2 + n % 60, 6), 150),
    "batches_and_lengths": (lambda: trained(Attentive()), lambda n: (2 + n % 13, 16 + n % 60, 6), 150),
    "backward_outside": (backward_outside, lambda n: (n, 6), 150),
    "loss_outside": (loss_outside, lambda n: (n, 6), 150),
    "values_and_gradients": (values_and_gradients, lambda n: (n, 6), 150),
}


def arguments_of(shape, case):
    generator = np.random.default_rng(sum(shape))
    x = generator.standard_normal(shape, dtype=np.float32)
    wanted = generator.integers(0, 3, shape[0])
    return weft.from_numpy(x), weft.from_numpy(x[:, 0].copy() if case == "values_and_gradients" else wanted)


def programs_of(f):
    """(those for many sizes, those for one alone)"""
    families = [family for form in f._sizes.forms.values() for family in form.families]
    several = sum(len(made) for family in families for made in family.programs.values())
    return several, sum("n" not in p.meta for r in f.recordings for p in r.programs)


@pytest.mark.parametrize("case", CASES)
def test_few_programs_serve_all_sizes(case):
    make, shape_of, n_sizes = CASES[case]
    step, compiled = make()
    sizes, alone = random.Random(0).sample(range(2, 2 * n_sizes), n_sizes), 0
    for k, n in enumerate(sizes):
        step(*arguments_of(shape_of(n), case))
        if k < 64:
            # Later on the first has made room for others.
            several, alone = programs_of(compiled)
    # A backward after the call is a program beside that of its call.
    factor = 2 if case in ("backward_outside", "loss_outside") else 1
    several, _ = programs_of(compiled)
    assert several + alone <= factor * MOST_PROGRAMS, compiled.explain()
    assert not compiled.breaks and compiled._recordings.n_eager == 0 and not compiled._sizes.refusals


def test_memory_is_flat():
    """What is kept for a size goes with it: of as many sizes more nothing stays."""
    step, compiled = trained(perceptron())
    sizes = iter(random.Random(1).sample(range(2, 2000), 400))

    def use(n_sizes):
        for n in islice(sizes, n_sizes):
            step(*arguments_of(CASES["perceptron"][1](n), "perceptron"))

    use(250)
    [blocks] = growth(partial(use, 50))
    assert len(compiled.recordings) <= 64
    # A recording with its program is hundreds of blocks.
    assert blocks < 50 * 50
