"""Distributions of matrices: factors of correlation matrices, and covariances."""

import math

from ..arranging import diag_embed
from ..creation import arange, eye, randn
from ..functions import where
from ..linalg import slogdet, solve_triangular
from ..pointwise import mvlgamma
from ..shaping import cat
from . import constraints
from .distribution import Distribution, broadcast_all, tiny
from .gammas import Beta, Chi2
from .multivariate import MultivariateNormal


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices (Lewandowski, Kurowicka and Joe, J. Multivariate Analysis 100, 2009):
    their density is proportional to det^(concentration - 1)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, type(self).__new__(type(self)) if _instance is None else _instance)
        new.dim = self.dim
        return new

    def sample(self, sample_shape=()):
        # The onion method: row k has a squared length below the diagonal that is a Beta number, in any direction.
        steps = arange(self.dim - 1, dtype=self.concentration.dtype)
        offset = cat([steps.new_zeros(1), steps])
        last = (self.concentration + 0.5 * (self.dim - 2)).unsqueeze(-1) - 0.5 * offset
        lengths = Beta(offset + 0.5, last, validate_args=False).sample(sample_shape).unsqueeze(-1)
        normal = randn(self._extended_shape(sample_shape), dtype=steps.dtype).tril(-1)
        sizes = normal.norm(2, -1, keepdim=True)
        below = lengths.sqrt() * where(sizes > 0, normal / sizes, 0.0)
        return below + diag_embed((1 - below.square().sum(-1)).clamp(min=tiny(below)).sqrt())

    def log_prob(self, value):
        diagonal = self._checked(value).diagonal(0, -2, -1)[..., 1:]
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - arange(2, self.dim + 1)
        below = self.dim - 1
        alpha = self.concentration + 0.5 * below
        normalizer = 0.5 * below * math.log(math.pi) + mvlgamma(alpha - 0.5, below) - alpha.lgamma() * below
        return (order * diagonal.log()).sum(-1) - normalizer


class Wishart(Distribution):
    """The sum of outer products of `df` normal vectors of a covariance, which is given in one of three ways, as for
    MultivariateNormal."""

    arg_constraints = {
        "df": constraints.greater_than(0),
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.positive_definite
    has_rsample = True

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        matrices = [x for x in (covariance_matrix, precision_matrix, scale_tril) if x is not None]
        if len(matrices) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (matrix,) = matrices
        if matrix.ndim < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        size = matrix.shape[-1]
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        df = broadcast_all(df, matrix.new_zeros(*matrix.shape[:-2]))[0]
        zeros = matrix.new_zeros(*df.shape, size)
        self._vectors = MultivariateNormal(zeros, **given, validate_args=validate_args)
        if (df <= size - 1).any().item():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        self.df = df
        super().__init__(df.shape, (size, size), validate_args=False)
        self._validate_args = self._vectors._validate_args

    def expand(self, batch_shape, _instance=None):
        new = type(self).__new__(type(self)) if _instance is None else _instance
        new.df, new._vectors = self.df.expand(*batch_shape), self._vectors.expand(batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    covariance_matrix = property(lambda self: self._vectors.covariance_matrix)
    precision_matrix = property(lambda self: self._vectors.precision_matrix)
    scale_tril = property(lambda self: self._vectors.scale_tril)

    def _per_matrix(self, x):
        return x.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self):
        return self._per_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self):
        factor = self.df - self._event_shape[0] - 1
        return self._per_matrix(where(factor > 0, factor, math.nan)) * self.covariance_matrix

    @property
    def variance(self):
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(0, -2, -1)
        return self._per_matrix(self.df) * (covariance.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape=()):
        # Bartlett's decomposition.
        size = self._event_shape[0]
        degrees = self.df.unsqueeze(-1) - arange(size, dtype=self.df.dtype)
        lengths = Chi2(degrees, validate_args=False).rsample(sample_shape).sqrt()
        below = randn(self._extended_shape(sample_shape), dtype=self.df.dtype).tril(-1)
        factor = self._vectors._unbroadcasted_scale_tril @ (below + diag_embed(lengths))
        return factor @ factor.mT

    def log_prob(self, value):
        size, df = self._event_shape[0], self.df
        value, factor = self._checked(value), self._vectors._unbroadcasted_scale_tril
        inverse = solve_triangular(factor, eye(size, dtype=df.dtype), upper=False)
        trace = ((inverse.mT @ inverse) * value).sum((-2, -1))
        normalizer = df * (size * math.log(2) / 2 + self._vectors.half_log_det()) + mvlgamma(df / 2, size)
        return (df - size - 1) / 2 * slogdet(value)[1] - trace / 2 - normalizer

    def entropy(self):
        size, df = self._event_shape[0], self.df
        digammas = ((df / 2).unsqueeze(-1) - arange(size, dtype=df.dtype) / 2).digamma().sum(-1)
        found = (size + 1) * (size * math.log(2) / 2 + self._vectors.half_log_det()) + mvlgamma(df / 2, size)
        return found - (df - size - 1) / 2 * digammas + df * size / 2
