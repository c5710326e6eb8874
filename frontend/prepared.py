"""Calls on arrays that go to their program at once: of a function that is known to do the same ops again.

An ordinary call of a function on arrays copies them into tensors and runs the function's Python, which compares every
op with the one before. If its code is proved to do nothing but ops (`pure_code.py`), and all that it reads outside is
what it was, then the program of the last call computes the next one too, and reads the arrays where they are.

    arguments, what is read outside: compared, in native code (runtime/replay/prepared_call.py) or here
    the program on these arrays -> outputs, which are new arrays

The program was made for an ordinary call, so results have the same bits. A call is *looked at* before one like it is
prepared: it must have been one program, drawn no random number, and its Python must not have read the memory of any
tensor, as `float(c)` of a tensor outside does, or `x.item()`.
"""

from itertools import count
from operator import attrgetter, itemgetter

import numpy as np

from .pure_code import Impure, reads_of
from .runtime.programs.own_run import are_watched, own_run
from .runtime.replay import native, native_layout, native_making
from .runtime.replay.frame_usual import UsualFrame
from .runtime.replay.prepared_call import ARRAY, OTHER, TENSOR, NativeCall
from .runtime.state.attributes import refusal, same
from .runtime.state.modes import autocasting, state, watching
from .runtime.state.seen import Watch
from .runtime.state.tensor import Tensor

_FIRST_WAIT, _LONGEST_WAIT = 6, 4096
_MOST_CALLS, _MANY_RUNS = 8, 100
_autograd = attrgetter("_requires_grad", "_node", "_frame")


class Prepared:
    """The prepared calls of one function of arrays, those tried first in front. `reason`: why there are none, once that
    is known."""

    def __init__(self, function):
        self._function, self.calls, self.reason = function, (), None
        self._waits = self._next_wait = _FIRST_WAIT  # how many ordinary calls come before one is looked at

    def after(self, key, compiled, values, tensors):
        """compiled(*tensors), the ordinary call; after some of them one like this is prepared."""
        self._waits -= 1
        if self._waits > 0 or state.frame is not None or state.looks_on is not None or not native_making.is_here():
            return compiled(*tensors)
        # What was of use may be prepared again soon; what changes in every few calls is not worth it.
        was_used = any(call.n_runs() > _MANY_RUNS for call in self.calls)
        self._waits = self._next_wait = _FIRST_WAIT if was_used else min(2 * self._next_wait, _LONGEST_WAIT)
        try:
            reads = _reads_of(self._function)
        except Impure as reason:
            self.reason = str(reason)
            return compiled(*tensors)
        with Look() as look:
            results = compiled(*tensors)
        try:
            call = prepared(key, reads, look, values, tensors)
        except Impure as reason:
            self.reason = str(reason)
        else:
            self.reason = None
            self.calls = (call, *[other for other in self.calls[: _MOST_CALLS - 1] if not other.stale])
        return results

    def lines(self):
        """For explain."""
        if self.reason is not None:
            return [f"its Python runs in every call: {self.reason}"]
        return ["calls on arrays go to their program at once, as long as what the function reads is the same"] * bool(
            self.calls
        )


