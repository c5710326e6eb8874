"""Leaves made inside a usual call (frame_leaves.py): a tensor of the call goes from one number to the next, and an
argument comes in anew where it is used next."""

from itertools import repeat
from operator import is_

from ..record import frame_leaves
from ..state.modes import state
from ..state.references import held
from ..state.tensor import pending_tensor
from .usual_books import at_work
from .usual_inplace import pass_expected


class NewLeaf:
    """What a Change (usual_inplace.py) is for an entry that makes a leaf of a tensor of the call. group: numbers of its
    views, which nobody may hold."""

    __slots__ = ("old", "new", "step", "given", "group", "meta", "old_meta")
    op = target = origin = None
    is_silent, shown, again = False, (), ()
    is_made, is_leaf, takes_memory = True, True, False

    def __init__(self, frame, step):
        (self.old,), self.new, self.step = step.operands, step.first, step
        self.given = self.old
        self.group = tuple(frame.views.get(self.old, ()))
        self.meta, self.old_meta = step.metas[0], frame.metas[self.old]

    def homes(self):
        return {}

    def ends_as_leaf(self):
        return True

    def may_happen(self, call, tensor):
        return tensor is call.tensors[self.old] and tensor._data is None and not held(call.tensors, self.group)

    def make(self, call, tensor):
        tensors = call.tensors
        tensors[self.old], tensors[self.new] = None, tensor
        tensor._vid, tensor._meta, tensor._requires_grad = self.new, self.meta, True

    def unmake(self, call):
        """Before a Frame does it anew."""
        tensors, meta = call.tensors, call.metas[self.old]
        tensor = tensors[self.old] = tensors[self.new]
        tensors[self.new] = None
        tensor._vid, tensor._meta, tensor._requires_grad = self.old, meta, False

    def redo(self, frame, call):
        """What a Frame notes down when it meets the step."""
        pass_expected(frame, call)
        frame.step = self.step
        frame_leaves.move(frame, frame.tensors[self.old], self.old, self.step)

    def clean(self, call):
        """After the call: the next one has another tensor, without a gradient."""
        tensors = call.tensors
        tensors[self.old], tensors[self.new] = pending_tensor(call, self.old, call.metas[self.old]), None


class MakesLeaves:
    """The part of a UsualFrame that makes leaves. turned: position -> numbers of the tensors from outside that become
    leaves there which require gradients."""

    def turn(self, tensor):
        """A tensor from outside is about to become a leaf."""
        if not self.working and not self._has_met(tensor):
            return  # made in the call, or unknown to it: it comes in as the leaf that it is then
        numbers = () if self.working else self.turned.get(self.position.value, ())
        if not any(self.tensors[k] is tensor for k in numbers):
            (self.onlooker if self.working else self.depart(asked="turn")).turn(tensor)

    def forget(self, tensor):
        """A tensor from outside is about to be none that requires gradients, or to change otherwise."""
        if self.working or self._has_met(tensor):
            (self.onlooker if self.working else self.depart(asked="forget")).forget(tensor)

    def _has_met(self, tensor):
        """Whether a tensor is one of the call, or one that it expects."""
        return any(map(is_, self.tensors, repeat(tensor)))

    def turned_so_far(self):
        """(position, tensor) of those that have become leaves: nothing else can have turned them."""
        pairs = [(k, self.tensors[vid]) for k, numbers in self.turned.items() for vid in numbers]
        return [(k, tensor) for k, tensor in pairs if k <= self.position.value and tensor._requires_grad]

    def before_gradient(self, tensor):
        """.grad of a tensor is about to be set. The call can take it back of one from outside; a leaf made here is
        another tensor in every call."""
        if tensor._frame is not self or self.working:
            self.changed_gradients.append(((tensor,), (tensor._grad,)))
        elif not tensor._requires_grad or tensor._meta.history:
            # A tensor made here could not be used again as it is.
            self.depart(asked="before_gradient").before_gradient(tensor)

    def make_leaf(self, tensor):
        return not self.working and (self._take_leaf(tensor) or self.depart(asked="make_leaf").make_leaf(tensor))

    @at_work
    def _take_leaf(self, tensor):
        """Whether the tensor becomes a leaf here too, and has."""
        entry = self.entries[self.position.value]
        change = entry.change
        if change is None or not change.is_leaf or entry.grad_enabled is not state.grad_enabled:
            return False
        if not change.may_happen(self, tensor):
            return False
        self.changing = True
        change.make(self, tensor)
        self.position.value += 1
        self.changing = False
        return True
