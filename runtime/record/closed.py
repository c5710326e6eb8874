"""The autograd node of a finished compiled call: its backward is one program too.

Saved values come from a minimum cut (compiler/partition.py). There is one program per set of results that got a
cotangent. Whatever a program cannot do (create_graph, hooks on inner nodes) is done by running the recorded steps once
more in eager mode, which gives the same bits and a graph of ordinary nodes.
"""

import weakref

from ..eager import engine
from ..eager.gate import apply_eagerly
from ..eager.node import BaseNode, Node, Saved, _check_version, edge_of
from ..programs.program import load_backward
from ..state.modes import frame_hidden, grad_mode, state
from ..state.tensor import Tensor, register_reader, storage_of
from . import closed_again, frame_autograd
from .frame_changes import owner_of


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


RUN_AGAIN = (
    "a compiled call cannot be differentiated this way: it would have to run again, but {reason}. Call the undecorated "
    "function instead."
)
SILENT_CHANGE = (
    "a tensor that the backward of a compiled call reads, {dtype}{shape}, was changed through .data after the call. "
    "Eager mode would go on with what it finds there; a compiled call cannot, since it computes again what it has not "
    "saved. Do the change after backward(), or call the undecorated function."
)


class FreedNode(BaseNode):
    """Results of a call that has run its own backward: what that freed is gone."""

    __slots__ = ("frame",)
    released = True

    def __init__(self, frame):
        super().__init__(())
        self.frame = frame

    def name(self):
        return "a node of a compiled call"

    def shown(self, index):
        return self

    def edge_for(self, vid):
        return (self, 0)

    def use_nodes(self, tensor):
        raise RuntimeError(frame_autograd.SECOND_BACKWARD.format(name="a compiled call"))


