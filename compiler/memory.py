"""Where every value lives: in an input, in an output, in an input it replaces, or in the arena.

Arena offsets are found by best fit over the kernels' order: a buffer is free again after its last reader, and then
preferably taken by one of the same size, of which threads may have the same parts. All begin with a cache line. Scratch
memory comes first, the same for all kernels: if it lay in the gaps between values, threads would have to wait for each
other before they write those.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import reduce
from math import prod

from .extent import estimated, identical, is_open, upper
from .joined import holders, joins_in_place
from .schedule import reads_in_step
from .target import LINE_BYTES

_ALIGNMENT = LINE_BYTES


@dataclass(frozen=True, slots=True)
class Place:
    """`kind`: "input", "output" (with the index among them) or "arena" (with the byte offset)."""

    kind: str
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """place: value number -> Place; scratch: (step, which scratch of the step) -> Place; arena_bytes in all."""

    place: dict
    scratch: dict
    arena_bytes: int


class _Arena:
    """One block that grows as needed, with gaps in what is taken of it.

        | reserved | taken | gap | taken | taken | end ...

    `gaps`: (size, about where, start) in rising order; `gap_at`, `gap_before`: their sizes by start and by end.
    Gaps of a size known at run time are in `open_gaps`: they are taken by what has the very same size.
    """

    def __init__(self, reserved):
        self.end = self.size = reserved
        self.gaps, self.open_gaps, self.gap_at, self.gap_before = [], [], {}, {}

    def take(self, size):
        size = upper(_round_up(size), _ALIGNMENT)
        found = self._fitting(size)
        if found is not None:
            gap, _, start = found
            self._close(gap, start)
            if not identical(gap, size):
                self._open(gap - size, start + size)
        else:
            start = self.end
            self.end += size
            self.size = upper(self.size, self.end)
        return start, start + size

    def _fitting(self, size):
        if is_open(size):
            return next((gap for gap in self.open_gaps if identical(gap[0], size)), None)
        k = bisect_left(self.gaps, (size,))
        return self.gaps[k] if k < len(self.gaps) else None

    def give_back(self, stretch):
        start, stop = stretch
        before, after = self.gap_before.get(_key(start)), self.gap_at.get(_key(stop))
        if before is not None:
            start -= self._close(before, start - before)
        if after is not None:
            stop += self._close(after, stop)
        if identical(stop, self.end):
            self.end = start
        else:
            self._open(stop - start, start)

    def _open(self, size, start):
        gap = size, estimated(start), start
        if is_open(size):
            self.open_gaps.append(gap)
        else:
            insort(self.gaps, gap)
        self.gap_at[_key(start)] = self.gap_before[_key(start + size)] = size

    def _close(self, size, start):
        """A gap is none any more; its size."""
        if is_open(size):
            self.open_gaps = [gap for gap in self.open_gaps if not identical(gap[2], start)]
        else:
            k = bisect_left(self.gaps, (size, estimated(start)))
            while not identical(self.gaps[k][2], start):
                k += 1
            del self.gaps[k]
        del self.gap_at[_key(start)], self.gap_before[_key(start + size)]
        return size


def _key(position):
    """What tells positions apart that are not the same for every n."""
    return str(position) if is_open(position) else position


def _round_up(size):
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def worker_bytes(sizes):
    """What scratch buffers of these sizes take, one after the other."""
    return sum(map(_round_up, sizes))


def plan_memory(schedule, steps):
    """`steps`: per kernel (its group, values it writes, values it reads, bytes of each scratch), in order."""
    graph = schedule.fusion.graph
    place = _fixed_places(schedule)
    last_use = {}
    for k, (_, _, read, _) in enumerate(steps):
        last_use.update((v.number, k) for v in read)
    holder = _joins(schedule, graph, last_use)
    joins = {join.number for join, _ in holder.values()}
    most_scratch = reduce(upper, (worker_bytes(sizes) for *_, sizes in steps), 0)
    arena, scratch, ending = _Arena(most_scratch), {}, {}
    for k, (group, written, read, sizes) in enumerate(steps):
        at = 0
        for which, size in enumerate(sizes):
            scratch[k, which] = Place("arena", at)
            at += _round_up(size)
        # What lies between the pieces of a group has negative numbers. It replaces no value, and none replaces it. Nor
        # is a join replaced, of which a part may be read elsewhere.
        now = ending.get(k, {})
        over = {v.number: v for v in read if last_use[v.number] == k and v.number >= 0 and v.number in now}
        over = {number: v for number, v in over.items() if number not in joins}
        for value in written:
            if value.number in place:
                continue
            if value.number in holder:
                _place_in_join(place, arena, ending, last_use, value, holder)
                continue
            old = _replaced(schedule, group, value, over.values()) if value.number >= 0 else None
            if old is not None:
                del over[old.number]
                stretch = ending[k].pop(old.number)
            else:
                stretch = arena.take(_n_bytes(value))
            place[value.number] = Place("arena", stretch[0])
            ending.setdefault(max(last_use.get(value.number, k), k), {})[value.number] = stretch
        for stretch in ending.pop(k, {}).values():
            arena.give_back(stretch)
    assert not ending, f"{graph.name}: buffers never given back"
    return MemoryPlan(place, scratch, arena.size)


def _joins(schedule, graph, last_use):
    """{number of a value: (the join that it is a part of, bytes from its start)}. A join lives as long as its parts."""
    holder = holders(joins_in_place(schedule))
    for number, (join, _) in holder.items():
        last_use[join] = max(last_use.get(join, -1), last_use.get(number, -1))
    return {number: (graph.values[join], start) for number, (join, start) in holder.items()}


def _place_in_join(place, arena, ending, last_use, value, holder):
    """The first part that is written takes memory for the join, and for the joins in it, which no kernel writes."""
    join, _ = holder[value.number]
    stretch = arena.take(_n_bytes(join))
    ending.setdefault(last_use[join.number], {})[join.number] = stretch
    place[join.number] = Place("arena", stretch[0])
    for number, (other, start) in holder.items():
        if other is join:
            place[number] = Place("arena", stretch[0] + start)


def _n_bytes(value):
    return prod(value.shape) * value.dtype.size_bytes


def _replaced(schedule, group, value, candidates):
    """A value nobody reads after this kernel, whose memory the kernel may write the new value to, element by element:
    half the memory to touch, and each thread's part of it stays with the thread."""
    if group is None:
        return None
    reads, stored = schedule.fusion.reads, schedule.stored
    for old in candidates:
        same_size = identical(prod(old.shape), prod(value.shape)) and old.dtype.size_bytes == value.dtype.size_bytes
        if same_size and reads_in_step(reads, group, value, old, stored):
            return old
    return None


def _fixed_places(schedule):
    graph, accesses = schedule.fusion.graph, schedule.fusion.reads.accesses
    inputs = {v: k for k, v in enumerate(graph.inputs())}
    place = {v.number: Place("input", k) for v, k in inputs.items()}
    for k, v in enumerate(graph.outputs):
        place[accesses[v.number].base.number] = Place("output", k)
    for base, target in schedule.in_place.items():
        place[base.number] = Place("input", inputs[target])
    return place
