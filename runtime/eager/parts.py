"""Cotangents of parts of a large tensor, added where the parts are: of rows of a batch, of what split or chunk gives.

By its rule each of them is a tensor of zeros as large as the whole, with the part in its place, and the sum of n parts
passes n times over all elements:

    [g0  0  0]  +  [0  g1  0]  +  [0  0  g2]        what the rules say, and compiled calls compute in one pass
    [g0 g1 g2]                                      one array of zeros, to which every part is added in its place

The bits are the same: a sum with 0.0 changes no number but -0.0, which it makes 0.0. So what has arrived first is made
0.0 where it is -0.0, once, before the second cotangent is added.
"""

from math import prod
from weakref import ref

import numpy as np

from ...compiler.dtypes import float32, float64
from ...compiler.later import later
from ..state.modes import state
from ..state.tensor import tensor_of

# Of smaller ones native code adds up the whole sooner than Python has taken one node.
FEWEST_ELEMENTS = 1 << 15
_new_result = later("runtime.programs.large:new_result")


def is_part(plan):
    """Whether the derivative of a plan puts what arrives into zeros of a large tensor, most of which stay that."""
    if "part" not in plan.op.traits or len(plan.metas) != 1:
        return False
    n = prod(plan.metas[0].shape)
    return n >= FEWEST_ELEMENTS and 2 * prod(plan.meta.shape) <= n and plan.meta.dtype in (float32, float64)


def has_added(sweep, node, cotangent):
    """Whether the cotangent of a node's output was added to what arrives where its only edge leads."""
    recording = node.recording
    if recording is None or not recording.is_part or state.grad_enabled or state.frame is not None:
        return False
    edge, array, plan = node.edges[0], cotangent._data, recording.plan
    if edge is None or array is None or array.shape != plan.meta.shape or array.dtype != plan.meta.dtype.numpy:
        return False
    target, index = edge
    if target.stands_for is not None or target.n_outputs != 1 or target.is_call:
        return False
    arrived = sweep.pending.get(target)
    if arrived is not None and arrived[0] is not None and not arrived[0].has_array:
        return False
    if sweep.is_wanted(edge):
        _add(sweep, target, plan, array)
    return True


def _add(sweep, target, plan, array):
    slots = sweep.slots_of(target)
    arrived = slots[0]
    known = sweep.sums.get(target)
    if known is not None and known[0]() is arrived is not None:
        whole, first = arrived, known[1]
        if first is not None:
            np.add(first, 0.0, out=first)
            known[1] = None
    else:
        whole = tensor_of(_new_result(tuple(plan.metas[0].shape), plan.meta.dtype.numpy))
        if arrived is None:
            whole._data[...] = 0.0
            first = plan.op.evaluate(whole._data, **plan.attributes)
            first[...] = array
            _note(sweep, target, slots, whole, first)
            return
        np.add(arrived._data, 0.0, out=whole._data)
        _note(sweep, target, slots, whole, None)
    part = plan.op.evaluate(whole._data, **plan.attributes)
    np.add(part, array, out=part)


def _note(sweep, target, slots, whole, first):
    """What has arrived is an array that only the pass knows. `first`: where it may have elements that are -0.0."""
    slots[0] = whole
    sweep.sums[target] = [ref(whole), first]
