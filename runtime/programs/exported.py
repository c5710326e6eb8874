"""Exported functions called from Python, and their addresses for other libraries: SciPy, numba, samplers.

`weft.aot` makes them and keeps them in memory; `load_exported` reads what `weft.export` has written. Neither LLVM nor
networkx is needed to load and call them.
"""

import ctypes
from pathlib import Path

import numpy as np

from ...compiler.extent import evaluate
from ..code import jit
from ..state.aligned import address_of

_ALIGNMENT = 64


class NativeFunction:
    """A C function on NumPy arrays: `f(*arguments)` gives its result, or a tuple of results. One without dimensions is
    a Python number.

    Arrays that have the argument's type and lie without gaps are read where they are, others are converted. What the
    function changes must be such an array. Calls of one object must not overlap; `copy` makes another one.

    address: of the C function, whose signature `declaration` gives. scratch_bytes: what its last parameter points to;
    None if that depends on extents, which the arrays tell here.
    """

    def __init__(self, library, described, state):
        self._library, self._described, self._state = library, described, state
        self.name, self.scratch_bytes = described["name"], described["scratch_bytes"]
        self.address = library.address(self.name)
        parameters = described["parameters"]
        self._extents = described["extents"]
        first = [ctypes.c_int64] * len(self._extents)
        pointers = [ctypes.c_void_p] * (len(parameters) + 1)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int, *first, *pointers)(self.address)
        self._arguments = [Argument(p) for p in parameters if "argument" in p["role"]]
        self._results = [(tuple(p["shape"]), np.dtype(p["dtype"])) for p in parameters if p["role"] == "result"]
        self._first, self._own_results = [], self._results
        if first:
            self._scratch_of = ctypes.CFUNCTYPE(ctypes.c_int64, *first)(library.address(f"{self.name}_scratch"))
        self._reserve(self.scratch_bytes or 0)
        fields = [address_of(a) for a in state.values()]
        self._struct = (ctypes.c_size_t * len(fields))(*fields)
        self._last = [ctypes.addressof(self._struct)] if state else []

    def __call__(self, *arguments):
        if len(arguments) != len(self._arguments):
            expected = ", ".join(str(a) for a in self._arguments)
            raise TypeError(f"{self.name} takes ({expected}), but {len(arguments)} arguments were given")
        if self._extents:
            self._set_extents(arguments)
        extents = dict(zip(self._extents, self._first))
        arrays = [wanted.array_of(x, extents) for wanted, x in zip(self._arguments, arguments)]
        results = [np.empty(shape, dtype) for shape, dtype in self._own_results]
        pointers = *map(address_of, arrays), *map(address_of, results), *self._last, self._scratch
        if self._function(*self._first, *pointers):
            # Which of them, the program does not say.
            what = "an index, a matrix to factorize or what a distribution checks"
            raise IndexError(f"{self.name}: {what} is out of range; nothing was changed")
        given = [x.item() if x.ndim == 0 else x for x in results]
        return given[0] if len(given) == 1 else tuple(given)

    def _set_extents(self, arguments):
        """Be ready for arrays of these sizes."""
        found = {}
        for wanted, x in zip(self._arguments, arguments):
            wanted.tell_extents(x, found)
        numbers = [found[name] for name in self._extents]
        if numbers == self._first:
            return
        n_bytes = self._scratch_of(*numbers)
        if n_bytes < 0:
            said = ", ".join(f"{name} is {n}" for name, n in zip(self._extents, numbers))
            raise ValueError(f"{self.name}: {said}, which it was not made for")
        self._own_results = [(_filled(shape, found), dtype) for shape, dtype in self._results]
        self._reserve(n_bytes)
        self._first = numbers

    def _reserve(self, n_bytes):
        self._memory = np.empty(n_bytes + _ALIGNMENT, np.uint8)
        self._scratch = -(-address_of(self._memory) // _ALIGNMENT) * _ALIGNMENT

    def copy(self):
        """Another object for the same function and state, with scratch memory of its own: one for each thread."""
        return NativeFunction(self._library, self._described, self._state)

    @property
    def declaration(self):
        """Its parameters in C: extents if there are any, pointers to elements, then the scratch memory, aligned to 64
        bytes."""
        names = [f"{p['name']} ({p['role']})" for p in self._described["parameters"]]
        first = [f"{extent} (extent)" for extent in self._extents]
        return f"int {self.name}({', '.join([*first, *names, 'scratch'])})"

    @property
    def ctypes(self):
        """The C function for ctypes and numba: addresses as integers, the scratch memory last; `scratch` is one."""
        return self._function

    @property
    def scratch(self):
        """The address of memory that can be passed as `scratch`, alive as long as this object."""
        return self._scratch

    def low_level_callable(self):
        """For `scipy.integrate` (quad, nquad, ...): a scipy.LowLevelCallable `double (int, double *, void *)`.

        The function must take one float64 array, of as many elements as there are integration variables and `args`, and
        give one float64 number. Raises TypeError otherwise. Keep this object while the result is in use.
        """
        kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.c_void_p)
        return self._for_scipy("low_level_callable", "scipy", kind)

    def low_level_filter(self):
        """For `scipy.ndimage.generic_filter`: a scipy.LowLevelCallable `int (double *, intptr_t, double *, void *)`.

        The function must take one float64 array, of as many elements as the filter looks at, and give one float64
        number. Raises TypeError otherwise; SciPy raises an error if its filter has another size. Keep this object while
        the result is in use.
        """
        numbers = ctypes.POINTER(ctypes.c_double)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, numbers, ctypes.c_ssize_t, numbers, ctypes.c_void_p)
        return self._for_scipy("low_level_filter", "filter", kind)

    def _for_scipy(self, name, form, kind):
        try:
            from scipy import LowLevelCallable
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"{name} needs SciPy, which is not installed: pip install scipy", name=missing.name
            ) from None

        try:
            address = self._library.address(f"{self.name}_{form}")
        except KeyError:
            raise TypeError(
                f"{self.declaration} is no function of one float64 array that gives one float64 number"
            ) from None
        return LowLevelCallable(kind(address), ctypes.c_void_p(self._scratch))

    def __repr__(self):
        return f"<weft native function {self.declaration}>"


