"""Pruning: parameters some of whose elements stay 0. `nn.utils.prune` by PyTorch's names.

    module.weight_orig    the parameter          module.weight_mask    a buffer of ones and zeros
    module.weight         their product, computed before every forward by a hook, which is the pruning method

A parameter that is pruned again has a PruningContainer, whose last method chooses among what the others have left.

>>> import weft
>>> layer = l1_unstructured(weft.nn.Linear(2, 2), "weight", amount=1)
>>> int((layer.weight == 0).sum())
1
"""

from abc import ABC, abstractmethod
from numbers import Integral, Real

from ..creation import ones_like, rand, rand_like
from ..public import of_module
from .utils import parameters_to_vector

__getattr__, __dir__ = of_module(f"{__name__.partition('.')[0]}.nn.utils.prune")

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(ABC):
    """Subclass it with `PRUNING_TYPE` ("unstructured", "structured" with an attribute `dim`, or "global") and
    `compute_mask(t, default_mask)`: the mask for what of t is left, by default_mask."""

    _tensor_name = None

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """A mask of ones and zeros of t's shape."""

    def apply_mask(self, module):
        """The pruned tensor of a module."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").to(original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prune module.<name> by a method with these arguments; what scores least goes first (its elements, unless
        importance_scores are given). Returns the method, which is the module's hook."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = _method_of(module, name)
        method = method if before is None else _joined(before, method)
        tensor = getattr(module, name)
        scores = tensor if importance_scores is None else importance_scores
        if scores.shape != tensor.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got {scores.shape} vs "
                f"{tensor.shape}"
            )
        kept = ones_like(tensor) if before is None else getattr(module, f"{name}_mask").detach().clone()
        mask = method.compute_mask(scores.detach(), default_mask=kept.detach())
        # Only now: a method that refuses leaves the module as it was.
        if before is None:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", tensor)
        _take_hook(module, name)
        module.register_buffer(f"{name}_mask", mask)
        method(module, ())
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """A tensor times the mask for it."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}"
            )
        kept = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=kept)

    def remove(self, module):
        """Make the pruned tensor the parameter again."""
        name = self._tensor_name
        weight, original = self.apply_mask(module).detach(), getattr(module, f"{name}_orig")
        for suffix in ("", "_orig", "_mask"):
            delattr(module, name + suffix)
        original.data = weight
        setattr(module, name, original)


def _method_of(module, name):
    """The method that prunes a tensor, if one does."""
    hooks = module._forward_pre_hooks.values()
    return next((h for h in hooks if isinstance(h, BasePruningMethod) and h._tensor_name == name), None)


def _take_hook(module, name):
    method, hooks = _method_of(module, name), module._forward_pre_hooks
    for number in [number for number, hook in hooks.items() if hook is method]:
        del hooks[number]
    return method


def _joined(before, method):
    """Both as one container."""
    container = PruningContainer(*(before if isinstance(before, PruningContainer) else [before]))
    container.add_pruning_method(method)
    return container


class PruningContainer(BasePruningMethod):
    """Methods one after the other: the last prunes what the others have left."""

    def __init__(self, *methods):
        self._pruning_methods = ()
        for method in methods:
            self._tensor_name = self._tensor_name or method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method):
        """Add one for the same tensor."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer "
                f"{self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, index):
        return self._pruning_methods[index]

    def compute_mask(self, t, default_mask):
        method = self._pruning_methods[-1]
        left = _left(method, t, default_mask)
        mask = default_mask.to(t.dtype).clone()
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(t.dtype)
        return mask


def _left(method, t, mask):
    """Where the mask has left something for a method: elements, channels, or everything."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * t.ndim
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    if not hasattr(method, "dim"):
        raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
    dim = method.dim % t.ndim
    channels = mask.sum([d for d in range(t.ndim) if d != dim]) != 0
    return tuple(channels if d == dim else slice(None) for d in range(t.ndim))