class CallNode(BaseNode):
    """One call: output k is needed.differentiable[k]; edges lead to the inputs that get gradients."""

    released = False

    __slots__ = (
        "frame",
        "needed",
        "n_outputs",
        "externals",
        "versions",
        "changes",
        "watched",
        "settled",
        "kept",
        "written",
        "saved",
        "freed",
        "freed_steps",
        "present",
        "rerun_values",
        "has_left",
        "summed",
    )

    def __init__(self, frame, needed):
        meta = frame.last_program.meta
        super().__init__(tuple(frame.edge_out(v) for v in meta["reached"]))
        self.frame = frame
        self.externals, self.versions = frame.externals, frame.versions
        self.kept = {v: _kept(frame, v) for v in meta["kept"]}
        self.written = _written(frame, self.externals)
        saved = {**self.kept, **self.written}
        read = [*self.externals.items(), *((v, one.tensor) for v, one in saved.items())]
        self.changes = {v: n for v, t in read if (n := t.silent_changes())}
        roots = [frame.tensors[frame.roots[v]] for v in frame.versioned]
        self.watched = [t.watch() for t in roots if t is not None and t._data is not None]
        self.settled = False
        register_reader(self)
        self.needed = needed
        self.n_outputs = len(needed.differentiable)
        self.saved = frame.saved
        self.freed = FreedNode(frame)
        self.freed_steps = set()
        self.present = ()
        self.rerun_values = None
        self.has_left = False  # whether a result has got a node of its own
        # Positions of the edges whose contributions the call adds up itself.
        self.summed = tuple(k for k, v in enumerate(meta["reached"]) if v in meta["summed"])

    def name(self):
        return "CompiledCallBackward"

    def shown(self, index):
        return frame_autograd.StepNode(self.frame, self.needed.differentiable[index])

    def edge_for(self, vid):
        if self.has_left and self.rerun_values is not None and vid in self.needed.differentiable:
            # It may be computed from the result that has left, whose node has to see what comes from here.
            return edge_of(self.rerun_values[vid])
        if vid in self.needed.differentiable:
            return (self, self.needed.differentiable.index(vid))
        # One for each use: cotangents of several results would be added up in one, and may have different shapes.
        return (FreedNode(self.frame), 0)

    def output_index(self, tensor):
        return self.needed.differentiable.index(tensor._vid)

    def run(self, cotangent):
        return self.run_all([cotangent])

    def run_all(self, cotangents, create_graph=None, retain_graph=False, sums=None):
        """Cotangents of the inputs, by the compiled program or, where it cannot, by running the steps again.

        sums: position of an edge -> what other nodes have contributed there. Its cotangent goes on from that, so that
        the order of additions is that of eager mode.
        """
        if create_graph is None:
            create_graph = state.grad_enabled
        self.present = tuple(v for v, c in zip(self.needed.differentiable, cotangents) if c is not None)
        self._check_freed()
        if self.settled:
            reason = "backward after a change through .data of what the call has read"
            return self._through_nodes(cotangents, sums, create_graph, reason)
        self._check_unchanged()
        if create_graph:
            return self._through_nodes(cotangents, sums, True, "backward with create_graph=True")
        reached = self.frame.last_program.meta["reached"]
        sums_of = {reached[k]: s for k, s in (sums or {}).items()}
        program = self._program(tuple(sums_of))
        if program is None:
            return self._through_nodes(cotangents, sums, False, "backward of some of several results")
        sources = program.meta["sources"]
        if self.saved is None and any(kind == "saved" for kind, _ in sources):
            reason = "second backward of a result that had nothing to free"
            return self._through_nodes(cotangents, sums, False, reason)
        arrays = [self._source(kind, k, cotangents, sums_of) for kind, k in sources]
        found = dict(zip(program.meta["reached"], program.call(arrays, self.frame.numbers)))
        return [Tensor(found[v]) if v in found else sums_of.get(v) for v in reached]

    def _source(self, kind, k, cotangents, sums):
        if kind == "saved":
            return self.saved[k]
        if kind == "input":
            return self.frame.arrays[k]
        return _contiguous(sums[k] if kind == "sum" else cotangents[k])

    def _check_unchanged(self):
        """The error of eager mode if a value was changed in place that its nodes would have saved."""
        known = self.frame.step.known.read
        if self.present not in known:
            known[self.present] = frame_autograd.read_by_backward(self.frame, self.present)
        overwritten, roots = self.frame.overwritten, self.frame.roots
        for vid, step in known[self.present].items():
            if vid in overwritten:
                frame_autograd.raise_overwritten(self.frame, vid, step)
            self._check(roots.get(vid, vid), vid not in self.frame.versioned)

    def _check(self, vid, has_version=True):
        saved = self.kept.get(vid) or self.written.get(vid)
        if saved is None:
            tensor = self.externals.get(vid)
            if tensor is None:
                return
            saved = Saved(tensor)
            saved.version = self.versions[vid]
        if has_version:
            _check_version(saved, "the backward of a compiled call")
        tensor = saved.tensor
        replaced = vid in self.externals and self.frame.arrays.get(vid, tensor._data) is not tensor._data
        if replaced or tensor.silent_changes() != self.changes.get(vid, 0):
            raise RuntimeError(SILENT_CHANGE.format(dtype=tensor.dtype.name, shape=tensor.shape))

    def _program(self, continued):
        """The program for the results that got a cotangent and the sums that go on; None if there is none."""
        frame, key = self.frame, (self.needed, self.present, continued)
        known = frame.step.known.backward
        if key not in known:
            present, needed = self.present, self.needed
            found = load_backward(
                frame,
                lambda s: f"backward from {present}, sums {continued}, of\n{s.text(needed)}",
                lambda s, split: _build_backward(s, needed, present, continued, split),
            )
            known[key] = found
            if found is not None:
                frame.recording.programs.append(found)
        return known[key]

    # --- what a backward frees ------------------------------------------------------------------------------------
    def _frees(self, vids):
        """Indices of the steps whose saved values a backward of these results frees."""
        known = self.frame.step.known.frees
        if vids not in known:
            steps, _ = frame_autograd.reach(self.frame, vids)
            known[vids] = frozenset(i for i in steps if frame_autograd.needed_by(self.frame, self.frame.steps[i]))
        return known[vids]

    def _check_freed(self):
        again = self.freed_steps and self.freed_steps.intersection(self._frees(self.present))
        if again:
            node = frame_autograd.StepNode(self.frame, self.frame.steps[max(again)].first)
            raise RuntimeError(frame_autograd.SECOND_BACKWARD.format(name=node.name()))

    def release(self):
        """Free what the backward of the results that just ran has used, as the nodes of eager mode would."""
        freed = self._frees(self.present) - self.freed_steps
        self.freed_steps |= freed
        if self.settled:
            self._free(self.rerun_values, freed)
        else:
            self.rerun_values = None
        if all(self.freed_steps.intersection(self._frees((v,))) for v in self.needed.differentiable):
            self.saved, self.kept, self.rerun_values = None, {}, None
            self.frame.arrays = {}

    # --- memory that changes through .data ------------------------------------------------------------------------
    def before_silent_change(self, tensor):
        """The memory of a tensor is about to change without a version that tells. Eager nodes go on with what they find
        there, so from now on this call has such nodes: what they have saved is computed before the change."""
        owner = owner_of(tensor._data)
        if self.settled or all(owner_of(array) != owner for array in self.frame.arrays.values()):
            return
        try:
            self._rerun()
        except RuntimeError:
            # The check before a backward will tell what cannot be done.
            return
        self.settled = True

    # --- eager once more ------------------------------------------------------------------------------------------
    def _through_nodes(self, cotangents, sums, create_graph, reason):
        if create_graph and not (sums or self.written or self.settled):
            steps = _leading_to(self.frame, self.needed.differentiable, self.externals)
            for vid in {k for step in steps for k in step.operands if k in self.externals}:
                self._check(vid)
            found = closed_again.gradients(self, steps, cotangents)
            if found is not None:
                return found
        self.frame.recording.note(f"{reason}: the call was run again in eager mode", self.frame.step.line)
        values = self._rerun()
        roots = [(self.edges[k], before) for k, before in (sums or {}).items()]
        roots += [(edge_of(values[v]), c) for v, c in zip(self.needed.differentiable, cotangents) if c is not None]
        within = {id(x._node) for v, x in values.items() if v not in self.externals}
        return engine.run(roots, retain_graph=True, create_graph=create_graph, wanted=self.edges, within=within)

    def _rerun(self):
        """The results and what they were computed from as eager tensors with their own nodes."""
        if self.rerun_values is None:
            if self.frame.rewritten:
                raise RuntimeError(RUN_AGAIN.format(reason="memory it has read was changed through .data since"))
            metas = self.frame.metas
            written = {v: saved.tensor for v, saved in self.written.items() if not metas[v].history}
            given = {**self.externals, **written}
            steps = _leading_to(self.frame, self.needed.differentiable, given)
            for vid in {k for step in steps for k in step.operands if k in given}:
                self._check(vid)
            with frame_hidden(self.frame.default_dtype), grad_mode(state.grad_enabled):
                self.rerun_values = _run_again(self.frame, steps, given, self.kept)
            self._free(self.rerun_values, self.freed_steps)
        return self.rerun_values

    def _free(self, values, indices):
        for index in indices:
            node = values[self.frame.steps[index].first]._node
            # Leaves may have stopped requiring gradients since.
            if node is not None:
                node.release()

    def use_nodes(self, tensor):
        """The tensor leaves the compiled call and gets the node eager mode would have given it."""
        if tensor._vid not in self.needed.differentiable:
            self.freed.use_nodes(tensor)
        values = self._rerun()
        stand_in, values[tensor._vid] = values[tensor._vid], tensor
        tensor._node, tensor._frame, tensor._call_node = stand_in._node, None, None
        self.has_left = True
        # Eager nodes have saved the tensor itself, whose memory the user may replace.
        for saved in [s for x in values.values() if isinstance(x._node, Node) for s in x._node.operands]:
            if saved.__class__ is Saved and saved.tensor is stand_in:
                saved.tensor = tensor


