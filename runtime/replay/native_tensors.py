"""What the class of tensors asks of native code, from the first use of it on."""

from . import native_in_place, native_keys, native_methods, native_operators, native_questions

_PARTS = native_operators, native_keys, native_questions, native_methods, native_in_place


def install(layout):
    """Operators, keys, questions and methods go to native code from now on, unless somebody has replaced one."""
    for part in _PARTS:
        part.install(layout)
