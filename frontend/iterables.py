"""Arguments that are one tensor or any iterable of tensors, as PyTorch takes them.

What is given may be a generator (`model.parameters()` is one), which can be walked only once: functions that take such
an argument make a list of it here, first of all, and go on with the list.
"""

from .runtime.state.tensor import Tensor


def listed(given):
    """A list of what an iterable yields; of a tensor, the tensor alone."""
    return [given] if isinstance(given, Tensor) else list(given)


def tensors_of(function, name, given):
    """The tensors of the argument `name`, as a list. TypeError where something else is given, or among them."""
    try:
        found = listed(given)
    except TypeError as error:
        hint = f"; pass {name}.parameters()" if hasattr(given, "parameters") else ""
        raise TypeError(
            f"{function}: {name} is a {type(given).__name__}; it must be a tensor or an iterable of tensors{hint}"
        ) from error
    for k, x in enumerate(found):
        if not isinstance(x, Tensor):
            hint = "; pass model.parameters(), without the names" if isinstance(x, tuple) else ""
            raise TypeError(f"{function}: {name} must be tensors, but number {k} is a {type(x).__name__}{hint}")
    return found
