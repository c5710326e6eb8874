"""A usual call that goes a new way goes on in a Frame, in the state it would have had from the beginning."""

from ..programs.recording import BACKWARD, GRADIENTS, UPDATE
from ..record import frame_inputs, frame_leaves
from ..record.frame import Frame
from ..state.modes import state
from ..state.tensor import pending_tensor
from .usual_hooks import move_hooks
from .usual_inplace import pass_expected


def recorded_so_far(call):
    """The Frame of a call that has done what this one has done."""
    frame = begin_taking_over(call, Frame(call.recording))
    done = call.entries[: call.position.value]
    for entry in reversed(done):
        if entry.change is not None:
            entry.change.unmake(call)
    turned = call.turned_so_far()
    try:
        for _, tensor in turned:
            tensor._requires_grad = False
        frame.enter(call.tensors[: call.n_tensors], call.expectation)
        _turn(frame, turned, 0)
        flushed = {segment.position: segment for segment in call.segments[: call.n_flushed]}
        for k, entry in enumerate(done, 1):
            _redo(call, frame, entry)
            if k in flushed:
                flushed[k].redo(frame, call)
            _turn(frame, turned, k)
    finally:
        for _, tensor in turned:
            tensor._requires_grad = True
    for again in call.walks:
        if again.end <= call.position.value:
            frame.hooked = True
            frame.freed.update(again.walk.freed)
            frame.walks.append(again.walk)
    frame.eager_ops += call.applied()
    move_hooks(call, frame)
    return frame


_ASKED = {
    "materialize": "a value is read that was not read there",
    "update": "an optimizer's update is not the one made there",
    "apply_inplace": "a change in place is not the one made there",
    "backward": "a backward() is not the one done there",
    "gradients": "gradients are asked for that were not there",
    "before_gradient": "the .grad of a value that the call has computed is set",
    "before_lending": "memory is lent to NumPy that the call goes on with",
    "make_leaf": "a value becomes a leaf that was none there",
    "turn": "a tensor becomes a leaf that was none there",
    "forget": "a tensor changes its flags or its memory",
    "leave": "a tensor changes its flags or its memory",
    "takes_memory": "a tensor takes other memory",
    "before_new_memory": "a tensor takes other memory",
    "drop_unseen_views": "views of what changes are held that were not there",
    "use_nodes": "a node of the graph, or a hook, is asked for",
    "node_of": "a node of the graph is asked for",
    "edge_of": "a node of the graph is asked for",
    "fail": "it raises",
    "walk": "a backward pass meets or gives something that it did not there",
    "apply": "an op runs outside of its program that did not there",
}


def why_it_departs(call, coming, asked, ends):
    """What is different from the call before, for `explain`. coming: (op, operands); asked: the method of a frame."""
    expected = call.entries[call.position.value]
    usual = f"{_said(expected)} came there" if expected.op is not None else "the call ended there"
    if ends:
        return f"it ends early: {usual}" if expected.op is not None else "other results are held than were then"
    if coming is None:
        return f"{_ASKED.get(asked, asked)} ({usual})"
    op = coming[0]
    return f"{op.name} of other operands or attributes" if expected.op is op else f"{op.name}, where {usual}"


def _said(entry):
    return entry.op if isinstance(entry.op, str) else entry.op.name


def begin_taking_over(call, other):
    """Another frame begins to take the place of the one in flight; until it has, that one answers onlookers."""
    call.successor, other.built_from, state.hidden = other, call, other
    other.working = other.changing = other.torn = True
    other.copies.clear()
    other.copies.update(call.copies)
    for name in ("numbers", "changed_gradients", "remembered"):
        getattr(other, name)[:] = getattr(call, name)
    return other


def _turn(frame, turned, position):
    """The arguments that have become leaves here come in anew where they are used next."""
    for k, tensor in turned:
        if k == position:
            frame_leaves.turn(frame, tensor)
            tensor._requires_grad = True


def _redo(call, frame, entry):
    """What a Frame notes down when it meets this step."""
    for vid, _, _ in entry.fresh:
        pass_expected(frame, call)
        frame_inputs.enter(frame, call.tensors[vid])
    if entry.change is not None:
        entry.change.redo(frame, call)
        return
    pass_expected(frame, call)
    frame.step = entry.step
    if entry.op is UPDATE:
        entry.update.redo(frame, entry.step)
        return
    for vid in entry.numbers:
        tensor = call.tensors[vid]
        tensor._frame = frame
        frame.tensors.append(tensor)
        call.tensors[vid] = pending_tensor(call, vid, call.metas[vid])
    if entry.op in (BACKWARD, GRADIENTS):
        frame.freed.update(entry.step.detail.frees)
    elif entry.root is not None:
        frame._note_view(tensor, entry.operands[0])
