"""Spans of a usual call: what calling a module does, learned once and then taken as a whole.

    entries   linear  relu  linear  log_softmax ...
              |----- model(x) -----|                 a span: from x, of entries 0 to 2, its result

A layer's Python is a function of its arguments and of what its object holds, and it does nothing but ops. Where all of
this is the very same as when the span was learned, running it again can only lead to the same entries; so native code
compares (`guards`) and goes on behind them. It compares every attribute of the module and of those below it, their
hooks, their classes and the functions these call: whatever changed, Python runs, and what it does is learned anew.

One of the arguments may be new in every call, or show memory that a NumPy array shows too: it comes in when the span
is taken, as it does with an op (native_inputs.py).

A few functions that are much Python and few ops have spans too (`spanned`): they depend on their arguments alone,
and what is no tensor among these is part of which function it is.

Which `forward` is such a function its author says, by `pure` (both in state/marks.py). A module with any other
`forward` has no span, and its Python runs as ever; the modules it calls may have theirs.
"""

import weakref
from functools import partial
from types import CodeType, FunctionType, ModuleType

from ...compiler.dtypes import DType
from ..programs.recording import BACKWARD, GRADIENTS, UPDATE
from ..state import marks
from ..state.exposure import has_exposed
from ..state.marks import methods, pure_when, spanning
from ..state.modes import autocasting, state
from ..state.tensor import Tensor
from . import native, native_layout, native_words
from .native_records import is_simple
from .usual_through import Shown

_MAX_LESSONS = 4  # of one object at one place, unless what was learned has been of use
_MANY_USES = 16
_MAX_OBJECTS = 16  # learned at one place: where more come, as from a call that makes its layers anew, none stays


class Spans:
    """What a UsualFrame has learned."""

    def __init__(self, frame, replay):
        self.frame, self.replay = frame, replay
        self.lessons = {}  # position -> {id of an object: how often it was learned in vain, the object}
        self.full = set()  # positions where nothing new is learned any more

    def call_module(self, module, args):
        """module(*args), in a call that has not departed."""
        if autocasting:
            return native.call_in_python("call_module", module, *args)
        guards = self._guards(self.frame.position.value, module, Guards().cover, module, args)
        return self._call(module, partial(native.call_in_python, "call_module", module), args, guards)

    def call_function(self, function, args):
        """function(*args) of a spanned function."""
        if autocasting:
            return function(*args)
        guards = self._guards(self.frame.position.value, function, Guards().cover_function, args)
        return self._call(function, function, args, guards)

    def _call(self, key, function, args, guards):
        frame = self.frame
        start, n_numbers, enabled = frame.position.value, len(frame.numbers), state.grad_enabled
        result = function(*args)
        if guards is not None:
            end, appended = frame.position.value, list(frame.numbers[n_numbers:])
            span = self._span(start, end, args, result)
            # Asked last of all: a signal handler may have made the call depart up to here, and cleared what was read.
            if span is not None and not frame.departed.value:
                self.replay.add_call(start, key, enabled, guards, appended, *span)
        return result

    def step(self, optimizer):
        """Whether the optimizer's step has been made."""
        frame, made = self.frame, []
        start, update_again = frame.position.value, frame.update_again
        guards = self._guards(start, optimizer, Guards().cover_optimizer, optimizer)

        def noted(rule, params, states, names, numbers, flags):
            place = frame.position.value - start
            done = update_again(rule, params, states, names, numbers, flags)
            made.append(((params, states, names, numbers), place) if done else None)
            return done

        frame.update_again = noted
        try:
            optimizer._update_groups()
        finally:
            frame.update_again = update_again
        if guards and made and None not in made and not frame.departed.value and self._are_updates(start):
            self.replay.add_step(start, frame.position.value, optimizer, guards, made)
        return True

    def _are_updates(self, start):
        """Whether all that has been done from there on are updates, and what shows again what these have changed."""
        done = self.frame.entries[start : self.frame.position.value]
        return all(e.update is not None or e.change.__class__ is Shown for e in done)

    def _guards(self, start, key, cover, *operands):
        """What a call depends on; None if it is not pure, or was learned too often: then it is not learned again."""
        lessons = self.lessons.setdefault(start, {})
        if id(key) not in lessons and not self._has_room(start, lessons):
            return None
        before = 0 if self.replay.uses(start, key) >= _MANY_USES else lessons.get(id(key), (0,))[0]
        lessons[id(key)] = before + 1, key
        guards = cover(*operands) if before < _MAX_LESSONS else None
        if guards is None:
            self.replay.refuse_span(start, key)
        return guards

    def _has_room(self, start, lessons):
        """Whether one more object can be learned at a position. The last one forgets those that have been of no use."""
        if start not in self.full and len(lessons) >= _MAX_OBJECTS:
            self.full.add(start)
            used = self.replay.keep_used(start)
            for key in [key for key in lessons if key not in used]:
                del lessons[key]
        return start not in self.full

    def _span(self, start, end, args, result):
        """(numbers of the arguments, end, number of the result, (view, base) numbers, what comes in), or None."""
        frame = self.frame
        entries = frame.entries[start:end]
        if any(e.op in (BACKWARD, GRADIENTS, UPDATE) for e in entries):
            return None
        fresh = self._fresh(entries, args)
        if fresh is None:
            return None
        comes_in = {place for place, *_ in fresh}
        numbers = [None if k in comes_in else self._number(x) for k, x in enumerate(args)]
        found = self._number(result)
        if found is None or numbers.count(None) > len(fresh):
            return None
        # Of what is exposed an op reads what is there when it runs, and the span what is there when it begins.
        if has_exposed([x for k, x in enumerate(args) if k not in comes_in]):
            return None
        roots = [(e.vid, e.root) for e in entries if e.root is not None]
        return numbers, end, found, roots, fresh

    def _fresh(self, entries, args):
        """(place among the arguments, entry, number, key) of the argument that comes in with an entry; None if more
        than one does, or something else."""
        fresh = [(entry, vid, key) for entry in entries for vid, _, key in entry.fresh]
        if not fresh:
            return ()
        entry, vid, key = fresh[0]
        if len(fresh) > 1 or entry.change is not None or entry.root is not None or not is_simple(entry):
            return None
        value = self.frame.tensors[vid]
        places = [k for k, x in enumerate(args) if value is not None and self._read_of(x) is value]
        return None if len(places) != 1 or entry.turned else ((places[0], entry, vid, key),)

    def _read_of(self, x):
        """What ops have read in place of a tensor."""
        given, copy = self.frame.copies.get(id(x), (x, x))[:2]
        return copy if given is x else x

    def _number(self, x):
        tensors = self.frame.tensors
        if isinstance(x, Tensor) and x._frame is self.frame and tensors[x._vid] is x:
            return x._vid
        return next((k for k, tensor in enumerate(tensors) if tensor is x), None)


