"""The backward pass: run the nodes reachable from the roots, latest first, and add up what arrives at each.

Nodes run in descending order of creation, which is a topological order because an op is created after its operands.
The compiled backward (compiler/autodiff.py) walks its graph in the same order, so sums have the same bits.
"""

from functools import partial
from itertools import count
from operator import attrgetter
from types import FunctionType

import numpy as np

from ...compiler.ops.arithmetic import add
from ..state.modes import state, watch_again, watching
from ..state.tensor import Tensor, tensor_of
from ..state.turns import following, is_adding, one_adds, writing
from .anomaly import run_checked
from .cotangent_shapes import in_shape_of
from .deep import elsewhere, is_too_deep
from .frame_walks import Walking, flags_of
from .gate import apply_inplace, native_change
from .node import ACCUMULATE_SEQUENCE, AccumulateGrad, Node, TensorHook, require_not_freed
from .node_queue import Queue
from .owned import apart, owned
from .parts import has_added
from .plain_sweep import run_nodes
from .reach import WANTED, behind, leading_to, reach
from .sparse_cotangents import add_sparse, dense, sum_of


def run(roots, *, retain_graph, create_graph, wanted=None, within=None, callbacks=None):
    """Push cotangents through the graph.

    roots: (edge, cotangent tensor) pairs. wanted: None to accumulate into leaves' .grad; else edges, whose cotangents
    are returned in order (None where nothing arrives), and no .grad changes. within: ids of the nodes that run; by
    default those that lead to a wanted edge. callbacks: a list for what is to run at the end of a pass of which this is
    a part; None if it is all of it.
    """
    if wanted is not None:
        wanted = [node.inner_edge(index) for node, index in wanted]
    sweep = Sweep(roots, wanted, within, retain_graph, create_graph)
    for (node, index), cotangent in roots:
        sweep.contribute(node, index, cotangent)
    found = sweep.run(is_part=callbacks is not None)
    if callbacks is not None:
        callbacks += sweep.callbacks
    return found


_numbers = count()


