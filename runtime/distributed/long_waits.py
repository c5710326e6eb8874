"""Where ranks that have waited long are, told to the others, who compare it with what they have called themselves.

Ranks that check compare before every collective (checks.py). Without that, one that runs another program makes others
wait without end, if they are lucky; so whoever has waited for a while says where, once for each collective:

    rank 0   all_reduce ......... waits ---- "number 7 is all_reduce at a.py:3" ---->|
    rank 1   broadcast, barrier ........................... compares ----------------|
                                |<---- "number 7 is broadcast at b.py:5" ---- answers
             raises

A number of a group is one call on every rank, so what is compared cannot be out of date.
"""

from collections import deque
from typing import NamedTuple

SECONDS = 2
# Of the calls of a group, so many are remembered.
N_REMEMBERED = 64


class Call(NamedTuple):
    """A collective: of which group, which of the group's, what it is and where."""

    group: int
    number: int
    what: str
    line: str


class Calls:
    """The last calls of a group on this rank."""

    def __init__(self):
        self.last = deque(maxlen=N_REMEMBERED)

    def add(self, call):
        self.last.append(call)

    def same_as(self, call):
        """This rank's call of the same number, if it is remembered."""
        return next((own for own in self.last if own.number == call.number), None)

    def is_to_come(self, call):
        return not self.last or self.last[-1].number < call.number


class LongWaits:
    """What this rank has told, and what it has heard."""

    def __init__(self, groups, send):
        self.groups, self.send = groups, send  # send(rank, call)
        self.told, self.heard, self.different = set(), [], None

    def tell(self, call, ranks):
        """Say once to these ranks that this one waits there."""
        if call[:2] not in self.told:
            self.told.add(call[:2])
            for rank in ranks:
                self.send(rank, call)

    def hear(self, rank, call):
        self.heard.append((rank, call))

    def compare(self):
        """Answer those that wait where this rank has called something else. What it has not come to is kept."""
        kept = []
        for rank, call in self.heard:
            calls = self.groups[call.group].calls
            own = calls.same_as(call)
            if own is not None and own.what != call.what:
                self.tell(own, [rank])
                self.different = (
                    f"the processes do not call the same as number {call.number} of their group: this rank at "
                    f"{own.line}: {own.what}; rank {rank} at {call.line}: {call.what}"
                )
            elif calls.is_to_come(call):
                kept.append((rank, call))
        self.heard = kept
