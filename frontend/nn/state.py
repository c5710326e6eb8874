"""state_dict and load_state_dict of modules. Keys are the paths of parameters and persistent buffers.

Loading looks everything up first and copies then, all of it or nothing. Hooks about the state are in tables that a
module gets with the first one.
"""

from collections import OrderedDict, namedtuple

from ..creation import tensor_of_others
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import Tensor, shape_of
from .hooks import RemovableHandle
from .parameter import is_lazy


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict returns: keys the module has and the dict lacks, and the other way round."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


EXTRA = "_extra_state"


def new():
    """An empty state: an OrderedDict that has the versions of modules' classes by path as its `_metadata`."""
    made = OrderedDict()
    made._metadata = OrderedDict()
    return made


def collect(module, destination, prefix, keep_vars):
    """Fill `destination` with the state of a module and its children, each module's parameters before its buffers."""
    own, local = vars(module), {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = local
    if "_state_dict_pre_hooks" in own:
        for hook in _hooks(module, "_state_dict_pre_hooks"):
            hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    if "_state_dict_hooks" in own:
        for hook in _hooks(module, "_state_dict_hooks"):
            hook(module, destination, prefix, local)
    return destination


def collect_own(module, destination, prefix, keep_vars):
    """Fill `destination` with the state of one module."""
    for path, tensor in _own(module, prefix):
        destination[path] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
    if module._has_extra_state():
        destination[prefix + EXTRA] = module.get_extra_state()


def add_hook(module, table, hook):
    """Register a hook about the state. The tables are made when they are needed: most modules have none."""
    return RemovableHandle(vars(module).setdefault(table, {}), hook)


def _hooks(module, table):
    return tuple(vars(module).get(table, {}).values())


def _own(module, prefix=""):
    """(path, tensor) of one module."""
    found = [(prefix + name, param) for name, param in module._parameters.items() if param is not None]
    buffers = module._buffers
    if buffers:
        passing = module._non_persistent
        found += [(prefix + name, b) for name, b in buffers.items() if b is not None and name not in passing]
    return found


class _Loading:
    """One load_state_dict: what was found wrong, and what is copied if nothing was."""

    def __init__(self, state_dict, strict, assign, metadata=None):
        self.state_dict, self.strict, self.assign, self.metadata = state_dict, strict, assign, metadata or {}
        self.known, self.pairs, self.extra, self.afterwards = set(), [], [], []
        self.missing, self.unexpected, self.problems = [], [], []

    def visit(self, module, prefix=""):
        """Look up the state of a module and those below it."""
        lists, own = (self.missing, self.unexpected, self.problems), vars(module)
        local = dict(self.metadata.get(prefix[:-1], {}))
        if self.assign:
            local["assign_to_params_buffers"] = True
        if "_load_state_dict_pre_hooks" in own:
            for hook in _hooks(module, "_load_state_dict_pre_hooks"):
                hook(self.state_dict, prefix, local, self.strict, *lists)
        if module._loads_by_itself():
            # A class of the user's: it takes what it wants, at once.
            self.known.update(path for path, _ in _own(module, prefix))
            module._load_from_state_dict(self.state_dict, prefix, local, self.strict, *lists)
        else:
            module._complete_state(self.state_dict, prefix, local)
            self.visit_own(module, prefix)
        for name, child in own["_modules"].items():
            if child is not None:
                self.visit(child, f"{prefix}{name}.")
        if "_load_state_dict_post_hooks" in own:
            self.afterwards += [(module, hook) for hook in _hooks(module, "_load_state_dict_post_hooks")]

    def visit_own(self, module, prefix):
        for path, tensor in _own(module, prefix):
            self.known.add(path)
            if path not in self.state_dict:
                self.missing.append(path)
                continue
            value = _as_number(tensor, tensor_of_others(self.state_dict[path]))
            problem = _misfit(path, tensor, value)
            if problem:
                self.problems.append(problem)
            else:
                self.pairs.append((module, path, tensor, value))
        if module._has_extra_state():
            self.known.add(prefix + EXTRA)
            if prefix + EXTRA in self.state_dict:
                self.extra.append((module, self.state_dict[prefix + EXTRA]))
            else:
                self.missing.append(prefix + EXTRA)

    def check(self, name, with_keys):
        """RuntimeError for everything that does not fit."""
        problems = _key_problems(self.missing, self.unexpected) if with_keys else []
        problems += self.problems
        if problems:
            raise RuntimeError(f"Error(s) in loading state_dict for {name}:\n\t" + "\n\t".join(problems))

    def copy(self):
        for module, path, tensor, value in self.pairs:
            if self.assign:
                made = value if isinstance(value, type(tensor)) else type(tensor)(value, tensor.requires_grad)
                setattr(module, path.rpartition(".")[2], made)
                continue
            if is_lazy(tensor) and not is_lazy(value):
                tensor.materialize(value.shape)
            if not is_lazy(tensor):
                tensor.copy_(value)
        for module, value in self.extra:
            module.set_extra_state(value)


def load(module, state_dict, strict, assign=False):
    """Copy a state_dict into a module in place, all of it or nothing."""
    if not hasattr(state_dict, "items"):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    metadata = getattr(state_dict, "_metadata", None)
    copied = OrderedDict(state_dict.items())
    if metadata is not None:
        copied._metadata = metadata
    loading = _Loading(copied, strict, assign, metadata)
    loading.visit(module)
    unexpected = [key for key in loading.state_dict if key not in loading.known]
    loading.unexpected += [key for key in unexpected if key not in loading.unexpected]
    # Hooks that come afterwards may say that a missing key is none.
    loading.check(type(module).__name__, with_keys=strict and not loading.afterwards)
    with no_grad():
        loading.copy()
    keys = _IncompatibleKeys(loading.missing, loading.unexpected)
    for owner, hook in loading.afterwards:
        if hook(owner, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, "
                "if incompatible_keys need to be modified, it should be done inplace."
            )
    loading.check(type(module).__name__, with_keys=strict)
    return keys


def load_own(module, state_dict, prefix, strict, *lists):
    """Copy the state of one module at once: what a class of the user's that loads by itself calls."""
    loading = _Loading(state_dict, strict, False)
    loading.missing, loading.unexpected, loading.problems = lists
    loading.visit_own(module, prefix)
    with no_grad():
        loading.copy()


def _key_problems(missing, unexpected):
    problems = []
    if unexpected:
        problems.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
    if missing:
        problems.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    return problems


def _quoted(keys):
    return ", ".join(f'"{key}"' for key in keys)


def _as_number(tensor, value):
    """Numbers were rows of one element before PyTorch 0.4, and in files of libraries they still are."""
    is_row = isinstance(value, Tensor) and tuple(shape_of(value)) == (1,)
    return value[0] if is_row and not is_lazy(tensor) and not shape_of(tensor) else value


def _misfit(key, tensor, value):
    """Why a value cannot be copied, or None."""
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{key}", expected weft.Tensor from checkpoint '
            f"but received {type(value)}"
        )
    if not is_lazy(tensor) and shape_of(value) != shape_of(tensor):
        return (
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {tensor.shape}."
        )
    return None
