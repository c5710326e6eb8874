"""Code that runs while weft works on a call, and is no part of it: it looks on.

Python runs signal handlers, finalizers, callbacks of weak references and of the garbage collector, and trace functions
between any two bytecodes, weft's own included: then the books of the call in flight may be half written. Other threads
run at such moments too. What they do with tensors must be what eager mode would show, and change nothing of the call:

    door        a method of a frame that is called from outside; while one is at work, who else comes in is an onlooker
    Onlooker    answers onlookers in the frame's place: their ops run eagerly and are not recorded, values that the call
                has not computed yet are computed apart from it (apart.py), and tensors of the call cannot be changed
    Visitor     answers other threads: memory is for them as it was before the call, until the call's program has run

A handler that interrupts the user's own code, and not weft, is simply part of the call, as a function called there is.
"""

import time
from functools import wraps

import numpy as np

from ..eager.gate import apply_eagerly, inplace_eagerly
from ..eager.node import BaseNode, named
from ..eager.update import update_eagerly
from ..state.aligned import address_of
from ..state.exposure import Copies
from ..state.modes import state
from .apart import value_apart, value_from_afar
from .frame_again import NothingAgain
from .frame_autograd import node_name

_PATIENCE_SECONDS = 0.1  # of another thread, for the call to end: the call may be waiting for that thread
_PAUSE_SECONDS = 0.0002


def door(method):
    """Decorates a method of a frame that code outside of the frame's own work calls."""
    name = method.__name__

    @wraps(method)
    def entered(self, *args):
        if self.closed and state.frame is not self:
            return method(self, *args)
        if self.working:
            return getattr(self.onlooker, name)(*args)
        self.working = True
        try:
            return method(self, *args)
        except BaseException:
            self.torn = self.changing
            raise
        finally:
            self.working = self.torn

    return entered


def shown_homes(tensor, homes):
    """Those of the homes (frame.py) that another tensor, in memory, shows something of."""
    data, storage = tensor._data, tensor._storage
    if data is None or storage is None or storage.sharers is None:
        return []
    return [one for one in homes.values() if np.may_share_memory(one[1], data)]


def _with_changes(array, changed):
    """A copy of an array as it will be when memory that it shows something of holds other values: (memory, values)."""
    arrays = [array, *(memory for memory, _ in changed)]
    bounds = [np.lib.array_utils.byte_bounds(one) for one in arrays]
    low, high = min(first for first, _ in bounds), max(last for _, last in bounds)
    copy = np.empty(high - low, np.uint8)

    def placed(one):
        return np.ndarray(one.shape, one.dtype, copy.data, address_of(one) - low, one.strides)

    placed(array)[...] = array
    for memory, values in changed:
        placed(memory)[...] = values
    return placed(array)


class Watched(Copies, NothingAgain):
    """What frames have for onlookers.

    working: whether the frame's books are being written. changing: whether they are half written, so that an exception
    that comes now, from a signal handler, leaves them so for good: they are torn then, and the call will fail.
    flight: what the program that is about to run, or has run just now, computes; `written`: its outputs; what it
    returned is noted in the moment it ends. built_from: the frame that this one is about to take the place of.
    """

    def __init__(self):
        super().__init__()
        # Nothing of this is also an attribute of the class: Python would take longer to find it.
        self.closed = self.working = self.changing = self.torn = False
        self.flight = self.sight = None
        self.written = self.returned = ()
        self.built_from = None
        self.layouts = {}  # number of a value -> its layout, of those that somebody has asked for

    @property
    def has_run(self):
        """Whether memory is as the program under way leaves it, and the books are not."""
        return self.flight is not None and self.returned == [0]

    @property
    def onlooker(self):
        return Onlooker(self if self.built_from is None else self.built_from)

    def as_changed(self, tensor, homes):
        """The array of a tensor in whose memory the call has changed something that no program has written yet: it does
        so now. None of other tensors. For onlookers it is a copy that shows what will be there."""
        if id(tensor) in homes:
            return self.materialize(tensor)
        found = shown_homes(tensor, homes)
        if not found:
            return None
        target, home, _ = found[0]
        if self.materialize(target) is home:
            return tensor._data
        return _with_changes(tensor._data, [(memory, self.materialize(one)) for one, memory, _ in found])

    def give_up(self):
        """End the call if that has not been done: an exception came between two lines."""

    def answer(self, tensor):
        """Who answers for a tensor of this frame, which is not the one in flight in this thread, when the call is over
        or takes too long: None if the tensor belongs to no call then."""
        return self if state.hidden is self else Visitor(self).wait(tensor)

    def answer_at_once(self):
        """Who gives the values of such tensors."""
        return self if state.hidden is self else Visitor(self)


