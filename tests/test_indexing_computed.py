"""`x[key] = value` where numbers of the key are computed in the call: caches, rings, rows that are looked up."""

import numpy as np
import pytest

import weft


def same(make, calls):
    """Call the function that `make` gives eagerly and compiled; give the compiled one."""
    eager, compiled = make(), weft.compile(make())
    for given in calls:
        for wanted, got in zip(eager(*given), compiled(*given)):
            assert got.dtype is wanted.dtype and got.numpy().tobytes() == wanted.numpy().tobytes()
    return compiled


def ring():
    buffer, count = weft.zeros(8), weft.zeros((), dtype=weft.int64)

    def push(sample):
        buffer[count % 8] = sample
        count.add_(1)
        return buffer.clone(), count.clone()

    return push


def cache():
    kept, count = weft.zeros(2, 8, 4), weft.zeros((), dtype=weft.int64)

    def step(k):
        place = (count * 3) % 8
        kept[0, place] = k
        kept[1, place, 1:3] = k[:2]
        kept[..., -1 - place, 0] = 7
        kept[:, place // 2, :] = k.double() + 1
        kept[1, place, place % 4] = 2.5
        count.add_(1)
        return (kept.clone(),)

    return step


def apart():
    x = weft.zeros(4, 5, 6, dtype=weft.float64)

    def step(i, v):
        a, b = (i * 2) % 4, (i + 1) % 5
        x[a, b] = v
        x[a, :, b] = 3
        x[:, a, b] = v[:4]
        x[None, a] = v
        x[a, None, b, :2] = 1
        x[:2, b, -1] += v[:2]
        return (x.clone(),)

    return step


def with_gradients():
    w = weft.arange(3.0)

    def step(i):
        x, weight, place = weft.zeros(2, 4, 3), w.clone().requires_grad_(), (i + 1) % 4
        x[1, place] = weight * 2
        x[:, place, 0] = weight.sum()
        x.square().sum().backward()
        return weight.grad, x.detach()

    return step


@pytest.mark.parametrize(
    "make, calls",
    [
        (ring, [(weft.tensor(float(k)),) for k in range(12)]),
        (cache, [(weft.arange(4.0) + k,) for k in range(9)]),
        (with_gradients, [(weft.tensor(k),) for k in range(6)]),
    ],
)
def test_places_that_are_computed_are_not_read(make, calls):
    assert same(make, calls).explain().startswith(("push: fast path: yes", "step: fast path: yes"))


def test_places_in_several_dimensions():
    same(apart, [(weft.tensor(k), weft.arange(6.0) + k) for k in range(7)])


def test_a_place_out_of_range():
    x = weft.zeros(4)

    @weft.compile
    def put(i):
        x[i * 2] = 1.0
        return x + 0

    assert put(weft.tensor(-1)).tolist() == [0.0, 0.0, 1.0, 0.0]
    with pytest.raises(IndexError, match="index 10 is out of"):
        put(weft.tensor(5)).tolist()


def test_a_cache_can_be_a_field_of_a_c_function():
    def make():
        kept, linear = weft.zeros(2, 8, 4), weft.arange(32.0).reshape(8, 4) / 32

        def step(x, position):
            k, v = (linear @ x).chunk(2)
            kept[0, position] = k
            kept[1, position] = v
            weights = (kept[0] @ k).masked_fill(weft.arange(8) > position, -1e9).softmax(0)
            return {"out": weights @ kept[1], "weights": weights}

        return step

    x = weft.arange(4.0)
    native, step = weft.aot(make(), (x, weft.tensor(0))), make()
    for _ in range(3):  # what finds out about a step makes three
        step(x, weft.tensor(0))
    for position in (1, 2, 5):
        for got, wanted in zip(
            native((x + position).numpy(), np.int64(position)), step(x + position, weft.tensor(position)).values()
        ):
            assert got.tobytes() == wanted.numpy().tobytes()
