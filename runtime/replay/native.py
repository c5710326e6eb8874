"""Replaying in native code: the comparisons of a usual call as builtin functions on CPython's objects.

The methods of a UsualFrame are builtins that hold its words (NativeReplay). Calling an op goes to native code too, once
the first such frame is made: `Op.__call__` becomes a slot wrapper (`install`), which looks at the words of the call in
flight in this thread and calls the Python function that was there before if there is none.

Python takes ten times as long. Where objects lie otherwise than we look for them (`layout` is None: another
interpreter, or one without the interpreter lock) or with WEFT_NATIVE_REPLAY=0 the Python methods do the same.
"""

import ctypes
import functools
import os
import sys
from collections import defaultdict

import numpy as np

from ...compiler.later import later
from ...compiler.ops.arithmetic import add
from ..code import kernels
from ..code.lasting import keep_for_ever
from ..eager.update import restore_steps
from ..programs.recording import BACKWARD, GRADIENTS
from ..state.aligned import Memory
from ..state.marks import asked_classes, told_of_calls
from ..state.marks import calls as own_calls
from ..state.modes import frame_hidden, state
from ..state.readers import readers
from ..state.storage import Storage
from ..state.tensor import Tensor
from . import native_words
from .native_layout import NotFound, find_layout, wrapper_base
from .native_records import (
    ProgramWords,
    fill_table,
    fresh_of_span,
    table_of,
    words_of_argument,
    words_of_entry,
    words_of_guard,
    words_of_value,
    words_of_view,
)

_METH_FASTCALL = 0x80

Number = ctypes.c_int64  # one that native code can change


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)
    ]  # fmt: skip


# --- where things are -------------------------------------------------------------------------------------------------
@functools.cache
def layout():
    """The Layout of this interpreter, each offset found by looking for a known value; None if any is not found."""
    if os.environ.get("WEFT_NATIVE_REPLAY") == "0" or sys.implementation.name != "cpython":
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    if sys.version_info >= (3, 15):
        return None  # nobody has looked at it
    try:
        return find_layout()
    except (NotFound, ValueError):
        return None


def native_code_is_used():
    return layout() is not None


# --- binding ----------------------------------------------------------------------------------------------------------
@functools.cache
def _library():
    return kernels.library(key(), text)


@functools.cache
def key():
    """What the code is kept under."""
    return f"replay {layout()}"


def text():
    return _write(layout())


# Imported only where no cache has the code.
_write = later("runtime.replay.native_writing:text")


def address_of(name):
    """Of a C function of the module."""
    return _library().address(f"weft_{name}")


_definitions = {}


def _definition(name):
    """Kept for ever, and one for all: functions read theirs until they are gone. (A cache may keep another one than it
    gave, if two threads ask first.)"""
    found = _definitions.get(name)
    if found is None:
        made = keep_for_ever(_MethodDef(name.encode(), address_of(name), _METH_FASTCALL, None))
        found = _definitions.setdefault(name, made)
    return found


_new_builtin = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def is_asked(tensor):
    """Whether functions ask its class, so that a call goes on otherwise."""
    return type(tensor) in asked_classes


@functools.cache
def _constants():
    t, words = native_words, np.zeros(native_words.N_WORDS, np.uint64)
    fixed = {
        t.STATE: state, t.MODE: type(state).grad_enabled, t.DTYPE: type(state).default_dtype,
        t.NONE: None, t.TRUE: True, t.FALSE: False, t.TUPLE: tuple, t.LIST: list, t.DICT: dict, t.TENSOR: Tensor,
        t.ARRAY: np.ndarray, t.MEMORY: Memory, t.BACKWARD: BACKWARD,
        t.GRADIENTS: GRADIENTS, t.STATES: defaultdict, t.RESTORE_STEPS: restore_steps,
        t.STORAGE: Storage, t.FRESH_KIND: Tensor,
        t.ADD: add, t.NO_ATTRIBUTES: _NO_ATTRIBUTES, t.ASKED: asked_classes, t.READERS: readers,
        t.KINDS: bool, t.KINDS + 1: int, t.KINDS + 2: float,
        **dict(zip((t.DICT_NAME, t.MODE_NAME, t.DTYPE_NAME, t.FRAME_NAME, t.PARAMS_NAME, t.STEP_NAME), _NAMES)),
    }  # fmt: skip
    for k, value in fixed.items():
        words[k] = id(value)
    for k, name in enumerate(t.FUNCTIONS):
        words[t.API + k] = _address(name)
    return words