class Sweep:
    """A backward pass in flight.

    pending: node -> what has arrived at each of its outputs. captured: what has arrived where the wanted edges lead.
    within: ids of the nodes that run, None for all or if nobody has asked yet; reach: what `reach` says of them.
    sums: what of that the pass has made itself, and may write to (parts.py).
    walked: the frame's notes of the pass (frame_walks.py). `around` is the pass in which it began, depth how many there
    are around it.
    """

    __slots__ = (
        "roots", "wanted", "within", "reach", "is_inner", "retain_graph", "create_graph", "pending", "queue",
        "captured", "walked", "around", "depth", "callbacks", "reachable", "calls", "number", "sums",
        "__weakref__",
    )  # fmt: skip

    def __init__(self, roots, wanted, within, retain_graph, create_graph):
        self.roots, self.wanted, self.is_inner = roots, wanted, within is not None
        self.captured = None if wanted is None else {(id(node), index): None for node, index in wanted}
        self.reach = reach(roots, wanted) if within is None and wanted is not None else None
        self.within = within
        self.retain_graph, self.create_graph = retain_graph, create_graph
        self.pending, self.queue, self.walked, self.around = {}, Queue(), None, None
        self.sums = {}
        self.callbacks, self.reachable, self.calls = [], None, None
        self.number, self.depth = next(_numbers), 0

    @property
    def relevant(self):
        """ids of the nodes that run, None for all."""
        if self.within is None and self.reach is not None:
            self.within = {id(node) for node, runs in self.reach.items() if runs is not WANTED}
        return self.within

    def will_reach(self, node):
        """Whether a cotangent may come to the node: whether its tensor's hooks will run."""
        if self.reachable is None:
            self.reachable = {id(n) for n in self._behind()}
        wanted = self.relevant is None or id(node) in self.relevant or any(n is node for n, _ in self.wanted or ())
        return id(node) in self.reachable and wanted

    def order(self):
        """The nodes of the pass in the order in which they run, those that have run too."""
        queue, made, found = Queue(), set(), []
        edges = [edge for edge, _ in (self.roots() if callable(self.roots) else self.roots)]
        while edges or queue.waiting or queue.leaves:
            for node, _ in edges:
                if node not in made:
                    queue.add(node)
                elif node in queue.leaves:
                    queue.put_last(node)
                made.add(node)
            found.append(queue.take())
            edges = [edge for edge in found[-1].edges if edge is not None and self.is_wanted(edge)]
        return found

    def has_relatives(self, call):
        """Whether nodes of other calls of the same family take part (closed.py)."""
        if self.calls is None:
            self.calls = [node for node in self._behind() if node.is_call]
        return any(node is not call and node.family is call.family for node in self.calls)

    def _behind(self):
        """The nodes behind the roots. Where few ask for them a function gives the roots (usual_walks.py)."""
        return behind(self.roots() if callable(self.roots) else self.roots)

    def run(self, begun=None, is_part=False):
        """All that is left of the pass, after `begun` has gone on with a node that is being run. Returns the cotangents
        of the wanted edges, if there are any. is_part: of a pass whose end is not here, so nothing is called back."""
        self.depth = 0 if state.sweep is None else state.sweep.depth + 1
        run = partial(elsewhere, self._run) if is_too_deep(self.depth) else self._run
        return run(begun, is_part)

    def _run(self, begun, is_part):
        before, blocks, self.around = state.grad_enabled, state.watchers, state.sweep
        state.grad_enabled, state.sweep = self.create_graph, self
        try:
            if begun is not None:
                begun()
            self._run_nodes()
            for callback in () if is_part else self.callbacks:
                callback()
        finally:
            state.grad_enabled, state.sweep = before, self.around
            if state.watchers is not blocks:
                watch_again(blocks)
        if self.wanted is None:
            return None
        found = [self.captured[(id(node), index)] for node, index in self.wanted]
        return found if self.create_graph else apart(found, [cotangent for _, cotangent in self.roots])

    def _run_nodes(self):
        frame, queue = state.frame, self.queue
        self.walked = None if frame is None or frame.working else frame.walked
        is_plain = not self.is_inner
        sweep = _sweep_natively if is_plain and not self.create_graph and frame is None and not watching else _in_python
        if sweep is _in_python and is_plain and not self.create_graph and frame is None and not watching:
            run_nodes(self, accumulate)
            return
        given = queue.waiting, queue.leaves, self.reach, bool(self.retain_graph), self.sums, self.take_one, self.add_up
        sweep(self.pending, *given)
        if sweep is _sweep_natively and self.wanted:
            self._find_at_leaves()

    def _find_at_leaves(self):
        """Native code leaves where it is what has arrived at a leaf that is wanted and has nothing to do."""
        for node, index in self.wanted:
            slots = self.pending.get(node)
            if slots is not None:
                self.captured[id(node), index] = slots[index]

    def add_up(self, edge, cotangent):
        self.contribute(*edge, cotangent)

    def take_one(self):
        """Run the next node, whatever hooks of the one before have set."""
        state.grad_enabled = self.create_graph
        node = self.queue.take()
        cotangents = self.pending.pop(node, None)
        if self.walked is None and isinstance(node, Node) and self._has_run_simply(node, cotangents):
            return
        if node.stands_for is not None:
            if cotangents is not None:
                self._go_on_in_nodes(node, cotangents, {})
            return
        if self.walked is None:
            self.go_on(node, self.arrive(node, cotangents))
            return
        self.walked.meet(self, node, cotangents)
        cotangents = self.arrive(node, cotangents)
        self.walked.leave(cotangents)
        self.go_on(node, cotangents)

    def _has_run_simply(self, node, cotangents):
        """The same at a node of an op to which nobody has attached anything, in short; False of any other."""
        if node.released or watching or cotangents[0] is None or node.hooks is not None:
            return False
        if not cotangents[0].has_array or cotangents[0].shape != node.meta.shape:
            return False
        if node.pre_hooks is not None or node.retained is not None:
            return False
        if self.captured is not None:
            if (id(node), 0) in self.captured:
                self.captured[id(node), 0] = cotangents[0]
            if id(node) not in self.relevant:
                return True
        if not has_added(self, node, cotangents[0], _add_array):
            self.pass_on(node, node.run(cotangents.pop()))
        if not self.retain_graph:
            node.release()
        return True

    def arrive(self, node, cotangents):
        """What users do with the cotangents of a node before it runs; at a leaf, all that is done."""
        # Hooks of what an inner pass only leads to are called by the pass around it.
        if (node.pre_hooks or node.retained) and not (self.is_inner and id(node) not in self.relevant):
            cotangents = _before(node, cotangents)
        if self.captured is None and isinstance(node, AccumulateGrad):
            if node.pre_hooks:
                cotangents = _with_hooks(node, cotangents, False)
            accumulate(node, cotangents, self.create_graph)
        return cotangents

    def go_on(self, node, cotangents):
        """Run a node that cotangents have arrived at, and pass on what it gives."""
        if self.captured is not None:
            for index, c in enumerate(cotangents):
                if (id(node), index) in self.captured:
                    self.captured[(id(node), index)] = c
            if id(node) not in self.relevant:
                return
        if isinstance(node, AccumulateGrad):
            return
        if node.pre_hooks:
            cotangents = _with_hooks(node, cotangents, False)
        sums = self._sums_before(node) if node.summed else None
        if node.is_python and self.walked is not None:
            self.walked.meet_function(self, node, cotangents)
            results = self.run_node(node, cotangents, sums)
            self.walked.leave(results)
            self.pass_on(node, results)
            return
        # No name for the results: what a name holds too, a leaf would have to copy.
        self.pass_on(node, self.run_node(node, cotangents, sums))
        if node.stands_for is not None:
            self._go_on_in_nodes(node, cotangents, sums or {})

    def run_node(self, node, cotangents, sums=None):
        return _run_node(node, cotangents, sums, self.retain_graph, self.create_graph)

    def run_function(self, node, cotangents):
        """The node of a user's Function."""
        if watching or node.hooks:
            return self.run_node(node, cotangents)
        is_reached = node.n_outputs > 1 or cotangents[0] is not None
        results = node.run_all(cotangents) if is_reached else [None] * len(node.edges)
        if not self.retain_graph:
            node.release()
        return results

    def _sums_before(self, node):
        """What has arrived where a node goes on adding: {position of the edge: sum}. It is taken from there."""
        sums = {}
        for k in node.summed:
            target, index = node.edges[k]
            slots = self.pending.get(target)
            if slots is not None and slots[index] is not None:
                sums[k], slots[index] = slots[index], None
        return sums

    def _go_on_in_nodes(self, node, cotangents, sums):
        """A node has not run, because others have taken its place meanwhile, and perhaps that of calls behind it: what
        has arrived there already goes to their nodes first, as it came first."""
        self._follow_wanted()
        while (other := next((n for n in self.pending if n.stands_for is not None), None)) is not None:
            self._go_on_in_nodes(other, self.pending.pop(other), {})
        for k, arrived in sums.items():
            self.contribute(*node.ends[k], arrived)
        self._take_in_nodes(node)
        for edge, cotangent in zip(node.stands_for, cotangents):
            if cotangent is not None and (self.relevant is None or id(edge[0]) in self.relevant):
                self.contribute(*edge, cotangent)

    def _take_in_nodes(self, node):
        """The nodes that have taken the place of this one run if they lead to where the pass does."""
        relevant, captured = self.relevant, self.captured or {}
        if relevant is not None:
            for made in sorted(behind([(edge, None) for edge in node.stands_for]), key=attrgetter("sequence")):
                if any(e is not None and (id(e[0]) in relevant or (id(e[0]), e[1]) in captured) for e in made.edges):
                    relevant.add(id(made))

    def _follow_wanted(self):
        """Where others have taken the place of a wanted node, theirs is what is wanted."""
        for k, (node, index) in enumerate(self.wanted or ()):
            if node.stands_for is not None:
                target, place = self.wanted[k] = node.stands_for[index]
                self.captured.setdefault((id(target), place), self.captured[(id(node), index)])

    def pass_on(self, node, cotangents):
        relevant, captured = self.relevant, self.captured
        for edge, cotangent in zip(node.edges, cotangents or ()):
            if edge is None or cotangent is None:
                continue
            if relevant is None or id(edge[0]) in relevant or captured and (id(edge[0]), edge[1]) in captured:
                self.contribute(*edge, cotangent)

    def is_wanted(self, edge):
        """Whether anything comes of a cotangent that is passed on there."""
        relevant, captured = self.relevant, self.captured
        return relevant is None or id(edge[0]) in relevant or captured and (id(edge[0]), edge[1]) in captured

    def contribute(self, node, index, cotangent):
        if node.stands_for is not None:
            # It may have gone over to nodes because of another call, and nothing have arrived there before.
            self._follow_wanted()
            if self.relevant is not None and id(node.stands_for[index][0]) not in self.relevant:
                self._take_in_nodes(node)
            node, index = node.stands_for[index]
        slots = self.slots_of(node)
        slots[index] = cotangent if slots[index] is None else sum_of(slots[index], cotangent)

    def slots_of(self, node):
        """The list of what has arrived at each of the outputs of a node at which something more is arriving."""
        slots = self.pending.get(node)
        if slots is None:
            self.queue.add(node)
            slots = self.pending[node] = [None] * node.n_outputs
        elif node.sequence == ACCUMULATE_SEQUENCE:
            self.queue.put_last(node)
        return slots


