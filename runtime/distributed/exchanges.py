"""The collectives, as generators of phases (work.py) that end in a result.

Arrays are of one dimension, and go as bytes: MPI adds nothing up, sums.py does.

    all_reduce of n bytes among p processes, more than SMALL_BYTES in all:

        first    rank k gets from everybody its k-th part, n / p bytes, and adds the p parts up in the order of ranks
        second   everybody gets all parts

so a process sends and receives 2 n (p - 1) / p bytes, as in a ring, and needs n bytes besides. Smaller ones are
gathered whole by everybody in one phase, and added up everywhere: the same order, the same bits.
"""

import numpy as np

from . import checks, sums
from .work import CHECK, FIRST, SECOND, Phase

SMALL_BYTES = 32768


def as_bytes(array):
    return array.reshape(-1).view(np.uint8)


def checked(group, call, line, number, phases):
    """The phases of a collective after that in which all ranks compare what they are about to do."""
    rows = np.empty((group.n_ranks, checks.SIZE_BYTES), np.uint8)
    mine = checks.record(call, line)
    yield Phase(CHECK, lambda comm: comm.Iallgather(mine, rows), rows.size)
    checks.compare(rows, group.ranks, number)
    return (yield from phases)


def barrier(group):
    yield Phase(FIRST, lambda comm: comm.Ibarrier(), 0)


def all_reduce(group, array, reduction, dtype):
    if array.nbytes * group.n_ranks <= SMALL_BYTES:
        rows = yield from all_gather(group, array)
        return sums.combine(rows, reduction, dtype)
    mine = yield from _reduced_part(group, array, _shares(len(array), group.n_ranks), reduction, dtype)
    return (yield from _joined(group, mine, len(array)))


def reduce(group, array, root, reduction, dtype):
    """The same bits as all_reduce, at the root only; None elsewhere."""
    mine = yield from _reduced_part(group, array, _shares(len(array), group.n_ranks), reduction, dtype)
    counts = _in_bytes(_shares(len(array), group.n_ranks), array)
    whole = np.empty_like(array) if group.place == root else None
    target = None if whole is None else [as_bytes(whole), counts]
    yield Phase(SECOND, lambda comm: comm.Igatherv(as_bytes(mine), target, root), array.nbytes)
    return whole


def reduce_scatter(group, array, reduction, dtype):
    """Of as many equal parts as there are ranks, this rank's part."""
    return (yield from _reduced_part(group, array, [len(array) // group.n_ranks] * group.n_ranks, reduction, dtype))


def _reduced_part(group, array, shares, reduction, dtype):
    mine = shares[group.place]
    rows = np.empty((group.n_ranks, mine), array.dtype)
    sent, received = _in_bytes(shares, array), _in_bytes([mine] * group.n_ranks, array)
    begin = lambda comm: comm.Ialltoallv([as_bytes(array), sent], [as_bytes(rows), received])  # noqa: E731
    yield Phase(FIRST, begin, array.nbytes - rows.nbytes // group.n_ranks)
    return sums.combine(rows, reduction, dtype)


def _joined(group, mine, length):
    whole = np.empty(length, mine.dtype)
    counts = _in_bytes(_shares(length, group.n_ranks), mine)
    begin = lambda comm: comm.Iallgatherv(as_bytes(np.ascontiguousarray(mine)), [as_bytes(whole), counts])  # noqa: E731
    yield Phase(SECOND, begin, whole.nbytes - mine.nbytes)
    return whole


def all_gather(group, array):
    """Everybody's array, one per row."""
    rows = np.empty((group.n_ranks, len(array)), array.dtype)
    yield Phase(FIRST, lambda comm: comm.Iallgather(as_bytes(array), as_bytes(rows)), rows.nbytes)
    return rows


def gather(group, array, root):
    rows = np.empty((group.n_ranks, len(array)), array.dtype) if group.place == root else None
    target = None if rows is None else as_bytes(rows)
    yield Phase(FIRST, lambda comm: comm.Igather(as_bytes(array), target, root), array.nbytes * group.n_ranks)
    return rows


def scatter(group, rows, like, root):
    """This rank's row of what the root has; `rows` is None elsewhere."""
    mine = np.empty_like(like)
    source = None if rows is None else as_bytes(rows)
    yield Phase(FIRST, lambda comm: comm.Iscatter(source, as_bytes(mine), root), mine.nbytes * group.n_ranks)
    return mine


def broadcast(group, array, root):
    array = array.copy()
    yield Phase(FIRST, lambda comm: comm.Ibcast(as_bytes(array), root), array.nbytes)
    return array


def all_to_all(group, array, sent, n_received):
    """`sent`: how many elements go to each rank; n_received: how many come from each.

    These may differ from rank to rank, so no text says whether they fit: all ranks compare the numbers themselves. MPI
    would leave what does not come as it was, and part of what is too long."""
    counts = np.empty((group.n_ranks, 2, group.n_ranks), np.int64)
    mine = np.array([sent, n_received], np.int64)
    yield Phase(FIRST, lambda comm: comm.Iallgather(as_bytes(mine), as_bytes(counts)), counts.nbytes)
    checks.compare_counts(counts[:, 0], counts[:, 1], group.ranks)
    received = np.empty(sum(n_received), array.dtype)
    source = [as_bytes(array), _in_bytes(sent, array)]
    target = [as_bytes(received), _in_bytes(n_received, array)]
    yield Phase(SECOND, lambda comm: comm.Ialltoallv(source, target), array.nbytes)
    return received


def all_gather_texts(group, text):
    """Everybody's bytes, of any length, as a list."""
    lengths = np.empty(group.n_ranks, np.int64)
    mine, text = np.array([len(text)], np.int64), np.frombuffer(text, np.uint8)
    yield Phase(FIRST, lambda comm: comm.Iallgather(as_bytes(mine), as_bytes(lengths)), lengths.nbytes)
    whole, counts = np.empty(int(lengths.sum()), np.uint8), lengths.tolist()
    yield Phase(SECOND, lambda comm: comm.Iallgatherv(text, [whole, counts]), whole.nbytes)
    return [bytes(part) for part in np.split(whole, np.cumsum(counts)[:-1])]


def broadcast_text(group, text, root):
    length = np.array([0 if text is None else len(text)], np.int64)
    yield Phase(FIRST, lambda comm: comm.Ibcast(as_bytes(length), root), 8)
    whole = np.empty(int(length[0]), np.uint8) if text is None else np.frombuffer(text, np.uint8).copy()
    yield Phase(SECOND, lambda comm: comm.Ibcast(whole, root), whole.nbytes)
    return bytes(whole)


def _shares(length, n_ranks):
    """How many elements of an array each rank adds up."""
    whole, rest = divmod(length, n_ranks)
    return [whole + (rank < rest) for rank in range(n_ranks)]


def _in_bytes(counts, array):
    return [count * array.itemsize for count in counts]
