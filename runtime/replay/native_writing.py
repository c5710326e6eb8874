"""The IR text of the native code of usual calls, all of it. A process that finds the code in a cache never needs it."""

from ...compiler.emit.builder import Module
from . import (
    native_attributes,
    native_call,
    native_changes,
    native_in_flight,
    native_inputs,
    native_ops,
    native_segments,
    native_spans,
    native_text,
    native_updates,
    native_views,
)

_PARTS = (
    native_attributes,
    native_call,
    native_changes,
    native_in_flight,
    native_inputs,
    native_ops,
    native_segments,
    native_spans,
    native_updates,
    native_views,
)


def text(layout):
    module = Module()
    native_text.write_shared(module, layout)
    for part in _PARTS:
        part.write(module, layout)
    return str(module)
