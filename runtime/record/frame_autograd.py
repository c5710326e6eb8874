"""Autograd inside an open compiled call.

A plain `loss.backward()` is one step of the recording: the compiler derives the gradient program from the recorded
ops, and replaying the step hands out the pending gradients. Where Python must run in the middle of a backward (hooks,
custom Functions, create_graph), nodes are built from the recorded steps and the engine of eager mode walks them; the
ops it applies are recorded like any others.
"""

from collections import Counter

from ...compiler.autodiff import has_rule
from ...compiler.ops.table import Meta
from ...compiler.ops.view import connect
from ...compiler.storage import ones
from ..eager import engine
from ..eager.gate import apply_inplace
from ..eager.needs import needs_of
from ..eager.node import SECOND_BACKWARD, Node, Saved, next_sequence
from ..eager.node import edge_of as edge_of_tensor
from ..programs.recording import BACKWARD, TooManyPaths, ValueMeta
from ..programs.user_lines import user_line
from ..state.modes import state
from ..state.tensor import tensor_of
from .frame_inputs import read_now


def differentiable(frame, op, ids):
    """Whether gradients flow through the op from any operand."""
    return any(k >= 0 and frame.metas[k].requires_grad and has_rule(op, i) for i, k in enumerate(ids))


def is_op(step):
    return not isinstance(step.op, str)


def flows(frame, step):
    """Numbers of the operands that gradients flow to."""
    if step.op is connect:
        return list(step.attributes["inputs"])
    return [k for i, k in enumerate(step.operands) if k >= 0 and frame.metas[k].requires_grad and has_rule(step.op, i)]


def differentiated(frame):
    """Numbers of all values that gradients may flow to."""
    steps = [step for step in frame.steps if is_op(step) and frame.metas[step.first].history]
    return {vid for step in steps for vid in flows(frame, step)}


def needed_by(frame, step):
    """Numbers of the values the step's derivative reads."""
    found = step.needs
    if found is None:
        metas = [frame.metas[k] if k >= 0 else _PLACEHOLDERS[k] for k in step.operands]
        metas = [m if not isinstance(m, ValueMeta) else _meta(m) for m in metas]
        wanted = set(flows(frame, step))
        mask = tuple(k in wanted for k in step.operands)
        operands, output = needs_of(step.op, metas, step.attributes, mask)
        numbers = [step.operands[i] for i in operands] + ([step.first] if output else [])
        numbers += [step.first + 1 + k for k in step.op.extra.get("asks_next", ())]
        found = step.needs = tuple(dict.fromkeys(numbers))
    return found


_PLACEHOLDERS = {-1: True, -2: 1, -3: 1.0}


def _meta(m):
    return Meta(m.shape, m.dtype)


def saved_values(frame):
    """What any later backward of this call may read and is not in memory yet."""
    found = {}
    for index, step in enumerate(frame.steps):
        if is_op(step) and frame.metas[step.first].history and index not in frame.freed:
            found.update(dict.fromkeys(needed_by(frame, step)))
    return [v for v in found if v not in frame.overwritten and _is_to_be_saved(frame, v)]


def _is_to_be_saved(frame, vid):
    """Not what is in memory, and not what an earlier flush has left out: nothing that is alive was made from it."""
    return vid not in frame.arrays and (vid >= frame.first_pending or frame.roots.get(vid) in frame.arrays)


def reach(frame, vids):
    """(indices of the op steps, numbers of the leaves) that gradients of the values reach: steps latest first, leaves
    in the order in which their gradients are complete, as they leave the engine."""
    contributed, leaves, steps, path, metas = dict.fromkeys(vids), set(), [], frame.steps, frame.metas
    for index in range(len(path) - 1, -1, -1):
        step = path[index]
        for vid in range(step.first, step.first + len(step.metas)):
            if vid in contributed and metas[vid].history:
                steps.append(index)
                for operand in flows(frame, step):
                    contributed.pop(operand, None)
                    contributed[operand] = None
            elif vid in contributed and metas[vid].requires_grad:
                leaves.add(vid)
    return steps, [vid for vid in contributed if vid in leaves]


def freed_by(frame, vids):
    """Indices of the steps whose saved values a backward of these values frees."""
    known = frame.step.known.frees
    if vids not in known:
        known[vids] = frozenset(i for i in reach(frame, vids)[0] if needed_by(frame, frame.steps[i]))
    return known[vids]


def read_by_backward(frame, vids):
    """{number of a value that a backward from vids reads: a step that needs it}."""
    steps = [frame.steps[i] for i in reach(frame, vids)[0]]
    return {vid: step for step in steps for vid in needed_by(frame, step)}


