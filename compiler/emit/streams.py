"""Stores that go past the caches: of a result so large that it would push out of them what is needed, and whose lines a
processor would first read, only to write them whole.

On Zen 3 a layer norm of 4096 x 768 with its backward, which reads 25 MB and writes 25, takes 0.8 of the time so
(docs/architecture.md). One such store per sweep, and none beside it: two that took turns line by line took longer than
ordinary ones. Rows must begin at cache lines, which a sweep asks of its first vector. Of what is read again in the
kernel nothing is streamed.
"""

from ..dtypes import SIZES
from ..extent import estimated, is_open
from ..loopnest import Extreme, Load, Loop, Store, Sweep, Update, statements
from ..target import LINE_BYTES
from .types import I64


class Streams:
    """The stores of a kernel that go past the caches, while it is written."""

    def __init__(self, b, kernel):
        self.b, self.found, self.aligned = b, _streamed(kernel, b.module.target), {}

    def begin(self, sweep, places):
        """At the beginning of a sweep; `places`: where each of its Stores begins, by id."""
        b = self.b
        for s in sweep.body:
            if id(s) in self.found:
                address = b.emit(I64, f"ptrtoint {places[id(s)][0]} to i64")
                self.aligned[id(s)] = b.cmp("eq", b.and_(address, b.i64(LINE_BYTES - 1)), b.i64(0))

    def store(self, s, value, place, mask):
        """Store a vector of a Store at a place."""
        b = self.b
        if mask is not None or id(s) not in self.aligned:
            b.store(value, place, mask)
            return
        with b.when(self.aligned[id(s)]):
            b.lines.append(f"  store {value}, {place}, align {LINE_BYTES}, !nontemporal !{{i32 1}}")
        with b.when(b.not_(self.aligned[id(s)])):
            b.store(value, place)

    def finish(self):
        """Other threads are to see what was stored."""
        if self.found:
            self.b.lines.append("  fence seq_cst")


def _streamed(kernel, target):
    """The ids of these Stores."""
    if target.streams_from_bytes is None or kernel.by_vectors:
        return frozenset()
    cut = kernel.cut and kernel.cut.along != "rows" and kernel.cut
    sizes = {p.name: SIZES[p.element] for p in kernel.parameters}
    used = {s.parameter for s in statements(kernel.body) if isinstance(s, (Load, Update, Extreme))}
    return frozenset(
        id(store)
        for sweep, around in _sweeps(kernel.body, {})
        for store in _only_store(sweep)
        if store.parameter not in used
        and (sizes[store.parameter] * kernel.lanes) % LINE_BYTES == 0
        and _begins_at_lines(store.at, sizes[store.parameter])
        and (not cut or (cut.rows == 1 and cut.unit * sizes[store.parameter] % LINE_BYTES == 0))
        and _bytes_of(store.at, sweep, around, sizes[store.parameter]) >= target.streams_from_bytes
    )


def _sweeps(body, around):
    """Every Sweep, with the extents of the loops around it by index."""
    for s in body:
        if isinstance(s, Sweep):
            yield s, around
        elif isinstance(s, Loop):
            split = {name: size for name, _, size in s.split}
            yield from _sweeps(s.body, {**around, s.index: s.extent, **split})


def _only_store(sweep):
    """The Store of a sweep that writes nothing else, if it may be streamed at all."""
    written = [s for s in sweep.body if isinstance(s, (Store, Update))]
    if sweep.unrolled or sweep.block or len(written) != 1 or not isinstance(written[0], Store):
        return []
    return [s for s in written if not is_open(s.at.lane) and s.at.lane == 1]


def _begins_at_lines(at, size):
    steps = [at.constant, *(c for _, c in at.terms)]
    return all(not is_open(c) and c * size % LINE_BYTES == 0 for c in steps)


def _bytes_of(at, sweep, around, size):
    count = estimated(sweep.extent)
    for index, _ in at.terms:
        count *= estimated(around.get(index, 1))
    return count * size
