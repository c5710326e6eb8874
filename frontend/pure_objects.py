"""What a user's function reads of objects and classes (pure_code.py): attributes, and what their classes do with them.

Code does not show which object an attribute is read of. So whatever it names is read of all objects that it can have.
"""

import enum
import sys
import types

from .nn.module import Module
from .paths import FAMILY_OF_FUNCTION, PathModule
from .public import is_there
from .pure_values import CACHED, PACKAGE, described, is_named_tuple, is_of_enum
from .runtime.replay import native_layout
from .runtime.state.tensor import Tensor

# Methods that make, show, copy or end an object, which is not what a function that computes with one does.
_ASIDE = frozenset(
    str.split("""
    __init__ __repr__ __str__ __post_init__ __init_subclass__ __class_getitem__ __del__ __getstate__ __setstate__
    __reduce__ __reduce_ex__ __copy__ __deepcopy__ __replace__ __dir__ __format__ __sizeof__ __setattr__ __delattr__
    __subclasshook__ __annotate__ __annotate_func__
""")
)
_OF_MAKING = frozenset(("__init__", "__post_init__", "__setattr__", "__del__"))  # and of ending, an object
_OF_DATACLASSES = frozenset(("__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"))  # as they are made
_OF_NAMED_TUPLES = frozenset(("__getnewargs__", "__new__", "__match_args__"))
_OF_ENUMERATIONS = frozenset(("__new__", "__new_member__"))
# Of modules: what changes nothing.
_OF_MODULES = frozenset(str.split("""
    forward parameters named_parameters buffers named_buffers children named_children modules named_modules eval
"""))  # fmt: skip


class Impure(Exception):
    """Why a function has to run every time, and the line."""

    def __init__(self, reason, code=None, line=None):
        where = f" [{code.co_filename}:{line or code.co_firstlineno}]" if code is not None else ""
        super().__init__(reason + where)


class ReadsOfObjects:
    """The part of Reads that looks into objects."""

    def _add_object(self, thing, code, line):
        """An object of the user's. What operators, calls and loops do with it is read too."""
        self._add_methods(type(thing), _ASIDE, code, line)
        self.attributes.append((thing, "__class__", type(thing)))
        if hasattr(thing, "__dict__"):
            self.attributes.append((thing, "__dict__", vars(thing)))
        self._add_container(thing)

    def _add_class(self, kind, code, line):
        """A class of the user's, and what making an object of it does."""
        if not issubclass(kind, tuple) and kind.__new__ is not object.__new__:
            raise Impure(f"{kind.__qualname__} has a __new__ of its own", code, line)
        self._add_methods(kind, _ASIDE - _OF_MAKING, code, line)
        self._add_container(kind)

    def _add_namespace(self, thing):
        """An object that has attributes and does nothing."""
        self.attributes += [(thing, "__class__", type(thing)), (thing, "__dict__", vars(thing))]
        self._add_container(thing)

    def _add_enumeration(self, kind, code, line):
        """A class of the user's whose objects are all there: they stay the same, and what they have may change."""
        self._count_parts(len(kind.__members__), kind.__qualname__, code, line)
        self._add_methods(kind, _ASIDE | _OF_ENUMERATIONS, code, line)
        for name, member in kind.__members__.items():
            self._seen[id(member)] = member
            self._add_container(member)
            self.add_value(member._value_, f"{kind.__qualname__}.{name}", code, line)
        self._add_container(kind)

    def _add_methods(self, kind, aside, code, line):
        self._add_version(kind, code, line)
        for base in kind.__mro__[:-1]:
            if base is tuple or is_of_enum(base):
                continue
            made = _OF_DATACLASSES if "__dataclass_params__" in vars(base) else frozenset()
            made |= _OF_NAMED_TUPLES if is_named_tuple(base) else frozenset()
            for name, value in vars(base).items():
                if name.startswith("__") and name not in aside | made and callable(value):
                    self.add_value(value, f"{kind.__qualname__}.{name}", code, line)

    def _add_version(self, kind, code, line):
        """It changes when the class does, or one that it inherits from. Some have none: CPython has only so many."""
        version = native_layout.type_version(kind)
        if not version:
            raise Impure(f"{kind.__qualname__} may change unseen", code, line)
        self.classes[kind] = version

    def _add_container(self, thing):
        self._containers[id(thing)] = thing
        for name, code, line in list(self._names):
            if self._add_attribute(thing, name, code, line):
                self._unknown.pop(name, None)

    def _add_attribute(self, thing, name, code, line):
        """Whether a module, an object or a class has the attribute, which is read then."""
        if isinstance(thing, type):
            is_member = isinstance(thing, enum.EnumMeta) and name in thing.__members__
            return is_member or self._add_of_classes(thing, name, code, line) is not None
        if _is_slot(type(thing), name):
            return self._add_slot(thing, name, code, line)
        own = getattr(thing, "__dict__", {})
        if name in FAMILY_OF_FUNCTION and name not in own and thing is sys.modules[PACKAGE]:
            getattr(thing, name)  # it comes now, and so do methods
            self.classes[Tensor] = native_layout.type_version(Tensor)
        if name in own:
            self._read(own, {name: own[name]})
            self.add_value(own[name], name, code, line)
            return True
        if isinstance(thing, types.ModuleType):
            if type(thing) is PathModule:
                self._add_absent(own, name)  # what is assigned to it would stand for what its sources have
            return False
        found = self._add_of_classes(type(thing), name, code, line)
        if isinstance(thing, enum.Enum) and f"_{name}_" in own:
            self._read(own, {f"_{name}_": own[f"_{name}_"]})  # what a property of Python's own gives
        # A property has precedence over what is in the object's own dict.
        if found is not None and type(found) is not property and hasattr(thing, "__dict__"):
            self._add_absent(own, name)
        return found is not None

    def _add_slot(self, thing, name, code, line):
        if not hasattr(thing, name):
            raise Impure(f"{name} has no value yet", code, line)
        value = getattr(thing, name)
        self.attributes.append((thing, name, value))
        self.add_value(value, name, code, line)
        return True

    def _add_of_classes(self, kind, name, code, line):
        """What a class or one that it inherits from has by this name, or None; their versions tell when it changes."""
        for base in kind.__mro__[:-1]:
            if name in vars(base) and base is not tuple:
                value = vars(base)[name]
                if is_of_enum(base):
                    if name not in ("name", "value"):
                        raise Impure(f"{kind.__qualname__}.{name} is more than a value", code, line)
                    return value
                if issubclass(base, Module) and base.__module__.partition(".")[0] == PACKAGE:
                    if not (name in _OF_MODULES or is_there(Tensor, name)):
                        raise Impure(f"{kind.__qualname__}.{name} may do more than ops", code, line)
                    return value
                if type(value) is property:
                    self.add_value(value.fget, name, code, line)
                elif type(value) in (staticmethod, classmethod):
                    self.add_value(value.__func__, name, code, line)
                elif type(value) in (types.FunctionType, CACHED) or not hasattr(type(value), "__get__"):
                    self.add_value(value, name, code, line)
                elif not (is_named_tuple(base) and name in base._fields):
                    raise Impure(f"{name} is {described(value)}", code, line)
                return value
        return None


def _is_slot(kind, name):
    """Whether objects of a class have a place of their own for an attribute."""
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return type(found) is types.MemberDescriptorType
