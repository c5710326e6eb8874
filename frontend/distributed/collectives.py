"""Collectives that write into tensors, by PyTorch's names and arguments.

Each is called by all ranks of a group. With async_op=True it returns a Work, whose wait() writes the result; what is
sent is copied when it is called. Nothing is recorded for backward: distributed.nn.functional has forms that are.
"""

from datetime import timedelta

import numpy as np

from ..futures import brought
from ..runtime.distributed import exchanges, monitored
from ..runtime.distributed import group as groups
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import Tensor, tensor_of
from . import started
from .started import ReduceOp, member, require_tensor, same_kind, values_of


class Work:
    """A collective under way."""

    def __init__(self, group, work, deliver, written=()):
        self._group, self._work, self._deliver, self._written = group, work, deliver, written

    def wait(self, timeout=None):
        """Wait until it has ended, and write its result. True.

        timeout: a datetime.timedelta, the group's if none is given. RuntimeError, naming rank and line, after it.
        """
        result = self._group.wait(self._work, seconds_of(timeout, "wait"))
        if self._deliver is not None:
            deliver, self._deliver = self._deliver, None
            deliver(result)
        return True

    def is_completed(self):
        """Whether wait() would return at once."""
        self._group.advance()
        return self._work.has_ended

    def is_success(self):
        """Whether it has ended, and without an error."""
        return self._work.has_ended and self._work.error is None

    def result(self):
        """The tensors that were given to be written, as a list. RuntimeError before the collective has ended."""
        if not self.is_completed():
            raise RuntimeError("Work needs to be completed before calling result(): call wait() first")
        self.wait()
        return list(self._written)

    def get_future(self):
        """A weft.futures.Future of the tensors that were given to be written, as a list."""
        return brought(self._waited, self.is_completed)

    def _waited(self):
        self.wait()
        return list(self._written)


def seconds_of(timeout, name):
    """A datetime.timedelta in seconds; None if it is none, or zero, which PyTorch takes for none."""
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(f"{name}: timeout is a datetime.timedelta, not {type(timeout).__name__}")
    return timeout.total_seconds() if timeout else None


def write(tensor, array):
    """Put elements into a tensor."""
    with no_grad():
        tensor.copy_(tensor_of(array.reshape(tensor.shape)))


def _ended(group, work, deliver, async_op, written=()):
    work = Work(group, work, deliver, written)
    if async_op:
        return work
    work.wait()
    return None


def place_of(group, rank, place, name, default=None):
    """The place in the group that arguments such as src and group_src mean."""
    if rank is not None and place is not None:
        raise ValueError(f"give {name} or group_{name}, not both")
    if place is not None:
        if not 0 <= place < group.n_ranks:
            raise ValueError(f"group_{name}={place} is not in the group, which has {group.n_ranks} ranks")
        return place
    if rank is None and default is None:
        raise ValueError(f"give {name}, the rank of one process")
    return group.rank_of(default if rank is None else rank, name)


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """The tensors of all ranks become one, which all have afterwards."""
    group = member(group)
    if group is None:
        return None
    return _ended(group, started.all_reduce(tensor, op, group), lambda array: write(tensor, array), async_op, [tensor])


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """The same, in the tensor of rank dst only; the others keep theirs."""
    group = member(group)
    if group is None:
        return None
    root = place_of(group, dst, group_dst, "dst")
    work = started.reduce(tensor, root, op, group)
    return _ended(group, work, lambda array: array is not None and write(tensor, array), async_op, [tensor])


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """The tensor of rank src goes to all."""
    group = member(group)
    if group is None:
        return None
    root = place_of(group, src, group_src, "src")
    deliver = None if root == group.place else lambda array: write(tensor, array)
    return _ended(group, started.broadcast(tensor, root, group), deliver, async_op, [tensor])


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """The tensors of all ranks go to all, into tensor_list."""
    group = member(group)
    if group is None:
        return None
    same_kind("all_gather", tensor_list, tensor, group.n_ranks, "tensor_list")
    return _ended(group, started.all_gather(tensor, group), _into(tensor_list), async_op, tensor_list)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all ranks go to all, one after the other in one tensor."""
    group, name = member(group), "all_gather_into_tensor"
    if group is None:
        return None
    _check_whole(name, output_tensor, input_tensor, group, "output_tensor", "input_tensor")
    work = started.all_gather(input_tensor, group, name)
    return _ended(group, work, lambda rows: write(output_tensor, rows), async_op, [output_tensor])


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """all_reduce of several tensors of one type as one: they go in one message. Each is what all_reduce makes of it."""
    group, name = member(group), "all_reduce_coalesced"
    if group is None:
        return None
    tensors = started.of_one_type(name, [tensors] if isinstance(tensors, Tensor) else tensors, "tensors")
    work = started.all_reduce_joined(tensors, op, group, name)
    return _ended(group, work, _parts_into(tensors), async_op, tensors)


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    """The lists of all ranks go to all: that of rank k into output_tensor_lists[k], whose tensors have their shapes."""
    group, name = member(group), "all_gather_coalesced"
    if group is None:
        return None
    tensors = started.of_one_type(name, input_tensor_list, "input_tensor_list")
    for k, tensor in enumerate(tensors):
        given = [row[k] if k < len(row) else None for row in output_tensor_lists]
        same_kind(name, given, tensor, group.n_ranks, f"[row[{k}] for row in output_tensor_lists]")
    written = [tensor for row in output_tensor_lists for tensor in row[: len(tensors)]]
    work = started.all_gather_joined(tensors, group, name)
    return _ended(group, work, lambda rows: _parts_into(written)(rows.reshape(-1)), async_op, written)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """The tensors of all ranks go to rank dst (0 if none is given), into its gather_list; the others give none."""
    group = member(group)
    if group is None:
        return None
    root = place_of(group, dst, group_dst, "dst", default=group.ranks[0])
    _check_list("gather", "gather_list", gather_list, tensor, group, root)
    return _ended(
        group, started.gather(tensor, root, group), gather_list and _into(gather_list), async_op, gather_list or ()
    )


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Each rank gets its tensor of the scatter_list of rank src (0 if none is given); the others give none."""
    group = member(group)
    if group is None:
        return None
    root = place_of(group, src, group_src, "src", default=group.ranks[0])
    _check_list("scatter", "scatter_list", scatter_list, tensor, group, root)
    work = started.scatter(scatter_list or None, tensor, root, group)
    return _ended(group, work, lambda array: write(tensor, array), async_op, [tensor])


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """The k-th tensors of all ranks become one, which rank k gets."""
    group = member(group)
    if group is None:
        return None
    same_kind("reduce_scatter", input_list, output, group.n_ranks, "input_list")
    return _ended(
        group, started.reduce_scatter(input_list, op, group), lambda array: write(output, array), async_op, [output]
    )


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """The tensors of all ranks become one, of which rank k gets the k-th part."""
    group, name = member(group), "reduce_scatter_tensor"
    if group is None:
        return None
    _check_whole(name, input, output, group, "input", "output")
    parts = input.reshape(group.n_ranks, -1).unbind(0)
    work = started.reduce_scatter(parts, op, group, name)
    return _ended(group, work, lambda array: write(output, array), async_op, [output])


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Rank k gets the k-th tensor of every rank's list. They may have any shapes, as long as what is sent fits."""
    group, name = member(group), "all_to_all"
    if group is None:
        return None
    for tensors, where in ((output_tensor_list, "output_tensor_list"), (input_tensor_list, "input_tensor_list")):
        if len(tensors) != group.n_ranks:
            raise ValueError(f"{name}: {where} has {len(tensors)} tensors, the group {group.n_ranks} ranks")
        for k, tensor in enumerate(tensors):
            require_tensor(tensor, name, f"{where}[{k}]")
    values = np.concatenate([values_of(x, name) for x in input_tensor_list])
    received = [x.numel() for x in output_tensor_list]
    sent = [x.numel() for x in input_tensor_list]
    work = started.all_to_all(values, input_tensor_list[0].dtype, sent, received, group)
    return _ended(group, work, _parts_into(output_tensor_list), async_op, output_tensor_list)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """The k-th part of every rank's input goes to rank k; parts are counted in the first dimension, equal if no sizes
    are given."""
    group, name = member(group), "all_to_all_single"
    if group is None:
        return None
    sent = _split(name, input, input_split_sizes, group.n_ranks, "input")
    received = _split(name, output, output_split_sizes, group.n_ranks, "output")
    work = started.all_to_all(values_of(input, name), input.dtype, sent, received, group, name)
    return _ended(group, work, lambda array: write(output, array), async_op, [output])


