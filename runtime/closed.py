"""The autograd node of a finished compiled call: its backward is one program too.

Saved values come from a minimum cut (compiler/partition.py). There is one program per set of results that got a
cotangent. Whatever a program cannot do (create_graph, hooks on inner nodes) is done by running the recorded steps once
more in eager mode, which gives the same bits and a graph of ordinary nodes.
"""

import weakref

from . import closed_again, engine, frame_autograd
from .description import Stretch
from .gate import apply_eagerly
from .modes import frame_hidden, grad_mode, state
from .node import BaseNode, Edge, Saved, _check_version, edge_of
from .program import load_program
from .tensor import Tensor, storage_of


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
    else:
        frame.ends_freed = any(tensors[v]._meta.history for v in needed.live + needed.views)


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
        return Edge((self, 0))

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
        "kept",
        "saved",
        "freed",
        "freed_steps",
        "present",
        "rerun_values",
        "summed",
    )

    def __init__(self, frame, needed):
        meta = frame.last_program.meta
        super().__init__(tuple(frame.edge_out(v) for v in meta["reached"]))
        self.frame = frame
        self.externals, self.versions = frame.externals, frame.versions
        self.kept = {v: _kept(frame.tensors[v]) for v in meta["kept"]}
        self.needed = needed
        self.n_outputs = len(needed.differentiable)
        self.saved = frame.saved
        self.freed = FreedNode(frame)
        self.freed_steps = set()
        self.present = ()
        self.rerun_values = None
        # Positions of the edges whose contributions the call adds up itself.
        self.summed = tuple(k for k, v in enumerate(meta["reached"]) if v in meta["summed"])

    def name(self):
        return "CompiledCallBackward"

    def shown(self, index):
        return frame_autograd.StepNode(self.frame, self.needed.differentiable[index])

    def edge_for(self, vid):
        if vid in self.needed.differentiable:
            return Edge((self, self.needed.differentiable.index(vid)))
        # One for each use: cotangents of several results would be added up in one, and may have different shapes.
        return Edge((FreedNode(self.frame), 0))

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
        programs, key = self.frame.step.programs, ("read", self.present)
        if key not in programs:
            programs[key] = frame_autograd.read_by_backward(self.frame, self.present)
        overwritten, roots = self.frame.overwritten, self.frame.roots
        for vid, step in programs[key].items():
            if vid in overwritten:
                frame_autograd.raise_overwritten(self.frame, vid, step)
            self._check(roots.get(vid, vid))

    def _check(self, vid):
        saved = self.kept.get(vid)
        if saved is not None:
            _check_version(saved, "the backward of a compiled call")
        elif vid in self.externals and self.externals[vid]._version != self.versions[vid]:
            saved = Saved(self.externals[vid])
            saved.version = self.versions[vid]
            _check_version(saved, "the backward of a compiled call")

    def _program(self, continued):
        """The program for the results that got a cotangent and the sums that go on; None if there is none."""
        frame, key = self.frame, ("backward", self.needed, self.present, continued)
        programs = frame.step.programs
        if key not in programs:
            stretch, present = Stretch(frame), self.present
            text = f"backward from {present}, sums {continued}, of\n{stretch.text(self.needed)}"
            found = load_program(text, lambda: _build_backward(stretch, self.needed, present, continued))
            programs[key] = found
            if found is not None:
                frame.recording.programs.append(found)
        return programs[key]

    # --- what a backward frees ------------------------------------------------------------------------------------
    def _frees(self, vids):
        """Indices of the steps whose saved values a backward of these results frees."""
        programs, key = self.frame.step.programs, ("frees", vids)
        if key not in programs:
            steps, _ = frame_autograd.reach(self.frame, vids)
            programs[key] = frozenset(i for i in steps if frame_autograd.needed_by(self.frame, self.frame.steps[i]))
        return programs[key]

    def _check_freed(self):
        again = self.freed_steps and self.freed_steps.intersection(self._frees(self.present))
        if again:
            node = frame_autograd.StepNode(self.frame, self.frame.steps[max(again)].first)
            raise RuntimeError(frame_autograd.SECOND_BACKWARD.format(name=node.name()))

    def release(self):
        """Free what the backward of the results that just ran has used, as the nodes of eager mode would."""
        self.freed_steps |= self._frees(self.present)
        self.rerun_values = None
        if all(self.freed_steps.intersection(self._frees((v,))) for v in self.needed.differentiable):
            self.saved, self.kept = None, {}
            self.frame.arrays = {}

    # --- eager once more ------------------------------------------------------------------------------------------
    def _through_nodes(self, cotangents, sums, create_graph, reason):
        if create_graph and not sums:
            steps = _leading_to(self.frame, self.needed.differentiable)
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
            steps = _leading_to(self.frame, self.needed.differentiable)
            for vid in {k for step in steps for k in step.operands if k in self.externals}:
                self._check(vid)
            with frame_hidden(), grad_mode(state.grad_enabled):
                self.rerun_values = _run_again(self.frame, steps)
            for index in self.freed_steps:
                self.rerun_values[self.frame.steps[index].first]._node.release()
        return self.rerun_values

    def use_nodes(self, tensor):
        """The tensor leaves the compiled call and gets the node eager mode would have given it."""
        if tensor._vid not in self.needed.differentiable:
            self.freed.use_nodes(tensor)
        tensor._node = self._rerun()[tensor._vid]._node
        tensor._frame = None


def _build_backward(*arguments):
    from .build import build_backward

    return build_backward(*arguments)


def _kept(tensor):
    """A value that the backward reads where it is, with the version its memory has now."""
    alias = Tensor(tensor._data)
    alias._storage = storage_of(tensor)
    return Saved(alias)


def _leading_to(frame, vids):
    """The op steps that the values are computed by, in order."""
    wanted, steps = set(vids), []
    for step in reversed(frame.steps):
        if frame_autograd.is_op(step) and step.first in wanted:
            steps.append(step)
            wanted.update(step.operands)
    return steps[::-1]


def _run_again(frame, steps):
    values = dict(frame.externals)
    for step in steps:
        numbers = iter(frame.numbers[step.first_number :])
        operands = [next(numbers) if k < 0 else _value(frame, values, k) for k in step.operands]
        state.grad_enabled = step.grad_enabled
        values[step.first] = apply_eagerly(step.op, operands, step.attributes)
    return values


def _value(frame, values, vid):
    """A value made by an op before, or by a backward or an update of the call if it was kept."""
    if vid not in values:
        if vid not in frame.arrays:
            raise RuntimeError(
                "a compiled call cannot be differentiated this way: it would have to run again, but a gradient or an "
                "updated tensor it computed on the way is gone. Call the undecorated function instead."
            )
        values[vid] = Tensor(frame.arrays[vid])
    return values[vid]


def _contiguous(cotangent):
    array = cotangent.array
    return array if array.flags.c_contiguous else array.copy()
