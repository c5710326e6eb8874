"""The kinds of arguments that functions take: a TypeError that names the argument, where PyTorch has one.

    door      a function that looks at its arguments; put_doors does so for a module
    answering a function that does not, and whose calls native code may answer
    mismatch  what is wrong with the arguments of a function, by PyTorch's signatures

Those stand in pytorch_kinds.txt, which docs/pytorch_kinds.py writes. A call is compared with them if no call with
arguments of the same classes has passed before, and when it has failed: an error that comes of a wrong kind, wherever
in the function it shows, becomes the TypeError. What weft takes beyond PyTorch (arrays, iterators, None where that is
the default) passes as long as the function has no trouble with it.

Functions that training steps call all the time and that take less than two microseconds (QUICK) have no door, which
would be a tenth of that: they look themselves at what they read.
"""

from functools import cache
from inspect import signature
from os.path import dirname, join
from types import FunctionType

import numpy as np

from .compiler.dtypes import DType
from .numpy_words import WORDS, understanding
from .operands import not_a_tensor
from .placement import layout, memory_format
from .runtime.state import marks
from .runtime.state.device import device
from .runtime.state.marks import hopeless
from .runtime.state.random import Generator
from .runtime.state.tensor import Tensor
from .runtime.state.tracebacks import shorten

QUICK = frozenset(
    str.split("""
    add addcdiv addcmul amax amin any all arange argmax argmin as_tensor asarray atan2 arctan2 backward bmm
    broadcast_to can_cast cat chunk clamp clamp_max clamp_min clip clone concat concatenate cumsum detach device
    diagonal div divide dot empty empty_like equal finfo flatten frac from_numpy full full_like gather iinfo
    index_select inner is_floating_point is_tensor lerp logit masked_fill matmul max mean min mm mv narrow
    nonzero norm numel ones ones_like outer permute pow prod promote_types ravel reshape result_type round
    select softmax log_softmax square split squeeze stack std sub subtract sum swapaxes swapdims t tensor to
    transpose tril triu true_divide unbind unsqueeze var where zeros zeros_like linalg.matmul
    """)
)
# The same of which native code answers calls: in Python they take more than asking it does.
ANSWERED = frozenset(str.split("count_nonzero diag diff hstack sort topk vstack"))
# What a wrong argument leads to, some lines later.
_TROUBLE = (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, ZeroDivisionError)
_MOST_KNOWN = 1 << 10
# Asking native code costs as much as a few lines of Python. After so many calls in a row that it did not know, because
# sizes are others every time, it is asked in one call of so many, until it knows one.
_MANY_UNKNOWN, _ASKED_OF = 256, 16
_NOTHING = frozenset()  # is known of a function that has not been called
_NESTED = (list, tuple, dict)
_HOUSE = __name__.partition(".")[0]


def door(name, function):
    """The function, which says of an argument of a wrong kind what it is called and what kind it has to be. name: its
    path without "weft."; a method's is that of the function."""
    known, place, unknown = _NOTHING, marks.place_of(function), 0
    # Of a function that looks for keywords before it does anything, that which is called where there are none.
    without_keywords = getattr(function, "without_keywords", function)

    def checked(*args, **kwargs):
        nonlocal known, unknown
        if place not in hopeless and (unknown < _MANY_UNKNOWN or unknown % _ASKED_OF == 0):
            try:
                found = marks.answer(place, args, kwargs)
            except Exception:  # noqa: BLE001 - the function does the same, and its error says more
                found = None
            if found is not None:
                unknown = 0
                return found
        unknown += 1
        key = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else (*map(type, args),)
        if key not in known:
            known = _look(name, function, args, kwargs, known, key)
        try:
            # Without the keywords that there mostly are not a call takes half the time.
            return function(*args, **kwargs) if kwargs else without_keywords(*args)
        except _TROUBLE as error:
            shorten(error)
            _explain(name, function, args, kwargs, error)
            raise

    return _named_like(checked, function)


def answering(function):
    """The function, whose calls native code may answer."""
    # Asked as `door` asks, written out in both: shared, every answered call would be one more of Python's.
    place, unknown = marks.place_of(function), 0

    def answered(*args, **kwargs):
        nonlocal unknown
        if place not in hopeless and (unknown < _MANY_UNKNOWN or unknown % _ASKED_OF == 0):
            try:
                found = marks.answer(place, args, kwargs)
            except Exception:  # noqa: BLE001 - the function does the same, and its error says more
                found = None
            if found is not None:
                unknown = 0
                return found
        unknown += 1
        return function(*args, **kwargs) if kwargs else function(*args)

    return _named_like(answered, function)


def _named_like(door, function):
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(door, attribute, getattr(function, attribute))
    door.__wrapped__ = function
    return door


