"""Tensors as text, character for character as PyTorch 2.13 prints them (with `weft.` for `torch.`).

    tensor_repr   the whole `tensor(..., dtype=..., grad_fn=<...>)`
    contents      only the numbers in brackets

One `NumberFormat` is chosen for all elements that will be shown: the widest number decides the width, and floats are
written as integers (`4.`), fixed point or scientific, by PyTorch's rules (torch/_tensor_str.py).
"""

import math
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np

from .compiler import dtypes
from .compiler.storage import readable
from .runtime.state.modes import state


@dataclass(slots=True)
class PrintOptions:
    """What `set_printoptions` sets. Above `threshold` elements only `edgeitems` at both ends are shown."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_OPTIONS = PrintOptions()
_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Change how tensors are printed. Options that are not given stay, but `sci_mode` returns to automatic (None).

    `profile` sets all four numbers at once: "default", "short" or "full".
    """
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: profile is {profile!r}; it must be one of {', '.join(_PROFILES)}")
        _assign(_PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _assign({name: value for name, value in given.items() if value is not None})
    _OPTIONS.sci_mode = sci_mode


def _assign(values):
    for name, value in values.items():
        setattr(_OPTIONS, name, value)


def get_printoptions():
    """The current options as a dict that `set_printoptions(**options)` takes."""
    return asdict(_OPTIONS)


@contextmanager
def printoptions(**options):
    """Options for the duration of a `with` block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


def tensor_repr(
    array, default_dtype=None, requires_grad=False, grad_fn_name=None, prefix="tensor(", tangent=None, device=None
):
    """The text of a tensor: its numbers, then `size=`, `dtype=`, `grad_fn=`, `requires_grad=` where they say something.

    `array` holds the elements, `default_dtype` is the dtype that needs no mention (None: weft's default),
    `grad_fn_name` is the name of the autograd node, None for a leaf, `tangent` the text of the tangent, if any,
    `device` that of the tensor, if it is not the CPU.
    """
    body = contents(readable(array), indent=len(prefix))
    suffixes = [] if device is None else [f"device='{device}'"]
    suffixes += _suffixes(array, default_dtype or state.default_dtype)
    if grad_fn_name is not None:
        suffixes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    return with_suffixes(prefix + body, suffixes, indent=len(prefix))


def _suffixes(array, default_dtype):
    dtype = dtypes.from_numpy(array.dtype)
    if array.size == 0:
        # No element tells the dtype, and brackets alone do not tell the shape.
        implied, sized = (default_dtype,), array.ndim != 1
    else:
        implied = (default_dtype, default_dtype.to_complex(), dtypes.int64, dtypes.bool_)
        sized = not _OPTIONS.edgeitems
    suffixes = [f"size={array.shape}"] if sized else []
    return suffixes if dtype in implied else [*suffixes, f"dtype={dtype!r}"]


def with_suffixes(text, suffixes, indent, begins_line=False):
    """The suffixes after the text, each on a new line if it does not fit on the last one; begins_line: the first one
    on a line of its own."""
    # Two columns more than the last line has: PyTorch's count, kept so that lines break at the same places.
    column = len(text) - text.rfind("\n") + 1
    for k, suffix in enumerate(suffixes):
        if begins_line and k == 0 or column + len(suffix) + 2 > _OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def contents(array, indent=0):
    """The elements in nested brackets. `indent` is the column where the text begins."""
    if array.size == 0:
        return "[]"
    summarize = array.size > _OPTIONS.threshold
    number_format = choose_format(_edges(array) if summarize else array)
    return _nested(array, indent, summarize, number_format)


def _edges(array):
    """The elements a summary shows: both ends of every axis that is long enough to be shortened."""
    k = _OPTIONS.edgeitems
    for axis, size in enumerate(array.shape):
        if size > 2 * k:
            array = np.take(array, [*range(k), *range(size - k, size)], axis)
    return array


def _nested(array, indent, summarize, number_format):
    if array.ndim == 0:
        return number_format(array.item())
    if array.ndim == 1:
        return _row(array, indent, summarize, number_format)
    rows = [
        "..." if row is None else _nested(row, indent + 1, summarize, number_format) for row in _shown(array, summarize)
    ]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(rows) + "]"


def _row(array, indent, summarize, number_format):
    if summarize and not _OPTIONS.edgeitems:
        items = ["..."]
    else:
        items = [" ..." if x is None else number_format(x.item()) for x in _shown(array, summarize)]
    per_line = max(1, (_OPTIONS.linewidth - indent) // (number_format.width + 2))
    lines = [", ".join(items[k : k + per_line]) for k in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _shown(array, summarize):
    """The slices along the first axis that are printed; None in the middle stands for those left out."""
    k = _OPTIONS.edgeitems
    if not summarize or len(array) <= 2 * k:
        return list(array)
    return [*array[:k], None, *array[len(array) - k :]]


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How every element is written: `spec` for format(), `point` after floats that are integers, right-aligned."""

    spec: str
    width: int
    point: bool = False

    def __call__(self, value):
        return self.write(value).rjust(self.width)

    def write(self, value):
        text = format(value, self.spec) if self.spec else str(value)
        return text + "." if self.point and math.isfinite(value) else text


@dataclass(frozen=True, slots=True)
class ComplexFormat:
    """The same for both parts of complex numbers."""

    real: NumberFormat
    imag: NumberFormat

    @property
    def width(self):
        return self.real.width + self.imag.width + 1

    def __call__(self, value):
        imag = self.imag(value.imag).lstrip() + "j"
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


def choose_format(array):
    """The format for all elements of an array, by PyTorch's rules."""
    if array.dtype.kind == "c":
        return ComplexFormat(choose_format(array.real), choose_format(array.imag))
    if array.dtype.kind != "f":
        return NumberFormat("", max((len(str(x)) for x in array.reshape(-1).tolist()), default=1))
    finite = array[np.isfinite(array) & (array != 0)]
    if finite.size == 0:
        # Only 0, inf and nan, which are counted as integers.
        return NumberFormat(".0f", 1, point=True)
    whole = bool((finite == np.ceil(finite)).all())
    scientific = _is_scientific(finite) if _OPTIONS.sci_mode is None else _OPTIONS.sci_mode
    if scientific:
        unaligned = NumberFormat(f".{_OPTIONS.precision}e", 1)
    elif whole:
        unaligned = NumberFormat(".0f", 1, point=True)
    else:
        unaligned = NumberFormat(f".{_OPTIONS.precision}f", 1)
    width = max(len(unaligned.write(x)) for x in finite.tolist())
    return NumberFormat(unaligned.spec, width, unaligned.point)


def _is_scientific(finite):
    """True when fixed point would lose or waste digits: a wide range, or very large or small numbers."""
    magnitudes = np.abs(finite.astype(np.float64))
    low, high = magnitudes.min(), magnitudes.max()
    # The quotient of float64 extremes may overflow to inf, which is above 1000 as it should be.
    with np.errstate(over="ignore"):
        return bool(high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4)
