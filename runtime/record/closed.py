"""The autograd node of a finished compiled call: its backward is one program too.

Saved values come from a minimum cut (compiler/partition.py). There is one program per set of results that got a
cotangent. Whatever a program cannot do (create_graph, hooks on inner nodes) is done by running the recorded steps once
more in eager mode, which gives the same bits and a graph of ordinary nodes.
"""

import weakref

from ..eager.node import SECOND_BACKWARD, BaseNode, Node, Saved, edge_of
from ..eager.saved import check_version
from ..programs import background
from ..programs.background import NotReady
from ..programs.description import Stretch
from ..programs.failures import is_of_compiler
from ..programs.program import in_background, load_backward, load_rolled_backward
from ..state.afterwards import counted
from ..state.aligned import owner_of
from ..state.exposure import LentSince
from ..state.modes import state
from ..state.readers import register_reader
from ..state.tensor import storage_of, tensor_of
from . import closed_again, frame_autograd, frame_leaves
from .closed_nodes import check_unchanged, made_for, values_of_gradients, values_of_steps
from .interim import Interim, with_numbers
from .step_nodes import StepNode


def close_graph(frame, needed):
    """Give the results that require gradients their place in the autograd graph."""
    tensors = frame.tensors
    if needed.differentiable:
        node = CallNode(frame, needed)
        # The results keep the node and the node keeps the call, which must not keep the node: memory is freed when
        # the last result goes, not when the garbage collector comes.
        frame.graph_node = weakref.ref(node)
        frame.saved = []
        for vid in needed.differentiable:
            tensors[vid]._call_node = node


SILENT_CHANGE = (
    "a tensor that the backward of a compiled call reads, {dtype}{shape}, was changed through .data after the call. "
    "Eager mode would go on with what it finds there; a compiled call cannot, since it computes again what it has not "
    "saved. Do the change after backward(), or call the undecorated function."
)
WRITTEN = "memory that it reads, written to through a NumPy array since"


class FreedCall:
    """What answers for results of a call that has run its own backward: what that freed is gone."""

    stands_for = None

    def __init__(self, frame):
        self.frame = frame

    def edge_for(self, vid):
        # One for each use: cotangents of several results would be added up in one, and may have different shapes.
        return (FreedNode(self.frame, vid), 0)

    def use_nodes(self, tensor):
        """Hooks are called, and gradients kept, before its node says that it is too late."""
        tensor._node, tensor._frame, tensor._call_node = FreedNode(self.frame, tensor._vid), None, None


class FreedNode(StepNode):
    """The node of one of these results. It never runs, and its edges say which passes would have it run, as far as the
    leaves are known: not those that the call has made."""

    __slots__ = ("may_lead_anywhere",)
    released = True
    register_hook, register_prehook = BaseNode.register_hook, BaseNode.register_prehook

    def __init__(self, frame, vid):
        leaves, made = frame_autograd.leaves_reached(frame, (vid,)), frame_leaves.made_leaves(frame.step)
        edges = _edges_out(frame, [v for v in leaves if v not in made])
        super().__init__(frame, vid)  # after these, so that it comes before what they lead to in a pass
        self.edges, self.may_lead_anywhere = edges, len(edges) < len(leaves)


def _edges_out(frame, vids):
    """`edge_out` of several."""
    given, before = {**frame.externals, **frame.changed_leaves}, frame.outer_edges
    return tuple([before[v] if v in before else edge_of(given[v]) for v in vids])


