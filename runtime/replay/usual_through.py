"""In a usual call, what follows a change of a tensor that has other names, in place or by an update (frame_through.py):
each, a tensor of the call, shows what the tensor holds now. It goes from one number to the next."""

from ...compiler.ops.parts import cut_at
from ...compiler.ops.view import data, leaf
from ..record import frame_through
from ..state.tensor import pending_tensor
from .usual_inplace import make, pass_expected


class ShowsWhole:
    """The part of a UsualFrame that knows other names of tensors."""

    def shows_whole(self, view, tensor):
        if self.working or view._frame is not self or self.tensors[view._vid] is not view:
            return False
        root = self.wholes.get(view._vid)
        return root is not None and self.tensors[root] is tensor

    def show_again(self, n):
        """The names of what has just changed, so many, show what it holds now."""
        for _ in range(n):
            make(self, self.entries[self.position.value].change, None)
            self.position.value += 1

    def takes_memory(self, target, value):
        """`target.data = value`, which is not what is expected here: it may be in another UsualFrame."""
        other = self.elsewhere("takes_memory")
        if other is not None and other.inplace_again(data, target, (value,), {}):
            return True
        return (other or (self.onlooker if self.working else self.depart(asked="takes_memory"))).takes_memory(
            target, value
        )

    def version_of_view(self, view):
        """Of a view of the call that no memory belongs to yet: of what a Frame says that it shows (frame_views.py). A
        .data has one of its own, which nothing has counted so far."""
        vid = view._vid
        root = self.roots.get(vid)
        shown = view._base if root is None or self.tensors[root] is None else self.tensors[root]
        return 0 if vid in self.with_version else shown._version

    def drop_unseen_views(self, target):
        (self.onlooker if self.working else self.depart(asked="drop_unseen_views")).drop_unseen_views(target)


class Shown:
    """What a Change (usual_inplace.py) is for an entry that is done together with the one before. shown: the numbers of
    the names that come after it; version: as of the Change."""

    __slots__ = ("old", "new", "given", "shown", "version", "step", "meta", "old_meta", "is_silent", "again", "is_leaf")
    op = target = origin = None
    is_made, takes_memory, group = True, False, ()

    def __init__(self, frame, step, shown, version):
        self.old, *self.shown = shown
        self.given, self.version = self.old, version
        self.new, self.step, self.meta, self.old_meta = step.first, step, step.metas[0], frame.metas[self.old]
        self.is_silent = version == self.old  # whether a version of its own counts the change
        self.is_leaf = step.op is leaf
        self.again = frame_through.numbers_again(frame, self.old) if step.op is cut_at else ()

    def homes(self):
        return {}

    def ends_as_leaf(self):
        return self.is_leaf

    def make(self, call, _):
        tensors = call.tensors
        tensor = tensors[self.old]
        tensors[self.old], tensors[self.new] = None, tensor
        tensor._vid, tensor._meta, tensor._requires_grad = self.new, self.meta, self.meta.requires_grad
        if self.is_silent:
            tensor.bump_version()

    def unmake(self, call):
        """Before a Frame does it anew."""
        tensors, meta = call.tensors, call.metas[self.old]
        tensor = tensors[self.old] = tensors[self.new]
        tensors[self.new] = None
        tensor._vid, tensor._meta, tensor._requires_grad = self.old, meta, meta.requires_grad
        if self.is_silent:
            tensor._storage.version -= 1

    def redo(self, frame, call):
        """What a Frame notes down when it meets the step."""
        pass_expected(frame, call)
        frame.step = self.step
        frame_through.show(frame, frame.tensors[self.old], self.old, self.step, self.is_silent)

    def clean(self, call):
        """After the call: the next one has another tensor."""
        tensors = call.tensors
        tensors[self.old], tensors[self.new] = pending_tensor(call, self.old, call.metas[self.old]), None
