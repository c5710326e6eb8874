"""compile(background=True) and derivatives: backwards of programs that serve many sizes, and second derivatives, are
computed without waiting too, with the bits of eager mode."""

import pytest
from test_background import bits, held_up, in_background, nothing_compiled_before

import weft
from weft import nn
from weft.runtime.programs import background

assert nothing_compiled_before  # a fixture for all tests of this file too


def perceptron():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))
    return model, lambda n: weft.randn(n, 4), list(model.parameters())


def recurrent_layer():
    layer = nn.GRU(4, 3)
    return lambda x: layer(x)[0], lambda n: weft.randn(n, 2, 4), list(layer.parameters())


def recurrent_layer_both_ways():
    layer = nn.LSTM(4, 3, bidirectional=True)
    return lambda x: layer(x)[0], lambda n: weft.randn(n, 2, 4), list(layer.parameters())


def loop_in_python():
    cell = nn.RNNCell(4, 3)

    def states(x):
        h, found = weft.zeros(2, 3), []
        for k, part in enumerate(x):
            h = cell(part, h) * 0.9**k
            found.append(h)
        return weft.stack(found)

    return states, lambda n: weft.randn(n, 2, 4), list(cell.parameters())


@pytest.fixture
def nobody_waits(monkeypatch):
    """What is compiled is compiled in the background."""

    def fails(meta, ir):
        failures = [job.failure for job in background._jobs.values() if job.failure]
        raise AssertionError(f"a call has waited for LLVM, and in the background failed {failures}")

    monkeypatch.setattr("weft.runtime.programs.program._compiled", fails)


@pytest.mark.parametrize(
    "make", [perceptron, recurrent_layer, recurrent_layer_both_ways, loop_in_python], ids=lambda make: make.__name__
)
def test_backwards_of_programs_for_many_sizes(make, nobody_waits):
    run, argument, leaves = make()
    f = in_background(lambda x: run(x))

    def gradients(f, x):
        for leaf in leaves:
            leaf.grad = None
        loss = (f(x) ** 2).sum()
        (loss + 0.5 * leaves[0].sum()).backward()
        return bits([loss, *(leaf.grad for leaf in leaves)])

    for n in (7, 9, 9, 8, 12, 12, 11, 5, 9):
        x = argument(n)
        with held_up():  # a forward that is there has a backward that is not
            assert gradients(f, x) == gradients(run, x), n
        f.finish_compiling()
        assert gradients(f, x) == gradients(run, x), n
        f.finish_compiling()
    many = [p for r in f.recordings for p in r.programs if "n" in p.meta]
    assert any("sources" in p.meta for p in many) and f.breaks == ()
    assert sum(r.n_meanwhile for r in f.recordings) <= 2 * len(f.recordings)


def test_second_derivatives(nobody_waits):
    w = weft.linspace(-1.0, 1.0, 12).reshape(4, 3).requires_grad_()

    def run(x):
        return (x @ w).tanh().sum()

    def penalty(f, x):
        (slope,) = weft.autograd.grad(f(x), w, create_graph=True)
        return bits([slope, *weft.autograd.grad((slope * slope).sum(), w)])

    f = in_background(run)
    for k in range(24):
        x = weft.randn(5, 4)
        with held_up():
            assert penalty(f, x) == penalty(run, x)
        if k % 2:
            f.finish_compiling()
    (recording,) = f.recordings
    (again,) = recording.derivatives
    assert {p.meta["source"] for r in again.recordings for p in r.programs} == {"background"}
    assert sum(p.calls for r in again.recordings for p in r.programs) >= 10
