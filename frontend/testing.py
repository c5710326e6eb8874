"""weft.testing: assert_close, with PyTorch's tolerances and messages, make_tensor, and gradcheck.

assert_close   walks through sequences and mappings, and compares what it finds
_tolerances    which differences are allowed for which types
_mismatch      the text about elements that differ by more
"""

import numbers
from collections.abc import Mapping, Sequence

import numpy as np

from .compiler import dtypes
from .compiler.storage import readable
from .creation import as_tensor, bernoulli, full, rand, randint
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .public import of_module
from .reference import document
from .runtime.state.tensor import Tensor

__all__ = ["GradcheckError", "assert_allclose", "assert_close", "gradcheck", "gradgradcheck", "make_tensor"]
__getattr__, __dir__ = of_module(__name__)

# (rtol, atol) by type; other types are equal or they differ.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def assert_close(
    actual,
    expected,
    *,
    allow_subclasses=True,
    rtol=None,
    atol=None,
    equal_nan=False,
    check_device=True,
    check_dtype=True,
    check_layout=True,
    check_stride=False,
    msg=None,
):
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| for all elements, and shapes and types are
    equal.

    Tensors, arrays and numbers are compared, and sequences and mappings of them entry by entry. rtol and atol are given
    both or neither; by default they follow from the types, and are 0 for integers. msg: a text in place of the message,
    or a function of it.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol}, atol={atol}"
        )
    options = _Options(rtol, atol, equal_nan, check_dtype, check_stride, allow_subclasses)
    problem = _compare(actual, expected, options, "")
    if problem is not None:
        raise AssertionError(problem if msg is None else msg(problem) if callable(msg) else msg)


class _Options:
    """What to compare, and how closely."""

    __slots__ = ("rtol", "atol", "equal_nan", "check_dtype", "check_stride", "allow_subclasses")

    def __init__(self, *values):
        for name, value in zip(self.__slots__, values):
            setattr(self, name, value)


def _compare(actual, expected, options, where):
    """The first difference as a text, or None."""
    if isinstance(actual, str) or isinstance(expected, str) or actual is None or expected is None:
        return None if actual == expected else f"{actual!r} and {expected!r} are not equal{_place(where)}."
    if _are(Mapping, actual, expected):
        return _compare_mappings(actual, expected, options, where)
    if _are(Sequence, actual, expected):
        return _compare_sequences(actual, expected, options, where)
    return _compare_values(actual, expected, options, where)


def _are(kind, *values):
    return all(isinstance(x, kind) and not isinstance(x, Tensor) for x in values)


def _place(where):
    return f" at item {where}" if where else ""


def _compare_mappings(actual, expected, options, where):
    missing, more = expected.keys() - actual.keys(), actual.keys() - expected.keys()
    if missing or more:
        return (
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
            f"Additional keys in the actual mapping: {sorted(more, key=str)}{_item(where)}"
        )
    problems = (_compare(actual[key], expected[key], options, f"{where}[{key!r}]") for key in actual)
    return next((problem for problem in problems if problem is not None), None)


def _compare_sequences(actual, expected, options, where):
    if len(actual) != len(expected):
        return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{_item(where)}"
    pairs = enumerate(zip(actual, expected))
    problems = (_compare(x, y, options, f"{where}[{k}]") for k, (x, y) in pairs)
    return next((problem for problem in problems if problem is not None), None)


def _item(where):
    return f"\n\nThe failure occurred for item {where}" if where else ""


def _compare_values(actual, expected, options, where):
    if not options.allow_subclasses and type(actual) is not type(expected):
        raise TypeError(f"allow_subclasses=False, but the types differ: {type(actual)} and {type(expected)}")
    if isinstance(actual, (bool, np.bool_)) and isinstance(expected, (bool, np.bool_)):
        same = bool(actual) is bool(expected)
        return None if same else f"Booleans mismatch: {actual} is not {expected}" + _item(where)
    numbers_only = all(isinstance(x, numbers.Number) for x in (actual, expected))
    x, y = _as_tensor(actual, where), _as_tensor(expected, where)
    problem = _difference_in_kind(x, y, options, numbers_only)
    if problem is None:
        problem = _mismatch(*_values(x, y), options, _tolerances((actual, expected), options))
    return None if problem is None else problem + _item(where)


