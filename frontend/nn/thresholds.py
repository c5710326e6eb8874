"""Activations with a threshold, random ones, and dropout of whole channels, as functions and layers."""

from ..compiler import dtypes
from ..compiler.ops import derived
from ..compiler.ops.arithmetic import sub
from ..compiler.ops.comparison import where
from ..compiler.ops.table import OpError
from ..creation import full_like
from ..functions import to_dtype
from ..placement import beside
from ..runtime.state import random
from . import functional as F
from .module import Module


def threshold(input, threshold, value, inplace=False):
    """x where above the threshold, `value` elsewhere."""
    return to_dtype(derived.threshold(input, threshold, value), input.dtype)


def hardshrink(input, lambd=0.5):
    """0 between -lambd and lambd, x elsewhere."""
    return derived.hardshrink(input, -lambd, lambd)


def softshrink(input, lambd=0.5):
    """x moved towards 0 by lambd, at most to 0."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}")
    return derived.softshrink(input, -lambd, lambd)


def tanhshrink(input):
    """x - tanh(x)."""
    return sub(input, F.tanh(input))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """x where positive, times a random slope elsewhere; when not training the slope is the mean of the limits."""
    if lower > upper:
        raise RuntimeError(f"rrelu: lower bound should be less than or equal to the upper bound, got {lower}, {upper}")
    slope = (lower + upper) / 2
    if training:
        slope = beside(random.uniform(input.shape, input.dtype), input) * (upper - lower) + lower
    return where(input >= 0, input, input * slope)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """softmax((logits + Gumbel noise) / tau); `hard` gives one-hot rows with the soft rows' gradient."""
    tiny = 2.0**-24 if logits.dtype is dtypes.float32 else 2.0**-53
    draw = beside(random.uniform(logits.shape, logits.dtype), logits).clamp(min=tiny)
    soft = F.softmax((logits - (-draw.log()).log()) / tau, dim)
    if not hard:
        return soft
    index = soft.argmax(dim, True)
    return full_like(logits, 0.0).scatter(dim, index, 1.0) - soft.detach() + soft


# --- dropout ----------------------------------------------------------------------------------------------------------
def _check_probability(p):
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _channel_shape(name, input, ranks, batched):
    """The shape of one draw per channel."""
    if input.ndim not in ranks:
        raise OpError(f"{name}: Expected input of {' or '.join(map(str, ranks))} dimensions, got {input.ndim}")
    lead = 2 if input.ndim == batched else 1
    return (*input.shape[:lead], *(1,) * (input.ndim - lead))


def _dropped(input, shape, p):
    draw = beside(random.uniform(shape, input.dtype), input)
    return where(draw < 1.0 - p, input * (1.0 / (1.0 - p) if p < 1 else 0.0), 0.0)


def _channel_dropout(name, batched):
    def function(input, p=0.5, training=True, inplace=False):
        _check_probability(p)
        shape = _channel_shape(name, input, (batched - 1, batched), batched)
        return _dropped(input, shape, p) if training and p else input

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Whole channels zero with probability p, the others times 1 / (1 - p)."
    return function


dropout1d, dropout3d = _channel_dropout("dropout1d", 3), _channel_dropout("dropout3d", 5)


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Whole channels zero with probability p, the others times 1 / (1 - p)."""
    _check_probability(p)
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _dropped(input, shape, p) if training and p else input


# What a SELU network's units are set to, and what keeps mean and variance (Klambauer et al., arXiv 1706.02515).
_ALPHA = -1.7580993408473766


def _alpha_dropped(input, shape, p):
    scale = (1 - p + _ALPHA * _ALPHA * p * (1 - p)) ** -0.5 if p < 1 else 0.0
    kept = beside(random.uniform(shape, input.dtype), input) < 1.0 - p
    return where(kept, input, _ALPHA) * scale - scale * _ALPHA * p


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance of what selu gives."""
    _check_probability(p)
    return _alpha_dropped(input, input.shape, p) if training and p else input


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels."""
    _check_probability(p)
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _alpha_dropped(input, shape, p) if training and p else input


# --- layers -----------------------------------------------------------------------------------------------------------
class Threshold(Module):
    """x where above the threshold, `value` elsewhere."""

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input):
        return threshold(input, self.threshold, self.value)

    def extra_repr(self):
        return f"threshold={self.threshold}, value={self.value}{', inplace=True' if self.inplace else ''}"


class _Shrink(Module):
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def extra_repr(self):
        return str(self.lambd)


class Hardshrink(_Shrink):
    """0 between -lambd and lambd."""

    def forward(self, input):
        return hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x moved towards 0 by lambd."""

    def forward(self, input):
        return softshrink(input, self.lambd)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input):
        return tanhshrink(input)


class RReLU(Module):
    """leaky ReLU with random slopes."""

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return rrelu(input, self.lower, self.upper, self.training)

    def extra_repr(self):
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"


class Softmin(Module):
    """softmax(-x) along dim."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.softmin(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input):
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)


class _Dropping(Module):
    drop = None

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        _check_probability(p)
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return type(self).drop(input, self.p, self.training)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


def _dropping(name, function):
    return type(
        name, (_Dropping,), {"drop": staticmethod(function), "__doc__": function.__doc__, "__module__": __name__}
    )


Dropout1d, Dropout2d, Dropout3d, AlphaDropout, FeatureAlphaDropout = (
    _dropping(name, function)
    for name, function in (
        ("Dropout1d", dropout1d),
        ("Dropout2d", dropout2d),
        ("Dropout3d", dropout3d),
        ("AlphaDropout", alpha_dropout),
        ("FeatureAlphaDropout", feature_alpha_dropout),
    )
)

FUNCTIONS = str.split("""
    threshold hardshrink softshrink tanhshrink rrelu gumbel_softmax dropout1d dropout2d dropout3d alpha_dropout
    feature_alpha_dropout
""")
LAYERS = str.split("""
    Threshold Hardshrink Softshrink Tanhshrink RReLU Softmin Softmax2d Dropout1d Dropout2d Dropout3d AlphaDropout
    FeatureAlphaDropout
""")