class CallNode(BaseNode):
    """One call: output k is needed.differentiable[k]; edges lead to the inputs that get gradients."""

    released = False
    is_call = True

    __slots__ = (
        "frame",
        "needed",
        "n_outputs",
        "externals",
        "versions",
        "changes",
        "watched",
        "kept",
        "written",
        "saved",
        "freed",
        "freed_steps",
        "present",
        "ends",
        "stands_for",
        "stand_ins",
        "again",
        "summed",
        "gone",
        "lent",
    )

    def __init__(self, frame, needed):
        meta = frame.last_program.meta
        super().__init__(tuple(frame.edge_out(v) for v in meta["reached"]))
        self.frame = frame
        self.externals, self.versions = frame.externals, frame.versions
        # A backward that is over may have let go of what no tensor holds.
        there = [v for v in meta["kept"] if frame.tensors[v] is not None or v in frame.arrays]
        self.kept = {v: _kept(frame, v) for v in there}
        self.written = _written(frame, self.externals)
        saved = {**self.kept, **self.written}
        read = [*self.externals.items(), *((v, one.tensor) for v, one in saved.items())]
        self.changes = {v: n for v, t in read if (n := t.silent_changes())}
        roots = [frame.tensors[frame.roots[v]] for v in frame.versioned]
        self.watched = [t.watch() for t in roots if t is not None and t._data is not None]
        self.needed = needed
        self.n_outputs = len(needed.differentiable)
        self.saved = frame.saved
        self.freed = FreedCall(frame)
        self.freed_steps, self.gone, self.lent = set(), (), LentSince()
        self.present = ()
        self.ends = self.edges
        self.stands_for = None  # edges of the results once the call has nodes
        self.stand_ins = ()  # weak references to the eager tensors that stand for the results then
        self.again = None  # (node, cotangents, numbers of the gradients) if it has differentiated another call
        # Positions of the edges whose contributions the call adds up itself.
        self.summed = tuple(k for k, v in enumerate(meta["reached"]) if v in meta["summed"])
        register_reader(self)  # as it is from now on, since another thread may tell it something at once

    def name(self):
        return "CompiledCallBackward"

    def shown(self, index):
        return StepNode(self.frame, self.needed.differentiable[index], self), 0

    def edge_for(self, vid):
        if vid in self.needed.differentiable:
            return self.edge_at(self.needed.differentiable.index(vid))
        return self.freed.edge_for(vid)

    def edge_at(self, index):
        return (self, index) if self.stands_for is None else self.stands_for[index]

    def inner_edge(self, index):
        """Where the whole gradient of a result arrives, with what other results contribute to it."""
        differentiable = self.needed.differentiable
        vid, others = differentiable[index], differentiable[:index] + differentiable[index + 1 :]
        if any(self.frame.steps[k].first == vid for k in frame_autograd.reach(self.frame, others)[0]):
            self.open("the gradient of a result that others were computed from")
        return self.edge_at(index)

    def output_index(self, tensor):
        return self.needed.differentiable.index(tensor._vid)

    def run_all(self, cotangents, create_graph, retain_graph, sums=None):
        """Cotangents of the inputs, by the compiled program; None if it cannot, and the call has gone over to nodes.

        sums: position of an edge -> what other nodes have contributed there. Its cotangent goes on from that, so that
        the order of additions is that of eager mode.
        """
        self.present = tuple(v for v, c in zip(self.needed.differentiable, cotangents) if c is not None)
        self._check_freed()
        self._check_unchanged()
        if self.lent.is_written():
            return self.open(WRITTEN)
        if create_graph:
            found = None if sums or not retain_graph else self._gradients_again(cotangents)
            return self.open("backward with create_graph=True") if found is None else found
        targets = [edge for edge in self.edges if edge is not None]
        if len(set(targets)) < len(targets):
            return self.open("a leaf that results were computed from before and after a change")
        if self._meets_relatives():
            return self.open("second derivatives that meet others of the same call")
        if any(saved.version != saved.tensor._version for saved in self.kept.values()):
            # Nodes would not read it. The program may: of equal values that were computed twice it has saved one.
            return self.open("a result that has been changed since")
        reached = self.frame.last_program.meta["reached"]
        sums_of = {reached[k]: s for k, s in (sums or {}).items()}
        program = self._program(tuple(sums_of))
        if program is None:
            return self.open("backward of some of several results")
        sources = program.meta["sources"]
        if self.saved is None and any(kind == "saved" for kind, _ in sources):
            return self.open("second backward of a result that had nothing to free")
        arrays = [self._source(kind, k, cotangents, sums_of) for kind, k in sources]
        found = dict(zip(program.meta["reached"], program.call(arrays, self.frame.numbers)))
        if program.is_interim:
            background.start()
        return [tensor_of(found[v]) if v in found else sums_of.get(v) for v in reached]

    def _source(self, kind, k, cotangents, sums):
        if kind == "saved":
            return self.saved[k]
        if kind == "input":
            return self.frame.arrays[k]
        return contiguous(sums[k] if kind == "sum" else cotangents[k])

    def _check_unchanged(self):
        """The error of eager mode if a value was changed in place that its nodes would have saved."""
        known = self.frame.step.known.read
        if self.present not in known:
            known[self.present] = frame_autograd.read_by_backward(self.frame, self.present)
        overwritten, roots = self.frame.overwritten, self.frame.roots
        for vid, step in known[self.present].items():
            if vid in overwritten:
                frame_autograd.raise_overwritten(self.frame, vid, step)
            self.check(roots.get(vid, vid), vid not in self.frame.versioned)

    def check(self, vid, has_version=True):
        saved = self.kept.get(vid) or self.written.get(vid)
        if saved is None:
            tensor = self.externals.get(vid)
            if tensor is None:
                return
            saved = Saved(tensor)
            saved.version = self.versions[vid]
        if has_version:
            check_version(saved, "the backward of a compiled call")
        tensor = saved.tensor
        replaced = vid in self.externals and self.frame.arrays.get(vid, tensor._data) is not tensor._data
        if replaced or tensor.silent_changes() != self.changes.get(vid, 0):
            raise RuntimeError(SILENT_CHANGE.format(dtype=tensor.dtype.name, shape=tensor.shape))

    def _program(self, continued):
        """The program for the results that got a cotangent and the sums that go on; None if there is none. What stands
        for a program of many sizes has saved other values than that, so its backward is not kept."""
        if self.frame.last_program.is_interim:
            return self._interim(continued)
        frame, key = self.frame, (self.needed, self.present, continued)
        known = frame.step.known.backward
        if key not in known:
            try:
                with in_background(frame):
                    found = self._loaded(continued)
            except NotReady as error:
                frame.recording.runs_meanwhile(error.job)
                return self._interim(continued, error.opened)
            except Exception as error:
                if not is_of_compiler(error):
                    raise
                frame.recording.could_not_compile(error, frame.step.line)
                return self._interim(continued)
            known[key] = found
            if found is not None:
                frame.recording.programs.append(found)
        return known[key]

    def _loaded(self, continued):
        frame, needed, present = self.frame, self.needed, self.present
        if frame.last_program.rolled is not None:
            return load_rolled_backward(frame, needed, present, continued)
        return load_backward(
            frame,
            lambda s: f"backward from {present}, sums {continued}, of\n{s.text(needed)}",
            lambda s, split: _build_backward(s, needed, present, continued, split),
        )

    def _interim(self, continued, opened=None):
        """What stands for the program while it is made; None if there is none. It reads what the forward's program has
        saved, so it is made of what that was made of: with extents, if that serves many sizes."""
        program, about = self.frame.last_program, (self.needed, self.present, continued)
        stretch = Stretch(self.frame)
        if program.rolled is not None:
            return Interim(*_rolled_backward(stretch, program.rolled, program.meta["cut"], *about).uncompiled())
        if opened is None:
            found = _uncompiled_backward(stretch, *about)
            return found and Interim(*found)
        try:
            graph, *others = _uncompiled_backward(opened, *about, program.meta["split"])
        except Exception:  # whatever a rule does that only ints can do: then there will be no such program
            return None
        return Interim(with_numbers(graph), *others)

    # --- what a backward frees ------------------------------------------------------------------------------------
    def _frees(self, vids):
        """Indices of the steps whose saved values a backward of these results frees."""
        return frame_autograd.freed_by(self.frame, vids)

    def _check_freed(self, steps=None):
        steps = self._frees(self.present) if steps is None else steps
        again = self.freed_steps and self.freed_steps.intersection(steps)
        if again:
            name = frame_autograd.node_name(self.frame, self.frame.steps[max(again)])
            raise RuntimeError(SECOND_BACKWARD.format(name=name))
        if self.again is not None and steps:
            self.again[0]._check_freed(closed_again.of_first(self.frame.recording, self.frame.steps, steps))

    def free_steps(self, steps):
        """What these have saved is gone, also in the call that they are gradients of, as far as it has them too."""
        self.freed_steps |= steps
        if self.again is not None and steps:
            self.again[0].free_steps(closed_again.of_first(self.frame.recording, self.frame.steps, steps))

    def release(self):
        """Free what the backward of the results that just ran has used, as the nodes of eager mode would."""
        if self.stands_for is not None:
            return
        self.free_steps(self._frees(self.present))
        if all(self.freed_steps.intersection(self._frees((v,))) for v in self.needed.differentiable):
            self.saved, self.kept, self.again = None, {}, None
            self.frame.arrays = {}
        if self.freed_steps >= self._frees(self.needed.differentiable):
            self._let_go_of_inputs()

    def _let_go_of_inputs(self):
        """All that was saved is freed: as in eager mode, results keep leaves alive and nothing else that they were
        computed from. Nodes that somebody asks for are made of what stands for it (closed_nodes.py), which they never
        read."""
        frame = self.frame
        metas, edges = frame.metas, dict(zip(frame.last_program.meta["reached"], self.ends))
        gone = {v for v, t, _ in frame.entered if not (metas[v].requires_grad and t.is_leaf)}
        frame.outer_edges.update((v, edges[v]) for v in gone if v in edges)
        frame.entered = [one for one in frame.entered if one[0] not in gone]
        self.externals = {v: t for v, t in self.externals.items() if v not in gone}
        self.gone, self.written = gone.union(self.gone, self.written), {}

    def before(self):
        """number -> what was in the memory of tensors from outside before the call changed them, where that is read to
        compute the results."""
        numbers = self.frame.last_program.meta["before"] if self.saved else ()
        return dict(zip(numbers, self.saved[len(self.saved) - len(numbers) :])) if numbers else {}

    # --- nodes (closed_nodes.py) ----------------------------------------------------------------------------------
    @counted
    def open(self, reason=None):
        """Go over to nodes."""
        if self.stands_for is not None:
            return
        if reason is not None:
            self.frame.recording.opened(reason, self.frame.step.line)
        with self.lent.as_it_was():
            values = values_of_steps(self) if self.again is None else values_of_gradients(self)
        results = [values[v] for v in self.needed.differentiable]
        self.edges = self.stands_for = tuple(map(edge_of, results))
        self.stand_ins = tuple(map(weakref.ref, results))
        self._let_go()

    def _let_go(self):
        """Of all that the call's own backward would read: nodes keep what they need, until they are freed."""
        self.saved, self.kept, self.written, self.externals, self.watched = None, {}, {}, {}, []
        self.frame.arrays, self.frame.saved = {}, []
        self.frame.entered = [one for one in self.frame.entered if self.frame.metas[one[0]].requires_grad]
        if self.again is not None:
            self.again = self.again[0], (), ()

    def _gradients_again(self, cotangents):
        """What goes to the inputs, with a history, by a compiled call; None if that must be found by nodes."""
        if self.written or self.gone or self.frame.held_copies or self._meets_relatives():
            return None
        steps = frame_autograd.leading_to(self.frame, self.needed.differentiable, self.externals)
        check_unchanged(self, steps, self.externals)
        return closed_again.gradients(self, steps, cotangents)

    def derives(self, node, cotangents, numbers):
        """This call has found the gradients of another one, whose node that is."""
        self.again = node, cotangents, numbers

    @property
    def family(self):
        """The call that this one is a derivative of, of whatever order."""
        return self if self.again is None else self.again[0].family

    def _meets_relatives(self):
        """Whether other derivatives of the same call, or that itself, take part in the backward pass: they have
        computed the same values each for itself, and contributions to these would not meet."""
        if self.again is None:
            return False
        met = self.again[0].stands_for is not None or state.sweep.has_relatives(self)
        if met:
            closed_again.has_met_relatives(self)
        return met

    def before_silent_change(self, tensor):
        """The memory of a tensor is about to change without a version that tells. Eager nodes go on with what they find
        there, so from now on this call has such nodes: what they have saved is computed before the change."""
        if not self._reads(tensor):
            return
        try:
            self.open()
        except RuntimeError:
            # The check before a backward will tell what cannot be done.
            return

    def before_lending(self, tensor):
        """A NumPy array of the user comes to show a tensor's memory, and may change it so. Whether it has is asked when
        the backward comes: most programs only look."""
        if self.stands_for is None and self._reads(tensor) and not self.lent.add(tensor._data):
            self.before_silent_change(tensor)

    def _reads(self, tensor):
        owner = owner_of(tensor._data)
        return any(owner_of(array) == owner for array in self.arrays_read())

    def arrays_read(self):
        return self.frame.arrays.values()

    def use_nodes(self, tensor):
        """The tensor leaves the compiled call and gets the node eager mode would have given it."""
        if tensor._vid not in self.needed.differentiable:
            self.freed.use_nodes(tensor)
            return
        self.open()
        index = self.needed.differentiable.index(tensor._vid)
        tensor._node, tensor._frame, tensor._call_node = self.stands_for[index][0], None, None
        # Eager nodes have saved the tensor itself, whose memory the user may replace.
        stand_in = self.stand_ins[index]()
        for saved in [s for node in made_for(self) if isinstance(node, Node) for s in node.operands]:
            if stand_in is not None and saved.__class__ is Saved and saved.tensor is stand_in:
                saved.tensor = tensor


def _uncompiled_backward(*arguments):
    from .build import uncompiled_backward

    return uncompiled_backward(*arguments)


def _rolled_backward(*arguments):
    from .build_loops import rolled_backward

    return rolled_backward(*arguments)


def _build_backward(*arguments):
    from .build import build_backward

    return build_backward(*arguments)


def _kept(frame, vid):
    """A value that the backward reads where it is, with the version its memory has now."""
    tensor = frame.tensors[vid]
    if tensor is None:
        return Saved(tensor_of(frame.arrays[vid]))
    alias = tensor_of(tensor._data)
    alias._storage = storage_of(tensor)
    return Saved(alias)


def _written(frame, externals):
    """number -> tensor from outside that holds the value since the call has changed it, with the version it has now."""
    tensors = {new: externals[origin] for new, origin in frame.same.items() if origin in externals}
    return {v: Saved(tensor) for v, tensor in {**tensors, **frame.changed_leaves}.items() if v not in frame.overwritten}


def contiguous(cotangent):
    array = cotangent.array
    return array if array.flags.c_contiguous else array.copy()
