"""Updates in a usual call whose targets the call has made, some of them or all: an optimizer that is made in the call,
of leaves or with states that are made there. As many changes as there are targets, done together."""

from operator import is_, itemgetter

from ..programs.recording import UPDATE
from ..record.frame_updates import redo_singly
from ..state.attributes import same_attributes
from ..state.modes import state
from ..state.references import held
from .usual_books import at_work
from .usual_inplace import Change, pass_expected


class Updated(Change):
    """What a Change is for one of the targets. n_after: how many others come after it in the same update."""

    __slots__ = ("n_after", "is_first")

    def __init__(self, frame, step, k, expected):
        """Of target number k."""
        moved = step.detail.moved
        self.old, self.origin, self.group = moved[k]
        self.new, self.given, self.shown, self.again = step.first + k, self.old, (), ()
        self.op = self.version = None
        self.takes_memory = self.is_silent = False
        self.steps, self.meta, self.old_meta = [step], frame.metas[self.new], frame.metas[self.old]
        self.is_made, self.target = self.origin is None, expected.get(self.origin)
        self.may_be_seen = not self.is_made
        self.is_first, self.n_after = k == 0, len(moved) - 1 - k

    def redo(self, frame, call):
        """What a Frame notes down when it meets the update: once, for all targets."""
        if self.is_first:
            pass_expected(frame, call)
            redo_singly(frame, self.steps[0])


class TakesUpdates:
    """The part of a UsualFrame that makes updates."""

    @at_work
    def _take_update(self, rule, rows, numbers, flags):
        """Whether the update is the one expected here, and has been made."""
        entry = self.entries[self.position.value]
        if entry.op is not UPDATE:
            return False
        expected, flat = entry.attributes, [x for row in rows for x in row]
        if (
            expected.rule is not rule
            or (expected.n_rows, expected.n_numbers) != (len(rows), len(numbers))
            or not same_attributes(expected.flags, flags)
            or len(set(map(len, rows))) != 1
            or entry.grad_enabled is not state.grad_enabled
            or len(flat) != len(entry.operands)
            or (entry.fresh and not self._enter_fresh(entry, flat))
            or not all(map(is_, flat, itemgetter(*entry.operands)(self.tensors)))
        ):
            return False
        if entry.update is None:
            return self._take_changes(entry.change.n_after + 1, numbers)
        if not entry.update.is_alone() or held(self.tensors, entry.update.views):
            return False
        self.numbers += map(float, numbers)
        self.changing = True
        entry.update.bump_versions()
        self.position.value += 1
        self.show_again(entry.n_shown)
        self.changing = False
        return True

    def _take_changes(self, n, numbers):
        first, tensors = self.position.value, self.tensors
        changes = [entry.change for entry in self.entries[first : first + n]]
        targets = [tensors[change.old] for change in changes]
        if not all(change.may_happen(self, target) for change, target in zip(changes, targets)):
            return False
        self.numbers += map(float, numbers)
        self.changing = True
        for change, target in zip(changes, targets):
            change.make(self, target)
        self.position.value += n
        self.changing = False
        return True
