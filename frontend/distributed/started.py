"""Collectives on tensors, begun: what a process hands to runtime/distributed, and the text by which all compare it."""

import zlib
from enum import Enum

import numpy as np

from ..runtime.distributed import exchanges, sums
from ..runtime.distributed import group as groups
from ..runtime.programs.user_lines import user_line
from ..runtime.state.modes import reading, state
from ..runtime.state.tensor import Tensor

# Of the shapes of several tensors, in what ranks compare (runtime/distributed/checks.py).
_MOST_CHARACTERS = 200


class ReduceOp(Enum):
    """How the tensors of all ranks become one, element by element, in a fixed order: the bits are the same on every
    rank, and in every run with as many processes. AVG is the sum, divided by how many there are."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = "sum", "avg", "product", "min", "max", "band", "bor", "bxor"


class _Members(type):
    @property
    def WORLD(cls):
        return groups.world.group


class GroupMember(metaclass=_Members):
    """What stands for a group: WORLD is that of all processes (None before init_process_group), NON_GROUP_MEMBER stands
    for one that a process is not in."""

    NON_GROUP_MEMBER = object()


def member(group):
    """The group that an argument means; None on a process that is not in it."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    if group is None:
        return groups.default()
    if not isinstance(group, groups.ProcessGroup):
        raise TypeError(f"group is what new_group returned, or None for all processes, not {type(group).__name__}")
    return group


def require_tensor(x, name, where="tensor"):
    """A TypeError for anything else."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__} as {where}")


def values_of(tensor, name):
    """The elements of a tensor as an array of one dimension, copied: what changes it later does not change what is on
    its way. In a compiled call a program ends here."""
    require_tensor(tensor, name)
    reason = f"{name}: processes exchange values between two programs"
    if state.frame is not None and tensor._data is not None:
        state.frame.recording.note(reason, user_line())
    with reading(reason):
        return np.array(tensor.array, order="C").reshape(-1)


def described(name, tensor, detail=""):
    return f"{name}({detail}) of {tensor.dtype.name} {tuple(tensor.shape)}"


def described_together(name, tensors, detail=""):
    """The same of several tensors of one type. What is too long to be compared as it is ends in a number made of it."""
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
    if len(shapes) > _MOST_CHARACTERS:
        shapes = f"{shapes[:_MOST_CHARACTERS]}... ({zlib.crc32(shapes.encode()):08x})"
    return f"{name}({detail}) of {len(tensors)} {tensors[0].dtype.name} {shapes}"


def of_one_type(name, tensors, where):
    """A list of the tensors; an error unless there is one, and all are tensors of one type."""
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise TypeError(f"{name}: expected a list of tensors as {where}, got {tensors!r}")
    for k, tensor in enumerate(tensors):
        require_tensor(tensor, name, f"{where}[{k}]")
        if tensor.dtype is not tensors[0].dtype:
            raise ValueError(
                f"{name}: {where}[{k}] is {tensor.dtype.name}, {where}[0] is {tensors[0].dtype.name}; all must have "
                "the same type"
            )
    return list(tensors)


def same_kind(name, tensors, like, n_tensors, where):
    """An error unless these are as many tensors as there are ranks, with the shape and type of one."""
    require_tensor(like, name)
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}: expected a list of tensors, got {type(tensors).__name__} as {where}")
    if len(tensors) != n_tensors:
        raise ValueError(f"{name}: {where} has {len(tensors)} tensors, the group {n_tensors} ranks; give one for each")
    for k, tensor in enumerate(tensors):
        require_tensor(tensor, name, f"{where}[{k}]")
        if tensor.shape != like.shape or tensor.dtype is not like.dtype:
            raise ValueError(
                f"{name}: {where}[{k}] is {tensor.dtype.name} {tuple(tensor.shape)}, the tensor is {like.dtype.name} "
                f"{tuple(like.shape)}; all must have the same shape and type"
            )


def reduction_of(name, op, tensor):
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}: op is a weft.distributed.ReduceOp such as ReduceOp.SUM, not {op!r}")
    require_tensor(tensor, name)
    sums.check(name, op.value, tensor.dtype)
    return op.value


def all_reduce(tensor, op, group, name="all_reduce"):
    reduction = reduction_of(name, op, tensor)
    phases = exchanges.all_reduce(group, values_of(tensor, name), reduction, tensor.dtype)
    return group.begin(name, described(name, tensor, reduction), phases)


def all_reduce_joined(tensors, op, group, name):
    """`tensors`: of one type, of any shapes, one after the other in the result."""
    reduction = reduction_of(name, op, tensors[0])
    phases = exchanges.all_reduce(group, _joined(tensors, name), reduction, tensors[0].dtype)
    return group.begin(name, described_together(name, tensors, reduction), phases)


def all_gather_joined(tensors, group, name):
    phases = exchanges.all_gather(group, _joined(tensors, name))
    return group.begin(name, described_together(name, tensors), phases)


def _joined(tensors, name):
    return np.concatenate([values_of(x, name) for x in tensors])


def reduce(tensor, root, op, group):
    reduction = reduction_of("reduce", op, tensor)
    phases = exchanges.reduce(group, values_of(tensor, "reduce"), root, reduction, tensor.dtype)
    return group.begin("reduce", described("reduce", tensor, f"{reduction} to {group.ranks[root]}"), phases)


def broadcast(tensor, root, group):
    phases = exchanges.broadcast(group, values_of(tensor, "broadcast"), root)
    return group.begin("broadcast", described("broadcast", tensor, f"from {group.ranks[root]}"), phases)


def all_gather(tensor, group, name="all_gather"):
    phases = exchanges.all_gather(group, values_of(tensor, name))
    return group.begin(name, described(name, tensor), phases)


def gather(tensor, root, group):
    phases = exchanges.gather(group, values_of(tensor, "gather"), root)
    return group.begin("gather", described("gather", tensor, f"to {group.ranks[root]}"), phases)


def scatter(tensors, like, root, group):
    """`tensors`: one per rank, at the root; None elsewhere. `like` has the shape and type of each."""
    rows = None if tensors is None else np.stack([values_of(x, "scatter") for x in tensors])
    empty = np.empty(like.numel(), like.dtype.numpy)
    return group.begin(
        "scatter",
        described("scatter", like, f"from {group.ranks[root]}"),
        exchanges.scatter(group, rows, empty, root),
    )


def reduce_scatter(tensors, op, group, name="reduce_scatter"):
    """`tensors`: one per rank, all alike."""
    reduction = reduction_of(name, op, tensors[0])
    whole = np.concatenate([values_of(x, name) for x in tensors])
    phases = exchanges.reduce_scatter(group, whole, reduction, tensors[0].dtype)
    return group.begin(name, described(name, tensors[0], reduction), phases)


def all_to_all(values, dtype, sent, received, group, name="all_to_all"):
    """`sent` and `received`: how many elements go to each rank and come from it. They may differ from rank to rank."""
    phases = exchanges.all_to_all(group, values, sent, received)
    return group.begin(name, f"{name} of {dtype.name}", phases)
