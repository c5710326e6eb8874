"""Blocks that change nothing: what programs write around their code for the sake of other devices and tools."""

from functools import wraps


class Block:
    """A `with` block, or the decorator of a function, in which nothing is different."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False

    def __call__(self, function):
        @wraps(function)
        def wrapper(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return wrapper
