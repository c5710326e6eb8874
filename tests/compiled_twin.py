"""Run one scenario twice, undecorated and compiled, and compare everything it saw. Not a test.

A scenario is a function of `compile` that returns a list of observations. `look` freezes a value at the moment it is
called: bits, dtype, shape, memory layout, autograd flags, gradient, names of grad_fn.
"""

import sys
from dataclasses import is_dataclass

import numpy as np

import weft


def look(x):
    """A value as plain data that `==` compares bit for bit."""
    if isinstance(x, weft.Tensor):
        node = x.grad_fn
        name = None if node is None else (node.name(), type(node).__name__)
        array = _one_nan(x.detach().numpy())
        kind = (x.dtype.name, x.shape, x.is_contiguous(), x.requires_grad, x.is_leaf, name)
        return ("tensor", kind, array.tobytes(), None if x.is_leaf is False else look(x.grad))
    if isinstance(x, np.ndarray):
        return ("array", x.dtype.name, x.shape, _one_nan(x).tobytes())
    if isinstance(x, (list, tuple)):
        return (type(x).__name__, [look(v) for v in x])
    if isinstance(x, dict):
        return ("dict", {k: look(v) for k, v in x.items()})
    if is_dataclass(x):
        return (type(x).__name__, look(vars(x)))
    return repr(x) if isinstance(x, float) else x


def _one_nan(array):
    """Which of its NaNs a processor returns is not fixed by IEEE 754; all count as one."""
    return np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array) if array.dtype.kind == "f" else array


def error_of(function, *args, **kwargs):
    """(type, words) of the exception the call raises; what it returned if it raises none."""
    try:
        return ("returned", look(function(*args, **kwargs)))
    except Exception as error:
        return ("raised", type(error).__name__)


def undecorated(function):
    return function


def observe(scenario, compile):
    weft.manual_seed(7)
    return [look(x) for x in scenario(compile)]


def assert_same(scenario):
    """The scenario sees the same with and without compilation."""
    eager = observe(scenario, undecorated)
    compiled = observe(scenario, weft.compile)
    for k, (a, b) in enumerate(zip(eager, compiled)):
        assert a == b, f"observation {k} of {scenario.__name__}:\n eager    {shown(a)}\n compiled {shown(b)}"
    assert len(eager) == len(compiled)


def twin(scenario):
    """The test that a scenario sees the same with and without compilation."""

    def test():
        assert_same(scenario)

    test.__doc__ = scenario.__doc__
    return test


def leaf(*shape):
    return weft.randn(*shape, requires_grad=True)


def shown(seen):
    """An observation for people: numbers instead of bytes."""
    if isinstance(seen, tuple) and seen and seen[0] == "tensor":
        dtype = np.dtype(seen[1][0] if seen[1][0] != "bool" else bool)
        return ("tensor", seen[1], np.frombuffer(seen[2], dtype).reshape(seen[1][1]).tolist(), shown(seen[3]))
    if isinstance(seen, tuple) and len(seen) == 2 and isinstance(seen[1], list):
        return [shown(v) for v in seen[1]]
    return seen


def runs_any(call, *functions):
    """Whether a call runs the Python of any of these functions."""
    codes, ran = {f.__code__ for f in functions}, []
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_code) if frame.f_code in codes else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return bool(ran)
