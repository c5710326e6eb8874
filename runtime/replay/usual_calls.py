"""What stands for a finished usual call in those of its results that have a history.

    ReplayedCall   a backward may still come: what its program reads is kept; its node is in usual_late.py

(Where the call's own backward has freed what they were computed from, it is an EndedCall: usual_ended.py.)

Both know only what is usually asked of such results: nothing, or one backward pass of all of them, which may be one
that is differentiated again (usual_gradients.py). To any other question they make the closed Frame that a recorded call
would have left, which knows all answers.
"""

import weakref
from contextlib import contextmanager
from operator import itemgetter

from ..eager.engine import Sweep
from ..eager.node import edge_of, next_sequence
from ..record.closed import CallNode, contiguous
from ..record.closed_again import are_watched, wanted_edges
from ..record.frame import Frame
from ..state.afterwards import counted
from ..state.aligned import owner_of
from ..state.exposure import LentSince
from ..state.modes import state, watching
from ..state.readers import register_reader
from ..state.storage import Storage
from ..state.tensor import tensor_of
from ..state.turns import making_late
from .usual_cotangents import accumulate, as_tensors, cotangent_of, has_no_hooks
from .usual_gradients import free_first, gradients_again, may_be_too_late
from .usual_late import LateNode, node_of
from .usual_outside import KNOWN

NO_EDGES = {}  # of calls whose inputs have no history: nobody changes it


