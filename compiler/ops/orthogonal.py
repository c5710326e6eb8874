"""Orthogonal polynomials of a whole degree: Chebyshev's of four kinds and shifted, Hermite's, Laguerre's, Legendre's.

All are one recurrence, p[k + 1] = (a x + b) p[k] - c p[k - 1] from p[0] = 1, and a family is its coefficients. The
m-th derivative follows the differentiated recurrence, so they can be differentiated to any order (PyTorch's cannot).
"""

import numpy as np

from .. import dtypes
from ..plain import Plain
from ..shapes import broadcast_shapes
from . import samples
from .arithmetic import mul
from .kinds import floating, library
from .samples import Sample
from .table import Meta, OpError, Spelling


class Family(Plain):
    """`step` is k -> (a, b, c) for k >= 1; the polynomial of degree 1 is first[0] x + first[1]."""

    __slots__ = ("first", "step")

    def __init__(self, first, step):
        self.first = first
        self.step = step


def _chebyshev(slope, constant, shifted=False):
    """Of all kinds the recurrence is the same; shifted ones are those of 2 x - 1."""
    if shifted:
        return Family((2.0 * slope, constant - slope), lambda k: (4.0, -2.0, 1.0))
    return Family((slope, constant), lambda k: (2.0, 0.0, 1.0))


FAMILIES = {
    "chebyshev_polynomial_t": _chebyshev(1.0, 0.0),
    "chebyshev_polynomial_u": _chebyshev(2.0, 0.0),
    "chebyshev_polynomial_v": _chebyshev(2.0, -1.0),
    "chebyshev_polynomial_w": _chebyshev(2.0, 1.0),
    "shifted_chebyshev_polynomial_t": _chebyshev(1.0, 0.0, shifted=True),
    "shifted_chebyshev_polynomial_u": _chebyshev(2.0, 0.0, shifted=True),
    "shifted_chebyshev_polynomial_v": _chebyshev(2.0, -1.0, shifted=True),
    "shifted_chebyshev_polynomial_w": _chebyshev(2.0, 1.0, shifted=True),
    "hermite_polynomial_h": Family((2.0, 0.0), lambda k: (2.0, 0.0, 2.0 * k)),
    "hermite_polynomial_he": Family((1.0, 0.0), lambda k: (1.0, 0.0, k)),
    "laguerre_polynomial_l": Family((-1.0, 1.0), lambda k: (-1.0 / (k + 1), (2.0 * k + 1) / (k + 1), k / (k + 1))),
    "legendre_polynomial_p": Family((1.0, 0.0), lambda k: ((2.0 * k + 1) / (k + 1), 0.0, k / (k + 1))),
}


_HIGHEST = 2**24


def _degrees(n):
    """Degrees are cut to whole numbers; the polynomial of one that is negative or no int64 is 0, as in PyTorch."""
    degrees = np.trunc(np.where(np.abs(n) < 2.0**63, n, -1.0))
    highest = degrees.max(initial=0.0)
    if highest > _HIGHEST:
        raise OpError(
            f"orthogonal polynomials: the degree {highest:.0f} is beyond {_HIGHEST}, and every degree is a step; give "
            "smaller degrees"
        )
    return degrees


def _next(x, coefficients, now, before):
    """The polynomial of the next degree and its derivatives, from those of the two degrees before."""
    a, b, c = coefficients
    factor = a * x + b
    return [
        factor * now[m] - c * before[m] + (m * a * now[m - 1] if m else 0.0)  # the product rule
        for m in range(len(now))
    ]


def _values(x, n, family, order):
    """The derivative of an order, by the recurrence up to the highest degree; each element stops at its own."""
    degrees = _degrees(n)
    slope, constant = family.first
    zeros = [np.zeros_like(x) for _ in range(max(order - 1, 0))]
    before = [np.ones_like(x), *(np.zeros_like(x) for _ in range(order))]
    now = [slope * x + constant, *([np.full_like(x, slope)] if order else []), *zeros]
    found = np.where(degrees < 0, 0.0, before[order])
    for degree in range(1, int(degrees.max(initial=0.0)) + 1):
        found = np.where(degrees == degree, now[order], found)
        now, before = _next(x, family.step(degree), now, before), now
    return found


def _evaluated(x, n, family, order):
    with np.errstate(all="ignore"):
        wide = _values(
            *np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(n, np.float64)), FAMILIES[family], order
        )
    return np.asarray(wide).astype(np.result_type(x, n))


def _meta(operands, attributes):
    return Meta(broadcast_shapes("", [o.shape for o in operands]), floating(operands, dtypes.float32)[1])


_slope = library(
    "polynomial_derivative",
    _meta,
    _evaluated,
    vjp=(
        lambda g, out, x, n, family, order: mul(g, _slope(x, n, family=family, order=order + 1)),
        None,
    ),
    samples=lambda: [
        Sample((samples.numbers(1, (5,)), samples.numbers(2, (5,), 0.0, 4.0)), {"family": name, "order": 1})
        for name in ("legendre_polynomial_p", "laguerre_polynomial_l")
    ],
    oracle=lambda torch, x, n, family, order: _of_torch(torch, x, n, family),
    tolerance=1e-7,
    doc="The derivative of an orthogonal polynomial.",
)


def _of_torch(torch, x, n, family):
    """The derivative by a difference of PyTorch's polynomials, whose degree is below 5 in the samples."""
    polynomial, h, wide = getattr(torch.special, family), 1e-3, x.double()
    near, far = ((polynomial(wide + k * h, n) - polynomial(wide - k * h, n)) / (2 * k * h) for k in (1, 2))
    return ((4 * near - far) / 3).to(x.dtype)


def _polynomial(name):
    title = name.replace("_polynomial", "").replace("_", " ")
    return library(
        name,
        _meta,
        lambda x, n: _evaluated(x, n, name, 0),
        vjp=(lambda g, out, x, n: mul(g, _slope(x, n, family=name, order=1)), None),
        samples=samples.binary(-1.5, 1.5, 0.0, 8.0, number=False),
        oracle=f"special.{name}",
        tolerance=1e-7,
        doc=f"The orthogonal polynomial {title} of input, of the degree other.",
        spelling=Spelling("", special=name, operands=2, promotes="floating"),
    )


for _name in FAMILIES:
    globals()[_name] = _polynomial(_name)
