"""Whether the calls of a compiled function are replayed, or run eagerly where that is quicker.

Beginning and ending a replayed call takes about a microsecond, an eager op a fifth of one. So a function of a few small
ops can be quicker without the decorator, and so can one that leaves its programs in the middle again and again, or
whose time goes into Python that eager mode need not run. The results are the same bits; so a function that has been
called some dozens of times is timed, in blocks of calls that go the one way and the other, and takes the quicker one
from then on: unless its calls take less than their ops could take eagerly. Where results are differentiated after the
call, or asked for their nodes, that is part of what calls take (runtime/state/afterwards.py): it may be slow for the
one way and quick for the other.

So is one whose calls go many ways: whose loops end after other numbers of steps, whose masks choose other numbers of
rows. What is new costs hundreds of microseconds each time, and milliseconds if it is compiled.

Whatever is quicker now may not be for ever, so there is another trial after a while: after eager calls as many as it
takes for the time that trials lose to be half a hundredth of all.
"""

from math import inf
from time import perf_counter

from .runtime.code import made_here
from .runtime.programs.recording import BACKWARD, GRADIENTS, INPUT, UPDATE
from .runtime.state.tensor import Tensor

# So many calls come before the first trial, and so many times as many before each further one.
AFTER, _LONGER = 32, 4
MOST_UNASKED = 128  # calls that come before the next question, where there was nothing to find out
ALL_FOLLOWED = 8  # so many, if all of them were followed step by step
NEVER = 2**60
LOOKED_INTO_AFTER = 32  # so many, and ever more, before one is looked into (whole_calls.py)
REPLAYED, EAGER, WARMING = "replayed", "eager", "warming"
# The calls of a trial. Those that warm count for nothing: eager mode has native code for what has come some dozens of
# times. Blocks, because calls may differ in turn.
_N = 12
TRIAL = (*[REPLAYED] * _N, *[WARMING] * 2 * _N, *([EAGER] * _N + [REPLAYED] * _N) * 2)
_HALF_WAY = 4 * _N
# No eager op takes less than so many seconds, nor does what becomes of it in a backward, or a row of an update. A call
# that is replayed in less than its steps take is quicker so.
_OP, _OP_BACK, _ROW = 0.25e-6, 0.75e-6, 0.5e-6
# A trial ends half-way where eager calls take so many times as long, and before that where all but one of them took so
# many seconds and the quickest of the last two took twice as long as replays; later where calls that are replayed may
# take some milliseconds as well. A first one that takes _ONCE ends it too. Of calls that take so long either way fewer
# are tried.
_CLEARLY, _SECONDS, _MORE_SECONDS, _ONCE, _LONGER_THAN = 8, 0.1, 0.4, 2.0, 2
_FEW = 2
# Where calls take long, one way is quicker if it takes less than so much of the other: they differ by as much.
_LONG, _MARGIN = 100e-6, 0.95
# So does one where replays take so many times as long; where eager calls won the last trial, as soon as it is certain
# that replays take even longer than so many times what those took, and so many seconds.
_HALF, _HOPELESS, _HOPELESS_SECONDS = 2, 4, 200e-6
# What a trial has cost, because half of its calls went the slower way, is at most so much of the calls before the next.
_SHARE = 0.005
# Of eager calls some are timed, for others may come: if two of them take so many times what they took in the trial,
# and longer than replays did, there is another one. Timing a call takes 3 us, so it is done once in so many seconds of
# eager calls, which are so many calls at least and at most.
_SLOWER, _TOWARDS = 2.0, 0.25
# Calls go many ways where one of so many, or more, was followed step by step since they were looked at.
_ONE_OF = 8
_MOST_NODES = 64  # that are looked at, of what a result was computed by
_LOOKED_AT_EVERY, _FEWEST, _MOST = 2e-3, 16, 4096


