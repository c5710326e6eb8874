"""What tests of compiled functions whose Python need not run share: test_whole_calls.py and its like."""

import sys
from pathlib import Path

import weft

_WATCHED = ("test_whole_call", "whole_parts")
N = 12  # calls, of which one is looked into: conftest.py


def runs(compiled, *args, **kwargs):
    """Whether a call runs Python of those tests."""
    seen = []

    def watch(frame, event, _):
        seen.append(event == "call" and Path(frame.f_code.co_filename).name.startswith(_WATCHED))

    sys.setprofile(watch)
    try:
        compiled(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return any(seen)


def settled(function, *args, **kwargs):
    """The function compiled, after calls with these arguments."""
    compiled = weft.compile(function)
    for _ in range(N):
        compiled(*args, **kwargs)
    return compiled


def check(compiled, *args, **kwargs):
    """A call gives what the function gives; bit for bit."""
    given, wanted = compiled(*args, **kwargs), compiled.function(*args, **kwargs)
    same(given, wanted)
    return given


def same(given, wanted):
    assert type(given) is type(wanted)
    if isinstance(wanted, (tuple, list)):
        assert len(given) == len(wanted)
        for x, y in zip(given, wanted):
            same(x, y)
    elif isinstance(wanted, dict):
        assert list(given) == list(wanted)
        same(list(given.values()), list(wanted.values()))
    elif isinstance(wanted, weft.Tensor):
        assert given.dtype == wanted.dtype and given.shape == wanted.shape
        assert given.requires_grad == wanted.requires_grad
        given, wanted = (x.detach().float() if x.dtype is weft.bfloat16 else x.detach() for x in (given, wanted))
        assert given.numpy().tobytes() == wanted.numpy().tobytes()
    elif type(wanted).__eq__ is object.__eq__ and hasattr(wanted, "__dict__"):
        same(vars(given), vars(wanted))
    else:
        assert given == wanted


# --- that it does not run ---------------------------------------------------------------------------------------------


def of_a_loop(x):
    h = x
    for k in range(5):
        h = weft.tanh(h) * (k + 1) if k % 2 else h + 1
    return h.sum(), {"last": h, "n": len(x), "parts": [h[0], h[1:]]}
