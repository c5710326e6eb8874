"""What comes after calls that not always the same comes after: what came the last time after the same calls, with the
same flags among the arguments.

    calls     A  A  B  A  A  B  A  A  ?       the last ones were B A A, after which came B
    f(x, training=False)                      what was done the last time without training

A call that goes another way than expected hands over what it has done so far (usual_siblings.py), which costs more than
most small calls. Where the same always follows, `UsualFrame.following` is all there is to know.
"""

from weakref import ref

_TIMES_BEFORE_IT_PAYS = 3
_CALLS_THAT_TELL = 3
_MOST_KNOWN = 256
_FEW = 16  # integers beyond are taken for counts, which come once
_KINDS = frozenset((bool, str, type(None), int))


class Turns:
    """known: (flags, the last calls) -> a weak reference to the UsualFrame that came; also by either alone, for those
    that have not met yet."""

    __slots__ = ("last", "known", "now")

    def __init__(self):
        self.last, self.known, self.now = (), {}, ((), ())

    def expected(self, args, kwargs):
        """The UsualFrame to begin with; None if nothing like that has been."""
        flags, known = flags_of(args, kwargs), self.known
        self.now = flags, self.last
        found = known.get(self.now) or known.get(flags) or known.get(self.last)
        frame = None if found is None else found()
        # Of a recording that made room for another one nothing may be used again.
        return frame if frame is not None and frame in frame.recording.replays else None

    def note(self, ended):
        """The call has ended in this UsualFrame."""
        known = self.known
        if len(known) > _MOST_KNOWN:
            known.clear()
        known[self.now] = known[self.last] = ref(ended)
        if self.now[0]:
            known[self.now[0]] = known[self.now]
        self.last = (*self.last[1 - _CALLS_THAT_TELL :], id(ended))


def flags_of(args, kwargs):
    """What among arguments is likely to decide which way a call goes: texts, truth values, None and small integers."""
    found = [x if x.__class__ is not int or -_FEW < x < _FEW else int for x in args if x.__class__ in _KINDS]
    if kwargs:
        found += [x for x in kwargs.values() if x.__class__ in _KINDS and x.__class__ is not int]
    return tuple(found)


def note_other(before, ended):
    """After a call of one UsualFrame came one of another, which was not expected."""
    before.following = ended
    before.n_parted += 1
    if before.n_parted == _TIMES_BEFORE_IT_PAYS:
        before.turns = Turns()
