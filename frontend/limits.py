"""finfo and iinfo: the limits of element types, as Python numbers."""

import numpy as np

from .compiler.dtypes import DType, bfloat16, dtype_of
from .runtime.state.modes import state


class _Limits:
    """Compared and printed by what it says."""

    __slots__ = ()

    def _values(self):
        return {name: getattr(self, name) for name in self.__slots__}

    def __eq__(self, other):
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self):
        return hash((self.dtype, self.bits))

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._values().items())})"


class _Bfloat16:
    """What np.finfo would say of it."""

    bits, eps, resolution = 16, 2.0**-7, 0.01
    max, min = (2 - 2.0**-7) * 2.0**127, -(2 - 2.0**-7) * 2.0**127
    smallest_normal = 2.0**-126


_known = {}  # type -> its finfo, which programs ask in every step for eps


class finfo(_Limits):
    """Limits of a floating type, by default the default one. `resolution` is 10 to the minus decimal digits."""

    __slots__ = ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype")

    def __new__(cls, type=None):
        """One object for all calls of a type."""
        type = state.default_dtype if type is None else type
        found = _known.get(type) if type.__class__ is DType else None
        return cls._of(dtype_of(type).to_real(), type) if found is None else found

    @classmethod
    def _of(cls, type, given):
        if not type.is_floating_point:
            raise TypeError(f"finfo: requires a floating point type, got {type}; use iinfo for integers")
        self = _known.setdefault(type, object.__new__(cls))
        self._read(type)
        if given.__class__ is DType:
            _known[given] = self
        return self

    def __reduce__(self):
        return finfo, (next(type for type, known in _known.items() if known is self),)

    def _read(self, type):
        limits = _Bfloat16 if type is bfloat16 else np.finfo(type.numpy)
        self.bits, self.dtype = limits.bits, type.name
        self.eps, self.max, self.min = float(limits.eps), float(limits.max), float(limits.min)
        self.tiny = self.smallest_normal = float(limits.smallest_normal)
        self.resolution = float(limits.resolution)


class iinfo(_Limits):
    """Limits of an integer type."""

    __slots__ = ("bits", "max", "min", "dtype")

    def __init__(self, type):
        type = dtype_of(type)
        if type.category != 1:
            raise TypeError(f"iinfo: requires an integer type, got {type}; use finfo for floating point types")
        limits = np.iinfo(type.numpy)
        self.bits, self.max, self.min, self.dtype = limits.bits, int(limits.max), int(limits.min), type.name
