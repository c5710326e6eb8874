"""A usual call for many sizes: one UsualFrame whose facts are written anew for the sizes of each call.

    relu float32(200, 16)       what a call with 200 rows was recorded as
    relu float32(⟦1*n⟧, 16)     what holds for every n, by the shape rules of all its ops
    relu float32(37, 16)        what a call with 37 rows is compared with

A size that never comes again is worth no recording of its own, which takes Python for every op. The calls of several
sizes that one program serves (runtime/programs/sizes.py) differ in what follows from their sizes alone. So one
UsualFrame does for all of them. Before a call of other sizes its metas, attributes and the numbers of its program are
those that follow; then the call is compared with it like any other.

Nothing is taken from samples: the shape rule of every op is asked with extents (compiler/extent.py), and its answers
are noted as guards. Frames with what follows from sizes in other ways (`_REFUSED`) have no such form. Python of layers
may look at sizes, so it runs, and no span of it is taken. Where a call departs, what was done so far is a recording
like others, made then (`recorded`).
"""

import re
import threading
from copy import copy

import numpy as np

from ...compiler.extent import evaluate
from ..programs.formulas import condition_of, function_of
from ..programs.opening import Formula
from ..programs.recording import INPUT, Recording, Step, ValueMeta
from ..programs.resized import ResizedProgram
from ..programs.sizes import program_of
from ..state.attributes import same_attributes
from ..state.tensor import Tensor
from . import native_words
from .frame_usual import NOT_STARTED, UsualFrame
from .many_outside import ManyBackward
from .many_words import SizeWords
from .native_records import words_of_entry
from .open_path import Refused, open_path
from .usual_arguments import leaves_of
from .usual_ended import EndedCall
from .usual_entries import entries_of
from .usual_through import Shown
from .usual_views import steps_between

_IN_VAIN = 16  # so many calls in a row that departed


# --- the frame --------------------------------------------------------------------------------------------------------
def programs_of(frame):
    """The OfMany of each program that a call has run, the last one last; () if one serves no other sizes, or others,
    or if the last has not seen the whole call."""
    ran = [flush.program for flush in frame.flushes] + [frame.end_program]
    found = [program.of_many for program in ran if program is not None]
    if not found or None in found or any(one.numbers != found[-1].numbers for one in found):
        return ()
    is_whole = frame.end_program is not None or frame.flushes[-1].step is frame.step
    return tuple(found) if is_whole else ()


def many_sizes(frame, structure, types, refuse):
    """The ManySizes for calls like one that has ended in this Frame, whose `confirmed` says what they meet. Refused, or
    NotReplayed, if there is none; `refuse` is called with a reason if that turns out later."""
    of_many, path = programs_of(frame), list(frame.step.path())
    opened = open_path(path, of_many[-1], frame.default_dtype)
    before = frame.end_program, frame.flushes, frame.recording
    try:
        frame.end_program, frame.recording = _resized(frame.end_program), _template(frame.recording)
        frame.flushes = [flush._replace(program=_resized(flush.program)) for flush in frame.flushes]
        usual = UsualFrame(frame, frame.needed, entries_of(frame), structure, types)
    finally:
        frame.end_program, frame.flushes, frame.recording = before
    return ManySizes(usual, path, opened, of_many, refuse)


def _resized(program):
    return None if program is None else ResizedProgram(program.of_many)


def _template(recording):
    """A Recording without steps for calls of the same function."""
    made = Recording(recording.name, recording.signature, recording.fullgraph, recording.sizes)
    for name in ("in_background", "openings", "when_opened"):
        setattr(made, name, getattr(recording, name))
    return made


def _of_numbers(vids, shapes):
    return any(vid in shapes for vid in vids)


# (what else follows from sizes, whether a UsualFrame with these open shapes has it)
_REFUSED = (
    ("native code does not replay it", lambda usual, shapes: usual._native is None),
    ("an argument gets a gradient after the call", lambda usual, _: usual.outside is not None and usual.outside.inner),
    (
        "a backward comes after the call, which changes what that reads or has differentiated some of it",
        lambda usual, _: usual.outside is not None and not usual.outside.is_plain,
    ),
    (
        "a backward comes after the call, of which a part ran before its end",
        lambda usual, _: usual.outside is not None and (usual.segments or usual.program is None),
    ),
    (
        "a value of a changing size is read in the middle",
        lambda usual, shapes: any(_of_numbers(segment.made, shapes) for segment in usual.segments),
    ),
    (
        "Python computes what is read in the middle",
        lambda usual, shapes: any(not s.is_native and s.program is not None for s in usual.segments),
    ),
    ("gradients pass through nodes", lambda usual, shapes: usual.walks or usual.hookable or usual.has_nodes),
    ("an op runs eagerly in the middle", lambda usual, shapes: usual.eager_ops),
    ("a leaf is made in it", lambda usual, shapes: usual.leaves or usual.turned),
    ("a result was differentiated in it, and a leaf is an argument", lambda usual, shapes: usual._ends_differ),
    ("it is ended in Python", lambda usual, shapes: usual.slower_for),
    ("a parameter has a changing size", lambda usual, shapes: _of_numbers(usual.expectation.numbers, shapes)),
)


