"""Distances between all pairs of rows.

The differences of a row of x and all rows of y are columns: element (k, j) is x[i, k] - y[j, k], and the sum over k
adds rows of vectors. A sum along each of a million rows, most often short ones, would take as long as the additions of
many more. Of few rows of y, where vectors would be nearly empty, differences are rows.

The gradient of x[i, k] is a sum over j of weights times differences: of columns again, or along rows of j where the
rows of x are short.

Nothing holds all differences: each of these is one kernel, which computes them as it adds. They are not made of squares
and products of x and y, as PyTorch's are for many rows: those cancel where two rows are close to each other.
"""

from . import samples
from .arithmetic import abs_, div, mul, sign, sqrt, sub
from .comparison import eq, where
from .kinds import alias
from .reduction import sum_
from .samples import Sample
from .view import clone, reshape, transpose

_FEW = 8  # columns, of which a vector would be nearly empty


def _between(x, axis):
    """x with one more axis of one element."""
    axis += len(x.shape) + 1
    return reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def _turned(x):
    return transpose(x, axis0=len(x.shape) - 2, axis1=len(x.shape) - 1)


def _summed(x, axis):
    return sum_(x, axes=(len(x.shape) + axis,), keepdim=False)


def _distances(x, y, p):
    if y.shape[-2] < _FEW:
        difference, axis = sub(_between(x, -2), _between(y, -3)), -1
    else:
        difference, axis = sub(_between(x, -1), _between(clone(_turned(y)), -3)), -2
    if p == 1:
        return _summed(abs_(difference), axis)
    return sqrt(_summed(mul(difference, difference), axis))


def _weights(g, out, p):
    """What differences, or their signs, are multiplied with. 0 where a distance is: PyTorch's subgradient."""
    return g if p == 1 else where(eq(out, 0.0), 0.0, div(g, out))


def _gradient(weights, x, y, p):
    if x.shape[-1] < _FEW:
        weights, axis = _between(clone(weights), -2), -1
        difference = sub(_between(x, -1), _between(clone(_turned(y)), -3))
    else:
        weights, axis = _between(weights, -1), -2
        difference = sub(_between(x, -2), _between(y, -3))
    return _summed(mul(weights, sign(difference) if p == 1 else difference), axis)


# The sums of the differences' magnitudes (p 1), or the roots of the sums of their squares (p 2).
cdist = alias(
    "cdist",
    _distances,
    vjp=(
        lambda g, out, x, y, p: _gradient(_weights(g, out, p), x, y, p),
        lambda g, out, x, y, p: _gradient(_turned(_weights(g, out, p)), y, x, p),
    ),
    samples=lambda: [
        Sample((samples.numbers(k, left), samples.numbers(k + 50, right)), {"p": p})
        for k, (left, right) in enumerate(
            (((4, 3), (5, 3)), ((2, 4, 3), (5, 3)), ((3, 9), (10, 9)), ((9, 10), (2, 3, 10)), ((2, 3), (11, 3)))
        )
        for p in (1, 2)
    ],
    # PyTorch's own has no second derivative.
    oracle=lambda torch, x, y, p: torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1),
)
