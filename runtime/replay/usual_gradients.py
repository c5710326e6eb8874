"""Gradients of a finished usual call that are to be differentiated again, by a program at once.

The compiled call that finds them (closed_again.py) does the same whenever its arguments are alike: it is no code of a
user. So after it has been seen to end as a usual call, its program is run without it.
"""

import threading

from ..programs.own_run import are_watched, own_run
from ..record.closed_again import Again, is_told
from ..state.attributes import same
from ..state.exposure import has_exposed
from ..state.modes import state, watching
from ..state.tensor import pending_tensor


class GradientProgram:
    """What a compiled call did that has found the gradients of another one.

    made: the ReplayedCall that it has left. given: the run-time numbers of the call that it differentiates, which its
    own depend on. gradients: numbers of what it gives, None where there is none. again: how such gradients are found
    where this cannot.

    outside, tensors, arrays, outputs, numbers: what native code ends such a call with (finished_calls.py), of one call
    at a time, while the lock is held.
    """

    __slots__ = (
        "again", "outside", "given", "gradients", "numbers", "tensors", "outputs", "metas", "places", "run_on", "lock",
        "native", "arrays",
    )  # fmt: skip

    def __init__(self, made, given, n_cotangents, found):
        self.outside, self.numbers, self.given = made.outside, list(made.numbers), tuple(given)
        self.gradients = [None if x is None else x._vid for x in found]
        outside, program, n = made.outside, made.outside.program, len(made.inputs)
        self.metas = outside.step.metas_so_far()
        self.tensors, self.outputs, self.arrays = [None] * len(self.metas), [], {}
        self.places = {v: _place(made.inputs[v]._data) for v in {*program.inputs, *range(n - n_cotangents, n)}}
        self.run_on = own_run(program, self.numbers, {}, range(len(program.inputs)))
        self.lock, self.native = threading.Lock(), outside.native_end(self, self._open)

    def takes(self, tensors, n_cotangents, numbers):
        """Whether the call would be like the one that was seen."""
        if numbers and (len(numbers) != len(self.given) or not all(map(same, numbers, self.given))):
            return False
        for c in tensors[len(tensors) - n_cotangents :]:
            if c._requires_grad:
                return False
        for v, place in self.places.items():
            if _place(tensors[v]._data) != place:
                return False
        return len(set(map(id, tensors))) == len(tensors) and not has_exposed(tensors)

    def run(self, kind, tensors):
        """(the ReplayedCall, of this kind, that the gradients get, the gradients); None if a check has failed, or
        somebody is at it already."""
        outside = self.outside
        if are_watched() or not self.lock.acquire(False):
            return None
        try:
            outputs = self.run_on([tensors[v]._data for v in outside.program.inputs])
            if outputs is None:
                return None
            values = self.tensors
            values[: len(tensors)] = tensors
            for vid, array in zip(outside.needed.live, outputs):
                values[vid] = pending_tensor(None, vid, self.metas[vid])
                values[vid]._data = array
            call = self._made(kind, outputs)
            for vid in outside.needed.differentiable:
                values[vid]._frame = call
            found = [None if v is None else values[v] for v in self.gradients]
            values[:] = [None] * len(values)
        finally:
            self.lock.release()
        return call, found

    def _made(self, kind, outputs):
        self.outputs[:] = outputs  # a run that was interrupted may have left some
        if self.native is not None:
            make, open_made = self.native.functions
            call = make()
            if call is not None:
                open_made(call)
                return call
        call = kind(self.outside, self.tensors)
        self._open(call)
        return call

    def _open(self, call):
        call.open(self.numbers, self.outputs)
        self.outputs.clear()


def _place(array):
    return array.shape, array.dtype, array.strides


def gradients_again(call, cotangents, wanted):
    """Tensors with the gradients of a ReplayedCall's leaves, of those at the positions `wanted`, of all its results,
    and with a history. None if its node has to find them."""
    outside = call.outside
    if state.frame is not None or watching or call.freed or outside.is_changing:
        return None
    program = outside.gradients.get(wanted)
    if program is None:
        again = outside.step.known.again.get((outside.needed, outside.needed.differentiable, wanted))
        if again.__class__ is not Again:
            return None
    else:
        again = program.again
    externals = call.externals()
    if externals is None or not externals.keys() >= again.read_set or not again.is_due():
        return None
    tensors = [externals[v] for v in again.read] + cotangents
    if program is not None and program.takes(tensors, len(cotangents), call.numbers):
        made = program.run(call.__class__, tensors)
        if made is not None:
            made[0].derives(call, cotangents, program.gradients)
            return made[1]
    found = again.run(externals, cotangents, call.numbers)
    if not is_told(call.graph_node(), cotangents, found, again.steps):
        again.has_failed()
        return None
    if program is None and not any(c._requires_grad for c in cotangents):
        program = _learn(call, tensors, cotangents, found)
        if program is not None:
            program.again, outside.gradients[wanted] = again, program
    return found


def free_first(call):
    """A backward pass of all results frees what they have in common with the call that they are gradients of."""
    call.again[0].free_steps(call.outside.of_first)


def may_be_too_late(call):
    """Whether something of that may be gone."""
    kind = call.__class__
    while call.again is not None:
        call = call.again[0]
        if call.freed if call.__class__ is kind and call.frame is None else getattr(call, "node", call).freed_steps:
            return True
    return False


def _learn(call, tensors, cotangents, found):
    """The GradientProgram that does what has just been done; None if it was more than running one program."""
    given = [x for x in found if x is not None]
    made = given[0]._frame if given else None
    if made.__class__ is not call.__class__ or any(x._frame is not made for x in given):
        return None
    outside, n = made.outside, len(tensors)
    is_plain = not outside.needed.views and not outside.is_changing and not outside.watched
    if made.frame is not None or not is_plain or outside.inside != list(range(n)):
        return None
    if not all(x is y for x, y in zip(made.inputs, tensors)) or not set(outside.program.inputs) <= set(range(n)):
        return None
    if any(place.is_written for place in outside.program.places.items):
        return None
    if {x._vid for x in given} != set(outside.needed.live) or not all(_is_whole(c) for c in cotangents):
        return None
    return GradientProgram(made, call.numbers, len(cotangents), found)


def _is_whole(cotangent):
    return cotangent._data is not None and cotangent._data.flags.c_contiguous
