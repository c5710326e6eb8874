"""When the calls of a compiled function are timed, looked into, or run eagerly without being asked: its trials.

    32 calls   one that is looked into (whole_calls.py)   a trial (contest.py)   128 calls or more   ...

Native code counts the calls, and asks Python when none is left (runtime/replay/compiled_call.py).
"""

import functools
from time import perf_counter

from . import contest as contests
from . import made_anew
from .compiler.later import later
from .contest import EAGER, NEVER, REPLAYED, Contest, has_history, timed
from .runtime.eager.plan import read_natively
from .runtime.programs.program import captures
from .runtime.replay.compiled_call import EAGERLY, N_LEFT, Calls
from .runtime.replay.frame_usual import NOT_STARTED
from .runtime.replay.usual_arguments import leaves_of
from .runtime.replay.usual_end import raise_often
from .runtime.replay.usual_learning import is_learning
from .runtime.state.afterwards import Afterwards

_whole_calls = later("whole_calls:WholeCalls")
_UNASKED, _MOST_UNASKED = 256, 8192  # eager calls, before the arguments are looked at again


class Trials(Calls):
    """The part of a compiled function that decides which way its calls go."""

    def _begin_trials(self):
        self._contest = Contest()
        # How many calls come before one that is timed, and whether they run eagerly.
        self._n_left, self._eagerly = self._number(N_LEFT), self._number(EAGERLY)
        # Calls that come before one may be looked into (whole_calls.py), and those before a trial besides.
        self._whole, self._look_after, self._n_besides = None, contests.LOOKED_INTO_AFTER, 0
        self._wait(self._contest.pause)
        # A call that was timed and whose backward may come: which way it went, its seconds, what was done since.
        self._differentiated = None
        # Whether they do because all are quicker so than followed (ways.py), and how many do before one is looked at.
        self._unasked, self._n_unasked = False, _UNASKED

    def _wait(self, n):
        """So many calls come before one that is timed."""
        # Of calls that run eagerly none is looked into.
        self._n_left.value = first = n if self._contest.is_eager else min(n, self._look_after)
        self._n_besides = n - first

    def _timed(self, args, kwargs):
        """A call that is timed, to find out whether eager calls are quicker (contest.py)."""
        if self._differentiated is not None:
            self._count_all()
            if self._n_left.value > 0:
                self._call_natively()
                return self(*args, **kwargs)
        self._n_left.value, contest, n_besides = 1, self._contest, self._n_besides
        self._n_besides = 0
        if captures:
            return self(*args, **kwargs)
        if self._is_waiting():
            self._n_left.value = contest.pause
            return self(*args, **kwargs)
        if contest.is_eager and not contest.for_nodes:
            return self._looked_at(args, kwargs)
        if self._counted is not None:
            self._lasts()
        if self._unasked:
            return self._asked_again(args, kwargs)
        if contest.for_nodes:
            self._n_left.value, self._eagerly.value = contest.end(is_eager=False), False
            return self(*args, **kwargs)
        usual = None if contest.is_going_on() else self._expected(args, kwargs)
        if usual is not None and usual.segments:
            read_natively()
        if not contest.is_going_on() and (n_besides or self._fullgraph or _may_be_whole(usual)):
            return self._before_trial(usual, n_besides, args, kwargs)
        if usual is None and self._many is not None:
            usual = self._many.usual  # one that is not looked into: it is no call's alone
        way = contest.way(usual)
        if way is None:
            self._wait(contest.nothing_to_find_out())
            return self(*args, **kwargs)
        self._n_left.value = 1
        self._eagerly.value = way is not REPLAYED
        result = self._taking(way, self, args, kwargs)
        if contest.is_eager:
            self._call_natively()
        return result

    def _before_trial(self, usual, n_besides, args, kwargs):
        """A call that is expected to use this UsualFrame, so many before the next trial. It is looked into if that may
        show that calls like it do not need their Python."""
        self._wait(self._contest.nothing_to_find_out() if self._fullgraph and not n_besides else n_besides)
        leaves = leaves_of(usual, args, kwargs) if _may_be_whole(usual) else None
        if leaves is None:
            self._look_after = min(2 * self._look_after, _MOST_UNASKED)
            self._n_left.value = max(self._n_left.value, 1)  # this one, if there is no other before the trial
            return self(*args, **kwargs)
        if self._whole is None:
            self._whole = _whole_calls(self._function)
        run = functools.partial(self._begun_natively, usual, leaves, args, kwargs)
        result = self._whole.look_at(usual, leaves, args, kwargs, run)
        return self._call(usual, args, kwargs) if result is NOT_STARTED else result

    def _looked_at(self, args, kwargs):
        """One of the eager calls after a trial that they have won."""
        self._n_left.value = self._contest.look_after
        return self._taking(EAGER, self._not_followed, (args, kwargs), {})

    def _taking(self, way, function, args, kwargs):
        """What a call gives that goes this way, and how long it takes. If it raises that counts where many do."""
        began = perf_counter()
        try:
            result, seconds = timed(function, args, kwargs)
        except Exception:
            if any(map(raise_often, self.recordings)):
                self._has_taken(way, None, perf_counter() - began)
            raise
        self._has_taken(way, result, seconds)
        return result

    def _has_taken(self, way, result, seconds):
        if has_history(result):
            # The next call asks what was done with it by then, which is slow for the one way and quick for the other.
            self._differentiated, self._n_left.value = (way, seconds, Afterwards()), 0
            return
        self._counts(way, seconds)

    def _count_all(self):
        """The call that was timed last has been differentiated by now, if it ever is."""
        (way, seconds, afterwards), self._differentiated = self._differentiated or (None, 0.0, None), None
        if afterwards is not None:  # another thread may have come first
            self._counts(way, seconds, afterwards.end())

    def _counts(self, way, seconds, seconds_after=0.0):
        self._wait(self._contest.took(way, seconds, seconds_after))
        self._eagerly.value = self._contest.is_eager

    def _lasts(self):
        """It has been called more often than functions that are made anew all the time."""
        self._counted.has_lasted()
        self._counted = None
        self._eagerly.value = False

    def _stay_eager(self, ways):
        """A call runs eagerly, since that is quicker than to follow it. Where all calls are of its kind, the next ones
        do so too, without being asked."""
        n = min(ways.n_left - 1, self._n_unasked)
        if not ways.is_eager or n <= 0 or len(self._recordings) > 1 or self._contest.is_eager:
            return
        if self._counted is not None:
            self._lasts()
        ways.n_left -= n
        self._n_left.value, self._eagerly.value, self._unasked = n, True, True
        self._call_natively()

    def _asked_again(self, args, kwargs):
        """A call after many that were not asked. The more of them there have been in a row, the more follow: looking
        at one may take as long as dozens of eager calls."""
        self._n_left.value, self._eagerly.value, self._unasked = self._contest.pause, False, False
        self._n_unasked = min(2 * self._n_unasked, _MOST_UNASKED)
        result = self(*args, **kwargs)
        if not self._unasked:
            self._n_unasked = _UNASKED
        return result

    def _needs_nodes(self):
        """Calls are run again after their end, most of them: the next ones run eagerly."""
        if self._contest.pause < NEVER:
            self._differentiated = None
            self._n_left.value, self._eagerly.value = self._contest.needs_nodes(), True

    def _why_eager(self):
        """Why calls run eagerly at present, if they do."""
        if self._is_eager:
            return "as the backend that was asked for does"
        if self._contest.for_nodes:
            return "because those before were differentiated in ways for which each had to be run again"
        if self._contest.is_eager:
            return f"which was quicker: {self._contest.described()}"
        if self._eagerly.value and not self._unasked:
            n = made_anew.PAYS_AFTER
            return f"for now: the last ones that were made of the same code were called less than {n} times each"
        return None

    def _ask_soon(self):
        """No call was like two before: whether eager calls are quicker is found out sooner."""
        if self._fullgraph or self._contest.seconds or self._contest.pause == NEVER:
            return
        if self._counted is not None:
            self._counted.leave(0)
        self._n_left.value = self._n_besides = 0

    def _is_waiting(self):
        """Whether programs are being made in the background, or replays pay only after more calls: what calls take now
        says nothing of those to come."""
        if self._many is not None and self._many.postponed:
            return True
        recordings = self._recordings.values()
        if not (self._contest.is_eager or self._contest.is_going_on()) and any(map(is_learning, recordings)):
            return True
        return any(recording.is_waiting() or recording.postponed for recording in recordings)


def _may_be_whole(usual):
    """Whether it is worth finding out whether calls that use a UsualFrame need their Python; again, if what was found
    is of no use."""
    if usual is None or usual._native is None or usual.recording.calls < usual.next_look:
        return False
    whole = usual._native.whole
    return whole is None or whole.is_useless()
