"""Methods of Tensor that compute nothing: places, types, new tensors like it, and questions. Attached by methods.py."""

from . import functions as f
from .compiler.dtypes import DType
from .compiler.later import later
from .compiler.ops import TABLE
from .complex_numbers import converted
from .creation import filled, full, size_given, tensor
from .overriding import NO_DISPATCHER, check_subclass
from .placement import check_memory_format, check_placement, place_like, strided
from .runtime.eager.node import edge_of
from .runtime.state.aligned import address_of
from .runtime.state.device import CPU, gpu_given
from .runtime.state.elsewhere import is_elsewhere
from .runtime.state.hooks import TensorHook
from .runtime.state.marks import ALONE, COPY, PLAIN, WITH_FACTOR, by_shape, changing
from .runtime.state.storage import is_apart
from .runtime.state.tensor import Tensor
from .runtime.state.tensor import is_inference as _is_inference
from .shaping import sizes
from .tensor_types import cast_method_names, type_named, type_of

_moved = later("gpu_tensors:moved")


# --- places -----------------------------------------------------------------------------------------------------------
def _to(self, *args, dtype=None, device=None, tensor=None, other=None, non_blocking=False, copy=False, **placement):
    """to(dtype), to(other tensor), to("cpu"), to("cpu", dtype): the tensor itself if that changes nothing, unless
    copy=True."""
    if placement:
        check_placement("to", placement)
    if device is not None or tensor is not None or other is not None:
        args = (*args, device, tensor, other)
    flags, is_told, gpu = [], False, None
    for a in args:
        if a is None:
            continue
        if a is CPU:
            is_told, gpu = True, None
        elif isinstance(a, (DType, type)):
            dtype = a
        elif isinstance(a, Tensor):
            dtype, is_told, gpu = a.dtype, True, a._meta.gpu if is_elsewhere(a) else None
        elif isinstance(a, bool):
            flags.append(a)
        else:
            is_told, gpu = True, gpu_given("to", a)
    # PyTorch takes non_blocking and copy by position too, last of all.
    copy = copy or len(flags) > 1 and flags[1]
    here = self
    if is_told and (gpu is not None or self._data is None and is_elsewhere(self)):
        here = _moved(self, gpu)
    result = here if dtype is None else converted(here, dtype)
    return f.clone(self) if copy and result is self else result


def _cpu(self, memory_format=None):
    """The tensor on the CPU: itself if it is there."""
    return _moved(self, None) if self._data is None and is_elsewhere(self) else self


def _elsewhere(name):
    def method(self, device=None, non_blocking=False, memory_format=None):
        gpu = gpu_given(name, device or name)
        return self if gpu is None else _moved(self, gpu)

    method.__doc__ = f"The tensor on a {name} device. RuntimeError if there is none."
    return method


# --- types ------------------------------------------------------------------------------------------------------------
def _cast_method(dtype):
    def method(self, memory_format=None):
        if memory_format is not None:
            check_memory_format(dtype.name, memory_format)
        return converted(self, dtype)

    method.__doc__ = f"The tensor as {dtype.name}; itself if it is."
    return method


def _type(self, dtype=None, non_blocking=False):
    """The tensor in another type (a dtype, or a class such as weft.FloatTensor or its name); without one, the name of
    PyTorch's class for its own."""
    if dtype is None:
        return str(type_of(self.dtype))
    return converted(self, dtype if isinstance(dtype, DType) else type_named(dtype).dtype)


# --- new tensors ------------------------------------------------------------------------------------------------------
def _new_tensor(self, data, *, dtype=None, requires_grad=False, **placement):
    place_like(self, placement)
    return tensor(data, dtype=dtype or self.dtype, requires_grad=requires_grad, **placement)


def _new_full(self, size, fill_value, *, dtype=None, requires_grad=False, **placement):
    if self._data is None and is_elsewhere(self) and self._meta.gpu is None:
        made = self._meta.filled(tuple(size), fill_value, dtype or self.dtype)
        made.requires_grad = requires_grad
        return made
    place_like(self, placement)
    return full(size, fill_value, dtype=dtype or self.dtype, requires_grad=requires_grad, **placement)


