"""Functions of tensors and options that a replayed call takes as a whole. As without the decorator."""

import pytest
from compiled_twin import assert_same, error_of, leaf

import weft

pytestmark = pytest.mark.usefixtures("python_runs")


def python_calls(function, monkeypatch, module, name):
    """How often 6 calls that are replayed come to a function of a module."""
    count, original = [0], getattr(module, name)

    def counted(*args):
        count[0] += 1
        return original(*args)

    for _ in range(8):
        function()
    monkeypatch.setattr(module, name, counted)
    for _ in range(6):
        function()
    return count[0]


def test_what_a_roll_does_is_learned_once(monkeypatch):
    x, f = weft.randn(8), weft.compile(lambda x: weft.roll(x, 1) - 2 * x + x.roll(-1, dims=0))
    if f(x) is not None and weft.runtime.replay.native.native_code_is_used():
        assert python_calls(lambda: f(x), monkeypatch, weft.shaping, "normalize_axis") == 0


OPTIONS = {
    "shifts": (1, -2, 1, 3, 1, 1, 1, -2, 1, 0, 8, 9, 1, 1),
    "kinds": (1, True, 1, 1, 1, True, 1, True, (1,), [1], (1,), (True,), (1,), 1),
    "wrong": (1, 1, 1, 1, 1, "a", 1, None, (1, 2), 1, 1.0, 1, 1, 1),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_that_change(options):
    def scenario(compile):
        x, w, now, seen = weft.randn(3, 8), leaf(3, 8), [None], []

        def step(x):
            w.grad = None
            y = weft.roll(x * w, now[0], 1)
            y.square().sum().backward()
            return y.detach()

        f = compile(step)
        for now[0] in options:
            seen += [error_of(f, x), w.grad]
        return seen

    assert_same(scenario)


def test_equations_that_change():
    def scenario(compile):
        a, w, now, seen = weft.randn(3, 4), leaf(4, 3), [None], []
        f = compile(lambda a: weft.einsum(now[0], a, w).sum() + weft.einsum("ij->i", a).sum())
        for now[0] in ["ij,jk->ik"] * 5 + ["ij,ji->", "ij,jk->ki", "ij,jk->ik", "ij,kj->ik", "ij,jk->ik"]:
            seen += [error_of(f, a)]
        return seen

    assert_same(scenario)
