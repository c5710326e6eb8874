"""`weft.autograd.forward_ad`: PyTorch's dual numbers, by backward passes.

A dual tensor is one to differentiate for, with a tangent kept beside it. Unpacking a result computes its tangent: the
derivative, for the cotangent, of the result's gradient (two backward passes). So dual tensors require gradients, which
PyTorch's do not, and in-place changes of them are those of any such tensor.

>>> import weft
>>> with dual_level():
...     x = make_dual(weft.tensor(3.0), weft.tensor(1.0))
...     unpack_dual(x * x).tangent
tensor(6.)
"""

import threading
from collections import namedtuple

from .autograd import grad
from .creation import zeros_like
from .public import of_module
from .reference import document
from .runtime.state.modes import enable_grad, no_grad
from .runtime.state.tensor import Tensor

__getattr__, __dir__ = of_module(f"{__name__.partition('.')[0]}.autograd.forward_ad")

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ["primal", "tangent"])


class _Level(threading.local):
    """The pairs (dual tensor, tangent) made since a level was entered; None outside."""

    pairs = None


_level = _Level()


def enter_dual_level():
    """Dual tensors can be made from now on. There is one level at a time."""
    if _level.pairs is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _level.pairs = []
    return 0


def exit_dual_level(*, level=None):
    """The tangents made since are forgotten."""
    if _level.pairs is None:
        raise RuntimeError("Trying to exit a forward AD level that was not entered: call enter_dual_level first")
    _level.pairs = None


class dual_level:
    """`with dual_level():` enters a level and exits it."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exception):
        exit_dual_level()


def make_dual(tensor, tangent, *, level=None):
    """A tensor with the values of `tensor` and this tangent, of the same shape and type."""
    if _level.pairs is None:
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
    if any(dual is tangent for dual, _ in _level.pairs):
        raise RuntimeError(
            "make_dual: the tangent has a forward gradient at the same level, this is not supported: it is a dual "
            "tensor itself. Give unpack_dual(tangent).primal"
        )
    with enable_grad():
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
    _level.pairs.append((dual, tangent))
    return dual


def _require_floats(name, x):
    kind = getattr(x, "dtype", type(x))
    if not isinstance(x, Tensor) or not kind.is_floating_point:
        raise ValueError(
            f"Expected {name} to be floating point or complex, but got: {kind} (weft takes real ones only)"
        )


def unpack_dual(tensor, *, level=None):
    """(primal, tangent) of a tensor; the tangent is None if it depends on no dual tensor."""
    if _level.pairs is None:
        return UnpackedDualTensor(tensor, None)
    own = [tangent for dual, tangent in _level.pairs if dual is tensor]
    if own:
        return UnpackedDualTensor(tensor.detach(), own[0])
    return UnpackedDualTensor(tensor.detach() if _depends(tensor) else tensor, _tangent(tensor))


def _depends(tensor):
    return tensor.requires_grad and bool(_level.pairs)


def _tangent(tensor):
    if not _depends(tensor):
        return None
    duals, tangents = zip(*_level.pairs)
    with enable_grad():
        cotangent = zeros_like(tensor).requires_grad_()
        gradients = grad(tensor, duals, cotangent, create_graph=True, retain_graph=True, allow_unused=True)
    met = [(g, tangent) for g, tangent in zip(gradients, tangents) if g is not None]
    if not met:
        return None
    with no_grad():
        pairs = [(g, tangent) for g, tangent in met if g.requires_grad]
        if not pairs:
            return zeros_like(tensor)
        found = grad([g for g, _ in pairs], cotangent, [t for _, t in pairs], retain_graph=True, allow_unused=True)[0]
    return zeros_like(tensor) if found is None else found


document("autograd.forward_ad", __name__)
