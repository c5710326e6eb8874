"""The IR text of what a usual call does with Python objects: native.py binds it, frame_usual.py says what it means.

Each function is a builtin method of CPython (METH_FASTCALL) whose `self` is a NumPy array of words:

    PyObject *weft_apply(PyObject *self, PyObject **args, Py_ssize_t n)

or what a class has in its slot tp_call, and finds the words of the call in flight through `weft_shared`:

    PyObject *weft_call_op(PyObject *self, PyObject *args, PyObject *kwargs)

It does the whole thing or nothing: where a comparison fails it calls the Python function that does the same, with the
same arguments. References are counted as CPython's headers do it. What all functions are written with is here;
native.py writes them.
"""

import sys
from functools import partial

from ...compiler.emit.builder import I32, I64, PTR, Builder, Reg
from ..programs.places import STRIDED
from .native_words import (
    ACTIVE,
    API,
    CALLABLE_NAMES,
    CALLABLES,
    DICT_NAME,
    ENTRIES,
    ENTRY_WORDS,
    FRAME,
    FRAME_NAME,
    FRESH_CODE,
    FUNCTIONS,
    GRAD_ENABLED,
    IS_ENDED,
    KINDS,
    KNOWN_DICT,
    KNOWN_FRAME,
    KNOWN_MODES,
    KNOWN_VERSION,
    METHODS,
    MODE_NAME,
    MODES,
    MODES_THREAD,
    N_SHARED,
    NONE,
    SHARED,
    SHARED_API,
    SLOW,
    STATE,
    TENSOR,
    TENSORS,
    THREAD,
    THREAD_MODES,
    TRUE,
    WORKING,
    K,
)

# Up to Python 3.11 making an object may start the garbage collector at once, whose callbacks and finalizers may do
# anything with a call whose books are half written; from 3.12 on it waits until Python runs again.
COLLECTS_AT_ONCE = sys.version_info < (3, 12)
# What references are counted in.
COUNT = I64 if sys.version_info < (3, 12) else I32

NULL = Reg("null", PTR)


