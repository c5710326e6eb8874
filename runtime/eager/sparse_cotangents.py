"""Cotangents that are sparse: of a table of which few rows were read, or what a user's Function returns.

They go along the edges as they are, are added up, and become the gradients of leaves. A node of an op computes with
dense ones, so there they become dense; a user's Function gets them as they are, as hooks do.

What they are is the frontend's to say (frontend/sparse/tensors.py): they know how to add themselves up.
"""

from ...compiler.ops.arithmetic import add
from ..state.references import is_held
from ..state.tensor import Tensor


class WrongLayout(RuntimeError):
    """A gradient that has other sparse dimensions than the tensor it belongs to."""


# An entry once a leaf has got a sparse gradient: then optimizers look for them.
given = []


def dense(cotangents):
    """The cotangents, none of them sparse."""
    if all(c is None or c.has_array for c in cotangents):
        return cotangents
    return [c if c is None or c.has_array else c.to_dense() for c in cotangents]


def sum_of(x, y):
    """The sum of two cotangents; dense unless both are sparse."""
    if x.__class__ is Tensor and y.__class__ is Tensor or x.has_array and y.has_array:
        return add(x, y)
    return y.plus(x) if x.has_array else x.plus(y)


def add_sparse(leaf, cotangents, create_graph):
    """leaf.grad += the only cotangent, where one of the two is sparse. In place, unless what is there is sparse and
    what comes is dense."""
    gradient, cotangent = leaf._grad, cotangents[0]
    if not cotangent.has_array and not given:
        given.append(True)
    if gradient is None:
        del cotangent
        is_kept = create_graph or not is_held(cotangents, 0) and cotangents[0].is_whole()
        leaf._grad = cotangents[0] if is_kept else cotangents[0].clone()
    elif create_graph or cotangent.has_array:
        leaf._grad = sum_of(gradient, cotangent)
    else:
        cotangent.add_to(gradient)
