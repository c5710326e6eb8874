"""Whether a function of a user's does nothing but ops on what it is given: proved from its code object.

A function that is proved so need not run again to know what it would do, as long as all that it reads outside is what
it was. `reads_of` finds what that is: values of globals, closures, defaults, attributes of modules and objects, as rows
that `Reads.hold` compares by identity. A value may be a number, a string, a tensor, a function of weft's, of `math` or
of NumPy's elementwise ones, or a function of the user's, which is read like the first one; or the module or object that
such values are attributes of. What else it names (a list, an array, `print`, a clock) is a reason to run it every time.

Tensors are compared by identity alone, and the program reads their memory. That numbers were made of what is in there,
or of an argument, code does not show: whoever runs the function once more watches that (`prepared.py`).
"""

import builtins
import dis
import operator
import sys
import types
from functools import partial

import numpy as np

from .array_bytes import ArrayBytes
from .nn.hooks import EVERYWHERE
from .nn.module import Module
from .paths import PathModule
from .public import is_there
from .pure_containers import ReadsOfContainers, is_known_container
from .pure_objects import Impure, ReadsOfObjects
from .pure_values import (
    PACKAGE,
    described,
    formulas_of_others,
    is_distribution_class,
    is_enumeration,
    is_harmless,
    is_harmless_builtin,
    is_known_function,
    is_named_tuple,
    is_namespace,
    is_plain_class,
    is_plain_object,
    is_transformed,
)
from .runtime.replay import eager_native, native_layout
from .runtime.replay.compiled_call import Calls
from .runtime.state.tensor import Tensor