def put_doors(path, names, to):
    """Give the functions of these names, in a module's names, their doors."""
    for name in to:
        full = f"{path}.{name}"
        names[name] = door_of(full.lstrip("."), understanding(full, names[name]))


def door_of(name, value):
    """What has this name: with a door, if it is a function that is not too quick for one."""
    if name in QUICK or type(value) is not FunctionType:
        return value
    return answering(value) if name in ANSWERED else door(name, value)


def _look(name, function, args, kwargs, known, key):
    """Compare a call with the signatures, unless one with the same classes has been, in lists too; TypeError if it fits
    none. key: the classes of the arguments themselves. Returns what is known then."""
    nested = [x for x in (*args, *kwargs.values()) if isinstance(x, _NESTED)]
    if nested:
        key = (*key, *[frozenset(map(type, x)) for x in nested])
        if key in known:
            return known
    wrong = mismatch(name, function, args, kwargs)
    if wrong is not None:
        raise TypeError(wrong)
    # Classes of a user's may have no end, and should not be kept; ours, Parameter for one, are few.
    if len(known) < _MOST_KNOWN and all(_is_lasting(x) for x in (*args, *kwargs.values(), *nested)):
        known = known or set()  # most functions are never called
        known.add(key)
    return known


def _is_lasting(x):
    kind = type(x)
    if kind in _LASTING or kind.__module__.partition(".")[0] == _HOUSE:
        return True
    return kind.__module__ == "builtins" and not isinstance(x, _NESTED)


def _explain(name, function, args, kwargs, error):
    """Raise the TypeError that explains another one, if a kind does."""
    if isinstance(error, NotImplementedError):
        return
    accident = isinstance(error, (AttributeError, TypeError))
    wrong = mismatch(name, function, args, kwargs, is_failed=True, is_accident=accident)
    if wrong is None and isinstance(error, AttributeError):
        wrong = _without_attribute(name, function, args, kwargs, error.obj)
    if wrong is not None and not (isinstance(error, TypeError) and "argument '" in str(error)):
        raise TypeError(wrong) from error


def _without_attribute(name, function, args, kwargs, given):
    """The sentence about an argument that was taken for a tensor; None if none of them was."""
    if isinstance(given, Tensor):
        return None
    ours = list(signature(function).parameters)
    places = [(ours[min(k, len(ours) - 1)], k) for k, x in enumerate(args) if x is given and ours]
    places += [(key, None) for key, x in kwargs.items() if x is given]
    return _sentence(name, (places[0][0], "Tensor", False, False), places[0][1], given) if places else None


# --- signatures -------------------------------------------------------------------------------------------------------
# What PyTorch's Python takes off before its operators are called.
_FLAGS = {"requires_grad": "bool", "return_indices": "any"}


class _Signature:
    """One line of the file: `is_strict` if its kinds are what PyTorch checks; parameters are (name, kind, may be None,
    has default)."""

    __slots__ = ("_is_of_sizes", "is_strict", "n_positional", "parameters")

    def __init__(self, is_strict, words):
        self.is_strict, self.parameters = is_strict, []
        self.n_positional = words.index("*") if "*" in words else len(words)
        for word in words:
            if word != "*":
                name, _, kind = word.partition(":")
                plain = kind.rstrip("?=")
                self.parameters.append((name, plain, "?" in kind, kind.endswith("=")))
        others = [p for p in self.parameters[: self.n_positional] if p[0] != "input"]
        self._is_of_sizes = len(others) == 1 and others[0][1] == "int[]"

    def bound(self, args, kwargs, aliases):
        """[(parameter, position or None, value)]; None if names and numbers of arguments do not fit."""
        if self._is_of_sizes and len(args) >= self.n_positional and not isinstance(args[-1], (list, tuple, type(None))):
            # view(2, 3) is view((2, 3)).
            args = (*args[: self.n_positional - 1], args[self.n_positional - 1 :])
        if len(args) > self.n_positional:
            return None
        found = [(self.parameters[k], k, x) for k, x in enumerate(args)]
        left = {parameter[0]: parameter for parameter in self.parameters[len(args) :]}
        for name, value in kwargs.items():
            parameter = left.pop(name, None) or left.pop(aliases.get(name), None)
            if parameter is not None:
                found.append((parameter, None, value))
            elif name in _FLAGS:
                found.append(((name, _FLAGS[name], True, True), None, value))
            elif name != "out":
                return None
        return None if any(not has_default for _, _, _, has_default in left.values()) else found


