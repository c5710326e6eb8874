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


class enforce_grad_layout_policy(Block):
    """Accepted, as a call and as a block: gradients are row-major whatever the order of their tensors."""

    def __init__(self, enable=True):
        self.enable = bool(enable)
