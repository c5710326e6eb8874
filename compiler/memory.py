"""Where every value lives: in an input, in an output, in an input it replaces, or in the arena.

Arena offsets are found by first fit over the kernels' order: a buffer is free again after its last reader. All are
aligned to 64 bytes.
"""

from bisect import insort
from dataclasses import dataclass
from math import prod

_ALIGNMENT = 64


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
    """Free and taken stretches of one block that grows as needed."""

    def __init__(self):
        self.taken = []
        self.size = 0

    def take(self, size):
        size = max(_round_up(size), _ALIGNMENT)
        at = 0
        for start, stop in self.taken:
            if start - at >= size:
                break
            at = max(at, stop)
        insort(self.taken, (at, at + size))
        self.size = max(self.size, at + size)
        return at, at + size

    def give_back(self, stretch):
        self.taken.remove(stretch)


def _round_up(size):
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def worker_bytes(sizes):
    """What a worker thread needs for scratch buffers of these sizes, one after the other."""
    return sum(map(_round_up, sizes))


def plan_memory(schedule, steps):
    """`steps`: per kernel (values it writes, values it reads, bytes of each scratch), in order."""
    graph = schedule.fusion.graph
    place = _fixed_places(schedule)
    last_use = {}
    for k, (_, read, _) in enumerate(steps):
        last_use.update((v.number, k) for v in read)
    arena, scratch, ending = _Arena(), {}, {}
    for k, (written, _, scratch_bytes) in enumerate(steps):
        stretches = []
        for value in written:
            if value.number in place:
                continue
            stretch = arena.take(prod(value.shape) * value.dtype.size_bytes)
            place[value.number] = Place("arena", stretch[0])
            ending.setdefault(max(last_use.get(value.number, k), k), []).append(stretch)
        for which, size in enumerate(scratch_bytes):
            stretches.append(arena.take(size))
            scratch[k, which] = Place("arena", stretches[-1][0])
        for stretch in stretches + ending.pop(k, []):
            arena.give_back(stretch)
    assert not ending, f"{graph.name}: buffers never given back"
    return MemoryPlan(place, scratch, arena.size)


def _fixed_places(schedule):
    graph, accesses = schedule.fusion.graph, schedule.fusion.reads.accesses
    inputs = {v: k for k, v in enumerate(graph.inputs())}
    place = {v.number: Place("input", k) for v, k in inputs.items()}
    for k, v in enumerate(graph.outputs):
        place[accesses[v.number].base.number] = Place("output", k)
    for base, target in schedule.in_place.items():
        place[base.number] = Place("input", inputs[target])
    return place
