"""In-place changes in a usual call: recorded as an op, what it needs before and after, and an assignment; replayed as
one entry.

A tensor from outside keeps its memory until the program writes it (`homes` tells who reads it before). A tensor made in
the call holds another value from then on: it moves from one number to the next.
"""

from ..record import frame_changes, frame_inputs, frame_through
from ..state.references import held
from ..state.tensor import pending_tensor


class Change:
    """The in-place part of an entry.

    old, new: the target's numbers before and after. given: the number of what the change is asked of, which may be
    another name of the target (frame_through.py); shown: the numbers of all its names, which show it again; is_silent:
    whether it does not count for who has saved what is given, and version: the number of the .data whose version counts
    it then. takes_memory: whether what is shown was the new value and
    no name before (frame_memory.py). steps: all that were recorded for it. target: what is
    changed, if it is the same tensor in every call. is_made: whether the call makes it. group: numbers of views, which
    nobody may hold. again: what the program is given that follows from numbers of the call (frame_through.py).
    """

    is_leaf = False
    __slots__ = (
        "op", "old", "new", "given", "shown", "is_silent", "version", "steps", "target", "is_made", "origin",
        "group", "meta", "old_meta", "takes_memory", "again", "may_be_seen",
    )  # fmt: skip

    def __init__(self, frame, step, steps, expected):
        self.old, self.new, *shown = step.operands
        self.shown = tuple(shown)
        self.given = step.detail.given if step.detail.given in shown else self.old
        self.takes_memory = step.detail.takes_memory
        is_other = self.given != self.old
        self.is_silent = self.takes_memory or is_other and frame_through.is_silent(frame, self.given)
        self.version = frame.versioned.get(self.given)
        self.op, self.origin = step.detail.op, step.detail.origin
        self.steps, self.meta, self.old_meta = steps, frame.metas[self.new], frame.metas[self.old]
        self.group = tuple(v for v in step.detail.group if v != self.old)
        self.is_made = self.origin is None
        self.target = expected.get(self.origin)
        self.may_be_seen = not self.is_made and not self.takes_memory  # frame_changes.py: may_be_seen_later
        self.again = frame_through.numbers_again(frame, self.given) if is_other else ()

    def homes(self):
        """What it adds to a frame's homes, if the target is the same in every call."""
        return {} if self.target is None else {id(self.target): (self.target, self.target._data, self.origin)}

    def ends_as_leaf(self):
        """Whether a tensor of the call is a leaf that requires gradients after it."""
        return self.is_made and self.meta.requires_grad and not self.meta.history

    # --- whether it may happen ------------------------------------------------------------------------------------
    def may_happen(self, call, target):
        """Whether nothing that lives shares the target's memory, and it may be written."""
        if self.given != self.old:
            if target._data is not None:
                return False
            target = call.tensors[self.old]
        storage = target._storage
        is_shared = storage is not None and storage.sharers is not None and not storage.only_shared_by(target)
        may_be_seen = self.may_be_seen and not target.has_history
        if is_shared and not (may_be_seen and storage.others_are_at_rest(target)):
            return False
        tensors = call.tensors
        if held(tensors, self.group):
            return False
        if self.is_made:
            return True
        if target._data is None:
            return False  # a call of another thread is about to change it
        same = target._requires_grad is self.meta.requires_grad and (self.target is None or target is self.target)
        return same and not frame_changes.is_borrowed(target._data, target)

    # --- what it does -----------------------------------------------------------------------------------------------
    def make(self, call, target):
        tensors = call.tensors
        target = target if self.given == self.old else tensors[self.old]
        if not self.is_silent:
            frame_changes.tell_others(target)
            target.bump_version()
        elif target._data is not None:
            frame_through.tell(target)
        if self.is_made:
            tensors[self.old] = target._data = None
            tensors[self.new] = target
            target._vid, target._meta, target._requires_grad = self.new, self.meta, self.meta.requires_grad
            return
        tensors[self.new] = target

    def unmake(self, call):
        """Before a Frame does all of it anew."""
        tensors = call.tensors
        target = tensors[self.new]
        if not self.is_silent:
            target._storage.version -= 1
        if self.is_made:
            meta = call.metas[self.old]
            tensors[self.old], tensors[self.new] = target, None
            target._vid, target._meta, target._requires_grad = self.old, meta, meta.requires_grad
        else:
            tensors[self.new] = None

    def redo(self, frame, call):
        """What a Frame notes down when it meets all these steps."""
        for step in self.steps[:-1]:
            pass_expected(frame, call)
            frame.step = step
            tensor = frame.pending(step.metas[0])
            if step.detail is not None:
                frame._note_view(tensor, step.operands[0])
                tensor._base = None
        pass_expected(frame, call)
        frame.step = self.steps[-1]
        target = frame.tensors[self.old]
        frame_changes.assign(frame, target, self.new, frame.tensors[self.new]._meta, self.is_silent)

    def clean(self, call):
        """After the call: the numbers hold what the next call begins with."""
        tensors = call.tensors
        if self.is_made:
            tensors[self.old], tensors[self.new] = pending_tensor(call, self.old, call.metas[self.old]), None
        else:
            tensors[self.new] = None


def make(call, change, target):
    """The change, in a call whose numbers come in as its function runs."""
    change.make(call, target)
    call.numbers += [start.among(call.numbers) for start in change.again]


def pass_expected(frame, call):
    """Number the expected tensors that come in before the next step. Where one shares memory with an argument, the
    frame expects none: they come in one by one."""
    target, tensors = call.expectation.jumps.get(frame.step, (None, ()))
    if frame.expected is None:
        for tensor in tensors:
            frame_inputs.enter(frame, tensor)
    elif tensors:
        frame.step = target
        frame.tensors += tensors
