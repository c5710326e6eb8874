"""python -m benchmarks.eager_large: 81 ops on a million elements in eager mode, weft and PyTorch in turns.

Each op forward, and forward with its backward from a given cotangent. Of every case the median of several turns counts,
by the CPU's time (which other work on the machine lengthens less) where there is one thread, by the clock where there
are several. Microseconds per call, and how many times as long weft takes.
"""

import argparse
import math
import time
from pathlib import Path
from statistics import median

import numpy as np

from . import machine
from .eager_ops import tensors

TURNS = 7
TURN_SECONDS = 0.01
# Threads go on looking for work for some milliseconds, on the CPU that those of the other library want then.
PAUSE_SECONDS = 0.02


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eager_large", description=__doc__)
    parser.add_argument("--case", help="names, separated by commas; all by default")
    parser.add_argument("--size", type=int, default=1000, help="rows and columns")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    import torch

    import weft
    from weft.runtime.programs import fused

    weft.fill_cache()
    torch.set_num_threads(options.threads)
    weft.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    # What is compiled after a while is compiled before the clock runs.
    fused.ELEMENTS_BEFORE = 0
    theirs, ours = Cases(torch, options.size), Cases(weft, options.size)
    names = options.case.split(",") if options.case else list(theirs.functions)
    rows = []
    for name in names:
        rows.append((name, *in_turns(clock, theirs.forward(name), ours.forward(name))))
        if name in theirs.differentiable:
            rows.append((f"{name}, and backward", *in_turns(clock, theirs.both(name), ours.both(name))))
        print("{}: {:.0f} {:.0f}, {:.2f}".format(*rows[-1], rows[-1][2] / rows[-1][1]), flush=True)
    text = "\n".join(table(rows, options, torch.__version__, weft.weft_version))
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def in_turns(clock, *functions):
    """Microseconds per call of each function: the median of its turns."""
    counts, times = [], [[] for _ in functions]
    for function in functions:
        function()
        counts.append(max(1, int(TURN_SECONDS / max(seconds(clock, function, 2), 1e-6))))
    for _ in range(TURNS):
        for function, count, found in zip(functions, counts, times):
            if clock is time.perf_counter:
                time.sleep(PAUSE_SECONDS)
                function()
            found.append(seconds(clock, function, count))
    return [median(found) * 1e6 for found in times]


def seconds(clock, function, count):
    start = clock()
    for _ in range(count):
        function()
    return (clock() - start) / count


def table(rows, options, torch_version, weft_version):
    where = machine.describe()
    yield f"# Eager calls on {options.size}x{options.size} elements, {where['date']}"
    yield ""
    yield f"{where['cpu']}, {where['cores']} cores, load {where['load_before']:.1f}, Python {where['python']};"
    yield f"torch {torch_version}, weft {weft_version}, NumPy {np.__version__}. Microseconds per call;"
    yield f"threads of each: {options.threads}."
    yield ""
    yield "| call | torch | weft | weft / torch |"
    yield "|---|---|---|---|"
    for name, theirs, ours in rows:
        yield f"| {name} | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} |"
    mean = math.exp(sum(math.log(ours / theirs) for _, theirs, ours in rows) / len(rows))
    yield f"| geometric mean | | | {mean:.2f} |"


class Cases:
    """The calls of one library, on matrices of a size."""

    def __init__(self, library, size):
        self.library, self.make = library, tensors(library, 3)
        self.x, self.requiring = self.make(size, size), self.make(size, size, grad=True)
        exact, self.functions = functions(library, self.make, size)
        self.differentiable = list(self.functions)
        self.functions |= exact

    def forward(self, name):
        function, x = self.functions[name], self.x
        return lambda: function(x)

    def both(self, name):
        function, x = self.functions[name], self.requiring
        cotangent = self.make(*function(x).shape)

        def run():
            x.grad = None
            function(x).backward(cotangent)

        return run