def summed_leaves(frame, vids):
    """Numbers of the leaves that several contributions reach in a backward from vids."""
    indices, leaves = reach(frame, vids)
    uses = Counter(k for i in indices for k in flows(frame, frame.steps[i]))
    return [v for v in leaves if uses[v] > 1]


def saved_by_nodes(frame, vids):
    """Those of the values that some node of eager mode would have saved, unchanged since. A change of their memory that
    no version tells of counts in a backward of these nodes."""
    steps = [s for s in frame.steps if is_op(s) and frame.metas[s.first].history]
    read = {v for s in steps for k in needed_by(frame, s) for v in (k, frame.roots.get(k, k))}
    return read.intersection(vids) - frame.overwritten


def readable_values(frame, vids, results):
    """Those of the values that a backward of results may read again where they are: those eager mode would have saved
    for every result that was computed from them, unchanged since. For these a later change in place is the error it is
    in eager mode; others must be copied if needed.
    """
    found, missing = set(), set()
    for result in results:
        read = {v for k in read_by_backward(frame, (result,)) for v in (k, frame.roots.get(k, k))}
        found |= read
        missing |= _computed_from(frame, result) - read
    return found.intersection(vids) - missing - frame.overwritten


def _computed_from(frame, result):
    """Numbers of all values that this one was computed from, with the memory they are in."""
    found = {result}
    for step in reversed(frame.steps):
        if not found.isdisjoint(range(step.first, step.first + len(step.metas))):
            found.update(k for k in step.operands if k >= 0)
    found.discard(result)
    return found.union(frame.roots.get(k, k) for k in found) - {result}


def leading_to(frame, vids, given):
    """The op steps that the values are computed by from the given ones, in order."""
    wanted, steps = set(vids), []
    for step in reversed(frame.steps):
        if is_op(step) and step.first in wanted and step.first not in given:
            steps.append(step)
            wanted.update(step.operands)
    return steps[::-1]


def read_before_changes(frame, needed):
    """Numbers of the tensors from outside that results with a history were computed from before the call changed them:
    who computes these once more (closed_nodes.py) must have what was there."""
    written = {new for _, new in needed.commits if not frame.metas[new].history}
    steps = leading_to(frame, needed.differentiable, written.union(frame.externals))
    read = {k for step in steps for k in step.operands}
    return [origin for origin, _ in needed.commits if origin in read]


# --- nodes, built from steps when somebody needs them -----------------------------------------------------------------
def node_for(frame, vid):
    """The autograd node of a recorded value. All steps before have nodes then, made in order: the engine's order of
    additions is the order of creation."""
    make_nodes(frame)
    return frame.nodes[vid]


def make_nodes(frame):
    """Nodes for all steps so far.

    What leads through nodes and what leads through steps meets in the same values: from now on all gradients must pass
    through nodes, so that cotangents are complete before they are passed on.
    """
    frame.hooked = True
    for index in range(frame.n_with_nodes, len(frame.steps)):
        step = frame.steps[index]
        if step.op is connect:
            # There is one; it has its place in the order now.
            frame.nodes[step.first].sequence = next_sequence()
        elif is_op(step) and frame.metas[step.first].history:
            frame.nodes[step.first] = _make_node(frame, index, step)
    frame.n_with_nodes = len(frame.steps)


def _make_node(frame, index, step):
    wanted = set(flows(frame, step))
    numbers = iter(frame.numbers[step.first_number :])
    operands, edges = [], []
    for k in step.operands:
        operands.append(next(numbers) if k < 0 else _holder(frame, k))
        edges.append(edge_to(frame, k) if k in wanted else None)
    node = Node(step.op, step.attributes, operands, _holder(frame, step.first), tuple(edges))
    if index in frame.freed:
        node.release()
    for saved, vid in zip((*node.operands, node.out), (*step.operands, step.first)):
        if isinstance(saved, Saved) and vid in frame.overwritten:
            saved.version = -1
    return node


def _holder(frame, vid):
    """The tensor that holds a value, or a stand-in if an in-place change took it."""
    tensor = frame.tensors[vid]
    if tensor is None or vid in frame.overwritten:
        tensor = tensor_of(frame.arrays.get(vid))
        tensor._frame, tensor._vid, tensor._meta = frame, vid, frame.metas[vid]
        tensor._requires_grad = frame.metas[vid].requires_grad
    return tensor


def edge_to(frame, vid):
    if frame.metas[vid].history:
        return (frame.nodes[vid], frame.places.get(vid, 0))
    return frame.edge_out(vid)


def edge_of(frame, tensor):
    if frame.closed:
        return closed_node(frame).edge_for(tensor._vid)
    return (node_for(frame, tensor._vid), frame.places.get(tensor._vid, 0))


