"""The backward pass: run the nodes reachable from the roots, latest first, and add up what arrives at each.

Nodes run in descending order of creation, which is a topological order because an op is created after its operands.
The compiled backward (compiler/autodiff.py) walks its graph in the same order, so sums have the same bits.
"""

from bisect import insort
from functools import partial
from operator import attrgetter

from ...compiler.ops.arithmetic import add
from ...compiler.ops.view import clone
from ..state.modes import state, watching
from ..state.references import is_held
from .anomaly import run_checked
from .frame_walks import Walking
from .gate import apply_inplace
from .node import ACCUMULATE_SEQUENCE, AccumulateGrad, TensorHook


def run(roots, *, retain_graph, create_graph, wanted=None, within=None):
    """Push cotangents through the graph.

    roots: (edge, cotangent tensor) pairs. wanted: None to accumulate into leaves' .grad; else edges, whose cotangents
    are returned in order (None where nothing arrives), and no .grad changes. within: ids of the nodes that run; by
    default those that lead to a wanted edge.
    """
    if wanted is not None:
        wanted = [node.inner_edge(index) for node, index in wanted]
    captured = {} if wanted is None else {(id(node), index): None for node, index in wanted}
    relevant = _leading_to(roots, wanted) if within is None and wanted is not None else within
    before, around = state.grad_enabled, state.sweep
    state.grad_enabled, state.sweep = create_graph, Sweep(roots, wanted, relevant, around)
    try:
        _sweep(roots, retain_graph, create_graph, None if wanted is None else captured, relevant, within is not None)
        for callback in state.sweep.callbacks:
            callback()
    finally:
        state.grad_enabled, state.sweep = before, around
    if wanted is None:
        return None
    found = [captured[(id(node), index)] for node, index in wanted]
    return found if create_graph else _apart(found, [cotangent for _, cotangent in roots])


class Sweep:
    """A backward pass in flight: what hooks may ask about it. `around` is the pass in which it began."""

    __slots__ = ("roots", "wanted", "relevant", "around", "callbacks", "reachable", "calls")

    def __init__(self, roots, wanted, relevant, around):
        self.roots, self.wanted, self.relevant, self.around = roots, wanted, relevant, around
        self.callbacks, self.reachable, self.calls = [], None, None

    def will_reach(self, node):
        """Whether a cotangent may come to the node: whether its tensor's hooks will run."""
        if self.reachable is None:
            self.reachable = {id(n) for n in _behind(self.roots)}
        wanted = self.relevant is None or id(node) in self.relevant or any(n is node for n, _ in self.wanted or ())
        return id(node) in self.reachable and wanted

    def has_relatives(self, call):
        """Whether nodes of other calls of the same family take part (closed.py)."""
        if self.calls is None:
            self.calls = [node for node in _behind(self.roots) if node.is_call]
        return any(node is not call and node.family is call.family for node in self.calls)


def queue_callback(function):
    """function() runs when the backward pass in flight has ended."""
    if state.sweep is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    state.sweep.callbacks.append(function)


def walk(outputs, cotangents, inputs, roots, wanted, retain_graph, create_graph):
    """`run` for a user's backward() or autograd.grad; an open compiled call notes what it was. `roots` is a function,
    because making cotangents is part of it."""
    frame, enabled = state.frame, state.grad_enabled
    if frame is None or frame.working:
        return run(roots(), retain_graph=retain_graph, create_graph=create_graph, wanted=wanted)
    frame = frame.recorded()
    operands = (*outputs, *(cotangents or (None,) * len(outputs)), *(inputs or ()))
    n_inputs = None if inputs is None else len(inputs)
    walking = Walking(frame, operands, (len(outputs), n_inputs, bool(retain_graph), bool(create_graph), enabled))
    found = run(roots(), retain_graph=retain_graph, create_graph=create_graph, wanted=wanted)
    frame.walks.append(walking.end(found or ()))
    return found


def _apart(found, given):
    """Gradients that share memory with nothing, as a program's results do."""
    taken, apart = {id(c) for c in given}, []
    for cotangent in found:
        if cotangent is not None and (id(cotangent) in taken or not _is_whole(cotangent)):
            cotangent = clone(cotangent)
        taken.add(id(cotangent))
        apart.append(cotangent)
    return apart


