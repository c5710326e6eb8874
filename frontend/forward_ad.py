"""`weft.autograd.forward_ad`: PyTorch's dual numbers.

Inside a dual level tangents go along with every op (runtime/eager/forward.py), whether or not anything requires
gradients.

>>> import weft
>>> with dual_level():
...     x = make_dual(weft.tensor(3.0), weft.tensor(1.0))
...     unpack_dual(x * x).tangent
tensor(6.)
"""

from collections import namedtuple

from .public import of_module
from .reference import document
from .runtime.eager.forward import Level, set_enabled, without_tangents
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor

_of_module, __dir__ = of_module(f"{__name__.partition('.')[0]}.autograd.forward_ad")

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ["primal", "tangent"])


def __getattr__(name):
    if name == "_current_level":
        return -1 if state.level is None else 0
    return _of_module(name)


def enter_dual_level():
    """Dual tensors can be made from now on. There is one level at a time."""
    if state.level is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment: exit the dual level first")
    Level()
    return 0


def exit_dual_level(*, level=None):
    """The tangents made since are forgotten."""
    if state.level is None:
        raise RuntimeError("Trying to exit a forward AD level that was not entered: call enter_dual_level first")
    if level not in (None, 0):
        raise RuntimeError(f"Trying to exit the forward AD level {level}; the one in flight is 0")
    state.level.exit()


class dual_level:
    """`with dual_level():` enters a level and exits it."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exception):
        exit_dual_level()


class _set_fwd_grad_enabled:
    """Whether ops pass tangents on, from now on or until the end of the `with` block."""

    def __init__(self, mode):
        self.before = set_enabled(mode)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        set_enabled(self.before)


def _is_fwd_grad_enabled():
    return state.forward_enabled


def make_dual(tensor, tangent, *, level=None):
    """A tensor with the values of `tensor`, whose memory it shows, and this tangent, of the same shape and type."""
    if state.level is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    _require_floats("primal", tensor)
    _require_floats("tangent", tangent)
    if tensor.shape != tangent.shape or tensor.dtype is not tangent.dtype:
        raise RuntimeError(
            "make_dual: Trying to set a forward gradient that has a different size or type than that of the original "
            f"Tensor, this is not supported. The tangent is {tangent.dtype.name}{tangent.shape}, the tensor "
            f"{tensor.dtype.name}{tensor.shape}; shape and type must be equal"
        )
    if state.level.tangent(tangent) is not None:
        raise RuntimeError(
            "make_dual: the tangent has a forward gradient at the same level, this is not supported: it is a dual "
            "tensor itself. Give unpack_dual(tangent).primal"
        )
    dual = _plain(tensor)
    state.level.set(dual, tangent)
    return dual


def _plain(tensor):
    """The same tensor to autograd, without a tangent."""
    with without_tangents():
        return tensor.view_as(tensor)


def _require_floats(name, x):
    kind = getattr(x, "dtype", type(x))
    if not isinstance(x, Tensor) or not kind.is_differentiable:
        raise ValueError(f"Expected {name} to be floating point or complex, but got: {kind}")


def unpack_dual(tensor, *, level=None):
    """(primal, tangent) of a tensor; the tangent is None if it depends on no dual tensor."""
    tangent = None if state.level is None or not isinstance(tensor, Tensor) else state.level.tangent(tensor)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(_plain(tensor), tangent)


document("autograd.forward_ad", __name__)
