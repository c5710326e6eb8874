"""Warnings: those of ops, which are counted, and those that are given once in a process, unless
`set_warn_always(True)` was called."""

import warnings


class _Said:
    always = False
    already = set()
    n = 0


def warn(message, category=UserWarning, stacklevel=1):
    """warnings.warn, of what a function warns of whenever it is called like this: whoever leaves out calls that would
    do the same again asks whether there was one. stacklevel is that of the caller."""
    _Said.n += 1
    warnings.warn(message, category, stacklevel=stacklevel + 1)


def n_warnings():
    """How often `warn` was called in this process."""
    return _Said.n


def warn_once(message, stacklevel):
    """warnings.warn(message), the first time. stacklevel is that of the caller."""
    if _Said.always or message not in _Said.already:
        _Said.already.add(message)
        warn(message, stacklevel=stacklevel + 1)


def set_always(always):
    """Whether it is given every time."""
    _Said.always = always


def is_always():
    return _Said.always
