"""What a replayed call is expected to meet: the tensors from outside (parameters, optimizer state) of the last call.

Checking them one by one where they come in costs a microsecond each; checking that all of them still are what they
were costs a tenth of that. They are then numbered before the call begins, and the recording's input steps for them
are skipped over. A call that turns out differently forgets the expectation and goes on step by step.
"""

from collections import Counter
from operator import attrgetter, is_
from weakref import ref

from ..programs.recording import INPUT
from ..state.aligned import owner_of
from ..state.exposure import is_exposed

_data, _autograd = attrgetter("_data"), attrgetter("_requires_grad", "_node", "_frame")


class Expectation:
    """The stable tensors of a path, and how to skip the steps they come in by.

    jumps: step -> (the last of the expected input steps that directly follow it, their tensors in order).
    path: its steps. The numbers mean nothing on another path. compared: which arrays programs have looked at, see
    places.py.
    """

    __slots__ = (
        "start", "end", "path", "tensors", "arrays", "leaves", "numbers", "bound", "owners", "jumps", "known",
        "compared",
    )  # fmt: skip

    def __init__(self, frame, start, stable):
        self.start = start
        self.end = frame.step
        self.path = frozenset(frame.steps)
        self.tensors = [t for _, t, _ in stable]
        self.arrays = [t._data for t in self.tensors]
        self.leaves = [(t._requires_grad, None, None) for t in self.tensors]
        self.numbers = [vid for vid, _, _ in stable]
        self.bound = {id(t): vid for vid, t, _ in stable}
        self.known = dict(zip(self.numbers, self.arrays))
        self.owners = {}
        for vid, array in self.known.items():
            self.owners.setdefault(owner_of(array), []).append(vid)
        self.jumps = self._jumps(frame)
        self.compared = {}

    def _jumps(self, frame):
        tensors = dict(zip(self.numbers, self.tensors))
        jumps, path = {}, [self.start, *frame.steps[self.start.depth :]]
        k = 0
        while k + 1 < len(path):
            last, met = k, []
            while last + 1 < len(path) and path[last + 1].op is INPUT and path[last + 1].first in tensors:
                last += 1
                met.append(tensors[path[last].first])
            if met:
                jumps[path[k]] = (path[last], met)
            k = max(last, k + 1)
        return jumps

    def holds(self):
        """Whether every tensor is still the leaf it was, on the same array (whose shape and strides never change)."""
        tensors = self.tensors
        same = all(map(is_, map(_data, tensors), self.arrays)) and list(map(_autograd, tensors)) == self.leaves
        return same and not any(map(is_exposed, tensors))

    def may_hold_again(self):
        """Whether every tensor is on the array it was on: whether it requires gradients may be turned on and off."""
        return all(map(is_, map(_data, self.tensors), self.arrays))

    def enter(self, frame):
        """Number the tensors in the frame. False if one shares memory with an argument of the call."""
        if not self.owners.keys().isdisjoint(frame.owners):
            return False
        frame.bound.update(self.bound)
        frame.arrays.update(self.known)
        frame.owners.update(self.owners)
        frame.expected = frame.met_expected = self
        return True

    def tensors_met(self, frame):
        """number -> tensor of those met so far."""
        met = frame.step.metas_count()
        return {v: t for v, t in zip(self.numbers, self.tensors) if v < met}

    def entered(self, frame):
        """(number, tensor, version its memory had when the call began) of those met so far.

        Versions are read late, because a call that trains needs none: memory that the call has not changed itself has
        the version it had, and for what it has changed no version fits any more.
        """
        met = frame.step.metas_count()
        return [
            (vid, t, -1 if vid in frame.overwritten else t._version)
            for vid, t in zip(self.numbers, self.tensors)
            if vid < met
        ]


def _nothing():
    return None


class Met:
    """A tensor on its array, as a call has met them; equal to what another call has met if both are the very same. (An
    id says less: Python gives that of an object which is gone to the next one.)"""

    __slots__ = ("tensor", "array")
    __hash__ = None

    def __init__(self, tensor):
        array = tensor._data
        # Another thread's call may have made it one that is to be computed: then it is like nothing.
        self.tensor, self.array = ref(tensor), _nothing if array is None else ref(array)

    def __eq__(self, other):
        tensor, array = self.tensor(), self.array()
        if other is None or tensor is None or array is None:
            return False
        return tensor is other.tensor() and array is other.array()


def lasting(frame):
    """(number, tensor) of the tensors that a call met from outside, its arguments aside, in order: of leaves that still
    are what they were when they came in. The call is about to end."""
    entered, metas, first = sorted(frame._all_entered(), key=_number), frame.metas, frame.start.metas_count()
    times = Counter(id(t) for _, t, _ in entered)
    return [
        (vid, t)
        for vid, t, _ in entered
        if vid >= first and times[id(t)] == 1 and _is_unchanged(t, metas[vid], frame.arrays[vid])
    ]


def _number(entered):
    return entered[0]


def _is_unchanged(tensor, meta, array):
    return tensor._data is array and tensor._requires_grad is meta.requires_grad and not tensor.has_history


def follow(frame, op, operands, attributes, enabled):
    """The recorded step that comes next if it is this one, past inputs that were expected; else None.

    If it is not, what was expected and not met yet is forgotten, and the operands must be identified again.
    """
    step = frame.step.find(op, operands, attributes, enabled)
    if frame.expected is None:
        return step
    met = []
    if step is None:
        target, met = frame.expected.jumps.get(frame.step, (None, None))
        step = target.find(op, operands, attributes, enabled) if target is not None else None
    if step not in frame.expected.path:
        forget(frame)
        return None
    if met:
        # An update that turns out to have to run eagerly stays here.
        frame.changing = True
        frame.step = target
        frame.tensors += met
        frame.changing = False
    return step


def forget(frame):
    """Expected tensors that this call has not met come in one by one from now on, if at all."""
    if frame.expected is None:
        return
    changing, frame.changing = frame.changing, True
    expected, frame.expected, frame.met_expected = frame.expected, None, None
    frame.entered = sorted([*frame.entered, *expected.entered(frame)], key=_number)
    met = frame.step.metas_count()
    for vid, tensor in zip(expected.numbers, expected.tensors):
        if vid < met:
            continue
        del frame.bound[id(tensor)]
        array = frame.arrays.pop(vid)
        owner = owner_of(array)
        frame.owners[owner] = [v for v in frame.owners[owner] if v != vid]
    frame.changing = changing


def learn(frame, start):
    """After a call: what the next one may expect. Tensors met with the same array in two calls count as stable."""
    recording = frame.recording
    before = recording.last_entered
    frame.forget_expected()
    entered = [e for e in frame.entered if e[0] >= start.metas_count()]
    recording.last_entered = {vid: Met(t) for vid, t, _ in entered}
    times = Counter(id(t) for _, t, _ in frame.entered)

    def is_stable(vid, tensor):
        same = Met(tensor) == before.get(vid) and times[id(tensor)] == 1
        # Flags and memory may have changed since the tensor came in.
        unchanged = tensor._requires_grad is frame.metas[vid].requires_grad and tensor._data is frame.arrays[vid]
        return same and unchanged and not tensor.has_history

    stable = [e for e in entered if is_stable(e[0], e[1])]
    # Where the same ones come in anew every time, there is nothing more to learn.
    known = stable or before.keys() == recording.last_entered.keys()
    recording.expectation = Expectation(frame, start, stable) if known else None
