"""weft.special: special functions, under the names PyTorch gives them there. Most are spelled by their entries."""

import math

from .compiler.ops import pointwise as _table
from .compiler.ops.comparison import isinf as _isinf
from .composed import logit as logit
from .functions import round as round
from .functions import where as _where
from .numpy_words import understanding as _understanding
from .out import take_out
from .pointwise import mvlgamma
from .pointwise import polygamma as polygamma
from .public import of_module
from .reducing import log_softmax as log_softmax
from .reducing import logsumexp as logsumexp
from .reducing import softmax as softmax
from .reference import document
from .spelled import special_forms as _special_forms

globals().update({name: _understanding(f"special.{name}", form) for name, form in _special_forms().items()})
__getattr__, __dir__ = of_module(__name__)
multigammaln = mvlgamma


def spherical_bessel_j0(input):
    """sin(x) / x, 1 at 0."""
    return _where(_isinf(input), 0.0, _table.sinc(input / math.pi))


take_out("special", globals())
document("special", __name__)
