"""autograd.grad inside an open compiled call, as one step like backward(): the gradients are its pending results.

Unlike backward() it frees and checks only what lies between the outputs and the inputs, and its inputs may be any
values of the call.
"""

from ..programs.recording import GRADIENTS, TooManyPaths, ValueMeta
from .frame_autograd import _check_step, can_differentiate, flows, leaves_reached, needed_by, reach
from .frame_inputs import read_now


def gradients(frame, outputs, cotangents, inputs, retain_graph, create_graph):
    """A list of pending gradients, None for inputs that the outputs do not depend on. None instead of a list if this
    cannot be one step, because Python has to run in the middle."""
    if not can_differentiate(frame, outputs, create_graph, None) or frame.outer_edges:
        return None
    if frame.changed_leaves and _reaches_one_as_it_was(frame, outputs):
        return None
    if (
        not all(_is_plain(frame, t) for t in inputs)
        or frame.overwritten
        and any(_came_in_anew(frame, t) for t in inputs)
    ):
        return None
    reached = _reached(frame, outputs)
    used = [t for t in inputs if _number(frame, t) in reached]
    operands = (*outputs, *(read_now(frame, cotangents) if cotangents else (None,) * len(outputs)), *used)
    key = (len(outputs), bool(retain_graph))
    if frame.changed_eagerly:
        GradientsDetail(frame, outputs, used, retain_graph)  # raises what it raises where it is recorded
    try:
        step = frame.take(GRADIENTS, operands, key, (), lambda: GradientsDetail(frame, outputs, used, retain_graph))
    except TooManyPaths:
        return None
    step.detail.has_unused |= len(used) < len(inputs)
    found = [frame.pending(meta) for meta in step.metas]
    frame.freed.update(step.detail.frees)
    frame.changing = False
    following = iter(found)
    return [next(following) if _number(frame, t) in reached else None for t in inputs]


def _reaches_one_as_it_was(frame, outputs):
    """Whether gradients reach a leaf by its value before a change in the call: in eager mode they are the leaf's."""
    leaves = {**frame.externals, **frame.changed_leaves}
    reached = leaves_reached(frame, tuple([t._vid for t in outputs]))
    return any(v in leaves and _number(frame, leaves[v]) != v for v in reached)


class GradientsDetail:
    """What a recorded autograd.grad computes, and the steps whose saved values it frees. leaves: numbers of all leaves
    that gradients of its outputs reach, wanted or not. has_unused: whether it was asked for others that they do not."""

    __slots__ = ("wanted", "frees", "metas", "n_outputs", "leaves", "has_unused")

    def __init__(self, frame, outputs, inputs, retain_graph):
        self.n_outputs, self.has_unused = len(outputs), False
        self.wanted = [_number(frame, t) for t in inputs]
        between, found = [], set(self.wanted)
        reached, self.leaves = reach(frame, [t._vid for t in outputs])
        for index in sorted(reached):
            step = frame.steps[index]
            if found.intersection(flows(frame, step)):
                found.add(step.first)
                between.append(index)
        for index in between:
            _check_step(frame, index)
        self.frees = () if retain_graph else tuple(i for i in between if needed_by(frame, frame.steps[i]))
        self.metas = tuple(ValueMeta(frame.metas[v].shape, frame.metas[v].dtype) for v in self.wanted)


def _is_plain(frame, tensor):
    """A value of the call, or a leaf from outside without hooks."""
    if tensor._node is not None or tensor._frame not in (frame, None):
        return False
    return tensor._accumulator is None or tensor._accumulator() is None


def _came_in_anew(frame, tensor):
    """Whether a tensor from outside has had another number before: somebody else changed its memory in between."""
    numbers = [vid for vid, t in frame.externals.items() if t is tensor]
    return tensor._frame is None and numbers != [frame.bound.get(id(tensor))]


def _number(frame, tensor):
    """The number of a tensor's value, None if the call has not met it."""
    return tensor._vid if tensor._frame is frame else frame.bound.get(id(tensor))


def _reached(frame, outputs):
    """Numbers of the values that gradients of the outputs reach; remembered with the step, since it is asked for in
    every call."""
    vids = tuple(t._vid for t in outputs)
    known = frame.step.known.reached
    if vids not in known:
        steps, leaves = reach(frame, vids)
        known[vids] = {*vids, *leaves, *(frame.steps[i].first for i in steps)}
    return known[vids]
