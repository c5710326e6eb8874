"""weft._foreach_*: one function of every tensor of a list, as optimizers by other authors call them.

    weft._foreach_mul_(momenta, 0.9)
    weft._foreach_add_(parameters, updates, alpha=-lr)

PyTorch has kernels for whole lists. Here each is a loop over the method of that name, whose results, types and
gradients they therefore have; a compiled function fuses the loop as it fuses one that is written out. The second
operand is a list of tensors, a list of numbers, or one number or tensor for all. Without an underscore at the end the
result is a tuple of new tensors; with one the tensors change and the result is None. TypeError if a list is no list of
tensors, RuntimeError if it is empty or two lists have different lengths.
"""

from numbers import Number

from .paths import FOREACH_APART, FOREACH_OF_ONE, FOREACH_OF_TWO
from .runtime.state.tensor import Tensor

_SECOND = ("other", "scalar", "scalars", "exponent")
# Extremes take numbers there, and methods of these names do not; of tensors the two are the same, NaN included.
_METHODS = {"maximum": "clamp_min", "minimum": "clamp_max"}


def _checked(name, tensors):
    """A list of tensors, or an error."""
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): argument 'self' must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected Tensor as element {position}, but got {type(tensor).__name__}")
    return tensors


def _for_each(name, tensors, operand):
    """An operand for every tensor: those of a list, or the one for all of them."""
    if not isinstance(operand, (list, tuple)):
        if isinstance(operand, Tensor) and operand.ndim:
            raise RuntimeError(
                f"{name}: scalar tensor expected to be 0 dim but it has {operand.ndim} dimensions and "
                f"{operand.numel()} elements."
            )
        return [operand] * len(tensors)
    return _of_equal_length(name, tensors, operand)


def _of_equal_length(name, tensors, others):
    if len(others) != len(tensors):
        if others and isinstance(others[0], Tensor):
            raise RuntimeError(
                f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(others)}"
            )
        raise RuntimeError(
            f"{name}: Tensor list must have same number of elements as scalar list, "
            f"got {len(tensors)} and {len(others)}"
        )
    return others


def _method(stem):
    in_place = "_" if stem.endswith("_") else ""
    plain = stem.removesuffix("_")
    return getattr(Tensor, _METHODS.get(plain, plain) + in_place)


def _given(stem, results):
    """What a function returns: nothing if it has changed its operands."""
    return None if stem.endswith("_") else tuple(results)


def _of_one(stem):
    name, method = f"_foreach_{stem}", _method(stem)

    def function(self):
        return _given(stem, [method(tensor) for tensor in _checked(name, self)])

    return function


def _of_two(stem):
    name, method = f"_foreach_{stem}", _method(stem)

    def function(self, *operand, **keywords):
        if not operand:
            operand = tuple(keywords.pop(word) for word in _SECOND if word in keywords)
        if len(operand) != 1:
            raise TypeError(f"{name}() takes two operands, but {1 + len(operand)} were given")
        others = _for_each(name, _checked(name, self), operand[0])
        return _given(stem, [method(tensor, other, **keywords) for tensor, other in zip(self, others, strict=True)])

    return function


def _products(stem):
    """addcmul and addcdiv: tensor + value * (tensor1 op tensor2), with a value for all or one for each."""
    name, method = f"_foreach_{stem}", _method(stem)

    def function(self, tensor1, tensor2, value=1, *, scalars=None):
        value = value if scalars is None else scalars
        values = value.tolist() if isinstance(value, Tensor) else value
        lists = [_checked(name, self)] + [_of_equal_length(name, self, _checked(name, x)) for x in (tensor1, tensor2)]
        lists.append(_for_each(name, self, values))
        return _given(stem, [method(a, b, c, value=v) for a, b, c, v in zip(*lists, strict=True)])

    return function


def _lerp(stem):
    name, method = f"_foreach_{stem}", _method(stem)

    def function(self, tensors1, weight=None, *, weights=None):
        ends = _of_equal_length(name, _checked(name, self), _checked(name, tensors1))
        weights = _for_each(name, self, weight if weights is None else weights)
        return _given(stem, [method(a, b, w) for a, b, w in zip(self, ends, weights, strict=True)])

    return function


def _pow(self, exponent):
    """`_foreach_pow(base, exponents)` has a number as its first operand, too."""
    if isinstance(self, Number):
        return tuple(self**tensor for tensor in _checked("_foreach_pow", exponent))
    return _POWERS(self, exponent)


def _clone(self, *, memory_format=None):
    return tuple(tensor.clone() for tensor in _checked("_foreach_clone", self))


def _copy_(self, src, non_blocking=False):
    name = "_foreach_copy_"
    sources = _of_equal_length(name, _checked(name, self), _checked(name, src))
    for tensor, source in zip(self, sources, strict=True):
        tensor.copy_(source)


def _max(self):
    return tuple(tensor.max() for tensor in _checked("_foreach_max", self))


def _mm(self, mat2):
    name = "_foreach_mm"
    others = _of_equal_length(name, _checked(name, self), _checked(name, mat2))
    return tuple(a.mm(b) for a, b in zip(self, others, strict=True))


def _norm(self, ord=2, dtype=None):
    return tuple(tensor.norm(ord, dtype=dtype) for tensor in _checked("_foreach_norm", self))


def _powsum(self, ord=2, dtype=None):
    return tuple(tensor.abs().pow(ord).sum(dtype=dtype) for tensor in _checked("_foreach_powsum", self))


def _zero_(self):
    for tensor in _checked("_foreach_zero_", self):
        tensor.zero_()


_POWERS = _of_two("pow")
_MAKERS = {"addcmul": _products, "addcdiv": _products, "lerp": _lerp}


def _all_functions():
    yield from ((stem + form, _of_one(stem + form)) for stem in FOREACH_OF_ONE.split() for form in ("", "_"))
    yield from ((stem + form, _of_two(stem + form)) for stem in FOREACH_OF_TWO.split() for form in ("", "_"))
    yield from ((stem + form, make(stem + form)) for stem, make in _MAKERS.items() for form in ("", "_"))
    yield from ((name, globals()[f"_{name}"]) for name in FOREACH_APART.split())


for _stem, _function in _all_functions():
    _function.__name__ = _function.__qualname__ = f"_foreach_{_stem}"
    globals()[_function.__name__] = _function


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """{(device, dtype): (lists, positions)}: the tensors of parallel lists, by the type of those in the first."""
    groups = {}
    for position, first in enumerate(tensorlistlist[0]):
        lists, positions = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for group, tensors in zip(lists, tensorlistlist, strict=True):
            if tensors:
                group.append(tensors[position])
        if with_indices:
            positions.append(position)
    return groups


def _get_foreach_kernels_supported_devices():
    """The devices with kernels for lists: none, where every list is a loop."""
    return []


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _has_foreach_support(tensors, device):
    return False


_device_has_foreach_support = _has_foreach_support