def functions(library, make, n):
    """(functions without a derivative, functions with one) of a matrix."""
    f, b, row, positive = library.nn.functional, make(n, n), make(n), make(n, n).abs() + 0.5
    rng = np.random.default_rng(4)
    columns = library.tensor(rng.integers(0, n, n))
    places = library.tensor(rng.integers(0, n, (n, n)))
    half, brain, variance, long = b.half(), b.bfloat16(), row * row + 0.5, make(n * n // 4)
    images = (n // 100, 20, 50, n // 10) if n % 100 == 0 else (1, 4, n // 4, n)
    heads = make(1, n // 64 + 1, n, 64)[:, : n // 64]
    with_derivative = {
        "add": lambda x: x + b,
        "add a row": lambda x: x + row,
        "mul by a number": lambda x: x * 2.0,
        "mul": lambda x: x * b,
        "div": lambda x: x / positive,
        "neg": lambda x: -x,
        "abs": lambda x: x.abs(),
        "square": lambda x: x * x,
        "pow 3": lambda x: x**3,
        "sqrt": lambda x: (x * x).sqrt(),
        "exp": lambda x: x.exp(),
        "log": lambda x: positive.log() * x,
        "sin": lambda x: x.sin(),
        "tanh": lambda x: x.tanh(),
        "sigmoid": lambda x: x.sigmoid(),
        "erf": lambda x: x.erf(),
        "relu": lambda x: f.relu(x),
        "leaky_relu": lambda x: f.leaky_relu(x),
        "elu": lambda x: f.elu(x),
        "gelu": lambda x: f.gelu(x),
        "silu": lambda x: f.silu(x),
        "softplus": lambda x: f.softplus(x),
        "hardtanh": lambda x: f.hardtanh(x),
        "clamp": lambda x: x.clamp(-1.0, 1.0),
        "maximum": lambda x: library.maximum(x, b),
        "where": lambda x: library.where(x > 0, x, b),
        "masked_fill": lambda x: x.masked_fill(b > 0, 0.0),
        "sum": lambda x: x.sum(),
        "sum of rows": lambda x: x.sum(1),
        "sum of columns": lambda x: x.sum(0),
        "mean of rows": lambda x: x.mean(1),
        "max of rows": lambda x: x.max(1).values,
        "amax of columns": lambda x: x.amax(0),
        "var of rows": lambda x: x.var(1),
        "var of columns": lambda x: x.var(0),
        "std": lambda x: x.std(),
        "norm": lambda x: x.norm(),
        "logsumexp": lambda x: library.logsumexp(x, 1),
        "cumsum": lambda x: x.cumsum(1),
        "softmax": lambda x: f.softmax(x, -1),
        "softmax of columns": lambda x: f.softmax(x, 0),
        "log_softmax": lambda x: f.log_softmax(x, -1),
        "layer_norm": lambda x: f.layer_norm(x, (n,)),
        "batch_norm": lambda x: f.batch_norm(x, None, None, training=True),
        "batch_norm in evaluation": lambda x: f.batch_norm(x, row, variance, row, row),
        "group_norm": lambda x: f.group_norm(x, 4, row, row),
        "group_norm of images": lambda x: f.group_norm(x.view(images), 4),
        "instance_norm": lambda x: f.instance_norm(x.view(images)),
        "glu": lambda x: f.glu(x),
        "nansum": lambda x: x.nansum(1),
        "remainder": lambda x: x % positive,
        "remainder by a number": lambda x: x % 0.7,
        "fmod": lambda x: library.fmod(x, positive),
        "normalize": lambda x: f.normalize(x, dim=1),
        "mse_loss": lambda x: f.mse_loss(x, b),
        "l1_loss": lambda x: f.l1_loss(x, b),
        "cross_entropy": lambda x: f.cross_entropy(x, columns),
        "binary cross entropy": lambda x: f.binary_cross_entropy_with_logits(x, b),
        "transposed copy": lambda x: x.t().contiguous(),
        "add a transposed": lambda x: x + b.t(),
        "transposed into one row": lambda x: x.t().reshape(-1),
        "cat": lambda x: library.cat([x, b]),
        "rows": lambda x: x[columns],
        "index_select": lambda x: x.index_select(1, columns),
        "gather": lambda x: x.gather(1, places),
        "flip": lambda x: x.flip(1),
        "triu": lambda x: x.triu(),
        "few rows times a long vector": lambda x: x.view(4, -1) @ long,
        "matrix times vector": lambda x: x @ row,
        "attention": lambda x: f.scaled_dot_product_attention(heads * x[0, 0], heads, heads),
    }
    exact = {
        "greater": lambda x: x > b,
        "greater than a number": lambda x: x > 0.0,
        "isnan": lambda x: x.isnan(),
        "argmax of rows": lambda x: x.argmax(1),
        "floor_divide": lambda x: x // positive,
        "remainder of integers": lambda x: places % 7,
        "add float16": lambda x: half + half,
        "add bfloat16": lambda x: brain + brain,
        "random permutation": lambda x: library.randperm(n * n),
        "to float64": lambda x: x.double(),
        "clone": lambda x: x.clone(),
    }
    return exact, with_derivative


if __name__ == "__main__":
    main()
