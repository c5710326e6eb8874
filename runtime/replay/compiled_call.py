"""Calling a compiled function: from the decorator to the replay in native code.

`weft_call_compiled` stands in place of CompiledFunction.__call__ (frontend/compiled.py), which it asks where no way
that calls went lately begins like this one, a call is to be timed, or there are watchers. In a replayed call of another
function it goes to the Python function at once. Where arguments are in containers or keywords it takes the leaves out,
as usual_arguments.py does. Of the subset (docs/native.md).

While calls run eagerly, `weft_call_eagerly` is what the interpreter asks first (runtime/code/vector_calls.py): it goes
on to the Python function with the arguments as they lie, and to `weft_call_compiled` where that is not all.

    ways      0  1  0  0  1  0  ?       0 after 1, 0, 0 comes 1: what the last calls were tells which way is tried first
    f(x, training=False)                and so do objects among the arguments that are no tensors, and no containers

A call that goes another way than expected hands over what it has done so far (usual_siblings.py), which costs more than
most small calls. What was done after calls like the last three, with arguments like these, is found in a table by a
hash. Where that was wrong, so is what was done after so many calls that went the last one's way: every tenth may go
another. Who is wrong there is slower, and nothing else.
"""

import ctypes
import functools
from collections import namedtuple
from types import SimpleNamespace

import numpy as np

from ...compiler.translate.kinds import (
    I64,
    Address,
    Bool,
    Dict,
    Function,
    Inline,
    List,
    Maybe,
    Object,
    ObjectKind,
    Struct,
    Tuple,
)
from ...compiler.translate.language import SLOT, External, address_of, cast, keep, load_at, local_array, native, require
from ..code import translated
from ..code.native_kinds import ArrayObject, call_with, get_attribute, thread
from ..code.packing import Packed
from ..code.vector_calls import CALL_SLOT, PLACE, VectorCalled, ask_first
from ..eager.eager_words import next_item
from ..programs.program import captures
from ..state.modes import state, watching
from ..state.tensor import Tensor
from . import native as objects
from . import native_layout, native_words
from .frame_usual import NOT_STARTED
from .native_leaves import AS_GIVEN, MOST_PARTS, UNKNOWN, Part, Steady, leaves_of
from .object_layout import layout_of_objects, places_of
from .usual_arguments import parts_of

MOST_WAYS, N_TURNS = 63, 640
N_LEFT, EAGERLY, N_WAYS, LAST, HISTORY = range(5)  # the words of a function
WAYS = 8
TURNS = WAYS + MOST_WAYS
# What a hash is of: arguments and last calls, either alone, both and how many calls went the last one's way. Each is
# where its part of the table begins.
BY_BOTH, BY_FLAGS, BY_HISTORY, BY_RUN = 0, 256, 384, 512
_LAST_THREE, _LONGEST_RUN = (1 << 18) - 1, 4095
_MIXING = 2654435761
MOST_GIVEN = (1 << 63) - 1  # what the number of arguments is at most; the bit above says something else of them
_HASH_MASK = (1 << 40) - 1


def _not_set(*_):
    raise AssertionError("the code is loaded before its functions are known")


# CompiledFunction's own functions, which `install` sets before the code is loaded: a call, and what is done after one
# that has departed. It may be translated before, so these are functions already.
call_in_python = after_departing = _not_set


