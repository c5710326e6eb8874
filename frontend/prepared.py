"""Calls on arrays that go to their program at once: of a function that is known to do the same ops again.

An ordinary call of a function on arrays copies them into tensors and runs the function's Python, which compares every
op with the one before. If its code is proved to do nothing but ops (`pure_code.py`), and all that it reads outside is
what it was, then the program of the last call computes the next one too, and reads the arrays where they are.

    PreparedCall   arguments, reads ... compared        own_run   the program on these arrays -> new outputs

The program was made for an ordinary call, so results have the same bits. A call is *looked at* before one like it is
prepared: it must have been one program, drawn no random number, and its Python must not have read the memory of any
tensor, as `float(c)` of a tensor outside does, or `x.item()`.
"""

import sys
from operator import attrgetter

import numpy as np

from .pure_code import Impure, reads_of
from .runtime.programs.own_run import are_watched, own_run
from .runtime.replay import native
from .runtime.replay.frame_usual import UsualFrame
from .runtime.state.attributes import refusal, same
from .runtime.state.exposure import is_exposed
from .runtime.state.modes import autocasting, state, watching
from .runtime.state.random import default_generator
from .runtime.state.tensor import Tensor

_ARRAY, _TENSOR, _OTHER = range(3)
_FIRST_WAIT, _LONGEST_WAIT = 6, 4096
_MOST_CALLS, _MANY_RUNS = 8, 100
_ndarray, _autograd = np.ndarray, attrgetter("_requires_grad", "_node", "_frame")


class Prepared:
    """The prepared calls of one function of arrays, those tried first in front. `reason`: why there are none, once that
    is known."""

    def __init__(self, function):
        self._function, self.calls, self.reason = function, (), None
        self._waits = self._next_wait = _FIRST_WAIT  # how many ordinary calls come before one is looked at

    def after(self, key, compiled, values, tensors):
        """compiled(*tensors), the ordinary call; after some of them one like this is prepared."""
        self._waits -= 1
        if self._waits > 0 or state.frame is not None or state.looks_on is not None:
            return compiled(*tensors)
        # What was of use may be prepared again soon; what changes in every few calls is not worth it.
        was_used = any(call.n_runs() > _MANY_RUNS for call in self.calls)
        self._waits = self._next_wait = _FIRST_WAIT if was_used else min(2 * self._next_wait, _LONGEST_WAIT)
        with Look() as look:
            results = compiled(*tensors)
        try:
            call = prepared(key, self._function, look, values, tensors)
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


class Look:
    """What is seen of one call, from within."""

    def __init__(self):
        self.frame = self.numbers = self.results = None
        self.outside = {}  # number -> tensor, of those from outside that are no arguments
        self.read = False
        self._draws = _draws()

    def __enter__(self):
        state.looks_on = self
        return self

    def __exit__(self, *exception):
        state.looks_on = None

    def __call__(self, tensor):
        self.read = True

    def ended(self, results):
        """The function, which is called in a frame, is about to return these."""
        frame = state.frame
        self.frame = frame
        if isinstance(frame, UsualFrame) and type(results) is tuple and all(isinstance(r, Tensor) for r in results):
            self.numbers, self.results = list(frame.numbers), [r._vid if r._frame is frame else None for r in results]
            self.outside = dict(zip(frame.expectation.numbers, frame.expectation.tensors))
            self.outside |= {vid: frame.tensors[vid] for vid in frame.fresh}

    def reason(self):
        """Why calls like this one cannot be prepared, or None: after the call."""
        frame = self.frame
        if not isinstance(frame, UsualFrame) or frame.departed.value or self.results is None:
            return "calls are not replayed"
        if frame.segments or frame.eager_ops or frame.program is None:
            return "a call is not one program"
        if self.read:
            return "its Python reads values of a tensor"
        if self._draws != _draws():
            return "it draws random numbers"
        if frame.needed.views or frame.needed.commits or not set(self.results) <= {*frame.needed.live}:
            return "it changes a tensor, or a result is one that was there before"
        return None


def _draws():
    return default_generator.initial_seed(), default_generator._calls


