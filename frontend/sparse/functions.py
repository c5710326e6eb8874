"""Functions of users that take or give sparse tensors: their node is one of the values, and their backward sees
gradients as sparse as the tensors are."""

from types import SimpleNamespace

from ..runtime.eager.function_node import no_rule, rule_of
from ..runtime.state.tensor import Tensor
from .tensors import Sparse


def connected(connect, facts, context, args, outputs):
    """The outputs of a Function with their node, of which connect(facts, context, args, outputs) makes one of dense
    tensors. NotImplementedError if forward has changed an input."""
    if context._dirty:
        raise NotImplementedError(f"{facts.name}: mark_dirty is not there with sparse tensors; return a new tensor")
    values = {id(x): x.detach()._values_kept for x in outputs if isinstance(x, Sparse)}
    lacking = context._non_differentiable
    context._non_differentiable = tuple(values.get(id(x), x) for x in lacking)
    rule = rule_of(facts.owner)

    def backward(ctx, *cotangents):
        found = rule(ctx, *(_like(x, g) for x, g in zip(outputs, cotangents)))
        found = found if isinstance(found, tuple) else (found,)
        return tuple(_inner(x, g) for x, g in zip(args, found)) + found[len(args) :]

    on_values = SimpleNamespace(
        owner=SimpleNamespace(backward=backward, vjp=no_rule), name=facts.name, node_class=facts.node_class
    )
    inner = tuple(values.get(id(x), x) for x in outputs)
    made = connect(on_values, context, tuple(_values_of(x) for x in args), inner)
    return tuple(x._with(y) if isinstance(x, Sparse) else y for x, y in zip(outputs, made))


def _values_of(x):
    return x._values_kept if isinstance(x, Sparse) else x


def _like(out, gradient):
    return out.gradient_of(gradient) if isinstance(out, Sparse) and gradient is not None else gradient


def _inner(x, gradient):
    return x.values_of(gradient) if isinstance(x, Sparse) and isinstance(gradient, Tensor) else gradient


def attach():
    """Let the runtime ask a sparse tensor for it."""
    Sparse.connected = staticmethod(connected)
