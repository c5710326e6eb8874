"""python -m benchmarks.eager_varied: eager calls whose sizes change from call to call, weft and PyTorch in turns.

Batches of other lengths, prefixes, masks that pick other numbers of elements: what eager mode finds out about a shape
is asked for a few times, or never again. Per case and side the mean of so many calls from the first on, in processor
time, so that what is found out counts and other work on the machine does not. Microseconds, one thread each.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from .eager_ops import table, tensors

CALLS = 3000


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eager_varied", description=__doc__)
    parser.add_argument("--case", help="names, separated by commas; all by default")
    parser.add_argument("--calls", type=int, default=CALLS, help="of every case")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    import torch

    import weft

    torch.set_num_threads(1)
    weft.set_num_threads(1)
    theirs, ours = cases(torch), cases(weft)
    names = options.case.split(",") if options.case else list(theirs)
    rows = [(n, mean_of(theirs[n], options.calls), mean_of(ours[n], options.calls)) for n in names]
    text = "\n".join(
        table(f"calls with other sizes, {options.calls} of each", rows, torch.__version__, weft.weft_version)
    )
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def mean_of(call, n_calls):
    """Microseconds of one of so many calls, each with a size of its own."""
    sizes = np.random.default_rng(5).integers(2, 500, n_calls).tolist()
    start = time.thread_time()
    for n in sizes:
        call(n)
    return 1e6 * (time.thread_time() - start) / n_calls


def cases(library):
    """Functions of a size."""
    make, functional = tensors(library, 4), library.nn.functional
    vector, rows, layer = make(1000), make(500, 16), library.nn.Linear(16, 16)

    def step(n):
        layer(rows[:n]).tanh().mean().backward()
        layer.zero_grad()

    return {
        "prefix": lambda n: (vector[:n] * 2 + 1).sum(),
        "window": lambda n: vector[n : n + 50].mean(),
        "element": lambda n: rows[n, n % 16] * 2,
        "mask": lambda n: vector[vector > n / 500 - 0.5].sum(),
        "zeros": lambda n: library.zeros(n),
        "arange": lambda n: library.arange(n),
        "softmax": lambda n: functional.softmax(vector[:n], 0).max(),
        "layer_norm": lambda n: functional.layer_norm(rows[:n], (16,)),
        "linear": lambda n: layer(rows[:n]).relu().sum(),
        "linear, with its backward": step,
        "sort": lambda n: vector[:n].sort().values,
        "pad": lambda n: functional.pad(vector[:10], (0, n)),
        "product": lambda n: (rows[:n].T @ rows[:n]).trace(),
    }


if __name__ == "__main__":
    main()
