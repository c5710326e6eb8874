"""Families of functions that few programs use, imported when one of their names is asked for, as in `weft.einsum` or
`x.sort()`.

    join        imports a family, and gives weft and Tensor its names
    join_all    does so for all
    attach      puts what stands for their methods into Tensor
    joined      the names of the families that have been joined

paths.py lists their names. Python asks weft's `__getattr__` (absent.py) for a function that is not there yet.
"""

import sys

from . import absent, reference
from .compiler.later import imported
from .inplace import inplace_form
from .kinds import answering, door, door_of
from .numpy_words import understanding
from .out import taking_out
from .paths import FAMILY_OF_FUNCTION, FAMILY_OF_METHOD, LATER_FAMILIES
from .runtime.state import marks
from .runtime.state.tensor import Tensor

_ROOT = __name__.partition(".")[0]
joined = set()
_made = {}  # name of a family -> (its functions by name, its methods by name)


def join(family):
    if family in joined:
        return
    module = imported(f"{_ROOT}.{family}")
    own = _functions(module, family), _methods(module, family)
    # Two threads may come here at once: all is that of the first then.
    made = functions, methods = _made.setdefault(family, own)
    root = sys.modules[_ROOT]
    for name, method in methods.items():
        if type(vars(Tensor).get(name)) is LaterMethod:
            marks.add_method(Tensor, name, method)
    functions |= {name: methods[name] for name in FAMILY_OF_FUNCTION.keys() & methods.keys() - functions.keys()}
    for name, function in functions.items():
        if name not in vars(root):
            setattr(root, name, function)
    joined.add(family)
    if made is own:
        reference.attach("", root, functions)
        reference.attach("Tensor", Tensor, methods)


def join_all():
    for family in LATER_FAMILIES:
        join(family)


def _functions(module, family):
    found = {}
    for name in module.PUBLIC:
        function = understanding(name, getattr(module, name))
        if name in TAKING_OUT:
            function = taking_out(name, function)
        found[name] = door_of(name, function)
    return found


def _methods(module, family):
    names = [name for name, its in FAMILY_OF_METHOD.items() if its == family]
    in_place = [f"{name}_" for name in vars(module).get("INPLACE", ())]
    return {name: marks.own_method(name, _method(module, name, name in in_place)) for name in names}


def _method(module, name, is_in_place):
    if is_in_place:
        return door(name, inplace_form(answering(understanding(name[:-1], getattr(module, name[:-1])))))
    return door_of(name, understanding(name, getattr(module, name)))


TAKING_OUT = frozenset([*absent.taking_out(""), "lu", "norm", "tensordot"])


class LaterMethod:
    """Stands in Tensor for a method of a family that has not been joined."""

    __slots__ = ("family", "name")

    def __init__(self, family, name):
        self.family, self.name = family, name

    def __get__(self, instance, owner=None):
        join(self.family)
        # Not by `getattr`: a subclass may have one of its own, which asks for this.
        return vars(Tensor)[self.name].__get__(instance, owner)


def attach():
    for name, family in FAMILY_OF_METHOD.items():
        setattr(Tensor, name, LaterMethod(family, name))


absent.joining.append(join)
