"""The methods of Tensor: operators, PyTorch's method spellings, in-place forms. Attached once, at import."""

import numpy as np

from . import (
    by_python,
    inplace,
    later_families,
    pickling,
    reshaping,
    shaping,
    tensor_hooks,
    tensor_methods,
    watched_classes,
)
from . import functions as f
from .compiler.dtypes import bfloat16
from .compiler.later import later
from .compiler.ops import TABLE, arithmetic, derived, division, neural, transcendental, view
from .compiler.ops.random import between, scaled_normal
from .compiler.ops.table import OpError
from .compiler.shapes import normalize_axis
from .compiler.storage import readable, rounded
from .families import FAMILIES
from .indexing import getitem, setitem
from .inplace import fill, overwrite, redrawn
from .kinds import answering, door_of
from .numpy_words import understanding
from .operands import factor_first
from .overriding import has_say
from .runtime.eager.gate import apply_inplace, check_fits, cleared_at_once
from .runtime.eager.node import keep_output
from .runtime.eager.rebase import set_apart, take_memory
from .runtime.state import random
from .runtime.state.aligned import is_same_memory, layout_of_array
from .runtime.state.elsewhere import is_elsewhere, values_of
from .runtime.state.exposure import shared
from .runtime.state.marks import AS_IT_STANDS, IN_PYTHON, TURNED, operators
from .runtime.state.modes import state, watching
from .runtime.state.tensor import (
    Tensor,
    _apply,
    answering_for,
    shape_of,
)
from .spelled import FORMS

_tensor_repr = later("printing:tensor_repr")
_OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
# 1 + x is x + 1, in the graph too.
_COMMUTATIVE = ("add", "mul", "and", "or", "xor")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _operator(op, reflected):
    def method(self, other):
        kind = other.__class__
        if kind is not float and kind is not int and not isinstance(other, Tensor):
            try:
                other = f.operand(other)
            except TypeError:
                return NotImplemented
        return op(other, self) if reflected else op(self, other)

    return method


def _attach_operators():
    for python_name, name in _OPERATORS.items():
        setattr(Tensor, f"__{python_name}__", _operator(TABLE[name], False))
        setattr(Tensor, f"__r{python_name}__", _operator(TABLE[name], python_name not in _COMMUTATIVE))
        operators[python_name] = TABLE[name], TURNED if python_name in _COMMUTATIVE else AS_IT_STANDS
    # As PyTorch computes it, so that values and graphs are the same: two roundings where 2 / x would have one.
    Tensor.__rtruediv__ = Tensor.__rdiv__ = lambda self, other: arithmetic.mul(
        arithmetic.reciprocal(self), f.operand(other)
    )
    operators["truediv"] = arithmetic.div, IN_PYTHON
    for name in _COMPARISONS:
        setattr(Tensor, f"__{name}__", _operator(TABLE[name], False))
        operators[name] = TABLE[name], IN_PYTHON
    operators["neg"], operators["matmul"] = (arithmetic.neg, IN_PYTHON), (TABLE["matmul"], IN_PYTHON)
    Tensor.__hash__ = object.__hash__
    Tensor.__neg__ = lambda self: arithmetic.neg(self)
    Tensor.__pos__ = lambda self: self
    Tensor.__abs__ = lambda self: arithmetic.abs_(self)
    Tensor.__invert__ = lambda self: arithmetic.bitwise_not(self)
    Tensor.__pow__ = f.pow
    Tensor.__rpow__ = lambda self, other: f.pow(other, self)
    Tensor.__matmul__ = f.matmul
    Tensor.__rmatmul__ = lambda self, other: f.matmul(f.operand(other), self)
    Tensor.__getitem__ = getitem
    Tensor.__setitem__ = setitem


# --- in place -------------------------------------------------------------------------------------------------------
# What a statement like `x %= 2` calls.
_INPLACE_OPERATORS = {
    "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_", "ifloordiv": "floor_divide_",
    "imod": "remainder_", "ipow": "pow_", "iand": "bitwise_and_", "ior": "bitwise_or_", "ixor": "bitwise_xor_",
    "ilshift": "bitwise_left_shift_", "irshift": "bitwise_right_shift_",
}  # fmt: skip


def _add_(self, other, *older, alpha=1):
    if older:
        other, alpha = factor_first("add_", other, *older)
    other = f.operand(other)
    return inplace.with_multiple(arithmetic.add, derived.add_scaled, self, other, alpha)


