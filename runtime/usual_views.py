"""Results of a usual call that are views: made when the call ends, of the memory its program has written or read."""

from .frame_views import evaluate_view
from .tensor import pending_tensor


class GivenViews:
    """The views that are alive when the call ends.

    rows: (number, number of its base, the (op, attributes) that lead to it from the base), for every one.
    """

    __slots__ = ("rows",)

    def __init__(self, last_step, numbers, roots):
        steps = {step.first: step for step in last_step.path() if step.metas}
        self.rows = [(vid, roots[vid], _ops_between(steps, roots[vid], vid)) for vid in numbers]

    def give(self, call, ended):
        """Give every view its memory. The program has run; a base that the call computed has been handed out, and only
        the views know it."""
        tensors, metas = call.tensors, call.metas
        for vid, root, ops in self.rows:
            view = tensors[vid]
            base = view._base
            array = tensors[root]._data
            if array is None:
                array = base._data
            for op, attributes in ops:
                array = evaluate_view(op, array, attributes)
            view._data, view._frame = array, ended if metas[vid].history else None
            view._base = base if base._base is None else base._base
            view.share_storage(base)
            tensors[vid] = pending_tensor(call, vid, metas[vid])


def _ops_between(steps, root, vid):
    """The view ops from a value to a view of it, in order."""
    ops = []
    while vid != root:
        step = steps[vid]
        ops.append((step.op, step.attributes))
        vid = step.operands[0]
    return ops[::-1]
