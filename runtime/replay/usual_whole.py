"""What a usual call whose function does not run (whole_call.py) does besides ops: changes in place, leaves and tensors
that it makes, gradients that it asks for. Whether each may happen as usual is asked when its turn comes."""

from ..programs.recording import BACKWARD, GRADIENTS, UPDATE
from .usual_books import at_work
from .usual_inplace import Change
from .usual_leaves import NewLeaf
from .usual_through import Shown
from .usual_walks import may_be_watched


class _View:
    """Of an entry that makes a view: which number the base has depends on the changes before it."""

    def __init__(self, entry):
        self.view, self.base = entry.vid, entry.root

    def do(self, call):
        call.tensors[self.view]._base = call.tensors[self.base]
        return True

    def undo(self, call):
        call.tensors[self.view]._base = None


class _Entered:
    """Of a tensor that the function makes of what it knows, anew in each call: one that is the same stands for it."""

    def __init__(self, number, tensor):
        self.number, self.tensor = number, tensor

    def do(self, call):
        call.tensors[self.number] = self.tensor
        return True

    def undo(self, call):
        call.tensors[self.number] = None


class _Changed:
    """Of an entry that changes a tensor, or makes a leaf of it."""

    def __init__(self, change):
        self.change = change

    def do(self, call):
        change, target = self.change, call.tensors[self.change.given]
        if change.__class__ is not Shown and not change.may_happen(call, target):
            return False
        change.make(call, target)
        return True

    def undo(self, call):
        self.change.unmake(call)


class _Unwatched:
    """Of autograd.grad: nobody sees gradients that go past these."""

    def __init__(self, numbers):
        self.numbers = [vid for vid in numbers if vid >= 0]

    def do(self, call):
        return not any(may_be_watched(call.tensors[vid]) for vid in self.numbers)

    def undo(self, call):
        pass


def steps_of(frame, made):
    """What there is to do in a call like this one, in order; none if it is ops alone. made: number -> the tensor that
    stands for one that is new in each call."""
    entries, found = frame.entries[:-1], []
    if not frame.changes and not frame.walks and not made and all(entry.op is not GRADIENTS for entry in entries):
        return found
    for entry in entries:
        found += [_Entered(vid, made[vid]) for vid, _, _ in entry.fresh if vid in made]
        if entry.walk is not None:
            found.append(_Unwatched(entry.walk.walk.operands))
        if entry.op is GRADIENTS:
            found.append(_Unwatched(entry.operands[2 * entry.attributes[0] :]))
        if entry.change is not None:
            found.append(_Changed(entry.change))
        elif entry.root is not None:
            found.append(_View(entry))
    return found


def what_else(frame, shown):
    """What calls like this one do that needs the function, or None. shown: numbers of what NumPy arrays show too."""
    if frame.functions or frame.has_nodes or any(walk.walk.meetings for walk in frame.walks):
        return "a value of it has hooks or is made by a Function"
    fresh = [(vid, *key[2:]) for entry in frame.entries[:-1] for vid, _, key in entry.fresh]
    if any(flag or not leaf or strides is not None and vid not in shown for vid, flag, leaf, strides in fresh):
        return "it makes a tensor that requires gradients, or has gaps"
    if any(_root(frame, vid) in frame.fresh for vid in frame.needed.views):
        return "a result shows the memory of a tensor that is new in every call"
    if any(change.origin in frame.fresh for change in frame.changes):
        return "it changes a tensor that is new in every call"
    if frame.turned:
        return "an argument becomes a leaf"
    changes = frame.changes
    if any(type(change) not in (Change, Shown, NewLeaf) or change.takes_memory for change in changes):
        return "it gives a tensor other memory"
    if any(entry.op is GRADIENTS and entry.step.detail.has_unused for entry in frame.entries[:-1]):
        return "its gradients do not reach all that they are asked of, and an argument may be one of these"
    if any(entry.op in (BACKWARD, UPDATE) for entry in frame.entries[:-1]):
        return "it goes backwards"
    return "it goes backwards" if any(walk.accumulates for walk in frame.walks) else None


def _root(frame, vid):
    """The number of what a view in memory is a view of."""
    roots = {entry.vid: entry.root for entry in frame.entries[:-1] if entry.root is not None}
    while vid in roots:
        vid = roots[vid]
    return vid


class TakesSteps:
    """The part of a UsualFrame that does so."""

    @at_work
    def take_steps(self, steps):
        """Whether all of them may happen, and have; else nothing has."""
        self.changing = True
        for k, step in enumerate(steps):
            if not step.do(self):
                for done in reversed(steps[:k]):
                    done.undo(self)
                self.changing = False
                return False
        self.position.value = len(self.entries) - 1
        self.changing = False
        return True
