"""Calls of a compiled function whose Python need not run: of one that is known to do the same ops again.

Replaying a call runs the function, which compares every op with the one before. If its code is proved to do nothing but
ops (`pure_code.py`), and all that it reads outside is what it was, then it would find nothing new: the call is taken as
a whole, in native code (runtime/replay/whole_call.py), and ends as any replayed call does.

One call is looked at first. It must have been like those before; its Python must not have read the memory of any tensor
nor changed what it was given; and what it returns must be tensors that it computed, or was given, and plain values, in
lists, tuples and dicts that it made.
"""

from functools import partial
from time import perf_counter

from .prepared import Look
from .pure_code import Impure, reads_of
from .pure_values import is_made_of_attributes, is_named_tuple
from .results import Result
from .runtime.replay import native_layout
from .runtime.replay.frame_usual import NOT_STARTED, UsualFrame
from .runtime.replay.usual_arguments import structure_of
from .runtime.replay.usual_whole import steps_of, what_else
from .runtime.replay.whole_call import (
    AS_DICT,
    AS_LIST,
    AS_OTHER,
    AS_TUPLE,
    COMPUTED,
    CONSTANT,
    GIVEN,
    WholeCall,
)
from .runtime.state.aligned import owner_of
from .runtime.state.attributes import refusal
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, tensor_of

_FIRST_PAUSE, _LONGER = 256, 4
_MOST_PIECES = 256
# What is done without the function besides ops, such as changes in place, takes so many seconds, and as many for each.
# A function that takes less than so many times as long runs.
_STEP, GAIN = 1e-6, 1.5
_CONTAINERS = {tuple: AS_TUPLE, list: AS_LIST}


class WholeCalls:
    """Which ways that the calls of one function go are taken without its Python. `reason`: why the last one is not, if
    one is not."""

    def __init__(self, function):
        self._function, self.reason = function, None

    def look_at(self, usual, leaves, args, kwargs, run):
        """run(function) calls the function as one that uses this UsualFrame; what it gives."""
        # What is of no use is found out ever more seldom: proving it takes as long as a hundred calls or more.
        usual.next_look = max(_FIRST_PAUSE, _LONGER * usual.recording.calls)
        usual._native.take_whole(None)
        usual.copied_again = False
        try:
            reads = self._reads_of(leaves)
        except Impure as reason:
            self.reason = str(reason)
            return run(self._function)
        given = structure_and_leaves(args, kwargs)
        with _Look(leaves, reads, (args, kwargs)) as look:

            def function(*args, **kwargs):
                began = perf_counter()
                result = self._function(*args, **kwargs)
                look.seconds = perf_counter() - began
                look.ended(result)
                return result

            result = run(function)
        if result is NOT_STARTED:
            return result
        try:
            whole = self._whole_of(usual, reads, look, leaves)
            if not _are_same(given, structure_and_leaves(args, kwargs)):
                raise Impure("it changes a list or a dict that it is given")
        except Impure as reason:
            self.reason = str(reason)
        else:
            self.reason = None
            usual._native.take_whole(whole)
        return result

    def _reads_of(self, leaves):
        if not native_layout.type_version(Tensor):
            raise Impure("native code is not used")
        return reads_of(self._function, *[x for x in leaves if not isinstance(x, Tensor) and _is_object(x)])

    def _whole_of(self, usual, reads, look, leaves):
        """A WholeCall for what the function was proved to read before the call. Raises Impure if there can be none."""
        reason = look.reason_of(usual)
        if reason is not None:
            raise Impure(reason)
        if not reads.hold():
            raise Impure("it changes a list, a dict or an array that is not its own, or another one does meanwhile")
        n_steps = len(steps_of(usual, look.made))
        if n_steps and look.seconds < GAIN * _STEP * (1 + n_steps):
            raise Impure("it takes no longer than to change tensors as it does without it")
        named = {id(x): x for x in reads.tensors}
        if not all(id(x) in named for x in look.outside.values()):
            raise Impure("it reads a tensor that is found nowhere in its code")
        rows = [(type(x), None if isinstance(x, Tensor) else x) for x in leaves]
        return WholeCall(
            usual, reads.rows(), list(named.values()), rows, look.numbers, look.pieces, look.made, look.shown
        )

    def lines(self, ways):
        """For explain."""
        if any(way._native is not None and way._native.whole is not None for way in ways):
            return ["calls are taken without running its Python, as long as what it reads is the same"]
        return [] if self.reason is None else [f"its Python runs in every call: {self.reason}"]


def structure_and_leaves(args, kwargs):
    """What arguments look like, and what is in them."""
    leaves = []
    return structure_of((args, kwargs), leaves), leaves


def _are_same(before, after):
    return before[0] == after[0] and all(x is y for x, y in zip(before[1], after[1]))


def _is_object(x):
    """Whether a leaf among the arguments has attributes that code may read, and is compared by identity."""
    return refusal({"an argument": x}) is not None