class Contest:
    """is_eager: whether calls run eagerly; for_nodes: they do because each would have to be run again for its nodes.
    pause: how many calls come before the next trial. seconds: what calls of the last trial took, by way. limit: of
    calls that take less replayed, nobody asks; limit_back: so much more where has_more: something is done after
    them. goes_many_ways: why there is a trial; followed: what says how many calls were followed step by step, and how
    many there were when it was asked last. eager_before: what an eager call took in the last trial, if that was quicker
    and nothing has changed since. unasked: how many calls come before the next question, where there was nothing to
    find out. look_after: how many eager calls come before one that is timed."""

    __slots__ = (
        "is_eager", "for_nodes", "pause", "seconds", "limit", "limit_back", "has_more", "goes_many_ways", "followed",
        "eager_before", "unasked", "_n_tried", "_n_left", "_n_slow", "look_after", "_slow",
    )  # fmt: skip

    def __init__(self):
        self.is_eager, self.for_nodes, self.pause, self.seconds, self.limit = False, False, AFTER, {}, 0.0
        self.goes_many_ways, self.followed, self.eager_before = False, (None, 0, 0), None
        self.limit_back, self.has_more = 0.0, False
        self._n_tried = self._n_left = self._n_slow = 0
        self.look_after, self._slow, self.unasked = _FEWEST, 0.0, AFTER

    def way(self, usual):
        """How the next call of a trial is made; None: it is over. usual: the UsualFrame that it is expected to use."""
        if self._n_tried == 0:
            self.goes_many_ways, self.has_more = self._goes_many_ways(usual), False
            self.seconds = {REPLAYED: [], EAGER: [], WARMING: []}
            self.limit, self.limit_back = (inf, 0.0) if usual is None else least_of_eager_calls(usual)
        # Whoever calls in the middle of this, such as a finalizer, may come when the last one has just been timed.
        return TRIAL[self._n_tried] if self._n_tried < len(TRIAL) else None

    def is_going_on(self):
        """Whether calls are being timed."""
        return self._n_tried > 0

    def nothing_to_find_out(self):
        """How many calls come before the next question, which takes as long as a small call."""
        self.unasked = min(2 * self.unasked, MOST_UNASKED)
        return max(self.pause, self.unasked)

    def _goes_many_ways(self, usual):
        """Whether many of the calls since the last time were followed step by step. usual: as for `way`."""
        if usual is None:
            self.followed = None, 0, 0
            return True
        recording, (before, n_calls, n_followed) = usual.recording, self.followed
        self.followed = recording, recording.calls, recording.n_followed
        if before is not recording:
            n_calls = n_followed = 0
        return _ONE_OF * (recording.n_followed - n_followed) >= recording.calls - n_calls

    def _goes_one_way(self):
        """Whether no call of a trial was followed so far."""
        recording, _, n_followed = self.followed
        return recording is not None and recording.n_followed == n_followed

    def took(self, way, seconds, seconds_after=0.0):
        """A call that was timed took so long, and so long what was done with its results. Returns how many come before
        the next one that is."""
        self.has_more = self.has_more or seconds_after > 0
        seconds += seconds_after
        if self.is_eager:
            return self._look(seconds)
        self.seconds[way].append(seconds)
        self._n_tried = self._next(way)
        if self._is_hopeless(way):
            return self.end(is_eager=True)
        if self._is_lost(way, seconds):
            return self.end(is_eager=False)
        if self._n_tried < len(TRIAL) and not self._is_won():
            return 0
        # Timing a call makes both ways slower, the eager one by up to a tenth of a microsecond more: a replay that
        # seems to be as quick is not.
        eager, replayed = self.typical(EAGER), self.typical(REPLAYED)
        return self.end(is_eager=eager < (replayed if replayed < _LONG else _MARGIN * replayed))

    def _next(self, way):
        """Where the trial goes on."""
        n = self._n_tried + 1
        n_in_block = next((k for k, other in enumerate(TRIAL[n - 1 :: -1]) if other is not way), n)
        if n_in_block >= _FEW and sum(self.seconds[way]) > self._most_seconds():
            while n < len(TRIAL) and TRIAL[n] is way:
                n += 1
        return n

    def _most_seconds(self):
        return _MORE_SECONDS if self.goes_many_ways else _SECONDS

    def _is_hopeless(self, way):
        """Whether it is certain that replays are much slower still than the eager calls of the last trial."""
        if way is not REPLAYED or self.eager_before is None or self.seconds[EAGER]:
            return False
        # Those that may not count in the end are left out now.
        least = sum(sorted(self.seconds[REPLAYED])[: -_N // 4])
        return least > max(_HOPELESS * _N * self.eager_before, _HOPELESS_SECONDS)

    def _is_won(self):
        """Whether it is clear after half of a trial that calls are quicker eagerly."""
        return self._n_tried == _HALF_WAY and self.typical(EAGER) * _HALF < self.typical(REPLAYED)

    def _is_lost(self, way, seconds):
        """Whether it is clear by now that calls are quicker replayed."""
        if self._n_tried == TRIAL.index(WARMING):
            self.goes_many_ways = self.goes_many_ways and not self._goes_one_way()
        if way is REPLAYED:
            if self.goes_many_ways:
                return False
            # Where eager calls have won before, replays that take long are no reason to go back to them.
            is_asked = self._n_tried == TRIAL.index(WARMING) and self.eager_before is None
            return is_asked and self.typical(REPLAYED) < self.limit + self.has_more * self.limit_back
        if self._n_tried == _HALF_WAY and self.typical(EAGER) > _CLEARLY * self.typical(REPLAYED):
            return True
        took = self.seconds[way]
        if len(took) == 1:
            return way is WARMING and seconds > _ONCE
        # One of them may have had to wait.
        is_long = sum(took) - max(took) > self._most_seconds()
        return is_long and min(took[-2:]) > _LONGER_THAN * self.typical(REPLAYED)

    def needs_nodes(self):
        """Calls need nodes, which eager ones have from the start. Returns how many run eagerly before one that does
        not."""
        self.is_eager = self.for_nodes = True
        return self.pause

    def end(self, is_eager):
        """The trial is over. Returns how many calls come before the next one that is timed."""
        self.is_eager, self.for_nodes = is_eager, False
        self.pause = min(max(_LONGER * self.pause, self._calls_that_pay()), NEVER)
        self._n_tried = self._n_slow = 0
        self._n_left = self.pause
        if not is_eager:
            self.eager_before = None
            return self.pause
        if self.seconds[EAGER]:
            self.eager_before = self.typical(EAGER)
        self._slow = max(_SLOWER * self.eager_before, self.typical(REPLAYED))
        self._set_look_after()
        return self.look_after

    def _set_look_after(self):
        most = min(_MOST, self.pause // 2)
        self.look_after = max(_FEWEST, min(most, int(_LOOKED_AT_EVERY / self.eager_before)))

    def _calls_that_pay(self):
        """So many eager calls take long enough for what the trial has cost by those that were not. What is only slow at
        first, such as compiling a program, is no part of what trials cost again and again; and eager calls that lost
        may become quicker soon, in which case the next trial should not be far."""
        if not self.is_eager:
            return 0
        replayed, eager = self.seconds[REPLAYED], self.seconds[EAGER]
        quicker = self.typical(EAGER) if eager else self.eager_before
        return int(len(replayed) * (_lower_mean(replayed, 3, 4) - quicker) / (_SHARE * quicker))

    def _look(self, seconds):
        """One of the eager calls after the trial took so long."""
        self._n_slow = self._n_slow + 1 if seconds > self._slow else 0
        self._n_left -= self.look_after
        if seconds < self.eager_before:
            # They become quicker yet, when what they do has come some dozens of times.
            self.eager_before += _TOWARDS * (seconds - self.eager_before)
            self._set_look_after()
        if self._n_left > 0 and self._n_slow < 2:
            return self.look_after
        if self._n_slow == 2:
            # What calls took in the last trial says nothing of these.
            self.eager_before = None
        self.is_eager = False
        return 0

    def typical(self, way):
        """What calls take: the mean of the lower three quarters, since others have waited for something; of all but a
        few where the slow ones are what it is about."""
        return _lower_mean(self.seconds[way], *((11, 12) if self.goes_many_ways else (3, 4)))

    def described(self):
        """What calls take either way."""
        more = ", with what is done with their results" if self.has_more else ""
        return f"{1e6 * self.eager_before:.3g} us against {1e6 * self.typical(REPLAYED):.3g} us replayed{more}"


def _lower_mean(seconds, part, whole):
    """The mean of all but the largest, of which part / whole are kept."""
    lower = sorted(seconds)[: max(1, len(seconds) * part // whole)]
    return sum(lower) / len(lower)


def least_of_eager_calls(usual):
    """Seconds that such a call takes in eager mode, at the very least; and those of a backward pass after it."""
    seconds = n_ops = 0
    for entry in usual.entries:
        if entry.op in (BACKWARD, GRADIENTS):
            seconds += _OP_BACK * n_ops
        elif entry.op is UPDATE:
            seconds += _ROW * entry.attributes.n_rows
        elif entry.op is not None and entry.op is not INPUT:
            n_ops += 1
    return seconds + _OP * n_ops, _OP_BACK * n_ops


def has_history(result):
    """Whether a result, or something in a container of results, requires gradients that are still to come: not those of
    a loss whose backward has been, in the call."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return any(map(has_history, result))
    return isinstance(result, Tensor) and result._requires_grad and not (result._node and _is_spent(result._node))


def _is_spent(node):
    """Whether a backward from a node has been: somewhere below, or not far below, what was saved is gone."""
    found = {node}
    waiting = [node]
    for node in waiting:
        if node.is_freed:
            return True
        if len(found) > _MOST_NODES:
            return False
        new = [below for below, _ in node.next_functions if below is not None and below not in found]
        waiting += new
        found.update(new)
    return False


def timed(function, args, kwargs):
    """(what a call gives, its seconds). What is compiled once for all eager calls to come is no part of these."""
    made, began = made_here.total(), perf_counter()
    result = function(*args, **kwargs)
    return result, perf_counter() - began - (made_here.total() - made)
