"""What stands for a finished usual call whose own backward has freed what its results were computed from."""

from ..programs.recording import BACKWARD, GRADIENTS
from ..record.frame import Frame
from ..record.frame_autograd import differentiated


class EndedCall:
    """The frame of such results. To any question it makes the closed Frame that a recorded call would have left."""

    __slots__ = (
        "recording", "expectation", "step", "freed", "changed", "changed_metas", "common", "leaves", "frame",
        "changed_leaves", "__weakref__",
    )  # fmt: skip
    closed = True

    def __init__(self, usual, changed):
        """What all such calls have in common. changed: what `changed_by` has said."""
        self.recording, self.expectation, self.step = usual.recording, usual.expectation, usual.entries[-2].step
        self.freed = [k for again in usual.walks for k in again.walk.freed]
        self.changed, self.changed_metas = changed
        self._take_leaves(self, usual)

    def of_call(self, usual):
        """That of one call, whose leaves are its own."""
        made = _new(EndedCall)
        made._take_leaves(self, usual)
        return made

    def _take_leaves(self, common, usual):
        tensors, self.common, self.frame = usual.tensors, common, None  # frame stands for all that have no leaves
        self.leaves = [(vid, tensors[vid], 0) for vid in usual.own_leaves if tensors[vid] is not None]
        self.changed_leaves = common.changed and _changed_leaves(common.changed, tensors)

    def _frame_of(self, tensor):
        if self.frame is not None:
            tensor._frame = self.frame
            return self.frame
        common = self.common
        frame = Frame(common.recording)
        frame.step, frame.entered, frame.met_expected = common.step, self.leaves, common.expectation
        frame.freed = {k for step in frame.steps if step.op in (BACKWARD, GRADIENTS) for k in step.detail.frees}
        frame.freed.update(common.freed)
        frame.changed_leaves = {v: leaf for v, leaf in self.changed_leaves.items() if leaf is not None}
        frame.changed_metas, frame.closed, frame.ends_freed = common.changed_metas, True, True
        tensor._frame = frame
        if not self.leaves:
            self.frame = frame
        return frame

    @staticmethod
    def changed_by(frame):
        """(number -> the leaf that holds this value since a call like a Frame's has changed it, None for one that is
        another in each call; the metas of what has others since)."""
        known = {id(tensor) for tensor in frame.confirmed.tensors}
        leaves = {v: leaf if id(leaf) in known else None for v, leaf in frame.changed_leaves.items()}
        return leaves, frame.changed_metas

    def node_of(self, tensor):
        return self._frame_of(tensor).node_of(tensor)

    def edge_of(self, tensor):
        return self._frame_of(tensor).edge_of(tensor)

    def use_nodes(self, tensor):
        self._frame_of(tensor).use_nodes(tensor)

    def leave(self, tensor):
        self._frame_of(tensor).leave(tensor)

    def backward_outside(self, *_):
        return False

    def gradients_outside(self, *_):
        return None


_new = object.__new__


def own_leaves(frame, entries, argument_keys):
    """Numbers of the arguments that require gradients, or do so later, and that any lead to: an ended call that leads
    there is one per call. It holds no others, such as the state that the call before has left and this one detaches."""
    keys = [(vid, key) for entry in entries for vid, _, key in entry.fresh]
    keys += enumerate(key for key in argument_keys if key is not None)
    reached = differentiated(frame)
    return [vid for vid, key in keys if key[2] and vid in reached]


def _changed_leaves(changed, tensors):
    return {v: tensors[v] if leaf is None else leaf for v, leaf in changed.items()}
