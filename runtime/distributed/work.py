"""One collective, as phases that go on without waiting for each other.

    check     what all ranks are about to do, compared (checks.py)
    first     everybody gets what it has to add up, or everything there is
    second    everybody gets what the others have added up

A collective is a generator that yields its phases; a phase begins a non-blocking call of MPI. MPI wants calls on one
communicator in the same order on all ranks, and how fast a rank gets on is not the same everywhere, so a group has a
communicator per phase, and a work begins a phase when all works before it have begun theirs:

    communicator   check     first     second
    work 1         ======    ======    ======
    work 2            ======    ======    ======
    work 3               ======               (has no second phase)
"""

import time
from typing import NamedTuple

from .waiting import has_completed

CHECK, FIRST, SECOND, ENDED = range(4)


class Phase(NamedTuple):
    """`begin(communicator)` gives a request, to be called when the slot's turn has come; n_bytes is what it carries."""

    slot: int
    begin: object
    n_bytes: int


class Network:
    """A slower network than there is, for measurements: what is sent arrives `delay` seconds after the link, which
    carries so many bytes per second, has carried all that was sent before."""

    def __init__(self, delay_seconds, bytes_per_second):
        self.delay_seconds, self.bytes_per_second = delay_seconds, bytes_per_second
        self.free_at = 0.0

    def arrival(self, n_bytes):
        self.free_at = max(self.free_at, time.monotonic()) + n_bytes / self.bytes_per_second
        return self.free_at + self.delay_seconds


class Work:
    """A collective under way: its number in its group, what it is called, and its result or its error in the end."""

    __slots__ = ("name", "number", "line", "phases", "phase", "slot", "request", "arrival", "result", "error")

    def __init__(self, name, number, line, phases):
        self.name, self.number, self.line, self.phases = name, number, line, phases
        self.phase, self.slot, self.request, self.arrival = None, -1, None, 0.0
        self.result = self.error = None
        self._go_on()

    @property
    def has_ended(self):
        return self.slot == ENDED

    def advance(self, limit, communicators, network):
        """Go on as far as that needs no waiting. `limit`: the last phase that the works before have begun."""
        while self.slot != ENDED:
            if self.request is None:
                if self.phase.slot > limit:
                    return
                self.request = self.phase.begin(communicators[self.phase.slot])
                self.slot = self.phase.slot
                self.arrival = network.arrival(self.phase.n_bytes) if network is not None else 0.0
            if not has_completed(self.request) or (self.arrival and time.monotonic() < self.arrival):
                return
            self.request = None
            self._go_on()

    def _go_on(self):
        try:
            self.phase = next(self.phases)
        except StopIteration as end:
            self.result, self.slot, self.phases = end.value, ENDED, None
        except Exception as error:
            self.error, self.slot, self.phases = error, ENDED, None
