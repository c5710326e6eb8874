"""What a profile has measured, as PyTorch shows it: events, sums over events of one name, tables, and traces.

    FunctionEvent       one op, part or call, with its times in microseconds and what happened inside of it
    FunctionEventAvg    all events of one key, added up
    EventList           events or such sums, and the tables and files that are made of them

Times are those of this process' clock; nothing here is measured on another device, so what PyTorch tells of these is 0.
"""

import json
import os
from collections import defaultdict

__all__ = ["EventList", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval"]

_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def _format_time(microseconds):
    """A time as tables show it: '1.500ms'."""
    unit = "s" if microseconds >= 1e6 else "ms" if microseconds >= 1e3 else "us"
    return _format_time_in(microseconds, unit)


def _format_time_in(microseconds, unit):
    return f"{microseconds / _UNITS[unit]:.3f}{unit}"


def _format_memory(n_bytes):
    """Memory as tables show it: '4.00 KB'."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(n_bytes) >= size:
            return f"{n_bytes / size:.2f} {unit}"
    return f"{n_bytes} B"


class Interval:
    """From `start` to `end`, in microseconds."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def elapsed_us(self):
        return self.end - self.start

    def __repr__(self):
        return f"Interval({self.start}, {self.end})"


class FormattedTimesMixin:
    """What events and their sums have in common: times per call, and times as text."""

    @property
    def cpu_time(self):
        """Microseconds of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    device_time_total = self_device_time_total = device_time = 0
    device_memory_usage = self_device_memory_usage = flops = 0

    @property
    def cpu_time_str(self):
        return _format_time(self.cpu_time)

    @property
    def cpu_time_total_str(self):
        return _format_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self):
        return _format_time(self.self_cpu_time_total)

    def __getattr__(self, name):
        # Times and memory of other devices, by the names that PyTorch has for each of them.
        words = name.removeprefix("self_").split("_")
        if words[1:] in (["time"], ["time", "total"], ["memory", "usage"]) and words[0] != "cpu":
            return 0
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class FunctionEvent(FormattedTimesMixin):
    """One thing that was measured. `cpu_children` is what happened inside of it; "self" times are without those."""

    count = 1

    def __init__(
        self,
        id,
        name,
        thread,
        start_us,
        end_us,
        overload_name="",
        fwd_thread=None,
        input_shapes=None,
        stack=None,
        scope=0,
        use_device=None,
        cpu_memory_usage=0,
        is_async=False,
        is_remote=False,
        sequence_nr=-1,
        node_id=-1,
        trace_name=None,
        is_user_annotation=False,
        **more,
    ):
        self.id, self.node_id, self.name, self.overload_name = id, node_id, name, overload_name
        self.trace_name = trace_name or name
        self.time_range = Interval(start_us, end_us)
        self.thread, self.fwd_thread, self.sequence_nr = thread, fwd_thread, sequence_nr
        self.input_shapes, self.stack, self.scope = input_shapes, stack, scope
        self.cpu_memory_usage, self.is_async, self.is_remote = cpu_memory_usage, is_async, is_remote
        self.use_device, self.is_user_annotation = use_device, is_user_annotation
        self.cpu_children, self.cpu_parent = [], None
        for other, value in more.items():
            setattr(self, other, value)

    @property
    def key(self):
        return self.name

    @property
    def cpu_time_total(self):
        return 0 if self.is_async else self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self):
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self):
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    def append_cpu_child(self, child):
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent):
        self.cpu_parent = parent

    def __repr__(self):
        inside = str([child.id for child in self.cpu_children])
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} cpu_start_us="
            f"{self.time_range.start} cpu_end_us={self.time_range.end} cpu_children={inside} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


class FunctionEventAvg(FormattedTimesMixin):
    """Events of one key, added up: `add` takes an event, or another sum of the same key."""

    def __init__(self):
        self.key = None
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.input_shapes = self.stack = self.scope = self.node_id = self.cpu_parent = None
        self.is_async = self.is_remote = False
        self.cpu_children = []

    def add(self, other):
        if self.key is None:
            self.key, self.cpu_parent, self.cpu_children = other.key, other.cpu_parent, other.cpu_children
            self.input_shapes, self.stack, self.scope = other.input_shapes, other.stack, other.scope
            self.is_async, self.is_remote, self.node_id = other.is_async, other.is_remote, other.node_id
        assert isinstance(other, (FunctionEvent, FunctionEventAvg)) and other.key == self.key
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.count += other.count
        return self

    __iadd__ = add

    def __repr__(self):
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage}>"
        )


class EventList(list):
    """Events in order of their beginning, or sums of them."""

    def __init__(self, events=(), *, profile_memory=False):
        super().__init__(events)
        self._memory = profile_memory

    def __str__(self):
        return self.table()

    def _populate_cpu_children(self):
        """Events of a thread that lie within another are inside of it: the innermost that holds them is the parent."""
        threads = defaultdict(list)
        for event in self:
            if not event.is_async:
                threads[event.thread, event.node_id].append(event)
        for events in threads.values():
            around = []
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                at = event.time_range
                while around and (at.start >= around[-1].time_range.end or at.end > around[-1].time_range.end):
                    around.pop()
                if around:
                    around[-1].append_cpu_child(event)
                    event.set_cpu_parent(around[-1])
                around.append(event)

    @property
    def self_cpu_time_total(self):
        """Microseconds of everything together."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0, group_by_overload_name=False):
        """Events of one name added up: an EventList of FunctionEventAvg. The shapes of operands, and so many lines of
        the stack, can be part of what tells them apart."""
        sums = defaultdict(FunctionEventAvg)
        for event in self:
            key = [event.key]
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n:
                key.extend((event.stack or ())[:group_by_stack_n])
            sums[tuple(key)].add(event)
        found = EventList(sums.values(), profile_memory=self._memory)
        for total in found:
            total.stack = (total.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                total.input_shapes = ""
        return found

    def total_average(self):
        """All events as one sum, of key 'Total'."""
        total = FunctionEventAvg()
        for event in self:
            total.key = event.key if total.key else None
            total.add(event)
        total.key = "Total"
        return total

    # --- text -------------------------------------------------------------------------------------------------------
    def table(
        self,
        sort_by=None,
        row_limit=100,
        max_src_column_width=75,
        max_name_column_width=55,
        max_shapes_column_width=80,
        header=None,
        top_level_events_only=False,
        time_unit=None,
    ):
        """The events as a table. sort_by: an attribute, the largest first, such as 'cpu_time_total',
        'self_cpu_time_total' or 'count'; in order if None. time_unit: 's', 'ms' or 'us' for all times.

        Raises AttributeError for an attribute that events do not have, and ValueError for another unit.
        """
        if time_unit is not None and time_unit not in _UNITS:
            raise ValueError(f"table: time_unit is {time_unit!r}; it must be 's', 'ms' or 'us'")
        events = [e for e in self if not top_level_events_only or e.cpu_parent is None]
        if sort_by is not None:
            events = sorted(events, key=lambda e: getattr(e, sort_by), reverse=True)
        total = sum(e.self_cpu_time_total for e in self)
        shown = events if row_limit < 0 else events[:row_limit]
        columns = self._columns(shown, total, time_unit, max_name_column_width, max_shapes_column_width)
        if any(e.stack for e in shown):
            columns.append(("Source Location", [_cut((e.stack or [""])[0], max_src_column_width) for e in shown]))
        lines = _lines(columns)
        if header is not None:
            lines[:0] = ["=" * len(lines[0]), header]
        return "\n".join([*lines, f"Self CPU time total: {_format_time(total)}", ""])

    def _columns(self, events, total, unit, name_width, shapes_width):
        def share(time):
            return f"{100 * time / total:.2f}%" if total else "0.00%"

        def text(time):
            return _format_time(time) if unit is None else _format_time_in(time, unit)

        columns = [
            ("Name", [_cut(e.key, name_width) for e in events]),
            ("Self CPU %", [share(e.self_cpu_time_total) for e in events]),
            ("Self CPU", [text(e.self_cpu_time_total) for e in events]),
            ("CPU total %", [share(e.cpu_time_total) for e in events]),
            ("CPU total", [text(e.cpu_time_total) for e in events]),
            ("CPU time avg", [text(e.cpu_time) for e in events]),
        ]
        if self._memory:
            columns.append(("CPU Mem", [_format_memory(e.cpu_memory_usage) for e in events]))
            columns.append(("Self CPU Mem", [_format_memory(e.self_cpu_memory_usage) for e in events]))
        columns.append(("# of Calls", [str(e.count) for e in events]))
        if any(e.input_shapes for e in events):
            columns.append(("Input Shapes", [_cut(str(e.input_shapes or []), shapes_width) for e in events]))
        return columns

    # --- files ------------------------------------------------------------------------------------------------------
    def export_chrome_trace(self, path):
        """Write the events for a viewer of traces (chrome://tracing, Perfetto)."""
        events = [
            {
                "ph": "X",
                "cat": "user_annotation" if e.is_user_annotation else "cpu_op",
                "name": e.trace_name,
                "pid": os.getpid(),
                "tid": e.thread,
                "ts": e.time_range.start,
                "dur": e.time_range.elapsed_us(),
                "args": {"Sequence number": e.sequence_nr, "Input Dims": e.input_shapes, "Call stack": e.stack},
            }
            for e in self
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events}, file)

    def supported_export_stacks_metrics(self):
        return ["self_cpu_time_total"]

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write one line for every stack, outermost function first, and its time in microseconds: for flame graphs."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                time = int(getattr(event, metric))
                if event.stack and time > 0:
                    places = [place.translate(str.maketrans(" ;\t\n", "____")) for place in reversed(event.stack)]
                    print(f"{';'.join(places)} {time}", file=file)


def _cut(text, width):
    return text if width is None or len(text) <= width else f"{text[: max(width - 3, 0)]}..."


def _lines(columns):
    """Columns of a title and texts, side by side: names to the left, all other things to the right."""
    widths = [max([len(title), *map(len, texts)]) for title, texts in columns]
    rule = "  ".join("-" * width for width in widths)
    rows = zip(*[texts for _, texts in columns])
    cells = [[title for title, _ in columns], *rows]
    texts = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
    return [rule, texts[0], rule, *texts[1:], rule]


def events_of(profile):
    """The FunctionEvents of a closed runtime Profile, as an EventList."""
    moments = profile.moments
    first = moments[0].begin if moments else 0
    events = EventList(profile_memory=profile.with_memory)
    numbers = {}
    for number, moment in enumerate(moments, 1):
        event = FunctionEvent(
            id=number,
            name=moment.name,
            thread=profile.thread,
            fwd_thread=profile.thread if moment.kind == "backward" else 0,
            start_us=(moment.begin - first) / 1000,
            end_us=(moment.end - first) / 1000,
            input_shapes=moment.shapes,
            stack=moment.lines,
            scope={"part": 7, "backward": 1}.get(moment.kind, 0),
            sequence_nr=moment.sequence,
            is_user_annotation=moment.kind == "part",
        )
        numbers[id(moment)] = event
        events.append(event)
    for moment, event in zip(moments, events):
        made, outer = moment.n_bytes, moment.outer
        if outer is not None:
            parent = numbers[id(outer)]
            parent.append_cpu_child(event)
            event.set_cpu_parent(parent)
        event.cpu_memory_usage = made
    for event in reversed(events):
        inside = sum(child.cpu_memory_usage for child in event.cpu_children)
        event.cpu_memory_usage = max(event.cpu_memory_usage, inside)
    return events
