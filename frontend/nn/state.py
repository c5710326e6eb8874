"""state_dict and load_state_dict of modules. Keys are the paths of parameters and persistent buffers."""

from collections import namedtuple

from ..runtime.modes import no_grad
from ..runtime.tensor import Tensor


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict returns: keys the module has and the dict lacks, and the other way round."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def collect(module, destination, prefix, keep_vars):
    """Fill `destination` with the state of a module and its children, each module's parameters before its buffers."""
    for path, tensor in _entries(module, prefix):
        destination[path] = tensor if keep_vars else tensor.detach()
    return destination


def _entries(module, prefix=""):
    """(path, tensor) in state_dict's order. Shared tensors appear under each of their paths."""
    for name, param in module._parameters.items():
        if param is not None:
            yield prefix + name, param
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._non_persistent:
            yield prefix + name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield from _entries(child, f"{prefix}{name}.")


def load(module, state_dict, strict):
    """Copy a state_dict into a module in place, all of it or nothing."""
    if not hasattr(state_dict, "items"):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    own = dict(_entries(module))
    missing = [key for key in own if key not in state_dict]
    unexpected = [key for key in state_dict if key not in own]
    problems = _key_problems(missing, unexpected) if strict else []
    pairs = [(key, tensor, state_dict[key]) for key, tensor in own.items() if key in state_dict]
    problems += [problem for pair in pairs if (problem := _misfit(*pair))]
    if problems:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(problems))
    with no_grad():
        for _, tensor, value in pairs:
            tensor.copy_(value)
    return IncompatibleKeys(missing, unexpected)


def _key_problems(missing, unexpected):
    problems = []
    if unexpected:
        problems.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
    if missing:
        problems.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    return problems


def _quoted(keys):
    return ", ".join(f'"{key}"' for key in keys)


def _misfit(key, tensor, value):
    """Why a value cannot be copied, or None."""
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{key}", expected weft.Tensor from checkpoint '
            f"but received {type(value)}"
        )
    if value.shape != tensor.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {tensor.shape}."
        )
    return None
