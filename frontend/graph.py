"""weft.autograd.graph: the graph behind a tensor, and hooks on what it saves.

saved_tensors_hooks(pack, unpack), save_on_cpu()     what nodes save goes through functions of the user's
allow_mutation_on_saved_tensors()                    what they save may be changed in place
register_multi_grad_hook(tensors, hook)              a hook for several gradients of one backward pass
get_gradient_edge(tensor)                            where the gradient of a tensor goes: `inputs` of autograd.grad
"""

from abc import ABC
from typing import NamedTuple

from .public import of_module
from .reference import document
from .runtime.eager.function import FunctionContext
from .runtime.eager.mutation import allow_mutation_on_saved_tensors
from .runtime.eager.node import BaseNode, edge_of
from .runtime.eager.saved_hooks import disable_saved_tensors_hooks, saved_tensors_hooks
from .runtime.state.hooks import RemovableHandle
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, answering_for, storage_of

__getattr__, __dir__ = of_module(f"{__name__.partition('.')[0]}.autograd.graph")
__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class Node(ABC):  # noqa: B024 (whatever has a BaseNode is one)
    """What every grad_fn is an instance of."""


Node.register(BaseNode)
# In PyTorch the node is the ctx that forward was given.
Node.register(FunctionContext)


class GradientEdge(NamedTuple):
    """Where a gradient goes: a node, and which of its outputs."""

    node: BaseNode
    output_nr: int
    ownership_token: object = None


def get_gradient_edge(tensor):
    """The edge that the gradient of a tensor goes along. What happens to the tensor later does not change it."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients: set "
            "requires_grad=True before it is used"
        )
    if tensor._frame is not None and not tensor.is_leaf:
        frame = answering_for(tensor)
        # What was changed in place after its call has a node of its own.
        if frame is state.frame or tensor._node is None:
            frame.use_nodes(tensor)
    return GradientEdge(*edge_of(tensor))


def increment_version(tensor):
    """Count a change of the tensor's memory, or of several tensors', that happened where weft does not see it."""
    for x in (tensor,) if isinstance(tensor, Tensor) else tensor:
        x.leave_call()
        x.bump_version()


def set_versions(tensors, versions):
    """Let tensors, and all that share their memory and version, have these versions."""
    versions = tuple(versions)
    if any(version < 0 for version in versions):
        raise RuntimeError(f"Cannot set a version counter to a value below 0: {versions}")
    for x, version in zip(tensors, versions):
        x.leave_call()
        storage_of(x).version = version


class unsafe_preserve_version_counter:
    """A `with` block whose in-place changes of these tensors are not counted. Backward then goes by what the memory is
    and not by what was saved, and does not say so. PyTorch has it as autograd._unsafe_preserve_version_counter."""

    def __init__(self, tensors):
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.versions = tuple(x._version for x in self.tensors)

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        set_versions(self.tensors, self.versions)


class save_on_cpu(saved_tensors_hooks):
    """What nodes save in the block is copied. There is one device, so this costs memory and saves none."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda x: x.clone(), lambda x: x)


class _Gradients:
    """Calls a hook with the gradients of several tensors, when all that a backward pass computes have come. Passes of
    several threads may be under way: `waiting` has for each what has come, and how many are missing."""

    def __init__(self, hook, nodes):
        self.hook, self.nodes, self.waiting = hook, nodes, {}

    def arrived(self, index, gradient):
        number = state.sweep.number
        if number not in self.waiting:
            missing = sum(state.sweep.will_reach(node) for node in self.nodes)
            self.waiting[number] = [[None] * len(self.nodes), missing]
        entry = self.waiting[number]
        entry[0][index] = gradient
        entry[1] -= 1
        if entry[1] == 0:
            del self.waiting[number]
            self.hook(entry[0])


class _First:
    """Calls a hook with the first gradient of every backward pass; `passes` are the numbers of those under way that
    have come by."""

    def __init__(self, hook):
        self.hook, self.passes = hook, set()

    def arrived(self, index, gradient):
        sweep, passes = state.sweep, self.passes
        if sweep.number not in passes:
            passes.add(sweep.number)
            sweep.callbacks.append(lambda: passes.discard(sweep.number))
            self.hook(gradient)


class _Handles(RemovableHandle):
    """Several handles of hooks as one."""

    def __init__(self, handles):
        self.handles = handles

    def remove(self):
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """A hook for the gradients of several tensors in one backward pass.

    mode "all": fn(gradients) when all that the pass computes are there, None for the others. "any": fn(gradient) for
    the first one.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    if mode == "all":
        waiting = _Gradients(fn, [get_gradient_edge(x).node for x in tensors])
    else:
        waiting = _First(fn)

    def hook_of(index):
        return lambda gradient: waiting.arrived(index, gradient)

    return _Handles([x.register_hook(hook_of(k)) for k, x in enumerate(tensors)])


document("autograd.graph", __name__)
