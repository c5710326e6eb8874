"""weft._C: what programs ask of PyTorch's C++ side, as far as weft has an answer.

A few are functions that PyTorch's users call for want of others (which backward pass is this, will it come to that
node); the rest are what tests of autograd are written with.
"""

import sys
import weakref

from .compiler.dtypes import DType
from .compiler.ops.linear_algebra import LinAlgError
from .graph import Node, set_versions
from .overriding import ALL, all_off, disabled, off
from .runtime.eager.forward import set_enabled
from .runtime.eager.function import Function
from .runtime.eager.node import AccumulateGrad, BaseNode
from .runtime.eager.saved_hooks import SavedTensor
from .runtime.state.device import device as as_device
from .runtime.state.modes import is_grad_enabled, is_inference_mode_enabled, state
from .runtime.state.tensor import Tensor

__all__ = ["is_grad_enabled", "is_inference_mode_enabled"]

_LinAlgError = LinAlgError


class _WeakTensorRef:
    """A reference that does not keep a tensor."""

    def __init__(self, tensor):
        self.reference = weakref.ref(tensor)

    def expired(self):
        """Whether the tensor is gone."""
        return self.reference() is None


class Value:
    """A value of PyTorch's older compiler. There are none: programs import the name, some by accident."""


def _get_tracing_state():
    """None: no function is being traced by PyTorch's older compiler."""
    return None


def _are_functorch_transforms_active():
    """Whether a transformation of weft.func is at work around the code that asks."""
    func = sys.modules.get(f"{__name__.partition('.')[0]}.func")
    return func is not None and func.is_transforming()


def _set_fwd_grad_enabled(enabled):
    """Whether ops in a dual level pass tangents on, from now on."""
    set_enabled(enabled)


def _current_graph_task_id():
    """The number of the backward pass in flight in this thread; -1 if there is none."""
    return -1 if state.sweep is None else state.sweep.number


def _will_engine_execute_node(node):
    """Whether the backward pass in flight will come to a node."""
    if not isinstance(node, BaseNode):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    if state.sweep is None:
        raise RuntimeError("_will_engine_execute_node can only be called during the backward pass")
    if isinstance(node, AccumulateGrad) and state.sweep.captured is not None:
        raise RuntimeError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is "
            "currently not supported."
        )
    return state.sweep.will_reach(node)


def _current_graph_task_execution_order():
    """The nodes of the backward pass in flight in the order in which they run, those that have run too.

    RuntimeError outside of one, and as in PyTorch unless autograd.set_multithreading_enabled(False) is in force.
    """
    if state.sweep is None:
        raise RuntimeError("_current_graph_task_execution_order should only be called during the backward pass")
    if state.multithreading:
        raise RuntimeError(
            "_current_graph_task_execution_order expects the current backward to be executed with multithreading "
            "disabled: with weft.autograd.set_multithreading_enabled(False)"
        )
    return state.sweep.order()


class _nn:
    """What modules ask."""

    @staticmethod
    def _parse_to(*args, device=None, dtype=None, tensor=None, non_blocking=False, memory_format=None):
        """(device, type, whether not to wait, memory format) that arguments of `to` name, and None for what they do
        not."""
        for given in (tensor, *args):
            if isinstance(given, Tensor):
                device, dtype = given.device, given.dtype
            elif isinstance(given, bool):
                non_blocking = given
            elif isinstance(given, DType):
                dtype = given
            elif given is not None:
                device = given
        return None if device is None else as_device(device), dtype, non_blocking, memory_format


class _functions:
    """Nodes that PyTorch has in C++."""

    AccumulateGrad = AccumulateGrad

    class UndefinedGrad:
        """UndefinedGrad()(x) is x, and no gradient comes back."""

        def __call__(self, tensor):
            return _Undefined.apply(tensor)

    class DelayedError:
        """DelayedError(message, n)(x, ...) are the tensors; a backward through them is an error."""

        def __init__(self, message, num_inputs):
            self.message = message

        def __call__(self, *tensors):
            passed = tuple(_Delayed.apply(tensor, self.message) for tensor in tensors)
            return passed if len(passed) > 1 else passed[0]


Node.register(_functions.DelayedError)


class _Undefined(Function):
    @staticmethod
    def forward(ctx, tensor):
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return None


class _Delayed(Function):
    @staticmethod
    def forward(ctx, tensor, message):
        ctx.message = message
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError(ctx.message)


class _autograd:
    """What is saved for backward passes."""

    SavedTensor = SavedTensor

    @staticmethod
    def _unsafe_set_version_counter(tensors, versions):
        """Let tensors have these versions: what their memory was, nobody finds out any more."""
        set_versions(tensors, versions)

    @staticmethod
    def _saved_tensors_hooks_is_enabled():
        """Whether hooks on saved tensors may be set now."""
        return state.hooks_disabled is None


# PyTorch keeps the results of some calls of a replayed graph, and has a list of them; nothing of weft's asks for it.
_cached = weakref.WeakValueDictionary()


def _set_cached_tensors_enabled(enabled):
    """Whether such a list is kept. Off, it is emptied."""
    if not enabled:
        _cached.clear()


def _add_cached_tensor(tensor):
    """Put a tensor on the list."""
    _cached[id(tensor)] = tensor


def _remove_cached_tensor(tensor):
    """Take a tensor off the list."""
    _cached.pop(id(tensor), None)


def _is_cached_tensor(tensor):
    """Whether a tensor is on the list."""
    return _cached.get(id(tensor)) is tensor


def _log_api_usage_once(event):
    """Libraries name here what is used of them, for PyTorch's statistics. Nothing is kept."""


_disabled_torch_function_impl = disabled
DisableTorchFunctionSubclass, DisableTorchFunction = off, all_off


def _is_torch_function_enabled():
    """Whether functions ask classes of the user's."""
    return not state.asked_off


def _is_torch_function_all_disabled():
    """Whether they ask neither classes nor modes."""
    return state.asked_off == ALL


def _len_torch_function_stack():
    """How many modes are open."""
    return len(state.function_modes)


def _get_function_stack_at(index):
    """One of them, the first being the outermost."""
    return state.function_modes[index]
