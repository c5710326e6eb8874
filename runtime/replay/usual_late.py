"""The node of a finished usual call (usual_calls.py), where its results are used further."""

from contextlib import nullcontext

from ..eager.node import BaseNode
from ..record.closed import CallNode
from ..state.modes import state, watching


class LateNode(CallNode):
    """The node of a ReplayedCall whose Frame nobody has needed yet: what it has not got makes that Frame, and from then
    on it is like any CallNode. call: None from then on."""

    __slots__ = ("call",)

    def __init__(self, call):
        outside = call.outside
        BaseNode.__init__(self, tuple([outside.edge(call, k) for k in range(len(outside.reached))]))
        self.call, self.sequence, self.stands_for = call, call.sequence, None
        self.n_outputs, self.summed = len(outside.needed.differentiable), outside.summed

    def __getattr__(self, name):
        call = self.call
        if call is not None:
            call.closed_node()
        return object.__getattribute__(self, name)  # there may have been another thread that has made it by now

    def run_all(self, cotangents, create_graph, retain_graph, sums=None):
        found = None
        if self.call is not None and not sums:
            call = self.call
            self.present = call.present(cotangents)
            with call.as_not_lent() if call.may_look(create_graph) else nullcontext():
                found = call.cotangents_of_leaves(self, cotangents, create_graph, retain_graph)
        return super().run_all(cotangents, create_graph, retain_graph, sums) if found is None else found

    def release(self):
        if self.call is None:
            super().release()
        else:
            self.call.free_from(self.present)

    @property
    def family(self):
        if self.call is None:
            return super().family
        return self.call.family

    def meets_relatives(self):
        """What `_meets_relatives` tells, without the Frame."""
        if self.call.again is None or self.call.is_alone():
            return False
        return node_of(self.call.again[0]).stands_for is not None or state.sweep.has_relatives(self)


def run_in_sweep(node, cotangents, retain_graph):
    """What a node gives its edges for these in a simple backward pass; None if the engine has to run it."""
    call = node.call
    if call is not None and call.may_look(False):
        with call.as_not_lent():
            return run_in_sweep(node, cotangents, retain_graph)
    if call is None or node.hooks or node.pre_hooks or node.retained or node.stands_for is not None:
        return None
    for k in node.summed:
        # The call goes on adding to what has arrived there.
        if node.edges[k][0] in state.sweep.pending:
            return None
    native = call.outside.native
    if native is not None and state.frame is None and not watching:
        found = native.in_sweep(call, cotangents, retain_graph)
        if found is not None:
            return found
    found = call.cotangents_of_leaves(node, cotangents, False, retain_graph)
    if found is not None and not retain_graph:
        if node.n_outputs == 1:
            call.free()
        else:
            call.free_from(call.present(cotangents))
    return found


def node_of(call):
    """Of a call that another one has differentiated."""
    return call if isinstance(call, CallNode) else call.graph_node()
