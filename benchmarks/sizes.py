"""python -m benchmarks.sizes: programs for many sizes beside those for one, on the workloads, in turns in one process.

Each workload is compiled twice: for its own shapes alone (dynamic=False), and for any size of its first dimension
(dynamic=True), by a first call with 7 rows, so that nothing is known of the size that comes. Both then run at the
workload's size, in turns: the figure is the best time of one over the best of the other. 1.1 is what is allowed.
"""

import argparse
import contextlib
import time
from pathlib import Path

import weft

from . import machine
from .workload import Gradient
from .workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"
FIRST_ROWS = 7


# --- a workload as a function of its arrays ---------------------------------------------------------------------------
def gradient(workload):
    """(function, its arguments, those of a call with few rows)"""
    leaves, constants, cotangent = workload.split({k: weft.from_numpy(a) for k, a in workload.arrays().items()})
    n_leaves = len(leaves)

    def step(*arrays):
        inputs = [a.detach().requires_grad_() for a in arrays[:n_leaves]]
        rest = arrays[n_leaves:]
        if cotangent is not None:
            *rest, given = rest
        value = workload.function(weft, *inputs, *rest)
        return value, *weft.autograd.grad(value, inputs, given if cotangent is not None else None)

    arrays = [*leaves, *constants, *([] if cotangent is None else [cotangent])]
    n, d = next((n, d) for a in arrays for d, n in enumerate(a.shape) if n > 1)
    is_long = [a.ndim > d and a.shape[d] == n for a in arrays]
    return step, arrays, [a.narrow(d, 0, min(FIRST_ROWS, n)).clone() if long else a for a, long in zip(arrays, is_long)]


def training(workload):
    parameters, batches = workload.arrays()
    model = workload.model(weft)
    with weft.no_grad():
        for parameter, array in zip(model.parameters(), parameters):
            parameter.copy_(weft.from_numpy(array))
    optimizer = weft.optim.SGD(model.parameters(), lr=workload.lr, momentum=workload.momentum)

    def step(x, y):
        optimizer.zero_grad()
        loss = workload.loss(weft, model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = map(weft.from_numpy, batches[0])
    return step, [x, y], [x[:FIRST_ROWS].clone(), y[:FIRST_ROWS].clone()]


def compiled(workload, dynamic):
    """(the function after its first calls, its arguments, what runs: None if programs serve many sizes)"""
    step, arrays, few = (gradient if isinstance(workload, Gradient) else training)(workload)
    function = weft.compile(step, dynamic=dynamic)
    for given in [few, few] if dynamic else []:
        with contextlib.suppress(RuntimeError, IndexError):  # a workload that has no fewer rows
            function(*given)
    n_calls = 0
    # What is made anew of the same code may run eagerly for the first 16 calls (frontend/made_anew.py).
    while n_calls < 5 or (not function.recordings and n_calls < 24):
        function(*arrays)
        n_calls += 1
    programs = [p for r in function.recordings[-1:] for p in r.programs]
    if not programs:
        return function, arrays, "run eagerly"
    return function, arrays, None if all("n" in p.meta for p in programs) else "compiled for its size"


# --- in turns ---------------------------------------------------------------------------------------------------------
def best(function, arrays, seconds):
    shortest, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        function(*arrays)
        now = time.perf_counter()
        shortest = min(shortest, now - start)
        if now >= end:
            return shortest


def compare(workload, rounds, seconds):
    """(what ran instead of a program for many sizes, best time of the exact program, that of the other)"""
    exact, arrays, _ = compiled(workload, dynamic=False)
    other, others, instead = compiled(workload, dynamic=True)
    times = [[best(exact, arrays, seconds), best(other, others, seconds)] for _ in range(rounds)]
    return instead, min(a for a, _ in times), min(b for _, b in times)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizes", description=__doc__)
    parser.add_argument("--workload", default="", help="some of them, with commas between")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each round and side")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="the record in benchmarks/results")
    options = parser.parse_args()
    weft.set_num_threads(options.threads)
    lines = ["| workload | for its size, us | for many, us | ratio |", "|---|---|---|---|"]
    print("\n".join(lines))
    for name in options.workload.split(",") if options.workload else WORKLOADS:
        instead, exact, other = compare(WORKLOADS[name], options.rounds, options.seconds)
        ratio = instead or f"{other / exact:.3f}"
        lines.append(f"| {name} | {1e6 * exact:.1f} | {1e6 * other:.1f} | {ratio} |")
        print(lines[-1], flush=True)
    if options.write:
        facts = machine.describe()
        title = f"# Programs for many sizes beside those for one, {facts['date']}"
        path = RESULTS / f"{facts['date'][:10]}-sizes.md"
        load = f"load average before: {facts['load_before']:.1f}"
        head = [title, "", f"{facts['cpu']}, {options.threads} thread(s); {load}.", ""]
        path.write_text("\n".join([*head, *lines, ""]))


if __name__ == "__main__":
    main()
