"""Warnings that are given once in a process, unless `set_warn_always(True)` was called."""

import warnings


class _Said:
    always = False
    already = set()


def warn_once(message, stacklevel):
    """warnings.warn(message), the first time. stacklevel is that of the caller."""
    if _Said.always or message not in _Said.already:
        _Said.already.add(message)
        warnings.warn(message, stacklevel=stacklevel + 1)


def set_always(always):
    """Whether it is given every time."""
    _Said.always = always


def is_always():
    return _Said.always
