"""Whether all processes of a group call the same.

Before its data, a collective gathers from all ranks what each of them is about to do: a record of fixed size with the
op, the shape and type of its tensor, and the user's line. So a process that runs another program, or brings a tensor of
another shape, is an error on every rank instead of a wrong number or a wait without end. Lines may differ: a program
may say `if rank == 0: broadcast(a, 0) else: broadcast(b, 0)`.
"""

import numpy as np

SIZE_BYTES = 512
_BETWEEN = "\n"


class DistributedError(RuntimeError):
    """The processes of a group do not do the same, or one of them has ended."""


def record(call, line):
    """What a rank is about to do, as bytes of one size."""
    room = SIZE_BYTES - len(call.encode()) - 1
    text = f"{call}{_BETWEEN}{line[-max(room // 4, 0) :]}" if room > 0 else call
    encoded = text.encode()[:SIZE_BYTES]
    return np.frombuffer(encoded.ljust(SIZE_BYTES, b"\0"), np.uint8)


def compare(rows, ranks, number):
    """Raise a DistributedError that names ranks and lines if the records of a group's ranks differ."""
    calls = [bytes(row).rstrip(b"\0").decode(errors="replace").partition(_BETWEEN)[::2] for row in rows]
    if len({call for call, _ in calls}) == 1:
        return
    groups = {}
    for rank, (call, line) in zip(ranks, calls):
        groups.setdefault((call, line), []).append(rank)
    found = "; ".join(f"{_named(ranks)} at {line}: {call}" for (call, line), ranks in groups.items())
    raise DistributedError(
        f"the processes do not call the same as number {number} of their group: {found}. All ranks must call the same "
        "collectives in the same order, with tensors of the same shape and type"
    )


def compare_counts(sent, expected, ranks):
    """Raise a DistributedError if a rank sends another number of elements than the one it goes to expects. Row i: of
    rank i, by the ranks they go to, or come from."""
    wrong = np.argwhere(sent != expected.T)
    if len(wrong):
        i, j = wrong[0]
        raise DistributedError(
            f"all_to_all: rank {ranks[i]} sends {sent[i, j]} elements to rank {ranks[j]}, which expects "
            f"{expected[j, i]}: the tensors that ranks get must be as large as those that are sent"
        )


def _named(ranks):
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