def closed_node(frame):
    """The node of a finished call. A call that ran its own backward gets one only when somebody asks."""
    node = frame.graph_node and frame.graph_node()
    return frame.freed_call() if node is None else node


def keep_history(frame, tensor):
    """A result is about to leave its finished call."""
    closed = closed_node(frame)
    node = closed.edge_for(tensor._vid)[0]
    if closed.stands_for is not None or not node.released:
        try:
            closed.use_nodes(tensor)
            return
        except RuntimeError:
            # What it was computed from has changed since. Its backward may need none of that.
            pass
    tensor._node = node


def node_name(frame, step):
    """What the node of an op is called."""
    name = step.op.node_name
    return name if isinstance(name, str) else name(operand_metas(frame, step), step.attributes)


def operand_metas(frame, step):
    """The step's operands as node names want them: shapes and types, numbers as numbers."""
    return [_WithRank(frame.metas[k]) if k >= 0 else _PLACEHOLDERS[k] for k in step.operands]


class _WithRank:
    def __init__(self, meta):
        self.shape, self.dtype, self.ndim = meta.shape, meta.dtype, len(meta.shape)


def use_nodes(frame, tensor):
    """From now on this tensor's history is a graph of real nodes, which can carry hooks."""
    if frame.closed:
        closed_node(frame).use_nodes(tensor)
        return
    frame.hooked, frame.uses_hooks = True, user_line()
    frame.hooked_values.add(tensor._vid)
    if frame.metas[tensor._vid].history:
        tensor._node = node_for(frame, tensor._vid)


# --- backward as a step -----------------------------------------------------------------------------------------------
class BackwardDetail:
    """What a recorded backward reaches: the inputs that get gradients, and the steps whose saved values it frees."""

    __slots__ = ("wanted", "frees", "metas", "n_outputs")

    def __init__(self, frame, vids, n_outputs, retain_graph):
        steps, self.wanted = reach(frame, vids)
        for index in steps:
            _check_step(frame, index)
        self.n_outputs = n_outputs
        self.frees = () if retain_graph else tuple(i for i in steps if needed_by(frame, frame.steps[i]))
        self.metas = tuple(ValueMeta(frame.metas[v].shape, frame.metas[v].dtype) for v in self.wanted)


def _check_step(frame, index):
    """The errors eager mode gives: freed values, values changed in place since they were saved."""
    step = frame.steps[index]
    if index in frame.freed:
        raise RuntimeError(SECOND_BACKWARD.format(name=node_name(frame, step)))
    for vid in needed_by(frame, step):
        if vid in frame.overwritten:
            raise_overwritten(frame, vid, step)


def raise_overwritten(frame, vid, step):
    meta, name = frame.metas[vid], node_name(frame, step)
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"{meta.dtype.name}{meta.shape}, needed by {name} at {step.line}. Change a copy (x = x.clone()) or do "
        "the change after backward()."
    )


def living(frame, vids):
    """The values among vids from which a backward can still start: nothing on their way was freed."""
    known = frame.step.known.living
    if vids not in known:
        known[vids] = tuple(v for v in vids if not frame.freed.intersection(reach(frame, [v])[0]))
    return known[vids]


def can_differentiate(frame, outputs, create_graph, inputs):
    """Whether backward() of these tensors can be one step: nothing in Python has to run in the middle."""
    if create_graph or inputs is not None or frame.hooked or frame.default_dtype is not state.default_dtype:
        return False
    if not all(t._frame is frame and t._node is None and t._meta.history and t._requires_grad for t in outputs):
        return False
    return not _reaches_one_twice(frame, tuple([t._vid for t in outputs]))


def _reaches_one_twice(frame, vids):
    """Whether gradients reach a leaf by its value before a change in the call and by that after it, or as it came in
    and as it came in anew. In eager mode they are added up in the order in which they arrive, whichever value they are
    for, and then hooks run once."""
    values = {**frame.externals, **frame.changed_leaves}
    leaves = [id(values[v]) for v in leaves_reached(frame, vids) if v in values]
    return len(set(leaves)) < len(leaves)


def leaves_reached(frame, vids):
    """Numbers of the leaves that gradients of the values reach."""
    known = frame.step.known.reached_leaves
    if vids not in known:
        known[vids] = reach(frame, vids)[1]
    return known[vids]