def _new_filled(value):
    def method(self, *shape, size=None, dtype=None, requires_grad=False, **placement):
        if placement or dtype is not None or self._data is None:
            return _new_full(self, sizes(shape, size), value, dtype=dtype, requires_grad=requires_grad, **placement)
        return filled(size_given(shape, size), value, self.dtype, requires_grad)

    return method


def _new(self, *data, device=None):
    """PyTorch's older constructor, with this tensor's type: new(2, 3), new([1, 2])."""
    return type_of(self.dtype)(*data, device=device)


# --- questions --------------------------------------------------------------------------------------------------------
def _storage_offset(self):
    """How many elements after the beginning of the memory of the tensor it is a view of."""
    address, base = _address(self), self._base  # read in any case: who looks on is told that it was
    return 0 if base is None else (address - _address(base)) // self.dtype.size_bytes


def _address(self):
    if self._data is None and is_elsewhere(self):
        return self._meta.address
    return address_of(self.array)


def _is_nonzero(input):
    """Whether the one element is not zero."""
    return bool(input)


def _is_same_size(input, other):
    return input.shape == other.shape


def _itself(self):
    """The tensor itself: there is nothing to resolve, pin or share."""
    return self


def _no(self):
    """False: there are no such tensors here."""
    return False


_OTHER_DEVICES = str.split("cuda xpu mps meta ipu maia mtia vulkan hpu xla")
_OTHER_LAYOUTS = str.split("sparse sparse_csr quantized mkldnn nested")
_NEVER = str.split("pinned neg shared coalesced")
_NOTHING_TO_DO = str.split("resolve_conj resolve_neg pin_memory share_memory_ to_dense")


def _private(name, read, write=None):
    """An attribute that PyTorch has by a private name, and that cannot be deleted."""

    def delete(self):
        raise RuntimeError(f"{name} of a tensor cannot be deleted")

    return property(read, write, delete, f"{name}, by PyTorch's private name.")


def _set_backward_hooks(self, hooks):
    """Of a tensor without gradients any: nothing calls them."""
    if self.requires_grad:
        raise RuntimeError("_backward_hooks of a tensor that requires gradients are set by register_hook")
    self.__dict__["hooks"] = hooks


def _backward_hooks(self):
    """The hooks of the tensor's gradient by their number; None if there are none."""
    if not self.requires_grad:
        return self.__dict__.get("hooks")
    node, index = edge_of(self) or (None, 0)
    hooks = getattr(node, "pre_hooks", None) or {}
    return {k: h.hook for k, h in hooks.items() if isinstance(h, TensorHook) and h.index == index} or None


def _make_subclass(cls, data, require_grad=False):
    """A leaf of a class of the user's that shows the memory of a tensor, without the class being called."""
    if not isinstance(data, Tensor):
        raise TypeError(f"_make_subclass(): argument 'data' (position 2) must be Tensor, not {type(data).__name__}")
    check_subclass(cls)
    made = Tensor.__new__(cls, data.array)
    made.share_storage(data)
    made.requires_grad = require_grad
    return made


def _make_wrapper_subclass(cls, *sizes, **options):
    """NotImplementedError: a tensor without memory is one that only a dispatcher could compute with."""
    check_subclass(cls)
    raise NotImplementedError(
        f"_make_wrapper_subclass: {cls.__name__} would have no memory of its own, and {NO_DISPATCHER}. Keep the "
        "tensors as attributes of a class with a __torch_function__"
    )


