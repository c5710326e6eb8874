"""weft.distributed: many processes that train together, by PyTorch's names. MPI carries what they say to each other.

    pip install 'weft[mpi]'
    mpiexec -n 4 python program.py

    weft.distributed.init_process_group("mpi")
    weft.distributed.all_reduce(x)             # in a compiled call too

docs/from_laptop_to_cluster.md shows how.
"""

from ..public import of_module
from ..runtime.distributed.checks import DistributedError as DistError
from ..runtime.distributed.endings import watch_the_beginning
from ..runtime.distributed.group import ProcessGroup, world
from ..utils.samplers import DistributedSampler
from .collectives import (
    Work,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .comm_hooks import GradBucket
from .messages import P2POp, batch_isend_irecv, irecv, isend, recv, recv_object_list, send, send_object_list
from .objects import all_gather_object, broadcast_object_list, gather_object, scatter_object_list
from .processes import (
    DebugLevel,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_debug_level,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    set_debug_level,
    split_group,
)
from .started import GroupMember, ReduceOp

__all__ = [
    "DebugLevel",
    "DistError",
    "DistributedSampler",
    "GradBucket",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_debug_level",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "set_debug_level",
    "split_group",
]
group = GroupMember
watch_the_beginning(world)

__getattr__, __dir__ = of_module(__name__)
