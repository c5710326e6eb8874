"""In-place changes inside a compiled call, kept functional: the target holds a new value from then on.

A tensor from outside gets its new value into its own memory when the program ends, so a call happens whole or not at
all. Where another living tensor sees the memory (views, shared arrays) nothing of this is proven, and the change runs
eagerly, with the reason noted for `explain`.
"""

from operator import attrgetter, is_
from typing import NamedTuple

import numpy as np

from ...compiler.autodiff import has_rule
from ...compiler.dtypes import without_kernels
from ...compiler.graph import Graph
from ...compiler.ops.comparison import cast
from ...compiler.ops.table import OpError
from ...compiler.ops.view import clone
from ...compiler.storage import convert
from ..eager.gate import adopt_history, check_fits, inplace_eagerly
from ..eager.needs import needs
from ..eager.node import edge_of
from ..eager.update import update_eagerly
from ..programs.recording import (
    ASSIGN,
    NUMBER_DTYPES,
    OTHER_DEFAULT,
    UPDATE,
    Step,
    TooManyPaths,
    UpdateKey,
    ValueMeta,
    number_code,
    user_line,
)
from ..state.attributes import refusal
from ..state.exposure import has_exposed, is_exposed
from ..state.modes import state
from ..state.references import held, is_base_held, is_held
from ..state.tensor import Tensor
from . import frame_autograd, frame_through
from .frame_inputs import read_now
from .frame_leaves import made_leaves
from .frame_views import group, read_by_any_backward, same_version


def apply_inplace(frame, op, target, operands, attributes):
    """target becomes op(*operands). Returns the target."""
    depth = frame.step.depth
    vid, base, shown = frame.identify(target), target, ()
    reason = OTHER_DEFAULT if frame.default_dtype is not state.default_dtype else alias_reason(frame, target, vid)
    if reason is not None and reason is not OTHER_DEFAULT:
        whole = frame_through.base_of(frame, target, vid, operands)
        if whole is not None and alias_reason(frame, whole, frame.roots[vid], vid) is None:
            base, shown, reason = whole, (target,), None
    if reason is not None:
        return _inplace_eagerly(frame, reason, target, inplace_eagerly, op, target, operands, attributes)
    if has_exposed(operands):
        operands = read_now(frame, operands)
    codes = tuple([frame.identify(x) if isinstance(x, Tensor) else number_code(x) for x in operands])
    new = frame.apply(op, _keep_old_value(frame, op, target, operands, attributes), attributes, True, True)
    check_fits(op.name, target, new)
    if new.dtype is not target.dtype:
        if new._requires_grad:
            # In eager mode the conversion is no op of its own, and cotangents have the target's type throughout.
            reason = f"{op.name}: in-place change by operands of another type"
            return _inplace_eagerly(frame, reason, target, inplace_eagerly, op, target, operands, attributes)
        new = frame.apply(cast, (new,), {"dtype": target.dtype}, inside=True)
    if new._frame is not frame:
        return _inplace_eagerly(frame, f"{op.name}: no kernel", target, _copy_into, target, new)
    shared = tuple(sorted(group(frame, vid).difference([vid] if shown else ())))
    frame.take(
        ASSIGN, (base, new, *shown), None, (),
        lambda: InplaceDetail(op, codes, dict(attributes), depth, shared, _origin(frame, base)),
    )  # fmt: skip
    assign(frame, base, new._vid, new._meta, bool(shown) and frame_through.is_silent(frame, vid))
    if shown:
        frame_through.show_again(frame, target, vid, base)
    frame.changing = False
    return target


class InplaceDetail(NamedTuple):
    """What a recorded assignment came from: op(*operands) into the target, where in the path it began, the numbers of
    values that shared the target's memory, and the number under which it came in from outside, if it did."""

    op: object
    operands: tuple
    attributes: dict
    depth: int
    group: tuple
    origin: int | None
    metas: tuple = ()


def _origin(frame, target):
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
    seen_by = _before_change(frame, target)
    result = frame.run_eagerly(reason, function, *args)
    _after_change(frame, target, *seen_by)
    return result


