"""In-place changes inside a compiled call, kept functional: the target holds a new value from then on.

A tensor from outside gets its new value into its own memory when the program ends, so a call happens whole or not at
all. Other tensors that show that memory (a state_dict() that is kept, p.data) may live, as long as the call has not met
them: whoever reads one has the program run before. Where the call knows them, or an array shows the memory, nothing of
this is proven, and the change runs eagerly, with the reason noted for `explain`.
"""

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from ...compiler.autodiff import has_rule
from ...compiler.ops.comparison import cast
from ...compiler.ops.view import clone
from ...compiler.storage import convert
from ..eager.gate import adopt_history, check_fits, inplace_eagerly
from ..eager.needs import needs
from ..eager.node import edge_of
from ..programs.recording import (
    ASSIGN,
    OTHER_DEFAULT,
    ValueMeta,
    number_code,
)
from ..state.aligned import owner_of
from ..state.exposure import has_exposed, is_exposed
from ..state.modes import no_grad, state
from ..state.references import is_base_held
from ..state.tensor import Tensor
from . import frame_autograd, frame_through, frame_views
from .frame_eager import at_any_place
from .frame_inputs import read_now
from .frame_leaves import made_leaves
from .frame_views import group, living, read_by_any_backward, same_version


def apply_inplace(frame, op, target, operands, attributes):
    """target becomes op(*operands). Returns the target."""
    depth = frame.step.depth
    op, operands, attributes = at_any_place(frame, op, operands, attributes)
    vid, base, shown, numbers = frame.identify(target), target, (), ()
    flows = state.grad_enabled and any(isinstance(x, Tensor) and x._requires_grad for x in operands)
    reason = (
        OTHER_DEFAULT if frame.default_dtype is not state.default_dtype else alias_reason(frame, target, vid, (), flows)
    )
    if reason is not None and reason is not OTHER_DEFAULT:
        through = frame_through.changed_through(frame, target, vid, operands)
        if through is not None:
            whole, names = through
            numbers = tuple([x._vid for x in names])
            if alias_reason(frame, whole, frame.roots.get(vid, vid), numbers, flows) is None:
                base, shown, reason = whole, names, None
    if reason is not None:
        return _inplace_eagerly(frame, reason, target, inplace_eagerly, op, target, operands, attributes)
    if has_exposed(operands):
        operands = read_now(frame, operands)
    codes, expected = _codes(frame, operands), frame.expected
    new = frame.apply(op, _keep_old_value(frame, op, target, operands, attributes), attributes, True, True)
    if frame.expected is not expected:
        # The call goes another way than was expected: what had not come in before has other numbers there.
        vid, codes = frame.identify(target), _codes(frame, operands)
    check_fits(op.name, target, new)
    if new.dtype is not target.dtype:
        if new._requires_grad:
            # In eager mode the conversion is no op of its own, and cotangents have the target's type throughout.
            reason = f"{op.name}: in-place change by operands of another type"
            return _inplace_eagerly(frame, reason, target, inplace_eagerly, op, target, operands, attributes)
        new = frame.apply(cast, (new,), {"dtype": target.dtype}, inside=True)
    part = new
    if base is not target and new._frame is frame:
        with nullcontext() if target._requires_grad or not base._requires_grad else no_grad():
            new = frame_through.put_back(frame, vid, base, new)
    if new._frame is not frame:
        return _inplace_eagerly(
            frame, f"{op.name}: the new value was computed eagerly", target, _copy_into, target, part
        )
    shared = tuple(sorted(v for v in group(frame, vid).difference(numbers) if frame.tensors[v] is not None))
    frame.take(
        ASSIGN, (base, new, *shown), None, (),
        lambda: InplaceDetail(op, codes, dict(attributes), depth, shared, origin_of(frame, base), vid),
    )  # fmt: skip
    version, root = frame.versioned.get(vid), frame.roots.get(vid, vid)
    assign(frame, base, new._vid, new._meta, base is not target and frame_through.is_silent(frame, vid))
    frame_through.show_again(frame, shown, numbers, {root: base}, version)
    frame.changing = False
    return target


def _codes(frame, operands):
    return tuple([frame.identify(x) if isinstance(x, Tensor) else number_code(x) for x in operands])


class InplaceDetail(NamedTuple):
    """What a recorded assignment came from: op(*operands) into the target, where in the path it began, the numbers of
    values that shared the target's memory, the number under which it came in from outside, if it did, and that of what
    the change was asked of, which may be another name of the target (frame_through.py). takes_memory: whether the
    target became another name of the operand (frame_memory.py)."""

    op: object
    operands: tuple
    attributes: dict
    depth: int
    group: tuple
    origin: int | None
    given: int
    metas: tuple = ()
    takes_memory: bool = False


