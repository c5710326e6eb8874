"""Names of weft.func that ask for what PyTorch's transformations do inside."""

from functools import wraps

from .functions import clone
from .runtime.state.tensor import Tensor
from .utils._pytree import tree_map


def functionalize(func, *, remove="mutations"):
    """The function, which works on copies of its tensors while it runs, and writes what it has changed into the tensors
    that it was given at its end. Recordings of weft.compile have no changes in place as it is.

    remove: "mutations" or "mutations_and_views", as in PyTorch.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced "
            "with their out-of-place equivalents.\n"
            "     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be "
            "replaced with their non-aliasing counterparts."
        )

    @wraps(func)
    def wrapped(*args, **kwargs):
        copies = []

        def copied(x):
            if not isinstance(x, Tensor):
                return x
            copies.append((x, clone(x), None))
            copies[-1] = (x, copies[-1][1], copies[-1][1]._version)
            return copies[-1][1]

        result = func(*tree_map(copied, args), **tree_map(copied, kwargs))
        for given, copy, version in copies:
            if copy._version != version:
                given.copy_(copy)
        return tree_map(lambda y: next((g for g, c, _ in copies if c is y), y), result)

    return wrapped


def debug_unwrap(tensor, *, recurse=True):
    """The tensor: transformations put no wrappers around it."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"debug_unwrap: expected a Tensor, got {type(tensor).__name__}")
    return tensor
