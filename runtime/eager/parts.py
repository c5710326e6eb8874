"""Cotangents of parts of a large tensor, added where the parts are: of rows of a batch, of what split or chunk gives.

By its rule each of them is a tensor of zeros as large as the whole, with the part in its place, and the sum of n parts
passes n times over all elements:

    [g0  0  0]  +  [0  g1  0]  +  [0  0  g2]        what the rules say, and compiled calls compute in one pass
    [g0 g1 g2]                                      one array of zeros, to which every part is added in its place

The bits are the same: a sum with 0.0 changes no number but -0.0, which it makes 0.0, and -0.0 comes of no sum but that
of two of them. So where what has arrived may have elements that are -0.0, they are made 0.0 before the next cotangent
is added, but for those that it is added to.

What is known of such sums is in `Sweep.sums`: target -> [the array's tensor, where it may have -0.0], or how many parts
have been added to it as wholes.
"""

from math import prod
from weakref import ref

import numpy as np

from ...compiler.dtypes import float32, float64
from ...compiler.later import later
from ..state.modes import state
from ..state.tensor import tensor_of
from .saved import Shape

# Of smaller ones native code adds up the whole sooner than Python has taken one node,
FEWEST_ELEMENTS = 1 << 15
# if there are but a few parts: from the fifth on it asks where they are, and adds them there.
FEWEST_OF_MANY, MANY = 1 << 11, 4
# How much NumPy may do to find out whether parts overlap: columns side by side do not, though each begins where another
# has not ended.
_LOOKED_AT = 1 << 10
_new_result = later("runtime.programs.large:new_result")


def is_part(plan, fewest=FEWEST_ELEMENTS):
    """Whether the derivative of a plan puts what arrives into zeros of a large tensor, most of which stay that."""
    return takes_part(plan.op) and len(plan.metas) == 1 and _is_of_large(plan.metas[0], plan.meta, fewest)


def takes_part(op):
    """Whether an op may be one of a part."""
    return "part" in op.traits


def _is_of_large(whole, part, fewest):
    n = prod(whole.shape)
    return n >= fewest and 2 * prod(part.shape) <= n and part.dtype in (float32, float64)


def _concerns(node, is_of_many):
    """Whether the derivative of a node is one of those."""
    fewest = FEWEST_OF_MANY if is_of_many else FEWEST_ELEMENTS
    if node.recording is not None:
        return node.recording.is_part or is_of_many and is_part(node.recording.plan, fewest)
    # One that native code has made without a plan of its sizes.
    if node.sizes is None or not takes_part(node.op) or len(node.operands) != 1:
        return False
    return node.operands[0].__class__ is Shape and _is_of_large(node.operands[0], node.meta, fewest)


def _shape_of_whole(node):
    whole = node.operands[0] if node.recording is None else node.recording.plan.metas[0]
    return tuple(whole.shape)


def has_added(sweep, node, cotangent, add_to):
    """Whether the cotangent of a node's output was added to what arrives where its only edge leads. add_to(x, y) adds
    an array to another one."""
    edge = node.edges[0] if node.edges else None
    known = sweep.sums.get(edge[0]) if edge is not None and sweep.sums else None
    is_of_many = known.__class__ is list or known is not None and known >= MANY
    if not _concerns(node, is_of_many) or state.grad_enabled or state.frame is not None:
        return False
    array, meta = cotangent._data, node.meta
    if edge is None or array is None or array.shape != meta.shape or array.dtype != meta.dtype.numpy:
        return False
    target, index = edge
    if target.stands_for is not None or target.n_outputs != 1 or target.is_call:
        return False
    arrived = sweep.pending.get(target)
    if arrived is not None and arrived[0] is not None and not arrived[0].has_array:
        return False
    if sweep.is_wanted(edge):
        _add(sweep, target, node, array, add_to)
    return True


def _add(sweep, target, node, array, add_to):
    slots = sweep.slots_of(target)
    arrived = slots[0]
    known = sweep.sums.get(target)
    if known.__class__ is list and known[0]() is arrived is not None:
        part, signed = node.op.evaluate(arrived._data, **node.attributes), known[1]
        if signed is None:
            add_to(part, array)
            return
        total = part + array if np.may_share_memory(signed, part, max_work=_LOOKED_AT) else None
        np.add(signed, 0.0, out=signed)
        if total is None:
            known[1] = None
            add_to(part, array)
        else:
            known[1] = part
            part[...] = total
        return
    whole = tensor_of(_new_result(_shape_of_whole(node), node.meta.dtype.numpy))
    part = node.op.evaluate(whole._data, **node.attributes)
    if arrived is None:
        whole._data[...] = 0.0
        part[...] = array
    else:
        np.add(arrived._data, 0.0, out=whole._data)
        np.add(node.op.evaluate(arrived._data, **node.attributes), array, out=part)
    _note(sweep, target, slots, whole, part)


def known_part(known, arrived, node, cotangent):
    """Where the cotangent of a node of one tensor, of which it keeps the shape, is to be added in what has arrived of
    that, for native code; None if that is not all. `known`: what `sums` says of it."""
    if known[1] is not None or known[0]() is not arrived or "part" not in node.op.traits:
        return None
    whole = arrived._data
    if cotangent._data.shape != node.meta.shape or whole.shape != node.operands[0].shape:
        return None
    return node.op.evaluate(whole, **node.attributes)


def _note(sweep, target, slots, whole, signed):
    """What has arrived is an array that only the pass knows. `signed`: where it may have elements that are -0.0."""
    slots[0] = whole
    sweep.sums[target] = [ref(whole), signed]