def _attach_questions():
    for name in (*_OTHER_DEVICES, *_OTHER_LAYOUTS):
        setattr(Tensor, f"is_{name}", False)
    for name in _NEVER:
        setattr(Tensor, f"is_{name}", _no)
    for name in _NOTHING_TO_DO:
        setattr(Tensor, name, _itself)
    Tensor.is_cpu, Tensor.device, Tensor.layout = True, CPU, strided
    Tensor.get_device = lambda self: -1
    Tensor.is_signed = lambda self: self.dtype.is_signed
    Tensor.is_complex = lambda self: self.dtype.is_complex
    Tensor.is_floating_point = lambda self: self.dtype.is_floating_point
    Tensor.is_nonzero, Tensor.is_same_size = _is_nonzero, _is_same_size
    Tensor.element_size = lambda self: self.dtype.size_bytes
    Tensor.itemsize = property(lambda self: self.dtype.size_bytes)
    Tensor.nbytes = property(lambda self: self.dtype.size_bytes * self.numel())
    Tensor.data_ptr = _address
    Tensor.storage_offset = _storage_offset
    # In PyTorch a view of a view is a view of the first tensor too.
    # Of inference tensors nobody need know.
    Tensor._is_view = lambda self: self._base is not None and not (_is_inference(self) or is_apart(self))
    Tensor.is_inference = _is_inference
    Tensor._grad_fn = _private("grad_fn", lambda self: self.grad_fn)
    Tensor._backward_hooks = _private("the hooks", _backward_hooks, _set_backward_hooks)


_ABOUT_MEMORY = {
    "storage": "The memory that the tensor is in, all of it, as elements of its type: `nbytes()`, `data_ptr()`.",
    "untyped_storage": "The memory that the tensor is in, all of it, as bytes: `nbytes()`, `data_ptr()`, `len()`.",
    "is_set_to": "Whether another tensor is the same elements of the same memory, in the same order.",
}


def attach():
    """Give Tensor these methods."""
    for name in ("prelu", "hardshrink"):  # of networks, which are imported when they are asked for
        method = later(f"nn.functional:{name}")
        method.__doc__ = f"weft.nn.functional.{name} of the tensor."
        setattr(Tensor, name, method)
    for name, doc in _ABOUT_MEMORY.items():
        method = later(f"storages:{name}")
        method.__doc__ = doc
        setattr(Tensor, name, method)
    _attach_questions()
    Tensor._make_subclass = staticmethod(_make_subclass)
    Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
    Tensor.to, Tensor.cpu, Tensor.type, Tensor.new = _to, _cpu, _type, _new
    for name in ("cuda", "xpu", "ipu", "hpu", "mtia"):
        setattr(Tensor, name, _elsewhere(name))
    for name, dtype in cast_method_names():
        setattr(Tensor, name, _cast_method(dtype))
    Tensor.new_tensor, Tensor.new_full = _new_tensor, _new_full
    Tensor.new_zeros, Tensor.new_ones = _new_filled(0), _new_filled(1)
    Tensor.new_empty = Tensor.new_zeros


# --- the same as functions --------------------------------------------------------------------------------------------
def is_complex(input):
    return input.is_complex()


def is_neg(input):
    return input.is_neg()


def is_inference(input):
    return input.is_inference()


def is_signed(input):
    return input.is_signed()


is_storage = later("storages:is_storage")
is_storage.__doc__ = "Whether it is the memory of a tensor, as `x.untyped_storage()` shows it."


def is_nonzero(input):
    return _is_nonzero(input)


def is_same_size(input, other):
    return _is_same_size(input, other)


def typename(obj):
    """A tensor's type in words, or the full name of any other object's class."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    return kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"


PUBLIC = str.split("""
    is_complex is_neg is_inference is_signed is_storage is_nonzero is_same_size typename
""")


# Those that lead to one op after the other, or to a number, by shape, type and arguments alone.
by_shape.update(
    (name, name == "view")
    for name in str.split("""
        sum mean amax amin any all var std softmax log_softmax argmax argmin
        view reshape flatten squeeze unsqueeze permute transpose swapaxes swapdims t expand narrow select
        diagonal trace size dim ndimension numel nelement
    """)
)
changing.update(
    {f"{name}_": (TABLE[name], ALONE, None) for name in str.split("exp sqrt neg tanh sigmoid abs relu")}
    | {f"{name}_": (TABLE[name], PLAIN, None) for name in ("mul", "div")}
    | {f"{name}_": (TABLE[name], WITH_FACTOR, TABLE[f"{name}_scaled"]) for name in ("add", "sub")}
    | {"copy_": (TABLE["clone"], COPY, None)}
)