class _Look(Look):
    """What is seen of one call, from within. pieces: of the results, as whole_call.Piece, or None."""

    def __init__(self, leaves, reads, arguments):
        super().__init__()
        self.pieces = self.why_not = self.made = self.shown = self.seconds = None
        self._leaves, self._tensors = leaves, reads.tensors
        self._named = {id(x) for x in reads.tensors}
        self._others = reads.ids().union(map(id, _containers_in(arguments)))

    def ended(self, result):
        frame = state.frame
        self.frame = frame
        if not isinstance(frame, UsualFrame) or frame.departed.value or frame.position.value + 1 < len(frame.entries):
            return  # as it will if the function has returned where other calls go on
        self.numbers = list(frame.numbers)
        self.outside = dict(zip(frame.expectation.numbers, frame.expectation.tensors))
        self.shown = self._shown()
        self.made = self._copies_of_made()
        try:
            self.pieces = self._pieces_of(result)
        except Impure as reason:
            self.why_not = str(reason)

    def _pieces_of(self, result):
        parts, rows = [result], []
        for x in parts:
            kind, items, made_by = self._parts_of(x)
            if kind is None:
                rows.append(self._piece(x))
                continue
            if len(parts) + len(items) > _MOST_PIECES:
                raise Impure(f"its results have more than {_MOST_PIECES} parts")
            if not isinstance(x, tuple) and id(x) in self._others:
                raise Impure("a result is a container that was there before, or comes twice")
            self._others.add(id(x))
            rows.append((kind, len(parts), len(items), made_by))
            parts += items
        if result is None:
            raise Impure("it returns nothing")
        return rows

    def _parts_of(self, x):
        """(which kind of piece it is, its parts, what a piece of that kind is told); Nones of what has none."""
        kind = type(x)
        if kind is dict:
            return AS_DICT, x.values(), tuple(x)
        if kind in _CONTAINERS:
            return _CONTAINERS[kind], x, None
        if (is_named_tuple(kind) or isinstance(x, Result)) and not getattr(x, "__dict__", None):
            return AS_OTHER, x, partial(tuple.__new__, kind)
        if is_made_of_attributes(kind) and not any(x is leaf for leaf in self._leaves):
            return AS_OTHER, vars(x).values(), partial(_new_object, kind, tuple(vars(x)))
        return None, None, None

    def _piece(self, x):
        if not isinstance(x, Tensor):
            if refusal({"a result": x}) is not None and not any(x is leaf for leaf in self._leaves):
                raise Impure(f"a result is a {type(x).__name__}")
            return CONSTANT, 0, 0, x
        if x._frame is self.frame:
            return COMPUTED, self._first_number(x), 0, None
        for k, leaf in enumerate(self._leaves):
            if leaf is x:
                return GIVEN, k, 0, None
        if id(x) not in self._named:
            raise Impure("a result is a tensor that is found nowhere in its code")
        return CONSTANT, 0, 0, x

    def _shown(self):
        """(number, leaf, source, n_bytes) as in whole_call.Shown, of the copies that the call has read of what NumPy
        arrays show too; None if one is of memory that is found nowhere, or was not the same at all times."""
        if self.frame.copied_again:
            return None
        found, places = [], {id(x): k for k, x in enumerate(self._leaves)}
        # Parts of what is compared, which lie where they lie in every call.
        owners = {owner_of(x._data) for x in self._tensors if x._data is not None} - self._owners_given()
        sources = {id(copy): tensor for tensor, copy, *_ in self.frame.copies.values()}
        for vid in self.frame.fresh:
            source = sources.get(id(self.frame.tensors[vid]))
            if source is None:
                continue
            leaf, is_named = places.get(id(source), -1), id(source) in self._named
            # A copy does not tell for which of them it was made.
            if is_named if leaf >= 0 else not is_named and owner_of(source._data) not in owners:
                return None
            found.append((vid, leaf, source if leaf < 0 else None, _run(source._data)))
        return found

    def _owners_given(self):
        return {owner_of(x._data) for x in self._leaves if isinstance(x, Tensor) and x._data is not None}

    def _copies_of_made(self):
        """number -> a copy of a tensor that is new in every call, and not shown; None if one shares memory with others.
        Others the function makes of what it reads and is given, which is compared."""
        if self.shown is None:
            return None
        owners = {owner_of(x._data) for x in self.outside.values() if x._data is not None} | self._owners_given()
        made = {vid: self.frame.tensors[vid] for vid in self.frame.fresh if vid not in {n for n, *_ in self.shown}}
        if any(owner_of(x._data) in owners for x in made.values()):
            return None
        return {vid: tensor_of(x._data.copy()) for vid, x in made.items()}

    def _first_number(self, x):
        """What a tensor of the call was made as: results are, before any is changed."""
        number = self.frame.number_of(x)
        for change in reversed(self.frame.changes):
            if change.is_made and change.new == number:
                number = change.old
        return number

    def reason_of(self, usual):
        """Why calls like this one cannot be taken without their Python, or None: after the call."""
        # A call that has departed may be ready for the next one by now.
        if self.frame is not usual or usual.departed.value or self.numbers is None:
            return "calls are not replayed, or go several ways"
        if self.what_else() is not None:
            return self.what_else()
        if usual.segments or usual.eager_ops:
            return "a call is not one program"
        if self.made is None:
            return "a tensor that is new in every call shows memory that is somebody's"
        return what_else(usual, {number for number, *_ in self.shown}) or self.why_not


def _run(array):
    """How many bytes an array has in one run; -1 of one with gaps."""
    return array.nbytes if array.flags.c_contiguous else -1


def _new_object(kind, names, values):
    made = object.__new__(kind)
    vars(made).update(zip(names, values))
    return made


def _containers_in(arguments):
    """All lists, tuples and dicts among arguments, whatever they are in."""
    found = [arguments]
    for x in found:
        items = x.values() if isinstance(x, dict) else x
        found += [item for item in items if isinstance(item, (tuple, list, dict))]
    return found