class Calls(VectorCalled):
    """What native code reads of a compiled function.

    function: the Python function. _ways: the UsualFrames that calls have used, at most MOST_WAYS. _words: see Words.
    """

    __slots__ = ("function", "_ways", "_words")

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made.function, made._ways = None, []
        made._words = np.zeros(TURNS + N_TURNS, np.int64)
        return made

    def _number(self, word):
        """One of the words, as something whose `value` is read and set."""
        return ctypes.c_int64.from_buffer(self._words, 8 * word)

    def _expected(self, args, kwargs):
        """The UsualFrame that a call is expected to use; None if nothing is known."""
        if not self._ways:
            return None
        k = expected_way(self._turns(), _flags_in_python(args, kwargs), int(self._words[HISTORY]))
        return self._ways[k] if k < len(self._ways) else None

    def _took(self, args, kwargs, frame):
        """A call that did not begin in native code has ended in this UsualFrame; None: in none."""
        k, turns = self._number_of(frame), self._turns()
        note(turns, _flags_in_python(args, kwargs), turns.history, k)
        self._words[HISTORY], self._words[LAST] = turns.history, turns.last

    def _turns(self):
        """What functions that know Words as a structure read."""
        words = self._words
        return SimpleNamespace(turns=words[TURNS:], history=int(words[HISTORY]), last=int(words[LAST]))

    def _number_of(self, frame):
        """Of a way, counted from 1; of one that is not known from now on. 0 of None."""
        if frame is None:
            return 0
        for k, way in enumerate(self._ways):
            if way is frame:
                return k + 1
        self._forget_released()
        self._set_ways([*(self._ways if len(self._ways) < MOST_WAYS else ()), frame])
        return len(self._ways)

    def _forget_released(self):
        """Of recordings that made room for others nothing may be used again, nor what a recording has given up."""
        kept = [way for way in self._ways if any(way is one for one in way.recording.replays)]
        if len(kept) < len(self._ways):
            self._set_ways(kept)
            self._words[HISTORY:WAYS] = self._words[TURNS:] = 0

    def _set_ways(self, ways):
        # What native code can see is held at every moment.
        self._words[N_WAYS], before, self._ways = 0, self._ways, ways
        for k, way in enumerate(ways):
            if way.native_start is None:
                way.native_start = _start_of(way)
            self._words[WAYS + k] = (way.native_start or _never()).address
        self._words[N_WAYS] = len(ways)
        del before


CompiledObject = ObjectKind(
    "Compiled",
    Calls,
    {name: (f"compiled_{name}", Object) for name in Calls.__slots__}
    | {"asked_first": ("compiled_asked_first", Address)},
)


class Words(Struct):
    """n_left: how many calls come before one that is timed. eagerly: whether they are eager ones. last: which way the
    last call took, counted from 1; history: it and those before, and how many of them in a row took it. ways: where
    each frame's Steady is. turns: by hash, which way was taken, behind the rest of the hash."""

    n_left: I64
    eagerly: I64
    n_ways: I64
    last: I64
    history: I64
    unused: Inline(I64, WAYS - 5)
    ways: Inline(Address, MOST_WAYS)
    turns: Inline(I64, N_TURNS)


class InFlight(Struct):
    """words: where it says whether a replayed call of any thread is in flight (native_words.py: ACTIVE). here: whether
    one is in this thread, and nothing is computed outside of it. call_slot: what the class has there while calls go to
    `weft_call_compiled`. asked_first: the address of `weft_call_eagerly`, 0 if nothing is asked before the slot."""

    words: Address
    here: Function((Address,), I64)
    call_slot: I64
    asked_first: Address


IN_FLIGHT = InFlight()
call_vector = External("PyObject_VectorcallDict", (Object, Address, I64, Maybe(Dict)), Object, fails="null")
call_as_given = External("PyObject_Vectorcall", (Object, Address, I64, Maybe(Tuple)), Object, fails="null")
call_the_slot = External("_PyObject_MakeTpCall", (Address, Object, Address, I64, Maybe(Tuple)), Object, fails="null")


as_bits = External("PyLong_AsUnsignedLongLongMask", (Object,), I64, quiet=True, python=int)


@native(form=SLOT, slow="call_in_python", name="weft_call_compiled")
def call(this: Object, args: Tuple, kwargs: Maybe(Dict)) -> Object:
    compiled = cast(CompiledObject, this)
    words = cast(Words, cast(ArrayObject, compiled._words).data)
    require(len(cast(List, watching)) == 0)
    function = keep(compiled.function)
    if load_at(I64, IN_FLIGHT.words, 0) != 0 and is_in_a_call():
        # Of another compiled call this one is a part: it is neither timed nor counted.
        return call_with(function, args, kwargs)
    require(words.n_left > 0)
    if words.eagerly != 0:
        require(len(cast(List, captures)) == 0)
        words.n_left -= 1
        compiled.asked_first = IN_FLIGHT.asked_first
        return call_with(function, args, kwargs)
    require(words.n_ways > 0)
    flags = flags_of(args, kwargs)
    history = words.history
    k = expected_way(words, flags, history)
    given = local_array(Address, 4)
    given[0] = cast(Address, function)
    given[2] = cast(Address, args)
    given[3] = cast(Address, None) if kwargs is None else cast(Address, kwargs)
    words.n_left -= 1
    for _ in range(words.n_ways):
        if k < words.n_ways:
            steady = cast(Steady, words.ways[k])
            frame = keep(cast(List, compiled._ways)[k])
            leaves = leaves_of(steady, args, kwargs)
            if leaves is not None:
                given[1] = cast(Address, leaves)
                result = call_vector(steady.call, address_of(given), 4, None)
                if result is not NOT_STARTED:
                    k += 1
                    if load_at(I64, steady.departed, 0) != 0:
                        k = as_bits(call_with(after_departing, (this, frame, leaves), None))
                    note(words, flags, history, k)
                    return result
        k += 1
        if k >= words.n_ways:
            k = 0
    words.n_left += 1
    require(False)


