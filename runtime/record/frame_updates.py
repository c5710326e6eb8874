"""Updates of optimizers inside a compiled call: one step for many rows, each target of which holds a new value then, as
after a change in place (frame_changes.py)."""

from operator import attrgetter, is_

from ...compiler.dtypes import without_kernels
from ...compiler.graph import Graph
from ...compiler.ops.table import OpError
from ..eager.gate import check_fits
from ..eager.plan import add_attributes
from ..eager.update import update_eagerly
from ..programs.recording import NUMBER_DTYPES, OTHER_DEFAULT, UPDATE, Step, TooManyPaths, UpdateKey, ValueMeta
from ..programs.user_lines import user_line
from ..state.aligned import owner_of
from ..state.attributes import refusal
from ..state.exposure import has_exposed
from ..state.modes import state
from ..state.references import held
from . import frame_through
from .frame_changes import after_change, alias_reason, assign, before_change, is_borrowed, origin_of, tell_others
from .frame_views import group, living

# What a rule raises that does not fit its rows, or that reads values. Not every exception: those that signal handlers
# raise must reach the user.
_REFUSALS = (OpError, AttributeError, TypeError)


class UpdateDetail:
    """Which elements of a row an update rule replaces, found by running it on shapes alone: once per kind of row, since
    what is written must fit every one of them. Otherwise it raises what eager mode will raise."""

    __slots__ = ("targets", "metas", "row_length", "n_numbers", "usual", "moved")

    def __init__(self, rule, rows, numbers, flags):
        kinds = {tuple([(x.shape, x.dtype) for x in row]) for row in rows}
        found = {_targets(rule, kind, len(numbers), flags) for kind in kinds}
        if len(found) > 1:
            raise OpError(f"update: {rule.__name__} replaces other elements of some rows than of others: {found}")
        (self.targets,) = found
        self.row_length = len(rows[0])
        self.n_numbers = len(numbers)
        self.usual = self.moved = None
        self.metas = tuple(
            ValueMeta(r[k].shape, r[k].dtype, r[k]._requires_grad, False) for r in rows for k in self.targets
        )


_found_targets, _MOST_FOUND = {}, 256


def _targets(rule, kind, n_numbers, flags):
    """Which elements of a row of these shapes and types the rule replaces. What was found is kept: the same parameters
    are updated in the recordings of all batches."""
    key = add_attributes((rule, kind, n_numbers, state.default_dtype), flags)
    found = key and _found_targets.get(key)
    if found is None:
        found = _run_on_shapes(rule, kind, n_numbers, flags)
        if key is not None:
            if len(_found_targets) >= _MOST_FOUND:
                _found_targets.clear()
            _found_targets[key] = found
    return found


def _run_on_shapes(rule, kind, n_numbers, flags):
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
    names = _names_of_targets(frame, rule, rows, numbers, flags) if frame.views else ()
    shown = tuple([x._vid for x in names])
    key = UpdateKey(rule, len(rows), len(numbers), flags, shown)
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
        reason = _update_reason(frame, step, rows, shown)
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
    usual = frame.updates[step] = UsualUpdate.of(frame, step, rows)
    step.detail.usual = None if usual is None or usual.are_changed or shown else usual
    targets = [row[k] for row in rows for k in step.detail.targets]
    if step.detail.moved is None:
        step.detail.moved = [_as_it_was(frame, x) for x in targets]
    changed = {_number_of(frame, x): x for x in targets}
    _assign_all(frame, step, targets)
    frame_through.show_again(frame, names, shown, changed)
    frame.changing = False


def _names_of_targets(frame, rule, rows, numbers, flags):
    """The living names, made in the call, of the tensors that an update is about to change, in order."""
    met = [(row, k, _number_of(frame, x)) for row in rows for k, x in enumerate(row)]
    if not any(frame.views.get(vid) for _, _, vid in met):
        return ()
    positions = _changed_positions(rule, rows, numbers, flags)
    named = [frame_through.names_of(frame, vid) for _, k, vid in met if k in positions and frame.views.get(vid)]
    # What cannot be shown again is a reason against the update as a step.
    return tuple([frame.tensors[v] for found in named for v in sorted(found or ())])


def _number_of(frame, x):
    return x._vid if x._frame is frame else frame.bound.get(id(x))


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
        changed = [(x, *before_change(frame, x)) for k, x in enumerate(row) if k in positions]
        frame.run_eagerly(reason, update_eagerly, rule, row, numbers, flags)
        for change in changed:
            after_change(frame, *change)
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


