"""The part of the thread pool (pool.py) that chooses whether a program wants a team this time.

Whether workers help is not certain. Data that changes threads passes between caches, at a price that depends on where
the system happens to place the threads, and a worker may have to wait for its CPU while others compute. So a program
that shares work measures itself:

    i64 @weft_pool_prefers_team(ptr pool, ptr state)    at the beginning: the time now, or 0 for the caller alone
    void @weft_pool_postpone(ptr state)                 no worker came
    void @weft_pool_learn(ptr pool, ptr state)          at the end: takes the time

The way that was faster is taken, and now and then the other one. Results do not depend on it. A Choice is a block of
the program's own, of zeros at first.
"""

from ..translate.kinds import I64, Bool, Struct, struct_bytes
from ..translate.language import RELAXED, native, quotient
from .pool_memory import Pool, now

# The first 8 calls ask for a team. A trial has 6 calls, of which the first two are not counted, because caches and
# workers have to get used to the change; the next one comes after 32 times the time it took. Workers that were asleep
# come late to a trial, which therefore waits for them, for some calls. Other calls to which no worker came count as
# those of a team: asking takes time too, in vain where no worker may run.
FIRST_CALLS, MORE_CALLS, WARMING, REST, MOST_POSTPONED = 8, 5, 2, 32, 40
# Calls of this length see within themselves what short ones see one after the other, and a trial of six of them would
# let a program that has lost its team by chance wait for half a minute. It has three, the first of which is not
# counted.
LONG_CALL_NS, MORE_LONG_CALLS, WARMING_LONG = 4_000_000, 2, 1

# What counts is the time that the program's calls take (`spent`), not what passes between them. Where the CPUs are lent
# to somebody else in turns, a trial would be due whenever a turn begins, which is when the other's threads are still
# looking for work: of 125 eager calls timed in turns with PyTorch 53 seemed to gain nothing from a second thread.
# After the other way has become the better one, there are soon trials, because what made it so may have been such a
# moment: after twice the time of one, then four times and so on, if nothing changes.
FIRST_REST = 2

# A worker that loses its CPU makes one call late by milliseconds, and such a call should not end teams. So the estimate
# of the way that is taken follows the times by a quarter of the difference, but by no more than a sixteenth of itself;
# and a trial is judged by its mean without the worst call.
#
# Where many processes share the CPUs, late calls are not rare: most calls of a team are faster, and yet four processes
# with a team each did a third of the steps of four with one thread. So `lost` adds up by how much the calls of a team
# took longer than one alone usually takes, less what others gained, but not below 0. LOST_NS and the time of one call
# alone may be lost before teams end. Of what is beyond that, 32 times as much passes until the next trial.
LOST_NS = 16_000_000


class Choice(Struct, size_bytes=192):
    """What a program knows of its calls. A trial is a few calls that go the way that seemed slower."""

    calls: I64
    started: I64  # when the call in flight began; 0 if it is not measured
    in_team: Bool  # how this call goes
    in_a_row: I64  # calls that went this way
    alone_ns: I64  # estimates of a call's time, 0 if unknown
    team_ns: I64
    in_trial: Bool
    left: I64  # calls of the trial that are to come after this one
    trial_started: I64
    next_trial: I64
    total: I64  # of the trial's calls that count: their time, the longest, how many
    worst: I64
    count: I64
    postponed: I64
    lost: I64
    spent: I64  # the time of all calls that are measured
    rest: I64  # how many times as long as the last trial no other one comes


STATE_WORDS = struct_bytes(Choice) // 8


# --- at the beginning of a call ---------------------------------------------------------------------------------------
@native(name="weft_pool_prefers_team")
def prefers_team(pool: Pool, choice: Choice) -> I64:
    choice.started = 0
    if pool.threads.load(RELAXED) <= 1 or pool.workers.load(RELAXED) <= 0:
        return 0
    time = now(pool)
    choice.started = time
    choice.calls += 1
    before = choice.in_team
    choose(choice)
    choice.in_a_row = choice.in_a_row + 1 if choice.in_team == before else 1
    return time if choice.in_team else 0


@native(inline=True)
def choose(choice: Choice):
    """How this call goes: as the trial does, else as was faster, or the other way if a trial is due."""
    if choice.left > 0:
        choice.left -= 1
        return
    prefers = is_team_better(choice)
    tries = choice.spent >= choice.next_trial and choice.calls > FIRST_CALLS
    choice.in_trial = tries
    choice.in_team = prefers != tries
    if tries:
        usual = choice.alone_ns if choice.in_team else choice.team_ns
        choice.left = MORE_CALLS if usual < LONG_CALL_NS else MORE_LONG_CALLS
        choice.trial_started = choice.spent
        choice.postponed = 0


@native(name="weft_pool_postpone")
def postpone(choice: Choice):
    if choice.in_trial and choice.postponed < MOST_POSTPONED:
        choice.in_a_row = 0
        choice.postponed += 1
        choice.left += 1


# --- at its end -------------------------------------------------------------------------------------------------------
@native(name="weft_pool_learn")
def learn(pool: Pool, choice: Choice):
    if choice.started != 0:
        took = now(pool) - choice.started
        choice.spent += took
        warming = WARMING if took < LONG_CALL_NS else WARMING_LONG
        if choice.in_a_row > warming:
            if not choice.in_trial:
                follow(choice, took)
                return
            choice.total += took
            choice.worst = max(choice.worst, took)
            choice.count += 1
    if choice.in_trial and choice.left == 0:
        judge(choice)


@native(inline=True)
def follow(choice: Choice, took: I64):
    """What a usual call took changes the estimate a little; a team's call is compared with one alone."""
    before = is_team_better(choice)
    estimate = choice.team_ns if choice.in_team else choice.alone_ns
    most = estimate >> 4
    step = max(min((took - estimate) >> 2, most), -most)
    set_estimate(choice, took if estimate == 0 else estimate + step)
    if is_team_better(choice) != before:
        choice.rest = FIRST_REST
        choice.next_trial = min(choice.next_trial, choice.spent + took * ((MORE_CALLS + 1) * FIRST_REST))
    if choice.in_team and choice.alone_ns != 0:
        lost = max(choice.lost + took - choice.alone_ns, 0)
        bearable = choice.alone_ns + LOST_NS
        choice.lost = min(lost, bearable)
        if lost > bearable:
            choice.team_ns = 2 * choice.alone_ns
            choice.rest = REST
            choice.next_trial = choice.spent + (lost - bearable) * REST


@native(inline=True)
def judge(choice: Choice):
    """At a trial's end: its mean, without the worst call, is the new estimate."""
    before = is_team_better(choice)
    if choice.count > 1:
        set_estimate(choice, quotient(choice.total - choice.worst, choice.count - 1))
    choice.total = 0
    choice.worst = 0
    choice.count = 0
    choice.in_trial = False
    choice.rest = max(min(2 * choice.rest, REST), FIRST_REST) if is_team_better(choice) == before else FIRST_REST
    choice.next_trial = choice.spent + (choice.spent - choice.trial_started) * choice.rest


@native(inline=True)
def is_team_better(choice: Choice) -> Bool:
    return choice.alone_ns == 0 or choice.alone_ns >= choice.team_ns


@native(inline=True)
def set_estimate(choice: Choice, nanoseconds: I64):
    if choice.in_team:
        choice.team_ns = nanoseconds
    else:
        choice.alone_ns = nanoseconds
