"""Threads of a caller in C that run one exported program together.

All of them call the same C function (export_team.py), each with its rank. That of rank 0 calls the program, which asks
for a team as it would ask the thread pool (pool.py): `begin` waits until the others have come, and gives them the body;
`wait` is a barrier; `end` waits until they are done. The others `enter`, call the body, and `leave`. No thread is
started, and none is waited for but those of the caller. All that is shared lies in a block of memory, which is zeros
before the first call.

    generation    even: no job     odd: a body, or nothing, is there for those who have entered

A member reads the generation, says that it has entered, and waits for the next one; it says that it has left, and waits
for the one after, when the status is there. As rank 0 goes on only when all have said so, no step is missed. A thread
that waits looks at a word for a while, and then lets others have the CPU: there may be fewer CPUs than threads.
"""

from ..translate.kinds import I32, I64, Address, At, Atomic, Function, Struct
from ..translate.language import ACQ_REL, ACQUIRE, RELAXED, RELEASE, native

TEAM_BYTES = 448
_PATIENT_LOOKS = 2000


class Team(Struct):
    # The first three, and where the generation lies, are as in the pool's memory: programs know them.
    begin: Address
    wait: Address
    end: Address
    relax: Function((), I32)
    size: I64
    body: Address
    closure: Address
    extents: Address
    scratch: Address  # that of rank 1; others follow
    worker_bytes: I64
    status: I64
    generation: At(128, Atomic(I64))
    entered: At(192, Atomic(I64))
    left: At(256, Atomic(I64))
    come: At(320, Atomic(I64))
    phase: At(384, Atomic(I64))


# --- what a program calls ---------------------------------------------------------------------------------------------
@native(name="weft_team_begin")
def begin(team: Team, state: Address, body: Address, closure: Address, most: I64, ahead_ns: I64) -> I64:
    """In rank 0, with a body that all have to call."""
    looks = 0
    while team.entered.load(ACQUIRE) < team.size - 1:
        looks += 1
        if looks > _PATIENT_LOOKS:
            team.relax()
    team.body = body
    team.closure = closure
    team.generation.store(team.generation.load(RELAXED) + 1, RELEASE)
    return team.size


@native(name="weft_team_wait")
def wait(team: Team, rank: I64, size: I64, number: I64):
    """Until all have come here."""
    if size > 1:
        phase = team.phase.load(RELAXED)
        if team.come.add(1, ACQ_REL) == size - 1:
            team.come.store(0, RELAXED)
            team.phase.store(phase + 1, RELEASE)
        else:
            looks = 0
            while team.phase.load(ACQUIRE) == phase:
                looks += 1
                if looks > _PATIENT_LOOKS:
                    team.relax()


@native(name="weft_team_end")
def end(team: Team, state: Address, size: I64):
    """In rank 0, until all have done the body."""
    looks = 0
    while team.left.load(ACQUIRE) < size - 1:
        looks += 1
        if looks > _PATIENT_LOOKS:
            team.relax()


# --- what the C function calls ----------------------------------------------------------------------------------------
@native(name="weft_team_finish")
def finish(team: Team, status: I64):
    """In rank 0, after the program: let the others return."""
    team.entered.store(0, RELAXED)
    team.left.store(0, RELAXED)
    team.status = status
    team.generation.store(team.generation.load(RELAXED) + 1, RELEASE)


@native(name="weft_team_enter")
def enter(team: Team):
    """In the others, until there is a body."""
    generation = team.generation.load(ACQUIRE)
    team.entered.add(1, ACQ_REL)
    await_next(team, generation)


@native(name="weft_team_leave")
def leave(team: Team) -> I64:
    """In the others, after the body: what the program has returned."""
    generation = team.generation.load(ACQUIRE)
    team.left.add(1, ACQ_REL)
    await_next(team, generation)
    return team.status


@native()
def await_next(team: Team, generation: I64):
    looks = 0
    while team.generation.load(ACQUIRE) == generation:
        looks += 1
        if looks > _PATIENT_LOOKS:
            team.relax()


TEAM = (begin, wait, end, finish, enter, leave)
