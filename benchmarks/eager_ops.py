"""python -m benchmarks.eager_ops: single calls in eager mode, weft and PyTorch in turns in one process.

One thread each. Of every case the fastest of several turns counts, because other work on the machine only ever adds
time. Microseconds per call, and how many times as long weft takes. With --without-native eager mode's Python does what
native code does otherwise; kernels are native all the same.
"""

import argparse
import math
import os
import time
from pathlib import Path

import numpy as np

from . import machine

TURNS = 9
TURN_SECONDS = 0.004


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eager_ops", description=__doc__)
    parser.add_argument("--case", help="names, separated by commas; all by default")
    parser.add_argument("--kind", choices=["small", "large"], help="only these; both by default")
    parser.add_argument("--rounds", type=int, default=1, help="through all cases, where other work comes in bursts")
    parser.add_argument("--without-native", action="store_true", help="with WEFT_NATIVE_REPLAY=0")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    if options.without_native:
        os.environ["WEFT_NATIVE_REPLAY"] = "0"
    import torch

    import weft

    weft.fill_cache()
    torch.set_num_threads(1)
    weft.set_num_threads(1)
    kinds = {"small": [small, chain], "large": [large], None: [small, chain, large]}[options.kind]
    cases = {side.__name__: {n: c for kind in kinds for n, c in kind(side).items()} for side in (torch, weft)}
    chosen = options.case.split(",") if options.case else list(cases["torch"])
    rows = fastest_rows(chosen, cases, options.rounds)
    what = "calls without native code" if options.without_native else "calls"
    text = "\n".join(table(what, rows, torch.__version__, weft.weft_version))
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def fastest_rows(names, cases, rounds):
    """(name, microseconds of PyTorch's call, of weft's) of each: the fastest of all rounds."""
    best = dict.fromkeys(names, (math.inf, math.inf))
    for _ in range(rounds):
        for name in names:
            best[name] = tuple(map(min, best[name], in_turns(cases["torch"][name], cases["weft"][name])))
    return [(name, *times) for name, times in best.items()]


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


def table(what, rows, torch_version, weft_version):
    where = machine.describe()
    yield f"# Eager {what}, {where['date']}"
    yield ""
    yield f"{where['cpu']}, {where['cores']} cores, load {where['load_before']:.1f}, Python {where['python']};"
    yield f"torch {torch_version}, weft {weft_version}, NumPy {np.__version__}. Microseconds each, one thread."
    yield ""
    yield f"| {what} | torch | weft | weft / torch |"
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


def chain(library):
    """Ten ops with their backward."""
    make = tensors(library, 1)
    x, w, b = make(3, 3, grad=True), make(3, 3, grad=True), make(3, 3)

    def total():
        y = x
        for _ in range(5):
            y = y * w + b
        return y.sum()

    def backward():
        total().backward()
        x.grad = w.grad = None

    return {
        "ten ops and backward": backward,
        "ten ops and autograd.grad": lambda: library.autograd.grad(total(), (x, w)),
    }


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
