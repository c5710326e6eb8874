"""Classes that could have a say in what functions do (overriding.py): the first one that is made opens the doors.

One of tensors is noticed by Tensor.__init_subclass__, another one by Python's function for the `class` statement, which
is watched until the doors are open. doors.py is imported then: few programs have such classes.
"""

import builtins
from types import FunctionType

from .compiler.later import later
from .overriding import OWN, as_subclass, by_default, has_say, is_own
from .reference import told_of_modules
from .runtime.state import marks
from .runtime.state.tensor import Tensor

opened = {}  # path -> functions that are doors
of_class = {}  # what the operators and properties of a class that has a say are
_open_doors, _open_modules = later("doors:open_doors"), later("doors:open_modules")


def _init_subclass(cls, **kwargs):
    super(Tensor, cls).__init_subclass__(**kwargs)
    if has_say(cls):
        _open_doors()
        marks.asked_classes[cls] = True
        for name, door in of_class.items():
            if next(kind for kind in cls.__mro__ if name in vars(kind)) is Tensor:
                setattr(cls, name, door)


def watch_classes():
    """Have the doors opened when a class is made that has a `__torch_function__` and is none of tensors."""
    build = builtins.__build_class__

    def __build_class__(*args, **kwargs):
        made = build(*args, **kwargs)
        if not opened and isinstance(made, type) and OWN in vars(made) and has_say(made) and not is_own(made):
            _open_doors()
        return made

    _watch[:] = build, __build_class__
    builtins.__build_class__ = __build_class__


_watch = []


def watch_no_more():
    if _watch and builtins.__build_class__ is _watch[1]:  # somebody else may have put another one around it
        builtins.__build_class__ = _watch[0]


# By which function of Tensor an operator is known.
_NAMES = {"__pow__": "pow", "__ipow__": "pow_", "__rtruediv__": "__rdiv__"}


def _told_of_module():
    if opened:
        _open_modules()


def attach():
    """Give Tensor what its subclasses have from it, and begin to look. Its methods become functions of their own."""
    for name, function in vars(Tensor).copy().items():
        if type(function) is FunctionType:
            own = marks.own_method(name, function)
            own.__name__ = _NAMES.get(name, name)
            setattr(Tensor, name, own)
    setattr(Tensor, OWN, classmethod(by_default))
    Tensor.__init_subclass__ = classmethod(_init_subclass)
    Tensor.as_subclass = as_subclass
    told_of_modules.append(_told_of_module)
    watch_classes()