def _add_array(to, array):
    """By native code, unless a function in Python stands there: NumPy takes ten times as long where rows are short."""
    if native_change().__class__ is FunctionType:
        np.add(to, array, out=to)
    else:
        target = tensor_of(to)
        apply_inplace(add, target, (target, tensor_of(array)), {})


def queue_callback(function):
    """function() runs when the backward pass in flight has ended."""
    if state.sweep is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    state.sweep.callbacks.append(function)


def walk(outputs, cotangents, inputs, roots, wanted, retain_graph, create_graph, within=None):
    """`run` for a user's backward() or autograd.grad; an open compiled call notes what it was. `roots` is a function,
    because making cotangents is part of it."""
    flags = {"retain_graph": retain_graph, "create_graph": create_graph, "wanted": wanted, "within": within}
    if state.frame is None:
        return run(roots(), **flags)
    return noted(outputs, cotangents, inputs, retain_graph, create_graph, lambda: run(roots(), **flags))


def noted(outputs, cotangents, inputs, retain_graph, create_graph, run, accumulates=False):
    """What run() gives, which does a pass. An open compiled call notes what it was. accumulates: into the .grad of the
    inputs."""
    frame = state.frame
    if frame is None or frame.working:
        return run()
    operands = (*outputs, *(cotangents or (None,) * len(outputs)), *(inputs or ()))
    if not all(x is None or isinstance(x, Tensor) for x in operands):
        # Edges of the graph: only nodes have them.
        frame.recorded().walks.append(None)
        return run()
    flags = flags_of(outputs, inputs, retain_graph, create_graph, accumulates)
    return Walking(frame.recorded(), operands, flags).noted(run)


