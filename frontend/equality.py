"""Whether tensors, or elements of them, are equal or close."""

from math import prod

import numpy as np

from .compiler.dtypes import bool_
from .compiler.ops import comparison
from .compiler.ops.table import OpError
from .compiler.storage import readable
from .kinds import answering
from .operands import require_tensors
from .runtime.state import marks
from .runtime.state.elsewhere import is_elsewhere
from .runtime.state.modes import no_grad, state
from .runtime.state.tensor import Tensor, shape_of, wrap
from .shaping import flatten, unsqueeze


def _require_alike(name, input, other):
    require_tensors(name, input, other)
    if input.dtype is not other.dtype:
        raise OpError(
            f"{name}: dtypes do not match: {input.dtype.name} and {other.dtype.name}; convert one with .to(...)"
        )


def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |input - other| <= atol + rtol * |other| everywhere. A Python bool."""
    return bool(_close(input, other, rtol, atol, equal_nan).all())


def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |input - other| <= atol + rtol * |other|, element by element."""
    _require_alike("isclose", input, other)
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"isclose: rtol and atol must be greater than or equal to zero, but got {rtol} and {atol}")
    with no_grad():
        close, is_whole = input == other, not (input.dtype.is_floating_point or input.dtype.is_complex)
        if equal_nan and not is_whole:
            close = close | ((input != input) & (other != other))
        if rtol == atol == 0:
            return close
        near = other.to(state.default_dtype) if is_whole else other
        distance = ((input.to(near.dtype) if input.dtype is bool_ else input) - near).abs()
        return close | (comparison.isfinite(distance) & (distance <= atol + (rtol * near).abs()))


_close = answering(isclose)


def equal(input, other):
    """Whether shapes and all elements are equal. A Python bool."""
    found = marks.are_equal(input, other)
    if found is not None:
        return found
    if input.__class__ is not Tensor or other.__class__ is not Tensor:
        require_tensors("equal", input, other)
    if shape_of(input) != shape_of(other):
        return False
    if is_elsewhere(input) or is_elsewhere(other):
        return bool((input == other).all())
    x, y = readable(input.array), readable(other.array)
    if x.size > _FIRST and x.flags.c_contiguous and y.flags.c_contiguous:
        # Mostly they differ soon, if they do.
        x, y = x.reshape(-1), y.reshape(-1)
        if not (x[:_FIRST] == y[:_FIRST]).all():
            return False
    # Of few elements counting takes a third of the time that asking for all of them does.
    return bool(np.count_nonzero(x == y) == x.size if x.size <= _FIRST else (x == y).all())


_FIRST = 1 << 10  # elements that are compared before the rest


_FEW_PAIRS = 1 << 12


def is_one_of(elements, test_elements, invert):
    """Whether each element is one of the others; None where these are so many that they have to be put in order."""
    if (
        elements.dtype is not test_elements.dtype
        or prod(shape_of(elements)) * prod(shape_of(test_elements)) > _FEW_PAIRS
    ):
        return None
    if (
        state.frame is None
        and marks.answer is marks.not_answered
        and not any(map(is_elsewhere, (elements, test_elements)))
    ):
        # Without native code NumPy takes half of the time of the ops.
        found = (readable(elements.array)[..., None] == readable(test_elements.array).reshape(-1)).any(-1)
        return wrap(np.asarray(~found if invert else found))
    return _is_one_of_few(elements, test_elements, invert)


@answering
def _is_one_of_few(elements, test_elements, invert):
    found = (unsqueeze(elements, -1) == flatten(test_elements)).any(-1)
    return ~found if invert else found


METHODS = PUBLIC = str.split("allclose equal isclose")