def _sweep(roots, retain_graph, create_graph, captured, relevant, is_inner):
    pending, queue = {}, Queue()
    for (node, index), cotangent in roots:
        _contribute(pending, queue, node, index, cotangent)
    walked = None if state.frame is None or state.frame.working else state.frame.walked
    take_one = partial(_take_one, pending, queue, walked, retain_graph, create_graph, captured, relevant, is_inner)
    if captured is None and relevant is None and not create_graph and state.frame is None and not watching:
        add_up = partial(_add_up, pending, queue)
        _sweep_natively(pending, queue.waiting, queue.leaves, bool(retain_graph), take_one, add_up)
    else:
        sweep_in_python(pending, queue.waiting, queue.leaves, retain_graph, take_one, None)


def sweep_in_python(pending, waiting, leaves, retain_graph, take_one, add_up):
    """Run all nodes that something arrives at."""
    while waiting or leaves:
        take_one()


_sweep_natively = sweep_in_python


def set_native_sweep(function):
    """What does the same, and runs nodes whose derivatives it knows by itself."""
    global _sweep_natively
    _sweep_natively = function


def _add_up(pending, queue, edge, cotangent):
    _contribute(pending, queue, *edge, cotangent)


def _take_one(pending, queue, walked, retain_graph, create_graph, captured, relevant, is_inner):
    """Run the next node. Hooks of what an inner pass only leads to are called by the pass around it."""
    node = queue.take()
    if walked is not None:
        walked.append(node)
    cotangents = pending.pop(node)
    if (node.pre_hooks or node.retained) and not (is_inner and id(node) not in relevant):
        cotangents = _before(node, cotangents)
    if captured is not None:
        for index, c in enumerate(cotangents):
            if (id(node), index) in captured:
                captured[(id(node), index)] = c
        if id(node) not in relevant:
            return
    if node.pre_hooks:
        cotangents = _with_hooks(node, cotangents, False)
    if isinstance(node, AccumulateGrad):
        if captured is None:
            accumulate(node, cotangents, create_graph)
        return
    sums = _sums_before(pending, node) if node.summed else None
    # No name for the results: what a name holds too, a leaf would have to copy.
    _pass_on(pending, queue, node, _run_node(node, cotangents, sums, retain_graph, create_graph), relevant, captured)
    if node.stands_for is not None:
        _go_on_in_nodes(pending, queue, node, cotangents, sums or {}, relevant, captured or {})


def _sums_before(pending, node):
    """What has arrived where a node goes on adding: {position of the edge: sum}. It is taken from there."""
    sums = {}
    for k in node.summed:
        target, index = node.edges[k]
        slots = pending.get(target)
        if slots is not None and slots[index] is not None:
            sums[k], slots[index] = slots[index], None
    return sums


def _go_on_in_nodes(pending, queue, node, cotangents, sums, relevant, captured):
    """A node has not run, because others have taken its place meanwhile."""
    for k, arrived in sums.items():
        _contribute(pending, queue, *node.ends[k], arrived)
    if relevant is not None:
        for made in sorted(_behind([(edge, None) for edge in node.stands_for]), key=attrgetter("sequence")):
            if any(e is not None and (id(e[0]) in relevant or (id(e[0]), e[1]) in captured) for e in made.edges):
                relevant.add(id(made))
    for edge, cotangent in zip(node.stands_for, cotangents):
        if cotangent is not None and (relevant is None or id(edge[0]) in relevant):
            _contribute(pending, queue, *edge, cotangent)


def _pass_on(pending, queue, node, cotangents, relevant, captured):
    for edge, cotangent in zip(node.edges, cotangents or ()):
        if edge is None or cotangent is None:
            continue
        if relevant is None or id(edge[0]) in relevant or captured and (id(edge[0]), edge[1]) in captured:
            _contribute(pending, queue, *edge, cotangent)


def _run_node(node, *given):
    if watching and state.anomaly is not None:
        return run_checked(node, lambda: _run(node, *given))
    return _run(node, *given)


def _run(node, cotangents, sums, retain_graph, create_graph):
    if getattr(node, "released", False):
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            f"already been freed), at {node.name()}. Saved intermediate values of the graph are freed when you call "
            ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a "
            "second time or if you need to access saved tensors after calling backward."
        )
    if node.n_outputs == 1 and not node.is_call:
        results = node.run(cotangents[0]) if cotangents[0] is not None else [None] * len(node.edges)
    else:
        results = node.run_all(cotangents, create_graph=create_graph, retain_graph=retain_graph, sums=sums)
    if node.hooks and results is not None:
        results = _after(node, results, cotangents)
    if not retain_graph:
        node.release()
    return results


