"""The process of one side of the idioms: python -m benchmarks.idioms.child SIDE THREADS

It reads requests from standard input and answers as benchmarks/child.py does:

    {"do": "begin", "name": n}                     build the idiom; seconds of its first call
    {"do": "turn", "seconds": s}                   seconds per call, of a turn that long
    {"do": "record", "name": n, "folder": f}       what the first calls of a fresh one give, into f
    {"do": "explain"}                              what weft says of the functions it compiled
"""

import gc
import importlib
import os
import sys
import time

import numpy

from ..child import answer_requests, restrict_to_cpus
from . import IDIOMS
from .registry import flat
from .scripts import Script, Setting

RECORDED_CALLS = 6
WARM_CALLS = 200  # a trial of both ways (frontend/contest.py) is over by then
WARM_SECONDS = 1.0


def main(side, threads):
    answer_requests(lambda: Session(side, int(threads)))


class Session:
    """A library, and the idiom that is measured in it."""

    def __init__(self, side_name, threads):
        restrict_to_cpus(threads)
        # Imported here, because libraries count CPUs and threads when they are loaded.
        side = importlib.import_module("benchmarks.sides").SIDES[side_name]
        self.T = importlib.import_module(side.package)
        self.T.set_num_threads(threads)
        if hasattr(self.T, "fill_cache"):
            self.T.fill_cache()
        self.compiled, self.idiom, self.call, self.functions = side.compiled, None, None, []

    def compile(self, function):
        if not self.compiled:
            return function
        self.functions.append(self.T.compile(function))
        return self.functions[-1]

    def built(self, idiom):
        self.functions.clear()
        self.T.manual_seed(7)
        return idiom.build(self.T, Setting(self.T, self.compile, "float32"))

    def begin(self, name):
        self.call = None
        gc.collect()
        self.idiom = IDIOMS[name]
        if isinstance(self.idiom, Script):
            return {"first_call_seconds": self.idiom.seconds(self.T, self.compile)[0]}
        self.call = self.built(self.idiom)
        first = seconds_of(self.call, 1)
        self._warm()
        return {"first_call_seconds": first}

    def _warm(self):
        end = time.perf_counter() + WARM_SECONDS
        for _ in range(WARM_CALLS):
            self.call()
            if time.perf_counter() > end:
                break

    def turn(self, seconds):
        if isinstance(self.idiom, Script):
            return {"seconds": self.idiom.seconds(self.T, self.compile)[1]}
        steps = max(1, min(20_000, round(seconds / max(seconds_of(self.call, 5) / 5, 1e-7))))
        return {"seconds": seconds_of(self.call, steps) / steps}

    def record(self, name, folder):
        idiom = IDIOMS[name]
        if isinstance(idiom, Script):
            arrays = idiom.results(self.T, self.compile)
        else:
            call = self.built(idiom)
            self.T.manual_seed(8)
            arrays = [array for _ in range(RECORDED_CALLS) for array in flat(call())]
        numpy.savez(os.path.join(folder, f"{name}.npz"), **{f"{k:04}": a for k, a in enumerate(arrays)})
        return {"arrays": len(arrays)}

    def explain(self):
        return {"text": [f.explain() for f in self.functions if hasattr(f, "explain")]}


def seconds_of(call, steps):
    began = time.perf_counter()
    for _ in range(steps):
        call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*sys.argv[1:])
