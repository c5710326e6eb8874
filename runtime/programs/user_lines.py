"""At which line of the user's program weft is."""

import sys

_PACKAGE = __name__.partition(".")[0]


def user_line():
    """ "file.py:12" of the innermost frame outside weft."""
    frame, _ = _user_frame()
    return "unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def user_level():
    """The `stacklevel` with which the caller's warnings stand at that line."""
    return _user_frame()[1]


def _user_frame():
    """(the innermost frame outside weft, how many levels above whoever asks for it through one function)."""
    frame, level = sys._getframe(1), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    return frame, level