class Function:
    """A function while it is written. Its subclasses say how it is called, and where `words` is."""

    def __init__(self, module, name, layout, arguments):
        self.b = Builder(module, f"weft_{name}", arguments, result="ptr")
        self.name, self.layout = name, layout
        self.slow = self.b.label("slow")

    def word(self, k, type=PTR):
        return self.load(self.words, 8 * k, type)

    def load(self, pointer, offset, type=PTR):
        return self.b.load(self.b.offset(pointer, offset, 1), type)

    def store(self, value, pointer, offset):
        self.b.store(value, self.b.offset(pointer, offset, 1))

    def item(self, items, index, type=PTR):
        return self.b.load(self.b.offset(items, index, 8), type)

    def require(self, condition):
        """Go the slow way unless the condition holds."""
        following = self.b.label("following")
        self.b.branch_if(condition, following, self.slow)
        self.b.start(following)

    def same(self, x, y):
        self.require(self.b.cmp("eq", x, y))

    def require_type(self, x, word):
        self.same(self.load(x, self.layout.type), self.word(word))

    def python(self, name, operands, result=PTR):
        """Call a function of CPython."""
        return self.b.call(result, self.word(API + FUNCTIONS.index(name)), operands)

    def call(self, word, arguments=NULL, n=0):
        """Call a Python function."""
        return self.python("PyObject_VectorcallDict", [self.word(word), arguments, self.b.i64(n), NULL])

    def new(self, name, operands):
        """Make an object with a function of CPython; nothing else runs in between."""
        made = self.without_collecting(lambda: self.python(name, operands))
        self.return_null_if(self.b.cmp("eq", made, NULL))
        return made

    def without_collecting(self, make):
        """What make() writes, in which objects are made."""
        if not COLLECTS_AT_ONCE:
            return make()
        collects = self.python("PyGC_Disable", [], I32)
        made = make()
        with self.b.when(self.b.cmp("ne", collects, self.b.const(0, I32))):
            self.python("PyGC_Enable", [], I32)
        return made

    def new_pending(self, record, first):
        """A tensor that the call will compute; from a word of the record on: its number, meta, flag."""
        made = self.new("PyType_GenericAlloc", [self.word(TENSOR), self.b.i64(0)])
        for slot in ("data", "grad", "node", "accumulator", "storage", "base"):
            self.store(self.keep(self.word(NONE)), made, getattr(self.layout, slot))
        self.store(self.keep(self.word(FRAME)), made, self.layout.frame)
        for k, slot in enumerate(("vid", "meta", "requires_grad")):
            self.store(self.keep(self.load(record, 8 * (k + first))), made, getattr(self.layout, slot))
        return made

    def tuple_of(self, *items):
        """A new tuple that takes over the references to its items."""
        made = self.new("PyTuple_New", [self.b.i64(len(items))])
        for k, x in enumerate(items):
            self.python("PyTuple_SetItem", [made, self.b.i64(k), x], I32)
        return made

    def new_list(self):
        return self.new("PyList_New", [self.b.i64(0)])

    def keep(self, x):
        count = self.load(x, 0, COUNT)
        more = self.b.add(count, self.b.const(1, COUNT))
        # An object that is never freed has a negative one.
        self.store(self.b.select(self.b.cmp("lt", count, self.b.const(0, COUNT)), count, more), x, 0)
        return x

    def assign(self, x, pointer, offset):
        """A reference to x in a slot, in place of what is there."""
        before = self.load(pointer, offset)
        self.store(self.keep(x), pointer, offset)
        self.let_go(before)

    def let_go(self, x):
        """One reference less, to an object or null."""
        b, one = self.b, self.b.const(1, COUNT)
        with b.when(b.cmp("ne", x, NULL)):
            count = self.load(x, 0, COUNT)
            is_last = b.cmp("le", count, one)
            with b.when(is_last):
                self.python("Py_DecRef", [x], "void")
            with b.when(b.not_(is_last)):
                self.store(b.sub(count, one), x, 0)

    def tensor_items(self):
        return self.load(self.word(TENSORS), self.layout.list_items)

    def entry(self):
        """The entry that is next."""
        self.same(self.word(WORKING, I64), self.b.i64(0))
        return self.b.offset(self.word(ENTRIES), self.word(K, I64), 8 * ENTRY_WORDS)

    def shared(self, k, type=PTR):
        return self.load(Reg(f"@{SHARED}", PTR), 8 * k, type)

    def share(self, value, k):
        self.store(value, Reg(f"@{SHARED}", PTR), 8 * k)

    def take_modes(self):
        """Find the dict of the thread's modes; no reference is kept, the thread is the one we are in."""
        b = self.b
        thread = self.python("PyThreadState_GetID", [self.python("PyThreadState_Get", [])], I64)
        with b.when(b.cmp("ne", thread, self.shared(MODES_THREAD, I64))):
            modes = self.python("PyObject_GetAttr", [self.word(STATE), self.word(DICT_NAME)])
            self.require(b.cmp("ne", modes, NULL))
            self.python("Py_DecRef", [modes], "void")
            self.share(modes, THREAD_MODES)
            self.share(thread, MODES_THREAD)
        self.store(self.shared(THREAD_MODES), self.words, 8 * MODES)

    def mode(self, name):
        """The thread's gradient mode, default dtype or frame; the default if it was never set."""
        self.know_modes()
        return self.shared(next(known for word, _, known in KNOWN_MODES if word == name))

    def know_modes(self):
        """What is shared of modes is true of those of the call."""
        b, modes = self.b, self.word(MODES)
        is_known = b.cmp("eq", modes, self.shared(KNOWN_DICT))
        is_same = b.cmp("eq", self._version_of(modes), self.shared(KNOWN_VERSION, I64))
        with b.when(b.not_(b.and_(is_known, is_same))):
            b.call(PTR, "weft_look_at_modes", [self.words])

    def _version_of(self, items):
        """A number that no dict had before its last change; where there is none, one that is never known."""
        offset = self.layout.dict_version
        return self.load(items, offset, I64) if offset else self.b.i64(-1)

    def look_at_modes(self):
        modes = self.word(MODES)
        for name, default, known in KNOWN_MODES:
            # Names are found without an error; PyDict_GetItem keeps the current one apart, which takes longer.
            found = self.python("PyDict_GetItemWithError", [modes, self.word(name)])
            self.share(self.b.select(self.b.cmp("eq", found, NULL), self.word(default), found), known)
        self.share(modes, KNOWN_DICT)
        self._know_version()

    def _know_version(self):
        self.share(self._version_of(self.word(MODES)) if self.layout.dict_version else self.b.i64(0), KNOWN_VERSION)

    def set_frame(self, frame):
        """The thread is in this call, or in none. Whatever it was in before lives on. Returns whether that failed."""
        b = self.b
        self.know_modes()
        failed = self.python("PyDict_SetItem", [self.word(MODES), self.word(FRAME_NAME), frame], I32)
        failed = b.cmp("ne", failed, b.const(0, I32))
        with b.when(b.not_(failed)):
            self.share(frame, KNOWN_FRAME)
            self._know_version()
        return failed

    def require_mode(self, entry):
        self.same(self.mode(MODE_NAME), self.load(entry, 8 * GRAD_ENABLED))

    def require_leaf(self, tensor, flag):
        self.same(self.load(tensor, self.layout.requires_grad), flag)
        self.same(self.load(tensor, self.layout.node), self.word(NONE))
        self.same(self.load(tensor, self.layout.frame), self.word(NONE))

    def require_unreached(self, leaf):
        """The leaf still gets gradients, and no node leads to it any more: it has no end of a graph, or a dead one."""
        self.same(self.load(leaf, self.layout.requires_grad), self.word(TRUE))
        end, none = self.load(leaf, self.layout.accumulator), self.word(NONE)
        with self.b.when(self.b.cmp("ne", end, none)):
            self.same(self.python("PyWeakref_GetObject", [end]), none)

    def require_hidden(self, tensor):
        """No NumPy array may show the tensor's memory (exposure.py)."""
        storage = self.load(tensor, self.layout.storage)
        with self.b.when(self.b.cmp("ne", storage, self.word(NONE))):
            self.same(self.load(storage, self.layout.exposed), self.word(NONE))

    def require_place(self, array, record):
        """An array is what the place says that the record begins with."""
        b, layout = self.b, self.layout
        self.same(self.load(array, layout.array_dtype), self.load(record, 0))
        flags = self.load(record, 24, I32)
        is_strided = b.cmp("ne", b.and_(flags, b.const(STRIDED, I32)), b.const(0, I32))
        flags = b.and_(flags, b.const(~STRIDED & 0x7FFFFFFF, I32))
        self.same(b.and_(self.load(array, layout.array_flags, I32), flags), flags)
        ndim = b.convert(self.load(array, layout.array_ndim, I32), "i64")
        self.same(ndim, self.load(record, 8, I64))
        shape, expected = self.load(array, layout.array_shape), self.load(record, 16)
        with b.loop(0, ndim, 1) as axis:
            self.same(self.item(shape, axis, I64), self.item(expected, axis, I64))
        with b.when(is_strided), b.loop(0, ndim, 1) as axis:
            # NumPy's strides follow the lengths.
            strides = self.load(array, layout.array_shape + 8)
            self.same(self.item(strides, axis, I64), self.item(expected, b.add(ndim, axis), I64))

    def hand_out(self, record, ended, tensors):
        """A tensor that the call has made is the user's from now on, if anybody has it, and a new one stands in its
        place for the next call. The record begins with the words of a value."""
        place = self.b.offset(tensors, self.load(record, 0, I64), 8)
        new, tensor = self.new_pending(record, 1), self.load(place, 0)
        is_ended = self.b.cmp("ne", self.load(record, 8 * IS_ENDED, I64), self.b.i64(0))
        self.assign(self.b.select(is_ended, ended, self.word(NONE)), tensor, self.layout.frame)
        self.store(new, place, 0)
        self.let_go(tensor)

    def is_unshared(self, x):
        """Whether an object has one reference."""
        return self.b.cmp("eq", self.load(x, 0, I32), self.b.const(1, I32))

    def append(self, word, x):
        """Append to a list of the call."""
        self.append_to(self.word(word), x)

    def append_new(self, word, x):
        """Append an object that nothing else holds."""
        self.append(word, x)
        self.let_go(x)

    def append_to(self, items, x):
        """Append to a list; an error is passed on."""
        failed = self.python("PyList_Append", [items, x], I32)
        self.return_null_if(self.b.cmp("ne", failed, self.b.const(0, I32)))

    def return_null_if(self, condition):
        """Pass on an error."""
        with self.b.when(condition):
            self.return_null()

    def return_null(self):
        self.give(NULL)
        self.b.start(self.b.label("unreachable"))

    def give(self, result):
        self.b.lines.append(f"  ret {result}")

    def require_true(self, helper, *operands):
        """A function of the module returns something."""
        self.require(self.b.cmp("ne", self.b.call(PTR, helper, [self.words, *operands]), NULL))

    def count(self, pointer, k):
        """Add one to a word."""
        self.store(self.b.add(self.load(pointer, 8 * k, I64), self.b.i64(1)), pointer, 8 * k)

    def require_operands(self, items, codes, n, tensors):
        """n tensors or numbers are those of the codes."""
        b = self.b
        with b.loop(0, n, 1) as i:
            code, x = self.item(codes, i, I64), self.item(items, i)
            is_number = b.cmp("lt", code, b.i64(0))
            kind = self.item(self.words, b.add(b.select(is_number, b.neg(code), b.i64(1)), b.i64(KINDS - 1)))
            expected = self.item(tensors, b.select(is_number, b.i64(0), code))
            found, wanted = b.select(is_number, self.load(x, self.layout.type), x), b.select(is_number, kind, expected)
            is_other = b.and_(b.cmp("eq", code, b.i64(FRESH_CODE)), b.cmp("ne", found, wanted))
            found = b.when_value(is_other, found, lambda found=found: self._as_tensor(found))
            # Of exposed memory the call has read a copy, which is that still.
            is_shown = b.and_(b.not_(is_number), b.cmp("ne", found, wanted))
            copied = partial(b.call, PTR, "weft_copied_again", [self.words, x, wanted])
            self.same(b.when_value(is_shown, found, copied), wanted)

    def _as_tensor(self, kind):
        """The class of tensors in place of one made from it, such as that of parameters, which may come in too."""
        is_tensor = self.python("PyType_IsSubtype", [kind, self.word(TENSOR)], I32)
        return self.b.select(self.b.cmp("ne", is_tensor, self.b.const(0, I32)), self.word(TENSOR), kind)

    def advance(self):
        self.count(self.words, K)


