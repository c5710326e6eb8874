"""The normal distribution of vectors, with any covariance and with one of low rank."""

import math

from ..arranging import broadcast_shapes, diag_embed
from ..creation import eye, randn
from ..linalg import cholesky, solve_triangular
from . import constraints
from .distribution import Distribution, lazy_property


class MultivariateNormal(Distribution):
    """Vectors of mean `loc`, and of a covariance given by one of three matrices: itself, its inverse
    (`precision_matrix`), or its Cholesky factor (`scale_tril`)."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {
            "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril
        }  # fmt: skip
        given = [(name, x) for name, x in matrices.items() if x is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(*batch_shape, loc.shape[-1])
        vars(self)[name] = matrix.expand(*batch_shape, *matrix.shape[-2:])
        super().__init__(batch_shape, loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = matrix if name == "scale_tril" else _factor_of(name, matrix)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, type(self).__new__(type(self)) if _instance is None else _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    @lazy_property
    def scale_tril(self):
        return self._unbroadcasted_scale_tril.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def covariance_matrix(self):
        found = self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT
        return found.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def precision_matrix(self):
        inverse = solve_triangular(
            self._unbroadcasted_scale_tril, eye(self._event_shape[0], dtype=self.loc.dtype), upper=False
        )
        return (inverse.mT @ inverse).expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(*self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape=()):
        drawn = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self._unbroadcasted_scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        distance = squared_distance(self._unbroadcasted_scale_tril, self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self.half_log_det()

    def half_log_det(self):
        """Half of the logarithm of the covariance's determinant."""
        return self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def entropy(self):
        found = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self.half_log_det()
        return found.expand(*self._batch_shape)


def _factor_of(name, matrix):
    """The Cholesky factor of the covariance."""
    if name == "covariance_matrix":
        return cholesky(matrix)
    # That of the inverse, by turning the matrix round: no inverse is made of it.
    turned = cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
    return solve_triangular(turned, eye(matrix.shape[-1], dtype=matrix.dtype), upper=False)


def squared_distance(factor, x):
    """|L^-1 x|^2, for all vectors in the last dimension of x."""
    shape = broadcast_shapes(factor.shape[:-2], x.shape[:-1])
    factor, x = factor.expand(*shape, *factor.shape[-2:]), x.expand(*shape, x.shape[-1])
    return solve_triangular(factor, x.unsqueeze(-1), upper=False).pow(2).sum((-2, -1))


class LowRankMultivariateNormal(Distribution):
    """Vectors of the covariance W W^T + D, with a narrow matrix W (`cov_factor`) and the diagonal D (`cov_diag`): only
    a matrix as wide as W is factored."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        size = loc.shape[-1]
        if cov_factor.ndim < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2] != size:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {size} x m")
        if cov_diag.shape[-1:] != (size,):
            raise ValueError(f"cov_diag must be a batch of vectors with shape {(size,)}")
        batch_shape = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = (x.expand(*batch_shape, size) for x in (loc, cov_diag))
        self.cov_factor = cov_factor.expand(*batch_shape, *cov_factor.shape[-2:])
        self._given = cov_factor, cov_diag
        super().__init__(batch_shape, (size,), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, type(self).__new__(type(self)) if _instance is None else _instance)
        new._given = self._given
        return new

    @lazy_property
    def _inner(self):
        """The Cholesky factor of I + W^T D^-1 W."""
        w, d = self._given
        return cholesky((w.mT / d.unsqueeze(-2)) @ w + eye(w.shape[-1], dtype=w.dtype))

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return self.cov_factor.pow(2).sum(-1) + self.cov_diag

    @lazy_property
    def covariance_matrix(self):
        return self.cov_factor @ self.cov_factor.mT + diag_embed(self.cov_diag)

    @lazy_property
    def scale_tril(self):
        return cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self):
        half = solve_triangular(self._inner, self.cov_factor.mT / self.cov_diag.unsqueeze(-2), upper=False)
        return diag_embed(self.cov_diag.reciprocal()) - half.mT @ half

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        wide = randn(*shape[:-1], self.cov_factor.shape[-1], dtype=self.loc.dtype)
        along = (self.cov_factor @ wide.unsqueeze(-1)).squeeze(-1)
        return self.loc + along + self.cov_diag.sqrt() * randn(shape, dtype=self.loc.dtype)

    def half_log_det(self):
        """Half of the logarithm of the covariance's determinant, by Sylvester's identity."""
        _, d = self._given
        return self._inner.diagonal(0, -2, -1).log().sum(-1) + 0.5 * d.log().sum(-1)

    def log_prob(self, value):
        w, d = self._given
        distance = self._checked(value) - self.loc
        across = ((w.mT / d.unsqueeze(-2)) @ distance.unsqueeze(-1)).squeeze(-1)
        squared = (distance.pow(2) / d).sum(-1) - squared_distance(self._inner, across)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + squared) - self.half_log_det()

    def entropy(self):
        found = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self.half_log_det()
        return found.expand(*self._batch_shape)
