"""Ops that no program has, whose operands have a history: a decomposition of a matrix, say.

Such an op runs eagerly, and what it gives comes in like a tensor from outside. Then a step links it with the operands:
its value is what came in, and its derivatives are the op's, which programs compute if they are written with ops that
have kernels.
"""

from functools import lru_cache

from ...compiler.ops.kinds import number_meta
from ...compiler.ops.table import Meta, Op, OpError
from ..state.tensor import Tensor

_links = {}


def link_for(op, operands, attributes, default_dtype):
    """The op whose operands are the result of `op` and its operands; None if no program can compute its derivatives."""
    metas = tuple(_meta_of(x) for x in operands)
    requires = tuple(isinstance(x, Tensor) and x._requires_grad for x in operands)
    key = op, metas, requires, tuple(sorted(attributes.items())), default_dtype
    try:
        found = _has_derivatives(*key)
    except TypeError:
        return None  # attributes that nothing can be looked up by
    return _link(op) if found else None


def _meta_of(x):
    return Meta(tuple(x.shape), x.dtype) if isinstance(x, Tensor) else number_meta(x)


def _link(op):
    found = _links.get(op)
    if found is None:
        found = _links[op] = Op(
            f"{op.name} given",
            "composite",
            lambda operands, attributes, default_float: Meta(operands[0].shape, operands[0].dtype),
            decompose=lambda given, *operands, **attributes: given,
            vjp=lambda index: _rule(op, index),
            node_name=op.node_name,
        )
    return found


def _rule(op, index):
    rule = op.vjp_rule(index - 1) if index else None
    if rule is None:
        return None
    # Of its own value and not of what came in, which is a constant: a derivative of this one goes on through it.
    return lambda g, out, given, *operands, **attributes: rule(g, out, *operands, **attributes)


@lru_cache(256)
def _has_derivatives(op, metas, requires, attributes, default_dtype):
    from .build import link_has_kernels

    attributes = dict(attributes)
    try:
        result = op.infer(metas, attributes, default_dtype)
        given = Meta(result.shape, result.dtype)
        return link_has_kernels(_link(op), (given, *metas), (False, *requires), attributes, default_dtype)
    except (OpError, NotImplementedError):
        return False  # eager mode says so where it is asked for the derivative
