"""What optimizers import that are copies of PyTorch's own, with something of their authors' in it.

    from torch.optim.optimizer import _use_grad_for_differentiable, _get_value, ParamsT

On a CPU and outside of PyTorch's compiler these functions do what they do there: a step is computed tensor by tensor.
"""

import math
from collections.abc import Iterable
from functools import wraps
from typing import Any

from ..compiler import dtypes
from ..complex_numbers import view_as_real
from ..nn.parameter import Parameter
from ..runtime.state.modes import set_grad_enabled, state
from ..runtime.state.tensor import Tensor

ParamsT = _params_t = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
_foreach_supported_types = [Tensor, Parameter]
_params_doc = _foreach_doc = _fused_doc = _capturable_doc = _differentiable_doc = _maximize_doc = ""


def _use_grad_for_differentiable(function):
    """A step that is recorded for backward if the optimizer's option `differentiable` says so."""

    @wraps(function)
    def step(self, *args, **kwargs):
        with set_grad_enabled(self.defaults["differentiable"]):
            return function(self, *args, **kwargs)

    return step


def _disable_dynamo_if_unsupported(single_tensor_fn=None):
    """A decorator that changes nothing."""
    return lambda function: function


def _get_value(x):
    """The number in a tensor of one element, or the number itself."""
    return x.item() if isinstance(x, Tensor) else x


def _to_scalar(x):
    """A tensor of one element without dimensions; a number as it is."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x


def _dispatch_sqrt(x):
    """The root of a tensor or of a number."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def _stack_if_compiling(x):
    """The list as it is."""
    return x


def _get_scalar_dtype(is_fused=None):
    """The type of counts of steps."""
    is_wide = state.default_dtype is dtypes.float64 and not is_fused
    return dtypes.float64 if is_wide else dtypes.float32


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    """Neither: these are for other devices."""
    return False, False


def _get_foreach_kernels_supported_devices():
    """Kinds of devices; the CPU is none of them."""
    return ["cuda", "xpu", "mtia"]


def _get_capturable_supported_devices(supports_xla=True):
    """Kinds of devices; the CPU is none of them."""
    return ["cuda", "xpu", "hpu"] + ["xla"] * supports_xla


def _view_as_real(params, *state_and_grads):
    """Put tensors of real numbers in the place of complex parameters in these lists, and of what belongs to them."""
    for k, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[k] = view_as_real(tensors[k])
