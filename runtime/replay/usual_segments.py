"""Reads in the middle of a usual call (`if`, `item()`, printing): what is pending there is computed by a program of its
own, like at the end of the call.

    entries   mul  sum |  add  mul |  sub          two segments, and what is left for the end of the call
                       item()      if
"""

from weakref import getweakrefcount

from ..record.frame_flush import settle_changes
from ..state.references import held
from ..state.tensor import pending_tensor
from .usual_views import GivenViews


class Segment:
    """A flush of a path, to be done again.

    position: how many entries come before it. pending: numbers of the values that are computed now or never.
    """

    __slots__ = (
        "position",
        "pending",
        "held",
        "live",
        "views",
        "layouts",
        "program",
        "made",
        "key",
        "n_numbers",
        "words",
    )

    def __init__(self, flush, position, pending, roots, changed):
        self.position, self.pending = position, pending
        self.held = [v for v in pending if v in flush.held]
        self.live, self.program = flush.needed.live, flush.program
        self.views = GivenViews(flush.step, flush.needed.views, roots)
        self.layouts = self.views.layouts(flush.step, changed)
        self.key = position, flush
        self.made = (*self.live, *flush.needed.views)
        self.n_numbers = flush.step.numbers_count()
        self.words = None  # what native code reads of it

    @property
    def is_native(self):
        """Whether native code can do it: there is something to do, and its views lie where the path tells."""
        return self.layouts is not None and (self.program is not None or bool(self.layouts))

    def results(self):
        """(number, whether it is held) of the values that are pending."""
        return [(vid, vid in self.held) for vid in self.pending]

    def run(self, call):
        """Whether the same values are held here as usual, and the program has computed them."""
        tensors = call.tensors
        if held(tensors, self.pending) != self.held:
            return False
        if any(getweakrefcount(tensors[vid]) for vid in self.pending if vid not in self.held):
            return False  # whoever watches it would take the next call's for it
        outputs = ()
        call.changing = True
        if self.program is None:
            call.flight, call.returned = self.key[1].needed, [0]
        else:
            call.returned = ()
            call.flight = self.key[1].needed
            self.program.counter[0] += 1
            outputs = self.program.compute(call.input_arrays(self.program), call.numbers, call.expectation, call)
            if outputs is None:
                call.flight, call.changing = None, False
                return False
        for vid, array in zip(self.live, outputs):
            call.arrays[vid] = array
            if tensors[vid] is not None:  # or a backward needs it, and it was changed in place since
                tensors[vid]._data = array
        self.views.fill(call)
        for vid, *_ in self.views.rows:
            call.arrays[vid] = tensors[vid]._data
        call.n_flushed += 1
        call.flight, call.changing = None, False
        return True

    def redo(self, frame, call):
        """What a Frame notes down after this flush."""
        settle_changes(frame)
        for vid in self.made:
            frame.arrays[vid] = call.arrays[vid]
            if frame.tensors[vid] is not None:
                frame.tensors[vid]._data = call.arrays[vid]
        frame.last_program = self.program
        frame.flushes.append(self.key[1])
        frame.flushed, frame.first_pending = frame.step.depth, len(frame.tensors)

    def clean(self, call, ended):
        """After the call: whoever holds a value keeps it, and the next call has another tensor."""
        for vid in self.made:
            tensor, meta = call.tensors[vid], call.metas[vid]
            if tensor is not None:
                tensor._frame = ended if meta.history else None
                call.tensors[vid] = pending_tensor(call, vid, meta)


def segments_of(frame, entries, roots):
    """The segments of a frame's path, and the numbers of the values that are pending at its end."""
    found, begin = [], 0
    changed = {entry.change.new for entry in entries if entry.change is not None}
    for flush in frame.flushes:
        position = sum(entry.step.depth <= flush.step.depth for entry in entries)
        found.append(Segment(flush, position, _pending(entries[begin:position]), roots, changed))
        begin = position
    return found, _pending(entries[begin:])


def begins_of_backward(usual, needed, known):
    """Numbers of further values that a backward after the call may begin at: what was computed before a read in the
    middle, and has a history. Whoever holds others of them than usual asks for another backward."""
    if not needed.differentiable:
        return []
    made = dict.fromkeys(vid for segment in usual.segments for vid in segment.made)
    return [vid for vid in made if usual.metas[vid].history and vid not in known]


def _pending(entries):
    """Numbers under which values that entries make can be held after the last of them."""
    numbers = []
    for entry in entries:
        if entry.change is None:
            numbers += [] if entry.update is not None else entry.numbers
        elif entry.change.is_made:
            numbers = [v for v in numbers if v != entry.change.old] + [entry.change.new]
    return numbers