def _build_backward(*arguments):
    from .build import build_backward

    return build_backward(*arguments)


def _kept(frame, vid):
    """A value that the backward reads where it is, with the version its memory has now."""
    tensor = frame.tensors[vid]
    if tensor is None:
        return Saved(Tensor(frame.arrays[vid]))
    alias = Tensor(tensor._data)
    alias._storage = storage_of(tensor)
    return Saved(alias)


def _written(frame, externals):
    """number -> tensor from outside that holds the value since the call has changed it, with the version it has now."""
    tensors = {new: externals[origin] for new, origin in frame.same.items() if origin in externals}
    return {v: Saved(tensor) for v, tensor in {**tensors, **frame.changed_leaves}.items() if v not in frame.overwritten}


def _leading_to(frame, vids, given):
    """The op steps that the values are computed by from the given ones, in order."""
    wanted, steps = set(vids), []
    for step in reversed(frame.steps):
        if frame_autograd.is_op(step) and step.first in wanted and step.first not in given:
            steps.append(step)
            wanted.update(step.operands)
    return steps[::-1]


def _run_again(frame, steps, given, kept):
    values = dict(given)
    for step in steps:
        numbers = iter(frame.numbers[step.first_number :])
        operands = [next(numbers) if k < 0 else _value(frame, values, k) for k in step.operands]
        state.grad_enabled = step.grad_enabled
        values[step.first] = apply_eagerly(step.op, operands, step.attributes)
        if step.first in kept and values[step.first]._base is None:
            _take_memory(values[step.first], kept[step.first].tensor)
    return values


def _take_memory(tensor, result):
    """What is computed again takes the memory of the first result, which its user sees and may change."""
    tensor._data, tensor._storage = result._data, result._storage
    out = getattr(tensor._node, "out", None)
    if out is not None:
        out.tensor._data, out.tensor._storage, out.version = result._data, result._storage, result._version


def _value(frame, values, vid):
    """A value made by an op before, or by a backward or an update of the call if it was kept."""
    if vid not in values:
        if vid not in frame.arrays:
            raise RuntimeError(
                RUN_AGAIN.format(reason="a gradient or an updated tensor it computed on the way is gone")
            )
        values[vid] = Tensor(frame.arrays[vid])
    return values[vid]


def _contiguous(cotangent):
    array = cotangent.array
    return array if array.flags.c_contiguous else array.copy()
