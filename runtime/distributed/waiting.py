"""Waiting without keeping a core busy.

MPI's own waits spin. With more processes than cores, those that wait would take the cores from those that are waited
for: a collective of four processes on two cores takes a tenth of a second that way. Here whoever waits asks, gives the
core away, and very soon sleeps between two questions. On a busy machine a core that was given away comes back after
milliseconds, one that wakes up gets it at once.

Within one machine a large message goes in pieces of some kilobytes, and MPI moves about one each time it is asked. So
each look asks many times: asked once, 6 MB took a thousand sleeps, 84 ms where MPI's own wait takes 3.
"""

import os
import time

# Of no use to a message that has not come; this many questions take 8 microseconds then.
_QUESTIONS = range(64)
_YIELDING_SECONDS = 1e-4
_SHORT_SECONDS, _LONG_SECONDS = 2e-5, 1e-3
# How often somebody who waits looks for what may have happened to the others.
_LOOK_SECONDS = 0.02
_give_the_core_away = getattr(os, "sched_yield", lambda: time.sleep(0))


def has_completed(request):
    """Whether a request of MPI's is complete, as far as that needs no waiting."""
    test = request.Test
    return any(test() for _ in _QUESTIONS)


class Patience:
    """How long somebody has waited, and how long to pause next."""

    __slots__ = ("n_pauses", "since", "looked")

    def __init__(self):
        self.n_pauses = 0
        self.since = self.looked = time.monotonic()

    def pause(self):
        if time.monotonic() - self.since < _YIELDING_SECONDS:
            _give_the_core_away()
        else:
            self.n_pauses += 1
            time.sleep(min(_LONG_SECONDS, _SHORT_SECONDS * (1 + self.n_pauses // 50)))

    def is_time_to_look(self):
        now = time.monotonic()
        is_time = now - self.looked > _LOOK_SECONDS
        if is_time:
            self.looked = now
        return is_time

    def seconds(self):
        return time.monotonic() - self.since


def wait_for(request, seconds=None):
    """Whether a request of MPI's was completed in time."""
    patience = Patience()
    while not has_completed(request):
        if seconds is not None and patience.seconds() > seconds:
            return False
        patience.pause()
    return True
