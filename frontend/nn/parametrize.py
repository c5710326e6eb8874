"""Parameters computed from others at every use: `nn.utils.parametrize`.

    module.weight                             a property of a class made for it; its value is computed when it is read
    module.parametrizations.weight            the ParametrizationList: modules called one after the other
    module.parametrizations.weight.original   what is trained (original0, original1, ... if right_inverse gives several)

>>> import weft
>>> class Symmetric(weft.nn.Module):
...     def forward(self, x):
...         return x.triu() + x.triu(1).mT
>>> layer = register_parametrization(weft.nn.Linear(3, 3), "weight", Symmetric())
>>> bool((layer.weight == layer.weight.T).all())
True
"""

import threading
from contextlib import contextmanager, suppress
from functools import cache

from ..public import of_module
from ..reference import document
from ..runtime.state.modes import no_grad
from ..runtime.state.tensor import Tensor
from .containers import ModuleDict, ModuleList
from .parameter import Parameter

__getattr__, __dir__ = of_module(f"{__name__.partition('.')[0]}.nn.utils.parametrize")

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip


class _Values(threading.local):
    """What has been computed inside `cached()`: {(id of the module, name): value}, and how many blocks are open."""

    def __init__(self):
        self.depth, self.known = 0, {}


_values = _Values()


@contextmanager
def cached():
    """Inside the block every parametrized tensor is computed once."""
    _values.depth += 1
    try:
        yield
    finally:
        _values.depth -= 1
        if not _values.depth:
            _values.known = {}


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the tensors it is computed from."""

    def __init__(self, modules, original, unsafe=False):
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new = self._inverse(original)
        if not isinstance(new, (Tensor, list, tuple)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            _check_inverse_dtype(original, new)
            _take(original, new)
            _register(self, "original", original)
        else:
            self._register_several(new, original)
        if not unsafe:
            _check_result(self(), shape, dtype)

    def _inverse(self, value):
        """What the parametrizations make `value` from; those that do not say leave it as it is."""
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):
                        value = module.right_inverse(value)
        return value

    def _register_several(self, tensors, original):
        for k, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got element {k} of the sequence with type {type(tensor).__name__}."
                )
            if isinstance(original, Parameter):
                tensor = Parameter(tensor.detach(), original.requires_grad)
            _register(self, f"original{k}", tensor)

    def _originals(self):
        return [self.original] if self.is_tensor else [getattr(self, f"original{k}") for k in range(self.ntensors)]

    def forward(self):
        first, *others = self
        result = first(*self._originals())
        for module in others:
            result = module(result)
        return result

    @no_grad()
    def right_inverse(self, value):
        """Change the originals so that the parametrized tensor becomes `value`: what assigning to it does."""
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
            value = module.right_inverse(value)
        values = [value] if self.is_tensor else value
        if not isinstance(values, (list, tuple)) or len(values) != self.ntensors:
            given = f"a sequence of length {len(values)}" if isinstance(values, (list, tuple)) else type(value).__name__
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got {given}."
            )
        for original, new in zip(self._originals(), values):
            if not isinstance(new, Tensor):
                raise ValueError(f"`right_inverse` should return a tensor. Got {type(new).__name__}")
            if new.dtype is not original.dtype:
                raise ValueError(
                    f"The tensor returned by `right_inverse` has dtype {new.dtype} while `original` has dtype "
                    f"{original.dtype}"
                )
            _take(original, new)


def _check_inverse_dtype(original, new):
    if original.dtype is not new.dtype:
        raise ValueError(
            "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
            f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
        )


def _check_result(value, shape, dtype):
    """ValueError unless a parametrization has made a tensor of the shape and type it is to have."""
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for what, before, after in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
        if before != after:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is "
                f"enabled.\nunparametrized {what}: {before}\nparametrized {what}: {after}"
            )


def _take(tensor, value):
    """Let a tensor have the memory of another."""
    if value is not tensor:
        tensor.data = value.detach()


def _register(module, name, value):
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


# --- classes ----------------------------------------------------------------------------------------------------------
@cache
def _class_of(kind, names):
    """The class of modules of a kind with parametrized tensors of these names. It never changes, so that copies of a
    module may share it."""

    def __reduce_ex__(self, protocol):
        return _restore, (kind, names, vars(self))

    properties = {name: _property(name) for name in names}
    own = {"__reduce_ex__": __reduce_ex__, "_kind_before": kind}
    return type(f"Parametrized{kind.__name__}", (kind,), {**own, **properties})


def _restore(kind, names, attributes):
    module = kind.__new__(_class_of(kind, names))
    vars(module).update(attributes)
    return module


def _property(name):
    def value(self):
        parametrization = self.parametrizations[name]
        if not _values.depth:
            return parametrization()
        key = id(self), name
        if key not in _values.known:
            # The module is kept with it: another one might get its id.
            _values.known[key] = parametrization(), self
        return _values.known[key][0]

    def assign(self, value):
        self.parametrizations[name].right_inverse(value)

    return property(value, assign)


def _set_class(module, names):
    kind = type_before_parametrizations(module)
    module.__class__ = _class_of(kind, tuple(names)) if names else kind


# --- what users call --------------------------------------------------------------------------------------------------
def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Let module.<tensor_name> be parametrization(what it was); a further one is called on the result of those before.

    If the parametrization has a `right_inverse`, what is trained starts as right_inverse(the tensor). Unless `unsafe`
    it must keep shape and type. Returns the module.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            _check_result(parametrization(value), value.shape, value.dtype)
        known.append(parametrization)
        known.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            module.parametrizations = ModuleDict()
        module.parametrizations[tensor_name] = made
        _set_class(module, module.parametrizations)
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def is_parametrized(module, tensor_name=None):
    """Whether the module has a parametrized tensor, or one of this name."""
    known = vars(module).get("parametrizations")
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Make the tensor a parameter or buffer again: with the value it has, or the original. Returns the module."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    known = module.parametrizations[tensor_name]
    if not known.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    value = getattr(module, tensor_name)
    if not known.is_tensor:
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        original = known.original
        if leave_parametrized:
            _take(original, value)
    del module.parametrizations[tensor_name]
    _set_class(module, module.parametrizations)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
    _register(module, tensor_name, original)
    return module


def type_before_parametrizations(module):
    """The module's class without parametrizations."""
    return vars(type(module)).get("_kind_before", type(module))


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Give another module the parametrizations of one tensor, or of all, and what they are computed from."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        for key in ["original"] if source.is_tensor else [f"original{k}" for k in range(source.ntensors)]:
            setattr(target, key, getattr(source, key))
    return to_module


document("nn.utils.parametrize", __name__)
