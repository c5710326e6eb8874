"""Whether a program takes a team, on a clock of the test's own: what calls take is given, and the ways are counted."""

import ctypes

import numpy as np
import pytest

from weft.compiler.emit.pool_choice import STATE_WORDS, Choice, learn, postpone, prefers_team
from weft.compiler.emit.pool_memory import POOL_BYTES, Pool
from weft.compiler.translate.kinds import Cell, offset_of
from weft.runtime.code import translated

_CLOCK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64 * 2))


class NativeChoice:
    """The choice of one program, in native code, in a pool with one worker. tell(which, time): the clock."""

    def __init__(self, tell):
        code = translated.load("choice", (prefers_team, postpone, learn))
        self.memory, self.state = np.zeros(POOL_BYTES // 8, np.int64), np.zeros(STATE_WORDS, np.int64)
        self.clock = _CLOCK(lambda which, time: tell(which, time.contents))
        address = ctypes.cast(self.clock, ctypes.c_void_p).value
        for field, value in {"clock": address, "threads": 2, "workers": 1}.items():
            self.memory[offset_of(Pool, field) // 8] = value
        pool, choice = self.memory.ctypes.data, self.state.ctypes.data
        kind = ctypes.PYFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2)
        self.prefers = lambda: kind(code.address("weft_pool_prefers_team"))(pool, choice)
        self.learn = lambda: kind(code.address("weft_pool_learn"))(pool, choice)
        self.postpone = lambda: kind(code.address("weft_pool_postpone"))(choice, None)


class PythonChoice:
    """The same as Python."""

    def __init__(self, tell):
        pool, choice = Pool(threads=Cell(2), workers=Cell(1), clock=tell), Choice()
        self.prefers, self.learn = lambda: prefers_team(pool, choice), lambda: learn(pool, choice)
        self.postpone = lambda: postpone(choice)


class Chooser:
    """The choice of one program; `now` is the time."""

    def __init__(self, kind):
        self.now, self.choice = 10**9, kind(self.tell)

    def tell(self, which, time):
        time[:] = divmod(self.now, 10**9)
        return 0

    def call(self, alone_ns, team_ns, comes=True):
        """One call; whether a team was asked for. `comes`: whether a worker came then."""
        is_team = bool(self.choice.prefers())
        if is_team and not comes:
            self.choice.postpone()
        self.now += team_ns if is_team else alone_ns
        self.choice.learn()
        return is_team

    def run(self, seconds, alone_ns, team_ns):
        """(share of calls in a team, share of the time that one call alone takes per call) of some seconds."""
        end, taken, begun = self.now + seconds * 10**9, [], self.now
        while self.now < end:
            # Python between two calls.
            self.now += 5_000
            taken.append(self.call(alone_ns, team_ns() if callable(team_ns) else team_ns))
        return np.mean(taken), (self.now - begun) / len(taken) / (alone_ns + 5_000)


@pytest.fixture(params=[NativeChoice, PythonChoice])
def kind(request):
    return request.param


def test_the_faster_way_is_taken(kind):
    team, _ = Chooser(kind).run(1, 90_000, 60_000)
    assert team > 0.9
    team, slowdown = Chooser(kind).run(1, 60_000, 90_000)
    assert team < 0.1 and slowdown < 1.05


def test_a_change_is_followed(kind):
    chooser = Chooser(kind)
    for alone_ns, team_ns in [(90_000, 60_000), (60_000, 90_000)] * 2:
        chooser.run(0.2, alone_ns, team_ns)
        assert (chooser.run(0.5, alone_ns, team_ns)[0] > 0.8) == (team_ns < alone_ns)


def test_workers_that_never_come_are_not_asked_for(kind):
    """The process was confined to one CPU, where asking takes 6 us."""
    chooser = Chooser(kind)
    chooser.run(0.2, 60_000, 35_000)
    asked = [chooser.call(60_000, 66_000, comes=False) for _ in range(20_000)]
    assert np.mean(asked[1000:]) < 0.1


def late(every_ns, by_ns, chooser, team_ns):
    """The time of a call in a team whose worker is late now and then."""
    due = [chooser.now + every_ns]

    def time():
        if chooser.now < due[0]:
            return team_ns
        due[0] = chooser.now + by_ns + every_ns
        return team_ns + by_ns

    return time


def test_a_rare_late_call_does_not_end_teams(kind):
    chooser = Chooser(kind)
    team, slowdown = chooser.run(5, 90_000, late(500_000_000, 4_000_000, chooser, 60_000))
    assert team > 0.9 and slowdown < 0.75


def test_calls_that_are_often_late_end_teams_though_most_are_faster(kind):
    """Four processes on two CPUs: the worker waits for its CPU for milliseconds, again and again."""
    chooser = Chooser(kind)
    chooser.run(1, 90_000, late(5_000_000, 20_000_000, chooser, 60_000))
    team, slowdown = chooser.run(5, 90_000, late(5_000_000, 20_000_000, chooser, 60_000))
    assert team < 0.1 and slowdown < 1.1


def test_one_very_late_call_ends_teams_for_a_second(kind):
    chooser = Chooser(kind)
    chooser.run(1, 90_000, 60_000)
    chooser.call(90_000, 40_000_000)
    assert chooser.run(0.3, 90_000, 60_000)[0] < 0.2
    assert chooser.run(2, 90_000, 60_000)[0] > 0.6


def test_long_calls_that_are_often_late(kind):
    chooser = Chooser(kind)
    chooser.run(20, 20_000_000, late(100_000_000, 200_000_000, chooser, 12_000_000))
    team, slowdown = chooser.run(60, 20_000_000, late(100_000_000, 200_000_000, chooser, 12_000_000))
    assert team < 0.25 and slowdown < 1.2


def test_long_calls_find_their_team_again(kind):
    """After a disturbance of 20 seconds, in half a minute; trials as long as those of short calls took a minute."""
    chooser = Chooser(kind)
    chooser.run(5, 130_000_000, 70_000_000)
    chooser.run(20, 130_000_000, 400_000_000)
    begun, in_a_row = chooser.now, 0
    while in_a_row < 6:
        in_a_row = in_a_row + 1 if chooser.call(130_000_000, 70_000_000) else 0
        assert chooser.now - begun < 40 * 10**9


def test_turns_with_somebody_else_do_not_hide_what_a_team_gains(kind):
    """Two libraries timed in turns of 10 ms: for 3 ms of ours the other's worker still looks for work on the CPU that
    our worker wants, and a trial at every beginning of a turn would see nothing else."""
    chooser, asked = Chooser(kind), []
    begun = chooser.now
    for _ in range(200):
        turn = chooser.now
        while chooser.now < turn + 10_000_000:
            is_late = chooser.now < turn + 3_000_000
            asked.append(chooser.call(100_000, 200_000 if is_late else 60_000))
        chooser.now += 10_000_000
    assert np.mean(asked[len(asked) // 2 :]) > 0.6
    assert (chooser.now - begun - 200 * 10_000_000) / len(asked) < 90_000