class Guards:
    """Rows (kind, object, container, size, pairs) of all that a call depends on."""

    def __init__(self):
        self.modules, self.types, self.functions = set(), set(), set()
        # What operands are converted to in blocks of mixed precision no attribute tells.
        self.rows = [(native_words.OF_DICT, None, autocasting, 0, [])]

    def cover(self, module, args):
        """The rows of a call of a module; None if it is not pure."""
        return self._found() if self._cover_tensors(args) and self._cover(module, args) else None

    def cover_function(self, args):
        """The rows of a call of a spanned function; None if anything but tensors counts."""
        return self._found() if self._cover_tensors(args) else None

    def _found(self):
        # A class that CPython gives no number to (3.12 and later give each a thousand) could change unseen.
        return (
            None if any(kind == native_words.OF_TYPE and not size for kind, _, _, size, _ in self.rows) else self.rows
        )

    def _cover_tensors(self, found):
        """Whether these are tensors, and their methods weft's own: one of a user may do anything."""
        for kind in (Tensor, *map(type, found)):
            if kind not in self.types and not _has_its_methods(kind):
                return False
            self._add_type(kind)
        return True

    def cover_optimizer(self, optimizer):
        """The rows of a step of an optimizer; None if it is not pure."""
        kind, own = type(optimizer), vars(optimizer)
        if any(_condition(kind, getattr(kind, name)) is _IMPURE or name in own for name in _STEP):
            return None
        if not _reads_its_dict(kind, own):
            return None
        groups = own["param_groups"]
        if type(groups) is not list or any(type(group) is not dict for group in groups):
            return None
        self._add_type(kind)
        self._add(native_words.OF_ATTRIBUTES, optimizer, own)
        self.rows.append((native_words.OF_LIST, None, groups, len(groups), [(None, group) for group in groups]))
        for group in groups:
            if any(not _is_option(value) for name, value in group.items() if name not in ("params", "param_names")):
                return None
            self._add(native_words.OF_DICT, None, group)
        return self._found()

    def _cover(self, module, args):
        if id(module) in self.modules:
            return True
        self.modules.add(id(module))
        kind, own = type(module), vars(module)
        condition = _condition(kind, kind.forward)
        hooks, pre_hooks, children = tables = [own.get(name) for name in _CALLED]
        if (
            condition is _IMPURE
            or not native.is_called_natively(kind)
            or any(type(table) is not dict for table in tables)
        ):
            return False
        if "forward" in own or hooks or pre_hooks or not _is_stored(kind, own):
            return False
        if condition is not None and not condition(module, *args):
            return False
        held = [x for x in own.values() if isinstance(x, Tensor)]
        # One that the call has made (functional_call) is another one in the next call, the more so if it is kept here.
        if any(x._frame is not None and x._frame is state.frame for x in held) or not self._cover_tensors(held):
            return False
        functional = kind.forward.__globals__.get("F")
        if functional is not None and not self._cover_functions(kind.forward, vars(functional)):
            return False
        self._add_type(kind)
        self._add(native_words.OF_ATTRIBUTES, module, own)
        for table in tables:
            self._add(native_words.OF_DICT, None, table)
        return all(child is None or self._cover(child, ()) for child in children.values())

    def _add(self, kind, thing, container):
        self.rows.append((kind, thing, container, len(container), list(container.items())))

    def _add_type(self, kind):
        if kind not in self.types:
            self.types.add(kind)
            # CPython numbers a class again, after a change, when somebody looks for an attribute.
            hasattr(kind, "forward")
            self.rows.append((native_words.OF_TYPE, kind, None, native_layout.type_version(kind), []))

    def _cover_functions(self, function, functional):
        """Add the functions of nn.functional that one calls, directly or not, which somebody may replace. Whether all
        are weft's own: one of a user may do anything."""
        for name in _names(function.__code__):
            value = functional.get(name)
            if value is None or isinstance(value, ModuleType) or name in self.functions:
                continue
            if not _is_own_callable(value):
                return False
            self.functions.add(name)
            self.rows.append((native_words.OF_ITEM, None, functional, 1, [(name, value)]))
            is_there = type(value) is FunctionType and value.__globals__ is functional
            if is_there and not self._cover_functions(value, functional):
                return False
        return True


