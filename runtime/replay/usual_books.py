"""What a usual call has done so far, and who may look at it (onlooker.py)."""

from functools import wraps
from types import SimpleNamespace

from ..programs.description import Stretch
from ..programs.recording import INPUT
from ..record.onlooker import Watched
from ..state.aligned import owner_of
from . import native


def at_work(method):
    """Decorates what a UsualFrame does to its own books, a method that does not depart. Onlookers, who come in while it
    does, get None."""

    @wraps(method)
    def working(self, *args):
        flag = self._working
        if flag.value:
            return None
        n_numbers, flag.value = len(self.numbers), 1
        try:
            return method(self, *args)
        except BaseException:
            self.torn = self.changing
            del self.numbers[n_numbers:]
            raise
        finally:
            flag.value = self.torn

    return working


class UsualBooks(Watched):
    """The part of a UsualFrame that says what has been done."""

    def __init__(self):
        self._working, self._n_flushed = native.Number(), native.Number()
        super().__init__()
        self.seen = None  # id of a tensor -> its number, while tensors change hands
        self.successor = None  # who is about to go on with the call meanwhile
        self.given = None  # the results that the program at the end computes
        self.landed = False  # whether it has

    @property
    def working(self):
        """Native code must know it too, and compares nothing meanwhile."""
        return bool(self._working.value)

    @working.setter
    def working(self, value):
        self._working.value = value

    @property
    def n_flushed(self):
        """How many segments this call has done."""
        return self._n_flushed.value

    @n_flushed.setter
    def n_flushed(self, value):
        self._n_flushed.value = value

    def take_own_steps(self):
        """Have the steps of this call where its entries serve calls of many sizes."""
        if self.many is not None:
            self.many.take_own_steps()

    def _flushes(self):
        """What has been computed in the middle of the call."""
        return [segment.key[1] for segment in self.segments[: self.n_flushed]]

    def books(self):
        """(all that has been recorded so far, arrays by number, numbers): what values can be computed from."""
        self.take_own_steps()
        position, flushes, numbers = self.position.value, self._flushes(), list(self.numbers)
        entries = self.entries[:position]
        step, metas = entries[-1].step, entries[-1].step.metas_so_far()
        same = {new: origin for flush in flushes for origin, new in flush.needed.commits}
        arrays = {s.first: self.tensors[s.first]._data for s in step.path() if s.op is INPUT}
        arrays |= self.arrays
        arrays |= {new: arrays[origin] for new, origin in same.items()}
        roots = {entry.vid: entry.root for entry in entries if entry.root is not None}
        flushed, first_pending = (flushes[-1].step.depth, flushes[-1].step.metas_count()) if flushes else (0, 0)
        books = SimpleNamespace(recording=self.recording, step=step, metas=metas, arrays=arrays, same=same, roots=roots)
        vars(books).update(overwritten=(), closed=False, first_pending=first_pending, flushed=flushed)
        books.default_dtype = self.recording.default_dtype
        return Stretch(books), arrays, numbers

    def place(self):
        self.take_own_steps()
        return self.entries[self.position.value - 1].step, self.n_flushed

    def number_of(self, tensor):
        """The number of the value that a tensor of the call has now."""
        return (self._numbers() if self.seen is None else self.seen)[id(tensor)]

    def _numbers(self):
        """id of a tensor -> the number of the value it holds after what has been done so far."""
        n = self.entries[self.position.value - 1].step.metas_count() if self.position.value else self.n_tensors
        return {id(tensor): vid for vid, tensor in enumerate(self.tensors[:n]) if tensor is not None}

    def holds(self, tensor):
        """Whether the call reads or writes a tensor's memory, or is to compute it."""
        if tensor._data is None:
            return True
        met = [self.tensors[vid] for vid in (*range(self.n_tensors), *self.fresh)]
        owners = {owner_of(x._data) for x in met if x is not None}
        return owner_of(tensor._data) in (self.expectation.owners.keys() | owners)
