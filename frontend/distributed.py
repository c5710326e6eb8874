"""weft.distributed: for programs that train in many processes only where there are many. weft trains in one.

What asks answers as PyTorch does before a process group is made; what would need others is a RuntimeError.
"""

from .public import of_module
from .utils.samplers import DistributedSampler as DistributedSampler

__getattr__, __dir__ = of_module(__name__)


def is_available():
    """False: there is no communication between processes."""
    return False


is_initialized = is_nccl_available = is_gloo_available = is_mpi_available = is_torchelastic_launched = is_available


def _refusal(name):
    return RuntimeError(
        f"{name}: weft trains in one process; run the program without a launcher, or ask "
        "weft.distributed.is_available() first"
    )


def _needing_others(name):
    def function(*arguments, **options):
        raise _refusal(name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "RuntimeError: weft trains in one process."
    return function


_NEEDING_OTHERS = str.split("""
    init_process_group destroy_process_group new_group get_rank get_world_size get_backend barrier broadcast reduce
    all_reduce all_gather all_gather_object all_gather_into_tensor broadcast_object_list gather scatter reduce_scatter
    all_to_all send recv isend irecv init_device_mesh
""")
globals().update({name: _needing_others(name) for name in _NEEDING_OTHERS})


class DistributedDataParallel:
    """RuntimeError: one process needs no wrapper."""

    def __init__(self, *arguments, **options):
        raise _refusal(type(self).__name__)
