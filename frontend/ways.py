"""Which way is quicker for calls that are not replayed: to follow them step by step, or eager mode.

Following costs a few microseconds per op, and more where a part of the call runs outside its programs; what it gains
depends on the sizes. The results are the same bits, so it is measured: some calls go the one way and some the other.
"""

import time

from .runtime.code import made_here
from .runtime.replay.usual_learning import is_learning

# So many calls have been like none that can be replayed, or would have been by now; fewer will do where the quickest
# of them took so many seconds, which stand for a call that was tried: one that compiles, and cannot be replayed, has
# paid for what eager mode does hundreds of times meanwhile. Where nothing is known to stand against replays, one more:
# the first calls of a step are compiled once without and once with the optimizer's state.
AFTER, AFTER_LONG, AFTER_NEW, LONG = 16, 2, 3, 0.25
_TRIALS = 5
# So many eager calls come before one counts: native code takes over what has come some times. Fewer do where they have
# taken so many seconds and do not become quicker.
WARMING, _WARM_SECONDS = 20, 0.5
# Eager calls that take so many times as long are not tried any further, once they have taken so long. The first ones
# also load or compile kernels and make plans, which takes up to _ONCE seconds: a call shorter than that says nothing
# while each takes less than _SETTLED of the one before.
_CLEARLY, _SECONDS = 2.0, 0.2
_ONCE, _SETTLED = 2.0, 0.8
# After so many calls both ways are tried again, and then more and more seldom: eager ops become quicker when they have
# come some dozens of times, and what stood against a replay may be gone.
_AGAIN, _LONGER = 64, 4
# What the trials have cost is at most so much of the calls before the next ones; a program that was compiled in one of
# them does not count.
_SHARE = 0.02
_TICK = 1e-7  # seconds: no call takes less
_NOTHING = {}


class Ways:
    """What was measured of the calls of a recording: seconds of the last few that were `followed`, and `eager` ones,
    and of those that came before them, `warming`. is_eager: whether eager mode was quicker; None: not known yet."""

    __slots__ = ("followed", "eager", "warming", "is_eager", "n_left", "n_calls")

    def __init__(self, *followed):
        self.followed, self.eager, self.warming = list(followed), [], []
        self.is_eager, self.n_left, self.n_calls = None, 0, _AGAIN

    def call_eagerly(self):
        """Whether the next call goes that way."""
        if self.is_eager is not None:
            self.n_left -= 1
            if self.n_left > 0:
                return self.is_eager
            self.followed, self.eager, self.warming, self.is_eager = [], [], [], None
        return len(self.eager) < len(self.followed)

    def run(self, seconds, function, args, kwargs=_NOTHING):
        """function(*args, **kwargs), which is one way; its time goes into that list."""
        if self.is_eager is not None:
            return function(*args, **kwargs)
        made, started = made_here.total(), time.perf_counter()
        result = function(*args, **kwargs)
        taken = time.perf_counter() - started
        # What was compiled for all eager calls to come is no part of one.
        self._has_taken(seconds, taken - (made_here.total() - made) if seconds is self.eager else taken)
        return result

    def _has_taken(self, way, seconds):
        if way is self.eager and self._is_warming():
            self.warming.append(seconds)
            if not _is_clear(self.warming, min(self.followed)):
                return
        way.append(seconds)
        self._decide()

    def _is_warming(self):
        """Whether eager calls are still becoming quicker."""
        tried = self.warming
        if len(tried) >= WARMING:
            return False
        return sum(tried) <= _WARM_SECONDS or len(tried) < 2 or tried[-1] <= _SETTLED * tried[-2]

    def _decide(self):
        if not self.eager:
            return
        eager, followed = min(self.eager), min(self.followed)
        # Following may take a hundred times as long: where it did so before, one call that still does is enough.
        is_as_before = self.n_calls > _AGAIN and followed > _CLEARLY * eager
        is_clear = _is_clear(self.eager, followed) or _is_clear(self.followed, eager)
        if len(self.eager) == _TRIALS or is_clear or is_as_before:
            self.is_eager = eager < followed
            slower = self.followed if self.is_eager else self.eager
            lost = (len(slower) + (0 if self.is_eager else len(self.warming))) * abs(followed - eager)
            self.n_left = max(self.n_calls, int(lost / (_SHARE * max(min(eager, followed), _TICK))))
            self.n_calls *= _LONGER

    def described(self):
        """The two times, in us."""
        return f"{1e6 * min(self.eager):.0f} us against {1e6 * min(self.followed):.0f} us followed step by step"


def _is_clear(tried, other):
    """Whether a way is so much slower than the other one takes that it is not worth another trial."""
    if min(tried) <= _CLEARLY * other or sum(tried) <= _SECONDS:
        return False
    return tried[-1] > _ONCE or len(tried) > 1 and tried[-1] > _SETTLED * tried[-2]


def ways_of(recording):
    """The Ways of a recording; None where there is nothing to choose, or not yet."""
    if recording.ways is None:
        if recording.fullgraph or recording.replays or not _is_worth_asking(recording):
            return None
        # Where even the quickest of the last ones took long, they stand for calls that are tried.
        recording.ways = Ways(*recording.followed) if _took_long(recording) else Ways()
    return recording.ways


def _is_worth_asking(recording):
    if _took_long(recording):
        n = AFTER_NEW if recording.not_replayed is None else AFTER_LONG
        return recording.compiled_long or recording.calls >= n
    return recording.not_replayed is not None and recording.calls >= AFTER and not is_learning(recording)


def _took_long(recording):
    return min(recording.followed, default=0.0) > LONG
