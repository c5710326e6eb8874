"""Losses that are squares near 0 and lines far away: at the edge, at infinities and NaN, as PyTorch has them."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
CASES = [("huber_loss", "delta"), ("smooth_l1_loss", "beta")]


def arrays(edge, with_extremes):
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal((12, 4)).astype(np.float32) for _ in range(2))
    a[3], a[4], a[5] = b[3], b[4] + np.float32(edge), b[5] - np.float32(edge)
    if with_extremes:
        a[0, 0], a[1, 1], b[2, 2] = np.nan, np.inf, -np.inf
    return a, b


@pytest.mark.oracle
@pytest.mark.parametrize("edge", [0.5, 1, 2.0])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(("name", "word"), CASES)
def test_values_and_gradients(name, word, reduction, edge):
    a, b = arrays(edge, with_extremes=reduction == "none")
    found = []
    for library in (torch, weft):
        x, y = (library.tensor(one, requires_grad=True) for one in (a, b))
        out = getattr(library.nn.functional, name)(x, y, reduction=reduction, **{word: edge})
        grads = library.autograd.grad(out, (x, y), library.ones_like(out) * 2, create_graph=True)
        (second,) = library.autograd.grad((grads[0] * grads[0])[6:].sum(), x)
        found.append([one.detach().numpy() for one in (out, *grads, second)])
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "word"), CASES)
def test_a_compiled_training_step_has_the_bits_of_eager_mode(name, word):
    a, b = arrays(0.5, with_extremes=True)
    loss = getattr(weft.nn.functional, name)

    def gradient(x, y):
        (found,) = weft.autograd.grad(loss(x, y, **{word: 0.5}, reduction="none").sum(), x)
        return found

    x, y = weft.tensor(a, requires_grad=True), weft.tensor(b)
    compiled = weft.compile(gradient)
    assert {compiled(x, y).numpy().tobytes() for _ in range(3)} == {gradient(x, y).numpy().tobytes()}
