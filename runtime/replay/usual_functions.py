"""autograd.Function in a usual call (frame_functions.py): its Python runs, and its ops are compared like all others.

The first time that its outputs go on in a UsualFrame they are compared with what was recorded; what that call was like
is remembered (FunctionCall), so that the next ones need only be compared with it."""

from ..eager.function_node import FunctionNode
from ..record import frame_functions
from ..state.modes import state
from .usual_applied import AppliesFunctions
from .usual_books import at_work
from .usual_inplace import pass_expected
from .usual_leaves import NewLeaf


class Connected(NewLeaf):
    """What a NewLeaf is, for an output of a Function: the tensor goes on as a value with a history."""

    __slots__ = ("call",)
    is_leaf = False

    def __init__(self, frame, step):
        super().__init__(frame, step)
        self.call = None  # the FunctionCall that this is the first output of, once it has come again

    def redo(self, frame, call):
        pass_expected(frame, call)
        frame.step = self.step
        node, index = call.functions[self.new]
        frame_functions.go_on_as_output(frame, node, index, frame.tensors[self.old], self.old, self.step)


class FunctionCall:
    """What a call of a Function that is expected at an entry is like: who is called, which of the arguments require
    gradients, where they are, with their numbers; the entries of its outputs, which are all there are."""

    __slots__ = ("facts", "needed", "inputs", "entries", "edges", "node")

    def __init__(self, facts, context, inputs, entries, node):
        self.facts, self.needed, self.inputs, self.entries = facts, context.needs_input_grad, inputs, entries
        self.edges, self.node = node.edges, FunctionNode.like(node, None, (), ())

    def is_of(self, facts, context, outputs):
        """Whether such a call has given such outputs."""
        plain = not context._non_differentiable and context._materialize_non_diff_grads
        same = facts is self.facts and context.needs_input_grad == self.needed
        return same and plain and len(outputs) == len(self.entries)


class ConnectsAgain(AppliesFunctions):
    """The part of a UsualFrame that knows the outputs of Functions.

    functions: number of an output -> (node, which output it is). The edges of such a node are numbers of its inputs:
    it has real ones only in a Frame that the call departs to.
    """

    @at_work
    def connected_again(self, facts, context, args, outputs):
        change = self.entries[self.position.value].change
        known = change.call if change.__class__ is Connected else None
        if known is None or not known.is_of(facts, context, outputs):
            return None
        tensors = self.tensors
        for k, number in known.inputs:
            if args[k] is not tensors[number]:
                return None
        for entry, tensor in zip(known.entries, outputs):
            if not self._is_output(entry, tensor):
                return None
        self.changing = True
        node = FunctionNode.like(known.node, context, outputs, known.edges)
        for index, entry in enumerate(known.entries):
            entry.change.make(self, outputs[index])
            self.functions[entry.change.new] = node, index
        self.position.value += len(outputs)
        self.changing = False
        return node

    @at_work
    def remember_connected(self, facts, context, args, outputs, given):
        """The last outputs that have gone on were these."""
        first = self.position.value - len(given)
        if len(given) == len(outputs) and not context._non_differentiable and context._materialize_non_diff_grads:
            entries = self.entries[first : self.position.value]
            node = self.functions[entries[0].change.new][0]
            inputs = [(k, edge) for k, edge in enumerate(node.edges) if edge is not None]
            entries[0].change.call = FunctionCall(facts, context, inputs, entries, node)

    @at_work
    def connect_again(self, node, outputs, inputs, name):
        first = self.position.value
        entries = self.entries[first : first + len(outputs)]
        if not entries or not all(map(self._is_output, entries, [x for _, x in outputs])):
            return False
        attributes = entries[0].attributes
        numbers = attributes["inputs"]
        same = len(numbers) == len(inputs) and all(self.tensors[n] is x for n, x in zip(numbers, inputs))
        if not same or attributes["name"] != name or any(e.attributes != attributes for e in entries):
            return False
        self.changing, numbers = True, iter(numbers)
        node.edges = tuple([None if edge is None else next(numbers) for edge in node.edges])
        for entry, (index, tensor) in zip(entries, outputs):
            entry.change.make(self, tensor)
            self.functions[entry.change.new] = node, index
        self.position.value = first + len(entries)
        self.changing = False
        return True

    def _is_output(self, entry, tensor):
        is_output = isinstance(entry.change, Connected) and entry.grad_enabled is state.grad_enabled
        return is_output and entry.change.may_happen(self, tensor)
