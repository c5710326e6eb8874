"""python -m benchmarks.kernels: single kernels in compiled functions beside PyTorch's, in turns in one process.

    rows            layer_norm, softmax, logsumexp and var of rows, forward, and with their backward
    scans           running sums and extremes, sorts and top values, of a million elements and of 4096 x 1024
    convolutions    those of ResNet-18 on 64 x 64 images, batch 1 and 16: output, gradient of the input, of the weight;
                    PyTorch in the better of its two memory formats
    products        matrix products from 64^3 to 2048^3, and what share of the roof they reach

Milliseconds per call, the median of the rounds, and how many times as long PyTorch takes: above 1 weft is faster.
"""

import argparse
import operator
import time
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from . import machine

ROUNDS, ROUND_SECONDS = 11, 0.03
# Threads go on looking for work for some milliseconds, on the CPU that those of the other library want then.
PAUSE_SECONDS = 0.02
SHAPES = ((128, 1000), (1024, 1024), (4096, 768))
# Of ResNet-18: channels in and out, height and width, edge of the filter, stride.
CONVOLUTIONS = (
    (3, 64, 64, 7, 2),
    (64, 64, 16, 3, 1),
    (64, 128, 16, 3, 2),
    (64, 128, 16, 1, 2),
    (128, 128, 8, 3, 1),
    (128, 256, 8, 3, 2),
    (256, 256, 4, 3, 1),
    (256, 512, 4, 3, 2),
    (512, 512, 2, 3, 1),
)
PRODUCTS = (64, 128, 256, 512, 1024, 2048)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", default=",".join(KINDS), help="with commas between; all by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    options = parser.parse_args(arguments)
    import torch

    import weft

    weft.fill_cache()
    torch.set_num_threads(options.threads)
    weft.set_num_threads(options.threads)
    where = machine.describe()
    lines = [
        f"# Kernels beside PyTorch's, {where['date']}",
        "",
        f"{where['cpu']}, {where['cores']} cores, load {where['load_before']:.1f}, Python {where['python']}, torch",
        f"{torch.__version__}, weft {weft.weft_version}; threads of each: {options.threads}; {options.rounds} rounds.",
        "Milliseconds; in the last columns how many times as long PyTorch takes, median [quartiles].",
    ]
    for kind in options.kind.split(","):
        print(kind, flush=True)
        lines += ["", f"## {kind.capitalize()}", "", *KINDS[kind](weft, torch, options)]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- in turns ---------------------------------------------------------------------------------------------------------
def in_turns(functions, rounds, pauses):
    """Seconds per call of each function in every round."""
    counts, times = [], [[] for _ in functions]
    for function in functions:
        # Compiled functions are called natively once enough calls were alike.
        for _ in range(3):
            function()
        first = seconds(function, 1)
        for _ in range(min(100, int(1.0 / first))):
            function()
        counts.append(max(1, int(ROUND_SECONDS / seconds(function, 1))))
    for _ in range(rounds):
        for function, count, found in zip(functions, counts, times):
            if pauses:
                time.sleep(PAUSE_SECONDS)
                function()
            found.append(seconds(function, count))
    return times


def seconds(function, count):
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count


def compared(options, ours, *theirs):
    """(milliseconds of ours, of the fastest of theirs, the ratio's text)"""
    own, *others = in_turns([ours, *theirs], options.rounds, options.threads > 1)
    other = min(others, key=median)
    low, middle, high = quantiles([b / a for a, b in zip(own, other)], n=4, method="inclusive")
    return f"{1e3 * median(own):.4g}", f"{1e3 * median(other):.4g}", f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def table(headers, rows):
    yield "| " + " | ".join(headers) + " |"
    yield "|" + "---|" * len(headers)
    for row in rows:
        print("  " + "  ".join(row), flush=True)
        yield "| " + " | ".join(row) + " |"


# --- rows and scans ---------------------------------------------------------------------------------------------------
def of_rows(library, n):
    weight, bias = library.ones(n), library.zeros(n)
    return {
        "layer_norm": lambda x: library.nn.functional.layer_norm(x, (n,), weight, bias),
        "softmax": lambda x: library.softmax(x, 1),
        "logsumexp": lambda x: library.logsumexp(x, 1),
        "var": lambda x: library.var(x, 1),
    }


def of_scans(library):
    return {
        "cumsum": lambda x: library.cumsum(x, -1),
        "cumprod": lambda x: library.cumprod(x, -1),
        "cummax": lambda x: library.cummax(x, -1),
        "logcumsumexp": lambda x: library.logcumsumexp(x, -1),
        "sort": lambda x: library.sort(x, -1),
        "argsort": lambda x: library.argsort(x, -1),
        "topk 10": lambda x: library.topk(x, 10, -1),
        "median": lambda x: library.median(x, -1),
    }


