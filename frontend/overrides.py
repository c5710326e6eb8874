"""weft.overrides: functions that classes of the user's, or a mode, answer instead (`__torch_function__`).

Here are PyTorch's names; what happens is in overriding.py and doors.py.
"""

from contextlib import contextmanager
from functools import wraps
from types import ModuleType

from .doors import Accessor, Mode, functions_by_path
from .overriding import OWN, hand_over, has_say, in_order, is_own
from .public import resolve
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor

__all__ = str.split("""
    get_ignored_functions get_overridable_functions handle_torch_function has_torch_function resolve_name is_tensor_like
    is_tensor_method_or_property wrap_torch_function
""")


# --- for functions that ask -------------------------------------------------------------------------------------------
def is_tensor_like(inp):
    """Whether it is a tensor, or has a `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, OWN)


def has_torch_function(relevant_args):
    """Whether one of these is of a class that is asked, or a mode is open. Tensor itself and Parameter are not asked,
    other subclasses of Tensor are."""
    if state.asked_off < 2 and state.function_modes:
        return True
    return not state.asked_off and any(has_say(type(x)) for x in relevant_args)


def has_torch_function_unary(tensor):
    """The same of one argument."""
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args):
    """The same of several arguments."""
    return has_torch_function(args)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """What the open mode, or the class of one of the relevant arguments, gives in place of public_api(*args, **kwargs):
    subclasses are asked before their superclasses, else the first one first. TypeError if all give NotImplemented."""
    return hand_over(public_api, () if state.asked_off else in_order(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher):
    """Decorates a function of the user's that is to ask: dispatcher(*args, **kwargs) gives the arguments whose classes
    are asked.

    >>> @weft.overrides.wrap_torch_function(lambda x: (x,))
    ... def twice(x):
    ...     return x + x
    """

    def inner(function):
        @wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return inner


# --- modes ------------------------------------------------------------------------------------------------------------
class TorchFunctionMode:
    """A block in which every function of weft, also those that make tensors, calls the `__torch_function__` of the mode
    instead. Within that the mode outside of it is asked, if there is one.

    >>> class Counting(weft.overrides.TorchFunctionMode):
    ...     n = 0
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         self.n += 1
    ...         return func(*args, **(kwargs or {}))
    >>> with Counting() as counting:
    ...     y = weft.ones(2).exp() + 1
    >>> counting.n
    3
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if not is_own(cls):
            functions_by_path()

    def __init__(self):
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        _push_mode(self)
        return self

    def __exit__(self, *exception):
        _pop_mode()

    @classmethod
    def push(cls, *args, **kwargs):
        """The older spelling of cls(*args, **kwargs)."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _push_mode(mode):
    Mode(mode).__enter__()


def _pop_mode():
    """The mode that was entered last is left, and returned."""
    return Mode.leave()


@contextmanager
def _pop_mode_temporarily():
    modes = state.function_modes
    state.function_modes = modes[:-1]
    try:
        yield modes[-1]
    finally:
        state.function_modes = modes


def _get_current_function_mode():
    modes = state.function_modes
    return modes[-1] if modes else None


def _get_current_function_mode_stack():
    return list(state.function_modes)


# --- lists of functions -----------------------------------------------------------------------------------------------
def get_overridable_functions():
    """{module or class: its functions that ask}; of a property it is `__get__`."""
    return {resolve(path): list(functions) for path, functions in functions_by_path().items()}


def get_ignored_functions():
    """The public functions that do not ask."""
    asking = {f for functions in functions_by_path().values() for f in functions}
    found = set()
    for path in functions_by_path():
        values = vars(resolve(path)).items()
        found |= {f for name, f in values if name[0] != "_" and callable(f) and not isinstance(f, ModuleType)}
    return found - asking


def get_default_nowrap_functions():
    """What subclasses of Tensor give as it is: a gradient is of the class that it is of."""
    return {Tensor.grad.__get__}


def resolve_name(f):
    """The name of a function that asks, as PyTorch's users know it; None for another one."""
    for path, functions in functions_by_path().items():
        if f in functions:
            place = f"torch.{path}".rstrip(".")
            return f"{place}.{f.name}.{f.__name__}" if isinstance(f, Accessor) else f"{place}.{f.__name__}"
    return None


def is_tensor_method_or_property(func):
    """Whether it is a method of Tensor, or a property's `__get__`."""
    return func in functions_by_path()["Tensor"] or func.__name__ == "__get__"