def _sub_(self, other, *older, alpha=1):
    if older:
        other, alpha = factor_first("sub_", other, *older)
    other = f.operand(other)
    return inplace.with_multiple(arithmetic.sub, derived.sub_scaled, self, other, alpha)


def _div_(self, other, *, rounding_mode=None):
    other = f.operand(other)
    if rounding_mode is None:
        return apply_inplace(arithmetic.div, self, (self, other), {})
    if rounding_mode == "floor":
        return apply_inplace(division.floor_divide, self, (self, other), {})
    quotient = f.div(self, other, rounding_mode=rounding_mode)
    check_fits("div", self, quotient)
    return overwrite(self, quotient)


def _copy_(self, src, non_blocking=False):
    return overwrite(self, src)


def _fill_(self, value):
    return fill(self, value)


def _zero_(self):
    if self._requires_grad and state.grad_enabled:
        return fill(self, 0, "ZeroBackward0")
    return self if cleared_at_once([self]) else fill(self, 0)


_NUMBERS = (float, int)


def _uniform_(self, low=0.0, high=1.0, *, generator=None):
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    are_plain = low.__class__ in _NUMBERS and high.__class__ in _NUMBERS
    if are_plain and redrawn(self, between, (float(high - low), float(low)), generator):
        return self
    return overwrite(self, random.between(self.shape, self.dtype, low, high, generator), "UniformBackward0")


def _normal_(self, mean=0.0, std=1.0, *, generator=None):
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    are_plain = std.__class__ in _NUMBERS and mean.__class__ in _NUMBERS
    if are_plain and redrawn(self, scaled_normal, (float(std), float(mean)), generator):
        return self
    return overwrite(self, random.normal(self.shape, self.dtype, generator, std, mean), "NormalBackward0")


def _clamp_(self, min=None, max=None):
    if min is None and max is None:
        raise RuntimeError("clamp_: At least one of 'min' or 'max' must not be None")
    if min is None:
        return apply_inplace(arithmetic.clamp_max, self, (self, f.operand(max)), {})
    if max is None:
        return apply_inplace(arithmetic.clamp_min, self, (self, f.operand(min)), {})
    return apply_inplace(arithmetic.clamp, self, (self, f.operand(min), f.operand(max)), {})


def _pow_(self, exponent):
    exponent = f.operand(exponent)
    if isinstance(exponent, Tensor):
        whole = self.dtype.category < 2 and exponent.dtype.category < 2
        return apply_inplace(division.integer_pow if whole else transcendental.pow_, self, (self, exponent), {})
    return apply_inplace(neural.power, self, (self,), {"exponent": rounded(exponent, self.dtype)})


def _requires_grad_(self, requires_grad=True):
    if requires_grad.__class__ is not bool:
        given = type(requires_grad).__name__
        raise TypeError(f"requires_grad_(): argument 'requires_grad' (position 1) must be bool, not {given}")
    if self._requires_grad is not requires_grad:
        self.requires_grad = requires_grad
    return self


def _attach_inplace():
    Tensor.add_, Tensor.sub_, Tensor.div_ = _add_, _sub_, _div_
    Tensor.copy_, Tensor.fill_ = _copy_, _fill_
    Tensor.zero_ = _zero_
    Tensor.square_ = lambda self: _pow_(self, 2)
    Tensor.uniform_ = answering(understanding("uniform_", _uniform_))
    Tensor.normal_, Tensor.clamp_ = answering(_normal_), _clamp_
    Tensor.pow_ = _pow_
    Tensor.clamp_min_ = lambda self, min: _clamp_(self, min=min)
    Tensor.clamp_max_ = lambda self, max: _clamp_(self, max=max)
    Tensor.lerp_ = lambda self, end, weight: apply_inplace(derived.lerp, self, (self, end, f.operand(weight)), {})
    Tensor.requires_grad_ = _requires_grad_
    for python_name, name in _INPLACE_OPERATORS.items():
        setattr(Tensor, f"__{python_name}__", getattr(Tensor, name))


# --- reading --------------------------------------------------------------------------------------------------------
def _item(self):
    """The one element as a Python number."""
    array = readable(self._data if state.frame is None and self._data is not None else values_of(self))
    if array.size != 1:
        raise OpError(
            f"a Tensor with {array.size} elements cannot be converted to Scalar: shape {array.shape}; reduce it, as in "
            ".sum(), or take one, as in x[0]; .tolist() gives all"
        )
    return array.item()