# --- methods ----------------------------------------------------------------------------------------------------------
def _check_amount(amount):
    if not isinstance(amount, Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or not isinstance(amount, Integral) and amount > 1:
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount, size):
    """How many of `size` things an amount is."""
    count = amount if isinstance(amount, Integral) else round(amount * size)
    if count > size:
        raise ValueError(f"amount={count} should be smaller than the number of parameters to prune={size}")
    return count


def _channels(t, dim):
    """The number of channels along a dimension."""
    if t.ndim <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{t.shape} with {t.ndim} dims"
        )
    if dim >= t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
    return t.shape[dim]


class Identity(BasePruningMethod):
    """Prunes nothing: the module has a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return default_mask


class _Unstructured(BasePruningMethod):
    """Prunes `amount` elements: those with the lowest scores."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount):
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t, default_mask):
        count = _count(self.amount, t.numel())
        if not count:
            return default_mask.clone()
        lowest = self._scores(t).reshape(-1).topk(count, largest=False).indices
        return default_mask.reshape(-1).index_fill(0, lowest, 0).reshape(t.shape)


class RandomUnstructured(_Unstructured):
    """Prunes `amount` elements, any."""

    def _scores(self, t):
        return rand_like(t)


class L1Unstructured(_Unstructured):
    """Prunes the `amount` elements nearest to 0."""

    def _scores(self, t):
        return t.abs()


class _Structured(BasePruningMethod):
    """Prunes `amount` channels along `dim`: those with the lowest scores."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t, default_mask):
        size = _channels(t, self.dim)
        count = _count(self.amount, size)
        if not count:
            return default_mask
        lowest = self._scores(t, size).topk(count, largest=False).indices
        kept = t.new_ones(size).index_fill(0, lowest, 0)
        return default_mask * kept.reshape(*(size if d == self.dim % t.ndim else 1 for d in range(t.ndim)))


class RandomStructured(_Structured):
    """Prunes `amount` channels along `dim`, any."""

    def _scores(self, t, size):
        return rand(size)


class LnStructured(_Structured):
    """Prunes the `amount` channels along `dim` with the smallest n-norms."""

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t, size):
        return t.norm(self.n, [d for d in range(t.ndim) if d != self.dim % t.ndim])


class CustomFromMask(BasePruningMethod):
    """Prunes what a mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"CustomFromMask: the mask has shape {self.mask.shape}, the tensor {default_mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


# --- functions --------------------------------------------------------------------------------------------------------
def identity(module, name):
    """Give module.<name> a mask of ones. Returns the module, as all these functions do."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Prune `amount` elements of module.<name>, any: a number of them, or a fraction."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Prune the `amount` elements nearest to 0, or with the lowest scores."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Prune `amount` channels along a dimension, any."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Prune the `amount` channels along a dimension with the smallest n-norms."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Prune what a mask says."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prune several (module, name) pairs together, by one unstructured method with these arguments."""
    pairs = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    method._tensor_name = "together"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    tensors = [getattr(module, name) for module, name in pairs]
    values = parameters_to_vector([scores.get(pair, x).detach() for pair, x in zip(pairs, tensors)])
    masks = [getattr(module, f"{name}_mask", ones_like(x)) for (module, name), x in zip(pairs, tensors)]
    mask = PruningContainer(method).compute_mask(values, parameters_to_vector([m.detach() for m in masks]))
    parts = mask.split([x.numel() for x in tensors])
    for (module, name), x, part in zip(pairs, tensors, parts):
        custom_from_mask(module, name, part.reshape(x.shape))


def remove(module, name):
    """Make the pruned tensor the parameter again: what is pruned is 0, and is trained again."""
    method = _take_hook(module, name)
    if method is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    method.remove(module)
    return module


def is_pruned(module):
    """Whether the module, or one below it, has a pruned tensor."""
    hooks = (hook for m in module.modules() for hook in m._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)
