"""Weights with orthonormal columns or rows (Lezcano-Casado, 1909.09501): `nn.utils.parametrizations.orthogonal`."""

from .. import linalg
from ..composed import diagonal
from ..creation import eye, randn
from ..equality import allclose
from ..limits import finfo
from ..matrices import geqrf
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import Tensor
from ..shaping import cat
from .module import Module
from .parametrize import register_parametrization

_MAPS = ("matrix_exp", "cayley", "householder")


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Let the weight have orthonormal columns, or rows if it is wide: a map of a trained matrix X.

    orthogonal_map: "matrix_exp", exp(A) with A = X - X^T of the lower triangle; "cayley", (I - A/2)^-1 (I + A/2);
    "householder", a product of reflections. With `use_trivialization` the map is multiplied by a base, which assigning
    to the weight sets.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


class _Orthogonal(Module):
    def __init__(self, weight, orthogonal_map, use_trivialization):
        super().__init__()
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x):
        wide = x.shape[-2] < x.shape[-1]
        q = self._map(x.mT if wide else x)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _map(self, x):
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            lower = x.tril(-1)
            q = linalg.householder_product(lower, 2.0 / (1.0 + (lower * lower).sum(-2)))
            # The signs of the diagonal, which are all that is kept of it; no gradient passes.
            return q * _diagonal(x).detach().trunc().unsqueeze(-2)
        x = x.tril()
        if n != k:
            x = cat([x, x.new_zeros(*x.shape[:-1], n - k)], -1)
        skew = x - x.mT
        if self.orthogonal_map == "matrix_exp":
            return linalg.matrix_exp(skew)[..., :k]
        unit = eye(n, dtype=x.dtype)
        return linalg.solve(unit - 0.5 * skew, unit + 0.5 * skew)[..., :k]

    @no_grad()
    def right_inverse(self, value):
        if value.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {value.shape}."
            )
        wide = value.shape[-2] < value.shape[-1]
        q = value.mT if wide else value
        if not hasattr(self, "base"):
            return self._reflections(q, wide)
        n, k = q.shape[-2:]
        if n != k:
            q = cat([q, randn(*q.shape[:-2], n, n - k, dtype=q.dtype)], -1)
        self.base = q.clone() if n == k and _is_orthogonal(q) else _orthonormal(q)
        return value.new_zeros(value.shape) - eye(*value.shape[-2:], dtype=value.dtype)

    def _reflections(self, q, wide):
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        packed, tau = geqrf(q)
        signs = _diagonal(packed).sign()
        signs = signs.where(tau != 0, -signs)
        lower = packed.tril(-1) + packed.triu(1) + signs.unsqueeze(-2) * eye(*packed.shape[-2:], dtype=packed.dtype)
        return lower.mT if wide else lower


def _diagonal(x):
    return diagonal(x, dim1=-2, dim2=-1)


def _is_orthogonal(q):
    tolerance = 10.0 * q.shape[-2] * finfo(q.dtype).eps
    return allclose(q.mT @ q, eye(q.shape[-1], dtype=q.dtype), atol=tolerance)


def _orthonormal(x):
    """The orthonormal factor of x with the signs that make it the one nearest to x."""
    packed, tau = geqrf(x)
    return linalg.householder_product(packed, tau) * _diagonal(packed).sign().unsqueeze(-2)