class Method(Function):
    """A builtin method: METH_FASTCALL."""

    def __init__(self, module, name, layout):
        super().__init__(module, name, layout, [("self", PTR), ("args", PTR), ("count", I64)])
        self.words = self.load(self.b.arguments[0], layout.array_data)

    def argument(self, k):
        return self.load(self.b.arguments[1], 8 * k)

    def finish(self, result):
        """Return `result`; and the slow way."""
        b = self.b
        self.give(result)
        b.start(self.slow)
        self.python("PyErr_Clear", [], "void")
        b.finish(self.call(SLOW + METHODS.index(self.name), b.arguments[1], b.arguments[2]))


class Helper(Function):
    """What other functions of the module call: it returns null where they should try something else."""

    def __init__(self, module, name, layout, names):
        super().__init__(module, name, layout, [(name, PTR) for name in ("words", *names)])
        self.words = self.b.arguments[0]

    def finish(self, result):
        self.give(result)
        self.b.start(self.slow)
        self.b.finish(NULL)


class Callable(Function):
    """What calling an object of some class does, for the usual call in flight in this thread if there is one."""

    def __init__(self, module, name, layout):
        super().__init__(module, name, layout, [("self", PTR), ("args", PTR), ("kwargs", PTR)])
        self.in_python = self.b.label("in_python")
        self.words = self.shared(ACTIVE)
        self.require(self.b.cmp("ne", self.words, NULL))
        self.same(self.python("PyThreadState_Get", []), self.word(THREAD))
        # Something may be computed outside the call while it is in flight.
        self.same(self.mode(FRAME_NAME), self.word(FRAME))

    def python(self, name, operands, result=PTR):
        # From the words of the module, because there may be no others.
        return self.b.call(result, self.shared(SHARED_API + FUNCTIONS.index(name)), operands)

    def finish(self, result):
        self.give(result)
        self.start_slow_way()
        self.finish_slow_way()

    def start_slow_way(self):
        self.b.start(self.slow)
        self.python("PyErr_Clear", [], "void")

    def python_if(self, condition):
        """On the slow way: leave the rest to Python if the condition holds."""
        following = self.b.label("following")
        self.b.branch_if(condition, self.in_python, following)
        self.b.start(following)

    def finish_slow_way(self):
        """Call the Python function, with self before the other arguments."""
        b, layout = self.b, self.layout
        this, args, kwargs = b.arguments
        b.branch(self.in_python)
        b.start(self.in_python)
        n = self.load(args, layout.size, I64)
        stack = b.emit(PTR, f"alloca ptr, {b.add(n, b.i64(1))}, align 8")
        b.store(this, stack)
        with b.loop(0, n, 1) as i:
            b.store(self.item(b.offset(args, layout.tuple_items, 1), i), b.offset(stack, b.add(i, b.i64(1)), 8))
        function = self.shared(CALLABLES + CALLABLE_NAMES.index(self.name))
        b.finish(self.python("PyObject_VectorcallDict", [function, stack, b.add(n, b.i64(1)), kwargs]))


def write_shared(module, layout):
    """The words of the module, a function that says where they are, and one that looks at the modes of a call."""
    module.globals[SHARED] = f"@{SHARED} = internal global [{N_SHARED} x i64] zeroinitializer, align 8"
    b = Builder(module, "weft_shared_words", [], result="ptr")
    b.finish(Reg(f"@{SHARED}", PTR))
    f = Helper(module, "look_at_modes", layout, [])
    f.look_at_modes()
    f.finish(f.words)
