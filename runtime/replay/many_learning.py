"""Which calls of ever new sizes are replayed, learned from those that have ended (many_sizes.py).

Calls are alike here if one program serves their sizes and computes the same of them, and if they meet the same tensors
from outside. Three of three sizes make a ManySizes. A size that comes back again and again gets a recording and a
UsualFrame of its own (usual_learning.py), which begins sooner and takes layers as a whole.
"""

from functools import partial

from ..record.expectation import Expectation
from ..state.tensor import Tensor
from . import native_making
from .frame_usual import NOT_STARTED
from .many_sizes import Refused, many_sizes, programs_of
from .usual_entries import NotReplayed
from .usual_learning import reason_against, stable_of

_MOST, _MOST_KINDS = 8, 16
LEAST_SIZES = 3  # that have come
# So often a size comes among the last few others before it is recorded, as one that will come again.
_COMES_AGAIN, _LAST = 3, 64


class _Kind:
    """Calls that one program serves. memories, as of a Recording: what the last calls were like; sizes: the last ones
    that have come; refusal: why none like the last is replayed."""

    def __init__(self):
        self.memories, self.sizes, self.refusal = [], [], None


class ManyLearned:
    """What a compiled function has learned of its calls with sizes that are new."""

    def __init__(self):
        self.found = []  # the ManySizes, the one used last first
        self._kinds, self._lately = {}, {}
        self.postponed = False  # until native code is there, for which calls have been asking

    # --- calls --------------------------------------------------------------------------------------------------------
    def call(self, signature, function, args, kwargs, after):
        """function(*args, **kwargs) as a call like those before but for its sizes, or NOT_STARTED. The signature has no
        recording."""
        if self._comes_often(signature):
            return NOT_STARTED
        for many in self.found:
            result = many.call(function, args, kwargs, after)
            if result is not NOT_STARTED:
                if many in self.found[1:]:
                    self.found = [many, *(one for one in self.found if one is not many)]
                return result
        self._followed()
        return NOT_STARTED

    @property
    def usual(self):
        """The UsualFrame that the next call of a new size is expected to use, or None."""
        return self.found[0].usual if self.found else None

    def _followed(self):
        """A call of a new size is recorded, or its end is."""
        if self.found:
            self.usual.recording.n_followed += 1

    def _comes_often(self, signature):
        lately = self._lately
        times = lately[signature] = lately.pop(signature, 0) + 1
        while len(lately) > _LAST:
            del lately[next(iter(lately))]
        return times >= _COMES_AGAIN

    def went(self, many, has_departed):
        """A call has been like others so far, or has departed."""
        many.n_departed = many.n_departed + 1 if has_departed else 0
        if has_departed:
            self._followed()
            self.found = [one for one in self.found if one.is_of_use]

    # --- learning -----------------------------------------------------------------------------------------------------
    def learn(self, frame, structure, types):
        """A call has ended in this Frame, whose arguments had this structure and leaves of these types."""
        of_many = () if frame.is_interim or frame.needed is None else programs_of(frame)
        if not of_many or reason_against(frame) is not None:
            return
        kinds = tuple([None if issubclass(kind, Tensor) else kind for kind in types])
        ends = tuple([(flush.needed, flush.held, flush.step.depth) for flush in frame.flushes])
        key = tuple([id(one.code[0]) for one in of_many]), ends, frame.needed, str(structure), kinds
        kind = self._kinds[key] = self._kinds.pop(key, None) or _Kind()
        while len(self._kinds) > _MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]
        kind.sizes = [*kind.sizes[-2:], tuple(of_many[-1].numbers.values())]
        stable = stable_of(kind, ([one.code for one in of_many], structure), frame.lasting)
        if stable is None or len(set(kind.sizes)) < LEAST_SIZES or kind.refusal is not None:
            return
        self.postponed = not native_making.is_here()
        if self.postponed:
            return
        self.found = [one for one in self.found if one.is_of_use]
        if any(one.is_for(of_many, frame.needed, structure, stable) for one in self.found):
            return  # this call was recorded since its size comes often
        frame.confirmed = Expectation(frame, frame.start, [(vid, t, 0) for vid, t in stable])
        try:
            made = many_sizes(frame, structure, types, partial(setattr, kind, "refusal"))
        except (Refused, NotReplayed) as reason:
            kind.refusal = str(reason.args[0])
            return
        self.found = [made, *self.found[: _MOST - 1]]

    @property
    def n_calls(self):
        """How many were replayed."""
        return sum(many.n_calls for many in self.found)

    def lines(self):
        """What `explain` says."""
        found = [f"calls of sizes that are new are replayed too: {self.n_calls} so far"] if self.n_calls else []
        refusals = dict.fromkeys(kind.refusal for kind in self._kinds.values() if kind.refusal is not None)
        return found + [f"calls of each new size are recorded anew: {refusal}" for refusal in refusals]