def _before_change(frame, target):
    """What `_after_change` wants to know of a tensor that is about to be changed eagerly."""
    vids, same = _seen_by(frame, target)
    if same != vids:
        let_nodes_read(frame, vids - same)
    outer = [(v, tensor) for v, tensor in frame.externals.items() if v in vids and tensor.has_history]
    frame.outer_edges.update((v, edge_of(tensor)) for v, tensor in outer if v not in frame.outer_edges)
    return vids, same


def _after_change(frame, target, vids, same):
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


def alias_reason(frame, target, vid, shown=None):
    """Why changing the target in place must run eagerly: other living tensors see its memory, besides that of the value
    `shown`. Else None."""
    if frame.views:
        externals, tensors = frame.externals, frame.tensors
        for other in group(frame, vid):
            if other in (vid, shown) or tensors[other] is None:
                continue
            if other in externals or is_held(tensors, other):
                return "in-place change of a tensor that has living views (or is one)"
        if frame.versioned:
            others = group(frame, vid) - same_version(frame, vid)
            if others and not others.isdisjoint(read_by_any_backward(frame)):
                return "in-place change of memory that .data shows, and that a backward will read"
    if not state.grad_enabled and target.has_history:
        return "in-place change under no_grad of a tensor that has a history"
    storage = target._storage
    if storage is not None and storage.sharers is not None and not storage.only_shared_by(target):
        return "in-place change of a tensor whose memory another living tensor or a NumPy array shares"
    if target._frame is frame or id(target) in frame.homes:
        return None
    array = frame.arrays[vid]
    # Of memory that has been exposed programs know a copy.
    if is_borrowed(array) or vid in frame.held_copies or is_exposed(target):
        return "in-place change of the memory of a NumPy array"
    neighbours = frame.owners[owner_of(array)]
    if len(neighbours) > 1 and any(o != vid and np.may_share_memory(frame.arrays[o], array) for o in neighbours):
        return "in-place change of memory that another tensor of the call shares"
    return None


def is_borrowed(array):
    """Whether the array is a view of another one that the user still holds (from_numpy), or may not be written to."""
    return not array.flags.writeable or type(array.base) is np.ndarray and is_base_held(array)


def owner_of(array):
    """id of the array that owns the memory."""
    base = array.base
    return id(array) if base is None else id(base)


def assign(frame, target, new, meta, is_silent=False):
    """The target holds value `new` from now on; a tensor from outside gets it into its memory at the flush. Its version
    says so, unless the change is silent (frame_through.py)."""
    if is_silent and target._data is not None:
        frame_through.tell(target)
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


# --- updates ----------------------------------------------------------------------------------------------------------
# What a rule raises that does not fit its rows, or that reads values. Not every exception: those that signal handlers
# raise must reach the user.
_REFUSALS = (OpError, AttributeError, TypeError)


class UpdateDetail:
    """Which elements of a row an update rule replaces, found by running it on shapes alone: once per kind of row, since
    what is written must fit every one of them. Otherwise it raises what eager mode will raise."""

    __slots__ = ("targets", "metas", "row_length", "n_numbers", "usual")

    def __init__(self, rule, rows, numbers, flags):
        kinds = {tuple([(x.shape, x.dtype) for x in row]) for row in rows}
        found = {_targets(rule, kind, len(numbers), flags) for kind in kinds}
        if len(found) > 1:
            raise OpError(f"update: {rule.__name__} replaces other elements of some rows than of others: {found}")
        (self.targets,) = found
        self.row_length = len(rows[0])
        self.n_numbers = len(numbers)
        self.usual = None
        self.metas = tuple(
            ValueMeta(r[k].shape, r[k].dtype, r[k]._requires_grad, False) for r in rows for k in self.targets
        )