class Onlooker(NothingAgain):
    """In the place of a frame that is at work."""

    def __init__(self, frame):
        self.frame = frame

    @property
    def homes(self):
        return self.frame.homes

    # Nobody takes back what an onlooker changes.
    @property
    def changed_gradients(self):
        return []

    remembered = changed_gradients

    def apply(self, op, operands, attributes):
        return apply_eagerly(op, operands, attributes)

    def apply_inplace(self, op, target, operands, attributes):
        self._refuse("changed in place", target)
        return inplace_eagerly(op, target, operands, attributes)

    def update(self, rule, rows, numbers, flags):
        for row in rows:
            for x in row:
                self._refuse("updated", x)
        for row in rows:
            update_eagerly(rule, row, numbers, flags)

    def materialize(self, tensor):
        """The array of a tensor whose value the call has not computed yet."""
        return value_apart(self.frame, tensor)

    def can_differentiate(self, outputs, create_graph, inputs):
        return False

    def gradients(self, outputs, cotangents, inputs, retain_graph, create_graph):
        return None

    def drop_unseen_views(self, target):
        pass

    def order_nodes(self):
        pass

    def before_lending(self, tensor):
        pass

    def before_gradient(self, tensor):
        pass

    def note(self, reason):
        pass

    def leave(self, tensor):
        self._refuse("changed", tensor)

    forget = turn = leave

    def before_new_memory(self, tensor):
        self._refuse("given other memory", tensor)

    def use_nodes(self, tensor):
        self._refuse("given hooks", tensor)

    def forget_expected(self):
        raise RuntimeError(
            "the default dtype was to be changed by code that interrupts a compiled call in the middle of one of its "
            "ops: a signal handler, a finalizer or a trace function. Change it after the call."
        )

    def node_of(self, tensor):
        if not tensor._meta.history:
            return None
        stretch, _, _ = self.frame.books()
        return InFlightNode(node_name(stretch, stretch.step_of(tensor._vid)))

    def edge_of(self, tensor):
        return (self.node_of(tensor), 0)

    def _refuse(self, what, tensor):
        if self.frame.holds(tensor):
            raise RuntimeError(
                f"a tensor of shape {tensor.shape} was to be {what} that belongs to a compiled call in flight, by code "
                "that is no part of the call: a signal handler, a finalizer or a trace function in the middle of one "
                "of its ops, or another thread. Such code can read the tensor; change it after the call."
            )


class InFlightNode(BaseNode):
    """What an onlooker sees behind a value of a call in flight; its backward cannot be run yet."""

    __slots__ = ()

    def __new__(cls, name):
        return object.__new__(named(cls, name))

    def __init__(self, name):
        super().__init__(())

    def run(self, cotangent):
        raise RuntimeError(
            f"backward through {self.name()}: it belongs to a compiled call in flight, and the code that runs backward "
            "is no part of the call: a signal handler, a finalizer, or another thread. Run it after the call."
        )


class Visitor(Onlooker):
    """In the place of a frame whose call runs in another thread.

    It waits until the call has ended. If that takes long, because the call waits for this very thread perhaps, a value
    is computed apart.
    """

    def __init__(self, frame):
        super().__init__(frame)
        self.until = time.monotonic() + _PATIENCE_SECONDS

    def wait(self, tensor):
        """Who answers for the tensor when the call has ended."""
        while True:
            frame = tensor._frame  # may have been replaced by another on the way
            if frame is None or frame.closed:
                return frame
            if time.monotonic() > self.until:
                self.frame = frame
                return self
            time.sleep(_PAUSE_SECONDS)

    def materialize(self, tensor):
        while tensor._data is None:
            frame = tensor._frame
            if frame is not None and frame.closed:
                # Its call has failed, if it has not been computed just now.
                return frame.materialize(tensor)
            home = None if frame is None else frame.homes.get(id(tensor))
            if home is not None:
                return home[1]
            if time.monotonic() > self.until:
                return value_from_afar(tensor)
            time.sleep(_PAUSE_SECONDS)
        return tensor._data
