"""What a function may name and still do nothing but ops (pure_code.py): by the kind of value."""

import builtins
import enum
import itertools
import math
import operator
import sys
import types
from abc import ABCMeta
from functools import lru_cache, reduce
from typing import Protocol

import numpy as np

from . import fft, func, linalg, special
from .autograd import grad
from .compiler.dtypes import DType
from .compiler.ops.table import Op
from .families import FAMILIES
from .later_families import joined
from .nn import functional
from .paths import FAMILY_OF_FUNCTION
from .runtime.state.modes import enable_grad, grad_mode, inference_mode, no_grad
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor
from .spelled import FORMS

PACKAGE = __name__.partition(".")[0]
_BUILTINS = frozenset(str.split("""
    abs all any bool callable complex dict divmod enumerate filter float frozenset int isinstance issubclass iter len
    list map max min next pow range reversed round set slice sorted str sum tuple type zip
"""))  # fmt: skip
_PLAIN = (type(None), bool, int, float, complex, str, bytes, DType, Size, np.dtype, np.float64, np.float32, np.int64,
          np.bool_, type(Ellipsis), np.ufunc, Op)  # fmt: skip
CACHED = type(lru_cache(id))  # the type of functions with a cache
_PLAIN_SET = frozenset((type(None), bool, int, float, str, bytes))  # types that compare by value
_TYPES = frozenset((Tensor, DType, Size, enable_grad, inference_mode, no_grad, np.ndarray, np.float64, np.float32,
                    np.int64, np.bool_))  # fmt: skip
_OF_PYTHON = frozenset((math.__name__, operator.add.__module__))
# Of NumPy: what reads and writes files, or how the next calls work. Writing to arrays is seen by comparing them.
_OF_FILES = frozenset(str.split("fromfile fromregex genfromtxt memmap open_memmap frombuffer from_dlpack info"))
_BEGINNINGS = ("get", "set", "save", "load", "show", "print", "errstate", "test")
_APART = frozenset(("settings", "draws", "placement", "interchange", "amp", "tensor_types", "tensor_methods"))
_NO_TRANSFORMS = ("replace_all_batch_norm_modules_", "stack_module_state")


def is_harmless(value):
    """Whether it is no more than a value, or computes values of values and does nothing else."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, np.dtype) or kind is frozenset and _PLAIN_SET.issuperset(map(type, value)):
        return True
    if isinstance(value, type):
        return value in _TYPES or value.__module__ == itertools.__name__ or _is_bare_error(value)
    if kind is types.BuiltinFunctionType and (value.__module__ in _OF_PYTHON or value in (reduce, tuple.__new__)):
        return True
    return callable(value) and _is_of_numpy(value)


def is_harmless_builtin(name):
    """Whether a name of Python's own is one of a function, type or exception that does nothing else."""
    value = vars(builtins).get(name)
    return name in _BUILTINS or isinstance(value, type) and issubclass(value, Exception)


def is_known_function(function):
    """Whether it is one of weft's functions that do nothing but ops."""
    if len(_known_of) != len(joined) + 1:
        _known.update(_known_functions())
        _known_of[:] = [None, *joined]
    return function in _known or _is_of_numpy(function) or _is_divergence(function) or _is_gone(function)


def is_transformed(function):
    """Whether it is what a transformation or mode of weft's makes of another function, which is in its closure."""
    return function.__code__ in _TRANSFORMED


_TRANSFORMED = {
    code
    for transformation in (
        func.grad,
        func.grad_and_value,
        func.jacrev,
        func.jacfwd,
        func.vmap,
        grad_mode.__call__,
        inference_mode.__call__,
    )
    for code in transformation.__code__.co_consts
    if type(code) is types.CodeType
}


def _is_gone(function):
    """weft.solve and its like, which only raise: code that names linalg's names them, too."""
    home = sys.modules.get(f"{PACKAGE}.older")
    return home is not None and any(function is getattr(home, name) for name in home.GONE)


def _is_divergence(function):
    home = sys.modules.get(f"{PACKAGE}.distributions.kl")
    return home is not None and function is home.kl_divergence


def is_distribution_class(value):
    """Whether it is one of weft's classes of distributions, of their constraints or transforms."""
    home = f"{PACKAGE}.distributions."
    return isinstance(value, type) and isinstance(value.__module__, str) and value.__module__.startswith(home)


def formulas_of_others(function, classes):
    """Functions of users' that a function of weft's may call for objects of these classes: formulas of divergences."""
    if not _is_divergence(function):
        return []
    home = sys.modules[function.__module__]
    classes = [*classes, *(x for x in vars(sys.modules[f"{PACKAGE}.distributions"]).values() if isinstance(x, type))]
    classes += [kind for kind in vars(builtins).values() if isinstance(kind, type)]
    return [
        formula
        for pair, formula in home._FORMULAS.items()
        if formula.__module__ != home.__name__ and all(any(issubclass(c, kind) for c in classes) for kind in pair)
    ]


