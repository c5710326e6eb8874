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


# name: (function, inputs). Their gradients are told where the value is a NaN too: a NaN must not become a 0 on its way.
GRADIENTS = {
    "elu": (lambda F, T, x: F.elu(x, 1.5), SPECIAL),
    "selu": (lambda F, T, x: F.selu(x), SPECIAL),
    "celu": (lambda F, T, x: F.celu(x, 0.5), SPECIAL),
    "relu6": (lambda F, T, x: F.relu6(x), SPECIAL),
    "hardtanh": (lambda F, T, x: F.hardtanh(x), SPECIAL),
    "hardswish": (lambda F, T, x: F.hardswish(x), [x for x in SPECIAL if abs(x) != 3]),
    "logit": (lambda F, T, x: T.logit(x), [-1.0, 0.0, 0.25, 1.0, 2.0, math.nan, math.inf]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_at_special_values_are_pytorchs(name):
    function, values = GRADIENTS[name]

    def gradient(T, wrap=lambda f: f):
        # So many that PyTorch's loops over whole registers compute them.
        x = T.tensor(values * 16, dtype=T.float64, requires_grad=True)
        wrap(lambda x: function(T.nn.functional, T, x).sum())(x).backward()
        return x.grad.numpy()[: len(values)]

    ours, theirs = gradient(weft), gradient(torch)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_array_equal(gradient(weft, weft.compile), ours)


def test_gradients_of_logit():
    assert weft.autograd.gradcheck(weft.logit, weft.tensor([0.2, 0.7], dtype=weft.float64, requires_grad=True))
    assert weft.autograd.gradgradcheck(weft.logit, weft.tensor([0.2, 0.7], dtype=weft.float64, requires_grad=True))
    assert weft.ones(1, requires_grad=True).logit(0.1).grad_fn is not None