class Look(Watch):
    """What is seen of one call, from within."""

    def __init__(self):
        super().__init__()
        self.frame = self.numbers = self.results = self.form = None
        self.outside = {}  # number -> tensor, of those from outside that are no arguments
        self.made = ()  # numbers of those that are new in every call
        self.compared = []
        self.copied = []  # those of them that the call has read copies of, without gaps

    def ended(self, results, form=None):
        """The function, which is called in a frame, is about to return these. form: of their arrays what the caller
        gets, if not a list of them."""
        frame = state.frame
        self.frame, self.form = frame, form
        if isinstance(frame, UsualFrame) and type(results) is tuple and all(isinstance(r, Tensor) for r in results):
            self.numbers, self.results = list(frame.numbers), [r._vid if r._frame is frame else None for r in results]
            self.outside = dict(zip(frame.expectation.numbers, frame.expectation.tensors))
            self.outside |= {vid: frame.tensors[vid] for vid in frame.fresh}
            self.made = set(frame.fresh)
            # Of memory that NumPy shows too the call has read copies. The program alone may read it where it is, since
            # nothing else runs between its beginning and its end.
            self.copied = [tensor for tensor, *_ in frame.copies.values()]
            shown = {id(copy): tensor for tensor, copy, *_ in frame.copies.values()}
            self.outside = {vid: shown.get(id(x), x) for vid, x in self.outside.items()}

    def numbers_of_shown(self, tensors):
        """id of an argument -> the number of what the call has read in its place: a copy, of memory that NumPy shows
        too, such as a part of what `from_numpy` gave."""
        given = {id(x) for x in tensors if isinstance(x, Tensor)}
        return {id(x): vid for vid, x in self.outside.items() if id(x) in given}

    def sort(self, named, given):
        """Which tensors have to be what they are now, of those that the function names and is given: all of the former,
        since code may ask for a shape, too. What is read besides are their parts, or it is made in the call, of what is
        compared: that stays as it is. Raises Impure if something is neither."""
        names, owners = {id(x) for x in named}, {id(_owner(x._data)) for x in named}
        shown = self.numbers_of_shown(given)
        # A copy does not tell for which of them it was made.
        if not names.isdisjoint(shown) or sum(id(x) in shown for x in given) != len(shown):
            raise Impure("an argument is a tensor of NumPy's memory that the call is given in another place, too")
        read = {vid: x for vid, x in self.outside.items() if id(x) not in shown}
        given = {id(_owner(x._data)) for x in given if isinstance(x, Tensor)}
        self.compared = list({id(x): x for x in named}.values())
        for vid, x in read.items():
            is_named = id(x) in names or id(_owner(x._data)) in owners
            if not is_named and (vid not in self.made or id(_owner(x._data)) in given):
                raise Impure("it reads a tensor that is found nowhere in its code, as a part of an argument")

    def reason(self):
        """Why calls like this one cannot be prepared, or None: after the call."""
        frame = self.frame
        if not isinstance(frame, UsualFrame) or frame.departed.value or self.results is None:
            return "calls are not replayed"
        if frame.segments or frame.eager_ops or frame.program is None:
            return "a call is not one program"
        if self.what_else() is not None:
            return self.what_else()
        if frame.needed.views or frame.needed.commits or not set(self.results) <= {*frame.needed.live}:
            return "it changes a tensor, or a result is one that was there before"
        return None


class PreparedCall:
    """Calls with arguments like those of one that was looked at. `stale`: what the function reads has changed."""

    def __init__(self, key, reads, look, values, tensors):
        """key: what else has to be the same. values: the arguments as they were given. tensors: as it got them."""
        self.key, self._reads, self.stale = key, reads, False
        self.default_dtype = state.default_dtype
        program, numbers = look.frame.program, count()
        # An argument's number is its place among the tensors given; what the program does not read has no position.
        positions = {vid: k for k, vid in enumerate(program.inputs)}
        shown = look.numbers_of_shown(tensors)
        self._arguments = [_argument(v, x, positions, numbers, shown.get(id(x))) for v, x in zip(values, tensors)]
        self._is_leaf = [isinstance(x, Tensor) and x._requires_grad for x in tensors]
        outside = {vid: x for vid, x in look.outside.items() if id(x) not in shown}
        self._outside = look.compared
        self._memory = [(x._data, (x._requires_grad, None, None)) for x in self._outside]
        known = {vid: x._data for vid, x in outside.items() if vid in positions}
        own = [position for *_, position in self._arguments if position is not None]
        self._run = own_run(program, look.numbers, {positions[vid]: x for vid, x in known.items()}, own)
        self._n_own_runs = 0
        self._native = NativeCall(
            reads.rows(), self._outside, self._arguments, program, look.numbers, known, self._in_python
        )
        self.run = self._native.function  # of the arguments as a tuple
        live = look.frame.needed.live
        places = [live.index(vid) for vid in look.results]
        # From outputs to what the caller gets; None if that is the same.
        self.in_order = _formed(_picker(places, len(program.outputs)), look.form)

    def n_runs(self):
        """How often it was of use."""
        return self._native.calls + self._n_own_runs

    def _in_python(self, values):
        """The outputs, or None if this is another call: what native code departs to."""
        if len(values) != len(self._arguments) or autocasting or watching or are_watched():
            return None
        arrays = []
        for value, (kind, wanted, dtype, shape, position), is_leaf in zip(values, self._arguments, self._is_leaf):
            if kind == OTHER:
                if not same(value, wanted):
                    return None
                continue
            array = _data_of(value, dtype) if kind == TENSOR else _array_of(value, dtype, is_leaf)
            if array is None or array.shape != shape:
                return None
            if position is not None:
                arrays.append(array)
        self.stale = not (self._reads.hold() and all(map(_is_unchanged, self._outside, self._memory)))
        self._n_own_runs += not self.stale
        return None if self.stale else self._run(arrays)


