"""What a usual call does, step by step: the path of a recording as a flat list that can be compared quickly."""

from operator import is_

from ...compiler.ops.view import connect, leaf
from ..programs.recording import ASSIGN, BACKWARD, GRADIENTS, INPUT, UPDATE
from ..record.frame_views import names_before
from .usual_functions import Connected
from .usual_inplace import Change
from .usual_leaves import NewLeaf
from .usual_through import Shown
from .usual_updates import Updated


class NotReplayed(Exception):
    """(reason, line): why calls that take a path cannot be replayed."""


class Entry:
    """A step of the path. `fresh`: (number, position among the operands, key) of the tensors from outside that come in
    with it. `root`: of a view, the number of its base: in memory, or for the version where that is a .data.
    `n_shown`: of an update, how many names of what it changes the entries after it show again, together with it."""

    __slots__ = (
        "op", "step", "operands", "attributes", "grad_enabled", "vid", "fresh", "root", "numbers", "update",
        "undo", "change", "n_shown", "walk", "turned", "goes_outside",
    )  # fmt: skip

    def __init__(self, step, fresh, root, update=None):
        self.op, self.operands, self.attributes = step.op, step.operands, step.attributes
        self.grad_enabled, self.step, self.fresh, self.root = step.grad_enabled, step, fresh, root
        self.vid = step.first
        self.numbers = range(step.first, step.first + len(step.metas))
        self.update = update
        self.walk = None  # of the first step of a backward pass through nodes (usual_walks.py)
        self.change = None  # of an assignment (usual_inplace.py)
        self.n_shown = 0
        self.turned = {}  # number of what comes in -> that of the argument that it is, which is a leaf now
        self.undo = None  # of a backward to expected leaves: (leaves, their gradients before)
        self.goes_outside = False  # of a backward, whether the call has made none of its leaves

    def made(self):
        """Numbers under which a call holds what the entry has made or moved."""
        if self.change is not None:
            return self.change.old, self.change.new
        return self.numbers if self.update is None else ()

    def is_like(self, other):
        """Whether an entry of another UsualFrame is this one, of the same tensors from outside."""
        same = self.step is other.step and self.fresh == other.fresh and self.undo_leaves() == other.undo_leaves()
        if self.change is not None and other.change is not None:
            return same and self.change.target is other.change.target
        if self.update is not None and other.update is not None:
            return same and all(map(is_, self.update.targets, other.update.targets))
        return same and self.change is other.change and self.update is other.update

    def undo_leaves(self):
        return None if self.undo is None else [id(leaf) for leaf in self.undo[0]]


class End:
    """Stands after the last entry: equal to no step."""

    op = change = walk = None


def entries_of(frame):
    """The entries of the path after the arguments. NotReplayed if there is a step they cannot express."""
    entries, fresh, moved, names, version = [], [], set(), (), None
    turned = {one.after: one.before for one in frame.turned.values()}
    expected = dict(zip(frame.confirmed.numbers, frame.confirmed.tensors))
    for step in frame.steps[frame.start.depth :]:
        if step.op is INPUT:
            if step.first not in expected:
                fresh.append((step.first, step.attributes))
            continue
        if names:
            entry = Entry(step, (), _base_of(frame, step))
            entry.numbers, entry.change = (), Shown(frame, step, names, version)
            names = entry.change.shown
        elif step.op is leaf or step.op is connect:
            entry = _new_leaf(frame, step, fresh)
        elif step.op is UPDATE and not _is_of_the_same(frame, step):
            entries += _updates(frame, step, fresh, expected)
            moved.update(entry.change.old for entry in entries[-len(step.metas) :] if entry.change.is_made)
            fresh = []
            continue
        elif step.op is ASSIGN:
            entry = _assignment(frame, step, fresh, entries, expected)
            names, version = entry.change.shown, entry.change.version
        else:
            entry = _entry(frame, step, fresh, turned)
            names, version = names_before(step), None
            entry.n_shown = len(names)
        if entry.op is BACKWARD and all(vid in expected for vid in step.detail.wanted):
            entry.undo = ([expected[vid] for vid in step.detail.wanted], [None] * len(step.detail.wanted))
        if entry.op is BACKWARD:
            entry.goes_outside = all(frame.step_of(vid).op is INPUT for vid in step.detail.wanted)
        if entry.op is BACKWARD and not moved.isdisjoint(step.detail.wanted):
            raise NotReplayed(
                "a leaf made in the call was changed in place before its gradient was asked for", step.line
            )
        if entry.change is not None and entry.change.is_made:
            moved.add(entry.change.old)
        entries.append(entry)
        fresh = []
    if fresh:
        raise NotReplayed("a tensor from outside came in and was not used", frame.step.line)
    computed = {id(entry.step) for entry in entries}
    for flush in frame.flushes:
        if id(flush.step) not in computed:
            raise NotReplayed("a value was read before anything was computed from what came in", flush.step.line)
    return entries


