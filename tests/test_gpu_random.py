"""Random functions of two tensors, with views, changes in place and gradients: on the CPU, on a GPU that is stood in
for, and compiled there, the bits are the same, call after call."""

import random

import numpy as np
import pytest
from cuda_stand_in import gpu_for_tensors

import weft
from weft.nn import functional as F


@pytest.fixture
def gpu(monkeypatch):
    return gpu_for_tensors(monkeypatch)


def normal(seed):
    return weft.tensor(np.random.default_rng(seed).standard_normal((4, 6)).astype(np.float32))


def _rest_set(p, q):
    p[1:] = q[:-1]


def _row_set(p, q):
    z = p + 0
    z[1:] = q[:-1]
    return z


NEW = [
    lambda p, q: p + q,
    lambda p, q: (p * q).sin(),
    lambda p, q: p.t().clone().t(),
    lambda p, q: p - p.mean(1, keepdim=True),
    lambda p, q: F.softmax(p, 1) @ F.softmax(q, 1).t() @ q,
    lambda p, q: F.layer_norm(p, (6,)),
    lambda p, q: weft.where(p > q, p.exp().clamp(max=3.0), q),
    lambda p, q: weft.cat([p[:2], q[2:]]),
    lambda p, q: p.detach() * q,
    lambda p, q: p.clone().mul_(q).sub_(0.25),
    _row_set,
]
CHANGES = [
    lambda p, q: p.add_(0.5),
    lambda p, q: p[0].mul_(2.0),
    _rest_set,
    lambda p, q: p.copy_(q.flip(1)),
    lambda p, q: p.clamp_(-1, 1),
    lambda p, q: p.t().mul_(0.5),
]
NAMES = [lambda p: p.detach(), lambda p: p.view(p.shape) if p.is_contiguous() else p * 1, lambda p: p.expand(p.shape)]


def made(seed, kinds):
    """A function of x and w that takes random steps of these kinds, and returns all that it has made."""
    drawn = random.Random(seed)
    steps = [(drawn.choice(kinds), drawn.random(), drawn.random()) for _ in range(drawn.randrange(4, 14))]

    def function(x, w):
        values = [x, x * 1.5, w]
        for step, a, b in steps:
            p, q = values[int(a * len(values))], values[int(b * len(values))]
            result = step(p) if step in NAMES else step(p, q)
            if step not in CHANGES:
                values.append(result)
        return values

    return function


def check(seed, run, requires_grad):
    """run(function or the compiled one, x, w) -> tensors, in three places."""
    found = []
    for place, is_compiled in (("cpu", False), ("cuda", False), ("cuda", True)):
        x, w = (normal(k).to(place).clone().requires_grad_(requires_grad) for k in (0, 1))
        step = weft.compile(run) if is_compiled else run
        found.append([t.detach().clone().cpu().numpy() for _ in range(2) for t in (*step(x, w), x, w, *grads(x, w))])
    for other in found[1:]:
        same = [np.array_equal(a, b, equal_nan=True) for a, b in zip(found[0], other, strict=True)]
        assert all(same), f"seed {seed}: tensors {[k for k, s in enumerate(same) if not s]} differ"


def grads(*leaves):
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("seed", range(12))
def test_views_and_changes_in_place(seed, gpu):
    function = made(seed, [*NEW, *CHANGES, *NAMES])
    check(seed, lambda x, w: [v.clone() for v in function(x, w)], requires_grad=False)


@pytest.mark.parametrize("seed", range(12))
def test_gradients_inside_of_the_call(seed, gpu):
    function = made(seed, NEW)

    def run(x, w):
        loss = sum((v * v).mean() for v in function(x, w)[1:])
        loss.backward()
        return [loss.detach()]

    check(seed, run, requires_grad=True)


@pytest.mark.parametrize("seed", range(6))
def test_gradients_after_the_call(seed, gpu):
    function = made(seed, NEW)
    losses = {}

    def run(x, w):
        return [sum((v * v).mean() for v in function(x, w)[1:])]

    for place, is_compiled in (("cpu", False), ("cuda", False), ("cuda", True)):
        x, w = (normal(k).to(place).clone().requires_grad_() for k in (0, 1))
        step = weft.compile(run) if is_compiled else run
        for _ in range(2):
            step(x, w)[0].backward()
        losses[place, is_compiled] = [t.tolist() for t in grads(x, w)]
    assert len({repr(found) for found in losses.values()}) == 1, f"seed {seed}"