def _picker(places, n_outputs):
    """A function that picks these of the outputs, those that are picked twice as copies."""
    if places == list(range(n_outputs)):
        return None
    if len(places) == len(set(places)) > 1:
        return itemgetter(*places)
    return lambda outputs: [outputs[at] if at not in places[:k] else outputs[at].copy() for k, at in enumerate(places)]


def _formed(pick, form):
    if pick is None or form is None:
        return pick if form is None else form
    return lambda outputs: form(pick(outputs))


def _reads_of(function):
    if native.layout() is None or not native_layout.type_version(Tensor):
        raise Impure("native code is not used")
    return reads_of(function)


def prepared(key, reads, look, values, tensors):
    """A PreparedCall for what the function was proved to read before the call. Raises Impure if there can be none."""
    reason = look.reason()
    if reason is not None:
        raise Impure(reason)
    if not reads.hold():
        raise Impure("it changes a list, a dict or an array that is not its own, or another one does meanwhile")
    for value, given in zip(values, tensors):
        if not isinstance(given, Tensor) and refusal({"an argument": value}) is not None:
            raise Impure(f"an argument is a {type(value).__name__}")
        if isinstance(value, Tensor) and (value._requires_grad or value._data is None):
            raise Impure("an argument is a tensor that requires gradients")
        if isinstance(given, Tensor) and not given._data.flags.c_contiguous:
            raise Impure("an argument is an array with gaps")
    if not all(_is_unchanged(x, (x._data, (x._requires_grad, None, None))) for x in look.outside.values()):
        raise Impure("it reads a tensor with a history")
    look.sort(reads.tensors, tensors)
    if not all(_lies_well(x._data) for x in look.copied):
        raise Impure("it reads an array of NumPy's with gaps; weft.tensor(array) is a copy without")
    return PreparedCall(key, reads, look, values, tensors)


def _is_unchanged(tensor, memory):
    """Whether it still is the leaf it was, on the same array."""
    array, autograd = memory
    return tensor._data is array and _autograd(tensor) == autograd


def _owner(array):
    """The array whose memory it is a part of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _lies_well(array):
    return array.flags.c_contiguous and array.flags.aligned


def _argument(value, given, positions, numbers, shown):
    """(kind, value of what is no tensor, type, shape, position among the program's inputs). `shown`: the number of the
    copy that was read in its place, if one was."""
    if not isinstance(given, Tensor):
        return OTHER, value, None, (), None
    kind = TENSOR if isinstance(value, Tensor) else ARRAY
    number = next(numbers)
    return kind, None, given._data.dtype, given._data.shape, positions.get(number if shown is None else shown)


def _array_of(value, dtype, is_leaf):
    """An array of this type for an argument that may be none, as the ordinary call would convert it; else None. It
    converts numbers and lists of them only where it differentiates."""
    if type(value) is np.ndarray and value.dtype == dtype:
        ready = value.dtype is dtype and value.flags.c_contiguous and value.flags.aligned
        return value if ready else np.array(value, dtype, order="C")
    if is_leaf and type(value) in (float, list, tuple, np.float64):
        try:
            value = np.array(value, order="C")
        except ValueError:
            return None
        return value if value.dtype == dtype else None
    return None


def _data_of(value, dtype):
    """The memory of a tensor that is nothing but data."""
    if type(value) is not Tensor or value._requires_grad or value._frame is not None:
        return None
    data = value._data
    well = data is not None and data.dtype == dtype and data.flags.c_contiguous and data.flags.aligned
    return data if well else None
