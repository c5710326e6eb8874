"""What tests of prepared calls share: calls made until they are prepared, and the same by tensors."""

import math

import numpy as np

import weft
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

SCALE = 2.0
TABLE = weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def prepared(function, *args, calls=9, **kwargs):
    """The function, after calls that make it go to its program at once."""
    for _ in range(calls):
        function(*args, **kwargs)
    return function


def is_prepared(function):
    """Whether it is said so; without native code no calls are, and that is what is said."""
    said = "go to their program at once" if native_code_is_used() else "native code is not used"
    return said in function.explain()


def by_tensors(function, x, *args):
    x = weft.tensor(x, requires_grad=True)
    value = function(x, *[weft.tensor(a) if isinstance(a, np.ndarray) else a for a in args])
    return value.item(), weft.autograd.grad(value, x)[0].numpy()


def same_as_tensors(both, function, x, *args):
    value, gradient = both(x, *args)
    expected, expected_gradient = by_tensors(function, x, *args)
    return type(value) is float and value == expected and gradient.tobytes() == expected_gradient.tobytes()


def points(n, size=3, seed=3):
    return list(np.random.default_rng(seed).normal(size=(n, size)))


def with_softplus(x):
    return F.softplus(x * SCALE).sum() + weft.logsumexp(TABLE * x, 0) + 0.5 * x.numel() * math.log(2 * math.pi)


def helper(x, k=3):
    return x**k


def with_helper(x):
    rows = [helper(x[i], k=i + 1) for i in range(len(x))]
    return sum(rows) + weft.stack(rows).prod()
