"""weft.profiler and weft.autograd.profiler: where the time of a part of a program goes, op by op.

    with weft.profiler.profile(record_shapes=True) as p:
        with weft.profiler.record_function("forward"):
            loss = model(x).sum()
        loss.backward()
    print(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))

An eager op, a node of a backward pass, a step of an optimizer and a named part are events with what happens inside of
them. So is the call of a compiled function, which runs as it does without a profile and is not looked into:
`weft.visualize.kernel_times` gives the time of each of its kernels. What is measured in eager mode takes longer than
without a profile, since each op goes the long way through Python. Only the thread that opens a profile is measured.
"""

import gzip
import os
import socket
import time
from enum import Enum

from .blocks import Block
from .profiled import EventList, FunctionEvent, FunctionEventAvg, _format_time, events_of  # noqa: F401
from .public import of_module
from .runtime.eager.profiling import Profile
from .runtime.state.modes import state

__getattr__, __dir__ = of_module(__name__)
__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "emit_itt",
    "emit_nvtx",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


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


def supported_activities():
    """What can be measured: {ProfilerActivity.CPU}."""
    return {ProfilerActivity.CPU}


def kineto_available():
    """Whether PyTorch's library for profiles on other devices is there: False."""
    return False


def _profiler_enabled():
    """Whether this thread is being measured."""
    return state.profile is not None


class record_function(Block):
    """A part of a program with a name, as a block or as a decorator: one event of a profile."""

    def __init__(self, name, args=None):
        self.name, self.args = name, args
        self._open = []

    def __enter__(self):
        profile = state.profile
        self._open.append((profile, None if profile is None else profile.begin(self.name, "part")))
        return self

    def __exit__(self, *exception):
        profile, moment = self._open.pop()
        if moment is not None:
            profile.end(moment)
        return False


class emit_nvtx(Block):
    """A block that PyTorch shows in a tool for another device. Nothing happens."""

    def __init__(self, enabled=True, record_shapes=False):
        self.enabled = enabled


class emit_itt(emit_nvtx):
    """The same for another tool."""


class _Tool:
    """Marks for another tool (weft.profiler.itt), which is not there."""

    def is_available(self):
        """False: there is no such tool to be told."""
        return False

    def _refuse(self, *arguments):
        raise RuntimeError("ITT functions not installed. Are you sure you have a ITT build?")

    range_push = range_pop = mark = _refuse


itt = _Tool()


# Options that are taken, and change nothing here.
_OTHERS = {
    "acc_events",
    "custom_trace_id_callback",
    "execution_trace_observer",
    "experimental_config",
    "post_processing_timeout_s",
    "use_cpu",
    "use_cuda",
    "use_device",
    "use_kineto",
    "with_flops",
    "with_modules",
}


class profile:
    """A block whose ops are measured; or between start() and stop().

    record_shapes: note the shapes of operands. profile_memory: note the bytes of results that are new memory.
    with_stack: note the lines of the program that lead to an op. schedule: a function from the number of a step (as
    step() counts them) to a ProfilerAction: only some steps are measured. on_trace_ready(profile) is called when steps
    that belong together have been measured, or at the end. enabled=False, which may stand first: nothing is measured.

    Raises TypeError for an option that PyTorch does not have, RuntimeError for a profile inside of another, and for
    what has been measured before it has.
    """

    def __init__(
        self,
        activities=None,
        *,
        enabled=True,
        schedule=None,
        on_trace_ready=None,
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        **others,
    ):
        unknown = sorted(set(others) - _OTHERS)
        if unknown:
            raise TypeError(f"profile.__init__() got an unexpected keyword argument {unknown[0]!r}")
        if isinstance(activities, bool):
            enabled, activities = activities, None
        self.enabled, self.activities = enabled, activities
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.step_num, self.current_action = 0, ProfilerAction.NONE
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self._open = self._events = self._step = None
        self._metadata = {}

    # --- the block --------------------------------------------------------------------------------------------------
    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()
        return False

    def start(self):
        """Begin."""
        if not self.enabled:
            return
        self.current_action = ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)
        if self.current_action in _RECORDS:
            self._begin()
        self._begin_step()

    def stop(self):
        """End, and hand over what was measured."""
        if not self.enabled:
            return
        if self._open is not None:
            self._end()
            self._hand_over()
        self.current_action = ProfilerAction.NONE

    def step(self):
        """The next step of a schedule begins."""
        if not self.enabled:
            return
        before = self.current_action
        self.step_num += 1
        if self.schedule is not None:
            self.current_action = self.schedule(self.step_num)
        self._end_step()
        if self._open is not None and (before is ProfilerAction.RECORD_AND_SAVE or self.current_action not in _RECORDS):
            self._end()
            if before is ProfilerAction.RECORD_AND_SAVE:
                self._hand_over()
        if self._open is None and self.current_action in _RECORDS:
            self._begin()
        self._begin_step()

    def _begin(self):
        profile = Profile(shapes=self.record_shapes, memory=self.profile_memory, lines=self.with_stack)
        profile.open()
        self._open, self._events = profile, None

    def _end(self):
        profile, self._open = self._open, None
        profile.close()
        self._events = events_of(profile)

    def _begin_step(self):
        if self._open is not None and self.schedule is not None:
            self._step = self._open.begin(f"ProfilerStep#{self.step_num}", "part")

    def _end_step(self):
        if self._step is not None:
            self._open.end(self._step)
            self._step = None

    def _hand_over(self):
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    # --- what was measured --------------------------------------------------------------------------------------------
    def events(self):
        """An EventList of FunctionEvents, in order of their beginning."""
        if self._events is None:
            raise RuntimeError("Profiler didn't finish running" if self.enabled else "Profiler is not enabled")
        return self._events

    @property
    def function_events(self):
        return self._events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """Events of one name added up: an EventList, whose table() is text."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self):
        """All events as one."""
        return self.events().total_average()

    @property
    def self_cpu_time_total(self):
        """Microseconds of all events."""
        return self.events().self_cpu_time_total

    def table(self, *options, **more):
        """The events as a table; the options are those of EventList.table."""
        return self.events().table(*options, **more)

    def __str__(self):
        return "<unfinished profile>" if self._events is None else str(self._events)

    def __repr__(self):
        return "<unfinished profile>" if self._events is None else repr(self._events)

    def export_chrome_trace(self, path):
        """Write a file for a viewer of traces; compressed if its name ends in .gz."""
        path = os.fspath(path)
        if not path.endswith(".gz"):
            self.events().export_chrome_trace(path)
            return
        plain = f"{path}.tmp"
        self.events().export_chrome_trace(plain)
        with open(plain, "rb") as source, gzip.open(path, "wb") as target:
            target.write(source.read())
        os.remove(plain)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write stacks and their times for a flame graph; needs with_stack=True."""
        self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path, device=None):
        raise NotImplementedError("profile.export_memory_timeline: when memory becomes free is not measured")

    def add_metadata(self, key, value):
        """Note something beside the events."""
        self._metadata[key] = value

    add_metadata_json = add_metadata


_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Which steps are measured: after the first ones, always so many that are not, so many to get warm, and so many
    that are, again and again or so often."""

    def action(step):
        step -= skip_first
        length = wait + warmup + active
        if skip_first_wait:
            step += wait
        if step < 0 or repeat and step >= repeat * length or step % length < wait:
            return ProfilerAction.NONE
        if step % length < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step % length == length - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A function for `on_trace_ready` that writes each trace as a file of a folder, which it makes."""

    def write(profiler):
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        profiler.export_chrome_trace(os.path.join(dir_name, name))

    return write
