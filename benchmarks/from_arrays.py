"""python -m benchmarks.from_arrays: value and gradient from NumPy to NumPy, as optimizers and samplers ask for them.

What a call costs, beside the program itself (through ctypes, whose own cost is part of it), the same by weft.aot, and
PyTorch's eager mode from and to arrays where it is installed. float64, one thread, microseconds: the least of many
turns of a few calls, in which all take part one after the other, because what comes from elsewhere only adds.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np

import weft

from . import machine

RESULTS = Path(__file__).parent / "results"
CALLS = 20


def gauss(x):
    return (x * x).sum()


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def least_squares(x, a, b):
    return ((a @ x - b) ** 2).sum()


def logistic(x, a, b):
    z = a @ x
    return (z.exp().log1p() - b * z).sum()


def cases():
    """(name, function, arguments)."""
    rng = np.random.default_rng(0)
    for function in (gauss, rosenbrock):
        for n in (4, 100, 1000):
            yield f"{function.__name__}, {n} parameters", function, (rng.normal(size=n),)
    for function in (least_squares, logistic):
        for n in (4, 20):
            data = rng.normal(size=(100, n)), (rng.normal(size=100) > 0).astype(float)
            yield f"{function.__name__}, {n} parameters, 100 samples", function, (rng.normal(size=n), *data)


def calls_of(function, arguments):
    """side -> a function of no arguments."""
    native = weft.aot(function, arguments, gradients=True).value_and_grad
    held = [*arguments, *[np.empty(shape, dtype) for shape, dtype in native._results]]
    addresses = [x.ctypes.data for x in held]
    found = {
        "value_and_grad": partial(weft.value_and_grad(function), *arguments),
        "grad": partial(weft.grad(function), *arguments),
        "aot": partial(native, *arguments),
        "program": partial(native.ctypes, *addresses, native.scratch),
    }
    try:
        found["torch"] = partial(by_torch, function, *arguments)
        found["torch"]()
    except ImportError:
        del found["torch"]
    return found, held


def by_torch(function, x, *data):
    import torch

    x = torch.from_numpy(x.copy()).requires_grad_()
    value = function(x, *map(torch.from_numpy, data))
    (gradient,) = torch.autograd.grad(value, x)
    return value.item(), gradient.numpy()


def measure(calls, turns):
    """side -> microseconds."""
    for call in calls.values():
        for _ in range(20):
            call()
    least = dict.fromkeys(calls, np.inf)
    for _ in range(turns):
        for side, call in calls.items():
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            least[side] = min(least[side], (time.perf_counter() - began) / CALLS)
    return {side: 1e6 * seconds for side, seconds in least.items()}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.from_arrays", description=__doc__)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the record, - for none")
    options = parser.parse_args(arguments)
    weft.set_num_threads(1)
    where, rows = machine.describe(), []
    for name, function, given in cases():
        calls, _held = calls_of(function, given)
        rows.append((name, measure(calls, options.turns)))
        print(name, {side: round(us, 2) for side, us in rows[-1][1].items()}, flush=True)
    if options.out != Path("-"):
        (options.out / f"{where['date'][:10]}-from_arrays.md").write_text("\n".join(record(where, rows)) + "\n")


def record(where, rows):
    sides = list(rows[0][1])
    yield f"# Value and gradient from NumPy to NumPy, {where['date']}"
    yield ""
    yield f"{where['cpu']}, {where['cores']} cores, load {where['load_before']:.1f}, Python {where['python']}, weft"
    yield f"{weft.weft_version}, NumPy {np.__version__}. Microseconds per call, float64, one thread: the least of many"
    yield "turns, while the machine had other work."
    yield ""
    yield f"| function | {' | '.join(sides)} |"
    yield "|---" * (len(sides) + 1) + "|"
    for name, row in rows:
        yield f"| {name} | {' | '.join(f'{row[side]:.2f}' for side in sides)} |"


if __name__ == "__main__":
    main()
