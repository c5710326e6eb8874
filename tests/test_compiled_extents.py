"""Calls with many shapes: ragged last batches, growing sequences, evaluation at another batch size."""

import gc
import weakref

import numpy as np
import pytest

import weft
from weft import nn, signatures


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 4)
    return 4


def equal_bits(a, b):
    return a.numpy().tobytes() == b.numpy().tobytes()


def sizes_of(function):
    return [signature[0][0][0][0] for signature, _ in function._recordings.items()]


# --- signatures make room for others ----------------------------------------------------------------------------------
def test_more_signatures_than_are_kept_all_run_compiled(few):
    def double(x):
        return x * 2 + 1

    f = weft.compile(double)
    for n in range(1, 12):
        x = weft.randn(n)
        assert equal_bits(f(x), double(x))
    assert len(f.recordings) == few
    assert all(len(r.programs) == 1 and r.programs[0].calls == 1 for r in f.recordings)
    text = f.explain()
    assert "7 signature(s) that were not used lately have made room for others" in text
    assert "eager" not in text and "x: float32[10] -> float32[11]" in text


def test_a_size_that_comes_often_is_kept(few):
    f = weft.compile(lambda x: (x * x).sum())
    for n in range(1, 20):
        f(weft.randn(64))
        f(weft.randn(n))
    assert 64 in sizes_of(f)
    (recording,) = [r for s, r in f._recordings.items() if s[0][0][0] == (64,)]
    assert recording.calls == 19 and recording.usual is not None


def test_a_size_that_comes_back_is_recorded_again_and_correct(few):
    def mean(x):
        return x.mean(0)

    f = weft.compile(mean)
    for n in [3, 4, 5, 6, 7, 8, 9, 3, 3, 3, 3, 4, 12, 13, 14, 15, 16, 3]:
        x = weft.randn(n, 3)
        assert equal_bits(f(x), mean(x)), n


def test_what_was_dropped_gives_its_memory_back(few):
    f = weft.compile(lambda x: x.exp())
    programs = []
    for n in range(40_000, 40_008):
        for _ in range(4):
            f(weft.zeros(n))
        (program,) = f.recordings[-1].programs
        programs.append(weakref.ref(program))
        assert [len(pool) for pool in program.pools] != [0]
        del program
    dropped = [p() for p in programs[:-few]]
    assert all(p is None or p.pools == ([],) for p in dropped)
    del dropped
    gc.collect()
    assert [p() is not None for p in programs] == [False] * few + [True] * few


def test_a_result_outlives_its_signature(few):
    """Its backward runs after the recording has made room for others."""
    w = weft.randn(3, requires_grad=True)

    def loss(x):
        return ((x * w).tanh() ** 2).sum()

    f = weft.compile(loss)
    x = weft.randn(5, 3)
    kept = f(x)
    for n in range(6, 16):
        f(weft.randn(n, 3))
    gc.collect()
    kept.backward()
    found, w.grad = w.grad, None
    loss(x).backward()
    assert equal_bits(found, w.grad)


def test_training_over_many_batch_sizes_equals_eager_mode(few):
    def train(compiled):
        weft.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 2))
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        losses = [run(weft.randn(n, 5), weft.randn(n, 2)).item() for n in [4, 7, 4, 9, 8, 17, 4, 7, 1, 33, 9, 4]]
        return losses, [p.detach().numpy().copy() for p in model.parameters()]

    (losses, found), (eager_losses, expected) = train(True), train(False)
    assert losses == eager_losses
    assert all(np.array_equal(a, b) for a, b in zip(found, expected))
