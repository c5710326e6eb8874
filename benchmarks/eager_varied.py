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

    weft.fill_cache()
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
    """Functions of a size, from 2 to 499."""
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
        "cumsum": lambda n: vector[:n].cumsum(0)[-1],
        "columns": lambda n: rows[:n, : 2 + n % 8].mean(1) - rows[:n, 0],
        "masked_fill": lambda n: rows[:n].masked_fill(rows[:n] > 0, 0.0).sum(1),
        "stack": lambda n: library.stack([vector[:n], vector[n : 2 * n]]).amax(0),
        "split": lambda n: sum(part.mean() for part in vector[:n].chunk(2)),
        **of_sequences(library, make, functional),
        **of_batches(library, make, functional),
        **of_many_features(library, make, functional),
    }


def of_sequences(library, make, functional):
    """What is done sentence by sentence, or position by position."""
    rows, cache, words = make(500, 16), make(500, 4, 8), library.arange(500) % 50
    table, query, key, value = library.nn.Embedding(50, 16), make(4, 1, 8), make(4, 500, 8), make(4, 500, 8)
    to_scores, wide = library.nn.Linear(16, 50), make(1, 4, 8)
    longest = make(500, 16)

    def decoded(n):
        """The next word of a sequence of n."""
        states = table(words[:n])
        weights = functional.softmax(states[-1] @ states.T / 4.0, -1)
        return to_scores(weights @ states).argmax()

    def masked(n):
        """Attention among n positions, each of which sees those before it."""
        mask = library.triu(library.ones(n, n, dtype=library.bool), diagonal=1)
        return (key[:, :n, 0] @ value[:, :n, 1].T).sum() + mask.sum()

    return {
        "embedding": lambda n: table(words[:n]).mean(0),
        "one_hot": lambda n: functional.one_hot(words[:n], 50).sum(0),
        "growing cache": lambda n: library.cat([cache[:n], wide]).sum(0),
        "attention": lambda n: functional.scaled_dot_product_attention(query, key[:, :n], value[:, :n]),
        "causal mask": lambda n: masked(2 + n % 60),
        "greedy decoding": decoded,
        "padded to the longest": lambda n: functional.pad(rows[:n], (0, 0, 0, 500 - n)) + longest,
        "last state": lambda n: rows[:n].tanh()[-1] @ longest[:16, :4],
        "pairs": lambda n: (rows[: n % 40 + 2, None] - rows[None, : n % 30 + 2]).pow(2).sum(-1).min(),
    }


def of_batches(library, make, functional):
    """Training steps on batches of other lengths, each with its backward."""
    net = library.nn.Sequential(library.nn.Linear(16, 32), library.nn.ReLU(), library.nn.Linear(32, 10))
    norm, table = library.nn.LayerNorm(16), library.nn.Embedding(50, 16)
    rows, targets, wanted = make(500, 16), library.arange(500) % 10, make(500, 10)

    def backward(loss, *modules):
        loss.backward()
        for module in modules:
            module.zero_grad()

    def chosen(n):
        mask = rows[:, 0] > n / 250 - 1
        backward(functional.mse_loss(net(rows[mask]), wanted[mask]), net)

    def of_words(n):
        found = table(targets[:n]).mean(0)
        backward(functional.cross_entropy(net(found)[None], targets[:1]), net, table)

    return {
        "cross_entropy": lambda n: functional.cross_entropy(wanted[:n], targets[:n]),
        "classifier": lambda n: backward(functional.cross_entropy(net(rows[:n]), targets[:n]), net),
        "regression": lambda n: backward(functional.mse_loss(net(rows[:n]), wanted[:n]), net),
        "normalised": lambda n: backward(net(norm(rows[:n])).square().mean(), net, norm),
        "rows of a mask": chosen,
        "bag of words": of_words,
    }


def of_many_features(library, make, functional):
    """Large operands: what PyTorch computes in 10 us and more."""
    rows, norm, classes = make(1000, 512), library.nn.LayerNorm(512), library.arange(1000) % 512
    sequences = make(8, 500, 64)
    encoder = library.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)

    def normalised(n):
        norm(rows[:n]).square().mean().backward()
        norm.zero_grad()

    def encoded(n):
        encoder(sequences[:, : 2 + n // 4]).square().mean().backward()
        encoder.zero_grad()

    return {
        "large softmax": lambda n: functional.softmax(rows[:n], 1),
        "large layer_norm": lambda n: norm(rows[:n]),
        "large gelu": lambda n: functional.gelu(rows[:n]),
        "large cross_entropy": lambda n: functional.cross_entropy(rows[:n], classes[:n]),
        "large cumsum": lambda n: rows[:n].cumsum(0),
        "large variance": lambda n: rows[:n].var(0),
        "large pairs": lambda n: functional.mse_loss(rows[:n], rows[n : 2 * n]),
        "large normalised": normalised,
        "encoder layer": encoded,
    }


if __name__ == "__main__":
    main()