class ManySizes:
    """A UsualFrame for calls of many sizes.

    numbers: the sizes that it has the facts of, in the order of `names`; None while they are being changed. `lock`: is
    held while it is changed, and while a call uses it. refuse: is called with a reason if it is of no use after all.
    """

    def __init__(self, usual, path, opened, of_many, refuse):
        for reason, is_so in _REFUSED:
            if is_so(usual, opened.shapes):
                raise Refused(reason)
        self.usual, self.path, self.of_many = usual, path, of_many
        self.template = usual.recording
        self.counter, self.lock, self.n_departed = usual.recording.counter, threading.Lock(), 0
        self.expected, self.recording_lock = usual.expectation, threading.RLock()
        self.names, self.numbers, self.recorded_for = tuple(of_many[-1].numbers), None, None
        self.opened, self._held = opened, []
        usual.metas = list(usual.metas)
        self.facts = function_of((list(opened.shapes.values()), list(opened.attributes.values())), self.names)
        guards = [guard for one in of_many for guard in one.guards]
        self.holds = condition_of([*opened.guards, *guards], self.names)
        self._find_arguments()
        self._find_entries()
        self._find_views()
        arguments = [(place, opened.attributes[k]) for place, k in self.arguments]
        given = [(segment.words, segment.program, segment.live) for segment in usual.segments]
        given.append((usual._native.words, usual.program, usual.needed.live))
        given = [one for one in given if one[1] is not None]
        self.programs = [program for _, program, _ in given]
        self.size_words = SizeWords(usual, given, arguments, self.names)
        self.backward = None if usual.outside is None else ManyBackward(self, usual.outside, self._refuse)
        self._when_refused = refuse
        usual.many = self

    def _refuse(self, reason):
        self.n_departed = _IN_VAIN
        self._when_refused(reason)

    def _find_arguments(self):
        """Which arguments tell the sizes: (place among the leaves, index of their step) of each, their shapes, and for
        every size (place, dimension, factor, constant)."""
        usual, opened = self.usual, self.opened
        given = [k for k, key in enumerate(usual.argument_keys) if key is not None]
        self.arguments = [(place, k) for k, place in enumerate(given) if k in opened.attributes]
        shapes = [opened.attributes[k][0] for _, k in self.arguments]
        self.shapes = function_of(shapes, self.names)
        self.telling = [self._telling(name, shapes) for name in self.names]
        self.n_leaves = len(usual.argument_types)

    def _telling(self, name, shapes):
        for (place, _), shape in zip(self.arguments, shapes):
            for dimension, size in enumerate(shape):
                if isinstance(size, Formula) and _is_affine(size.text, name):
                    constant = evaluate(size.text, 0)
                    return place, dimension, evaluate(size.text, 1) - constant, constant
        raise Refused("the arguments do not tell the sizes")

    def _find_entries(self):
        """The entries of which something follows from sizes: (index, index of the step that has its attributes or None,
        indices of the steps of what comes in with it, whether it changes something of a changing size)."""
        usual, opened = self.usual, self.opened
        index = {id(step): k for k, step in enumerate(self.path)}
        comes_in = {step.first: k for k, step in enumerate(self.path) if step.op is INPUT}
        self.entries = []
        for place, entry in enumerate(usual.entries[:-1]):
            change, own = entry.change, index[id(entry.step)]
            fresh = [comes_in[vid] for vid, _, _ in entry.fresh]
            is_affected = change is not None and _of_numbers((change.old, change.new), opened.shapes)
            if change is not None and change.op is not None:
                own = self._step_of_change(entry, index)
            own = own if own in opened.attributes else None
            if is_affected or own is not None or any(k in opened.attributes for k in fresh):
                self.entries.append((place, own, fresh, is_affected))

    def _step_of_change(self, entry, index):
        """The index of the step that has the attributes of a change in place; None if they are in none."""
        steps = [step for step in entry.change.steps if step.op is entry.change.op]
        if steps and same_attributes(steps[-1].attributes, entry.attributes):
            return index[id(steps[-1])]
        if any(index[id(step)] in self.opened.attributes for step in entry.change.steps):
            raise Refused("the place of a change follows from sizes")
        return None

    def _find_views(self):
        """Of each view that is a result: its number, that of its base, and the indices of the steps between."""
        steps = {step.first: step for step in self.path if step.metas}
        index = {id(step): k for k, step in enumerate(self.path)}
        rows = self.usual.given_views.rows
        chains = [[index[id(step)] for step in steps_between(steps, row[1], row[0])] for row in rows]
        is_affected = any(_of_numbers(row[:2], self.opened.shapes) for row in rows)
        self.views = chains if is_affected else None
        if is_affected and any(_is_strided(steps[row[1]]) for row in rows):
            raise Refused("a result is a view of an argument that is not contiguous")

    # --- a call -------------------------------------------------------------------------------------------------------
    def call(self, function, args, kwargs, after):
        """function(*args, **kwargs) as a call like those before but for its sizes, or NOT_STARTED. after(self, leaves)
        is called then, before anybody else can use the frame."""
        leaves = leaves_of(self.usual, args, kwargs)
        numbers = leaves and self.numbers_of(leaves)
        if not numbers or not self.lock.acquire(blocking=False):
            return NOT_STARTED
        try:
            if numbers != self.numbers:
                self._resize(numbers)
            usual = self.usual
            result = usual.call(function, leaves, args, kwargs)
            if result is NOT_STARTED:
                result = usual.call_in_python(function, leaves, args, kwargs)
            if result is not NOT_STARTED:
                after(self, leaves)
        finally:
            self.lock.release()
        return result

    def numbers_of(self, leaves):
        """The sizes of a call with these leaves of its arguments; None if it is none of this kind."""
        if len(leaves) != self.n_leaves:
            return None
        found = []
        for place, dimension, factor, constant in self.telling:
            x = leaves[place]
            if not isinstance(x, Tensor) or x.ndim <= dimension:
                return None
            number, rest = divmod(x.shape[dimension] - constant, factor)
            if rest:
                return None
            found.append(number)
        for (place, _), shape in zip(self.arguments, self.shapes(*found)):
            if not isinstance(leaves[place], Tensor) or leaves[place].shape != shape:
                return None
        numbers = tuple(found)
        return numbers if numbers == self.numbers or self.holds(*found) else None

    @property
    def n_calls(self):
        return self.counter[0]

    def is_for(self, of_many, needed, structure, stable):
        """Whether it serves calls of this program and end, whose arguments look so, and that meet these tensors."""
        usual = self.usual
        codes = [one.code for one in self.of_many]
        same = codes == [one.code for one in of_many] and usual.needed == needed and usual.structure == structure
        return same and self.expected.bound.keys() == {id(tensor) for _, tensor in stable}

    @property
    def is_of_use(self):
        """Whether calls may still be like this."""
        return self.n_departed < _IN_VAIN and self.usual.expectation.may_hold_again()

    # --- other sizes --------------------------------------------------------------------------------------------------
    def _resize(self, numbers):
        """Have the facts of these sizes. An exception in between leaves none, and the next call begins anew."""
        self.numbers = None
        usual, words, held = self.usual, self.usual._native.words, []
        for program in self.programs:
            program.resize(dict(zip(self.names, numbers)))
        shapes, attributes = self.facts(*numbers)
        metas, tensors = usual.metas, usual.tensors
        for vid, shape in zip(self.opened.shapes, shapes):
            metas[vid] = meta = _like(metas[vid], shape)
            tensor = tensors[vid]
            if tensor is not None and tensor._frame is usual:
                tensor._meta = meta
        self._write_entries(dict(zip(self.opened.attributes, attributes)), held)
        self.size_words.write(numbers)
        if self.views is not None:
            self._write_views(dict(zip(self.opened.attributes, attributes)), held)
        usual.layouts.clear()
        usual.expectation.compared.clear()
        if usual.ended is not None:
            usual.ended = EndedOfMany(self, numbers, usual.ended)
            words[native_words.ENDED] = id(usual.ended)
        if self.backward is not None:
            usual.take_outside(self.backward.for_sizes(numbers))
        self._held, self.numbers = held, numbers

    def _write_entries(self, attributes, held):
        usual, native = self.usual, self.usual._native
        for place, k in self.arguments:
            usual.argument_keys[place] = attributes[k]
        for place, own, fresh, is_affected in self.entries:
            entry = usual.entries[place]
            if own is not None:
                entry.attributes = attributes[own]
            if fresh:
                keys = [attributes.get(k, key) for k, (_, _, key) in zip(fresh, entry.fresh)]
                entry.fresh = tuple((vid, at, key) for (vid, at, _), key in zip(entry.fresh, keys))
            if is_affected:
                entry.change.old_meta, entry.change.meta = usual.metas[entry.change.old], usual.metas[entry.change.new]
            row = words_of_entry(held, entry)
            native.entries[place, : len(row)] = row
        if any(is_affected for *_, is_affected in self.entries):
            native.fill_changes(held)

    def _write_views(self, attributes, held):
        usual, path, metas = self.usual, self.path, self.usual.metas
        ops = [[(path[k].op, attributes.get(k, path[k].attributes)) for k in chain] for chain in self.views]
        views = usual.given_views
        views.rows = [(vid, root, own, *rest) for (vid, root, _, *rest), own in zip(views.rows, ops)]
        changed = {change.new for change in usual.changes}
        usual.given_layouts = views.layouts_in(lambda v: np.empty(metas[v].shape, metas[v].dtype.numpy), changed)
        usual._native.fill_given(usual, held)

    # --- what was recorded, for these sizes ---------------------------------------------------------------------------
    def recorded(self, numbers):
        """(a Recording, the steps of its path, the Expectation there) of a call of these sizes."""
        shapes, attributes = self.facts(*numbers)
        shapes, attributes = dict(zip(self.opened.shapes, shapes)), dict(zip(self.opened.attributes, attributes))
        recording = _template(self.template)
        before, path = recording.root, []
        for k, step in enumerate(self.path):
            metas = tuple([_like(m, shapes.get(step.first + j)) for j, m in enumerate(step.metas)])
            own = step.op, step.operands, attributes.get(k, step.attributes), step.grad_enabled, metas
            before = recording.grow(before, Step(*own, step.first, step.first_number, step.line, step.detail))
            path.append(before)
        return recording, path, self._expected(path)

    def program(self, numbers):
        """The Program at the end of a call of these sizes."""
        return program_of(self.of_many[-1], dict(zip(self.names, numbers)))

    def _expected(self, path):
        """The Expectation of the calls, on these steps."""
        known = self.expected

        def own(step):
            return path[step.depth - 1] if step.depth else path[0].parent

        made = copy(known)
        made.start, made.end, made.path = own(known.start), path[-1], frozenset(path)
        made.jumps = {own(step): (own(last), met) for step, (last, met) in known.jumps.items()}
        made.compared = {}
        return made

    def take_own_steps(self):
        """Whoever looks at the steps of the call in flight, or goes on with it, is to find those of its sizes."""
        usual = self.usual
        with self.recording_lock:
            if self.recorded_for != self.numbers:
                self._take(usual, *self.recorded(self.numbers))

    def _take(self, usual, recording, path, expectation):
        for entry in usual.entries[:-1]:
            entry.step = path[entry.step.depth - 1]
            if isinstance(entry.change, Shown):
                entry.change.step = path[entry.change.step.depth - 1]
            elif entry.change is not None:
                entry.change.steps = [path[step.depth - 1] for step in entry.change.steps]
        for segment in usual.segments:
            position, flush = segment.key
            segment.key = position, flush._replace(step=path[flush.step.depth - 1])
        usual.recording, usual.expectation, self.recorded_for = recording, expectation, self.numbers


class EndedOfMany(EndedCall):
    """An EndedCall that finds out what was recorded when somebody asks."""

    def __init__(self, many, numbers, ended):
        self._many, self._numbers, self.freed, self.leaves = many, numbers, [], []
        self.common, self.frame = self, None
        self.changed, self.changed_leaves, self.changed_metas = ended.changed, ended.changed_leaves, ended.changed_metas

    def _frame_of(self, tensor):
        self.recording, path, self.expectation = self._many.recorded(self._numbers)
        self.step = path[-1]
        return super()._frame_of(tensor)


def _is_strided(step):
    return step.op is INPUT and step.attributes[4] is not None


def _is_affine(text, name):
    """Whether a polynomial is of one size, and of degree one."""
    return re.fullmatch(rf"-?\d+\*{name}(\+-?\d+)?", text) is not None


def _like(meta, shape):
    return meta if shape is None else ValueMeta(shape, meta.dtype, meta.requires_grad, meta.history)
