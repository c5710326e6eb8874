"""A pool whose members take turns, in place of the real one: what programs shared by threads are tested with.

Between two waits its members run one after the other, in an order drawn anew each time. A missing wait then gives wrong
bits, not now and then but at once.
"""

import ctypes
import random
import threading

import numpy as np

import weft
from weft.compiler.emit.pool_memory import POOL_BYTES, Pool
from weft.compiler.plain import changed
from weft.compiler.translate.kinds import offset_of
from weft.runtime.code import jit, threads
from weft.runtime.programs import program
from weft.runtime.record import build

_BEGIN = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)
_WAIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
_END = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_BODY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)
_SCRATCH_BYTES = 1 << 20
_SIZES = (2, 3, 5)


class TurnTaking:
    """A pool for one program at a time; every job has another number of members."""

    made = []  # programs that eager mode has made and keeps have its address

    def __init__(self, seed):
        self.made.append(self)
        self.random, self.size = random.Random(seed), 1
        self.scratch = np.zeros((max(_SIZES), _SCRATCH_BYTES // 8 + 8))
        self.memory = np.zeros(POOL_BYTES // 8, np.int64)
        self.functions = {"begin": _BEGIN(self.begin), "wait": _WAIT(self.wait), "end": _END(self.end)}
        for name, function in self.functions.items():
            self.memory[offset_of(Pool, name) // 8] = ctypes.cast(function, ctypes.c_void_p).value
        self.turn = threading.Condition()
        self.queue, self.members = [], []
        self.jobs = self.waits = 0

    def begin(self, pool, state, body, closure, most, ahead_ns):
        self.jobs += 1
        self.size = self.random.choice(_SIZES)
        self.memory[offset_of(Pool, "generation") // 8] += 1 << 16
        self.queue = self.shuffled()
        self.members = [threading.Thread(target=self.run, args=(body, closure, k)) for k in range(1, self.size)]
        for member in self.members:
            member.start()
        self.await_turn(0)
        return self.size

    def run(self, body, closure, rank):
        self.await_turn(rank)
        number = int(self.memory[offset_of(Pool, "generation") // 8])
        scratch = (self.scratch[rank].ctypes.data + 63) & ~63
        _BODY(body)(closure, rank, self.size, number, scratch)
        self.pass_on(rank)

    def wait(self, pool, rank, size, number):
        self.waits += rank == 0
        self.pass_on(rank)
        self.await_turn(rank)

    def end(self, pool, state, size):
        self.pass_on(0)
        for member in self.members:
            member.join()

    def shuffled(self):
        ranks = list(range(self.size))
        return self.random.choice([ranks, ranks[::-1], self.random.sample(ranks, self.size)])

    def await_turn(self, rank):
        with self.turn:
            while self.queue[:1] != [rank]:
                self.turn.wait()

    def pass_on(self, rank):
        with self.turn:
            assert self.queue.pop(0) == rank
            if not self.queue:
                self.queue = self.shuffled()
            self.turn.notify_all()


def teams(monkeypatch, request):
    """A fixture: the TurnTaking pool that programs compiled in the test use; even small ones do."""

    class NoCache:
        def get(self, key):
            return None

        def put(self, key, value):
            pass

    pool = TurnTaking(request.node.name)
    monkeypatch.setattr(program, "default_cache", NoCache)
    monkeypatch.setattr(threads, "pool_address", lambda: pool.memory.ctypes.data)
    share_much(monkeypatch)
    return pool


def share_much(monkeypatch, **figures):
    """Compile for a processor on which sharing costs nothing."""
    target = changed(jit.kernel_target(), large_ns=0, wait_ns=0, move_ns_per_byte=0, **figures)
    monkeypatch.setattr(build, "kernel_target", lambda: target)


def same(pool, function, *arguments, compiled=None):
    """A function compiled, run by teams, must give the bits of eager mode."""
    expected = [x.detach().numpy().tobytes() for x in function(*arguments)]
    compiled = compiled or weft.compile(function)
    for _ in range(5):
        assert [x.detach().numpy().tobytes() for x in compiled(*arguments)] == expected
    assert pool.jobs >= 5
