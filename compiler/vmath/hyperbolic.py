"""tanh, sinh and cosh.

tanh(|x|) = m / (m + 2) with m = exp(2|x|) - 1. sinh and cosh come from x = n * log(2) + r and the short series of
sinh(r) and cosh(r), which share r**2 and need no division.
"""

from .exponential import expm1_parts, reduce_by_log2
from .pieces import at_most, constants

# Above these tanh rounds to 1.
TANH_ONE = {"f32": 9.1, "f64": 19.1}


def tanh(b, x):
    """Hyperbolic tangent within 2.5 ulp (f32), 2 ulp (f64); keeps the sign of zero."""
    k = constants(b, x)
    a = at_most(b, b.abs(x), TANH_ONE[x.type.element])
    twice = b.add(a, a)
    parts = expm1_parts(b, twice, reduce_by_log2(b, twice))
    head = b.fma(parts.scale, parts.rest, parts.head)
    return b.copysign(b.div(head, b.add(head, k(2.0))), x)
