"""python -m benchmarks.growth: how long the first call of a function takes, against the number of steps it writes out.

    recurrence     h = tanh(h @ w), n times, and the gradient of the sum of h with respect to w
    elementwise    x = tanh(x) * 1.01, n times: 2 n ops

Every figure is from a process of its own with empty caches: the first call less what importing took. A side gets no
longer chain once one took more than --most seconds. The record is written as JSON and Markdown, and
drawn if matplotlib is installed.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import growth_picture, machine, report

STEPS = (50, 100, 200, 500, 1000, 2000, 5000, 10000)
SIDES = ("weft", "jax")
LATER_CALLS = 80
RESULTS = Path(__file__).parent / "results"


# --- the work, in a process of its own --------------------------------------------------------------------------------
def recurrence_weft(weft, n):
    w, x = weft.full((16, 16), 0.1, requires_grad=True), weft.ones(8, 16)

    @weft.compile
    def gradient(x):
        w.grad, h = None, x
        for _ in range(n):
            h = weft.tanh(h @ w)
        h.sum().backward()
        return w.grad

    return lambda: gradient(x).numpy()


def elementwise_weft(weft, n):
    x = weft.ones(8, 16)

    @weft.compile
    def chain(x):
        for _ in range(n):
            x = weft.tanh(x) * 1.01
        return x

    return lambda: chain(x).numpy()


def recurrence_jax(jax, n):
    w, x = jax.numpy.full((16, 16), 0.1), jax.numpy.ones((8, 16))

    def total(w, x):
        h = x
        for _ in range(n):
            h = jax.numpy.tanh(h @ w)
        return h.sum()

    gradient = jax.jit(jax.grad(total))
    return lambda: gradient(w, x).block_until_ready()


def elementwise_jax(jax, n):
    def chain(x):
        for _ in range(n):
            x = jax.numpy.tanh(x) * 1.01
        return x

    compiled, x = jax.jit(chain), jax.numpy.ones((8, 16))
    return lambda: compiled(x).block_until_ready()


WORK = {
    "recurrence": {"weft": recurrence_weft, "jax": recurrence_jax},
    "elementwise": {"weft": elementwise_weft, "jax": elementwise_jax},
}


def measure_here(kind, side, n):
    """Seconds of the first call, peak memory, and milliseconds of a later call."""
    from .child import peak_memory_bytes

    library = __import__(side)
    call = WORK[kind][side](library, n)
    before, began = peak_memory_bytes(), time.perf_counter()
    call()
    first = time.perf_counter() - began
    added = peak_memory_bytes() - before
    if hasattr(library, "fill_cache"):
        library.fill_cache()  # with empty caches what replays calls is made in the background else, after many calls
    later = []
    for _ in range(LATER_CALLS):
        began = time.perf_counter()
        call()
        later.append(time.perf_counter() - began)
    return {"first_call_seconds": first, "added_bytes": added, "later_call_milliseconds": 1e3 * min(later)}


# --- all of it --------------------------------------------------------------------------------------------------------
def main(arguments=None):
    options = parse(arguments)
    if options.here:
        kind, side, n = options.here
        print(json.dumps(measure_here(kind, side, int(n))))
        return
    results = {"machine": machine.describe(), "most_seconds": options.most, "chains": {}}
    for kind in WORK:
        results["chains"][kind] = {side: measure(kind, side, options) for side in options.sides}
    print("\n".join(lines(results)))
    if options.out != Path("-"):
        write(results, options.out)


def measure(kind, side, options):
    """{number of steps: what measure_here gives}."""
    found = {}
    for n in options.steps:
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "WEFT_CACHE_DIR": cache}
            command = [sys.executable, "-m", "benchmarks.growth", "--here", kind, side, str(n)]
            finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found[n] = json.loads(finished.stdout.splitlines()[-1])
        print(f"{kind} {side} {n}: {found[n]['first_call_seconds']:.2f} s", file=sys.stderr, flush=True)
        if found[n]["first_call_seconds"] > options.most:
            break
    return found


def lines(results):
    described = results["machine"]
    yield f"# Time of the first call against the number of steps, {described['date']}"
    yield ""
    yield f"{described['cpu']}, {described['cores']} cores, Python {described['python']}; "
    yield f"load average before: {described['load_before']:.1f}."
    for kind, sides in results["chains"].items():
        yield from ["", f"## {kind}", ""]
        steps = sorted({n for found in sides.values() for n in found})
        header = ["steps", *(f"{side}, {what}" for side in sides for what in ("s", "MiB added", "later call, ms"))]
        rows = [[str(n), *(cell for found in sides.values() for cell in cells(found.get(n)))] for n in steps]
        yield from report.table(header, rows)


def cells(record):
    if record is None:
        return ["", "", ""]
    return [
        f"{record['first_call_seconds']:.2f}",
        f"{record['added_bytes'] / 2**20:.0f}",
        f"{record['later_call_milliseconds']:.3g}",
    ]


def write(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{results['machine']['date'][:10]}-growth"
    stem.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    stem.with_suffix(".md").write_text("\n".join(lines(results)) + "\n")
    if importlib.util.find_spec("matplotlib"):
        growth_picture.write(results, stem.with_suffix(".svg"))
    else:
        print("no picture: pip install matplotlib, then python -m benchmarks.growth_picture", file=sys.stderr)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--steps", type=lambda text: [int(n) for n in text.split(",")], default=STEPS)
    parser.add_argument("--sides", type=lambda text: text.split(","), default=SIDES)
    parser.add_argument("--most", type=float, default=30.0, help="seconds; default: 30")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the record; - for none")
    parser.add_argument("--here", nargs=3, metavar=("KIND", "SIDE", "N"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
