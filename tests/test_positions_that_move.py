"""Python numbers in keys that are others in every call: caches filled by position, rings, windows.

The bits are the same however often calls change between replays, trials and eager ones, and there is no program for
each of many positions.
"""

import pytest
from compiled_twin import assert_same

import weft
from weft import contest

CALLS = 150


@pytest.fixture(autouse=True, params=["replayed", "with trials"])
def trials(request, monkeypatch):
    if request.param == "with trials":
        monkeypatch.setattr(contest, "AFTER", 8)


def cache_in_a_dictionary(compile):
    to_all, cache = weft.nn.Linear(8, 24), {"k": weft.zeros(2, 16, 8), "v": weft.zeros(2, 16, 8)}

    @compile
    @weft.no_grad()
    def token(x, cache, t):
        q, k, v = to_all(x).chunk(3, -1)
        cache["k"][:, t], cache["v"][:, t] = k, v
        weights = (q[:, None] @ cache["k"][:, : t + 1].mT / 8**0.5).softmax(-1)
        return (weights @ cache["v"][:, : t + 1]).squeeze(1)

    for n in range(CALLS):
        yield token(weft.randn(2, 8), cache, n % 16)
    yield cache


def cache_of_a_module(compile):
    class Layer(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.t = weft.nn.Linear(8, 8), 0
            self.register_buffer("k", weft.zeros(1, 2, 16, 8))

        def forward(self, x):
            h = self.linear(x).view(1, 2, 1, 8)
            self.k[:, :, self.t : self.t + 1] = h
            self.t = (self.t + 1) % 16
            return (self.k * h).sum((-1, -2))

    layer = Layer().eval()
    forward = compile(layer)
    for _ in range(CALLS):
        with weft.no_grad():
            yield forward(weft.randn(2, 8))
    yield layer.k


def rows_of_a_ring(compile):
    ring, seen = weft.zeros(10, 4), [0]

    @compile
    def push(x):
        ring[seen[0] % 10] = x
        seen[0] += 1
        return ring.mean(0), ring[-1]

    for _ in range(CALLS):
        yield push(weft.randn(4))


def windows_of_a_series(compile):
    series, w = weft.randn(200, 4), weft.randn(4, requires_grad=True)

    @compile
    def step(start):
        part = series[start : start + 16]
        ((part @ w).tanh() - part[:, 0]).square().mean().backward()
        with weft.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return part.sum()

    for n in range(CALLS):
        yield step(7 * n % 180), w.detach().clone()


def two_bounds(compile):
    matrix = weft.randn(12, 12)
    f = compile(lambda i, *, j: (matrix[i, : j + 1].sum(), matrix[i:, j] * 2, matrix[-i - 1]))
    for n in range(CALLS):
        yield f(n % 12, j=5 * n % 12)


def added_in_place(compile):
    x = weft.zeros(40)

    @compile
    def f(i):
        x[i : i + 4] += 1.0
        x[i] *= 0.5
        return x[i : i + 2] * 2

    for n in range(CALLS):
        yield f(n % 36)
    yield x


def generated(compile):
    words, out, cache = weft.nn.Embedding(20, 8), weft.nn.Linear(8, 20), weft.zeros(1, 24, 8)

    @compile
    @weft.no_grad()
    def token(word, t):
        cache[:, t : t + 1] = words(word)
        seen = cache[:, : t + 1]
        return out((words(word) @ seen.mT).softmax(-1) @ seen)[:, -1].argmax(-1, keepdim=True)

    for n in range(12):
        word = weft.tensor([[n]])
        for t in range(12):
            word = token(word, t)
            yield word


def history_of_a_list(compile):
    linear, past = weft.nn.Linear(8, 8), []

    @compile
    @weft.no_grad()
    def step(x, past, at):
        if len(past) <= at:
            past.append(linear(x))
        else:
            past[at] = linear(x)
        return weft.stack(past[: at + 1], 1).mean(1)

    for n in range(60):
        yield step(weft.randn(2, 8), past, n % 6)


SCENARIOS = (
    cache_in_a_dictionary, cache_of_a_module, rows_of_a_ring, windows_of_a_series, two_bounds, added_in_place,
    generated, history_of_a_list,
)  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_bits_are_those_of_eager_mode(scenario):
    assert_same(scenario)


def test_a_cache_does_not_get_a_program_for_each_position():
    made = []

    def kept(function):
        made.append(weft.compile(function))
        return made[-1]

    for _ in cache_in_a_dictionary(kept):
        pass
    (recording,) = made[0].recordings
    assert len(recording.programs) <= 40 and sum(not one.serves_many for one in recording.programs) <= 4
