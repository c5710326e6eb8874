"""A barrier that says who has not come to it.

    rank 0      waits for a message from each of the others, then answers all: go on, or that it has failed
    the others  say that they are there, and wait for the answer

A rank that comes too late finds the answer there already. After a failure the group is not used any more.
"""

import numpy as np

from . import checks
from .waiting import Patience

_CALL, _TAG = "monitored_barrier", 32766  # a tag that MPI has everywhere, and hardly a user
_NOTHING = np.empty(0, np.uint8)
_GO_ON, _FAILED = np.array([1], np.uint8), np.array([0], np.uint8)


def monitored_barrier(group, seconds, waits_for_all, farewells):
    """Raise a DistributedError, on all ranks, unless all have come within so many seconds of rank 0. waits_for_all: it
    names all ranks that have not, and not just the first."""
    if group.error is not None:
        raise checks.DistributedError(f"{_CALL}: the group cannot be used after an error: {group.error}")
    try:
        if group.place == 0:
            _gather(group, seconds, waits_for_all, farewells)
        else:
            _report(group, seconds, farewells)
    except checks.DistributedError as error:
        group.error = error
        raise


def _gather(group, seconds, waits_for_all, farewells):
    messages, patience = group.messages, Patience()
    awaited = {k: messages.receive(_NOTHING, _CALL, k, _TAG) for k in range(1, group.n_ranks)}
    while awaited and patience.seconds() <= seconds:
        _let_go_on(group, awaited.values())
        awaited = {k: receipt for k, receipt in awaited.items() if not receipt.has_ended}
        ended = [k for k in awaited if farewells.has_ended(group.ranks[k])]
        if ended and (len(ended) == len(awaited) or not waits_for_all):
            awaited = awaited if waits_for_all else {k: awaited[k] for k in ended}
            break
        if awaited:
            patience.pause()
    messages.awaited = [receipt for receipt in messages.awaited if receipt not in awaited.values()]
    answer = _FAILED if awaited else _GO_ON
    there = [k for k in range(1, group.n_ranks) if not farewells.has_ended(group.ranks[k])]
    messages.answers = [messages.send(answer, _CALL, k, _TAG) for k in there]  # kept while they are on their way
    if awaited:
        missing = [str(group.ranks[k]) for k in (awaited if waits_for_all else [min(awaited)])]
        who = f"Ranks {', '.join(missing)}" if waits_for_all else f"Rank {missing[0]}"
        raise checks.DistributedError(
            f"[Rank {group.ranks[0]}]: {who} failed to pass monitoredBarrier in {seconds:g} s"
        )
    _wait(group, messages.answers, seconds, farewells, 0)


def _report(group, seconds, farewells):
    sent = group.messages.send(_NOTHING, _CALL, 0, _TAG)
    answer = group.messages.receive(_GO_ON, _CALL, 0, _TAG)
    # Rank 0 may come last, and has its time from then on.
    trouble = _wait(group, [sent, answer], 2 * seconds, farewells, 0)
    if trouble is None and answer.result[0] == _FAILED[0]:
        trouble = f"Please check rank {group.ranks[0]} logs for faulty rank"
    if trouble is not None:
        raise checks.DistributedError(
            f"[Rank {group.ranks[group.place]}]: Rank {group.ranks[group.place]} successfully reached "
            f"monitoredBarrier, but received errors while waiting for rank {group.ranks[0]}. {trouble}"
        )


def _wait(group, transfers, seconds, farewells, other):
    """Wait for messages; why they have not ended, or None."""
    patience = Patience()
    while True:
        _let_go_on(group, transfers)
        if all(transfer.has_ended for transfer in transfers):
            return None
        if farewells.has_ended(group.ranks[other]) and group.place != other:
            _let_go_on(group, transfers)  # it may have answered before it ended
            if not all(transfer.has_ended for transfer in transfers):
                return f"rank {group.ranks[other]} has ended"
            return None
        if patience.seconds() > seconds:
            return f"it has not answered within {seconds:g} s"
        patience.pause()


def _let_go_on(group, transfers):
    for transfer in transfers:
        transfer.advance()
    group.advance()