_NO_ATTRIBUTES = {}
_NAMES = tuple(map(sys.intern, ("__dict__", "grad_enabled", "default_dtype", "frame", "params", "step")))


def _address(name):
    """Where a function of CPython is."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value


# --- calling ops ------------------------------------------------------------------------------------------------------
@functools.cache
def install():
    """The words that native code shares, once calling an op goes through native code."""
    t = native_words
    find = ctypes.PYFUNCTYPE(ctypes.c_void_p)(address_of("shared_words"))
    words = (ctypes.c_size_t * t.N_SHARED).from_address(find())
    words[t.SHARED_API :] = list(map(_address, t.FUNCTIONS))
    words[t.HOOKS_NAME : t.MODES_THREAD] = [*map(id, _MODULE_NAMES), id(dict)]
    words[t.MODES_THREAD] = 2**64 - 1  # no thread's number
    for name in own_calls:
        _call_natively(words, name)
    # weft.nn may be imported only now.
    told_of_calls.append(functools.partial(_call_natively, words))
    return words


def _call_natively(words, name):
    owner, function = own_calls[name]
    # Somebody may have put something else in the way.
    if owner.__dict__["__call__"] is function:
        words[native_words.CALLABLES + native_words.CALLABLE_NAMES.index(name)] = id(function)
        new = new_wrapper(owner, wrapper_base(), address_of(name))
        owner.__call__ = _wrappers.setdefault(name, new)


_MODULE_NAMES = tuple(map(sys.intern, ("_forward_hooks", "_forward_pre_hooks", "forward")))
_wrappers = {}  # name -> what stands in place of that function


def is_called_natively(kind):
    """Whether nobody has put something else in the way of calling modules of this class."""
    return kind.__call__ is _wrappers.get("call_module")


def call_in_python(name, this, *args):
    return own_calls[name][1](this, *args)


new_wrapper = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyDescr_NewWrapper", ctypes.pythonapi)
)


def deactivate():
    """The usual call in flight, if there is one, has departed: what native code is not asked goes the Python way."""
    if layout() is not None:
        install()[native_words.ACTIVE] = 0


class outside_the_call:
    """A `with` block in which ops are none of the call in flight, also for native code: what eager mode has of that
    computes nothing where a call is being replayed."""

    __slots__ = ("hidden", "active")

    def __enter__(self):
        self.hidden, self.active = frame_hidden(), None
        self.hidden.__enter__()
        if layout() is not None:
            shared = install()
            self.active, shared[native_words.ACTIVE] = shared[native_words.ACTIVE], 0

    def __exit__(self, *exception):
        if self.active:
            install()[native_words.ACTIVE] = self.active
        self.hidden.__exit__(*exception)


def _not_run(ended):
    """A segment could not be done natively: the call does it, or departs."""
    return False


class NativeReplay:
    """The words of one UsualFrame, and its methods in native form. Holds all whose addresses the words are."""

    def __init__(self, frame, methods, ends, learn):
        """The Python methods: in the order of native_words.METHODS, those that end a call, one that learns a span."""
        t = native_words
        self.shared = install()
        self.words = words = _constants().copy()
        self.held, self.whole = [methods, ends, learn], None
        self.fill(t.ENTRIES, [words_of_entry(self.held, e) for e in frame.entries], t.ENTRY_WORDS)
        self.entries, self.spans, self.span_tables = self.held[-1], {}, {}
        words[t.N_ENTRIES] = len(frame.entries) - 1
        expected = frame.expectation
        leaves = zip(expected.tensors, expected.arrays, expected.leaves)
        words[t.N_EXPECTED] = self.fill(t.EXPECTED, [(id(x), id(a), id(leaf[0])) for x, a, leaf in leaves], 3)
        records = zip(frame.argument_keys, frame.argument_types, frame.reads_argument)
        arguments = [words_of_argument(self.held, *one, not frame.changes_arguments) for one in records]
        words[t.N_ARGUMENTS] = self.fill(t.ARGUMENTS, arguments, t.ARGUMENT_WORDS)
        words[t.N_OWNERS] = self.fill(t.OWNERS, [(owner,) for owner in frame.owned], 1)
        words[t.MODE_AT_START], words[t.DTYPE_AT_START] = map(id, frame.modes)
        words[t.N_RESULTS] = self.fill(t.RESULTS, frame.results, 2)
        self._take_program(frame)
        words[t.TENSORS], words[t.NUMBERS], words[t.FRAME] = id(frame.tensors), id(frame.numbers), id(frame)
        words[t.CHANGED_GRADIENTS], words[t.LEARN] = id(frame.changed_gradients), id(learn)
        for first, functions in ((t.SLOW, methods), (t.CLOSE, ends[:5])):
            words[first : first + len(functions)] = list(map(id, functions))
        words[t.N_VIEWS] = self.fill(t.VIEWS, [(number,) for number in frame.views], 1)
        self.fill_changes(self.held)
        words[t.N_FRESH_NUMBERS] = self.fill(t.FRESH_NUMBERS, [(number,) for number in frame.fresh], 1)
        words[t.COPIES], words[t.MAY_SHARE] = id(frame.copies), not frame.changes_arguments
        words[t.LAST_COPIES], words[t.KEEPS_COPIES] = id(frame.last_copies), frame.keeps_copies
        words[t.N_TENSORS], words[t.REMEMBERED] = frame.n_tensors, id(frame.remembered)
        words[t.ENDED], words[t.FINISHED_CALL] = id(frame.ended), id(frame.kind_of_finished)
        words[t.ENDED_CALL] = id(frame.kind_of_ended)
        words[t.BEGIN_END : t.BEGIN_END + 2] = id(ends[5]) if frame.slower_for or frame.outside else 0, id(ends[6])
        words[t.ACCUMULATE_REST], words[t.IS_FINISHED] = id(ends[7]), not frame.only_begins
        words[t.RECORDING_CALLS] = frame.recording.counter.buffer_info()[0]
        self.position = ctypes.c_int64.from_buffer(words)
        shared = t.BUSY, t.DEPARTED, t.WORKING, t.N_FLUSHED, t.IS_FINISHED
        numbers = [ctypes.c_int64.from_buffer(words, 8 * k) for k in shared]
        self.busy, self.departed, self.working, self.n_flushed, self.is_finished = numbers
        self.functions = [_new_builtin(ctypes.byref(_definition(name)), words, None) for name in t.METHODS]

    def fill_changes(self, held):
        """Say where the records of changes in place are, the last one first."""
        t = native_words
        changes = [(entry[t.CHANGE],) for entry in self.entries[::-1] if entry[t.CHANGE]]
        self.words[t.N_CHANGES] = fill_table(held, self.words, t.CHANGES, changes, 1)

    def _take_program(self, frame):
        t, words = native_words, self.words
        words[t.N_NUMBERS], words[t.NEW_ARRAY] = frame.n_numbers, _new_array_address()
        words[t.ARRAYS] = id(frame.arrays)
        made = [vid for segment in frame.segments for vid in segment.made]
        program_words = ProgramWords(frame, self.held, made)
        program_words.fill(words, frame.program, frame.needed.live)
        words[t.OUTPUTS] = 0 if frame.outside is None else id(frame.outputs)
        segments = [(s.position, self._segment(frame, s, program_words)) for s in frame.segments]
        words[t.N_SEGMENTS] = self.fill(t.SEGMENTS, segments, 2)
        rows = [words_of_value(self.held, vid, frame.metas[vid]) for vid in made]
        words[t.N_MADE] = self.fill(t.MADE, rows, t.MADE_WORDS)
        self.fill_given(frame, self.held)

    def fill_given(self, frame, held):
        """Say how the views that are results lie."""
        t = native_words
        rows = _views(held, frame, frame.given_layouts or (), ())
        self.words[t.N_GIVEN] = fill_table(held, self.words, t.GIVEN, rows, t.GIVEN_WORDS)

    def _segment(self, frame, segment, program_words):
        """Where the words of a read in the middle are; 0 if Python does it."""
        if not segment.is_native:
            return 0
        t, words = native_words, self.words.copy()
        segment.words = words
        self.held.append(words)
        for word in (t.N_ENTRIES, t.N_SEGMENTS):
            words[word] = 0
        words[t.N_RESULTS] = fill_table(self.held, words, t.RESULTS, segment.results(), t.RESULT_WORDS)
        words[t.TENSORS], words[t.NUMBERS], words[t.FRAME] = id(frame.tensors), id(frame.numbers), id(frame)
        words[t.N_NUMBERS], words[t.IN_THE_MIDDLE] = segment.n_numbers, 1
        words[t.SLOW + t.METHODS.index("run")] = id(_not_run)
        rows = _views(self.held, frame, segment.layouts, segment.live)
        words[t.N_GIVEN] = fill_table(self.held, words, t.GIVEN, rows, t.GIVEN_WORDS)
        words[t.PROGRAM] = words[t.OUTPUTS] = 0
        program_words.fill(words, segment.program, segment.live)
        return id(words)

    def make_ends_with(self, end):
        """From now on the functions of this object make what stands for the call, and open it."""
        self.held.append(end)
        self.words[native_words.MAKE_END : native_words.MAKE_END + 2] = list(map(id, end.functions))

    def take_whole(self, whole):
        """From now on calls like this begin with asking a WholeCall for their results; None: with their Python."""
        self.words[native_words.WHOLE], self.whole = 0, whole
        self.words[native_words.WHOLE] = 0 if whole is None else id(whole.function)

    # --- spans (frame_spans.py) -------------------------------------------------------------------------------------
    def add_call(self, start, key, enabled, guards, appended, numbers, end, result, roots, fresh):
        """From now on a call of this object at this position, of these numbers, leads to `end` if the guards hold.
        fresh: as fresh_of_span has it; None stands for its number."""
        held = [appended]
        codes = table_of(held, [(native_words.FRESH_CODE if n is None else n,) for n in numbers], 1)
        rest = id(enabled), end, result, id(appended), *table_of(held, roots, 2), 0, *fresh_of_span(held, fresh)
        self._add_span(start, key, held, guards, codes, rest)

    def add_step(self, start, end, optimizer, guards, updates):
        """From now on a step of the optimizer at this position makes these updates if the guards hold. updates: (what
        `update_again` was given but for the rule and its flags, how many entries after the first) each."""
        held = [updates]
        rows = [(*map(id, update), place) for update, place in updates]
        table = table_of(held, rows, native_words.UPDATE_WORDS)
        self._add_span(start, optimizer, held, guards, table, (0, end))

    def refuse_span(self, start, key):
        """From now on a call of this object at this position is Python's business."""
        self._add_span(start, key, [], [], (0, 0), (0, -1))

    def uses(self, start, key):
        """How often the span of this object at this position was taken."""
        spans = self.spans.get(start)
        return 0 if spans is None or id(key) not in spans else int(self._row_of(start, key)[native_words.USES])

    def _row_of(self, start, key):
        place = list(self.spans[start]).index(id(key))
        return self.span_tables[start][0][place]

    def _add_span(self, start, key, held, guards, codes, rest):
        """In place of the one that the key had here."""
        t = native_words
        rows = [words_of_guard(held, *guard) for guard in guards]
        row = (id(key), *codes, *table_of(held, rows, t.GUARD_WORDS), *rest)
        self._set_spans(start, self.spans.get(start, {}) | {id(key): (row, [key, guards, *held])})

    def keep_used(self, start):
        """Forget the spans of a position that were never taken. Returns the ids of the keys of those that stay."""
        spans = self.spans.get(start, {})
        self._set_spans(start, {key: spans[key] for key in spans if self.uses(start, spans[key][1][0])})
        return self.spans[start].keys()

    def _set_spans(self, start, spans):
        """What native code can see is held at every moment, because an exception may come at any."""
        t, tables, entry = native_words, [], self.entries[start]
        address, n = table_of(tables, [row for row, _ in spans.values()], t.SPAN_WORDS)
        self.held_before = self.spans.get(start), self.span_tables.get(start)
        entry[t.N_SPANS] = 0
        self.spans[start], self.span_tables[start] = spans, tables
        entry[t.SPANS] = address
        entry[t.N_SPANS] = n
        self.held_before = None

    def release(self):
        self.busy.value = 0

    def fill(self, word, rows, width):
        """The rows as a table whose address is put into a word. Returns how many there are."""
        return fill_table(self.held, self.words, word, rows, width)


def _views(held, frame, layouts, made):
    return [words_of_view(held, layout, frame.metas[layout.number], made) for layout in layouts]


@functools.cache
def _new_array_address():
    """NumPy's table of functions for extensions keeps PyArray_NewFromDescr in its place 94, in every version."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    core = getattr(np, "_core", None) or np.core  # NumPy 1 has no _core
    return (ctypes.c_size_t * 95).from_address(get(core.multiarray._ARRAY_API, None))[94]


def builtin(definition, array):
    """A builtin function that has the words of an array for `self`."""
    return _new_builtin(ctypes.byref(definition), array, None)


@functools.cache
def definition_of(name, address):
    """Of builtin methods by the address of their code."""
    return keep_for_ever(_MethodDef(name.encode(), address, _METH_FASTCALL, None))


def new_method(kind, name, address, doc):
    """A method of a class whose C function is given its arguments as they are called with."""
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL | _METH_KEYWORDS, (doc or "").encode())
    return _new_method(kind, ctypes.byref(keep_for_ever(definition)))


_METH_KEYWORDS = 2
_new_method = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.POINTER(_MethodDef))(
    ("PyDescr_NewMethod", ctypes.pythonapi)
)
