"""The end of a usual call: its program runs if the same results are alive as usual, and they are handed out."""

from operator import itemgetter
from weakref import getweakrefcount

from ..record import frame_end
from ..record.frame import Frame
from ..record.frame_leaves import drop_gradients
from ..record.frame_run import close, close_after_error
from ..state.modes import state
from ..state.references import PICKED, counts_of_picked, held
from ..state.tensor import pending_tensor
from ..state.turns import end_call
from . import finished_calls, finished_tables
from .usual_calls import ReplayedCall
from .usual_ended import EndedCall
from .usual_outside import set_native_backward, set_native_end

_ENDED_BEFORE_NATIVE = 2
_learn_from_error = None
_OFTEN, _FEW = 8, 64  # one of so many calls, of so many at least, raises
set_native_backward(finished_tables.take_over)
set_native_end(finished_tables.end_natively)


def set_learning_from_errors(function):
    """What learns from a Frame that an exception has ended, and the structure and types of its arguments."""
    global _learn_from_error
    _learn_from_error = function


def raise_often(recording):
    return _OFTEN * recording.n_raised > max(recording.calls, _FEW)


def picker(numbers):
    """A function that picks these items of a list."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return itemgetter(slice(numbers[0], numbers[0] + 1) if numbers else slice(0))


class Ending:
    """What a UsualFrame does at the end of a call."""

    kind_of_finished, kind_of_ended = ReplayedCall, EndedCall
    native_end = None  # the NativeEnd that makes what stands for calls, once there is one

    def close(self):
        if self.working:
            # An exception, of a signal handler perhaps, has come in the middle of an op (onlooker.py).
            self.give_up()
            raise RuntimeError(f"a compiled call has failed: {frame_end.INTERRUPTED}")
        if self._real is None and self.is_at_end() and self._end():
            self._finish()
        else:
            self.depart(ends=True).close()

    def _end(self):
        """Whether the call has ended as usual."""
        self.working = True
        try:
            done = self._real is None  # a signal handler may have made the call depart just now
            if done:
                for vid in self.views:
                    if self.tensors[vid] is not None:
                        # None of those that get their number in the call, if it has ended before.
                        self.tensors[vid]._base = None
                self._drop_gradients()
                ended = self._new_end()
                self.given = [self.tensors[vid] for vid in self.needed.live]
                done = self.landed = self._run(ended)
            if done:
                self._hand_out_views(ended)
                self._clean(ended)
                if self.program is not None:
                    self.program.counter[0] += 1
        except BaseException as error:
            if self._has_landed():
                self.give_up()
            else:
                self.working = False
                self.depart(asked="fail").fail(error)
            raise
        self.flight, self.working = None, done
        return done

    def _drop_gradients(self):
        """Let go of what only the call holds: hooks, and gradients of values that nobody holds."""
        if self.hooked or self.functions:
            self._let_go_of_nodes()
        drop_gradients(self.tensors, self.leaves)

    def _let_go_of_nodes(self):
        """Nodes hold values, which would be alive because of them. But if the user holds others than usual, the call
        goes on in a Frame, which asks for the nodes: then they stay."""
        counts, usual = counts_of_picked(self._pick(self.tensors)), self._counts_with_nodes
        self._counts_with_nodes = None
        if usual is None or counts == usual:
            self._counts_with_nodes = counts
            self.hooked.clear()
            self.functions.clear()

    def _hand_out_views(self, ended):
        self.given_views.fill(self)
        self.given_views.hand_out(self, ended)
        if self.outside is not None:
            ended.open(self.numbers, self.outputs)

    def give_up(self):
        """End a call after an exception that came between two lines. This frame is not used again, nor is one that was
        about to go on with the call."""
        other = self if self.successor is None else self.successor
        self.recording.replays = [replay for replay in self.recording.replays if replay not in (self, other)]
        frame = other if isinstance(other, Frame) else Frame(self.recording)
        if self._has_landed():
            for tensor, array in zip(self.given, self.written):
                if tensor._data is None:
                    tensor._data, tensor._frame = array, None
        else:
            frame.changed_gradients, frame.remembered = list(self.changed_gradients), list(self.remembered)
        frame_end.give_up(frame)
        for tensor in (*self.tensors, *other.tensors):
            if tensor is not None and tensor._data is None and tensor._frame in (self, other):
                tensor._frame = frame

    def _has_landed(self):
        """Whether the program at the end has run: results have been handed out, or are about to be."""
        if self.given is None or self.landed or self.has_run:
            return self.given is not None
        return any(self.tensors[vid] is not tensor for vid, tensor in zip(self.needed.live, self.given))

    def _new_end(self):
        """What stands for the call in those of its results that have a history."""
        if self.entries[self.position.value].op is not None:
            return None  # the function has returned before, and what comes in later is not there
        if self.outside is not None:
            self._count_ended()
            return ReplayedCall(self.outside, self.tensors, self.arrays)
        return self.ended.of_call(self) if self._ends_differ else self.ended

    def _count_ended(self):
        """The first calls are ended in Python: most functions are not called often. So are all in which Python has
        something else to do then."""
        self.n_ended += 1
        if self.n_ended == _ENDED_BEFORE_NATIVE and self._native is not None and not self.slower_for:
            self.native_end = finished_calls.NativeEnd(self, self._open_made)
            self._native.make_ends_with(self.native_end)

    def take_outside(self, outside):
        """What the calls to come have in common about a backward that comes after."""
        self.outside = outside
        if self.native_end is not None:
            self.native_end.take_outside(outside)

    def _open_made(self, ended):
        ended.open(self.numbers, self.outputs)
        self.outputs.clear()

    # How native code ends a call that is not like the one before.
    @staticmethod
    def _close_other(frame):
        close(frame)

    def _close_unusual(self):
        # A value with weak references may have ended with the function, else it is held.
        is_watched = any(getweakrefcount(self.tensors[vid]) for vid, alive in self.results if not alive)
        close(self if is_watched else self.depart(ends=True))

    def _close_failed(self, error):
        if self._has_landed():
            self.give_up()
        else:
            self.working = False
            self.depart(asked="fail").fail(error)
        end_call()

    def _begin_end(self):
        """What stands for the call in its results. The program is about to run."""
        self._drop_gradients()
        if self.only_begins:
            # Native code does the rest, as for calls without nodes, if there are none left.
            self._native.is_finished.value = bool(self.hooked or self.functions)
            if not self._native.is_finished.value:
                return self._new_end()
        self.given = [self.tensors[vid] for vid in self.needed.live]
        return self._new_end()

    def _finish_end(self, ended):
        """The program has run, and its results have been handed out: what else the end of a call is, but for counting
        and for letting go of what native code knows."""
        self.given, self.landed = self.given or [], True
        self._hand_out_views(ended)
        self._clean(ended)
        self._forget()
        self.landed = False

    def _close_after_error(self, error):
        """Of a call that native code has begun with this frame, and that an exception ends."""
        close_after_error(state.frame, error)
        ended = self.ended_by()
        self.make_ready()
        recording = self.recording
        recording.n_raised += 1
        if self.outside is not None and self.segments and raise_often(recording):
            # Python ends such calls, which takes longer than most of them do in eager mode.
            recording.replays = [replay for replay in recording.replays if replay is not self]
            self._take()  # for good
        if isinstance(ended, Frame) and isinstance(error, Exception):
            _learn_from_error(ended, self.structure, self.argument_types)

    def _run(self, ended):
        """Whether the call is at its end with the same results alive as usual, and the program has computed them."""
        if not self._same_are_alive():
            return False
        if self.program is None:
            return True
        self.returned, self.flight = (), self.needed
        outputs = self.program.compute(self.input_arrays(self.program), self.numbers, self.expectation, self)
        if outputs is None:
            # An index was out of range; nothing was written. A Frame finds out which.
            self.flight = None
            return False
        if self.outside is not None:
            self.outputs += outputs  # until `ended` has them
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

    def _run_for_native(self, ended):
        """`_run` where native code does not: a program that lets go of the interpreter's lock, and others for which the
        arena has no room. Native code goes on with the end."""
        if self.given is not None:
            return Ending._run(self, ended)  # and Python does
        self.given, self.working = [self.tensors[vid] for vid in self.needed.live], True
        done = self.landed = Ending._run(self, ended)
        self.written, self.flight, self.working = (), None, False
        self.given, self.landed = None, False
        return done

    def is_at_end(self):
        """Whether the call has done all that is done here."""
        return self.entries[self.position.value].op is None and self.n_flushed == len(self.segments)

    def _same_are_alive(self):
        if not self.is_at_end() or len(self.numbers) != self.n_numbers:
            return False
        results = self._pick(self.tensors)
        is_watched = any(map(getweakrefcount, results))
        counts = counts_of_picked(results)
        del results
        if counts != self._counts:
            if [c > PICKED for c in counts] != [alive for _, alive in self.results]:
                return False
            self._counts = counts
        if is_watched:
            self._replace_watched()
        return True

    def _replace_watched(self):
        """Values that nobody holds, and somebody watches: who does would take the next call's for them."""
        watched = [vid for vid, alive in self.results if not alive and getweakrefcount(self.tensors[vid])]
        gone = [self.tensors[vid] for vid in watched]
        for vid in watched:
            self.tensors[vid] = pending_tensor(self, vid, self.metas[vid])
        if held(gone, range(len(gone))):
            # Another thread has asked a weak reference just now. What it has got is no value any more.
            frame = Frame(self.recording)
            frame_end.fail(frame, "the value of another thread's call was dropped there")
            for tensor in gone:
                tensor._frame = frame

    def _clean(self, ended):
        for segment in self.segments:
            segment.clean(self, ended)
        for change in reversed(self.changes):
            change.clean(self)

    def _forget(self):
        """Hold nothing of the call that is over, of what native code does not know."""
        for entered in self.fresh:
            self.tensors[entered] = None
        self.outputs.clear()
        self.written, self.given, self.flight = (), None, None
        self.arrays.clear()
        for books in (self.copies, self.hooked, self.functions):
            books.clear()
        self.owners, self.n_flushed, self.tried = (), 0, ()

    def _finish(self):
        """Hold nothing of the call that is over."""
        self.tensors[: self.n_tensors] = [None] * self.n_tensors
        self._forget()
        self.numbers.clear()
        self.changed_gradients.clear()
        self.remembered.clear()
        # What was let go of may have had finalizers. From here on another thread may use this frame.
        if state.frame is self:
            state.frame = None
        self.landed = self.working = False
        self._release()