def origin_of(frame, target):
    """The number under which a tensor came in from outside; None of one made in the call."""
    home = frame.homes.get(id(target))
    return frame.bound.get(id(target)) if home is None else home[2]


def _keep_old_value(frame, op, target, operands, attributes):
    """The operands, with a copy of the target where the derivative reads what it was before the change."""
    wanted = tuple([isinstance(x, Tensor) and x._requires_grad and has_rule(op, k) for k, x in enumerate(operands)])
    if not state.grad_enabled or True not in wanted:
        return operands
    read, _ = needs(op, operands, attributes, wanted)
    if not any(operands[k] is target for k in read):
        return operands
    old = frame.apply(clone, (target,), {}, inside=True)
    return tuple(old if x is target else x for x in operands)


def _copy_into(target, new):
    target.tell_readers()
    np.copyto(target.array, convert(new.array, target.dtype))
    target.bump_version()
    adopt_history(target, new)
    return target


def _inplace_eagerly(frame, reason, target, function, *args):
    frame.forget_expected()
    seen_by = before_change(frame, target)
    bases = frame_views.bases_of_detached(frame, frame.identify(target))
    result = frame.run_eagerly(reason, _change, bases, function, *args)
    after_change(frame, target, *seen_by)
    return result


def _change(bases, function, *args):
    """function(*args), which changes a tensor, where views of what detach() has made are views of that: the call knows
    one base of all."""
    before = [(view, view._base) for view, _ in bases]
    for view, base in bases:
        view._base = base
    try:
        return function(*args)
    except BaseException:
        for view, base in before:
            view._base = base
        raise


def before_change(frame, target):
    """What `after_change` wants to know of a tensor that is about to be changed eagerly."""
    vids, same = _seen_by(frame, target)
    if same != vids:
        let_nodes_read(frame, vids - same)
    outer = [(v, tensor) for v, tensor in frame.externals.items() if v in vids and tensor.has_history]
    frame.outer_edges.update((v, edge_of(tensor)) for v, tensor in outer if v not in frame.outer_edges)
    return vids, same


def after_change(frame, target, vids, same):
    """Whoever sees the memory holds another value now: it comes in anew where it is used next, and the call must not
    keep views alive that nobody else does."""
    frame.changing = frame.changed_eagerly = True
    frame.overwritten |= same
    frame.changed_leaves.update((vid, frame.tensors[vid]) for vid in vids.intersection(made_leaves(frame.step)))
    for tensor in [target, *(frame.tensors[vid] for vid in vids)]:
        if tensor is not None and tensor._data is not None:
            if tensor._frame is frame:
                frame.let_go(tensor)
            frame.bound.pop(id(tensor), None)
    for vid in vids:
        frame.tensors[vid] = None
    frame.changing = False


def let_nodes_read(frame, vids):
    """Before memory changes without a change of these values' version: what a backward reads of it is then, as in eager
    mode, what is there when it runs. Nodes do just that, while a program may compute it again from something else."""
    frame.rewritten = True
    if not frame.hooked and not vids.isdisjoint(read_by_any_backward(frame)):
        frame_autograd.make_nodes(frame)


def before_new_memory(frame, tensor):
    """A tensor is about to take over the memory of another (`x.data = value`): it comes in anew where it is used."""
    frame.note("a tensor takes over the memory of another: .data = value")
    if tensor._frame is frame or id(tensor) in frame.bound:
        let_nodes_read(frame, {frame.identify(tensor)})
    if tensor._frame is not frame:
        frame.lose(tensor)


def _seen_by(frame, target):
    """(numbers of the values that an in-place change of the target is seen by, those whose version it bumps)."""
    vid = frame.identify(target)
    vids, same = group(frame, vid), same_version(frame, vid)
    root, externals = frame.roots.get(vid, vid), frame.externals
    if root not in externals:
        return vids, same
    array, storage = frame.arrays[root], externals[root]._storage
    neighbours = [v for v in frame.owners[owner_of(array)] if np.may_share_memory(frame.arrays[v], array)]
    for neighbour in neighbours:
        vids = vids | group(frame, neighbour)
        if vid not in frame.versioned and externals[neighbour]._storage is storage is not None:
            same = same | same_version(frame, neighbour)
    return vids, same


