"""python -m benchmarks.eager_ops: single calls in eager mode, weft and PyTorch in turns in one process.

One thread each. Of every case the fastest of several turns counts, because other work on the machine only ever adds
time. Microseconds per call, and how many times as long weft takes.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np

from . import machine

TURNS = 9
TURN_SECONDS = 0.004


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eager_ops", description=__doc__)
    parser.add_argument("--case", help="names, separated by commas; all by default")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    import torch

    import weft

    torch.set_num_threads(1)
    weft.set_num_threads(1)
    cases = {side.__name__: {**small(side), **steps(side), **large(side)} for side in (torch, weft)}
    chosen = options.case.split(",") if options.case else list(cases["torch"])
    rows = [(name, *in_turns(cases["torch"][name], cases["weft"][name])) for name in chosen]
    text = "\n".join(table(rows, torch.__version__, weft.weft_version))
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def in_turns(*functions):
    """Microseconds per call of each function: the fastest of its turns."""
    counts = []
    for function in functions:
        # Enough for what is found once and looked up afterwards.
        for _ in range(5):
            function()
        counts.append(max(1, int(TURN_SECONDS / max(seconds(function, 3), 1e-7))))
    best = [math.inf] * len(functions)
    for _ in range(TURNS):
        for k, function in enumerate(functions):
            best[k] = min(best[k], seconds(function, counts[k]))
    return [b * 1e6 for b in best]


def seconds(function, count):
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count


def table(rows, torch_version, weft_version):
    where = machine.describe()
    yield f"# Eager calls, {where['date']}"
    yield ""
    yield f"{where['cpu']}, {where['cores']} cores, load {where['load_before']:.1f}, Python {where['python']};"
    yield f"torch {torch_version}, weft {weft_version}, NumPy {np.__version__}. Microseconds per call, one thread."
    yield ""
    yield "| call | torch | weft | weft / torch |"
    yield "|---|---|---|---|"
    for name, theirs, ours in rows:
        yield f"| {name} | {theirs:.2f} | {ours:.2f} | {ours / theirs:.2f} |"
    mean = math.exp(sum(math.log(ours / theirs) for _, theirs, ours in rows) / len(rows))
    yield f"| geometric mean | | | {mean:.2f} |"


# --- what is called -------------------------------------------------------------------------------------------------
def tensors(library, seed=0):
    """A function that makes tensors of the same numbers in every library."""
    rng = np.random.default_rng(seed)

    def make(*shape, grad=False):
        made = library.tensor(rng.standard_normal(shape).astype(np.float32))
        return made.requires_grad_() if grad else made

    return make


def small(library):
    """3x3 tensors: the cost of a call."""
    make, functional = tensors(library), library.nn.functional
    a, b, v, w, bias = make(3, 3), make(3, 3), make(3), make(3, 3), make(3)
    r, s = make(3, 3, grad=True), make(3, 3, grad=True)
    return {
        "a + b": lambda: a + b,
        "a + b, recorded": lambda: r + s,
        "a * 2.0": lambda: a * 2.0,
        "a.exp()": lambda: a.exp(),
        "a.exp(), recorded": lambda: r.exp(),
        "a > b": lambda: a > b,
        "where": lambda: library.where(a > b, a, b),
        "relu": lambda: library.relu(a),
        "a.add_(0.0)": lambda: a.add_(0.0),
        "a[1]": lambda: a[1],
        "reshape": lambda: a.reshape(9),
        "a.t()": lambda: a.t(),
        "stack": lambda: library.stack([a, b]),
        "cat": lambda: library.cat([a, b]),
        "sum": lambda: a.sum(),
        "sum, one dimension": lambda: a.sum(1),
        "mean": lambda: a.mean(),
        "var": lambda: a.var(),
        "a @ b": lambda: a @ b,
        "a @ b, recorded": lambda: r @ s,
        "a @ v": lambda: a @ v,
        "linear": lambda: functional.linear(a, w, bias),
        "softmax": lambda: functional.softmax(a, -1),
        "softmax, recorded": lambda: functional.softmax(r, -1),
        "log_softmax": lambda: functional.log_softmax(a, -1),
        "layer_norm": lambda: functional.layer_norm(a, (3,)),
        "gelu": lambda: functional.gelu(a),
        "mse_loss": lambda: functional.mse_loss(a, b),
    }


def steps(library):
    """A chain of ten ops with its backward, and steps of small networks."""
    make = tensors(library, 1)
    x, w, b = make(3, 3, grad=True), make(3, 3, grad=True), make(3, 3)

    def chain():
        y = x
        for _ in range(5):
            y = y * w + b
        y.sum().backward()
        x.grad = w.grad = None

    found = {"ten ops and backward": chain}
    for name, sizes, batch in (("8-16-4, batch 8", (8, 16, 4), 8), ("64-128-64-10, batch 64", (64, 128, 64, 10), 64)):
        found[f"step of {name}"] = perceptron(library, make, sizes, batch)
    found["step of a transformer block"] = transformer_block(library, make)
    found["step of an LSTM of 32 steps"] = lstm(library, make)
    found["step of an LSTM cell 32 times"] = lstm_cell(library, make)
    found["step of a convolutional network"] = convolutional(library, make)
    return found


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
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [library.nn.Linear(inputs, outputs), library.nn.ReLU()]
    return classifying(library, library.nn.Sequential(*layers[:-1]), make(batch, sizes[0]), sizes[-1])


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


def large(library):
    """A million elements: memory and arithmetic."""
    make, functional = tensors(library, 3), library.nn.functional
    x, r = make(1000, 1000), make(1000, 1000, grad=True)

    def derivative(function):
        out, cotangent = function(r), make(1000, 1000)
        return lambda: library.autograd.grad(out, r, cotangent, retain_graph=True)

    functions = {
        "gelu": functional.gelu,
        "softmax": lambda x: functional.softmax(x, -1),
        "log_softmax": lambda x: functional.log_softmax(x, -1),
        "layer_norm": lambda x: functional.layer_norm(x, (1000,)),
        "silu": functional.silu,
    }
    found = {"a + b, 1000x1000": lambda: x + x, "var, 1000x1000": lambda: x.var(1)}
    for name, function in functions.items():
        found[f"{name}, 1000x1000"] = lambda function=function: function(x)
        found[f"{name}, 1000x1000, backward"] = derivative(function)
    return {name: warmed(library, call) for name, call in found.items()}


def warmed(library, call):
    """What eager mode compiles after a while is compiled before the clock runs."""
    for _ in range(60 if library.__name__ == "weft" else 1):
        call()
    return call


if __name__ == "__main__":
    main()
