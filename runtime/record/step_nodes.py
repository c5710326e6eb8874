"""Nodes of compiled calls, as users see them: `grad_fn` of a result, and what its edges lead to.

Backward runs compiled, not through them. Where somebody wants one to run, or to have hooks, the call goes over to the
nodes of eager mode (closed_nodes.py), of which each stands where the node shown stood.
"""

from ..eager.expected import metas_of
from ..eager.node import SECOND_BACKWARD, BaseNode, Node, leaf_edge, listed, named, shown
from ..programs.user_lines import user_line
from .closed_nodes import RUN_AGAIN, stand_in
from .frame_autograd import flows, needed_by, node_for, node_name, operand_metas
from .own_results import is_output


class StepNode(BaseNode):
    """Name and edges of a recorded op."""

    __slots__ = ("frame", "vid", "call")

    def __new__(cls, frame, vid, call=None):
        return object.__new__(named(cls, node_name(frame, frame.step_of(vid))))

    def __init__(self, frame, vid, call=None):
        super().__init__(())
        self.frame, self.vid = frame, vid
        self.call = call or (frame.graph_node and frame.graph_node())  # which lives as long as this

    @property
    def op(self):
        return self.frame.step_of(self.vid).op

    @property
    def next_functions(self):
        step = self.frame.step_of(self.vid)
        if is_output(step.op):
            return StepNode(self.frame, step.operands[1], self.call).next_functions
        wanted = set(flows(self.frame, step))
        operands = [step.operands[k] for k in listed(step.op, operand_metas(self.frame, step))]
        return tuple(self._shown(k) if k in wanted else (None, 0) for k in operands)

    def _shown(self, vid):
        if self.frame.metas[vid].history:
            return StepNode(self.frame, vid, self.call), 0
        # A leaf from which requires_grad was taken since then keeps its edge, as nodes of eager mode do.
        return shown(self._edge_at_call(vid) or self.frame.edge_out(vid) or leaf_edge(self.frame.leaf(vid)))

    def _edge_at_call(self, vid):
        """Where the gradients of an input went when the call ended: the input may have another history since."""
        node = self.frame.graph_node and self.frame.graph_node()
        reached = () if node is None else self.frame.last_program.meta["reached"]
        return node.ends[reached.index(vid)] if vid in reached else None

    # --- the node that runs -------------------------------------------------------------------------------------------
    def __call__(self, *cotangents):
        node = self._in_eager_mode() or self._without_values()
        if node is None:
            step = self.frame.step_of(self.vid)
            if any(self.frame.steps[k] is step for k in self.frame.freed):
                raise RuntimeError(SECOND_BACKWARD.format(name=self.name()))
            raise RuntimeError(RUN_AGAIN.format(reason=f"its own backward has let go of what {self.name()} reads"))
        return node(*cotangents)

    def _without_values(self):
        """The node of a step that saves nothing, of which nothing can have been freed; None for any other, and where it
        is not known what its numbers were."""
        frame, step = self.frame, self.frame.step_of(self.vid)
        count = sum(k < 0 for k in step.operands)
        numbers = frame.numbers[step.first_number : step.first_number + count]
        if is_output(step.op) or needed_by(frame, step) or len(numbers) < count:
            return None
        given, wanted = iter(numbers), set(flows(frame, step))
        operands = [next(given) if k < 0 else stand_in(frame.metas[k]) for k in step.operands]
        edges = tuple([(self, 0) if k in wanted else None for k in step.operands])
        return Node(step.op, step.attributes, operands, stand_in(frame.metas[self.vid]), edges)

    def register_hook(self, hook):
        node = self._in_eager_mode()
        return super().register_hook(hook) if node is None else node.register_hook(hook)

    def register_prehook(self, hook):
        node = self._in_eager_mode()
        return super().register_prehook(hook) if node is None else node.register_prehook(hook)

    def _in_eager_mode(self):
        """The node that gradients pass through here from now on; None if they do not, since the call's own backward
        has freed what it would need."""
        frame = self.frame
        if not frame.closed:
            frame.uses_hooks = user_line()
            frame.hooked_values.add(self.vid)
            return node_for(frame, self.vid)
        call = self.call = self.call or (frame.graph_node and frame.graph_node())
        if call is None:
            return None
        call.open()
        return self._beside(call)

    def _beside(self, call):
        """The node at this place of the graph that has taken the place of the call's, which has the same form."""
        stack = [(call.shown(k)[0], edge and edge[0]) for k, edge in enumerate(call.stands_for)]
        met = set()
        while stack:
            ours, theirs = stack.pop()
            while theirs is not None and theirs.name() == "CloneBackward0" != ours.name():
                theirs = theirs.next_functions[0][0]  # a copy that counts for nothing
            if not isinstance(ours, StepNode) or ours.vid in met or theirs is None or ours.name() != theirs.name():
                continue
            if ours.vid == self.vid:
                return theirs
            met.add(ours.vid)
            stack += [(a, b) for (a, _), (b, _) in zip(ours.next_functions, theirs.next_functions)]
        raise NotImplementedError(
            f"{self.name()} was made by a compiled call that runs its backward as one program: register the hook on "
            "the tensor (tensor.register_hook), or call the undecorated function"
        )


@metas_of.register
def _(node: StepNode):
    meta = node.frame.metas[node.vid]
    return ((meta.shape, meta.dtype),)


def node_of(frame, tensor):
    """grad_fn of a tensor of this call."""
    if not frame.metas[tensor._vid].history:
        return None
    return StepNode(frame, tensor._vid) if frame.closed or not frame.hooked else node_for(frame, tensor._vid)