def barrier(group=None, async_op=False, device_ids=None):
    """Nobody goes on before all ranks have come here."""
    group = member(group)
    if group is None:
        return None
    return _ended(group, group.begin("barrier", "barrier", exchanges.barrier(group)), None, async_op)


def _into(tensors):
    def deliver(rows):
        if rows is not None:
            for tensor, row in zip(tensors, rows):
                write(tensor, row)

    return deliver


def _parts_into(tensors):
    def deliver(values):
        start = 0
        for tensor in tensors:
            write(tensor, values[start : start + tensor.numel()])
            start += tensor.numel()

    return deliver


def _split(name, tensor, sizes, n_ranks, where):
    """How many elements of a tensor belong to each rank."""
    require_tensor(tensor, name, where)
    length = tensor.shape[0] if tensor.ndim else 0
    if sizes is None and length % n_ranks:
        raise ValueError(f"{name}: {where} has {length} rows, which {n_ranks} ranks cannot share; give split sizes")
    sizes = [length // n_ranks] * n_ranks if sizes is None else list(sizes)
    if len(sizes) != n_ranks or sum(sizes) != length:
        raise ValueError(f"{name}: {where}_split_sizes={sizes} are not {n_ranks} numbers that add up to {length}")
    row = tensor.numel() // length if length else 0
    return [size * row for size in sizes]


def _check_list(name, where, tensors, like, group, root):
    """The root gives a tensor for every rank, the others none."""
    if group.place == root:
        same_kind(name, tensors or [], like, group.n_ranks, where)
    elif tensors:
        raise ValueError(f"{name}: {where} is for rank {group.ranks[root]} only; give none on other ranks")


def _check_whole(name, whole, part, group, where_whole, where_part):
    require_tensor(whole, name, where_whole)
    require_tensor(part, name, where_part)
    if whole.numel() != part.numel() * group.n_ranks or whole.dtype is not part.dtype:
        raise ValueError(
            f"{name}: {where_whole} is {whole.dtype.name} {tuple(whole.shape)}, {where_part} {part.dtype.name} "
            f"{tuple(part.shape)}; with {group.n_ranks} ranks it must have {group.n_ranks} times as many elements"
        )


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier that names who has not come to it within `timeout`, a timedelta (that of the group, if none is given).

    Rank 0 waits for the others, from when it comes. Raises DistError on all ranks if one has not come: on rank 0 it
    names the first such rank, or all of them with wait_all_ranks, and the group cannot be used any more. It takes
    longer than `barrier`.
    """
    group = member(group)
    if group is None:
        return
    seconds = seconds_of(timeout, "monitored_barrier")
    seconds = group.timeout_seconds if seconds is None else seconds
    monitored.monitored_barrier(group, seconds, wait_all_ranks, groups.world.farewells)
