"""What tests of functions in native code have in common. Not a test."""

import numpy as np

import weft
from weft.runtime.replay import native
from weft.runtime.state import marks

TIMES = 40  # from a dozen or two of equal calls on native code answers


def numbers(*shape):
    return weft.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def have_native_code():
    x = weft.ones(2)
    for _ in range(80):
        x + x
    assert (marks.answer is not marks.not_answered) == (native.layout() is not None)


def running_in_python(monkeypatch):
    """A function that runs another one without marks."""

    def run(function, *args):
        with monkeypatch.context() as context:
            context.setattr(marks, "answer", marks.not_answered)
            return function(*args)

    return run
