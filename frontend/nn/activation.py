"""Activations as modules: each calls the function of nn.functional and keeps its options."""

from ..creation import full
from ..runtime.state.marks import pure
from . import functional as F
from . import init as initial
from .module import Module
from .parameter import Parameter


class _Elementwise(Module):
    """An activation without options. `inplace` is accepted for PyTorch's sake: results are new tensors all the same."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ReLU(_Elementwise):
    """max(x, 0)."""

    @pure()
    def forward(self, input):
        return F.relu(input)


class ReLU6(_Elementwise):
    """min(max(x, 0), 6)."""

    min_val, max_val = 0.0, 6.0

    @pure()
    def forward(self, input):
        return F.relu6(input)


class SiLU(_Elementwise):
    """x sigmoid(x)."""

    @pure()
    def forward(self, input):
        return F.silu(input)


class Mish(_Elementwise):
    """x tanh(softplus(x))."""

    @pure()
    def forward(self, input):
        return F.mish(input)


class SELU(_Elementwise):
    """Scaled exponential linear unit."""

    @pure()
    def forward(self, input):
        return F.selu(input)


class Hardswish(_Elementwise):
    """x relu6(x + 3) / 6."""

    @pure()
    def forward(self, input):
        return F.hardswish(input)

    def extra_repr(self):
        return ""


class Hardsigmoid(Hardswish):
    """relu6(x + 3) / 6."""

    @pure()
    def forward(self, input):
        return F.hardsigmoid(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    @pure()
    def forward(self, input):
        return F.sigmoid(input)


class Tanh(Module):
    """tanh(x)."""

    @pure()
    def forward(self, input):
        return F.tanh(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    @pure()
    def forward(self, input):
        return F.softsign(input)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    @pure()
    def forward(self, input):
        return F.logsigmoid(input)


class GELU(Module):
    """x Phi(x); approximate="tanh" for the tanh form."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    @pure()
    def forward(self, input):
        return F.gelu(input, self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class LeakyReLU(_Elementwise):
    """x where positive, negative_slope * x elsewhere."""

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__(inplace)
        self.negative_slope = negative_slope

    @pure()
    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self):
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_Elementwise):
    """x where positive, alpha (exp(x) - 1) elsewhere."""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__(inplace)
        self.alpha = alpha

    @pure()
    def forward(self, input):
        return F.elu(input, self.alpha)

    def extra_repr(self):
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(ELU):
    """x where positive, alpha (exp(x / alpha) - 1) elsewhere."""

    @pure()
    def forward(self, input):
        return F.celu(input, self.alpha)


class Hardtanh(_Elementwise):
    """x cut to [min_val, max_val]."""

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False):
        super().__init__(inplace)
        self.min_val, self.max_val = min_val, max_val

    @pure()
    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class Softplus(Module):
    """log(1 + exp(beta x)) / beta."""

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    @pure()
    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


class PReLU(Module):
    """leaky_relu with learned slopes: one, or one per channel."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def reset_parameters(self):
        """The slopes as they were at first."""
        initial.constant_(self.weight, self.init)

    @pure()
    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """First half times sigmoid of the second half, along dim."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    @pure()
    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(Module):
    """exp(x) / sum(exp(x)) along dim."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    @pure(lambda layer, *_: layer.dim is not None)
    def forward(self, input):
        return F.softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along dim."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    @pure(lambda layer, *_: layer.dim is not None)
    def forward(self, input):
        return F.log_softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"
