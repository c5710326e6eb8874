"""python -m benchmarks.eager_steps: whole training steps in eager mode, weft and PyTorch in turns in one process.

One thread each. Of every step the fastest of several turns counts, because other work on the machine only ever adds
time. Microseconds per step, and how many times as long weft takes. `clip_grad_norm_` and the optimizer's `step`, which
look at all parameters, are measured by themselves, too.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from .eager_ops import in_turns, table, tensors


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eager_steps", description=__doc__)
    parser.add_argument("--case", help="parts of names, separated by commas; all by default")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    import torch

    import weft

    weft.fill_cache()
    torch.set_num_threads(1)
    weft.set_num_threads(1)
    theirs, ours = ({**steps(side), **over_parameters(side)} for side in (torch, weft))
    wanted = options.case.split(",") if options.case else [""]
    rows = []
    for name in theirs:
        if any(part in name for part in wanted):
            warm(ours[name])
            rows.append((name, *in_turns(theirs[name], ours[name])))
    text = "\n".join(table("steps", rows, torch.__version__, weft.weft_version))
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def warm(step):
    """What eager mode finds out, hands to native code or compiles after a while, before the clock runs."""
    for _ in range(60):
        step()


# --- what is measured -------------------------------------------------------------------------------------------------
def steps(library):
    make = tensors(library, 1)
    return {
        "8-16-4, batch 8": perceptron(library, make, (8, 16, 4), 8),
        "digits: 64-128-64-10, batch 64": perceptron(library, make, (64, 128, 64, 10), 64),
        "mlp_train: 784-512-512-10, batch 128": perceptron(library, make, (784, 512, 512, 10), 128),
        "a transformer block": transformer_block(library, make),
        "an LSTM of 32 steps": lstm(library, make),
        "an LSTM cell 32 times": lstm_cell(library, make),
        "a convolutional network": convolutional(library, make),
    }


def over_parameters(library):
    """What is done with all parameters of the digits model, or of twelve layers of width 16."""
    found = {}
    for model, sizes in (("digits", (64, 128, 64, 10)), ("12 layers", (16,) * 13)):
        parameters = list(layers_of(library, sizes).parameters())
        for name, call in parts_of_steps(library, parameters).items():
            found[f"{name}, {model}"] = call
    return found


def parts_of_steps(library, parameters):
    optimizers = {
        "SGD": library.optim.SGD(parameters, lr=1e-9),
        "momentum": library.optim.SGD(parameters, lr=1e-9, momentum=0.9),
        "Adam": library.optim.Adam(parameters, lr=1e-9),
    }
    for p in parameters:
        p.grad = library.ones_like(p)
    clip = lambda: library.nn.utils.clip_grad_norm_(parameters, 1e9)  # noqa: E731
    updates = {f"{name}.step": optimizer.step for name, optimizer in optimizers.items()}
    return {"clip_grad_norm_": clip, **updates}


def classifying(library, model, x, n_classes):
    """A training step with momentum."""
    optimizer = library.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    y = library.tensor(np.random.default_rng(2).integers(0, n_classes, x.shape[0]))

    def step():
        optimizer.zero_grad()
        library.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def approaching(library, parameters, predict, y):
    """A training step with Adam."""
    optimizer = library.optim.Adam(parameters, lr=1e-3)

    def step():
        optimizer.zero_grad()
        library.nn.functional.mse_loss(predict(), y).backward()
        optimizer.step()

    return step


def perceptron(library, make, sizes, batch):
    return classifying(library, layers_of(library, sizes), make(batch, sizes[0]), sizes[-1])


def layers_of(library, sizes):
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [library.nn.Linear(inputs, outputs), library.nn.ReLU()]
    return library.nn.Sequential(*layers[:-1])


def convolutional(library, make):
    nn = library.nn
    first = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    return classifying(library, nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(64, 10)), make(8, 1, 8, 8), 10)


def transformer_block(library, make, batch=2, length=16, width=32, heads=4):
    nn, functional = library.nn, library.nn.functional
    before, after = nn.LayerNorm(width), nn.LayerNorm(width)
    whole, joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
    wider, narrower = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    model = nn.ModuleList([before, after, whole, joined, wider, narrower])
    x, hidden = make(batch, length, width), library.triu(library.ones(length, length), diagonal=1).bool()

    def predict():
        parts = whole(before(x)).reshape(batch, length, 3, heads, width // heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1) * (heads / width) ** 0.5).masked_fill(hidden, -math.inf)
        seen = functional.softmax(scores, -1) @ v
        y = x + joined(seen.transpose(1, 2).reshape(batch, length, width))
        return y + narrower(functional.gelu(wider(after(y))))

    return approaching(library, model.parameters(), predict, make(batch, length, width))


def lstm(library, make, steps=32, batch=4, inputs=8, width=16):
    """Written with ops, as in tutorials."""
    given, kept, head = (
        library.nn.Linear(inputs, 4 * width),
        library.nn.Linear(width, 4 * width),
        library.nn.Linear(width, 1),
    )
    xs, parameters = make(steps, batch, inputs), library.nn.ModuleList([given, kept, head]).parameters()

    def predict():
        h = c = library.zeros(batch, width)
        for t in range(steps):
            i, f, g, o = (given(xs[t]) + kept(h)).chunk(4, 1)
            c = library.sigmoid(f) * c + library.sigmoid(i) * library.tanh(g)
            h = library.sigmoid(o) * library.tanh(c)
        return head(h)

    return approaching(library, parameters, predict, make(batch, 1))


def lstm_cell(library, make, steps=32, batch=4, inputs=8, width=16):
    cell, head = library.nn.LSTMCell(inputs, width), library.nn.Linear(width, 1)
    xs, parameters = make(steps, batch, inputs), library.nn.ModuleList([cell, head]).parameters()

    def predict():
        h = c = library.zeros(batch, width)
        for t in range(steps):
            h, c = cell(xs[t], (h, c))
        return head(h)

    return approaching(library, parameters, predict, make(batch, 1))


if __name__ == "__main__":
    main()