def _assignment(frame, step, fresh, entries, expected):
    """The entry of an in-place change, in place of those of the steps that were recorded for it."""
    detail, steps = step.detail, [step]
    while entries and entries[-1].step.depth > detail.depth:
        entry = entries.pop()
        steps.insert(0, entry.step)
        if entry.turned:
            raise NotReplayed("an argument that becomes a leaf came in in the middle of a change", step.line)
        if fresh and entry.fresh:
            raise NotReplayed("a tensor that is new in every call came in in the middle of a change", step.line)
        fresh = [*entry.fresh, *fresh]
    if any(vid not in detail.operands for vid, *_ in fresh):
        raise NotReplayed("a tensor that is new in every call came in in the middle of a change", step.line)
    change = Change(frame, step, steps, expected)
    if not change.is_made and change.meta.history:
        raise NotReplayed("a tensor from outside gets a history in the call", step.line)
    entry = Entry(step, (), None)
    entry.operands, entry.attributes, entry.vid, entry.numbers = detail.operands, detail.attributes, change.new, ()
    entry.fresh = tuple((vid, detail.operands.index(vid), key) for vid, _, key in fresh)
    entry.change = change
    return entry


def _is_of_the_same(frame, step):
    """Whether an update changes tensors that are the same in every call, and no others."""
    usual = frame.updates.get(step)
    return usual is not None and all(id(t) in frame.confirmed.bound for t in usual.targets)


def _updates(frame, step, fresh, expected):
    """The entries of an update that changes tensors of the call."""
    moved = step.detail.moved
    if moved is None or step.attributes.shown or any(vid not in step.operands or not is_leaf(k) for vid, k in fresh):
        raise NotReplayed("an update changes tensors that are not the same in every call", step.line)
    entries = []
    for k in range(len(moved)):
        entry = Entry(step, (), None)
        entry.change, entry.numbers = Updated(frame, step, k, expected), ()
        entry.vid = entry.change.new
        if entry.change.old_meta.history:
            raise NotReplayed("an update changes tensors that are not the same in every call", step.line)
        entries.append(entry)
    entries[0].fresh = tuple((vid, step.operands.index(vid), key) for vid, key in fresh)
    return entries


def _base_of(frame, step):
    """The number of what a view is an Entry's view of."""
    root = frame.versioned.get(step.first, step.first)
    return frame.roots[step.first] if root == step.first else root


def _new_leaf(frame, step, fresh):
    if fresh:
        raise NotReplayed("a tensor from outside came in and was not used", step.line)
    entry = Entry(step, (), frame.roots.get(step.first))
    entry.numbers, entry.change = (), (NewLeaf if step.op is leaf else Connected)(frame, step)
    return entry


class Homes(dict):
    """(position, position) -> what the entries between them change in place, the same in every call: id of a tensor
    from outside -> (the tensor, its memory, its number)."""

    def __init__(self, entries):
        self._entries = entries

    def __missing__(self, place):
        homes = self[place] = {}
        for entry in self._entries[slice(*place)]:
            if entry.change is not None:
                homes.update(entry.change.homes())
            elif entry.op is UPDATE:
                homes.update(entry.update.homes)
        return homes


def _entry(frame, step, fresh, turned):
    root, usual, is_backward = None, None, step.op in (BACKWARD, GRADIENTS)
    if step.op is UPDATE:
        usual = frame.updates[step]
        if fresh:
            raise NotReplayed("an update changes tensors that are not the same in every call", step.line)
    elif isinstance(step.op, str) and not is_backward:
        raise NotReplayed(f"{step.op} is no step that can be replayed", step.line)
    elif step.detail is not None and not is_backward:
        root = _base_of(frame, step)
    if any(vid not in step.operands for vid, _ in fresh):
        raise NotReplayed("a tensor that is new in every call is not used where it comes in", step.line)
    entry = Entry(step, tuple((vid, step.operands.index(vid), key) for vid, key in fresh), root, usual)
    entry.turned = {vid: turned[vid] for vid, _ in fresh if vid in turned}
    return entry


def is_leaf(key):
    """Whether an input is one."""
    return key[3]


def turned_arguments(frame, entries, needed):
    """position -> numbers of the tensors from outside that become leaves there which require gradients."""
    metas, found = frame.step.metas_so_far(), {}
    used_again = [one for one in frame.turned.values() if one.after is not None]
    for one in frame.turned.values():
        if one.after is None or metas[one.after].requires_grad:
            found.setdefault(sum(e.step.depth <= one.step.depth for e in entries), []).append(one.before)
    changes = [e.change for e in entries if e.change is not None]
    if found and any(not change.is_made and change.target is None for change in changes):
        raise NotReplayed("an argument becomes a leaf, and one is changed in place", frame.step.line)
    if used_again and needed.differentiable:
        raise NotReplayed(
            "an argument becomes a leaf, and a result that requires gradients may lead there", frame.step.line
        )
    return found