def sweep_in_python(pending, waiting, leaves, reach, retain_graph, sums, take_one, add_up):
    """Run all nodes that something arrives at."""
    while waiting or leaves:
        take_one()


_in_python = _sweep_natively = sweep_in_python


def set_native_sweep(function):
    """What does the same, and runs nodes whose derivatives it knows by itself."""
    global _sweep_natively
    _sweep_natively = function


def run_function(node, cotangents, retain_graph):
    """What the node of a user's Function passes on, one for each edge: native code lets it run here."""
    results, n_edges = _run(node, cotangents, None, retain_graph, False), len(node.edges)
    # Its backward may have given the node a hook just now.
    return results if len(results) == n_edges else [*results, *(None,) * n_edges][:n_edges]


def _run_node(node, *given):
    if not watching:
        return _run(node, *given)
    run = partial(_run, node, *given)
    if state.anomaly is not None:
        run = partial(run_checked, node, run)
    return run() if state.profile is None else state.profile.node(node, run)


def _run(node, cotangents, sums, retain_graph, create_graph):
    require_not_freed(node)
    if not node.is_python:
        cotangents = dense(cotangents)
    if node.output_shape is not None and cotangents[0] is not None and cotangents[0].shape != node.output_shape:
        cotangents = [in_shape_of(node, cotangents[0])]
    if node.n_outputs == 1 and not node.is_call:
        # A Function is asked what it makes of None: it may make zeros of it.
        is_asked = cotangents[0] is not None or node.is_python
        results = node.run(cotangents[0]) if is_asked else [None] * len(node.edges)
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
            tensor._grad = cotangents[index] if tensor._grad is None else sum_of(tensor._grad, cotangents[index])
    return cotangents


def _with_hooks(node, cotangents, of_tensors):
    """The cotangents after the hooks of the node's tensors, or after its own."""
    for hook in list(node.pre_hooks.values()):
        if isinstance(hook, TensorHook) is of_tensors:
            replaced = hook(tuple(cotangents))
            if replaced is not None:
                cotangents = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return cotangents


def accumulating_into(roots, wanted):
    """ids of the nodes that run where gradients are added to the .grad of what these edges belong to, and no other."""
    wanted = [node.inner_edge(index) for node, index in wanted]
    return leading_to(roots, wanted) | {id(node) for node, _ in wanted}


def open_calls(roots):
    """Whether a finished call of several results was behind these. Then it has gone over to nodes, which know what each
    of the results depends on: of one that depends on no wanted input nothing is run or freed."""
    calls = [node for node in behind(roots) if node.is_call and node.n_outputs > 1]
    for node in calls:
        node.open("gradients of some inputs of several results")
    return bool(calls)


def accumulate(node, cotangents, create_graph):
    """leaf.grad += the only cotangent, which is kept as it is if it is the first. A leaf frozen since gets nothing."""
    leaf = node.variable
    if state.frame is not None and leaf._requires_grad:
        state.frame.changed_gradients.append(((leaf,), (leaf._grad,)))
        _add_to_gradient(leaf, cotangents, create_graph)
    elif leaf._requires_grad:
        with following(), one_adds, is_adding:
            _add_to_gradient(leaf, cotangents, create_graph)
    for hook in list((node.post_hooks or {}).values()):
        if hook(leaf) is not None:
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    for hook in list((node.hooks or {}).values()):
        hook((), tuple(cotangents))


def _add_to_gradient(leaf, cotangents, create_graph):
    if not cotangents[0].has_array or leaf._grad is not None and not leaf._grad.has_array:
        add_sparse(leaf, cotangents, create_graph)
    elif leaf._grad is None:
        leaf._grad = cotangents[0] if create_graph else owned(cotangents)
    elif create_graph:
        leaf._grad = add(leaf._grad, cotangents[0])
    else:
        with writing(leaf._grad):
            apply_inplace(add, leaf._grad, (leaf._grad, cotangents[0]), {})
