"""Parameter: a tensor that a module counts as its own; and one whose shape is known only at the first forward."""

import copyreg

import numpy as np

from ..creation import empty
from ..overriding import disabled, has_say, known_plain
from ..pickling import own_array, reduce_class, reduce_tensor
from ..runtime.state.device import require_cpu
from ..runtime.state.elsewhere import is_elsewhere
from ..runtime.state.modes import state
from ..runtime.state.tensor import Tensor, TensorType, tensor_of


class ParameterType(TensorType):
    """The type of Parameter: tensors of a class of the user's are parameters where Parameter has been called on one."""

    def __instancecheck__(cls, x):
        if type.__instancecheck__(cls, x):
            return True
        return cls is Parameter and isinstance(x, Tensor) and getattr(x, "_is_param", False)


copyreg.pickle(ParameterType, reduce_class)


class Parameter(Tensor, metaclass=ParameterType):
    """A leaf tensor that shares memory with `data`. Assigned to an attribute of a Module it becomes its parameter.

    Of a tensor whose class has a `__torch_function__` it is a leaf of that class.
    """

    __slots__ = ()
    __torch_function__ = disabled

    def __new__(cls, data, requires_grad=True):
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: data is a {type(data).__name__}; it must be a Tensor: weft.tensor(...)")
        if type(data) is not Tensor and has_say(type(data)):
            return _parameter_of(data, requires_grad)
        if data._data is None and is_elsewhere(data):
            self = Tensor.__new__(cls, None)
            self._meta = data._meta
        else:
            self = Tensor.__new__(cls, data.array)
        self.share_storage(data)
        self.requires_grad = requires_grad
        return self

    def __init__(self, *args, **kwargs):
        """`__new__` has made the whole object, as it does for every tensor, and that of a subclass may take more."""

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = Parameter(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __copy__(self):
        return type(self)(self.detach(), self.requires_grad)

    def __reduce_ex__(self, protocol):
        _, (kind, array, requires_grad), attributes = reduce_tensor(self)
        return _rebuild, (kind, array, requires_grad), attributes

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()


def _parameter_of(data, requires_grad):
    made = data.detach().requires_grad_(requires_grad)
    if type(made) is not type(data):
        raise RuntimeError(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an "
            f"instance of the same type, but return type {type(made).__name__} was found instead. To use the type as a "
            "Parameter, please correct the detach() semantics defined by its __torch_function__ implementation."
        )
    made._is_param = True
    return made


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module it is assigned to; in its state_dict only if `persistent`."""

    __slots__ = ("persistent",)
    __torch_function__ = disabled

    def __new__(cls, data=None, *, persistent=True):
        data = empty(0) if data is None else data.detach()
        self = Tensor.__new__(cls, data.array)
        self.share_storage(data)
        self.persistent = persistent
        return self

    def __init__(self, *args, **kwargs):
        """`__new__` has made the whole object."""


def _rebuild(kind, array, requires_grad):
    return kind(tensor_of(own_array(array)), requires_grad)


class _Uninitialized:
    """What has no shape and no values yet. `materialize(shape)` gives it some, and makes it what it stands for."""

    __slots__ = ()

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    @property
    def array(self):
        raise ValueError(
            "Attempted to use an uninitialized parameter. This happens when a lazy module, or "
            "nn.parameter.UninitializedParameter, is used by itself: call `forward` with a batch first"
        )

    def materialize(self, shape, device=None, dtype=None):
        """Become a tensor of this shape, the same object as before; its values are for the caller to set."""
        made = empty(shape, dtype=dtype or self.dtype, device=device)
        self.__class__ = self.cls_to_become
        self.data = made

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad, None, self.dtype)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(requires_grad=self.requires_grad, dtype=self.dtype)
        return memo[id(self)]


def _uninitialized(cls, requires_grad, device, dtype):
    if device is not None:
        require_cpu(cls.__name__, device)
    dtype = dtype or state.default_dtype
    self = Tensor.__new__(cls, np.zeros(0, dtype.numpy))
    self.requires_grad = requires_grad
    return self


class UninitializedParameter(_Uninitialized, Parameter):
    """A Parameter whose shape is not known yet."""

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return _uninitialized(cls, requires_grad, device, dtype)

    def __init__(self, requires_grad=True, device=None, dtype=None):
        """`__new__` has made the whole object."""


class UninitializedBuffer(_Uninitialized, Tensor):
    """A buffer whose shape is not known yet."""

    __slots__ = ()
    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None):
        return _uninitialized(cls, requires_grad, device, dtype)

    def __init__(self, requires_grad=False, device=None, dtype=None):
        """`__new__` has made the whole object."""


def is_lazy(x):
    """Whether it has no shape yet."""
    return isinstance(x, _Uninitialized)


known_plain(Parameter, Buffer)