def _after(node, results, cotangents):
    """Hooks of the node see what it passes on."""
    for hook in list(node.hooks.values()):
        replaced = hook(tuple(results), tuple(cotangents))
        if replaced is not None:
            results = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return results


def _before(node, cotangents):
    """Hooks of tensors and retained gradients see the complete cotangent, also where the node itself will not run."""
    if node.pre_hooks:
        cotangents = _with_hooks(node, cotangents, True)
    for index, reference in (node.retained or {}).items():
        tensor = reference()
        if tensor is not None and cotangents[index] is not None:
            tensor._grad = cotangents[index] if tensor._grad is None else add(tensor._grad, cotangents[index])
    return cotangents


def _with_hooks(node, cotangents, of_tensors):
    """The cotangents after the hooks of the node's tensors, or after its own."""
    for hook in list(node.pre_hooks.values()):
        if isinstance(hook, TensorHook) is of_tensors:
            replaced = hook(tuple(cotangents))
            if replaced is not None:
                cotangents = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return cotangents


def _contribute(pending, queue, node, index, cotangent):
    if node.stands_for is not None:
        node, index = node.stands_for[index]
    slots = pending.get(node)
    if slots is None:
        slots = pending[node] = [None] * node.n_outputs
        queue.add(node)
    elif node.sequence == ACCUMULATE_SEQUENCE:
        queue.put_last(node)
    slots[index] = cotangent if slots[index] is None else add(slots[index], cotangent)


class Queue:
    """Nodes that cotangents have arrived at. The latest made comes out first; leaves come after all others, in the
    order in which their sums were complete, as in PyTorch: hooks of leaves show it."""

    __slots__ = ("waiting", "leaves")

    def __init__(self):
        self.waiting, self.leaves = [], {}  # (sequence, node) in order; the leaves

    def add(self, node):
        if node.sequence == ACCUMULATE_SEQUENCE:
            self.leaves[node] = None
        else:
            insort(self.waiting, (node.sequence, node))

    def put_last(self, leaf):
        self.leaves[leaf] = self.leaves.pop(leaf)

    def take(self):
        if self.waiting:
            return self.waiting.pop()[1]
        leaf = next(iter(self.leaves))
        del self.leaves[leaf]
        return leaf


def accumulating_into(roots, wanted):
    """ids of the nodes that run where gradients are added to the .grad of what these edges belong to, and no other."""
    wanted = [node.inner_edge(index) for node, index in wanted]
    return _leading_to(roots, wanted) | {id(node) for node, _ in wanted}


def _leading_to(roots, wanted):
    """ids of the nodes from which a wanted edge can be reached (without those whose own output is wanted last)."""
    order = _behind(roots)
    targets = {id(node) for node, _ in wanted}
    relevant = set()
    for node in sorted(order, key=lambda n: n.sequence):
        if any(e is not None and (id(e[0]) in relevant or id(e[0]) in targets) for e in node.edges):
            relevant.add(id(node))
    return relevant


def _behind(roots):
    """All nodes that can be reached from the roots."""
    order, seen, stack = [], set(), [node for (node, _), _ in roots]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        order.append(node)
        stack.extend(e[0] for e in node.edges if e is not None)
    return order


def accumulate(node, cotangents, create_graph):
    """leaf.grad += the only cotangent: the first contribution is kept as it is, later ones are added in place."""
    leaf = node.variable
    if state.frame is not None:
        state.frame.changed_gradients.append(((leaf,), (leaf._grad,)))
    if leaf._grad is None:
        leaf._grad = cotangents[0] if create_graph else _owned(cotangents)
    elif create_graph:
        leaf._grad = add(leaf._grad, cotangents[0])
    else:
        apply_inplace(add, leaf._grad, (leaf._grad, cotangents[0]), {})
    for hook in list((node.post_hooks or {}).values()):
        if hook(leaf) is not None:
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    for hook in list((node.hooks or {}).values()):
        hook((), tuple(cotangents))


def _owned(cotangents):
    """A gradient that nothing else can change: the only cotangent itself if just this list holds it, and its call's if
    it is pending; else a copy."""
    shared = is_held(cotangents, 0, known=cotangents[0]._data is None)
    return clone(cotangents[0]) if shared or not _is_whole(cotangents[0]) else cotangents[0]


def _is_whole(cotangent):
    """Whether it is no view, and lies in memory in its order."""
    plain = cotangent._base is None and not cotangent._requires_grad
    return plain and (cotangent._data is None or cotangent._data.flags.c_contiguous)
