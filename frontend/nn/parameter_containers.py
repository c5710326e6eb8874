"""Parameters in lists and dicts: ParameterList, ParameterDict. A tensor put into one becomes a Parameter."""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from ..runtime.state.tensor import Tensor
from .module import Module
from .parameter import Parameter

LAYERS = ("ParameterDict", "ParameterList")


class _Holding(Module):
    """What both share: elements are attributes, and the text names them."""

    def _put(self, name, value):
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, name, value)

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self).__name__} should not be called.")

    def _lines(self, items, type_name):
        return "\n".join(f"  ({key}): {_described(value, type_name)}" for key, value in items)


def _described(value, type_name):
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"{kind} containing: [{type_name(value)} of size {'x'.join(map(str, value.shape))}]"


class ParameterList(_Holding):
    """A list of parameters, seen by the module that holds it. Other objects may be in it."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name_at(self, index):
        index, size = operator.index(index), len(self)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range")
        return str(index % size)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)([self[k] for k in range(*index.indices(len(self)))])
        return getattr(self, self._name_at(index))

    def __setitem__(self, index, value):
        self._put(self._name_at(index), value)

    def __len__(self):
        return self._size

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __iadd__(self, values):
        return self.extend(values)

    def append(self, value):
        """Add an element at the end; returns self."""
        self._put(str(len(self)), value)
        self._size += 1
        return self

    def extend(self, values):
        """Append all of them; returns self."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self):
        return self._lines(enumerate(self), lambda x: x.dtype)


class ParameterDict(_Holding):
    """A dict of parameters by names, seen by the module that holds it. Other objects may be in it."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def _name(self, key):
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}')."
            )
        return key

    def __getitem__(self, key):
        return getattr(self, self._name(key))

    def __setitem__(self, key, value):
        self._put(self._name(key), value)
        self._keys[key] = None

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, key)

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(self._keys)

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self):
        for key in list(self):
            del self[key]

    def pop(self, key):
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """The pair that was added last, taken out."""
        key = next(reversed(self))
        return key, self.pop(key)

    def get(self, key, default=None):
        return self[key] if key in self._keys else default

    def fromkeys(self, keys, default=None):
        """A new ParameterDict with these keys."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        return self._keys.keys()

    def items(self):
        return ((key, self[key]) for key in self._keys)

    def values(self):
        return (self[key] for key in self._keys)

    def update(self, parameters):
        """Take over a mapping, or (key, value) pairs. The keys of a plain dict are sorted, as in PyTorch."""
        if not isinstance(parameters, (Iterable, ParameterDict)):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(parameters).__name__}"
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs = parameters.items()
        else:
            pairs = sorted(parameters.items()) if isinstance(parameters, Mapping) else parameters
        for k, pair in enumerate(list(pairs)):
            if len(pair) != 2:
                raise ValueError(f"ParameterDict update sequence element #{k} has length {len(pair)}; 2 is required")
            self[pair[0]] = pair[1]

    def __or__(self, other):
        result = self.copy()
        result.update(other)
        return result

    def __ror__(self, other):
        result = other.copy()
        result.update(self)
        return result

    def __ior__(self, other):
        self.update(other)
        return self

    def extra_repr(self):
        return self._lines(self.items(), lambda x: f"{type(x).__module__.partition('.')[0]}.{_plain_type(x)}")


def _plain_type(x):
    names = {"float32": "FloatTensor", "float64": "DoubleTensor", "int64": "LongTensor", "int32": "IntTensor"}
    return names.get(x.dtype.name, type(x).__name__)