def _as_it_was(frame, target):
    """(its number, that under which it came in from outside or None, those of the values that share its memory)."""
    vid = _number_of(frame, target)
    shared = tuple(sorted(v for v in group(frame, vid) - {vid} if frame.tensors[v] is not None))
    return vid, origin_of(frame, target), shared


def redo_singly(frame, step):
    """What a Frame notes down when it meets an update, of some tensors of the call, that a usual call has done."""
    frame.step, frame.updates[step] = step, None
    frame.n_unusual_updates += 1
    _assign_all(frame, step, [frame.tensors[vid] for vid, _, _ in step.detail.moved])


def _assign_all(frame, step, targets):
    frame.tensors.extend([None] * len(step.metas))
    for k, target in enumerate(targets):
        assign(frame, target, step.first + k, step.metas[k])


class UsualUpdate:
    """An update of the same tensors in the same memory as last time, as a few bulk operations.

    The targets are not marked as pending: they keep their array, which gets the new values when the program ends, and
    whoever reads one before that (Tensor.array asks `frame.homes`) makes the program run first. Where the call has
    changed some of them before (are_changed), only a usual call knows the update: a Frame assigns one by one.
    """

    __slots__ = (
        "targets", "arrays", "storages", "owners", "homes", "bound", "old", "leaves", "commits", "views", "are_changed",
        "shows",
    )  # fmt: skip

    @classmethod
    def of(cls, frame, step, rows):
        """What is usual after this update; None if it changes tensors made in the call, or one twice."""
        self = cls()
        self.targets = [row[k] for row in rows for k in step.detail.targets]
        if len({id(t) for t in self.targets}) < len(self.targets):
            return None
        before = frame.homes
        if any(t._storage is None or t._frame is frame and id(t) not in before for t in self.targets):
            return None
        self.are_changed = any(id(t) in before for t in self.targets)
        self.storages = [t._storage for t in self.targets]
        self.old = [t._vid if t._frame is frame else frame.bound[id(t)] for t in self.targets]
        known = [before.get(id(t), (t, t._data, old)) for t, old in zip(self.targets, self.old)]
        self.homes = {id(t): home for t, home in zip(self.targets, known)}
        self.arrays = [array for _, array, _ in known]
        self.owners = [owner_of(a) for a in self.arrays]
        self.views = [v for v in _views_of(frame, self.old) if v not in step.attributes.shown]
        self.shows = bool(step.attributes.shown)
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

    def redo(self, frame, step):
        """What a Frame notes down when it meets the update that a usual call has done."""
        frame.updates[step] = self
        if not self.are_changed and not self.shows:
            self.apply(frame)
            return
        frame.n_unusual_updates += 1
        for storage in self.storages:
            storage.version -= 1
        _assign_all(frame, step, self.targets)

    def has_dead_views(self, frame):
        """Whether the views that the call has made of the targets are the same as usual, and nobody holds one."""
        if not frame.views or self.views != _views_of(frame, self.old):
            return not frame.views and not self.views
        return not living(frame, held(frame.tensors, self.views))

    def is_alone(self):
        """Whether nothing living shares the targets' memory, or shows it later only (frame_changes.py:
        may_be_seen_later)."""
        return all(
            s.sharers is None or s.only_shared_by(t) or s.others_are_at_rest(t)
            for s, t in zip(self.storages, self.targets)
        )

    def bump_versions(self):
        for target in self.targets:
            tell_others(target)
            target.bump_version()


def _views_of(frame, numbers):
    views = [view for number in numbers for view in frame.views.get(number, ())]
    return [view for view in views if frame.tensors[view] is not None]  # whose tensor has not moved to another number


_data = attrgetter("_data")


def _update_reason(frame, step, rows, shown):
    owners, views = frame.owners, frame.views
    targets = [id(row[k]) for row in rows for k in step.detail.targets]
    if len(set(targets)) < len(targets):
        return "a tensor is updated twice by one update"
    for row in rows:
        for position in step.detail.targets:
            x = row[position]
            if x._frame is not frame and not views and not frame.held_copies and not is_borrowed(x._data, x):
                # alias_reason, for the usual case of memory of its own.
                storage, data = x._storage, x._data
                alone = len(owners[owner_of(data)]) == 1
                if alone and (storage is None or storage.sharers is None):
                    continue
            vid, flows = x._vid if x._frame is frame else frame.bound[id(x)], state.grad_enabled
            reason = alias_reason(frame, x, vid, shown, flows)
            if reason is not None:
                return reason
    return None