@native(name="weft_call_eagerly")
def call_eagerly(this: Object, given: Address, n: I64, names: Maybe(Tuple)) -> Object:
    """A call with n arguments at `given`, of which some have names; what CPython adds to n says how to count them."""
    compiled = cast(CompiledObject, this)
    words = cast(Words, cast(ArrayObject, compiled._words).data)
    if (
        words.eagerly == 0
        or words.n_left <= 0
        or len(cast(List, watching)) != 0
        or len(cast(List, captures)) != 0
        or load_at(I64, IN_FLIGHT.words, 0) != 0
        or load_at(I64, cast(Address, type(this)), CALL_SLOT) != IN_FLIGHT.call_slot
    ):
        compiled.asked_first = None
        return call_the_slot(thread(), this, given, n & MOST_GIVEN, names)
    words.n_left -= 1
    return call_as_given(keep(compiled.function), given, n, names)


@native(inline=True)
def is_in_a_call() -> Bool:
    return IN_FLIGHT.here(IN_FLIGHT.words) != 0 or get_attribute(state, "frame") is not None


# --- which way is expected --------------------------------------------------------------------------------------------
@native(inline=True)
def place_of(h: I64, part: I64) -> I64:
    mixed = ((h & 0x7FFFFFFF) * _MIXING ^ h) >> 13
    return part + (mixed & (255 if part == BY_BOTH else 127))


@native(inline=True)
def tag_of(h: I64) -> I64:
    return (h * 7 + 1) & _HASH_MASK


@native(inline=True)
def history_after(history: I64, k: I64) -> I64:
    """Of the last three calls, and above them of how many have taken the last one's way."""
    last_three = (history << 6 | k) & _LAST_THREE
    if history & 63 != k:
        return last_three
    return min((history >> 18) + 1, _LONGEST_RUN) << 18 | last_three


@native()
def flags_of(args: Tuple, kwargs: Maybe(Dict)) -> I64:
    h = 0
    for k in range(len(args)):
        h = (h * 31 + flag_of(args[k])) & _HASH_MASK
    if kwargs is not None:
        at = local_array(I64, 1)
        key = local_array(Address, 1)
        value = local_array(Address, 1)
        for _ in range(len(kwargs)):
            if next_item(kwargs, address_of(at), address_of(key), address_of(value)) != 0:
                h = (h * 31 + (id(cast(Object, key[0])) >> 4) + flag_of(cast(Object, value[0]))) & _HASH_MASK
    return h


def _flags_in_python(args, kwargs):
    h = 0
    for key, x in (*((0, x) for x in args), *((id(key) >> 4, kwargs[key]) for key in kwargs)):
        h = (h * 31 + key + flag_of(x)) & _HASH_MASK
    return h


@native()
def flag_of(x: Object) -> I64:
    """What tells an argument from others that may make a call go another way: which object it is, unless there is
    another one in each call."""
    kind = type(x)
    if kind is Tensor or kind is float or kind is list or kind is tuple or kind is dict or kind is np.ndarray:
        return 0
    if kind is int:
        # Large ones are taken for counts, which come once.
        bits = as_bits(x)
        return bits + 17 if bits + 16 >= 0 and bits < 64 else 1
    return id(x) >> 4


@native(inline=True)
def run_of(flags: I64, history: I64) -> I64:
    return (flags * 262147 + (history & _LAST_THREE) + (history >> 18) * 7919) & _HASH_MASK


@native()
def expected_way(words: Words, flags: I64, history: I64) -> I64:
    run = run_of(flags, history)
    found = words.turns[place_of(run, BY_RUN)]
    if found >> 8 == tag_of(run) and found & 192 != 0:
        return max((found & 63) - 1, 0)
    return expected_shortly(words, flags, history & _LAST_THREE)


