"""weft.special: special functions, under the names PyTorch gives them there."""

import math

from .compiler.ops import bessel as _bessel
from .compiler.ops import pointwise as _table
from .compiler.ops import special as _special
from .composed import logit as logit
from .functions import GENERATED, where
from .functions import round as round
from .pointwise import GENERATED_HERE, _unary, mvlgamma
from .pointwise import polygamma as polygamma
from .reducing import log_softmax as log_softmax
from .reducing import logsumexp as logsumexp
from .reducing import softmax as softmax

digamma, erfc, erfinv, xlogy, xlog1py, zeta = (
    GENERATED_HERE[n] for n in ["digamma", "erfc", "erfinv", "xlogy", "xlog1py", "zeta"]
)
gammaln, psi, multigammaln = GENERATED_HERE["lgamma"], digamma, mvlgamma
gammainc, gammaincc = GENERATED_HERE["igamma"], GENERATED_HERE["igammac"]
i0, sinc, isinf = GENERATED_HERE["i0"], GENERATED_HERE["sinc"], GENERATED["isinf"]
erf, exp2, expm1, log1p, expit = (GENERATED[n] for n in ["erf", "exp2", "expm1", "log1p", "sigmoid"])
i0e, i1, i1e = (_unary(getattr(_bessel, n), n) for n in ["i0e", "i1", "i1e"])
erfcx, ndtr, ndtri, log_ndtr = (_unary(getattr(_special, n), n) for n in ["erfcx", "ndtr", "ndtri", "log_ndtr"])
entr = _unary(_table.entr, "entr")
modified_bessel_i0, modified_bessel_i1 = i0, i1


def spherical_bessel_j0(input):
    """sin(x) / x, 1 at 0."""
    return where(isinf(input), 0.0, sinc(input / math.pi))
