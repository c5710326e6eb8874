"""The end of a usual call: its program runs if the same results are alive as usual, and they are handed out."""

from operator import itemgetter
from weakref import getweakrefcount

from .frame_run import close_after_error
from .modes import state
from .references import PICKED, counts_of_picked
from .tensor import pending_tensor
from .usual_calls import EndedCall, ReplayedCall


def picker(numbers):
    """A function that picks these items of a list."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return itemgetter(slice(numbers[0], numbers[0] + 1) if numbers else slice(0))


class Ending:
    """What a UsualFrame does at the end of a call."""

    def close(self):
        for vid in self.views:
            self.tensors[vid]._base = None
        try:
            ended = self._new_end()
            done = self._real is None and self._run(ended)
        except BaseException as error:
            self.depart().fail(error)
            raise
        if done:
            self._given_views.fill(self)
            self._given_views.hand_out(self, ended)
            self._clean(ended)
            if self.outside is not None:
                ended.open(self.numbers, self.outputs)
            self._finish()
        else:
            self.depart().close()

    def _new_end(self):
        """What stands for the call in those of its results that have a history."""
        if self.outside is not None:
            return ReplayedCall(self.outside, self.tensors)
        return EndedCall(self) if self._ends_differ else self.ended

    # How native code ends a call that is not like the one before.
    @staticmethod
    def _close_other(frame):
        frame.close()

    def _close_unusual(self):
        self.depart().close()

    def _close_failed(self, error):
        self.depart().fail(error)

    @staticmethod
    def _close_after_error(error):
        close_after_error(state.frame)

    def _run(self, ended):
        """Whether the call is at its end with the same results alive as usual, and the program has computed them."""
        if not self._same_are_alive():
            return False
        if self.program is None:
            return True
        outputs = self.program.compute(self.input_arrays(self.program), self.numbers, self.expectation)
        if outputs is None:
            # An index was out of range; nothing was written. A Frame finds out which.
            return False
        self.outputs += outputs
        for vid, array in zip(self.needed.live, outputs):
            tensor, meta = self.tensors[vid], self.metas[vid]
            tensor._data = array
            tensor._frame = ended if meta.history else None
            # For the next call.
            self.tensors[vid] = pending_tensor(self, vid, meta)
        return True

    def input_arrays(self, program):
        """What a program reads. A value that a segment has computed may have been changed in place since."""
        arrays, tensors = self.arrays, self.tensors
        return [arrays[v] if v in arrays else tensors[v]._data for v in program.inputs]

    def _same_are_alive(self):
        if self.entries[self.position.value].op is not None or self.n_flushed < len(self.segments):
            return False
        if len(self.numbers) != self.n_numbers:
            return False
        results = self._pick(self.tensors)
        if any(map(getweakrefcount, results)):
            # Whoever watches a tensor would take the next call's for it.
            return False
        counts = counts_of_picked(results)
        del results
        if counts != self._counts:
            if [c > PICKED for c in counts] != [alive for _, alive in self.results]:
                return False
            self._counts = counts
        return True

    def _clean(self, ended):
        if self.program is not None:
            self.program.calls += 1
        for segment in self.segments:
            segment.clean(self, ended)
        for change in reversed(self.changes):
            change.clean(self)
        self.changed_arguments.clear()

    def _finish(self):
        """Hold nothing of the call that is over."""
        self.tensors[: self.n_tensors] = [None] * self.n_tensors
        for entered in self.fresh:
            self.tensors[entered] = None
        self.numbers.clear()
        self.changed_gradients.clear()
        self.remembered.clear()
        self.outputs.clear()
        self.arrays.clear()
        self.owners, self.n_flushed, self.tried = (), 0, ()
        self._release()
