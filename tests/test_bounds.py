"""Bounds of values where they are special: NaN as a bound, zeros of both signs, and infinities."""

import itertools
import math

import numpy as np
import pytest

import weft
import weft.nn.functional as F

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

SPECIAL = [-0.0, 0.0, math.nan, -math.inf, math.inf, 1.0, -1.0, 6.0, -6.0, -3.0, 3.0]
PAIRS = list(itertools.product(SPECIAL, SPECIAL))

# Whether the sign of a zero is told: PyTorch's own loops differ in it where bounds are tensors.
FUNCTIONS = {
    "clamp_min": (lambda T, x, y: T.clamp(x, min=y), False),
    "clamp_max": (lambda T, x, y: x.clamp(max=y), False),
    "clamp": (lambda T, x, y: T.clamp(x, y, y + 1), False),
    "clamp_nan": (lambda T, x, y: x.clamp(math.nan, 1.0), True),
    "clip_nan": (lambda T, x, y: T.clip(x, max=math.nan), True),
    "relu6": (lambda T, x, y: T.nn.functional.relu6(x), True),
    "hardtanh": (lambda T, x, y: T.nn.functional.hardtanh(x, -0.0, 1.0), True),
    "hardswish": (lambda T, x, y: T.nn.functional.hardswish(x), True),
    "fmax": (lambda T, x, y: T.fmax(x, y), True),
    "fmin": (lambda T, x, y: x.fmin(y), True),
    "max_pool": (lambda T, x, y: T.nn.functional.max_pool1d(T.stack([x, y], 1)[None], 2)[0, :, 0], True),
}


def told(values, signs):
    values = values.detach().numpy()
    return [(str(v) if signs else str(v + 0.0)) for v in values.ravel()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_of_special_values_are_pytorchs(name, dtype):
    function, signs = FUNCTIONS[name]
    left, right = np.array(PAIRS, dtype=dtype).T
    ours = function(weft, weft.tensor(left), weft.tensor(right))
    theirs = function(torch, torch.tensor(left), torch.tensor(right))
    assert told(ours, signs) == told(theirs, signs)
    compiled = weft.compile(lambda x, y: function(weft, x, y))
    for _ in range(2):
        assert told(compiled(weft.tensor(left), weft.tensor(right)), True) == told(ours, True)


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max", "clamp", "fmax", "fmin"])
def test_their_gradients_are_pytorchs(name):
    function, _ = FUNCTIONS[name]
    grads = []
    for T in (weft, torch):
        x, y = (T.tensor(list(part), dtype=T.float64, requires_grad=True) for part in zip(*PAIRS))
        function(T, x, y).sum().backward()
        grads.append((x.grad.tolist(), y.grad.tolist()))
    assert grads[0] == grads[1]


def test_whole_numbers_and_half_floats_have_bounds_too():
    assert weft.tensor([-3, 0, 9]).clamp(weft.tensor([0, 1, 2]), 5).tolist() == [0, 1, 5]
    half = weft.tensor([-0.0, 7.0], dtype=weft.float16)
    assert str(F.relu6(half).tolist()) == "[-0.0, 6.0]"
    assert str(half.clamp(max=weft.tensor(math.nan, dtype=weft.float16)).tolist()) == "[nan, nan]"