# Of tensors: what changes them, or what others see of them; of lists and dicts that a call makes, what is theirs.
_CHANGES = frozenset(
    str.split("""
    backward grad grad_fn register_hook register_post_accumulate_grad_hook requires_grad_ retain_grad new_empty
    share_memory_ set_ pin_memory untyped_storage storage is_shared resize_ resize_as_ data_ptr detach_
""")
)
# What an outer list or dict is changed by is among them: that is seen by comparing it after a call.
_OF_CONTAINERS = frozenset(str.split("""
    append clear extend insert popitem remove reverse setdefault sort update items keys values get format join index
    indices count pop copy astype from_iterable startswith endswith split lower upper strip replace is_integer
"""))  # fmt: skip
# Writing to what outlives the call, importing, bodies of classes, and what is looked up in unusual ways.
_REFUSED = frozenset(
    str.split("""
    STORE_GLOBAL DELETE_GLOBAL STORE_ATTR DELETE_ATTR STORE_NAME DELETE_NAME LOAD_NAME IMPORT_STAR LOAD_BUILD_CLASS
    LOAD_CLASSDEREF LOAD_LOCALS LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF LOAD_SUPER_ATTR SETUP_ANNOTATIONS
    PRINT_EXPR GET_AWAITABLE GET_AITER GET_ANEXT SEND BEFORE_ASYNC_WITH
""")
)
_OF_OPERATORS = ("__getitem__", "__len__", "__iter__", "__contains__", "__enter__", "__exit__", "__bool__")
_OF_CELLS = ("LOAD_DEREF", "LOAD_CLOSURE", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF")
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_LAST_KNOWN = (3, 14)  # CPython whose instructions these are
_MOST_FUNCTIONS, _MOST_PARTS = 64, 1 << 12
_MOST_BYTES = 1 << 18  # of arrays: comparing more takes as long as running the function
_KEYS = (str, int, float, bool, bytes, type(None))


def reads_of(function, *given):
    """The Reads of a function that is given these objects, besides tensors and plain values. Raises Impure."""
    if sys.version_info[:2] > _LAST_KNOWN:
        raise Impure("the code of this version of Python is not known")
    # Later it would change the class of tensors, whose version is compared.
    eager_native.install()
    reads = Reads()
    reads.add_value(function, "the function", None, None)
    for x in given:
        reads.add_value(x, "an argument", None, None)
    reads.seal()
    return reads


class Reads(ReadsOfContainers, ReadsOfObjects):
    """What a function reads outside, and what that was.

    tensors: those among them, whose memory is not compared. filling: code objects that may give what their first
    parameter is attributes, as an `__init__` does.
    """

    def __init__(self, filling=()):
        self._filling = filling
        self.tensors = []
        self.items, self.absent = [], []  # (dict, name, value) of what is in a dict; of what is not
        self.attributes, self.cells = [], []  # (object, name, value); (cell, value)
        self.classes = {Tensor: native_layout.type_version(Tensor)}  # class -> its version
        self.lists, self.dicts, self.arrays = [], [], []  # (list, items); (dict, keys, values); ArrayBytes
        self._seen, self._containers, self._names, self._ids = {}, {}, [], frozenset()
        self._unknown = {}  # name of an attribute -> where it is read, of nothing that is known so far
        # Attributes that are plain values: of what an `__init__` has made, and of objects of weft's.
        self._of_known_objects = set()
        self._known = {}  # function of weft's -> where it is named
        self._n_functions = self._n_parts = self._n_bytes = 0

    def add_value(self, value, name, code, line):
        """A value that code names."""
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        kind = type(value)
        if isinstance(value, Tensor):
            self._add_tensor(value, name, code, line)
        elif kind is types.FunctionType:
            if is_known_function(value):
                self._known[value] = code, line
            else:
                self._add_function(value, code, line)
        elif kind is types.MethodType:
            self.add_value(value.__func__, name, code, line)
            self.add_value(value.__self__, name, code, line)
        elif kind is partial:
            self._add_partial(value, name, code, line)
        elif kind in (tuple, list, dict) or is_named_tuple(kind):
            self._add_parts(value, name, code, line)
        elif is_known_container(kind):
            self._add_container_of_python(value, name, code, line)
        elif kind is np.ndarray and not value.dtype.hasobject:
            self._add_array(value, name, code, line)
        elif kind is types.ModuleType:
            self._add_container(value)
        elif kind is PathModule:
            self._add_container(value)
            for source in value._sources:
                self.add_value(source, name, code, line)
        elif isinstance(value, Calls):
            # In another call it is the function that it was made of.
            self.attributes.append((value, "function", value.function))
            self.add_value(value.function, name, code, line)
        elif is_harmless(value):
            return
        elif isinstance(value, Module):
            self._add_module(value, name, code, line)
        elif is_distribution_class(value):
            self._add_distribution_class(value, code, line)
        elif is_distribution_class(kind):
            self._add_distribution(value, name, code, line)
        elif isinstance(value, type) and is_plain_class(value):
            self._add_class(value, code, line)
        elif is_namespace(kind):
            self._add_namespace(value)
        elif is_enumeration(kind) or is_enumeration(value):
            self._add_enumeration(value if isinstance(value, type) else kind, code, line)
        elif is_plain_object(kind):
            self._add_object(value, code, line)
        else:
            raise Impure(f"{name} is {described(value)}", code, line)

    def _add_tensor(self, tensor, name, code, line):
        if type(tensor).__module__.partition(".")[0] not in (PACKAGE, "torch"):  # which is weft too (importing.py)
            raise Impure(f"{name} is of a class that inherits from Tensor", code, line)
        if not tensor.is_leaf or tensor._data is None:
            raise Impure(f"{name} is a tensor with a history", code, line)
        self.tensors.append(tensor)

    def _add_partial(self, value, name, code, line):
        for part in (value.func, *value.args, *value.keywords.values()):
            self.add_value(part, name, code, line)
        self.attributes += [(value, name, getattr(value, name)) for name in ("func", "args", "keywords")]
        self._read(value.keywords, value.keywords)

    def _count_parts(self, number, name, code, line):
        self._n_parts += number
        if self._n_parts > _MOST_PARTS:
            raise Impure(f"what it reads has more than {_MOST_PARTS} parts, {name} among them", code, line)

    def _add_parts(self, value, name, code, line):
        if type(value) is dict:
            return self._add_dict(value, name, code, line)
        self._count_parts(len(value), name, code, line)
        parts = tuple(value)
        if type(value) is list:
            self.lists.append((value, parts))
        elif type(value) is not tuple:
            self._add_class(type(value), code, line)
        for part in parts:
            self.add_value(part, f"a part of {name}", code, line)

    def _add_dict(self, value, name, code, line):
        self._count_parts(len(value), name, code, line)
        if not all(type(key) in _KEYS for key in value):
            raise Impure(f"{name} is a dict by other keys than strings and numbers", code, line)
        parts = tuple(value.values())
        self.dicts.append((value, tuple(value), parts))
        for part in parts:
            self.add_value(part, f"a part of {name}", code, line)

    def _add_distribution_class(self, kind, code, line):
        """One of weft's, or of its constraints and transforms: with formulas alone, and checks that are ops."""
        self._add_version(kind, code, line)
        self._of_known_objects.update(name for name in dir(kind) if name[0] != "_")

    def _add_distribution(self, value, name, code, line):
        self._add_distribution_class(type(value), code, line)
        own = vars(value)
        self.attributes.append((value, "__class__", type(value)))
        self._add_parts(own, name, code, line)

    def _add_module(self, module, name, code, line):
        """A layer or model: all that it has, and of the user's classes what they do."""
        own, kind = vars(module), type(module)
        if hasattr(kind, "__getattr__") and kind.__getattr__ is not Module.__getattr__:
            raise Impure(f"{kind.__qualname__} has a __getattr__ of its own", code, line)
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or EVERYWHERE:
            raise Impure(f"{name} has hooks", code, line)
        self._add_version(kind, code, line)
        self.attributes.append((module, "__class__", kind))
        self.dicts.append((own, tuple(own), tuple(own.values())))
        for key, value in own.items():
            if key != "_non_persistent":
                self.add_value(value, key, code, line)
        for base in kind.__mro__[:-1]:
            ours = base.__module__.partition(".")[0] == PACKAGE
            for key, value in vars(base).items():
                if not ours and callable(value) and (key in ("forward", "__call__") or key in _OF_OPERATORS):
                    self.add_value(value, f"{kind.__qualname__}.{key}", code, line)
        self._add_container(module)

    def _add_array(self, array, name, code, line):
        read = ArrayBytes(array)
        self._n_bytes += read.n_bytes
        if self._n_bytes > _MOST_BYTES:
            raise Impure(f"{name} is a NumPy array too large to compare: weft.tensor(array), made outside, may be read",
                         code, line)  # fmt: skip
        self.arrays.append(read)

    def _add_function(self, function, code, line):
        if is_transformed(function):
            # It does what its function does, with what it was made with.
            own = function.__code__
            self.attributes.append((function, "__code__", own))
            for name, cell in zip(own.co_freevars, function.__closure__):
                self.cells.append((cell, cell.cell_contents))
                self.add_value(cell.cell_contents, name, code, line)
            return
        if function.__module__ is not None and function.__module__.partition(".")[0] == PACKAGE:
            raise Impure(f"weft's {function.__qualname__} may do more than ops", code, line)
        self._n_functions += 1
        if self._n_functions > _MOST_FUNCTIONS:
            raise Impure(f"it calls more than {_MOST_FUNCTIONS} functions", code, line)
        code, names = function.__code__, ("__code__", "__defaults__", "__kwdefaults__")
        self.attributes += [(function, name, getattr(function, name)) for name in names]
        for value in function.__defaults__ or ():
            self.add_value(value, "a default", code, code.co_firstlineno)
        if function.__kwdefaults__:
            self._read(function.__kwdefaults__, function.__kwdefaults__)
            for name, value in function.__kwdefaults__.items():
                self.add_value(value, name, code, code.co_firstlineno)
        outside = dict(zip(code.co_freevars, function.__closure__ or ()))
        self._add_code(code, function.__globals__, outside)

    def _add_code(self, code, globals_, cells):
        line, own = code.co_firstlineno, _new_object(code, code in self._filling)
        before = level = None  # the last instruction, and the last but one
        for step in dis.get_instructions(code):
            line = _line_of(step) or line
            name, what = step.opname, step.argval
            if name == "STORE_ATTR" and own is not None and _is_loaded(own, before):
                self._of_known_objects.add(what)
            elif name in _REFUSED:
                raise Impure(_refusal(name, what), code, line)
            if name == "IS_OP" and not self._is_of_values(before):
                raise Impure("it asks whether two names are of one object", code, line)
            if name == "IMPORT_NAME":
                self._add_import(what, level.argval, code, line)
            before, level = step, before
            if name == "LOAD_GLOBAL":
                self._add_global(globals_, what, code, line)
            elif name in _OF_CELLS:
                self._add_free(name, what, cells, code, line)
            elif name in _OF_ATTRIBUTES:
                self._add_name(what, code, line)
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                self._add_code(inner, globals_, {name: cells.get(name) for name in inner.co_freevars})

    def _is_of_values(self, step):
        """Whether an instruction leaves something on the stack that no argument is, other than by its value."""
        if step is None or step.opname not in (
            "LOAD_CONST",
            "LOAD_SMALL_INT",
            "LOAD_GLOBAL",
            "LOAD_DEREF",
            *_OF_ATTRIBUTES,
        ):
            return False
        found = [value for _, name, value in (*self.items, *self.attributes) if name == step.argval]
        if step.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            found = []
        elif step.opname == "LOAD_DEREF":
            found = [value for _, value in self.cells]
        return not any(isinstance(value, (Tensor, list, dict, np.ndarray)) for value in found)

    def _add_free(self, opname, name, cells, code, line):
        """A variable of the function around this one, unless that is part of the same call."""
        cell = cells.get(name)
        if cell is None:
            return
        if not opname.startswith("LOAD"):
            raise Impure(f"it assigns to {name}, which is not its own", code, line)
        try:
            value = cell.cell_contents
        except ValueError:
            raise Impure(f"{name} has no value yet", code, line) from None
        self.cells.append((cell, value))
        self.add_value(value, name, code, line)

    def _add_global(self, globals_, name, code, line):
        if name in globals_:
            self._read(globals_, {name: globals_[name]})
            self.add_value(globals_[name], name, code, line)
        elif is_harmless_builtin(name) and globals_.get("__builtins__", builtins) in (builtins, vars(builtins)):
            self._read(vars(builtins), {name: getattr(builtins, name)})
            self._add_absent(globals_, name)
        else:
            raise Impure(f"it uses {name}, which may do anything", code, line)

    def _add_import(self, name, level, code, line):
        """Of a module that was imported before, which is looking it up. level: how many packages up its name begins."""
        for k in range(name.count(".") + 1):
            path = name.rsplit(".", k)[0]
            if level != 0 or path not in sys.modules:
                raise Impure(f"it imports {name}", code, line)
            self._read(sys.modules, {path: sys.modules[path]})
            self.add_value(sys.modules[path], path, code, line)

    # --- attributes: which object one is read of, code does not show -------------------------------------------------
    def _add_name(self, name, code, line):
        if name in ("__init__", "__new__"):
            raise Impure(f"it calls {name}", code, line)
        self._names.append((name, code, line))
        known = name in _OF_CONTAINERS or not name.startswith("_") and name not in _CHANGES and is_there(Tensor, name)
        found = [self._add_attribute(thing, name, code, line) for thing in list(self._containers.values())]
        if not known and not any(found):
            self._unknown.setdefault(name, (code, line))

    def _read(self, namespace, values):
        self.items += [(namespace, name, value) for name, value in values.items()]

    def _add_absent(self, namespace, name):
        self.absent.append((namespace, name, None))

    def allow(self, names):
        """Attributes of what is known by other means."""
        self._of_known_objects.update(names)

    def allowed(self):
        return frozenset(self._of_known_objects)

    def names(self):
        """All that code names, until `seal`: attributes, globals and builtins."""
        return {name for name, *_ in self._names} | {name for _, name, _ in self.items}

    def ids(self):
        """Of the objects that it reads, and of lists and dicts in them: they were there before."""
        containers = [*(items for items, _ in self.lists), *(items for items, *_ in self.dicts)]
        return {*self._ids, *map(id, containers)}

    # --- comparing ----------------------------------------------------------------------------------------------------
    def seal(self):
        """Nothing is added any more."""
        for name in self._unknown.keys() - self._of_known_objects:
            where = self._unknown[name]
            raise Impure(f"it reads the attribute {name}, of what cannot be seen", *where)
        for function, where in self._known.items():
            for formula in formulas_of_others(function, self.classes):
                raise Impure(f"{function.__name__} may call {formula.__qualname__}", *where)
        self._ids = frozenset(self._seen)
        self._names, self._containers, self._seen, self._known = [], {}, {}, {}
        for name in ("items", "absent", "attributes"):
            rows = {(id(holder), key): (holder, key, value) for holder, key, value in getattr(self, name)}
            setattr(self, name, list(rows.values()))

    def rows(self):
        """All that is compared, by what it is."""
        return {
            "items": self.items,
            "absent": self.absent,
            "attributes": self.attributes,
            "cells": [(cell, None, value) for cell, value in self.cells],
            "classes": list(self.classes.items()),
            "lists": self.lists,
            "dicts": self.dicts,
            "arrays": self.arrays,
        }

    def hold(self):
        """Whether all is what it was."""
        try:
            return (
                all(holder[name] is value for holder, name, value in self.items)
                and all(getattr(holder, name) is value for holder, name, value in self.attributes)
                and all(cell.cell_contents is value for cell, value in self.cells)
                and not any(name in holder for holder, name, _ in self.absent)
                and all(native_layout.type_version(kind) == version for kind, version in self.classes.items())
                and all(_are_same(items, parts) for items, parts in self.lists)
                and all(_are_same(d, keys) and _are_same(d.values(), parts) for d, keys, parts in self.dicts)
                and all(array.holds() for array in self.arrays)
            )
        except (KeyError, AttributeError, ValueError):  # deleted
            return False


def _line_of(step):
    found = step.starts_line
    return getattr(step, "line_number", None) if isinstance(found, bool) else found  # a bool since CPython 3.13


def _refusal(opname, name):
    if opname in ("STORE_ATTR", "DELETE_ATTR"):
        return f"it changes the attribute {name}"
    if "GLOBAL" in opname:
        return f"it assigns to the global {name}"
    return f"it has an import, a class or the like ({opname})"


def _new_object(code, is_filling):
    """The name of what an `__init__` or the like is given to fill, if it stays that."""
    is_init = (is_filling or code.co_name == "__init__") and code.co_argcount > 0
    stored = {str(s.argval) for s in dis.get_instructions(code) if is_init and "STORE_FAST" in s.opname}
    return code.co_varnames[0] if is_init and code.co_varnames[0] not in " ".join(stored).split() else None


def _is_loaded(name, step):
    """Whether an instruction leaves the variable on top of the stack."""
    # From 3.14 on variables may be lent to the stack.
    is_variable = step is not None and step.opname.removesuffix("_BORROW").endswith("LOAD_FAST")
    found = step.argval if is_variable else None
    return (found[-1] if isinstance(found, tuple) else found) == name


def _are_same(found, wanted):
    return len(found) == len(wanted) and all(map(operator.is_, found, wanted))
