"""Gradients of a finished usual call that are to be differentiated again, by a program at once.

The compiled call that finds them (closed_again.py) does the same whenever its arguments are alike: it is no code of a
user. So after it has been seen to end as a usual call, its program is run without it.
"""

from ..record.closed_again import Again, is_told
from ..state.attributes import same
from ..state.exposure import has_exposed
from ..state.modes import state, watching
from ..state.tensor import pending_tensor


class GradientProgram:
    """What a compiled call did that has found the gradients of another one.

    made: the ReplayedCall that it has left. given: the run-time numbers of the call that it differentiates, which its
    own depend on. numbers: those of the gradients, None where there is none.
    """

    __slots__ = ("outside", "given", "numbers", "own_numbers", "metas", "cotangents")

    def __init__(self, made, given, cotangents, found):
        self.outside, self.own_numbers, self.given = made.outside, list(made.numbers), list(given)
        self.numbers = [None if x is None else x._vid for x in found]
        self.metas = made.outside.step.metas_so_far()
        self.cotangents = [(c._data.shape, c._data.dtype) for c in cotangents]

    def takes(self, tensors, cotangents, numbers):
        """Whether the call would be like the one that was seen."""
        if len(numbers) != len(self.given) or not all(map(same, numbers, self.given)):
            return False
        if any(c._requires_grad or not _is_like(c._data, *key) for c, key in zip(cotangents, self.cotangents)):
            return False
        return len(set(map(id, tensors))) == len(tensors) and not has_exposed(tensors)

    def run(self, kind, tensors):
        """(the ReplayedCall, of this kind, that the gradients get, the gradients); None if a check has failed."""
        outside = self.outside
        outputs = outside.program.call([tensors[v]._data for v in outside.program.inputs], self.own_numbers)
        if outputs is None:
            return None
        values = dict(enumerate(tensors))
        for vid, array in zip(outside.needed.live, outputs):
            values[vid] = pending_tensor(None, vid, self.metas[vid])
            values[vid]._data = array
        call = kind(outside, values)
        call.open(self.own_numbers, outputs)
        for vid in outside.needed.differentiable:
            values[vid]._frame = call
        return call, [None if v is None else values[v] for v in self.numbers]


def _is_like(array, shape, dtype):
    return array is not None and array.shape == shape and array.dtype == dtype and array.flags.c_contiguous


def gradients_again(call, cotangents):
    """Tensors with the gradients of a ReplayedCall's leaves, of all its results, and with a history. None if its node
    has to find them."""
    outside = call.outside
    again = outside.step.known.again.get((outside.needed, outside.needed.differentiable))
    if not isinstance(again, Again) or state.frame is not None or watching or call.freed or outside.is_changing:
        return None
    externals = call.externals()
    if externals is None or any(v not in externals for v in again.read) or not again.is_due():
        return None
    tensors, program = [externals[v] for v in again.read] + cotangents, outside.gradients
    if program is not None and program.takes(tensors, cotangents, call.numbers):
        made = program.run(call.__class__, tensors)
        if made is not None:
            made[0].again = call, cotangents, program.numbers
            return made[1]
    found = again.run(externals, cotangents, call.numbers)
    if not is_told(call.graph_node(), cotangents, found):
        again.has_failed()
        return None
    if program is None and not any(c._requires_grad for c in cotangents):
        outside.gradients = _learn(call, tensors, cotangents, found)
    return found


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
    if {x._vid for x in given} != set(outside.needed.live) or not all(_is_whole(c) for c in cotangents):
        return None
    return GradientProgram(made, call.numbers, cotangents, found)


def _is_whole(cotangent):
    return cotangent._data is not None and cotangent._data.flags.c_contiguous
