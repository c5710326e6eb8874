"""`__torch_function__`: what classes of the user's, and modes, say about functions.

    has_say         whether functions ask a class
    hand_over       what a function does whose arguments, or a mode, have a say: they are asked instead
    off, all_off    blocks in which nobody is asked
    by_default      what Tensor's subclasses answer
    as_subclass     a tensor as an instance of a class of the user's

Which functions ask, and from when on, is in doors.py.
"""

from contextlib import nullcontext
from types import MethodType

from .compiler.dtypes import DType
from .compiler.ops import reinterpreted
from .runtime.state.device import device
from .runtime.state.modes import state, step_out
from .runtime.state.said import warn
from .runtime.state.tensor import Tensor

OWN = "__torch_function__"
_ROOT = __name__.partition(".")[0]
NOT_NOW = "__torch_function__ of a class or a mode was asked"
_SUBCLASSES, ALL = 1, 2  # what `state.asked_off` says is not asked


# --- who has a say ----------------------------------------------------------------------------------------------------
def disabled(function, types, args=(), kwargs=None):
    """What classes of tensors name as their __torch_function__ that want none: the function as it is."""
    return function(*args, **(kwargs or {}))


def has_say(kind):
    """Whether functions ask a class: it has a `__torch_function__`, which Tensor's subclasses have from Tensor."""
    if kind in PLAIN:
        return False
    own = getattr(kind, OWN, None)
    # Weft's own classes of tensors have one if they define it.
    inherited = getattr(own, "__func__", None) is by_default
    return own is not None and own is not disabled and not (inherited and is_own(kind))


def is_own(kind):
    """Weft's own classes say that they are torch's where weft stands for it."""
    return kind.__module__.partition(".")[0] in (_ROOT, "torch")


PLAIN = {Tensor, bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type, DType, device}
"""Classes that are known to have none."""


def known_plain(*kinds):
    """Weft says this of its own classes."""
    PLAIN.update(kinds)


def in_order(given):
    """Those of these arguments whose classes have a say, one of each class: a subclass before its superclass, else as
    they stand."""
    found = []
    for x in given:
        kind = type(x)
        if has_say(kind) and all(type(y) is not kind for y in found):
            at = next((k for k, y in enumerate(found) if issubclass(kind, type(y))), len(found))
            found.insert(at, x)
    return found


def _all_given(args, kwargs):
    """Arguments, and the items of those that are lists."""
    for x in (*args, *kwargs.values()):
        if isinstance(x, (tuple, list)):
            yield from _all_given(x, {})
        else:
            yield x


# --- asking -----------------------------------------------------------------------------------------------------------
class off:
    """A `with` block in which classes are not asked (DisableTorchFunctionSubclass)."""

    level = _SUBCLASSES

    def __enter__(self):
        self.before, state.asked_off = state.asked_off, max(state.asked_off, self.level)
        return self

    def __exit__(self, *exception):
        state.asked_off = self.before


class all_off(off):
    """A `with` block in which neither classes nor modes are asked (DisableTorchFunction)."""

    level = ALL


def asked_of(args, kwargs=None):
    """The arguments whose classes are asked; None if nobody is, neither of these nor a mode."""
    level = state.asked_off
    found = () if level else in_order(_all_given(args, kwargs or {}))
    return found if found or state.function_modes and level < ALL else None


def hand_over(public, asked, args, kwargs):
    """What the open mode, or a class of the arguments `asked`, gives in place of public(*args, **kwargs). TypeError if
    nobody has an answer. A compiled call stands by."""
    kinds, modes = tuple(map(type, asked)), state.function_modes
    # Weft's own classes do nothing but ops of tensors that a call may record.
    if modes or not all(map(is_own, kinds)):
        back = step_out(f"{NOT_NOW} ({', '.join(k.__name__ for k in kinds or map(type, modes))})")
    else:
        back = nullcontext()
    try:
        if modes and state.asked_off < ALL:
            state.function_modes = modes[:-1]
            try:
                result = getattr(modes[-1], OWN)(public, kinds, args, kwargs or None)
            finally:
                state.function_modes = modes
            if result is not NotImplemented:
                return result
        for x in asked:
            result = _method_of(x)(public, kinds, args, kwargs or None)
            if result is not NotImplemented:
                return result
    finally:
        back.__exit__()
    raise TypeError(_nobody(public, kinds, modes))


def _method_of(x):
    method = getattr(x, OWN)
    if isinstance(method, MethodType) and method.__self__ is x:
        warn(
            "Defining your `__torch_function__ as a plain method is deprecated and will be an error in future, please "
            "define it as a classmethod.",
            stacklevel=4,
            category=DeprecationWarning,
        )
    return method


def _nobody(public, kinds, modes):
    name = f"{public.__module__}.{public.__name__}"
    said = (
        f"Multiple dispatch failed for '{name}'; all {OWN} handlers returned NotImplemented: no implementation found "
        f"for '{name}' on types that implement {OWN}: {list(kinds)}"
    )
    return f"{said} nor in mode {modes[-1]}" if modes else said


def by_default(cls, func, types, args=(), kwargs=None):
    """What Tensor's subclasses do unless they say something else: the function as it is, whose tensors become instances
    of the class. NotImplemented where another class is no superclass of it."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with off():
        result = func(*args, **(kwargs or {}))
    return result if func in KEPT else converted(result, cls)


KEPT = set()
"""Functions whose tensors stay what they are."""


def converted(result, cls):
    """Tensors, also those in tuples and lists, as instances of the class."""
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return as_subclass(result, cls)
    if isinstance(result, (tuple, list)):
        parts = [converted(part, cls) for part in result]
        return tuple.__new__(type(result), parts) if isinstance(result, tuple) else type(result)(parts)
    return result


def as_subclass(self, cls):
    """The tensor as an instance of a class of the user's, which shows the same memory and has the same history. The
    class is not called."""
    check_subclass(cls)
    with all_off():
        shown = reinterpreted.another(self)
        shown.__class__ = cls
    return shown


def check_subclass(cls):
    """TypeError for what is no class of tensors, NotImplementedError for one that PyTorch's dispatcher would ask."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your "
            "class inherits from Tensor."
        )
    if hasattr(cls, "__torch_dispatch__"):
        raise NotImplementedError(
            f"{cls.__name__} has a __torch_dispatch__, and {NO_DISPATCHER}. Write a __torch_function__, which is asked "
            "for every function that a program calls"
        )


NO_DISPATCHER = "weft has no dispatcher that would ask it for every op, those of backward passes with them"