def _has_its_methods(kind):
    """Whether it is a class of weft's in which nobody has replaced a method, or added one that operators find."""
    version = native_layout.type_version(kind)
    if not version or _looked_at.get(kind, (0, False))[0] != version:
        _looked_at[kind] = version, _has_those_it_had(kind)
    return _looked_at[kind][1]


_looked_at = weakref.WeakKeyDictionary()  # class -> (its version, whether it has its methods)


def _has_those_it_had(kind):
    known, now = methods.get(kind), vars(kind)
    # Its docstring does nothing.
    if known is None or any(now.get(name) is not value for name, value in known.items() if name != "__doc__"):
        return False
    return not any(name.startswith("__") for name in now.keys() - known.keys())


def _is_own(kind):
    return kind.__module__.partition(".")[0] == _PACKAGE


def _is_own_callable(x):
    """Whether weft's package has defined it. A wrapper of somebody's function may have been made there too."""
    if type(x) is not FunctionType:
        return _is_own(x if isinstance(x, type) else type(x))
    of_package = x.__globals__.get("__name__", "").partition(".")[0] == _PACKAGE
    return x in spanning or x.__closure__ is None and of_package


def _names(code):
    """The names a function's code looks up, with those of functions and comprehensions inside."""
    inner = [x for x in code.co_consts if isinstance(x, CodeType)]
    return [*code.co_names, *(name for x in inner for name in _names(x))]


def _condition(kind, function):
    """When the function is pure; _IMPURE if it is not. A class of a user may do anything where attributes are read."""
    if not _is_own(kind) or type(function) is not FunctionType:
        return _IMPURE
    return pure_when.get(function, _IMPURE)


def _is_stored(kind, own):
    """Whether reading an attribute gives what is in the object's dict, which only changes by being another object."""
    return _reads_its_dict(kind, own) and all(_is_fixed(value) for name, value in own.items() if name not in _TABLES)


def _reads_its_dict(kind, own):
    """Whether reading an attribute gives what is in the object's dict."""
    if kind.__getattribute__ is not object.__getattribute__:
        return False
    return not any(hasattr(getattr(kind, name, None), "__set__") for name in own)


def _is_fixed(x):
    """Whether an attribute can only change by being another object."""
    return _is_option(x) or isinstance(x, (Tensor, marks.calls["call_module"][0]))


def _is_option(x):
    """Whether it never changes itself."""
    return all(map(_is_option, x)) if type(x) is tuple else x is None or type(x) in _OPTIONS


_IMPURE, _OPTIONS = object(), (bool, int, float, str, DType)
_PACKAGE = __name__.partition(".")[0]
_STEP = ("update_group", "_update_groups")
_CALLED = ("_forward_hooks", "_forward_pre_hooks", "_modules")
_TABLES = (*_CALLED, "_parameters", "_buffers", "_non_persistent")