def _tolist(self):
    """The numbers as nested lists; of a tensor of no dimensions the number."""
    return readable(values_of(self)).tolist()


def _real_item(self):
    value = _item(self)
    if value.__class__ is complex:
        if value.imag:
            raise RuntimeError(f"value cannot be converted to a real number without overflow: {value}; take .real")
        return value.real
    return value


def _bool(self):
    array = readable(self._data if state.frame is None and self._data is not None else values_of(self))
    if array.size != 1:
        kind = "no values" if array.size == 0 else "more than one value"
        raise RuntimeError(
            f"Boolean value of Tensor with {kind} is ambiguous: shape {array.shape}; use .any() or .all()"
        )
    return bool(array.item())


def _numpy(self, *, force=False):
    """The values as an array sharing memory with the tensor. `force` takes them out of the graph first."""
    if self._data is None and is_elsewhere(self):
        if self._meta.gpu is None:
            self._meta.refuse()
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
                "memory first."
            )
        self = self.detach().cpu()
    if self.dtype is bfloat16:
        raise TypeError("numpy: Got unsupported ScalarType BFloat16, which NumPy does not have; convert with .float()")
    if force:
        return self.detach().lend()
    if self.requires_grad and state.grad_enabled:
        said = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead"
        raise RuntimeError(f"{said}; of np.sin(x), weft.sin(x) keeps the gradient.")
    return self.lend()


def _array(self, dtype=None, copy=None):
    array = _numpy(self)
    return np.array(array, dtype=dtype, copy=copy)


def _len(self):
    if self.ndim == 0:
        raise TypeError("len() of a 0-d tensor")
    return self.shape[0]


def _iter(self):
    if self.dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _repr(self):
    node = self.grad_fn
    tangent = None if state.level is None else state.level.tangent(self)
    return _tensor_repr(
        values_of(self),
        requires_grad=self.requires_grad,
        grad_fn_name=node.name() if node else None,
        prefix=f"{type(self).__name__}(" if has_say(type(self)) else "tensor(",
        tangent=None if tangent is None else repr(tangent),
        device=self.device if is_elsewhere(self) and self._meta.gpu is not None else None,
    )


def _size(self, dim=None):
    if dim is None:
        return self.shape
    data = self._data
    shape = data.shape if data is not None else self._meta.shape
    return shape[normalize_axis("size", dim, len(shape))]


def _layout(self):
    """(strides in elements, whether elements are in order)."""
    if self._data is not None:
        return layout_of_array(self._data)  # no change of what is there, which a call may not have made yet, moves it
    if self._frame is not None and self._frame is state.frame:
        from .runtime.record.frame_views import layout_of

        return layout_of(self)
    if is_elsewhere(self):
        return self._meta.strides, self._meta.is_contiguous
    return layout_of_array(self.array)