@native()
def expected_shortly(words: Words, flags: I64, history: I64) -> I64:
    """What the last three calls tell."""
    both = (flags * 262147 + history) & _HASH_MASK
    found = words.turns[place_of(both, BY_BOTH)]
    if found >> 6 == tag_of(both):
        return max((found & 63) - 1, 0)
    found = words.turns[place_of(flags, BY_FLAGS)]
    if flags != 0 and found >> 6 == tag_of(flags):
        return max((found & 63) - 1, 0)
    found = words.turns[place_of(history, BY_HISTORY)]
    if found >> 6 == tag_of(history):
        return max((found & 63) - 1, 0)
    return max(words.last - 1, 0)


@native()
def note(words: Words, flags: I64, history: I64, k: I64):
    last_three = history & _LAST_THREE
    both = (flags * 262147 + last_three) & _HASH_MASK
    if k > 0:
        note_run(words, flags, history, k)
        words.turns[place_of(both, BY_BOTH)] = tag_of(both) << 6 | k
        words.turns[place_of(flags, BY_FLAGS)] = tag_of(flags) << 6 | k
        words.turns[place_of(last_three, BY_HISTORY)] = tag_of(last_three) << 6 | k
    words.history = history_after(history, k)
    words.last = k


@native()
def note_run(words: Words, flags: I64, history: I64, k: I64):
    """It counts once it has been so twice in a row, of which one bit tells."""
    run = run_of(flags, history)
    place = place_of(run, BY_RUN)
    found = words.turns[place]
    if found >> 8 == tag_of(run):
        words.turns[place] = tag_of(run) << 8 | k | (64 if found & 63 == k else 0)
    elif expected_shortly(words, flags, history & _LAST_THREE) != k - 1:
        words.turns[place] = tag_of(run) << 8 | k


# --- installing -------------------------------------------------------------------------------------------------------
def _start_of(frame):
    """How calls of a UsualFrame begin, for native code; None if there is none."""
    if frame._native is None:
        return None
    parts = None if frame.structure is None else parts_of(frame.structure, MOST_PARTS)
    rows = [Part(**dict(zip(("role", "place", "size", "kind", "keys"), part))) for part in parts or ()]
    n_leaves = len(frame.argument_types) if parts else AS_GIVEN if frame.structure is None else UNKNOWN
    departed = ctypes.addressof(frame.departed)
    return Packed(Steady(call=vars(frame)["call"], departed=departed, n_leaves=n_leaves, parts=rows))


@functools.cache
def _never():
    """Of a frame that no native code begins with."""
    return Packed(Steady(call=None, departed=0, n_leaves=UNKNOWN, parts=[]))


_found = []  # what stands in place of a class's own __call__


def install(kind, departed):
    """Calls of this class go to native code from now on; `departed` is called with it, its frame and the leaves of the
    arguments. What stands in
    place of its own function; None if there is no such code."""
    global call_in_python, after_departing
    if not _found:
        call_in_python, after_departing = kind.__dict__["__call__"], departed
        layout = layout_of_objects()
        if layout is None:
            return None
        _found.append(_wrapper(kind, layout))
    return _found[0]


# CPython 3.10 has no function of its own that calls with arguments as they lie.
_HAS_VECTORS = hasattr(ctypes.pythonapi, call_as_given.name)


def part(layout):
    """What is translated: its name, functions and layout."""
    places = layout._asdict() | places_of(Calls, Calls.__slots__, "compiled")
    places["compiled_asked_first"] = PLACE
    functions = [call, call_eagerly] if _HAS_VECTORS else [call]
    return "compiled", functions, namedtuple("CompiledLayout", places)(**places)


def _wrapper(kind, layout):
    code = translated.load(*part(layout))
    call_slot = code.address("weft_call_compiled")
    words = (ctypes.c_int64 * 4).from_address(code.struct_address(f"{InFlight.__module__}:IN_FLIGHT"))
    words[:2] = [ctypes.addressof(objects.install()) + 8 * native_words.ACTIVE, objects.address_of("call_in_flight")]
    if _HAS_VECTORS and ask_first(kind):
        words[2:] = [call_slot, code.address("weft_call_eagerly")]
    return objects.new_wrapper(kind, native_layout.wrapper_base(), call_slot)