class Argument:
    """What stands for one parameter."""

    def __init__(self, described):
        self.name, self.shape = described["name"], tuple(described["shape"])
        self.dtype, self.changed = np.dtype(described["dtype"]), described["role"] == "changed argument"
        self.is_open = any(isinstance(d, str) for d in self.shape)

    def tell_extents(self, x, found):
        """Note the extents, by name, that the array is the first to tell."""
        if not self.is_open:
            return
        shape = np.shape(x)
        if len(shape) != len(self.shape):
            raise ValueError(f"{self} was expected, got an array of shape {shape}")
        for name, n in zip(self.shape, shape):
            if isinstance(name, str):
                found.setdefault(name, n)

    def array_of(self, x, extents):
        is_ready = type(x) is np.ndarray and x.dtype == self.dtype and x.flags.c_contiguous
        if not is_ready:
            if self.changed:
                raise TypeError(f"{self} is changed in place: it must be such an array, without gaps")
            x = self._converted(np.asarray(x))
        if x.shape != (_filled(self.shape, extents) if self.is_open else self.shape):
            raise ValueError(f"{self} was expected, got an array of shape {x.shape}")
        if self.changed and not x.flags.writeable:
            raise ValueError(f"{self} is changed in place, but the array is read-only")
        return x

    def _converted(self, x):
        """The same numbers in this type. Floats may be rounded; nothing else may change."""
        found = (
            np.ascontiguousarray(x, self.dtype).reshape(x.shape) if np.can_cast(x, self.dtype, "same_kind") else None
        )
        if found is None or (self.dtype.kind != "f" and not np.array_equal(found, x)):
            raise TypeError(
                f"{self} was expected, got an array of {x.dtype.name}, whose numbers that type does not have"
            )
        return found

    def __str__(self):
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


def _filled(shape, extents):
    """A shape with numbers in place of texts."""
    return tuple([evaluate(d, extents) if isinstance(d, str) else d for d in shape])


class NativeFunctions:
    """The functions of one object, as attributes: `value`, `value_and_grad` and `hvp`, as far as they were asked for;
    calling it calls `value`. `state`: the arrays by name that the function changes."""

    def __init__(self, library, description, initial):
        self.name, self.target = description["name"], description["target"]
        self.state = initial
        for described in description["functions"]:
            kind = described["name"][len(self.name) :].lstrip("_") or "value"
            has_state = any(p["role"] == "state" for p in described["parameters"])
            setattr(self, kind, NativeFunction(library, described, initial if has_state else {}))

    def __call__(self, *arguments):
        return self.value(*arguments)

    def __getattr__(self, name):
        wanted = {"value_and_grad": "gradients=True", "hvp": "hvp=True"}.get(name)
        said = f"; it was made without {wanted}" if wanted else ""
        raise AttributeError(f"{self.__dict__.get('name', 'NativeFunctions')} has no {name}{said}")

    def __repr__(self):
        kinds = [k for k in ("value", "value_and_grad", "hvp") if hasattr(self, k)]
        return f"<weft native functions {self.name}: {', '.join(kinds)}>"


def load_exported(path):
    """What `weft.export(..., path)` has written, to be called from Python: a NativeFunctions.

    Loads machine code from `path`.o: load only what you trust. Raises OSError if a file is missing, ValueError if it
    was made for another kind of processor or is not whole.
    """
    import json

    path = Path(path)
    description = json.loads(path.with_name(f"{path.name}.json").read_text(encoding="utf-8"))
    if not isinstance(description, dict) or not {"name", "target", "functions"} <= description.keys():
        raise ValueError(f"{path}.json is no description that weft.export has written")
    if (description["target"] == "aarch64") != (jit.target().triple.split("-")[0] == "aarch64"):
        raise ValueError(f"{path}.o was made for {description['target']}, and this is {jit.target().triple}")
    code = path.with_name(f"{path.name}.o").read_bytes()
    try:
        return loaded(code, description)
    except (RuntimeError, KeyError) as error:
        what = f"{path}.o is not the object that weft.export has written with {path}.json"
        raise ValueError(f"{what}: {error}") from error


def loaded(code, description):
    """The functions of object code."""
    library = jit.link(code)
    initial = {}
    for function in description["functions"]:
        for parameter in function["parameters"]:
            for field in parameter.get("fields", ()):
                address = library.address(f"{description['name']}_initial_{field['name']}")
                dtype = np.dtype(field["dtype"])
                content = ctypes.string_at(address, field["elements"] * dtype.itemsize)
                initial[field["name"]] = np.frombuffer(content, dtype).reshape(field["shape"]).copy()
    return NativeFunctions(library, description, initial)
