"""Results of a usual call that are views: made when the call ends, of the memory its program has written or read."""

from functools import partial
from typing import NamedTuple

from ...compiler.ops.parts import PARTS_AT
from ...compiler.ops.view import data
from ..programs.places import Place
from ..record.frame_views import detached_above, evaluate_view, made_like, shown_again
from ..state.storage import is_apart
from ..state.tensor import pending_tensor
from .native_views import ABOVE_FIRST, ABOVE_NONE, ABOVE_ROOT
from .usual_entries import NotReplayed


class ViewLayout(NamedTuple):
    """Where in the memory of a contiguous base a view lies: the numbers of both, the base's Place, and the view's own
    shape, strides and distance from the base, in bytes; and what it is a view of after the call."""

    number: int
    root: int
    base: Place
    shape: tuple
    strides: tuple
    offset: int
    is_writeable: bool
    above: int


class GivenViews:
    """The views that are alive when the call ends.

    rows: (number, number of its base, the (op, attributes) that lead to it from the base, whether it is a .data, what
    it is a view of after the call), for every one.
    """

    __slots__ = ("rows",)

    def __init__(self, last_step, numbers, roots):
        steps = {step.first: step for step in last_step.path() if step.metas}
        self.rows, again = [], shown_again(last_step)
        for vid in numbers:
            root, apart = roots[vid], detached_above(last_step, roots[vid], vid, again)
            above = ABOVE_ROOT if apart is None else ABOVE_NONE
            if apart != vid and apart in numbers:
                above = ABOVE_FIRST + apart
            self.rows.append(
                (
                    vid,
                    root,
                    [(s.op, s.attributes) for s in steps_between(steps, root, vid)],
                    steps[vid].op is data,
                    above,
                )
            )

    def fill(self, call):
        """Give every view its memory. The program has run; a base that the call computed may have been handed out
        already, and then only the views know it."""
        for vid, root, ops, has_version, above in self.rows:
            view = call.tensors[vid]
            base = view._base
            array = call.tensors[root]._data
            if array is None:
                array = base._data
            for op, attributes in ops:
                array = evaluate_view(op, array, attributes)
            view._data = array
            if has_version:
                view._base = None
                view.share_memory(base)
            else:
                view.share_storage(base)
                if above == ABOVE_ROOT:
                    view._base = base if base._base is None or is_apart(base) else base._base
                else:
                    view._base = None if above == ABOVE_NONE else call.tensors[above - ABOVE_FIRST]

    def layouts(self, last_step, changed):
        """The ViewLayout of every view; None if one is a .data, or of memory whose layout the path does not tell.
        changed: numbers of values that tensors from outside, or views, have got in the call."""
        return self.layouts_in(partial(made_like, last_step), changed)

    def layouts_in(self, base_of, changed):
        """The same of bases with the layout of the arrays that base_of(number) gives."""
        found = []
        for vid, root, ops, has_version, above in self.rows:
            base = base_of(root)
            if has_version or root in changed or not base.flags.c_contiguous:
                return None
            view = base
            for op, attributes in ops:
                view = evaluate_view(op, view, attributes)
            offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            place = Place(base.shape, base.dtype, None, False)
            is_writeable = view.flags.writeable
            found.append(ViewLayout(vid, root, place, view.shape, view.strides, offset, is_writeable, above))
        return found

    def hand_out(self, call, ended):
        """They are results from now on; the next call has others."""
        for vid, *_ in self.rows:
            view, meta = call.tensors[vid], call.metas[vid]
            view._frame = ended if meta.history else None
            call.tensors[vid] = pending_tensor(call, vid, meta)


def steps_between(steps, root, vid):
    """The steps that lead from a value to a view of it, in order. steps: by the number of the value they make."""
    found = []
    while vid != root:
        step = steps[vid]
        if step.op in PARTS_AT:
            raise NotReplayed("a part that is taken at another place in each call is looked at", step.line)
        found.append(step)
        vid = step.operands[0]
    return found[::-1]
