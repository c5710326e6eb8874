"""weft.profiler and weft.autograd.profiler: what programs write around the parts they would like to have measured.

The blocks run as ever and nothing is measured: `weft.visualize.kernel_times` gives the time of every kernel of a
compiled function, `explain` says what was compiled, and cProfile measures Python. A profile says so instead of a table.
"""

from enum import Enum

from .blocks import Block
from .public import of_module

__getattr__, __dir__ = of_module(__name__)
__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "emit_itt",
    "emit_nvtx",
    "profile",
    "record_function",
    "schedule",
    "tensorboard_trace_handler",
]

_INSTEAD = "weft measures nothing here: use cProfile, weft.visualize.kernel_times(f) or f.explain()"


class ProfilerActivity(Enum):
    """What there is to be measured."""

    CPU = 0
    CUDA = 1


class ProfilerAction(Enum):
    """What a schedule says of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class record_function(Block):
    """A named part of a program."""

    def __init__(self, name, args=None):
        self.name, self.args = name, args


class emit_nvtx(Block):
    """A block that PyTorch shows in a tool for another device."""

    def __init__(self, enabled=True, record_shapes=False):
        self.enabled = enabled


class emit_itt(emit_nvtx):
    """The same for another tool."""


class _Averages(list):
    """No events."""

    def table(self, *options, **more):
        return _INSTEAD

    __str__ = table


class profile(Block):
    """A block that PyTorch measures. All of its options are taken."""

    def __init__(self, *options, on_trace_ready=None, **more):
        self.options, self.on_trace_ready = more, on_trace_ready

    def start(self):
        return self.__enter__()

    def stop(self):
        self.__exit__(None, None, None)

    def step(self):
        """The next step of a schedule."""

    def events(self):
        return _Averages()

    def key_averages(self, *options, **more):
        return _Averages()

    def table(self, *options, **more):
        return _INSTEAD

    def export_chrome_trace(self, path):
        raise NotImplementedError(f"profile.export_chrome_trace: {_INSTEAD}")

    export_stacks = export_memory_timeline = export_chrome_trace


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, **more):
    """Which steps PyTorch would measure."""

    def action(step):
        step -= skip_first
        length = wait + warmup + active
        if step < 0 or repeat and step >= repeat * length or step % length < wait:
            return ProfilerAction.NONE
        if step % length < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step % length == length - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A function that would write a file."""
    return lambda profiler: None