def may_be_seen_later(frame, target):
    """Whether others may show the memory of a target that the change gives no history: those outside of the call, which
    show what is in memory when they are read. That of a tensor from outside is written by the call's program, and
    whoever reads one of these before has it run (Watched.as_changed)."""
    vid = frame.bound.get(id(target))
    if vid is None or target.has_history or not target._storage.others_are_at_rest(target):
        return False
    home = frame.homes.get(id(target))
    array = target._data if home is None else home[1]
    # One that has come into the call is read by what is pending, perhaps.
    neighbours = frame.owners[owner_of(array)]
    return sum(np.may_share_memory(frame.arrays[v], array) for v in neighbours) == 1


def alias_reason(frame, target, vid, shown=(), flows=True):
    """Why changing the target in place must run eagerly: other living tensors see its memory, besides those of the
    values `shown`, and those that may if no gradients flow into the change. Else None."""
    if frame.views:
        others = group(frame, vid).difference(shown, (vid,))
        if living(frame, [other for other in others if frame_through.is_alive(frame, other)]):
            return "in-place change of a tensor that has living views (or is one)"
        if frame.versioned:
            others = group(frame, vid) - same_version(frame, vid)
            if others and not others.isdisjoint(read_by_any_backward(frame)):
                return "in-place change of memory that .data shows, and that a backward will read"
    if not state.grad_enabled and target.has_history:
        return "in-place change under no_grad of a tensor that has a history"
    storage = target._storage
    is_shared = storage is not None and storage.sharers is not None and not storage.only_shared_by(target)
    if is_shared and (flows or not may_be_seen_later(frame, target)):
        return "in-place change of a tensor whose memory a NumPy array or another tensor of the call shares"
    if target._frame is frame or id(target) in frame.homes:
        return None
    array = frame.arrays[vid]
    # Of memory that has been exposed programs know a copy.
    if is_borrowed(array, target) or vid in frame.held_copies or is_exposed(target):
        return "in-place change of the memory of a NumPy array"
    neighbours = frame.owners[owner_of(array)]
    if len(neighbours) > 1 and any(o != vid and np.may_share_memory(frame.arrays[o], array) for o in neighbours):
        return "in-place change of memory that another tensor of the call shares"
    return None


def tell_others(target):
    """Before a change of memory that others show too: finished calls that will read it are told, if not all of these
    have its version."""
    storage = target._storage
    if storage is not None and storage.changes is not None and storage.sharers is not None:
        target.tell_readers()


def is_borrowed(array, tensor):
    """Whether a tensor's array is a view of another one that somebody else still holds (from_numpy), or may not be
    written to. Tensors that share its storage, and what it was detached from, are nobody else."""
    base = array.base
    if not array.flags.writeable or type(base) is not np.ndarray:
        return not array.flags.writeable
    storage = tensor._storage
    others = [tensor._base] if storage is None else [tensor._base, *storage.living_sharers()]
    holders = {id(x) for x in others if getattr(x, "_data", None) is base}
    return is_base_held(array, 1 + len(holders))  # and `base` here


def assign(frame, target, new, meta, is_silent=False):
    """The target holds value `new` from now on; a tensor from outside gets it into its memory at the flush. Its version
    says so, unless the change is silent (frame_through.py)."""
    if is_silent and target._data is not None:
        frame_through.tell(target)
    elif target._data is not None:
        tell_others(target)
    if target._frame is frame:
        old = target._vid
        if old in made_leaves(frame.step):
            frame.changed_leaves[old] = target
        was_leaf = target._meta is None or not target._meta.history
    else:
        old = frame.bound[id(target)]
        was_leaf = not target.has_history
        if not was_leaf:
            frame.outer_edges[old] = edge_of(target)
    if target._requires_grad and was_leaf and not meta.history:
        # A leaf changed under no_grad stays a leaf that requires gradients, for what is computed from it later.
        if not meta.requires_grad:
            meta = frame.changed_metas[new] = ValueMeta(meta.shape, meta.dtype, True, False)
        frame.changed_leaves[new] = target
    if is_silent:
        frame_through.note_silent_change(frame, old)
    frame.only_update = None
    frame.changed_singly = True
    # Other threads may look at the target between any two of these lines: it is whole for them after each.
    target._vid = new
    target._meta = meta
    if target._data is not None:
        key = id(target)
        if key in frame.bound:
            origin = frame.homes[key][2] if key in frame.homes else frame.bound[key]
            frame.homes[key] = (target, target._data, origin)
        target._frame = frame
        target._data = None
    target._node = None
    target._requires_grad = meta.requires_grad
    if not is_silent:
        target.bump_version()
    frame.overwritten |= same_version(frame, old)
    frame.tensors[old] = None
    frame.tensors[new] = target
