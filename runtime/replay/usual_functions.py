"""autograd.Function in a usual call (frame_functions.py): its Python runs, and its ops are compared like all others."""

from ..record import frame_functions
from ..state.modes import state
from .usual_books import at_work
from .usual_inplace import pass_expected
from .usual_leaves import NewLeaf


class Connected(NewLeaf):
    """What a NewLeaf is, for an output of a Function: the tensor goes on as a value with a history."""

    __slots__ = ()
    is_leaf = False

    def redo(self, frame, call):
        pass_expected(frame, call)
        frame.step = self.step
        node, index = call.functions[self.new]
        frame_functions.go_on_as_output(frame, node, index, frame.tensors[self.old], self.old, self.step)


class ConnectsAgain:
    """The part of a UsualFrame that knows the outputs of Functions.

    functions: number of an output -> (node, which output it is). The edges of such a node are numbers of its inputs:
    it has real ones only in a Frame that the call departs to.
    """

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
