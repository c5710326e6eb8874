"""Teams in every order: whatever a member does between two waits may happen before or after what the others do.

A pool of members that take turns stands in for the real one (turn_taking.py).
"""

import os
import random

import numpy as np
import pytest
from compiled_twin import look
from random_teams import RandomTeamwork
from turn_taking import same, share_much, teams

import weft
from weft import nn
from weft.nn import functional as F

pool = pytest.fixture(teams)

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


@pytest.mark.parametrize("n", [4830, 4096, 4097, 1000])
def test_truths_change_once(n, pool):
    """A vector of truths is longer than one of floats, and than the columns that threads get of these."""
    r = np.random.default_rng(n)
    given, other, x = r.integers(0, 2, n) > 0, weft.tensor(r.integers(0, 2, n) > 0), weft.randn(n)

    def changed(truths, other, x):
        truths.logical_xor_(other)
        return x.exp()

    compiled = weft.compile(changed)
    expected, got = weft.tensor(given), weft.tensor(given)
    for _ in range(6):
        wanted = changed(expected, other, x)
        assert compiled(got, other, x).numpy().tobytes() == wanted.numpy().tobytes()
        assert got.tolist() == expected.tolist()
    assert pool.jobs


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
