"""Modules made of modules: Sequential, ModuleList, ModuleDict."""

import operator
from collections import OrderedDict

from ..runtime.state.marks import pure
from .module import Module


def _given(module):
    """name -> the child as it was given: calls go to what was compiled of it, where that was."""
    children = module._modules
    if not module._has_compiled:
        return children
    given = {name: module.__dict__.get(name, child) for name, child in children.items()}
    return {
        name: x if getattr(x, "compiled_module", None) is children[name] else children[name]
        for name, x in given.items()
    }


class _Numbered(Module):
    """Children named "0", "1", ..., with the protocol of a list."""

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(_given(self).values())

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._of_slice(list(_given(self).items())[index])
        return _given(self)[self._name_at(index)]

    def __setitem__(self, index, module):
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index):
        chosen = range(len(self))[index]
        removed = set(chosen) if isinstance(index, slice) else {chosen}
        self._renumber([m for k, m in enumerate(self) if k not in removed])

    def append(self, module):
        """Add a module at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Append all of them; returns self."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index, module):
        """Put a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def pop(self, key):
        """Take the module at a position out, and return it."""
        module = self[key]
        del self[key]
        return module

    def _renumber(self, modules):
        for name in list(self._modules):
            delattr(self, name)
        self.extend(modules)

    def _name_at(self, index):
        size, index = len(self), operator.index(index)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range for {size} modules")
        return list(self._modules)[index]


class Sequential(_Numbered):
    """Modules called one after the other: Sequential(a, b), or Sequential({"first": a, "second": b}) with names."""

    def __init__(self, *modules):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], dict):
            named = modules[0].items()
        else:
            if len(modules) == 1 and isinstance(modules[0], (list, tuple)):
                raise TypeError(f"{type(modules[0]).__name__} is not a Module subclass; write Sequential(*modules)")
            named = ((str(k), module) for k, module in enumerate(modules))
        for name, module in named:
            self.add_module(name, module)

    def insert(self, index, module):
        """Put a module before position `index`; returns self."""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}, of {len(self)} modules")
        super().insert(index, module)
        return self

    @pure()
    def forward(self, input):
        for module in (_given(self) if self._has_compiled else self._modules).values():
            input = module(input)
        return input

    def _of_slice(self, items):
        return type(self)(OrderedDict(items))

    def __add__(self, other):
        return Sequential(*self, *_sequential(other))

    def __iadd__(self, other):
        return self.extend(_sequential(other))

    def __mul__(self, other):
        return Sequential(*[*self] * _times(other))

    def __rmul__(self, other):
        return self * other

    def __imul__(self, other):
        return self.extend([*self] * (_times(other) - 1))


def _sequential(other):
    if not isinstance(other, Sequential):
        raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
    return other


def _times(other):
    if not isinstance(other, int):
        raise TypeError(f"unsupported operand type(s) for *: Sequential and {type(other)}")
    if other <= 0:
        raise ValueError(f"Non-positive multiplication factor {other} for Sequential")
    return other


class ModuleList(_Numbered):
    """A list of modules whose parameters are seen by the module that holds it. It has no forward."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _of_slice(self, items):
        return type(self)(module for _, module in items)

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __repr__(self):
        """As PyTorch prints it: runs of equal modules as one line, (0-3): 4 x Linear(...)."""
        if not len(self):
            return f"{self._get_name()}()"
        runs = []
        for k, text in enumerate(map(repr, self._modules.values())):
            if runs and runs[-1][2] == text:
                runs[-1][1] = k
            else:
                runs.append([k, k, text])
        lines = [_run_line(*run) for run in runs]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


def _run_line(first, last, text):
    where = f"({first})" if first == last else f"({first}-{last})"
    times = "" if first == last else f"{last - first + 1} x "
    return f"{where}: {times}{text}".replace("\n", "\n  ")


class ModuleDict(Module):
    """A dict of modules whose parameters are seen by the module that holds it. It has no forward."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return _given(self)[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        delattr(self, key)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def keys(self):
        return self._modules.keys()

    def values(self):
        return _given(self).values()

    def items(self):
        return _given(self).items()

    def update(self, modules):
        """Add modules from a mapping, or from (key, module) pairs."""
        for key, module in modules.items() if hasattr(modules, "items") else modules:
            self[key] = module

    def pop(self, key):
        module = self[key]
        del self[key]
        return module

    def clear(self):
        for key in list(self):
            del self[key]