class ReplayedCall:
    """The frame of results that a backward may start from. `frame` and `node`: the closed Frame and its CallNode, once
    somebody has asked for more than one backward(). freed: whether that has freed what it reads; the results that it
    went from, as a tuple, if these are not all; the indices of the steps that are freed, as a frozenset, if another
    backward may come: of some results there was one, or another call has freed them. arrays: the memory of `inputs`,
    then what was computed before values were read. late: a weak reference to its node before that. again: (call,
    cotangents, numbers of the gradients) if it has differentiated another one; n_derived: how many have differentiated
    this one, or one of those that have. inputs: None where a tensor was let go of, since all was freed. lent: what
    NumPy arrays show since of what it reads, None if there is nothing."""

    closed = True

    __slots__ = (
        "outside", "inputs", "arrays", "outputs", "numbers", "versions", "kept", "sequence", "freed", "frame", "node",
        "late", "again", "edges", "n_derived", "lent", "__weakref__",
    )  # fmt: skip

    def __init__(self, outside, tensors, made=()):
        """Of a call whose program is about to run, and whose values are these tensors. made: number -> the array of
        what was computed before values were read in the middle."""
        self.outside, self.frame, self.node, self.freed, self.again = outside, None, None, False, None
        self.late, self.n_derived, self.lent = None, 0, None
        self.inputs = tuple([tensors[vid] for vid in outside.inside])
        self.arrays = (*[tensor._data for tensor in self.inputs], *[made[vid] for vid in outside.computed])
        self.kept = tuple([_storage(tensors[vid]) for vid in outside.kept])
        # Their history may be another one when a backward comes.
        edges = {k: edge_of(self.inputs[place]) for k, place in outside.inner if self.inputs[place].has_history}
        self.edges = edges or NO_EDGES

    def open(self, numbers, outputs):
        """The program has run on these numbers and given these arrays."""
        self.numbers, self.outputs = tuple(numbers), tuple(outputs)
        self.versions = self._versions()
        self.sequence = next_sequence()
        register_reader(self)

    def _versions(self):
        watched, inputs = self.outside.watched, self.inputs
        of_tensors = [tuple([t._version for t in tensors]) for tensors in (watched, inputs)]
        return *of_tensors, tuple([s.version for s in self.kept])

    def _is_unchanged(self):
        """Whether what a backward reads is as it was, and cannot be otherwise without a version."""
        return self.lent is None and self._versions() == self.versions

    def may_look(self, create_graph):
        """Whether NumPy arrays show what a backward reads, as it was: then it may be done `as_not_lent`."""
        return self.lent is not None and not create_graph and not self.lent.is_written()

    @contextmanager
    def as_not_lent(self):
        """A block that is a backward: what NumPy arrays show of what it reads has been looked at, and is as it was."""
        lent, self.lent = self.lent, None
        try:
            yield
        finally:
            if self.frame is not None:
                self.node.lent.join(lent)
            elif not self._is_done():
                self.lent = lent

    # --- one backward of all results --------------------------------------------------------------------------------
    def backward_outside(self, outputs, cotangents, retain_graph, create_graph, inputs):
        """Whether backward() of these results has been done, by the program alone."""
        if self.may_look(create_graph):
            with self.as_not_lent():
                return self.backward_outside(outputs, cotangents, retain_graph, create_graph, inputs)
        native = self.outside.native_of(outputs)
        if native is not None and self.edges:
            return inputs is None and not create_graph and self._begin(native, outputs, cotangents, retain_graph)
        if native is not None:
            return native.backward(self, outputs, cotangents, retain_graph, create_graph, inputs)
        return self.backward_in_python(outputs, cotangents, retain_graph, create_graph, inputs)

    def _begin(self, native, outputs, cotangents, retain_graph):
        """The same where gradients go on to the history of arguments."""
        sweep = Sweep(lambda: [((self.graph_node(), 0), None)], None, None, retain_graph, False)
        given = sweep.pending, sweep.queue.waiting, sweep.queue.leaves, sweep.add_up
        has_begun = native.begin(self, outputs, cotangents, retain_graph, *given)
        if has_begun:
            sweep.run()
        return bool(has_begun)

    def backward_in_python(self, outputs, cotangents, retain_graph, create_graph, inputs):
        if inputs is not None or create_graph:
            return False
        leaves = [self.outside.leaf(self, k) for k in range(len(self.outside.reached))]
        gradients = self._gradients(outputs, cotangents, leaves, retain_graph)
        if gradients is None:
            return False
        for leaf, gradient in zip(leaves, gradients):
            if gradient is not None:
                accumulate(leaf, gradient)
        return True

    def gradients_outside(self, outputs, cotangents, inputs, retain_graph, create_graph):
        """What autograd.grad gives, if these inputs are all leaves that the results depend on; else None."""
        if self.may_look(create_graph):
            with self.as_not_lent():
                return self.gradients_outside(outputs, cotangents, inputs, retain_graph, create_graph)
        leaves = [self.outside.leaf(self, k) for k in range(len(self.outside.reached))]
        places = {id(leaf): k for k, leaf in enumerate(leaves)}
        asked = {id(x) for x in inputs}
        if len(asked) < len(inputs) or not asked <= places.keys():
            return None
        if create_graph:
            wanted = tuple(sorted([places[x] for x in asked]))
            gradients = self._gradients_again(outputs, cotangents, leaves, wanted) if retain_graph else None
            return None if gradients is None else [gradients[places[id(x)]] for x in inputs]
        if len(inputs) != len(leaves):
            return None
        native, gradients = self.outside.native, None
        if native is not None:
            gradients = native.gradients(self, outputs, cotangents, retain_graph)
        if gradients is None:
            gradients = self._gradients(outputs, cotangents, leaves, retain_graph, len(leaves))
        return None if gradients is None else [gradients[places[id(x)]] for x in inputs]

    def _gradients(self, outputs, cotangents, leaves, retain_graph, fewest=0):
        """Tensors with the gradients of the leaves, None where there is none; or None if more than the program has to
        be asked, or if there were fewer."""
        given = self._cotangents(outputs, cotangents, leaves)
        if given is None:
            return None
        present = tuple([vid for vid in self.outside.needed.differentiable if vid in given])
        after, plan = self.outside.after(present, self.freed), self.outside.plan(present)
        if after is None and not (retain_graph and self.freed is False) or plan is None or len(plan[2]) < fewest:
            return None
        if len(present) < len(self.outside.needed.differentiable) and not self._may_go_from_some():
            return None
        found = self._run(present, [given[vid] for vid in present])
        if found is not None and not retain_graph:
            self.free(after)
        return found

    def _may_go_from_some(self):
        """Whether a backward from some of the results may be done without nodes: there is none that has hooks."""
        return self.node is None and self.again is None and (self.late is None or self.late() is None)

    def _gradients_again(self, outputs, cotangents, leaves, wanted):
        """The same with a history, of the leaves at the wanted positions."""
        given, present = self._cotangents(outputs, cotangents, leaves), self.outside.needed.differentiable
        if given is None or len(given) < len(present):
            return None
        arrays = [given[vid] for vid in present]
        if cotangents is None:
            # With memory of their own: gradients may share it, and they are known to the next pass.
            return gradients_again(self, [tensor_of(array.copy()) for array in arrays], wanted)
        return gradients_again(self, as_tensors(outputs, cotangents, self.outside.needed.differentiable), wanted)

    def _cotangents(self, outputs, cotangents, leaves):
        """number -> the array of its cotangent, if these are results, and outputs of a pass that nobody follows."""
        present = self.outside.needed.differentiable
        if self.frame is not None or self._is_done() or may_be_too_late(self) or len(outputs) > len(present):
            return None
        if self.edges or not all(map(has_no_hooks, leaves)) or not self._is_unchanged():
            return None
        if any(t._frame is not self or t._node is not None for t in outputs):
            return None
        given = {t._vid: cotangent_of(t, c) for t, c in zip(outputs, cotangents or (None,) * len(outputs))}
        if len(given) < len(outputs) or not given.keys() <= set(present):
            return None
        return None if any(array is None for array in given.values()) else given

    def _run(self, present, arrays):
        """Gradients of the leaves for these cotangents; None if no program is known that finds them."""
        plan = self.outside.plan(present)
        if plan is None:
            return None
        (program, sources, positions), kept = plan, (arrays, self.outputs, self.arrays)
        read = [place if kind == KNOWN else kept[kind][place] for kind, place in sources]
        found, given = [None] * len(self.outside.reached), self.outside.run(program, read, self.numbers)
        if given is None:
            return None
        for k, array in zip(positions, given):
            found[k] = tensor_of(array)
        self.outside.count_done(present, ReplayedCall.backward_in_python)
        return found

    def free(self, after=True):
        """What a backward pass frees. after: what the call says of itself from now on."""
        if self._is_done():
            return
        if type(after) is frozenset:
            self.freed = after
            return
        if self.again is not None:
            free_first(self)
        self.freed, self.outputs, self.arrays, self.again, self.lent = after, (), (), None, None
        if after is True or len(after) == len(self.outside.needed.differentiable):
            # Of all that differs from call to call results keep leaves alive, as in eager mode.
            kept = {place for k, place in self.outside.inner if k not in self.edges}
            self.inputs = tuple([t if place in kept else None for place, t in enumerate(self.inputs)])

    def free_from(self, present):
        """The same of one from these results."""
        after = self.outside.after(present, self.freed)
        self.free(True if after is None else after)

    def _is_done(self):
        """Whether a backward of its own has freed what it reads."""
        return self.freed is True or type(self.freed) is tuple

    def free_steps(self, steps):
        """What a CallNode does then."""
        if self.frame is not None:
            self.node.free_steps(steps)
        elif steps and not self._is_done():
            self.freed = frozenset(steps.union(self.freed or ()))
            if self.again is not None:
                self.again[0].free_steps(self.outside.in_first(steps))

    def cotangents_of_leaves(self, node, cotangents, create_graph, retain_graph):
        """The same in the middle of a backward pass that arrives at the call's node."""
        if self._is_done() or state.frame is not None or watching or may_be_too_late(self):
            return None
        if any(c is None for c in cotangents):
            return None if create_graph else self._cotangents_from_some(cotangents, retain_graph)
        if self.freed and self.outside.after(self.outside.needed.differentiable, self.freed) is None:
            return None
        if create_graph and not retain_graph or self.again is not None and node.meets_relatives():
            return None
        native = self.outside.native
        if native is not None and not create_graph:
            arrays = [contiguous(c) for c in cotangents]
            found = native.cotangents(self, arrays)
            if found is not None:
                return found
        if not self._is_unchanged():
            return None
        if create_graph:
            return None if are_watched(node.edges) else gradients_again(self, list(cotangents), wanted_edges(node))
        return self._run(self.outside.needed.differentiable, [contiguous(c) for c in cotangents])

    def _cotangents_from_some(self, cotangents, retain_graph):
        """The same of some of the results."""
        given = {vid: c for vid, c in zip(self.outside.needed.differentiable, cotangents) if c is not None}
        present = tuple(given)
        after = self.outside.after(present, self.freed)
        if after is None and not (retain_graph and self.freed is False) or not self._is_unchanged():
            return None
        if self.again is not None and type(after) is frozenset and not retain_graph:
            return None  # what that frees of the other one is known of all results
        return self._run(present, [contiguous(c) for c in given.values()])

    def present(self, cotangents):
        """The numbers of the results that a cotangent has arrived at."""
        return tuple([v for v, c in zip(self.outside.needed.differentiable, cotangents) if c is not None])

    def externals(self):
        """number -> tensor from outside; None if one has other memory since."""
        outside = self.outside
        for tensor, array in zip(self.inputs, self.arrays):
            if tensor._data is not array:
                return None
        known = outside.expectation.known
        for vid, tensor in outside.expected.items():
            if tensor._data is not known[vid]:
                return None
        return {**outside.expected, **dict(zip(outside.inside, self.inputs))}

    def derives(self, call, cotangents, numbers):
        """This call has found the gradients of another one."""
        self.again = call, cotangents, numbers
        first = call.family
        if first.__class__ is ReplayedCall:
            first.n_derived += 1

    @property
    def recording(self):
        return self.outside.recording

    @property
    def family(self):
        """The call that this one is a derivative of, of whatever order; its node if that is a CallNode like others."""
        if self.frame is not None:
            return self.node.family
        return self if self.again is None else self.again[0].family

    def is_alone(self):
        """Whether nothing else of its family can take part in a backward pass: the first call has no node, and no other
        derivative."""
        first = self.family
        if first.__class__ is not ReplayedCall or first.n_derived > 1:
            return False
        return first.late is None or first.late() is None

    def before_silent_change(self, tensor):
        """What a CallNode does then; one that there is already is told by itself."""
        if self._reads(tensor):
            self.closed_node().before_silent_change(tensor)

    def before_lending(self, tensor):
        if self._reads(tensor):
            self.lent = self.lent or LentSince()
            if not self.lent.add(tensor._data):
                self.closed_node().before_lending(tensor)

    def _reads(self, tensor):
        """Whether a backward may come, of which no CallNode knows yet, that reads memory of the tensor's."""
        owner = owner_of(tensor._data)
        return any(owner_of(array) == owner for array in self.arrays_read())

    def arrays_read(self):
        if self._is_done() or self.frame is not None:
            return ()
        return (*self.arrays, *self.outputs, *self.outside.expectation.arrays)

    # --- everything else ----------------------------------------------------------------------------------------------
    def _frame_of(self, tensor):
        node = self.closed_node()
        tensor._frame = self.frame
        if tensor._vid in self.outside.needed.differentiable:
            tensor._call_node = node
        return self.frame

    def graph_node(self):
        """The call's node. It is held by those who use it, and not by the call that it needs."""
        node = self.node or self.late and self.late()
        if node is None:
            native = self.outside.native
            node = native and native.node(self)
        return self._made_node() if node is None else node

    def _made_node(self):
        with making_late:
            node = self.node or self.late and self.late()
            if node is None:
                node = LateNode(self)
                self.late = weakref.ref(node)
            return node

    def closed_node(self):
        """The CallNode that a recorded call would have left, with its Frame."""
        with making_late:
            node = self.graph_node()
            if self.frame is None:
                # From now on the call holds the node.
                frame = self._close(node)
                self.frame, self.node, node.call = frame, node, None
            return node

    def _close(self, node):
        """The Frame that a recorded call would have left. The node becomes what that call's would be."""
        outside = self.outside
        frame = Frame(outside.recording)
        frame.step, frame.last_program, frame.numbers = outside.step, outside.program, list(self.numbers)
        for name, value in outside.constant.items():
            setattr(frame, name, value)
        watched, inside, kept = self.versions
        entered = [
            *zip(outside.expectation.numbers, outside.watched, watched),
            *[one for one in zip(outside.inside, self.inputs, inside) if one[1] is not None],
        ]
        frame.entered = [
            (v, t, -1 if v in frame.overwritten else version) for v, t, version in sorted(entered, key=itemgetter(0))
        ]
        frame.outer_edges = {v: outside.edge(self, k) for k, v in enumerate(outside.reached)}
        arrays = zip((*outside.inside, *outside.computed, *outside.needed.live), (*self.arrays, *self.outputs))
        frame.arrays = outside.expectation.known | dict(arrays)
        frame.arrays |= {new: frame.arrays.get(origin) for new, origin in frame.same.items()}
        frame.saved, frame.closed = list(self.outputs[outside.n_live :]), True
        frame.tensors = _stand_ins(frame, outside.kept, self.kept)
        hooks = node.hooks, node.pre_hooks, node.retained
        CallNode.__init__(node, frame, outside.needed)
        node.hooks, node.pre_hooks, node.retained = hooks
        if self.lent is not None:
            node.lent, self.lent = self.lent, None
        frame.tensors, frame.saved, frame.graph_node, node.sequence = [], [], weakref.ref(node), self.sequence
        for vid, version in zip(outside.kept, kept):
            node.kept[vid].version = version
        versions = dict(zip(map(id, (*outside.watched, *self.inputs)), (*watched, *inside)))
        for saved in node.written.values():
            saved.version = versions[id(saved.tensor)]
        if self.again is not None:
            first, *gradients = self.again
            node.again = node_of(first), *gradients
        if not self._is_done():
            node.freed_steps = set(self.freed or ())
        else:
            node.gone = [v for v, t in zip(outside.inside, self.inputs) if t is None]
            node.present = outside.needed.differentiable if self.freed is True else self.freed
            CallNode.release(node)
        return frame

    @counted
    def node_of(self, tensor):
        return self._frame_of(tensor).node_of(tensor)

    def edge_of(self, tensor):
        if self.frame is not None or tensor._vid not in self.outside.needed.differentiable:
            return self._frame_of(tensor).edge_of(tensor)
        node = tensor._call_node = self.graph_node()
        return node, self.outside.needed.differentiable.index(tensor._vid)

    @counted
    def use_nodes(self, tensor):
        self._frame_of(tensor).use_nodes(tensor)

    @counted
    def leave(self, tensor):
        self._frame_of(tensor).leave(tensor)


def _storage(tensor):
    """A result's storage, whose version says later whether it was changed."""
    if tensor._storage is None:
        tensor._storage = Storage()
    return tensor._storage


def _stand_ins(frame, numbers, storages):
    """A list in which the results that a backward reads are tensors, as a CallNode looks for them."""
    tensors = [None] * frame.step.metas_count()
    for vid, storage in zip(numbers, storages):
        tensors[vid] = tensor_of(frame.arrays.get(vid))
        tensors[vid]._storage = storage
    return tensors