def is_plain_object(kind):
    """Whether reading an attribute of such an object is looking into its dict or slots and the dicts of its classes."""
    # What inherits from a list, a dict or the like has more than that, and so has a class of an extension.
    has_place = kind.__dictoffset__ != 0 or all("__slots__" in vars(base) for base in kind.__mro__[:-1])
    return (
        type(kind) in (type, ABCMeta, type(Protocol))
        and _is_plain(kind)
        and kind.__new__ is object.__new__
        and has_place
    )


def is_plain_class(kind):
    """The same of a class. (With abstract methods, what is an instance of it may change.)"""
    return type(kind) is type and _is_plain(kind)


def _is_plain(kind):
    if not isinstance(kind.__module__, str):  # of an extension
        return False
    ours = kind.__module__.partition(".")[0] in (PACKAGE, "builtins", "numpy", "types")
    plain = kind.__getattribute__ in (object.__getattribute__, tuple.__getattribute__)
    return plain and not hasattr(kind, "__getattr__") and not ours


def is_namespace(kind):
    """Whether a class is one of Python's own whose objects have attributes and nothing else."""
    home = sys.modules.get("argparse")
    return kind is types.SimpleNamespace or home is not None and kind is home.Namespace


def is_enumeration(kind):
    """Whether a class is an enumeration of a user's, as the language makes it."""
    if type(kind) is not enum.EnumMeta or is_of_enum(kind):
        return False
    return not any(
        name in vars(base)
        for base in kind.__mro__
        for name in ("__getattr__", "__getattribute__", "_missing_")
        if not (is_of_enum(base) or base is object)
    )


def is_of_enum(kind):
    """Whether a class is one that enumerations inherit from, of Python's own."""
    return kind.__module__ == enum.__name__ or kind in (int, str, float)


def is_named_tuple(kind):
    """Whether a class is one of those that `namedtuple` and `NamedTuple` make, or inherits from one."""
    return is_plain_class(kind) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_made_of_attributes(kind):
    """Whether instances of a class of the user's have attributes in a dict, and nothing else."""
    if not is_plain_class(kind) or kind.__new__ is not object.__new__ or hasattr(kind, "__del__"):
        return False
    classes = [base for base in kind.__mro__ if base is not object]
    return kind.__dictoffset__ != 0 and not any(vars(base).get("__slots__") for base in classes)


def described(value):
    """What there is to say about a value that is not known."""
    if isinstance(value, np.ndarray):
        return "an array that cannot be compared: weft.tensor(array), made outside, may be read"
    if isinstance(value, (list, dict, set)):
        return f"a {type(value).__name__}, which may change unseen"
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}, whose methods may do anything"


def _is_bare_error(kind):
    """Whether it is a class of exceptions whose making runs no code of a user's."""
    made = ("__init__", "__new__", "__init_subclass__")
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] != PACKAGE]
    return issubclass(kind, Exception) and not any(
        type(vars(base).get(name)) is types.FunctionType for base in bases for name in made
    )


def _is_of_numpy(function):
    """Whether it is a function of NumPy's that computes arrays of arrays."""
    home, name = getattr(function, "__module__", None), getattr(function, "__name__", "")
    if home not in _HOMES_OF_NUMPY or isinstance(function, type):
        return False
    ours = getattr(sys.modules[home], name, None) is function
    return ours and name not in _OF_FILES and not name.startswith(_BEGINNINGS)


_HOMES_OF_NUMPY = ("numpy", "numpy.linalg", "numpy.fft")
_known, _known_of = set(), []  # of which families that come later, once they have been collected


def _known_functions():
    """Those in the families of functions by PyTorch's names, but for what sets, shares or draws; by no user."""
    names = {name for home in FAMILIES if home.__name__.rpartition(".")[2] not in _APART for name in home.PUBLIC}
    names |= {name for name, family in FAMILY_OF_FUNCTION.items() if family in joined and family not in _APART}
    root, homes = sys.modules[PACKAGE], (functional, fft, linalg, special)
    found = [vars(root).get(name) for name in names | FORMS[""].keys()]
    found += [value for home in homes for name, value in vars(home).items() if name[0] != "_" and name[-1] != "_"]
    # Code names `grad` or `hessian`, not whose: those of arrays read what they are given, which is seen.
    found += [getattr(root, name, None) for name in ("grad", "hessian", "hvp", "jacobian", "value_and_grad")]
    found += [grad, *(getattr(func, name) for name in func.__all__ if name not in _NO_TRANSFORMS)]
    return {x for x in found if type(x) is types.FunctionType and x.__module__.partition(".")[0] == PACKAGE}
