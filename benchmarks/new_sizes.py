"""python -m benchmarks.new_sizes: compiled steps whose sizes never come again, beside eager mode and PyTorch's.

Every call has a size that no call had before, so no side can have kept anything for it. The sides take turns in one
process, a call each of the same size. The figure is the median over the calls after the first ones, in which programs
are compiled and plans are made, in processor time, so that other work on the machine does not count. One thread each.
PyTorch's compiler is left out: a training step is several graphs to it, and JAX compiles every shape anew.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

from . import machine

N_FIRST, N_CALLS = 100, 150


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_sizes", description=__doc__)
    parser.add_argument("--case", help="parts of names, separated by commas; all by default")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    import torch

    import weft

    torch.set_num_threads(1)
    weft.set_num_threads(1)
    wanted, rows = options.case.split(",") if options.case else [""], []
    for name, (make, sizes) in CASES.items():
        if any(part in name for part in wanted):
            rows.append((name, *measured(make, sizes, weft, torch)))
            print(row_of(*rows[-1]), flush=True)
    text = "\n".join(table(rows, torch.__version__, weft.weft_version))
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def measured(make, sizes, weft, torch):
    """Microseconds of a call: compiled, eager, PyTorch's."""
    compiled, *others = [make(library) for library in (weft, weft, torch)]
    sides = [(weft.compile(compiled[0]), *compiled[1:]), *others]
    chosen = random.Random(7).sample(range(*sizes), min(N_FIRST + N_CALLS, sizes[1] - sizes[0]))
    taken = [[] for _ in sides]
    for n in chosen:
        for (function, arguments, *step), seconds in zip(sides, taken):
            given = arguments(n)
            began = time.thread_time()
            step[0](function, *given) if step else function(*given)
            seconds.append(time.thread_time() - began)
    medians = [1e6 * statistics.median(seconds[N_FIRST:]) for seconds in taken]
    return medians


# --- what is measured: (function, arguments of a size), and what is done with the function if that is not all ---------
def training(library, model, arguments, optimizer="SGD", **options):
    functional = library.nn.functional
    steps = getattr(library.optim, optimizer)(model.parameters(), **options)

    def step(x, y):
        loss = functional.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        return loss

    return step, arguments


def perceptron(library, sizes):
    nn = library.nn
    layers = [nn.Linear(*pair) for pair in zip(sizes, sizes[1:])]
    return nn.Sequential(*[one for layer in layers for one in (layer, nn.ReLU())][:-1])


def rows_of(library, width):
    return lambda n: (library.randn(n, width), library.randint(0, 10, (n,)))


def small_step(library):
    return training(library, perceptron(library, (8, 16, 10)), rows_of(library, 8), lr=0.01)


def digits_step(library):
    sizes = 64, 128, 64, 10
    return training(library, perceptron(library, sizes), rows_of(library, 64), lr=0.01, momentum=0.9)


def adam_step(library):
    return training(library, perceptron(library, (64, 128, 64, 10)), rows_of(library, 64), "Adam", lr=1e-3)


def step_outside(library):
    """What follows the loss is not compiled, as torch.compile has it."""
    model = perceptron(library, (64, 128, 64, 10))
    steps = library.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss(x, y):
        return library.nn.functional.cross_entropy(model(x), y)

    def step(loss, x, y):
        found = loss(x, y)
        steps.zero_grad()
        found.backward()
        steps.step()

    return loss, rows_of(library, 64), step


def inference(library):
    model = perceptron(library, (64, 128, 64, 10))

    def predict(x, y):
        with library.no_grad():
            return model(x).softmax(-1)

    return predict, rows_of(library, 64)


def images(library):
    nn = library.nn
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    return training(library, model, lambda n: (library.randn(n, 1, 8, 8), library.randint(0, 10, (n,))), lr=0.01)


def encoder(library):
    """Lengths change, of eight sentences."""
    nn = library.nn

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.scores = nn.Embedding(100, 32), nn.Linear(32, 10)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)

        def forward(self, words):
            return self.scores(self.layer(self.words(words)).mean(1))

    arguments = lambda n: (library.randint(0, 100, (8, n)), library.randint(0, 10, (8,)))  # noqa: E731
    return training(library, Encoder(), arguments, "Adam", lr=1e-3)


def recurrent(library):
    """Lengths change, of eight sentences."""
    nn = library.nn

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.scores = nn.Embedding(100, 32), nn.Linear(32, 10)
            self.steps = nn.LSTM(32, 32, batch_first=True)

        def forward(self, words):
            return self.scores(self.steps(self.words(words))[0][:, -1])

    arguments = lambda n: (library.randint(0, 100, (8, n)), library.randint(0, 10, (8,)))  # noqa: E731
    return training(library, Reader(), arguments, "Adam", lr=1e-3)


def likelihood(library):
    """A linear model's negative log-likelihood and its gradient, in float64."""
    weights = library.zeros(5, dtype=library.float64, requires_grad=True)

    def found(x, y):
        loss = 0.5 * ((x @ weights - y) ** 2).sum() + 0.5 * weights @ weights
        return library.autograd.grad(loss, weights)[0]

    float64 = library.float64
    return found, lambda n: (library.randn(n, 5, dtype=float64), library.randn(n, dtype=float64))


CASES = {
    "8-16-10, SGD": (small_step, (2, 300)),
    "digits: 64-128-64-10, SGD with momentum": (digits_step, (2, 300)),
    "the same, Adam": (adam_step, (2, 300)),
    "the same, backward and SGD with momentum after the call": (step_outside, (2, 300)),
    "the same, prediction": (inference, (2, 300)),
    "a convolutional network, SGD": (images, (2, 300)),
    "transformer layer, lengths, Adam": (encoder, (2, 270)),
    "LSTM, lengths, Adam": (recurrent, (2, 270)),
    "likelihood's gradient, float64": (likelihood, (2, 300)),
}


# --- the table --------------------------------------------------------------------------------------------------------
def table(rows, torch_version, weft_version):
    where = machine.describe()
    return [
        f"# Steps whose sizes never come again, {where['date']}",
        "",
        f"{where['cpu']}, {where['cores']} cores, load {where['load_before']:.1f}, Python {where['python']};",
        f"torch {torch_version}, weft {weft_version}.",
        "Microseconds per call, median of those after the first 100; one thread each.",
        "",
        "| step | compiled | eager | torch | torch / compiled |",
        "|---|---|---|---|---|",
        *(row_of(*row) for row in rows),
    ]


def row_of(name, compiled, eager, torch):
    return f"| {name} | {compiled:.0f} | {eager:.0f} | {torch:.0f} | {torch / compiled:.2f} |"


if __name__ == "__main__":
    main()
