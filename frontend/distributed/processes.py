"""Starting and ending: the group of all processes, groups of some, and who is who."""

import os
from collections import Counter
from enum import Enum

from ..runtime.distributed import group as groups
from ..runtime.distributed import mpi
from ..runtime.distributed.group import world
from .started import GroupMember, member

default_pg_timeout = groups.DEFAULT_TIMEOUT
_LOCAL_RANK = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_BACKENDS = (None, "mpi", "cpu:mpi")


class DebugLevel(Enum):
    """How much is checked: with OFF, nothing; with INFO, as at first, and DETAIL, all ranks compare what they call
    before every collective, which costs a small message."""

    OFF, INFO, DETAIL = 0, 1, 2


_levels = [DebugLevel.INFO]


def set_debug_level(level):
    """Set how much is checked, on all ranks alike: a DebugLevel."""
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level: expected a DebugLevel such as DebugLevel.OFF, got {level!r}")
    _levels[0] = level
    world.is_checked = level is not DebugLevel.OFF


def get_debug_level():
    """The DebugLevel that `set_debug_level` has set; OFF at first."""
    return _levels[0]


def is_available():
    """Whether mpi4py is installed, so that processes can make a group."""
    return mpi.is_installed()


is_mpi_available = is_available


def _is_not_there():
    """False: weft's processes talk through MPI."""
    return False


is_nccl_available = is_gloo_available = is_ucc_available = is_xccl_available = is_torchelastic_launched = _is_not_there


def is_backend_available(backend):
    """Whether groups can be made with a backend: "mpi" alone, where mpi4py is installed."""
    return backend == "mpi" and is_available()


def is_initialized():
    """Whether init_process_group has made the group of all processes."""
    return world.group is not None


def init_process_group(
    backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", **options
):
    """Make the group of all processes that mpiexec has started.

    backend: "mpi", or None for it. timeout: how long a rank waits for others, half an hour if none is given. world_size
    and rank are what MPI says, and checked if they are given.
    """
    if backend not in _BACKENDS:
        raise ValueError(
            f"init_process_group: backend {backend!r} is not there; weft has 'mpi': init_process_group('mpi') in a "
            "program that mpiexec -n 4 python program.py starts"
        )
    if init_method not in (None, "env://") or store is not None:
        raise ValueError("init_process_group: init_method and store are not needed: mpiexec has told all processes")
    if world.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    group = groups.begin(timeout or default_pg_timeout)
    if world_size not in (-1, group.n_ranks) or rank not in (-1, group.place):
        groups.end()
        raise ValueError(
            f"init_process_group: world_size={world_size}, rank={rank}, but mpiexec has started {group.n_ranks} "
            f"process(es) and this is rank {group.place}; start with mpiexec -n {max(world_size, 1)}"
        )


def destroy_process_group(group=None):
    """Forget a group; with no argument, that of all processes."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    member(group)
    groups.end(group)


def new_group(ranks=None, timeout=None, backend=None, **options):
    """A group of some ranks. All processes call it, in the same order, those that are not in it too."""
    everybody = groups.default()
    ranks = list(range(everybody.n_ranks)) if ranks is None else sorted(ranks)
    if backend not in _BACKENDS:
        raise ValueError(f"new_group: backend {backend!r} is not there; weft has 'mpi'")
    if not ranks or len(set(ranks)) != len(ranks) or not 0 <= ranks[0] <= ranks[-1] < everybody.n_ranks:
        raise ValueError(f"new_group: ranks={ranks} are not different ones of 0 to {everybody.n_ranks - 1}")
    return groups.part(ranks, timeout or default_pg_timeout) or GroupMember.NON_GROUP_MEMBER


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, **options):
    """Groups of so many ranks each, one after the other: (that of this process, all). All processes call it.

    group: their ranks come from this one. As there is only the CPU, group_size must be given.
    """
    ranks = get_process_group_ranks(group)
    if group_size is None:
        raise ValueError("new_subgroups: give group_size; PyTorch's default is the number of GPUs of a machine")
    if group_size < 1 or len(ranks) % group_size:
        raise ValueError(f"new_subgroups: {len(ranks)} ranks cannot be parted into groups of {group_size}")
    parts = [ranks[start : start + group_size] for start in range(0, len(ranks), group_size)]
    groups_of = [new_group(part, timeout, backend) for part in parts]
    mine = next(k for k, part in enumerate(parts) if groups.default().place in part)
    return groups_of[mine], groups_of


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, **options):
    """Groups of these lists of ranks: (that of this process or None, all). All processes call it; no rank is in two."""
    lists = [list(ranks) for ranks in ranks_per_subgroup_list]
    if not lists:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty: give a list of lists of ranks")
    counts = Counter(rank for ranks in lists for rank in ranks)
    twice = [rank for rank, n in counts.items() if n > 1]
    if twice:
        raise ValueError(f"new_subgroups_by_enumeration: rank {twice[0]} is given twice; groups may not overlap")
    groups_of = [new_group(ranks, timeout, backend) for ranks in lists]
    return next((g for g, ranks in zip(groups_of, lists) if groups.default().place in ranks), None), groups_of


def split_group(parent_pg=None, split_ranks=None, timeout=None, backend=None, **options):
    """Groups of these lists of ranks, of the group of all processes, which all call it: that of this process or None.

    NotImplementedError for another parent_pg: new_group, which all processes call, makes groups of any ranks.
    """
    if member(parent_pg) is not groups.default():
        raise NotImplementedError(
            "split_group: parent_pg is not the group of all processes; let all of them call new_group(ranks)"
        )
    if not split_ranks:
        raise ValueError("split_group: split_ranks cannot be empty: give a list of lists of ranks")
    return new_subgroups_by_enumeration(split_ranks, timeout, backend)[0]


def get_node_local_rank(fallback_rank=None):
    """This process's number among those of its machine, as who started it says in the environment: LOCAL_RANK, or what
    MPICH, Open MPI and Slurm write. Without: fallback_rank, or a RuntimeError if there is none."""
    found = next((os.environ[name] for name in _LOCAL_RANK if name in os.environ), fallback_rank)
    if found is None:
        raise RuntimeError(
            f"get_node_local_rank: none of {', '.join(_LOCAL_RANK)} is in the environment; start the program with "
            "mpiexec, or give fallback_rank"
        )
    return int(found)


def get_rank(group=None):
    """This process's place in a group, that of all if none is given; -1 if it is not in it."""
    group = member(group)
    return -1 if group is None else group.place


def get_world_size(group=None):
    """How many processes are in a group, that of all if none is given; -1 if this one is not in it."""
    group = member(group)
    return -1 if group is None else group.n_ranks


def get_backend(group=None):
    """'mpi'."""
    member(group)
    return "mpi"


def get_process_group_ranks(group=None):
    """The ranks of a group, in its order."""
    return list(member(group).ranks)


def get_group_rank(group, global_rank):
    """The place in a group of a rank among all."""
    return member(group).rank_of(global_rank, "global_rank")


def get_global_rank(group, group_rank):
    """The rank among all of a place in a group."""
    ranks = member(group).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"get_global_rank: group_rank={group_rank} is not in the group, which has {len(ranks)} ranks")
    return ranks[group_rank]
