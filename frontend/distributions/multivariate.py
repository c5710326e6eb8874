"""The normal distribution of vectors."""

import math

from ..arranging import broadcast_shapes
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
        self._factor = matrix if name == "scale_tril" else _factor_of(name, matrix)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, type(self).__new__(type(self)) if _instance is None else _instance)
        new._factor = self._factor
        return new

    @lazy_property
    def scale_tril(self):
        return self._factor.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def covariance_matrix(self):
        found = self._factor @ self._factor.mT
        return found.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def precision_matrix(self):
        inverse = solve_triangular(self._factor, eye(self._event_shape[0], dtype=self.loc.dtype), upper=False)
        return (inverse.mT @ inverse).expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return self._factor.pow(2).sum(-1).expand(*self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape=()):
        drawn = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self._factor @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        distance = squared_distance(self._factor, self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self.half_log_det()

    def half_log_det(self):
        """Half of the logarithm of the covariance's determinant."""
        return self._factor.diagonal(0, -2, -1).log().sum(-1)

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
