"""The autograd node of a finished compiled call: its backward is one program too.

Saved values come from a minimum cut (compiler/partition.py). Whatever the program cannot do (create_graph, hooks on
inner nodes, results that got no cotangent) is done by running the recorded steps once more in eager mode, which gives
the same bits and a graph of ordinary nodes.
"""

from . import engine, frame_autograd
from .gate import apply_eagerly
from .modes import state
from .node import BaseNode, Edge, Saved, _check_version, edge_of
from .program import load_program
from .recording import ASSIGN, BACKWARD, INPUT, UPDATE
from .tensor import Tensor


def close_graph(frame, needed):
    """Give the results that require gradients their place in the autograd graph."""
    if needed.differentiable:
        frame.graph_node = CallNode(frame, needed)
    elif any(frame.metas[v].history for v in (*needed.live, *needed.views)):
        frame.graph_node = FreedNode(frame)


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

    __slots__ = ("frame", "needed", "n_outputs", "saved", "inputs", "released", "freed", "rerun_values")

    def __init__(self, frame, needed):
        program = frame.last_program
        super().__init__(tuple(edge_of(frame.externals[v]) for v in program.meta["reached"]))
        self.frame = frame
        self.needed = needed
        self.n_outputs = len(needed.differentiable)
        self.saved = frame.saved
        self.released = False
        self.freed = FreedNode(frame)
        self.rerun_values = None

    def name(self):
        return "CompiledCallBackward"

    def shown(self, index):
        return frame_autograd.StepNode(self.frame, self.needed.differentiable[index])

    def edge_for(self, vid):
        if vid in self.needed.differentiable:
            return Edge((self, self.needed.differentiable.index(vid)))
        return Edge((self.freed, 0))

    def output_index(self, tensor):
        return self.needed.differentiable.index(tensor._vid)

    def run(self, cotangent):
        return self.run_all([cotangent])

    def run_all(self, cotangents, create_graph=None, retain_graph=False):
        """Cotangents of the inputs, by the compiled program or, where it cannot, by running the steps again."""
        if create_graph is None:
            create_graph = state.grad_enabled
        if create_graph or any(c is None for c in cotangents):
            return self._through_nodes(cotangents, create_graph)
        program = self._program()
        frame, arrays = self.frame, []
        for kind, k in program.meta["sources"]:
            if kind == "saved":
                arrays.append(self.saved[k])
            elif kind == "cotangent":
                arrays.append(_contiguous(cotangents[k]))
            else:
                self._check(k)
                arrays.append(frame.arrays[k])
        gradients = program.call(arrays, frame.numbers)
        found = dict(zip(program.meta["reached"], gradients))
        return [Tensor(found[v]) for v in frame.last_program.meta["reached"]]

    def _check(self, vid):
        saved = Saved(self.frame.externals[vid])
        saved.version = self.frame.versions[vid]
        _check_version(saved, "the backward of a compiled call")

    def _program(self):
        frame, key = self.frame, ("backward", self.needed)
        programs = frame.step.programs
        if key not in programs:
            from .build import build_backward
            from .description import describe

            before, state.frame = state.frame, None
            try:
                text = "backward of\n" + describe(frame, self.needed, closed=True)
                programs[key] = load_program(text, lambda: build_backward(frame, self.needed))
            finally:
                state.frame = before
            frame.recording.programs.append(programs[key])
        return programs[key]

    def release(self):
        self.released = True
        self.saved = None
        self.rerun_values = None

    # --- eager once more ------------------------------------------------------------------------------------------
    def _through_nodes(self, cotangents, create_graph):
        reason = "backward with create_graph=True" if create_graph else "backward of some of several results"
        self.frame.recording.note(f"{reason}: the call was run again in eager mode", self.frame.step.line)
        values = self._rerun()
        roots = [(edge_of(values[v]), c) for v, c in zip(self.needed.differentiable, cotangents) if c is not None]
        wanted = [edge_of(self.frame.externals[v]) for v in self.frame.last_program.meta["reached"]]
        return engine.run(roots, retain_graph=True, create_graph=create_graph, wanted=wanted)

    def _rerun(self):
        """Every recorded value as an eager tensor with its own node."""
        if self.rerun_values is None:
            frame = self.frame
            for vid in frame.externals:
                if any(vid in step.operands for step in frame.steps if not isinstance(step.op, str)):
                    self._check(vid)
            before = (state.frame, state.grad_enabled)
            state.frame = None
            try:
                self.rerun_values = _run_again(frame)
            finally:
                state.frame, state.grad_enabled = before
        return self.rerun_values

    def use_nodes(self, tensor):
        """The tensor leaves the compiled call and gets the node eager mode would have given it."""
        if tensor._vid not in self.needed.differentiable:
            self.freed.use_nodes(tensor)
        tensor._node = self._rerun()[tensor._vid]._node
        tensor._frame = None


def _run_again(frame):
    values = dict(frame.externals)
    for step in frame.steps:
        if step.op in (INPUT, ASSIGN):
            continue
        if step.op in (BACKWARD, UPDATE):
            for k in range(len(step.metas)):
                if step.first + k in frame.arrays:
                    values[step.first + k] = Tensor(frame.arrays[step.first + k])
            continue
        numbers = iter(frame.numbers[step.first_number :])
        operands = [next(numbers) if k < 0 else values[k] for k in step.operands]
        state.grad_enabled = step.grad_enabled
        values[step.first] = apply_eagerly(step.op, operands, step.attributes)
    return values


def _contiguous(cotangent):
    array = cotangent.array
    return array if array.flags.c_contiguous else array.copy()
