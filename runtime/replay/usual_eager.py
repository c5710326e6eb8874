"""Ops of a usual call that no program has: they run eagerly between two of its entries, as they did in the call before.
What they give comes in with the entry that uses it, like a tensor from outside."""

from time import perf_counter

from ...compiler.ops.rows import row
from ...compiler.ops.view import select
from ..eager.gate import apply
from ..record.frame_eager import FEW, are_pending, has_history, has_varied, without_history
from ..state.modes import frame_hidden

NOT_APPLIED = object()


class AppliesEagerly:
    """The part of a UsualFrame that runs such ops."""

    def note_eager_ops(self, frame, entries):
        """Position among the entries -> the ops that ran there."""
        self.eager_ops, self.varied = {}, {}  # varied: position -> an op that was recorded there for several places
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
        with frame_hidden():
            result = (apply if found.link is None else without_history)(op, operands, attributes)
        self.recording.took(found.reason, found.line, perf_counter() - began)
        return result if found.link is None else self.apply(found.link, (result, *operands), attributes)

    def _picked(self, op, operands, attributes):
        """The tensor made for a part that is taken at another place in each call, if one is expected here."""
        entry = self.entries[self.position.value]
        if op is not select or entry.op is not row:
            return None
        return self._take_op(row, (*operands, attributes["index"]), {"axis": attributes["axis"]})

    def applied(self):
        """The ops that have run eagerly in this call so far."""
        call, ops = self._applied
        return ops if call == self.recording.calls else []

    def has_varied(self, op):
        """Whether the op was recorded here with several attributes, one after the other."""
        if self.recording.n_branches < FEW:
            # Which most are: nowhere do so many steps follow one.
            return False
        if self.working or self._real is not None:
            return self._real is not None and self._real.has_varied(op)
        position = self.position.value
        if self.varied.get(position) is op:
            return True
        step = self.entries[position - 1].step if position else self.expectation.start
        found = has_varied(step, op)
        if found:
            # What was recorded stays.
            self.varied[position] = op
        return found

    def _brings(self, operands):
        """Whether the values of these are in memory, if need be because a segment ends here."""
        if not are_pending(self, operands):
            return True
        return self.n_flushed < len(self.segments) and self._take_segment() and not are_pending(self, operands)
