"""What a compiled call was made of: its program's graph, and the arrays and numbers that it ran on."""

from contextlib import contextmanager
from typing import NamedTuple

from ..state import modes
from . import program


class Run(NamedTuple):
    """A program that ran. `stretch` and `needed` are what it was made from; `updates`: (position of the first number,
    rows) of those that the call has made so far, the `optimizers` that have made them, and `kept`: id of parameter ->
    name -> float, of what they kept of it before the call."""

    stretch: object
    needed: object
    program: object
    arrays: list
    numbers: list
    outputs: list
    updates: list
    optimizers: list
    kept: dict

    def graph(self):
        """(the graph, positions of its run-time numbers)."""
        from ..record.build import forward_graph

        graph, inputs, numbers = forward_graph(self.stretch, self.needed)
        assert list(inputs) == list(self.program.inputs), "the program was made from another graph"
        return graph, numbers

    def line_of_number(self, position):
        """The line that made the run-time number at this position, or None."""
        lines = [step.line for step in self.stretch.steps if step.first_number <= position]
        return lines[-1] if lines else None

    def line_of(self, number):
        """The line of the user's program that a value of the graph was recorded at, or None."""
        from ..record.build import graph_of

        builder = graph_of(self.stretch)
        for step in self.stretch.steps:
            made = [builder.values.get(vid) for vid in range(step.first, step.first + len(step.metas))]
            # What comes before a step's own values was needed for them.
            if any(v is not None and not v.is_source and v.number >= number for v in made):
                return step.line
        return None


class Capture:
    """`runs`: of all programs of forward calls, in order."""

    def __init__(self):
        self.runs, self._made_from = [], (None, None)
        self.updates, self.optimizers, self.kept = [], [], {}

    def steps(self, optimizer):
        """It is about to make a step."""
        if all(optimizer is not one for one in self.optimizers):
            self.kept |= {id(param): floats_of(state) for param, state in optimizer.state.items()}
        self.optimizers.append(optimizer)

    def described(self, stretch, needed):
        self._made_from = stretch, needed

    def ran(self, its_program, arrays, numbers, outputs):
        made = list(arrays), list(numbers), list(outputs), list(self.updates), list(self.optimizers), dict(self.kept)
        self.runs.append(Run(*self._made_from, its_program, *made))
        self._made_from = None, None


def floats_of(state):
    """Of what an optimizer keeps of a parameter, the numbers that are no counts."""
    return {name: x for name, x in state.items() if isinstance(x, float)}


@contextmanager
def capturing():
    """`with capturing() as capture:` notes every program that runs; those that ran before, in native code, do not."""
    capture = Capture()
    program.captures.append(capture)
    modes.captures.append(capture)
    try:
        yield capture
    finally:
        program.captures.remove(capture)
        modes.captures.remove(capture)
