"""Transforms by PyTorch's names: `distributions.transforms`. Start at transform.py."""

import math

from ..arranging import broadcast_shapes, tril_indices
from ..creation import eye, full_like
from ..linalg import cholesky
from ..nn import functional as F
from ..runtime.state.size import Size
from ..runtime.state.tensor import Tensor
from ..shaping import cat, stack
from . import constraints
from .distribution import broadcast_all, epsilon, is_number, sum_rightmost, tiny
from .transform import ComposeTransform, IndependentTransform, ReshapeTransform, Transform, identity_transform
from .transform import _InverseTransform as _InverseTransform  # libraries of flows name it

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip


class _Plain(Transform):
    """One without parameters: all of a class are equal."""

    def _parts(self):
        return ()


# --- of single numbers ------------------------------------------------------------------------------------------------
class ExpTransform(_Plain):
    """exp(x)."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """x^exponent, of positive numbers."""

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self):
        return self.exponent.sign()

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and _equal(self.exponent, other.exponent)

    __hash__ = object.__hash__

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _clipped_sigmoid(x):
    return x.sigmoid().clamp(tiny(x), 1.0 - epsilon(x))


class SigmoidTransform(_Plain):
    """1 / (1 + exp(-x))."""

    codomain, bijective, sign = constraints.unit_interval, True, 1

    def _call(self, x):
        return _clipped_sigmoid(x)

    def _inverse(self, y):
        y = y.clamp(tiny(y), 1.0 - epsilon(y))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(_Plain):
    """log(1 + exp(x))."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x):
        return F.softplus(x)

    def _inverse(self, y):
        return (-((-y).expm1())).log() + y

    def log_abs_det_jacobian(self, x, y):
        return -F.softplus(-x)


class TanhTransform(_Plain):
    """tanh(x)."""

    codomain, bijective, sign = constraints.interval(-1.0, 1.0), True, 1

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(_Plain):
    """|x|, whose inverse is taken to be the positive one."""

    codomain = constraints.positive

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """loc + scale * x."""

    bijective = True

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def domain(self):
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    def __eq__(self, other):
        return isinstance(other, AffineTransform) and _equal(self.loc, other.loc) and _equal(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self):
        return (self.scale > 0) - (self.scale < 0) if is_number(self.scale) else self.scale.sign()

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        if is_number(self.scale):
            growth = full_like(x, math.log(abs(self.scale)))
        else:
            growth = self.scale.abs().log().expand(x.shape)
        return sum_rightmost(growth, self._event_dim)

    def forward_shape(self, shape):
        return broadcast_shapes(shape, *(p.shape for p in (self.loc, self.scale) if isinstance(p, Tensor)))

    inverse_shape = forward_shape


def _equal(a, b):
    same = a == b
    return same.all().item() if isinstance(same, Tensor) else same


class CumulativeDistributionTransform(Transform):
    """The distribution function of a distribution: its draws become uniform numbers."""

    codomain, bijective, sign = constraints.unit_interval, True, 1

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)


# --- of vectors and matrices ------------------------------------------------------------------------------------------
class SoftmaxTransform(_Plain):
    """exp(x) over its sum: vectors of probabilities. Not injective."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x):
        return F.softmax(x, -1)

    def _inverse(self, y):
        return y.log()


class StickBreakingTransform(_Plain):
    """n numbers to n + 1 probabilities: each is a share of what those before have left."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    def _call(self, x):
        shares = _clipped_sigmoid(x - _stick_offset(x).log())
        left = (1 - shares).cumprod(-1)
        return F.pad(shares, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y):
        parts = y[..., :-1]
        left = (1 - parts.cumsum(-1)).clamp(min=tiny(y))
        return parts.log() - left.log() + _stick_offset(parts).log()

    def log_abs_det_jacobian(self, x, y):
        x = x - _stick_offset(x).log()
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        return Size((*_vector(shape)[:-1], shape[-1] + 1))

    def inverse_shape(self, shape):
        return Size((*_vector(shape)[:-1], shape[-1] - 1))


def _stick_offset(x):
    return x.shape[-1] + 1 - x.new_ones(x.shape[-1]).cumsum(-1)


def _vector(shape):
    if len(shape) < 1:
        raise ValueError("Too few dimensions on input")
    return shape


class LowerCholeskyTransform(_Plain):
    """Any matrix to a lower triangular one with a positive diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x):
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(_Plain):
    """Any matrix to a positive definite one, by its Cholesky factor."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x):
        x = LowerCholeskyTransform()(x)
        return x @ x.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(_Plain):
    """n (n - 1) / 2 numbers to the Cholesky factor of a correlation matrix: their tanh are partial correlations, row by
    row below the diagonal."""

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _call(self, x):
        partial = x.tanh().clamp(-1 + epsilon(x), 1 - epsilon(x))
        size = _triangle_side(x.shape[-1])
        row, column = tril_indices(size, size, -1)
        below = x.new_zeros(*x.shape[:-1], size * size).index_add(-1, row * size + column, partial)
        below = below.reshape(*x.shape[:-1], size, size)
        left = (1 - below.square()).sqrt().cumprod(-1)
        return (below + eye(size, dtype=x.dtype)) * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y):
        left = F.pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        partial = _below(y) / _below(left).sqrt()
        return (partial.log1p() - (-partial).log1p()) / 2

    def log_abs_det_jacobian(self, x, y):
        # Where a row is but one step from the diagonal, what is left of its length does not enter.
        left = _below(1 - (y * y).cumsum(-1), -2)
        return 0.5 * left.log().sum(-1) - 2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape):
        side = _triangle_side(_vector(shape)[-1])
        return Size((*shape[:-1], side, side))

    def inverse_shape(self, shape):
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


def _triangle_side(count):
    side = round((0.25 + 2 * count) ** 0.5 + 0.5)
    if side * (side - 1) // 2 != count:
        raise ValueError("Input is not a flattened lower-diagonal number")
    return side


def _below(matrix, offset=-1):
    """The elements below the diagonal, row by row, in the last dimension."""
    size = matrix.shape[-1]
    row, column = tril_indices(size, size, offset)
    return matrix.reshape(*matrix.shape[:-2], size * size).index_select(-1, row * size + column)


class CatTransform(Transform):
    """Transforms for parts of a dimension, one after the other."""

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        super().__init__(cache_size)
        self.transforms, self.dim = [t.with_cache(cache_size) for t in tseq], dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)

    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))
    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _call(self, x):
        return cat([t(part) for t, part in zip(self.transforms, x.split(self.lengths, self.dim))], self.dim)

    def _inverse(self, y):
        return cat([t.inv(part) for t, part in zip(self.transforms, y.split(self.lengths, self.dim))], self.dim)

    def log_abs_det_jacobian(self, x, y):
        parts = zip(self.transforms, x.split(self.lengths, self.dim), y.split(self.lengths, self.dim))
        return cat([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)


class StackTransform(Transform):
    """Transforms for the positions of a dimension."""

    def __init__(self, tseq, dim=0, cache_size=0):
        super().__init__(cache_size)
        self.transforms, self.dim = [t.with_cache(cache_size) for t in tseq], dim

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))
    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _call(self, x):
        return stack([t(part) for t, part in zip(self.transforms, x.unbind(self.dim))], self.dim)

    def _inverse(self, y):
        return stack([t.inv(part) for t, part in zip(self.transforms, y.unbind(self.dim))], self.dim)

    def log_abs_det_jacobian(self, x, y):
        parts = zip(self.transforms, x.unbind(self.dim), y.unbind(self.dim))
        return stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)
