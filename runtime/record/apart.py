"""Values of a call in flight, computed apart from it: op by op, as eager mode does it, from the recorded steps and the
memory as it is. Nothing of the call changes, so onlookers (onlooker.py) may do this at any moment."""

import time

import numpy as np

from ...compiler.decompose import decompose
from .build import graph_of
from .frame_views import as_view, evaluate_view
from .graph_values import computed, leading_to

_ATTEMPTS = 200
_PAUSE_SECONDS = 0.002


def value_apart(frame, tensor):
    """A copy of the value that a tensor has now, for code that interrupts the frame at its work."""
    vid = frame.number_of(tensor)
    return _landed(frame, vid) if frame.has_run else _sight_of(frame).array(vid)


def value_from_afar(tensor):
    """The same for another thread. The call goes on meanwhile: what was computed counts if no program has run."""
    error = None
    for _ in range(_ATTEMPTS):
        frame = tensor._frame
        if frame is not None and not frame.closed:
            before = _memory_of(frame)
            try:
                vid = frame.number_of(tensor)
                found = _landed(frame, vid) if frame.has_run else Sight(frame).array(vid)
                if tensor._frame is frame and _memory_of(frame) == before:
                    return found if tensor._data is None else tensor._data
            except (LookupError, RuntimeError) as other:
                # Books that change while they are read.
                error = other
        if tensor._data is not None:
            return tensor._data
        time.sleep(_PAUSE_SECONDS)
    raise RuntimeError(
        "the value of a tensor of another thread's compiled call cannot be had before its end"
    ) from error


def _memory_of(frame):
    """What changes when a program of the frame writes."""
    return frame.place()[1], frame.flight, frame.has_run


def _sight_of(frame):
    sight = frame.sight
    if sight is None or sight.place != frame.place():
        sight = frame.sight = Sight(frame)
    return sight


def _landed(frame, vid):
    """A value after the program has run, when the tensors have not got their arrays yet."""
    stretch, arrays, numbers = frame.books()
    needed, written = frame.flight, {new: origin for origin, new in frame.flight.commits}
    if vid in needed.live:
        return frame.written[needed.live.index(vid)].copy()
    if vid in written:
        return arrays[written[vid]].copy()
    if vid in stretch.known:
        return arrays[vid].copy()
    step = stretch.step_of(vid)
    if vid not in stretch.roots:
        raise RuntimeError(f"a value of shape {step.metas[0].shape} that a compiled call has not kept is gone")
    op, attributes = as_view(step, numbers)
    return evaluate_view(op, _landed(frame, step.operands[0]), attributes)


class Sight:
    """All values up to a step, computed when they are asked for."""

    def __init__(self, frame):
        stretch, self.arrays, numbers = frame.books()
        self.place = frame.place()
        builder = graph_of(stretch)
        graph, trace = decompose(builder.graph)
        self.default_float = graph.default_float
        self.places = {vid: trace[value.number] for vid, value in builder.values.items()}
        in_memory = [vid for vid in (*builder.inputs, *stretch.known) if vid in self.places]
        self.found = {self.places[vid]: self.arrays[vid] for vid in in_memory}
        for (position, _), value in zip(builder.numbers, builder.graph.scalars()):
            self.found[trace[value.number]] = numbers[position]

    def array(self, vid):
        """A copy of a value."""
        if vid not in self.places:
            return self.arrays[vid].copy()
        target, found = self.places[vid], self.found
        for value in leading_to([target], found):
            found[value] = computed(value, found, self.default_float)
        return np.array(found[target])