def _as_tensor(x, where):
    if isinstance(x, Tensor):
        return x.detach()
    try:
        return as_tensor(x, dtypes.float64 if type(x) is float else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(x)}{_place(where)}; give tensors, arrays, "
            "numbers, or sequences and mappings of them"
        ) from error


def _difference_in_kind(x, y, options, numbers_only):
    if x.shape != y.shape:
        return f"The values for attribute 'shape' do not match: {x.shape} != {y.shape}."
    if options.check_dtype and not numbers_only and x.dtype is not y.dtype:
        return f"The values for attribute 'dtype' do not match: {x.dtype} != {y.dtype}."
    if options.check_stride and x.stride() != y.stride():
        return f"The values for attribute 'stride()' do not match: {x.stride()} != {y.stride()}."
    return None


def _values(x, y):
    """Both as arrays of one type, in which differences of bools and unsigned integers are numbers too."""
    x, y = readable(x.detach().array), readable(y.detach().array)
    common = np.result_type(x, y)
    common = common if common.kind in "fc" else np.int64
    return x.astype(common), y.astype(common)


def _tolerances(pair, options):
    """(rtol, atol): those given, or the larger ones of the two types."""
    if options.rtol is not None:
        return options.rtol, options.atol
    found = [_TOLERANCES.get(_type_name(x), (0.0, 0.0)) for x in pair]
    return tuple(max(values) for values in zip(*found))


def _type_name(x):
    if isinstance(x, numbers.Number) and not isinstance(x, np.generic):
        return "float64" if isinstance(x, float) else "int64"
    return x.dtype.name


def _mismatch(x, y, options, tolerances):
    """The text about elements that are not close, or None."""
    rtol, atol = tolerances
    close = np.isclose(x, y, rtol, atol, options.equal_nan)
    if close.all():
        return None
    if not x.ndim:
        return _scalar_text(x.item(), y.item(), rtol, atol)
    with np.errstate(all="ignore"):
        absolute = np.where(close, 0, np.abs(x - y))
        # Quotients of integers are float32 in PyTorch.
        relative = np.where(close, 0, absolute / np.abs(y)).astype(x.dtype if x.dtype.kind == "f" else np.float32)
    n_wrong = int((~close).sum())
    lines = [f"Tensor-likes are not {_compared(rtol, atol)}!", ""]
    lines.append(f"Mismatched elements: {n_wrong} / {x.size} ({n_wrong / x.size:.1%})")
    lines.append(f"Greatest absolute difference: {_greatest(absolute)}{_allowed(atol, rtol)}")
    lines.append(f"Greatest relative difference: {_greatest(relative)}{_allowed(rtol, atol)}")
    return "\n".join(lines)


def _compared(rtol, atol):
    return "close" if rtol or atol else "equal"


def _allowed(tolerance, other):
    return f" (up to {tolerance} allowed)" if tolerance or other else ""


def _greatest(differences):
    """The largest difference and its index; NaN counts as the largest."""
    index = np.unravel_index(np.argmax(differences), differences.shape)
    return f"{differences[index].item()} at index {tuple(map(int, index))}"


def _scalar_text(x, y, rtol, atol):
    absolute = abs(x - y)
    relative = float("inf") if y == 0 else absolute / abs(y)
    return (
        f"Scalars are not {_compared(rtol, atol)}!\n\nExpected {y} but got {x}.\n"
        f"Absolute difference: {absolute}{_allowed(atol, rtol)}\n"
        f"Relative difference: {relative}{_allowed(rtol, atol)}"
    )


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """PyTorch's older form: types may differ, and NaNs are equal."""
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def make_tensor(*shape, dtype, device=None, low=None, high=None, requires_grad=False, **options):
    """Random elements in [low, high): by default [-9, 9) for floats and [-9, 10) for integers."""
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    low = -9 if low is None else low
    if dtype is dtypes.bool_:
        return bernoulli(full(shape, 0.5, device=device)).to(dtype)
    if dtype.is_complex:
        width = (9 if high is None else high) - low
        return (rand(shape, dtype=dtype, device=device) * width + complex(low, low)).requires_grad_(requires_grad)
    if not dtype.is_floating_point:
        return randint(int(low), int(10 if high is None else high), shape, dtype=dtype, device=device)
    result = rand(shape, dtype=dtype, device=device) * ((9 if high is None else high) - low) + low
    return result.requires_grad_(requires_grad)


document("testing", __name__)
