"""Spans of a usual call: what calling a module does, learned once and then taken as a whole.

    entries   linear  relu  linear  log_softmax ...
              |----- model(x) -----|                 a span: from x, of entries 0 to 2, its result

A layer's Python is a function of its arguments and of what its object holds, and it does nothing but ops. Where all of
this is the very same as when the span was learned, running it again can only lead to the same entries; so native code
compares (`guards`) and goes on behind them. It compares every attribute of the module and of those below it, their
hooks, their classes and the functions these call: whatever changed, Python runs, and what it does is learned anew.

Which `forward` is such a function its author says, by `pure`. A module with any other `forward` has no span, and its
Python runs as ever; the modules it calls may have theirs.
"""

from ..compiler.dtypes import DType
from . import native, native_text
from .modes import state
from .recording import BACKWARD, GRADIENTS, UPDATE
from .tensor import Tensor

_pure = {}  # forward -> None, or a function of (module, *args) that says whether this call is pure
_MAX_LESSONS = 4  # of one module at one place


def pure(condition=None):
    """Decorates a `forward` that does nothing but ops, depends on nothing but its arguments, the attributes of its
    object and of the modules in it, and the gradient mode, and changes nothing.

    condition: whether that holds for a call, as a function of (module, *args).
    """

    def mark(forward):
        _pure[forward] = condition
        return forward

    return mark


class Spans:
    """What a UsualFrame has learned."""

    def __init__(self, frame, replay):
        self.frame, self.replay = frame, replay
        self.lessons = {}  # (position, id of a module) -> how often it was learned
        self.modules = []  # keeps the ids valid

    def call(self, module, args):
        """module(*args), in a call that has not departed."""
        frame, replay = self.frame, self.replay
        start, n_numbers, enabled = frame.position.value, len(frame.numbers), state.grad_enabled
        result = native.call_in_python("call_module", module, args)
        if not frame.departed.value:
            guards = self._guards(start, module, args)
            span = None if guards is None else self._span(start, args, result)
            if span is not None:
                appended = list(frame.numbers[n_numbers:])
                replay.add_span(start, module, enabled, guards, appended, *span)
            elif (start, id(module)) not in self.lessons:
                self._refuse(start, module)
        return result

    def _refuse(self, start, module):
        self.lessons[start, id(module)] = _MAX_LESSONS
        self.modules.append(module)
        self.replay.refuse_span(start, module)

    def _guards(self, start, module, args):
        """What the call depends on, or None if it is not pure, or was learned too often."""
        lessons = self.lessons.get((start, id(module)), 0)
        if lessons == _MAX_LESSONS:
            self._refuse(start, module)
            return None
        guards = Guards()
        if not guards.cover(module, args):
            return None
        self.lessons[start, id(module)] = lessons + 1
        self.modules.append(module)
        return guards.rows

    def _span(self, start, args, result):
        """(numbers of the arguments, end, number of the result, (view, base) numbers), or None."""
        frame = self.frame
        entries = frame.entries[start : frame.position.value]
        if any(e.fresh or e.op in (BACKWARD, GRADIENTS, UPDATE) for e in entries):
            return None
        numbers = [self._number(x) for x in (*args, result)]
        if None in numbers:
            return None
        roots = [(e.vid, e.root) for e in entries if e.root is not None]
        return numbers[:-1], frame.position.value, numbers[-1], roots

    def _number(self, x):
        return next((k for k, tensor in enumerate(self.frame.tensors) if tensor is x), None)


class Guards:
    """Rows (kind, object, container, size, pairs) of all that a call depends on."""

    def __init__(self):
        self.rows, self.modules, self.types, self.functions = [], set(), set(), set()

    def cover(self, module, args):
        """Whether a call of the module is pure; what it depends on is among the rows then."""
        if module in self.modules:
            return True
        self.modules.add(module)
        kind, own = type(module), vars(module)
        condition = _pure.get(kind.forward, _UNKNOWN)
        if condition is _UNKNOWN or any(own[name] for name in ("_forward_hooks", "_forward_pre_hooks")):
            return False
        if "forward" in own or not all(isinstance(x, Tensor) for x in args):
            return False
        if not all(_is_fixed(value) for name, value in own.items() if name not in _TABLES):
            return False
        if condition is not None and not condition(module, *args):
            return False
        self._add_type(kind)
        self._add_functions(kind.forward)
        self._add(native_text.OF_ATTRIBUTES, module, own)
        for name in ("_forward_hooks", "_forward_pre_hooks", "_modules"):
            self._add(native_text.OF_DICT, None, own[name])
        return all(child is None or self.cover(child, ()) for child in own["_modules"].values())

    def _add(self, kind, thing, container):
        self.rows.append((kind, thing, container, len(container), list(container.items())))

    def _add_type(self, kind):
        if kind not in self.types:
            self.types.add(kind)
            self.rows.append((native_text.OF_TYPE, kind, None, native.type_version(kind), []))

    def _add_functions(self, forward):
        """The functions of nn.functional that it calls, which somebody may replace."""
        functional = forward.__globals__.get("F")
        for name in forward.__code__.co_names if functional else ():
            if name in vars(functional) and (functional, name) not in self.functions:
                self.functions.add((functional, name))
                pairs = [(name, vars(functional)[name])]
                self.rows.append((native_text.OF_ITEM, None, vars(functional), 1, pairs))


def _is_fixed(x):
    """Whether an attribute can only change by being another object."""
    if type(x) is tuple:
        return all(map(_is_fixed, x))
    return x is None or type(x) in _FIXED or isinstance(x, (Tensor, native.module_class()))


_UNKNOWN, _FIXED = object(), (bool, int, float, str, DType)
_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent", "_forward_pre_hooks", "_forward_hooks")