class PreparedCall:
    """Calls with arguments like those of one that was looked at. `stale`: what the function reads has changed."""

    def __init__(self, key, reads, look, values, tensors):
        """key: what else has to be the same. values: the arguments as they were given. tensors: as it got them."""
        self.key, self._reads, self.stale = key, reads, False
        self._default_dtype = state.default_dtype
        self._version = native.type_version(Tensor)
        self._arguments = [_argument(value, given) for value, given in zip(values, tensors)]
        frame, program = look.frame, look.frame.program
        outside = look.outside
        given = [k for k, x in enumerate(tensors) if isinstance(x, Tensor)]  # by number, as the call has met them
        known = {k: outside[vid]._data for k, vid in enumerate(program.inputs) if vid in outside}
        own = [k for k in range(len(program.inputs)) if k not in known]
        order = [given.index(given[program.inputs[k]]) for k in own]
        self._pick = order if order != list(range(len(given))) else None
        self._run = own_run(program, look.numbers, known, own)
        self._outside = list(outside.values())
        self._memory = [(x._data, (x._requires_grad, None, None)) for x in self._outside]
        self._counter, self._count = program.counter, program.calls
        live = frame.needed.live
        places = [live.index(vid) for vid in look.results]
        self._places = None if places == list(range(len(program.outputs))) else places

    def results(self, key, values):
        """Arrays that nobody else holds, or None if this is another call."""
        if key != self.key or len(values) != len(self._arguments) or state.default_dtype is not self._default_dtype:
            return None
        arrays = []
        for value, (kind, dtype, shape) in zip(values, self._arguments):
            if kind is _ARRAY:
                if type(value) is not _ndarray or value.dtype is not dtype or not value.flags.carray:
                    value = _converted(value, dtype)
                    if value is None:
                        return None
                if value.shape != shape:
                    return None
                arrays.append(value)
            elif kind is _OTHER:
                if not same(value, shape):
                    return None
            else:
                value = _data_of(value, dtype)
                if value is None or value.shape != shape:
                    return None
                arrays.append(value)
        if not self._may_run():
            return None
        if self._pick is not None:
            arrays = [arrays[k] for k in self._pick]
        outputs = self._run(arrays)
        if outputs is None or self._places is None:
            return outputs
        found = [outputs[k] for k in self._places]
        return [x if k == self._places.index(at) else x.copy() for k, (x, at) in enumerate(zip(found, self._places))]

    def n_runs(self):
        """How often its program has run since."""
        return self._counter[0] - self._count

    def _may_run(self):
        if autocasting or watching or are_watched() or sys.gettrace() is not None:
            return False
        same = self._reads.hold() and native.type_version(Tensor) == self._version
        self.stale = not (same and all(map(_is_unchanged, self._outside, self._memory)))
        return not self.stale


def prepared(key, function, look, values, tensors):
    """A PreparedCall. Raises Impure if there can be none."""
    if native.layout() is None or not native.type_version(Tensor):
        raise Impure("native code is not used")
    reads, reason = reads_of(function), look.reason()
    if reason is not None:
        raise Impure(reason)
    outside, tensors_read = {id(x) for x in reads.tensors}, look.outside.values()
    for value, given in zip(values, tensors):
        if not isinstance(given, Tensor) and refusal({"an argument": value}) is not None:
            raise Impure(f"an argument is a {type(value).__name__}")
        if isinstance(value, Tensor) and (value._requires_grad or value._data is None):
            raise Impure("an argument is a tensor that requires gradients")
        if isinstance(given, Tensor) and not given._data.flags.carray:
            raise Impure("an argument is an array with gaps")
    if not all(id(x) in outside and _is_unchanged(x, (x._data, (x._requires_grad, None, None))) for x in tensors_read):
        raise Impure("it reads a tensor that is found nowhere in its code")
    return PreparedCall(key, reads, look, values, tensors)


def _is_unchanged(tensor, memory):
    """Whether it still is the leaf it was, on the same array, which nobody sees but tensors."""
    array, autograd = memory
    return tensor._data is array and _autograd(tensor) == autograd and not is_exposed(tensor)


def _argument(value, given):
    if not isinstance(given, Tensor):
        return _OTHER, None, value
    return _TENSOR if isinstance(value, Tensor) else _ARRAY, given._data.dtype, given._data.shape


def _converted(value, dtype):
    """An array of this type for an argument that may be none, as the ordinary call would convert it; else None."""
    if type(value) is _ndarray and value.dtype == dtype:
        return np.array(value, order="C")
    if type(value) in (float, list, tuple, np.float64):
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
    return data if data is not None and data.dtype == dtype and data.flags.carray else None
