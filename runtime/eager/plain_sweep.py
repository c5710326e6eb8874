"""A backward pass in Python over nodes of ops to which nobody has attached anything: most nodes of most passes.

`Sweep.take_one` (engine.py) runs any node, and says with a dozen calls what is written out here. Derivatives come from
eager_python.py as functions of a node and what has arrived (`Recording.quick`); where there is none, or it finds other
arrays than it was made for, the node is take_one's.
"""

from bisect import insort

from ..state.modes import state, watching
from .node import ACCUMULATE_SEQUENCE, AccumulateGrad
from .sparse_cotangents import sum_of


def run_nodes(sweep, accumulate):
    """Run all nodes that something arrives at, of a pass that is not differentiated and in no compiled call."""
    pending, waiting, leaves = sweep.pending, sweep.queue.waiting, sweep.queue.leaves
    is_plain = True
    while waiting or leaves:
        if is_plain and _has_run(sweep, pending, waiting, leaves, accumulate):
            continue
        sweep.take_one()
        # What users have attached there may have changed this.
        is_plain = not watching and not state.grad_enabled


def _has_run(sweep, pending, waiting, leaves, accumulate):
    """Whether the next node was plain, and has run."""
    captured = sweep.captured
    if not waiting:
        return captured is None and _has_accumulated(pending, leaves, accumulate)
    node = waiting[-1][1]
    recording = node.recording
    if recording is None or recording.quick is None or node.hooks or node.pre_hooks or node.retained:
        return False
    cotangent, reach = pending[node][0], sweep.reach
    if captured is not None:
        if (id(node), 0) in captured:
            captured[id(node), 0] = cotangent
        if not reach.get(node):  # one that a call has gone over to in this very pass is take_one's too
            return False
    if cotangent is None or not cotangent.has_array or (results := recording.quick(node, cotangent)) is None:
        return False
    waiting.pop()
    del pending[node]
    for edge, result in zip(node.edges, results):
        if edge is None or result is None:
            continue
        target, index = edge
        if reach is not None and _is_in_vain(target, index, reach, captured):
            continue
        slots, sequence = pending.get(target), target.sequence
        if target.stands_for is not None:
            sweep.contribute(target, index, result)
        elif slots is not None:
            if sequence == ACCUMULATE_SEQUENCE:
                leaves[target] = leaves.pop(target)
            slots[index] = result if slots[index] is None else sum_of(slots[index], result)
        else:
            if sequence == ACCUMULATE_SEQUENCE:
                leaves[target] = None
            elif not waiting or waiting[-1][0] < sequence:
                waiting.append((sequence, target))
            else:
                insort(waiting, (sequence, target))
            if target.n_outputs == 1:
                pending[target] = [result]
            else:
                pending[target] = slots = [None] * target.n_outputs
                slots[index] = result
    if not sweep.retain_graph:
        node.release()
    return True


def _is_in_vain(target, index, reach, captured):
    """Whether nobody wants what comes of a cotangent there."""
    runs = reach.get(target)
    return runs is None or not runs and (id(target), index) not in captured


def _has_accumulated(pending, leaves, accumulate):
    """Whether nothing was attached to the next leaf, and it has its gradient."""
    leaf = next(iter(leaves))
    if leaf.__class__ is not AccumulateGrad or leaf.pre_hooks or leaf.retained:
        return False
    del leaves[leaf]
    accumulate(leaf, pending.pop(leaf), False)
    return True
