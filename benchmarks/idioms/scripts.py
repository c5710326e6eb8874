"""The training programs of the tests, whole: evaluation, checkpoints, interruptions and all."""

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy

# Where they stand. At the end, so that nothing there hides an installed package.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

import training_generative  # noqa: E402, F401
import training_interrupted  # noqa: E402, F401
import training_loops  # noqa: E402, F401
import training_programs  # noqa: E402
import training_second_order  # noqa: E402, F401
import training_supervised  # noqa: E402, F401

from .registry import IDIOMS  # noqa: E402

Setting = training_programs.Setting


@dataclass(frozen=True, slots=True)
class Script:
    """A program of some fifty steps; it is measured by running it from the start."""

    program: str
    draws: bool = False

    def compared(self, keys):
        """The losses alone: a bias that changes nothing has a gradient of rounding errors, which Adam makes a step."""
        return [key for key in keys if key == min(keys)]

    def results(self, T, compile):
        """All losses as one array, then what was trained."""
        losses, trained = training_programs.run(T, self.program, compile, "float32")
        return [numpy.stack(losses), *trained]

    def seconds(self, T, compile):
        """(first step, median of the second half): what is done between steps, now and then, does not count."""
        taken = []
        steps = training_programs.PROGRAMS[self.program](T, Setting(T, compile, "float32"))
        began = time.perf_counter()
        for _ in steps:
            ended = time.perf_counter()
            taken.append(ended - began)
            began = ended
        return taken[0], statistics.median(taken[len(taken) // 2 :])


for name in training_programs.PROGRAMS:
    assert f"script_{name}" not in IDIOMS
    IDIOMS[f"script_{name}"] = Script(name)