def _targets(rule, kind, n_numbers, flags):
    """Which elements of a row of these shapes and types the rule replaces."""
    graph = Graph("update", state.default_dtype)
    row = [graph.input(*element) for element in kind]
    new = rule(*row, *(graph.scalar(NUMBER_DTYPES[-3]) for _ in range(n_numbers)), **flags)
    for target, value in zip(row, new):
        if value is not None:
            check_fits(rule.__name__, target, value)
    return tuple([k for k, value in enumerate(new) if value is not None])


def update(frame, rule, rows, numbers, flags):
    """`runtime.eager.update.update` as one step."""
    reason = _rows_reason(frame, rows, flags)
    if reason is not None:
        _update_eagerly(frame, reason, rule, rows, numbers, flags)
        return
    identify, met = frame.identify, frame.bound.get
    ids = tuple([x._vid if x._frame is frame else met(id(x)) for row in rows for x in row])
    if None in ids:
        ids = tuple([identify(x) for row in rows for x in row])
    key = UpdateKey(rule, len(rows), len(numbers), flags)
    step = frame.follow(UPDATE, ids, key, state.grad_enabled)
    if step is None:
        # What was expected may not have been met: number everything anew.
        ids = tuple([identify(x) for row in rows for x in row])
        step = frame.follow(UPDATE, ids, key, state.grad_enabled)
    try:
        if step is None:
            step = _record_update(frame, ids, key, UpdateDetail(rule, rows, numbers, flags))
        usual = step.detail.usual
        if usual is not None and usual.applies(frame, rows, step.detail.targets):
            frame.changing = True
            frame.numbers += map(float, numbers)
            frame.step = step
            usual.apply(frame)
            usual.bump_versions()
            frame.updates[step] = usual
            frame.changing = False
            return
        reason = _update_reason(frame, step, rows)
    except TooManyPaths:
        reason = "too many paths"
    except _REFUSALS as error:
        # Rows before the one that the rule refuses are updated in eager mode, which then raises the same.
        reason = f"an update that its rule refuses: {error}"
    if reason is not None:
        _update_eagerly(frame, reason, rule, rows, numbers, flags)
        return
    frame.changing = True
    frame.numbers += map(float, numbers)
    frame.step = step
    frame.n_unusual_updates += 1
    step.detail.usual = frame.updates[step] = UsualUpdate.of(frame, step, rows)
    _apply_update(frame, step, rows)
    frame.changing = False


def _rows_reason(frame, rows, flags):
    """Why an update cannot be a step, whatever is recorded; else None."""
    if frame.default_dtype is not state.default_dtype:
        return OTHER_DEFAULT
    if any(map(has_exposed, rows)):
        return "an update reads or writes memory that a NumPy array shares"
    if len(set(map(len, rows))) > 1:
        return "the rows of an update are not of one length"
    reason = without_kernels([x.dtype for row in rows for x in row])
    if reason is not None:
        return f"an update: {reason}"
    refused = refusal(flags)
    return None if refused is None else f"an update: {refused}"


def _update_eagerly(frame, reason, rule, rows, numbers, flags):
    frame.forget_expected()
    positions = _changed_positions(rule, rows, numbers, flags)
    for row in rows:
        changed = [(x, *_before_change(frame, x)) for k, x in enumerate(row) if k in positions]
        frame.run_eagerly(reason, update_eagerly, rule, row, numbers, flags)
        for change in changed:
            _after_change(frame, *change)
        for x in row:
            if x._frame is frame:
                frame.let_go(x)
            frame.bound.pop(id(x), None)


def _changed_positions(rule, rows, numbers, flags):
    """Which elements of a row an update writes; all of them, if the rule refuses the row."""
    try:
        return UpdateDetail(rule, rows, numbers, flags).targets
    except _REFUSALS:
        return range(max(map(len, rows)))


def _record_update(frame, ids, key, detail):
    line, first_number = user_line(), len(frame.numbers)
    step = Step(UPDATE, ids, key, state.grad_enabled, detail.metas, len(frame.tensors), first_number, line, detail)
    return frame.recording.grow(frame.step, step)


