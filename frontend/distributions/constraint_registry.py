"""Transforms from all numbers to a constraint: `biject_to`, one to one, and `transform_to`, in the easiest way."""

from . import constraints, transforms
from .distribution import is_number


class ConstraintRegistry:
    """Constraint -> how to make its transform."""

    def __init__(self):
        self._factories = {}

    def register(self, constraint, factory=None):
        """Let factory(constraint) be the transform for constraints of a class; as a decorator without a factory."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._factories[kind] = factory
        return factory

    def __call__(self, constraint):
        factory = self._factories.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints: no transform onto them is registered; "
                "register one with biject_to.register or transform_to.register"
            )
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _bounded(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if is_number(low) and is_number(high) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _from_bound(bound, direction):
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, direction)])


def _independent(registry):
    return lambda c: transforms.IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims)


_BOTH = [
    (constraints.real, lambda c: transforms.identity_transform),
    (constraints.greater_than, lambda c: transforms.ExpTransform() if _is_zero(c) else _from_bound(c.lower_bound, 1)),
    (
        constraints.greater_than_eq,
        lambda c: transforms.ExpTransform() if _is_zero(c) else _from_bound(c.lower_bound, 1),
    ),
    (constraints.less_than, lambda c: _from_bound(c.upper_bound, -1)),
    (constraints.interval, _bounded),
    (constraints.half_open_interval, _bounded),
]


def _is_zero(constraint):
    return is_number(constraint.lower_bound) and constraint.lower_bound == 0


for _registry in (biject_to, transform_to):
    for _constraint, _factory in _BOTH:
        _registry.register(_constraint, _factory)
    _registry.register(constraints.independent, _independent(_registry))
    _registry.register(
        constraints.cat, lambda c, to=_registry: transforms.CatTransform([to(x) for x in c.cseq], c.dim, c.lengths)
    )
    _registry.register(
        constraints.stack, lambda c, to=_registry: transforms.StackTransform([to(x) for x in c.cseq], c.dim)
    )
    _registry.register(constraints.corr_cholesky, lambda c: transforms.CorrCholeskyTransform())
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
for _constraint in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_constraint, lambda c: transforms.PositiveDefiniteTransform())
