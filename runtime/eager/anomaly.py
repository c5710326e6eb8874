"""Anomaly detection: backward stops at the first NaN, or error, and says which line of forward it belongs to."""

import sys
import warnings

import numpy as np

from ...compiler.later import imported
from ...compiler.storage import readable
from ..state.elsewhere import values_of
from ..state.modes import state, watched
from ..state.tensor import Tensor
from .node import metadata_of

_PACKAGE = __name__.partition(".")[0]
_LINES, _PARENT = "traceback_", "parent_"


def note_line(node, out):
    """Remember where a node was made, and in the backward of which one."""
    metadata = metadata_of(node)
    metadata[_LINES] = _lines_outside()
    if state.anomaly.running is not None:
        metadata[_PARENT] = state.anomaly.running


def _lines_outside():
    """The stack as text, up to the innermost line that is none of weft's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return imported("traceback").format_stack(frame)


class Anomaly:
    """What the mode is while it is on. running: the node whose backward runs."""

    __slots__ = ("check_nan", "running")

    def __init__(self, check_nan):
        self.check_nan, self.running = check_nan, None


def run_checked(node, run):
    """run(), which is the backward of the node."""
    mode, before = state.anomaly, state.anomaly.running
    mode.running = node
    try:
        results = run()
        if mode.check_nan:
            _check(node, results)
        return results
    except Exception:
        _tell(node)
        raise
    finally:
        mode.running = before


def _check(node, results):
    for k, gradient in enumerate(results or ()):
        if isinstance(gradient, Tensor) and np.isnan(readable(values_of(gradient))).any():
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {k}th output.")


def _tell(node):
    metadata = metadata_of(node)
    text = f"Error detected in {node.name()}. "
    if _LINES in metadata:
        text += "Traceback of forward call that caused the error:\n" + "".join(metadata[_LINES])
    else:
        text += "No forward pass information available. Enable detect anomaly during forward pass for more information."
    _say(text)
    while metadata.get(_PARENT) is not None:
        parent = metadata[_PARENT]
        metadata = metadata_of(parent)
        lines = "".join(metadata.get(_LINES, ["No forward pass information available.\n"]))
        _say(
            f"\n\nPrevious calculation was induced by {parent.name()}. Traceback of forward call that induced the "
            f"previous calculation:\n{lines}"
        )


def _say(text):
    """A warning. Where warnings are errors it is printed, because the error it is about is about to be raised."""
    try:
        warnings.warn(text, stacklevel=7)
    except Warning:
        print(text, file=sys.stderr)


class set_detect_anomaly:
    """Switch anomaly detection on or off in this thread: at once, and until the end of the block if used in a `with`.

    While it is on, compiled functions run eagerly, since their lines are looked for.
    """

    def __init__(self, mode, check_nan=True):
        self.before = state.anomaly
        self._switch(Anomaly(check_nan) if mode else None)

    def _switch(self, mode):
        block = state.anomaly_block
        if block is not None:
            state.anomaly_block = None
            block.__exit__(None, None, None)
        state.anomaly = mode
        if mode is not None:
            state.anomaly_block = watched(note_line, "anomaly detection: every line is remembered")
            state.anomaly_block.__enter__()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._switch(self.before)


class detect_anomaly:
    """A `with` block in which backward stops at the first NaN and says which line of forward it belongs to."""

    def __init__(self, check_nan=True):
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self):
        self.block = set_detect_anomaly(True, self.check_nan)

    def __exit__(self, *exception):
        self.block.__exit__(*exception)


def is_anomaly_enabled():
    return state.anomaly is not None


def is_anomaly_check_nan_enabled():
    return state.anomaly is not None and state.anomaly.check_nan
