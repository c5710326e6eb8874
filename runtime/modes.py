"""What the current thread is doing: gradient mode, the open recording, the default floating type."""

import threading
from functools import wraps

from ..compiler import dtypes


class _State(threading.local):
    grad_enabled = True
    frame = None  # the compiled call being recorded or replayed in this thread
    default_dtype = dtypes.float32


state = _State()


def is_grad_enabled():
    return state.grad_enabled


class grad_mode:
    """Sets gradient mode for a `with` block, or for every call of a decorated function."""

    def __init__(self, enabled):
        self.enabled = bool(enabled)
        self.before = []

    def __enter__(self):
        self.before.append(state.grad_enabled)
        state.grad_enabled = self.enabled
        return self

    def __exit__(self, *exception):
        state.grad_enabled = self.before.pop()

    def __call__(self, function):
        enabled = self.enabled

        @wraps(function)
        def wrapper(*args, **kwargs):
            before = state.grad_enabled
            state.grad_enabled = enabled
            try:
                return function(*args, **kwargs)
            finally:
                state.grad_enabled = before

        return wrapper


class set_grad_enabled(grad_mode):
    """Takes effect at once, and until the end of the block if used in a `with`."""

    def __init__(self, mode):
        super().__init__(mode)
        self.first = state.grad_enabled
        state.grad_enabled = self.enabled

    def __enter__(self):
        self.before.append(self.first)
        state.grad_enabled = self.enabled
        return self

    def __call__(self, function):
        state.grad_enabled = self.first
        return super().__call__(function)


def _mode_with(enabled):
    def mode(function=None):
        """Use as `with mode():`, `@mode()` or `@mode`."""
        return grad_mode(enabled) if function is None else grad_mode(enabled)(function)

    return mode


no_grad = _mode_with(False)
enable_grad = _mode_with(True)
