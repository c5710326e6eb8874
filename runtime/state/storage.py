"""What tensors that share memory share."""

import threading
import weakref

import numpy as np

SHARERS_CHECKED = 31  # every so many new sharers of a storage, the dead ones are dropped
_dropping = threading.Lock()
dropping = []  # an entry while Python drops them: native code does not meanwhile


class Storage:
    """What tensors sharing memory share: a version, bumped by every in-place change, and who they are (`sharers`, weak
    references, or None if nothing was ever shared). Arrays of the user that share it count among them.

    x.data and x have a Storage each, with a version each. Both know all sharers, and `changes` is one list with the
    number of in-place changes through either, since there are two. `exposed` is true if NumPy arrays of the user may
    show the memory, and None if there are none (exposure.py).
    """

    __slots__ = ("version", "sharers", "changes", "exposed")

    def __init__(self):
        self.version = 0
        self.sharers = None
        self.changes = self.exposed = None

    def shared_by(self, tensor):
        # A plain list: making a WeakSet takes longer than many kernels. The dead go when it has grown for a while.
        sharers = self.sharers
        if sharers is None:
            sharers = self.sharers = []
        elif len(sharers) & SHARERS_CHECKED == SHARERS_CHECKED and _dropping.acquire(blocking=False):
            _drop_dead(sharers)
        sharers.append(weakref.ref(tensor))

    def living_sharers(self):
        """The tensors and lent arrays that share the memory and are alive."""
        found = [reference() for reference in tuple(self.sharers or ())]
        return [tensor for tensor in found if tensor is not None]

    def expose(self):
        """Every tensor of the memory is told that an array of the user shows it."""
        for sharer in self.living_sharers():
            own = getattr(sharer, "_storage", None)
            if own is not None:
                own.exposed = True

    def only_shared_by(self, tensor):
        """Whether no other living tensor shares the memory. If so, that is remembered: nobody need look again."""
        if any(t is not tensor for t in self.living_sharers()):
            return False
        self.sharers = None
        return True

    def others_are_at_rest(self, tensor):
        """Whether all others that share the memory are tensors in it that no call in flight has made: they show what is
        there when they are read. Arrays of the user are read at any time."""
        others = [t for t in self.living_sharers() if t is not tensor]
        return all(getattr(t, "_data", None) is not None and (t._frame is None or t._frame.closed) for t in others)


class InferenceStorage(Storage):
    """The memory of inference tensors, which were made in inference_mode, and of all views of them."""

    __slots__ = ()


def shows_twice(array):
    """Whether an array shows an element of memory at several places, as a broadcast one does, or windows that share
    elements."""
    reached = array.itemsize - 1
    for step, n in sorted((abs(s), n) for n, s in zip(array.shape, array.strides) if n > 1):
        if step == 0:
            return True
        if step <= reached:
            return _some_meet(array)
        reached += (n - 1) * step
    return False


def _some_meet(array):
    """The same of dimensions that reach over others: by the place of every element."""
    places = np.zeros((), np.int64)
    for step, n in zip(array.strides, array.shape):
        places = np.add.outer(places, step * np.arange(n))
    places = np.sort(places, None)
    return bool((np.diff(places) < array.itemsize).any())


def is_apart(tensor):
    """Whether a tensor that shows another's memory has nothing to do with its history: detach() made it. Views of it
    are its views, not the other's."""
    return getattr(tensor, "_is_apart", None) is True


def _drop_dead(sharers):
    """In place, because a storage for another version has the same list, and by one thread at a time, which has the
    lock: others may append meanwhile."""
    dropping.append(True)
    for k in range(len(sharers) - 1, -1, -1):
        if sharers[k]() is None:
            del sharers[k]
    dropping.pop()
    _dropping.release()


def check_writable(target):
    """RuntimeError where writing would change several elements at once, or memory that NumPy says is read-only."""
    array = target.array
    if not array.flags.writeable and not _made_writable(target, array):
        reason = "the NumPy array whose memory the tensor shares is read-only"
        if shows_twice(array):
            reason = "more than one element of the written-to tensor refers to a single memory location"
        raise RuntimeError(
            f"unsupported operation: {reason}. Please clone() the tensor before performing the operation."
        )


def _made_writable(target, array):
    """Elements of an expanded tensor, none of them twice: NumPy gives them as read-only as it gives the whole."""
    base = target._base
    if base is None or shows_twice(array) or base._data is None or not base._data.flags.writeable:
        return False
    try:
        array.flags.writeable = True
    except ValueError:  # a part of windows that share elements
        return False
    return True
