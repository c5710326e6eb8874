"""Vector mathematics: the elementary functions as emitters of straight-line vector code.

`FUNCTIONS[name](b, x)` appends the instructions for one function to a `Builder` and returns its result; x has "f32" or
"f64" lanes, any number of them. A lane's result depends on that lane alone, so a function gives the same bits wherever
and beside whatever it is computed. No external function is called. Rare arguments (huge, subnormal, infinite, NaN) take
a branch that is skipped when no lane has one.

Every function's docstring states its error in ulp; `ULP_BOUNDS` holds the same for tests. Start with exponential.py;
pieces.py holds what the families share.
"""

from . import error, exponential, hyperbolic, inverse, logarithm, power, trigonometric
from .bounds import ULP_BOUNDS

__all__ = ["FUNCTIONS", "ULP_BOUNDS"]

FUNCTIONS = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "atan": inverse.atan,
    "asin": inverse.asin,
    "acos": inverse.acos,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": hyperbolic.tanh,
    "erf": error.erf,
    "pow": power.pow,
    "atan2": inverse.atan2,
}
