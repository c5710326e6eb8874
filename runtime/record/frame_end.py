"""The end of a compiled call: what is alive is computed, or, if that fails, what the call has said is taken back."""

from ..programs.recording import ASSIGN, UPDATE
from . import frame_flush, frame_leaves, frame_nodes, frame_views
from .closed import close_graph
from .expectation import lasting, learn

INTERRUPTED = (
    "it was interrupted by an exception in the middle of one of its ops, from a signal handler perhaps; nothing of it "
    "was computed, and gradients are what they were before it"
)


def close(frame):
    """Compute what is alive, and connect it to the autograd graph outside."""
    if frame.working:
        # An exception, of a signal handler perhaps, has come in the middle of an op (onlooker.py).
        give_up(frame)
        raise RuntimeError(f"a compiled call has failed: {frame.failed}")
    frame.working = True
    met = frame.expected is not None and frame.expected.end is frame.step
    needed = None
    try:
        if not met:
            frame.forget_expected()
        frame.closing = True
        if frame.hooked or frame.rewritten or frame_leaves.made_leaves(frame.step):
            frame.has_nodes_out = frame_nodes.end_nodes(frame)
        needed = frame_flush.what_is_needed(frame, closing=True)
        frame.first_pending_at_close, frame.flushed_at_close = frame.first_pending, frame.flushed
        frame.end_program = frame_flush.run(frame, needed)
        close_graph(frame, needed)
        frame.needed = needed
        frame.lasting = lasting(frame)
        if not met:
            learn(frame, frame.start)
        _release(frame, needed)
    except BaseException as error:
        frame_flush.land(frame)
        if not frame.landed:
            fail(frame, error)
        raise


def give_up(frame):
    """End a call after an exception that came between two lines."""
    if frame.landed:
        _release(frame, None)
        return
    fail(frame, INTERRUPTED)


def fail(frame, error):
    """Nothing was computed: what the call has already said about its results is taken back."""
    frame.failed = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    if not frame.torn:
        _take_back_versions(frame)
    for tensor, home, _ in frame.homes.values():
        tensor._data, tensor._frame = home, None
    frame.homes = {}
    for tensors, gradients in reversed(frame.changed_gradients):
        for tensor, gradient in zip(tensors, gradients):
            tensor._grad = gradient
    for restore, arguments in reversed(frame.remembered):
        restore(*arguments)
    _release(frame, None)


def _take_back_versions(frame):
    """Memory from outside that was not written has the version that it had: nobody is told of a change of it."""
    holders = frame.externals  # number -> the tensor that holds it, if that came from outside
    for step in frame.steps[frame.flushed :]:
        for old, new, is_silent in _changes_of(step, frame.versioned):
            holders[new] = tensor = holders.get(old)
            if tensor is not None and tensor._storage is not None and not is_silent:
                tensor._storage.version -= 1


def _changes_of(step, versioned):
    """(number before, number afterwards, whether no version tells) of what a step changes in place."""
    if step.op is ASSIGN:
        old, new = step.operands[:2]
        through = step.detail.given
        return ((old, new, step.detail.takes_memory or through != old and through in versioned),)
    if step.op is not UPDATE:
        return ()
    width = len(step.operands) // step.attributes.n_rows
    olds = [row + k for row in range(0, len(step.operands), width) for k in step.detail.targets]
    return [(step.operands[k], step.first + place, False) for place, k in enumerate(olds)]


def _release(frame, needed):
    """Tensors that no backward leads through become ordinary ones."""
    if needed is None or frame.flushed_at_close or frame.failed:
        left = [t for t in frame.tensors if t is not None]
    else:
        vids = (*needed.live, *needed.views)
        if frame.changed_singly:
            vids += tuple([new for _, new in needed.commits])
        left = [frame.tensors[v] for v in vids]
    frame_views.let_go_of_roots(frame, left)
    for tensor in left:
        if tensor._frame is not frame or (tensor._data is None and frame.failed):
            continue
        if tensor._node is not None or not (tensor._requires_grad and tensor._meta.history):
            tensor._frame = None
    frame.tensors, frame.bound, frame.views, frame.owners, frame.nodes = [], {}, {}, {}, {}
    # What gradients were before may have a history that leads to the call before, and so on.
    frame.changed_gradients, frame.remembered = [], []
    if frame.graph_node is None:
        # Computed now or in the middle of the call: its graph may still be asked for.
        frame.ends_freed = any(t._frame is frame for t in left)
        # A result keeps its call alive; it must not keep the call's arguments alive with it.
        frame.arrays = {}
        frame.entered = [e for e in frame.entered if frame.metas[e[0]].requires_grad] if frame.ends_freed else []
        if not frame.ends_freed:
            frame.met_expected = None
    frame.closed, frame.sight = True, None