@cache
def signatures():
    """{path of a function: its signatures}."""
    found = {}
    with open(join(dirname(__file__), "pytorch_kinds.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines:
        name, *words = line.split()
        found.setdefault(name.lstrip("~"), []).append(_Signature(name[0] != "~", words))
    return found


def mismatch(name, function, args, kwargs, is_failed=False, is_accident=False):
    """What is wrong with the kinds of arguments: a sentence, or None if they fit a signature, or it is not known.

    is_failed: the function has had trouble with them, so what weft takes beyond PyTorch is no reason to let them pass.
    is_accident: it has tried to do what arguments of these kinds cannot do.
    """
    best = None
    for candidate in signatures().get(name, ()):
        bound = candidate.bound(args, kwargs, WORDS)
        if bound is None:
            continue
        looks = candidate.is_strict or is_accident
        checked = [k for k, (p, _, x) in enumerate(bound) if looks or _is_sure(p[1], x)]
        wrong = next((k for k in checked if not _fits(*bound[k][::2], is_failed)), None)
        if wrong is None or not is_failed and _is_default(function, bound[wrong]):
            return None
        if best is None or wrong > best[0]:
            best = wrong, bound[wrong]
    return None if best is None else _sentence(name, *best[1])


def _is_default(function, found):
    """Whether an argument is None where that is the default here."""
    (name, *_), position, value = found
    if value is not None:
        return False
    ours = signature(function).parameters
    parameter = ours.get(name) or (list(ours.values())[position] if position is not None else None)
    return parameter is not None and parameter.default is None


# --- kinds ------------------------------------------------------------------------------------------------------------
def _is_scalar(x):
    return isinstance(x, Tensor) and not x.shape


def _is_int(x):
    whole = isinstance(x, (int, np.integer)) and not isinstance(x, bool)
    return whole or _is_scalar(x) and x.dtype.category == 1


def _is_real(x):
    return isinstance(x, (int, float, np.integer, np.floating, np.bool_)) or _is_scalar(x)


def _is_number(x):
    return isinstance(x, (int, float, complex, np.generic)) or _is_scalar(x)


def _all(of):
    return lambda x: isinstance(x, (list, tuple)) and all(map(of, x))


def _is_tensor(x):
    return isinstance(x, Tensor)


_FIT = {
    "Tensor": _is_tensor,
    "Tensor[]": _all(_is_tensor),
    "int": _is_int,
    "int[]": _all(_is_int),
    "ints": lambda x: _is_int(x) or _all(_is_int)(x),
    "float": _is_real,
    "number": _is_number,
    "bool": lambda x: isinstance(x, (bool, np.bool_)),
    "str": lambda x: isinstance(x, str),
    "dtype": lambda x: isinstance(x, DType) or any(x is kind for kind in (bool, int, float, complex)),
    "Generator": lambda x: isinstance(x, Generator),
    "device": lambda x: isinstance(x, (device, str, int)),
    "layout": lambda x: isinstance(x, layout),
    "memory_format": lambda x: isinstance(x, memory_format),
    "any": lambda x: True,
}
_WORDS = {
    "Tensor[]": "tuple of Tensors", "int[]": "tuple of ints", "ints": "int or tuple of ints", "number": "Number",
    "dtype": "weft.dtype", "device": "weft.device", "layout": "weft.layout", "memory_format": "weft.memory_format",
    "Generator": "weft.Generator",
}  # fmt: skip
_LASTING = (Tensor, DType, np.ndarray, Generator, device, layout, memory_format, *_NESTED)
# What weft may know how to take, or an object may say itself.
_OPEN = str.split(
    "__array__ __index__ __float__ __next__ __array_interface__ __jax_array__ __dlpack__ __torch_function__"
)


def _fits(parameter, x, is_failed):
    _, kind, may_be_none, _ = parameter
    if x is None:
        return may_be_none or kind == "any"
    if _FIT[kind](x):
        return True
    if is_failed or isinstance(x, (bool, int, float, complex, str, list, tuple, dict, Tensor)):
        return not is_failed and isinstance(x, (list, tuple)) and any(_is_open(part) for part in x)
    return _is_open(x)


def _is_sure(kind, x):
    """Whether an annotation is right about this: numbers stand for tensors and flags in some places."""
    return kind in ("Tensor", "bool") and not (x is None or isinstance(x, (bool, int, float)))


def _is_open(x):
    plain = isinstance(x, (bool, int, float, complex, str, type(None), Tensor))
    return not plain and any(hasattr(type(x), name) for name in _OPEN)


def _sentence(name, parameter, position, value):
    word, kind, _, _ = parameter
    place = "" if position is None else f" (position {position + 1})"
    given = type(value).__name__
    if kind in ("int[]", "ints", "Tensor[]") and isinstance(value, (list, tuple)):
        part = next(k for k, x in enumerate(value) if not _FIT["Tensor" if kind == "Tensor[]" else "int"](x))
        given = f"{given} with a {type(value[part]).__name__} at {part}"
    last = name.rpartition(".")[2]
    if kind == "Tensor":
        return not_a_tensor(last, f"'{word}'{place}", value)
    return f"{last}(): argument '{word}'{place} must be {_WORDS.get(kind, kind)}, not {given}"
