"""Parametrizations of weights: weight normalisation, spectral normalisation, orthogonal matrices.

Their older forms, which compute the weight before every forward, are in weight_norms.py.
"""

from ..public import of_module
from ..reference import document
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import Tensor
from . import functional as F
from .module import Module
from .orthogonal import orthogonal
from .parametrize import register_parametrization
from .weight_norms import as_matrix, channels_at, check_iterations, largest_singular, norm_except_dim, normed_weight

__getattr__, __dir__ = of_module(f"{__name__.partition('.')[0]}.nn.utils.parametrizations")

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return normed_weight(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except_dim(weight, 2, self.dim), weight


class _SpectralNorm(Module):
    """The weight over its largest singular value, which a power iteration follows: its vectors are `_u` and `_v`."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        check_iterations(n_power_iterations)
        self.dim, self.eps = dim % weight.ndim, eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            for name, size in zip(("_u", "_v"), matrix.shape):
                self.register_buffer(name, F.normalize(matrix.new_empty(size).normal_(), dim=0, eps=eps))
            self._iterate(matrix, 15)

    @no_grad()
    def _iterate(self, matrix, count):
        for _ in range(count):
            self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # Copies, because a second forward changes the vectors before this one's backward.
        return weight / largest_singular(matrix, self._u.clone(), self._v.clone())

    def right_inverse(self, value):
        return value


def weight_norm(module, name="weight", dim=0):
    """Let the weight be g v / |v|: the length and the direction over all dimensions but `dim` are trained."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide the weight by its largest singular value, which every forward in training follows."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    made = _SpectralNorm(weight, n_power_iterations, channels_at(module, dim), eps)
    return register_parametrization(module, name, made)


document("nn.utils.parametrizations", __name__)
