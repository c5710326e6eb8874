"""Ops of a usual call that no program has: they run eagerly between two of its entries, as they did in the call before.
What they give comes in with the entry that uses it, like a tensor from outside."""

from time import perf_counter

from ...compiler.ops.rows import starts_in
from ..eager.gate import apply
from ..record.frame_eager import AT_ANY_PLACE, are_pending, has_history, without_history
from ..state.tensor import Tensor
from .native import outside_the_call

NOT_APPLIED = object()


def as_expected(entry, op, operands, attributes):
    """(op, operands, attributes) of a part of a tensor whose place is a number, where the entry expects one; else what
    is given."""
    expected = entry.op if entry.change is None else entry.change.op
    if expected is None or AT_ANY_PLACE.get(op) is not expected:
        return op, operands, attributes
    starts = starts_in(expected, entry.attributes, attributes)
    return (op, operands, attributes) if starts is None else (expected, (*operands, *starts), entry.attributes)


class AppliesEagerly:
    """The part of a UsualFrame that runs such ops."""

    def note_eager_ops(self, frame, entries):
        """Position among the entries -> the ops that ran there."""
        self.eager_ops = {}
        self._applied = 0, []  # (which call of the recording, the ops that have run in it so far)
        for one in frame.eager_ops:
            position = sum(entry.step.depth <= one.step.depth for entry in entries)
            self.eager_ops.setdefault(position, {})[one.op] = one

    def apply_between(self, op, operands, attributes):
        """What the op gives, if one like it ran here before; else NOT_APPLIED."""
        found = self.eager_ops.get(self.position.value)
        found = None if found is None else found.get(op)
        if found is None or self._real is not None or has_history(operands) is not (found.link is not None):
            return NOT_APPLIED
        if not self._brings(operands):
            return NOT_APPLIED
        self.recording.note(found.reason, found.line)
        call = self.recording.calls
        if self._applied[0] == call:
            self._applied[1].append(found)
        else:
            self._applied = call, [found]
        began = perf_counter()
        with outside_the_call():
            result = (apply if found.link is None else without_history)(op, operands, attributes)
        self.recording.took(found.reason, found.line, perf_counter() - began)
        return result if found.link is None else self.apply(found.link, (result, *operands), attributes)

    def _picked(self, op, operands, attributes):
        """The tensor made for a part that is taken at another place in each call, if one is expected here."""
        found, operands, attributes = as_expected(self.entries[self.position.value], op, operands, attributes)
        return None if found is op else self._take_op(found, operands, attributes)

    def takes(self, step):
        """Whether calls that use this frame take a step of the recording."""
        return len(self.entries) > 1 and step in self.entries[-2].step.path()

    def applied(self):
        """The ops that have run eagerly in this call so far."""
        call, ops = self._applied
        return ops if call == self.recording.calls else []

    def _brings(self, operands):
        """Whether the values of these are in memory, if need be because a segment ends here."""
        if not are_pending(self, operands):
            return True
        n = self.n_flushed
        if n == len(self.segments) or self.segments[n].position != self.position.value:
            return False
        pending = [x for x in operands if isinstance(x, Tensor) and x._data is None and x._frame is self]
        if pending:
            self.materialize(pending[0])  # in native code, or the call departs
        elif not self._take_segment():
            return False
        return self._real is None and not are_pending(self, operands)
