"""Teams in every order: whatever a member does between two waits may happen before or after what the others do.

A pool made of Python threads stands in for the real one. Its members take turns: between two waits they run one after
the other, in an order drawn anew each time. A missing wait then gives wrong bits, not now and then but at once.
"""

import ctypes
import os
import random
import threading
from dataclasses import replace

import numpy as np
import pytest
from compiled_twin import look
from random_teams import RandomTeamwork

import weft
from weft import nn
from weft.compiler.emit.pool_memory import POOL_BYTES, Pool
from weft.compiler.translate.kinds import offset_of
from weft.nn import functional as F
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

    def __init__(self, seed):
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


@pytest.fixture
def pool(monkeypatch, request):
    """The TurnTaking pool that programs compiled in the test use; even small ones do."""

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
    target = replace(jit.kernel_target(), large_ns=0, wait_ns=0, move_ns_per_byte=0, **figures)
    monkeypatch.setattr(build, "kernel_target", lambda: target)


LAYERS = (
    lambda n, r: (nn.ReLU(), n),
    lambda n, r: (nn.GELU(), n),
    lambda n, r: (nn.LayerNorm(n), n),
    lambda n, r: (nn.BatchNorm1d(n), n),
    lambda n, r: (nn.Softmax(1), n),
    lambda n, r: (nn.Dropout(0.25), n),
    *[lambda n, r: (lambda m: (nn.Linear(n, m), m))(r.choice(WIDTHS))] * 5,
    lambda n, r: (nn.Linear(n, n, bias=False), n),
)
WIDTHS = (10, 16, 33, 64, 65, 80, 100, 128, 200, 256)
OPTIMIZERS = (
    lambda p: weft.optim.SGD(p, lr=0.05, momentum=0.9),
    lambda p: weft.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda p: weft.optim.Adam(p, lr=0.01),
    lambda p: weft.optim.AdamW(p, lr=0.01),
)
LOSSES = (
    lambda out, y: F.cross_entropy(out, y),
    lambda out, y: F.mse_loss(out.softmax(1), F.one_hot(y, out.shape[1]).to(out.dtype)),
    lambda out, y: (out - out.mean(0)).tanh().pow(2).sum() / len(y),
)


def trained(seed, compile):
    """What a random network's steps return, its gradients and its state after them."""
    r = random.Random(seed)
    weft.manual_seed(seed)
    dtype = r.choice((weft.float32, weft.float32, weft.float64))
    batch, width = r.choice((3, 16, 64, 65, 100, 600)), r.choice(WIDTHS)
    layers, n = [], width
    for _ in range(r.randint(2, 6)):
        layer, n = r.choice(LAYERS)(n, r)
        layers.append(layer)
    model = nn.Sequential(*layers, nn.Linear(n, 10)).to(dtype)
    optimizer, loss_of = r.choice(OPTIMIZERS)(model.parameters()), r.choice(LOSSES)
    x, y = weft.randn(batch, width, dtype=dtype), weft.randint(0, 10, (batch,))

    @compile
    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = loss_of(out, y)
        loss.backward()
        optimizer.step()
        return loss, out

    seen = [t.detach().numpy().tobytes() for _ in range(6) for t in step(x, y)]
    seen += [p.grad.numpy().tobytes() for p in model.parameters()]
    return seen + [v.numpy().tobytes() for v in model.state_dict().values()]


@pytest.mark.parametrize("seed", range(int(os.environ.get("WEFT_TEAMS", "16"))))
def test_training(seed, pool):
    assert trained(seed, weft.compile) == trained(seed, lambda f: f)
    assert pool.jobs >= 6 and pool.waits


def observed(written, compile):
    """What calls of a random function return and leave in their arguments."""
    env = {"weft": weft, "F": F}
    exec(written.source, env)
    f, arguments, seen = compile(env["f"]), written.arguments(), []
    weft.manual_seed(written.seed)
    for _ in range(4):
        try:
            seen.append(look(f(*arguments)))
        except (RuntimeError, ValueError, IndexError):
            # The words may differ; that something raises may not.
            seen.append("raised")
        seen.append(look(arguments))
        for x in arguments:
            x.grad = None
    return seen


@pytest.mark.parametrize("few_columns", [2, 64])
def test_random_functions(few_columns, pool, monkeypatch):
    """WEFT_TEAMS=1000 runs that many."""
    share_much(monkeypatch, few_columns=few_columns)
    for seed in range(int(os.environ.get("WEFT_TEAMS", "16"))):
        with np.errstate(all="ignore"):
            written = RandomTeamwork(seed * 64 + few_columns)
            expected, got = observed(written, lambda f: f), observed(written, weft.compile)
        assert got == expected, f"seed {written.seed}:\n{written.source}{written.declared}"
    assert pool.jobs and pool.waits


def same(pool, function, *arguments):
    """A function compiled, run by teams, must give the bits of eager mode."""
    expected = [x.detach().numpy().tobytes() for x in function(*arguments)]
    compiled = weft.compile(function)
    for _ in range(5):
        assert [x.detach().numpy().tobytes() for x in compiled(*arguments)] == expected
    assert pool.jobs >= 5


def test_batched_products_and_softmax(pool):
    weft.manual_seed(0)
    q, k, v = weft.randn(4, 3, 40, 32), weft.randn(4, 3, 40, 32), weft.randn(4, 3, 40, 32)
    w = weft.randn(32, 64)

    def attention(q, k, v, w):
        p = (q @ k.transpose(-1, -2) * 0.2).softmax(-1)
        out = p @ v
        return p, out, (out @ w).relu().sum((0, 1)), out.transpose(1, 2).reshape(4, 40, 96) + 1

    same(pool, attention, q, k, v, w)


def test_sums_scatters_and_reused_memory(pool):
    weft.manual_seed(0)
    x, index = weft.randn(96, 160), weft.randint(0, 96, (50,))

    def chain(x, index):
        for _ in range(4):
            x = (x.exp() - x.mean(0)).tanh()
            x = x @ (x.t() @ x) * 0.01
            x = x - x.amax(1, keepdim=True)
        return x, x[index].sum(1), x.t().contiguous(), weft.zeros(96, 160).index_add(0, index, x[:50])

    same(pool, chain, x, index)


def test_a_failed_check_changes_nothing(pool):
    weft.manual_seed(0)
    table, w = weft.randn(30, 64), weft.randn(64, 64)

    def update(table, w, index):
        y = table[index] @ w
        w -= 0.01 * (y.t() @ y).tanh()
        return (y,)

    compiled = weft.compile(update)
    good, bad = weft.randint(0, 30, (48,)), weft.full((48,), 30)
    assert compiled(table, w, good)
    before = w.numpy().copy()
    for _ in range(4):
        with pytest.raises(IndexError):
            compiled(table, w, bad)
        assert (w.numpy() == before).all()
    assert pool.jobs >= 5
