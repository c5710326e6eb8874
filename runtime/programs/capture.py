"""What a compiled call was made of: its program's graph, and the arrays and numbers that it ran on."""

from contextlib import contextmanager
from typing import NamedTuple

from . import program


class Run(NamedTuple):
    """A program that ran. `stretch` and `needed` are what it was made from."""

    stretch: object
    needed: object
    program: object
    arrays: list
    numbers: list
    outputs: list

    def graph(self):
        """(the graph, positions of its run-time numbers)."""
        from ..record.build import forward_graph

        graph, inputs, numbers = forward_graph(self.stretch, self.needed)
        assert list(inputs) == list(self.program.inputs), "the program was made from another graph"
        return graph, numbers


class Capture:
    """`runs`: of all programs of forward calls, in order."""

    def __init__(self):
        self.runs, self._made_from = [], (None, None)

    def described(self, stretch, needed):
        self._made_from = stretch, needed

    def ran(self, its_program, arrays, numbers, outputs):
        self.runs.append(Run(*self._made_from, its_program, list(arrays), list(numbers), list(outputs)))
        self._made_from = None, None


@contextmanager
def capturing():
    """`with capturing() as capture:` notes every program that runs; those that ran before, in native code, do not."""
    capture = Capture()
    program.captures.append(capture)
    try:
        yield capture
    finally:
        program.captures.remove(capture)