def _stride(self, dim=None):
    data = self._data
    if data is None or state.frame is not None:
        strides, _ = _layout(self)
        return strides if dim is None else strides[dim]
    n_bytes = data.itemsize
    return tuple([s // n_bytes for s in data.strides]) if dim is None else data.strides[dim] // n_bytes


def _is_contiguous(self, memory_format=None):
    data = self._data
    return _layout(self)[1] if data is None else data.flags.c_contiguous


def _contiguous(self, memory_format=None):
    return self if _is_contiguous(self) else f.clone(self)


def _format(self, spec):
    """A 0-d tensor is written as its number, so that f"loss {loss}" reads well; a parameter is not, as in PyTorch."""
    return format(self.item(), spec) if self.ndim == 0 and type(self) is Tensor else object.__format__(self, spec)


def _numel(self):
    count = 1
    for d in self.shape:
        count *= d
    return count


def _attach_reading():
    Tensor.item, Tensor.numpy, Tensor.__array__ = _item, _numpy, _array
    Tensor.__bool__, Tensor.__len__, Tensor.__iter__ = _bool, _len, _iter
    Tensor.__int__ = lambda self: int(_real_item(self))
    Tensor.__float__ = lambda self: float(_real_item(self))
    Tensor.__complex__ = lambda self: complex(_item(self))
    Tensor.__index__ = lambda self: _index(self)
    Tensor.__contains__ = lambda self, x: bool(values_of(self == x).any())
    Tensor.__repr__, Tensor.__format__ = _repr, _format
    Tensor._repr_html_ = later("notebooks:tensor_html")
    Tensor.tolist = _tolist
    Tensor.size, Tensor.stride, Tensor.dim = _size, _stride, lambda self: self.ndim
    Tensor.numel = Tensor.nelement = _numel
    Tensor.ndimension, Tensor.where = Tensor.dim, lambda self, condition, other: f.where(condition, self, other)
    Tensor.is_contiguous, Tensor.contiguous = _is_contiguous, _contiguous


def _index(self):
    if self.dtype.category != 1 or _numel(self) != 1:
        raise TypeError(f"only integer tensors of a single element can be an index, got {self.dtype.name}{self.shape}")
    return int(_item(self))


# --- types, autograd ------------------------------------------------------------------------------------------------
def _detach(self):
    """The same values, sharing memory, cut from the graph."""
    out = _apply(view.detach, (self,), {})
    base = out._base
    if base is None or base._data is None or base._node is not None or base._frame is not None:
        set_apart(out)
    else:
        out._is_apart = True  # of a tensor without a history that is all
    return out


def _data(self):
    """The same memory without history; changes made through it do not count as changes of this tensor."""
    if state.frame is None and self._data is not None and not watching:
        return shared(self)
    return _apply(view.data, (self,), {})


def _delete_data(self):
    raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")


def _set_data(self, value):
    """Take over the memory of another tensor; shape and dtype may change. Autograd does not see it."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}; use weft.tensor(...)")
    if not value.has_array:
        raise RuntimeError(
            "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type: "
            f"this one is dense, the other one {value.layout!r}; write value.to_dense()"
        )
    if self._requires_grad and not value.dtype.is_differentiable:
        raise RuntimeError(
            "data set to a tensor that requires gradients must be floating point or complex dtype, "
            f"but got {value.dtype.name}; convert it with .float() or .double() first"
        )
    if state.frame is not None and value._data is None and _is_taken_over(state.frame, self, value):
        return
    there = value._data is None and is_elsewhere(value)
    if there and value._meta is not self._meta or not there and not is_same_memory(value.array, self._data):
        if state.frame is not None:
            state.frame.before_new_memory(self)
        frame = answering_for(self)
        if frame is not None:
            frame.leave(self)
        keep_output(self)
        take_memory(self, value)


def _is_taken_over(frame, target, value):
    """Whether a call in flight makes `target.data = value` a change like others, or what `x.data += 1` ends with."""
    if frame.shows_whole(value, target) or frame.inplace_again(view.data, target, (value,), {}):
        return True
    # It may be another frame now.
    return state.frame.takes_memory(target, value)


def _output_nr(self):
    """Which output of its node the tensor is."""
    node = None if self.is_leaf else self.grad_fn
    return node.output_index(self) if node is not None and node.n_outputs > 1 else 0


def _detach_inplace(self):
    """Cut this tensor from the graph: from now on it is a leaf that requires no gradients."""
    if self._requires_grad and self._is_view():
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    if not self._requires_grad:
        # Nothing to cut, as in `p.grad.detach_()` before gradients are set to zero.
        return self
    self.leave_call()
    self._node, self._requires_grad = None, False
    return self


def _attach_autograd():
    Tensor.detach = _detach
    Tensor.data = property(_data, _set_data, _delete_data)
    Tensor.output_nr, Tensor.detach_ = property(_output_nr), _detach_inplace
    Tensor.T = property(lambda self: view.permute(self, axes=tuple(range(len(shape_of(self)) - 1, -1, -1))))
    Tensor.mT = property(shaping.transposed_matrices)
    Tensor.view = shaping.view_
    Tensor.type_as = door_of("type_as", lambda self, other: f.to_dtype(self, other.dtype))


def attach():
    """Give Tensor its methods."""
    for module in FAMILIES:
        for name in vars(module).get("METHODS", ()):
            setattr(Tensor, name, door_of(name, understanding(name, getattr(module, name))))
    for name, method in FORMS["Tensor"].items():
        setattr(Tensor, name, method)
    Tensor.to_dtype = f.to_dtype
    _attach_operators()
    _attach_inplace()
    _attach_reading()
    _attach_autograd()
    tensor_hooks.attach()
    tensor_methods.attach()
    by_python.attach()
    pickling.attach()
    inplace.attach(FAMILIES)
    reshaping.attach()
    later_families.attach()
    watched_classes.attach()


attach()
