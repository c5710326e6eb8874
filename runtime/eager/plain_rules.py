"""The derivative of an op by its rules alone, where what autodiff.vjp asks besides is known of the plan.

Backward passes that are differentiated again, and those that an open call follows, run rules for every node.
"""

from ...compiler.autodiff import conform
from ...compiler.ops.kinds import is_unknown
from ..state.tensor import dtype_of


def plain_rules(plan, differentiated):
    """The rule for every operand of a plan, None where there is none, if what they give need only be brought into the
    operand's shape and type; else None, and autodiff.vjp knows what there is to do."""
    op, positions = plan.op, range(len(plan.metas))
    if op.vjp == () or any(is_unknown(op, k) for k in positions):
        return None
    if any(meta.dtype.is_half or meta.dtype.is_complex for meta in (plan.meta, *plan.metas)):
        return None
    return [op.vjp_rule(k) if differentiated[k] else None for k in positions]


def in_form(result, meta):
    """A rule's result with the shape and type of the operand that it is for."""
    if result is None:
        return None
    data, known = result._data, result._meta
    shape, dtype = (data.shape, dtype_of(data)) if data is not None else (known.shape, known.dtype)
    return result if shape == meta.shape and dtype is meta.dtype else conform(result, meta.shape, meta.dtype)
