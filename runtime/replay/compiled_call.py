"""Calling a compiled function whose calls go one way: from the decorator to the replay in native code.

`weft_call_compiled` stands in place of CompiledFunction.__call__ (frontend/compiled.py), which it asks where anything
is not as it was: another way is expected, a call is to be timed, or there are watchers. Where arguments are in
containers or keywords it takes the leaves out, as usual_arguments.py does. Of the subset (docs/native.md).
"""

import ctypes
from collections import namedtuple

import numpy as np

from ...compiler.translate.kinds import I64, Address, Dict, Inline, List, Maybe, Object, ObjectKind, Rows, Struct, Tuple
from ...compiler.translate.language import SLOT, External, address_of, cast, keep, load_at, local_array, native, require
from ..code import translated
from ..code.native_kinds import ArrayObject, call_with
from ..code.packing import Packed
from ..eager.eager_words import new_tuple, next_item, set_tuple_item
from ..programs.program import captures
from ..state.modes import watching
from . import eager_native, native_layout
from . import native as objects
from .frame_usual import NOT_STARTED
from .usual_arguments import AGAIN, LEAF, LISTED, NAMED, parts_of

MOST_PARTS = 64
N_LEFT, EAGERLY, STEADY = range(3)  # the words of a function

# CompiledFunction's own functions, which `install` sets before the code is loaded: a call, and what is done after one
# that has departed.
call_in_python = after_departing = None


class Calls:
    """What native code reads of a compiled function.

    function: the Python function. frame: the UsualFrame that every call is expected to use, or None. words: how many
    calls come before one that is timed; whether they are eager ones; where the frame's Steady is, if there is a frame.
    """

    __slots__ = ("function", "frame", "words")

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made.function = made.frame = None
        made.words = np.zeros(3, np.int64)
        return made

    def number(self, word):
        """One of the words, as something whose `value` is read and set."""
        return ctypes.c_int64.from_buffer(self.words, 8 * word)


CompiledObject = ObjectKind(
    "Compiled", Calls, {name: (f"compiled_{name}", Object) for name in ("function", "frame", "words")}
)


class Part(Struct):
    """A part of the arguments (usual_arguments.py: parts_of)."""

    role: I64
    place: I64
    size: I64
    kind: Object
    keys: Object


class Steady(Struct):
    """call: the frame's function. n_leaves: -1 where the arguments are the leaves."""

    call: Object
    departed: Address
    n_leaves: I64
    parts: Rows(Part)


class Found(Struct):
    """The parts of the arguments of a call."""

    parts: Inline(Address, MOST_PARTS)


class Words(Struct):
    n_left: I64
    eagerly: I64
    steady: Address


call_vector = External("PyObject_VectorcallDict", (Object, Address, I64, Maybe(Dict)), Object, fails="null")


@native(form=SLOT, slow="call_in_python", name="weft_call_compiled")
def call(this: Object, args: Tuple, kwargs: Maybe(Dict)) -> Object:
    compiled = cast(CompiledObject, this)
    words = cast(Words, cast(ArrayObject, compiled.words).data)
    require(words.n_left > 0 and len(cast(List, watching)) == 0)
    function = keep(compiled.function)
    if words.eagerly != 0:
        require(len(cast(List, captures)) == 0)
        words.n_left -= 1
        return call_with(function, args, kwargs)
    frame = keep(compiled.frame)
    require(frame is not None)
    steady = cast(Steady, words.steady)
    leaves = leaves_of(steady, args, kwargs)
    words.n_left -= 1
    given = local_array(Address, 4)
    given[0] = cast(Address, function)
    given[1] = cast(Address, leaves)
    given[2] = cast(Address, args)
    given[3] = cast(Address, None) if kwargs is None else cast(Address, kwargs)
    result = call_vector(steady.call, address_of(given), 4, None)
    if result is NOT_STARTED:
        words.n_left += 1
        require(False)
    if load_at(I64, steady.departed, 0) != 0:
        call_with(after_departing, (this, frame), None)
    return result


@native()
def leaves_of(steady: Steady, args: Tuple, kwargs: Maybe(Dict)) -> Tuple:
    if steady.n_leaves < 0:
        require(kwargs is None or len(kwargs) == 0)
        return args
    memory = local_array(Address, MOST_PARTS)
    found = cast(Found, address_of(memory))
    found.parts[0] = cast(Address, args)
    if kwargs is not None:
        found.parts[1] = cast(Address, kwargs)
    leaves = new_tuple(steady.n_leaves)
    for j in range(len(steady.parts)):
        part = steady.parts[j]
        if j == 1 and kwargs is None:
            require(part.size == 0)
        elif part.role == LEAF:
            set_tuple_item(leaves, part.place, cast(Object, found.parts[j]))
        elif part.role == AGAIN:
            require(cast(Object, found.parts[j]) is cast(Object, found.parts[part.place]))
        else:
            take_apart(part, cast(Object, found.parts[j]), found)
    return leaves


@native(inline=True)
def take_apart(part: Part, x: Object, found: Found):
    """The items of a container into their places."""
    require(type(x) is part.kind)
    if part.role == NAMED:
        take_values(part, cast(Dict, x), found)
    elif part.role == LISTED:
        listed = cast(List, x)
        require(len(listed) == part.size)
        for k in range(part.size):
            found.parts[part.place + k] = cast(Address, listed[k])
    else:
        items = cast(Tuple, x)
        require(len(items) == part.size)
        for k in range(part.size):
            found.parts[part.place + k] = cast(Address, items[k])


@native()
def take_values(part: Part, named: Dict, found: Found):
    require(len(named) == part.size)
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    for k in range(part.size):
        require(next_item(named, address_of(at), address_of(key), address_of(value)) != 0)
        require(cast(Object, key[0]) is cast(Tuple, part.keys)[k])
        found.parts[part.place + k] = value[0]


# --- which frame is expected ------------------------------------------------------------------------------------------
def expect(calls, frame):
    """Every call of these is expected to use this UsualFrame; None: Python is to be asked each time."""
    calls.frame = None
    if frame is not None and frame.native_start is None:
        frame.native_start = _start_of(frame) or False
    if frame is not None and frame.native_start:
        calls.words[STEADY] = frame.native_start.address
        calls.frame = frame


def _start_of(frame):
    """How calls of a UsualFrame begin, for native code; None if they do not begin there."""
    parts = None if frame.structure is None else parts_of(frame.structure, MOST_PARTS)
    if frame._native is None or parts is None and frame.structure is not None:
        return None
    rows = [Part(**dict(zip(("role", "place", "size", "kind", "keys"), part))) for part in parts or ()]
    n_leaves = -1 if parts is None else len(frame.argument_types)
    departed = ctypes.addressof(frame.departed)
    return Packed(Steady(call=vars(frame)["call"], departed=departed, n_leaves=n_leaves, parts=rows))


_found = []  # what stands in place of a class's own __call__


def install(kind, departed):
    """Calls of this class go to native code from now on; `departed` is called with it and its frame. What stands in
    place of its own function; None if there is no such code."""
    global call_in_python, after_departing
    if not _found:
        call_in_python, after_departing = kind.__dict__["__call__"], departed
        layout = eager_native.layout_of_objects()
        _found.append(None if layout is None else _wrapper(kind, layout))
    return _found[0]


def _wrapper(kind, layout):
    places = layout._asdict() | eager_native._places(Calls, Calls.__slots__, "compiled")
    code = translated.load("compiled", [call], namedtuple("CompiledLayout", places)(**places))
    return objects.new_wrapper(kind, native_layout.wrapper_base(), code.address("weft_call_compiled"))