def _apply_update(frame, step, rows):
    new = len(frame.tensors)
    frame.tensors.extend([None] * len(step.metas))
    for row in rows:
        for position in step.detail.targets:
            assign(frame, row[position], new, step.metas[new - step.first])
            new += 1


class UsualUpdate:
    """An update of the same tensors in the same memory as last time, as a few bulk operations.

    The targets are not marked as pending: they keep their array, which gets the new values when the program ends, and
    whoever reads one before that (Tensor.array asks `frame.homes`) makes the program run first.
    """

    __slots__ = ("targets", "arrays", "storages", "owners", "homes", "bound", "old", "leaves", "commits", "views")

    @classmethod
    def of(cls, frame, step, rows):
        """What is usual after this update; None if it changes tensors made in the call, or one twice."""
        self = cls()
        self.targets = [row[k] for row in rows for k in step.detail.targets]
        if len({id(t) for t in self.targets}) < len(self.targets):
            return None
        if any(t._frame is frame or t._storage is None or id(t) in frame.homes for t in self.targets):
            return None
        self.arrays = [t._data for t in self.targets]
        self.storages = [t._storage for t in self.targets]
        self.owners = [owner_of(a) for a in self.arrays]
        self.old = [frame.bound[id(t)] for t in self.targets]
        self.views = _views_of(frame, self.old)
        self.homes = {id(t): (t, a, old) for t, a, old in zip(self.targets, self.arrays, self.old)}
        self.bound = {id(t): step.first + k for k, t in enumerate(self.targets)}
        self.commits = tuple((old, step.first + k) for k, old in enumerate(self.old))
        self.leaves = {
            step.first + k: t for k, (t, meta) in enumerate(zip(self.targets, step.metas)) if meta.requires_grad
        }
        return self

    def applies(self, frame, rows, positions):
        """Whether this call updates just these tensors, and nothing living shares their memory."""
        targets = [row[k] for row in rows for k in positions]
        if frame.held_copies or not all(map(is_, targets, self.targets)) or not self.has_dead_views(frame):
            return False
        if not all(map(is_, map(_data, targets), self.arrays)) or not self.is_alone():
            return False
        owners = frame.owners
        alone = max(map(len, map(owners.__getitem__, self.owners))) == 1
        return alone and frame.homes.keys().isdisjoint(self.homes)

    def apply(self, frame):
        frame.only_update = None if frame.homes else self
        frame.homes.update(self.homes)
        frame.bound.update(self.bound)
        frame.overwritten.update(self.old, self.views)
        frame.changed_leaves.update(self.leaves)
        frame.tensors += self.targets

    def has_dead_views(self, frame):
        """Whether the views that the call has made of the targets are the same as usual, and nobody holds one."""
        if not frame.views or self.views != _views_of(frame, self.old):
            return not frame.views and not self.views
        return not held(frame.tensors, self.views)

    def is_alone(self):
        """Whether nothing living shares the targets' memory."""
        return all(s.sharers is None or s.only_shared_by(t) for s, t in zip(self.storages, self.targets))

    def bump_versions(self):
        for storage in self.storages:
            storage.version += 1


def _views_of(frame, numbers):
    return [view for number in numbers for view in frame.views.get(number, ())]


_data = attrgetter("_data")


def _update_reason(frame, step, rows):
    owners, views = frame.owners, frame.views
    targets = [id(row[k]) for row in rows for k in step.detail.targets]
    if len(set(targets)) < len(targets):
        return "a tensor is updated twice by one update"
    for row in rows:
        for position in step.detail.targets:
            x = row[position]
            if x._frame is not frame and not views and not frame.held_copies and not is_borrowed(x._data):
                # alias_reason, for the usual case of memory of its own.
                storage, data = x._storage, x._data
                base = data.base
                alone = len(owners[id(data) if base is None else id(base)]) == 1
                if alone and (storage is None or storage.sharers is None):
                    continue
            reason = alias_reason(frame, x, x._vid if x._frame is frame else frame.bound[id(x)])
            if reason is not None:
                return reason
    return None
