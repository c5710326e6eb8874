"""Threads of a caller that run an exported program (compiler/emit/team.py), through all orders of their steps.

The thread of rank 0 does what one half of the C function does (compiler/export_team.py), the others what its other half
does. In the job they write, wait for each other, and read what the others wrote.
"""

import pytest
from explorer import Ref, Scenario, Wrong, explore
from explorer_code import Code

from weft.compiler.emit.team import Team, await_next, begin, end, enter, finish, leave, wait
from weft.compiler.translate.kinds import I64, Inline, Pointer, Struct


class Record(Struct):
    """Which call each member was last in."""

    data: Inline(I64, 3)


def first(team, record, size, calls):
    for call in range(calls):
        team.size = size
        begin(team, None, "job", record, 0, 0)
        job(team, record, 0, size, call + 1)
        end(team, None, size)
        for rank in range(size):
            check(record.data[rank] == -call - 1)
        finish(team, call + 1)


def member(team, record, rank, calls):
    for call in range(calls):
        enter(team)
        check(team.body == "job")
        job(team, team.closure, rank, team.size, call + 1)
        check(leave(team) == call + 1)


def job(team, record, rank, size, number):
    record.data[rank] = number
    wait(team, rank, size, number)
    for k in range(size):
        check(record.data[k] == number)
    wait(team, rank, size, number)
    record.data[rank] = -number


def check(condition):
    raise AssertionError("a model stands in its place")


def _check(step, condition):
    if not condition:
        raise Wrong("a check fails")


_NATIVE = [f.declaration.function for f in (await_next, begin, end, enter, finish, leave, wait)]
_MODELS = {"check": _check, "relax": lambda step: 0}


def run(size, calls, changes=(), buffers=False):
    code = {}
    for function in (*_NATIVE, first, member, job):
        name = function.__name__
        code[name] = Code(function, [(old, new) for f, old, new in changes if f == name], {"looks": 1})
    team, record = Ref(Pointer(Team), ("team",)), Ref(Pointer(Record), ("record",))
    threads = [(0, "first", team, record, size, calls)]
    threads += [(rank, "member", team, record, rank, calls) for rank in range(1, size)]
    return explore(Scenario(threads, code, _MODELS, set(_MODELS), {}, buffers, 10**6))


@pytest.mark.parametrize(
    ("size", "calls", "buffers"), [(2, 1, False), (2, 2, False), (2, 2, True), (3, 1, False), (3, 2, False)]
)
def test_every_order_ends_well(size, calls, buffers):
    run(size, calls, buffers=buffers)


FAULTS = {
    "a body for those who have not come": [("begin", "team.size - 1", "0")],
    "published before the body": [
        ("begin", "    team.body = body\n", ""),
        ("begin", "+ 1, RELEASE)\n", "+ 1, RELEASE)\n    team.body = body\n"),
    ],
    "published without release": [("begin", "+ 1, RELEASE)", "+ 1, RELAXED)")],
    "awaited without acquire": [("await_next", "load(ACQUIRE)", "load(RELAXED)")],
    "entered before the generation is read": [
        ("enter", "    team.entered.add(1, ACQ_REL)\n", ""),
        ("enter", "    generation = ", "    team.entered.add(1, ACQ_REL)\n    generation = "),
    ],
    "an end that waits for nobody": [("end", "size - 1", "0")],
    "left without release": [("leave", "ACQ_REL", "RELAXED")],
    "a status after the end": [
        ("finish", "    team.status = status\n", ""),
        ("finish", "+ 1, RELEASE)\n", "+ 1, RELEASE)\n    team.status = status\n"),
    ],
    "counts that are not set back": [("finish", "    team.left.store(0, RELAXED)\n", "")],
    "a barrier without release": [("wait", "phase + 1, RELEASE", "phase + 1, RELAXED")],
    "a barrier without acquire": [("wait", "team.phase.load(ACQUIRE)", "team.phase.load(RELAXED)")],
    "a barrier that forgets who came": [("wait", "            team.come.store(0, RELAXED)\n", "")],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault):
    with pytest.raises(Wrong):
        run(2, 2, FAULTS[fault])