def take_backward(frame, outputs, gradients, retain_graph):
    """(the step's detail, the gradients it makes); None if it had to run eagerly, and has."""
    vids = tuple(t._vid for t in outputs)
    operands = (*outputs, *(read_now(frame, gradients) if gradients else (None,) * len(vids)))
    key = (len(vids), bool(retain_graph))
    if frame.changed_eagerly:
        BackwardDetail(frame, vids, len(vids), retain_graph)  # raises what it raises where it is recorded
    try:
        step = frame.take(BACKWARD, operands, key, (), lambda: BackwardDetail(frame, vids, len(vids), retain_graph))
    except TooManyPaths:
        frame.run_eagerly("too many paths", _through_engine, frame, outputs, gradients, retain_graph)
        return None
    found = [frame.pending(meta) for meta in step.metas]
    frame.freed.update(step.detail.frees)
    frame.changing = False
    return step.detail, found


def backward(frame, outputs, gradients, retain_graph):
    """The step, and what it does: gradients to leaves, and on into graphs outside the call."""
    taken = frame.take_backward(outputs, gradients, retain_graph)
    if taken is None:
        return
    detail, found = taken
    tensors, changed, others = frame.tensors, frame.changed_leaves, []
    if not changed and not frame.outer_edges:
        # The usual case of all: leaves that have no gradient yet, and nothing to tell of it.
        leaves = [tensors[vid] for vid in detail.wanted]
        if all(map(_is_plain, leaves)):
            frame.changed_gradients.append((leaves, [None] * len(leaves)))
            accumulate_all(give_first(leaves, found))
            return
    for vid, gradient in zip(detail.wanted, found):
        if vid in frame.outer_edges:
            edge = frame.outer_edges[vid]
            others.append((getattr(edge[0], "variable", None), edge, gradient))
            continue
        leaf = tensors[vid] if vid not in changed else changed[vid]
        if leaf is None:
            leaf = frame.leaf(vid)
        if _is_plain(leaf):
            others.append((leaf, None, gradient))
        else:
            has_edge = leaf._frame is not frame or leaf._accumulator is not None
            others.append((leaf, edge_of_tensor(leaf) if has_edge else None, gradient))
    if all(edge is None or isinstance(edge[0], engine.AccumulateGrad) for _, edge, _ in others):
        accumulate_all(others)
        return
    # What reaches a leaf from outside the call is summed with what reaches it here before it is added to .grad.
    roots = [(edge or edge_of_tensor(leaf), gradient) for leaf, edge, gradient in others]
    engine.run(roots, retain_graph=retain_graph, create_graph=False)


def _is_plain(leaf):
    """A leaf without hooks or a gradient, which nothing outside the call leads to."""
    return (
        leaf is not None
        and leaf._grad is None
        and leaf._node is None
        and leaf._frame is None
        and (leaf._accumulator is None or leaf._accumulator() is None)
    )


def give_first(leaves, gradients):
    """leaf.grad = gradient for leaves that had none. (leaf, None, gradient) of those that another thread has given one
    since, before the first or between two."""
    late = []
    for leaf, gradient in zip(leaves, gradients):
        # No other thread comes between these two: CPython looks for one after calls and backward jumps.
        if leaf._grad is None:
            leaf._grad = gradient
        else:
            late.append((leaf, None, gradient))
    return late


def accumulate_all(gradients):
    """leaf.grad += gradient for (leaf, its edge or None, gradient), in an open call; then what hooks of the leaves have
    asked to be called back for."""
    callbacks = []
    for leaf, edge, gradient in gradients:
        # The frame is another one from the first that is not like last time.
        accumulate(state.frame, leaf, gradient, edge, callbacks)
    for callback in callbacks:
        callback()


def accumulate(frame, leaf, gradient, edge, callbacks):
    """`edge` is that of the leaf. One that has been frozen since (`requires_grad_(False)`) gets nothing."""
    if edge is not None and (edge[0].pre_hooks or edge[0].post_hooks or edge[0].hooks):
        engine.run([(edge, gradient)], retain_graph=True, create_graph=False, callbacks=callbacks)
    elif not leaf._requires_grad:
        return
    else:
        if leaf._grad is None and leaf._frame is not frame:
            frame.changed_gradients.append(((leaf,), (None,)))
        if not give_first((leaf,), (gradient,)):
            return
        enabled, state.grad_enabled = state.grad_enabled, False
        try:
            apply_inplace(engine.add, leaf._grad, (leaf._grad, gradient), {})
        finally:
            state.grad_enabled = enabled


def _through_engine(frame, outputs, gradients, retain_graph):
    given = gradients or [None] * len(outputs)
    roots = [
        (edge_of(frame, t), tensor_of(ones(t.shape, t.array.dtype)) if g is None else g) for t, g in zip(outputs, given)
    ]
    engine.run(roots, retain_graph=retain_graph, create_graph=False)
