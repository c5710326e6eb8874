"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable
from typing import Any
from ...nn import DataParallel as DataParallel
from ...nn import Module as Module
from . import data_parallel as data_parallel
from . import distributed as distributed
from . import scatter_gather as scatter_gather

class DistributedDataParallel(Module):
    def __init__(self, module: Any, device_ids: Any = ..., output_device: Any = ..., dim: Any = ..., broadcast_buffers: builtins.bool = ..., init_sync: builtins.bool = ..., process_group: Any = ..., bucket_cap_mb: Any = ..., find_unused_parameters: builtins.bool = ..., check_reduction: builtins.bool = ..., gradient_as_bucket_view: builtins.bool = ..., static_graph: builtins.bool = ...) -> None: ...
    def join(self, divide_by_initial_world_size: builtins.bool = ..., enable: builtins.bool = ..., throw_on_early_termination: builtins.bool = ...) -> Any: ...
    def no_sync(self) -> Any: ...
    def register_comm_hook(self, state: Any, hook: Callable[..., Any]) -> Any: ...
