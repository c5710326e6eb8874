"""Profiles: in an open block every op, node of a backward pass, compiled call and named part is noted with its times.

    Profile      the open block of a thread: state.profile. What it has noted is one flat list, in order of beginning
    Moment       one of these: name, begin and end in nanoseconds, and what it is inside of

While a block is open the thread's ops come by the gate in Python, which measures them one by one: native code stands
by. A compiled call is one moment, with nothing inside: it runs as it does without a profile. What is made of the list
(events, tables, files) is frontend/profiled.py.
"""

import re
import sys
import threading
import traceback
from functools import cache
from time import perf_counter_ns

from ..state.modes import state, step_out, watching
from ..state.tensor import Tensor

_PACKAGE = __name__.partition(".")[0]


class Moment:
    """Something that took time: what it was, from when to when, and as much more as the profile was asked for."""

    __slots__ = ("name", "begin", "end", "outer", "shapes", "n_bytes", "sequence", "lines", "kind")

    def __init__(self, name, kind, outer):
        self.name, self.kind, self.outer = name, kind, outer
        self.begin = self.end = 0
        self.shapes, self.n_bytes, self.sequence, self.lines = [], 0, -1, []


class Profile:
    """What a thread does from open() to close()."""

    def __init__(self, shapes=False, memory=False, lines=False):
        self.moments = []
        self.thread = threading.get_ident()
        self.with_shapes, self.with_memory, self.with_lines = shapes, memory, lines
        self._innermost = self._block = None
        self._n_begun = 0  # how often the op of the innermost moment still comes by the gate

    def open(self):
        """Raises RuntimeError where this thread has an open profile already, as PyTorch does."""
        if state.profile is not None:
            raise RuntimeError("Profiler is already enabled on this thread")
        self._block = step_out("a profile measures ops one by one")
        self._go_on()

    def close(self):
        """Nothing more is noted. What is still going on ends here."""
        if state.profile is self:
            self._pause()
        now = perf_counter_ns()
        for moment in self.moments:
            moment.end = moment.end or now
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(None, None, None)

    def _go_on(self):
        state.profile = self
        watching.append(self)

    def _pause(self):
        watching.remove(self)
        state.profile = None

    # --- moments ----------------------------------------------------------------------------------------------------
    def begin(self, name, kind="op", operands=()):
        """A moment that lasts until `end` is called with it."""
        moment = Moment(name, kind, self._innermost)
        if self.with_shapes:
            moment.shapes = [list(x.shape) if isinstance(x, Tensor) else [] for x in operands]
        if self.with_lines:
            moment.lines = _lines_outside()
        self.moments.append(moment)
        self._innermost = moment
        moment.begin = perf_counter_ns()
        return moment

    def end(self, moment):
        """It is over, and with it what was begun inside and has not ended."""
        now, inner = perf_counter_ns(), self._innermost
        while inner is not None and inner is not moment:
            inner.end = inner.end or now
            inner = inner.outer
        moment.end, self._innermost = now, moment.outer

    # --- who is asked to run something --------------------------------------------------------------------------------
    def is_new(self):
        """Whether an op that comes by the gate is not the one that was begun there."""
        if self._n_begun:
            self._n_begun -= 1
            return False
        return True

    def op(self, apply, op, operands, attributes):
        """apply(op, operands, attributes), and the result is what it made."""
        moment = self.begin(_name(op), operands=operands)
        self._n_begun = 1
        try:
            out = apply(op, operands, attributes)
        finally:
            self._n_begun = 0
            self.end(moment)
        if self.with_memory and out._base is None:
            moment.n_bytes = out.array.nbytes
        if out._node is not None:
            moment.sequence = out._node.sequence
        return out

    def change(self, change, op, target, operands, attributes):
        """change(op, target, operands, attributes), which changes the target in place by this op."""
        moment = self.begin(f"{_name(op)}_", operands=operands)
        self._n_begun = 2  # with the op that says what the new value is
        try:
            return change(op, target, operands, attributes)
        finally:
            self._n_begun = 0
            self.end(moment)

    def node(self, node, run):
        """run(), which is the backward of the node."""
        moments = []
        for name in (f"autograd::engine::evaluate_function: {node.name()}", node.name()):
            moment = self.begin(name, "backward")
            moment.sequence = getattr(node, "sequence", -1)
            moments.append(moment)
        try:
            return run()
        finally:
            for moment in reversed(moments):
                self.end(moment)

    def call(self, name, run):
        """run(), which is a compiled call: it is not looked into."""
        moment = self.begin(name, "call")
        self._pause()
        try:
            return run()
        finally:
            self._go_on()
            self.end(moment)

    def part(self, name, run):
        """run(), which has a name."""
        moment = self.begin(name, "part")
        try:
            return run()
        finally:
            self.end(moment)


@cache
def _name(op):
    """What PyTorch calls the op; where a node has a name of its own, that is PyTorch's."""
    is_given = isinstance(op.node_name, str)  # and is not found from what the op is called with
    words = re.findall("[A-Z][a-z0-9]*", op.node_name.partition("Backward")[0]) if is_given else [op.name]
    return f"aten::{'_'.join(words).lower()}"


def _lines_outside():
    """The lines of the user's that lead here, the innermost first, as 'file(line): function'."""
    frames = [f for f, _ in traceback.walk_stack(sys._getframe(2))]
    outside = [f for f in frames if f.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE]
    return [f"{f.f_code.co_filename}({f.f_lineno}): {f.f_code.co_name}" for f in outside]
