"""What stands for a finished usual call whose own backward has freed what its results were computed from."""

from ..programs.recording import BACKWARD, GRADIENTS
from ..record.frame import Frame


class EndedCall:
    """The frame of such results. To any question it makes the closed Frame that a recorded call would have left."""

    closed = True
    frame = None  # which stands for all such calls, if all have the same leaves

    def __init__(self, usual, changed):
        """changed: what `changed_by` has said."""
        self.recording, self.expectation, self.step = usual.recording, usual.expectation, usual.entries[-2].step
        self.freed = [k for again in usual.walks for k in again.walk.freed]
        self.leaves = [(vid, usual.tensors[vid], 0) for vid in usual.own_leaves if usual.tensors[vid] is not None]
        self.changed, (leaves, self.changed_metas) = changed, changed
        self.changed_leaves = {v: usual.tensors[v] if leaf is None else leaf for v, leaf in leaves.items()}

    def _frame_of(self, tensor):
        if self.frame is not None:
            tensor._frame = self.frame
            return self.frame
        frame = Frame(self.recording)
        frame.step, frame.entered, frame.met_expected = self.step, self.leaves, self.expectation
        frame.freed = {k for step in frame.steps if step.op in (BACKWARD, GRADIENTS) for k in step.detail.frees}
        frame.freed.update(self.freed)
        frame.changed_leaves = {v: leaf for v, leaf in self.changed_leaves.items() if leaf is not None}
        frame.changed_metas, frame.closed, frame.ends_freed = self.changed_metas, True, True
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