def rows(weft, torch, options):
    def measured():
        for shape in SHAPES:
            x = np.random.default_rng(0).standard_normal(shape, np.float32)
            for name in of_rows(weft, shape[1]):
                ours, theirs = (functions(library, of_rows(library, shape[1])[name], x) for library in (weft, torch))
                for what, k in (("", 0), (", and backward", 1)):
                    label = f"{name}{what}, {shape[0]} x {shape[1]}"
                    yield label, *compared(options, ours[k], theirs[k])

    return table(("rows", "weft", "torch", "torch / weft"), measured())


def functions(library, function, x):
    """(a call, a call and its backward) of a function of one array."""
    compiled = library.compile if library.__name__ == "weft" else lambda f: f
    constant, leaf = library.tensor(x), library.tensor(x, requires_grad=True)
    cotangent = library.ones_like(function(constant))

    def both(x, cotangent):
        y = function(x)
        return y, *library.autograd.grad(y, [x], cotangent)

    forward, both = compiled(function), compiled(both)
    return lambda: forward(constant), lambda: both(leaf, cotangent)


def scans(weft, torch, options):
    def measured():
        for shape in ((1 << 20,), (4096, 1024)):
            x = np.random.default_rng(0).standard_normal(shape, np.float32)
            ours, theirs = weft.tensor(x), torch.tensor(x)
            for name, function in of_scans(weft).items():
                calls = partial(weft.compile(function), ours), partial(of_scans(torch)[name], theirs)
                yield f"{name}, {' x '.join(map(str, shape))}", *compared(options, *calls)

    return table(("scans and orders", "weft", "torch", "torch / weft"), measured())


# --- convolutions and products ----------------------------------------------------------------------------------------
def convolutions(weft, torch, options):
    def measured():
        for batch in (1, 16):
            for shape in CONVOLUTIONS:
                yield convolution(weft, torch, options, batch, *shape)

    what = ("output", "gradient of the input", "of the weight")
    return table(("convolution", *(f"{w}: weft, torch, torch / weft" for w in what)), measured())


def convolution(weft, torch, options, batch, n_in, n_out, size, edge, stride):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, n_in, size, size), np.float32)
    w = rng.standard_normal((n_out, n_in, edge, edge), np.float32)
    ours = convolution_calls(weft, weft.tensor(x), weft.tensor(w), stride, weft.compile)
    formats = torch.contiguous_format, torch.channels_last
    theirs = [
        convolution_calls(torch, *(torch.tensor(a).contiguous(memory_format=f) for a in (x, w)), stride, lambda f: f)
        for f in formats
    ]
    label = f"{batch} x {n_in} x {size} x {size}, {n_out} filters of {edge} x {edge}, stride {stride}"
    return label, *(" ".join(compared(options, *calls)) for calls in zip(ours, *theirs))


def convolution_calls(library, x, w, stride, compiled):
    """Calls for the output, the gradient of the input, and that of the weight."""
    padding = w.shape[-1] // 2
    convolved = compiled(lambda x, w: library.conv2d(x, w, None, stride, padding))
    given = library.ones_like(convolved(x, w))
    of_input = compiled(lambda x, w, g: library.nn.grad.conv2d_input(x.shape, w, g, stride, padding))
    of_weight = compiled(lambda x, w, g: library.nn.grad.conv2d_weight(x, w.shape, g, stride, padding))
    return lambda: convolved(x, w), lambda: of_input(x, w, given), lambda: of_weight(x, w, given)


def products(weft, torch, options):
    from weft.visualize import machine_roof

    peak = machine_roof().flops_per_ns["float32"] * options.threads

    def measured():
        for n in PRODUCTS:
            a, b = (np.random.default_rng(k).standard_normal((n, n), np.float32) for k in range(2))
            ours = partial(weft.compile(operator.matmul), weft.tensor(a), weft.tensor(b))
            theirs = partial(operator.matmul, torch.tensor(a), torch.tensor(b))
            own, other, ratio = compared(options, ours, theirs)
            shares = [f"{100 * 2 * n**3 / (float(ms) * 1e6) / peak:.0f} %" for ms in (own, other)]
            yield f"{n} x {n} x {n}", own, other, ratio, *shares

    yield f"The roof: {peak:.0f} Gflop/s of {options.threads} thread(s)."
    yield ""
    yield from table(("product", "weft", "torch", "torch / weft", "weft, of the roof", "torch"), measured())


KINDS = {"rows": rows, "scans": scans, "convolutions": convolutions, "products": products}


if __name__ == "__main__":
    main()
