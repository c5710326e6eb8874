"""Hooks of tensors: what is called with the gradient of one, or when it has been accumulated."""

from .runtime.eager.node import RemovableHandle, edge_of
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, answering_for


def _register_hook(self, hook):
    """hook(grad) is called with the complete gradient of this tensor; a tensor it returns replaces it."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node = _node_for_hooks(self)
    index = node.output_index(self) if node.n_outputs > 1 else 0

    def checked(cotangent):
        replaced = hook(cotangent)
        if replaced is not None:
            _check_replacement(hook, cotangent, replaced)
        return replaced

    return node.register_tensor_hook(index, checked)


def _node_for_hooks(tensor):
    """The node that carries a tensor's hooks."""
    if tensor._frame is not None:
        frame = answering_for(tensor)
        again = frame.hook_again(tensor) if frame is state.frame else None
        if again is not None and not tensor.is_leaf:
            return again
        # What was changed in place after its call has a node of its own.
        if again is None and (frame is state.frame or tensor._node is None):
            frame.use_nodes(tensor)
    return _keep_accumulator(tensor) if tensor.is_leaf else tensor.grad_fn


def _check_replacement(hook, cotangent, replaced):
    name = getattr(hook, "__name__", type(hook).__name__)
    if not isinstance(replaced, Tensor):
        raise TypeError(f"hook '{name}' returned a {type(replaced).__name__}, expected a Tensor or None")
    if replaced.shape != cotangent.shape or replaced.dtype is not cotangent.dtype:
        raise RuntimeError(
            f"hook '{name}' has changed the size or type of value: the gradient is {cotangent.dtype.name}"
            f"{cotangent.shape}, it returned {replaced.dtype.name}{replaced.shape}"
        )


def _keep_accumulator(leaf):
    """A leaf's node, kept alive by the leaf from now on, because it carries hooks."""
    node = edge_of(leaf)[0]
    leaf._accumulator = lambda: node
    return node


def _post_accumulate_hook(self, hook):
    """hook(tensor) is called after a leaf's .grad was accumulated."""
    if not self.is_leaf or not self.requires_grad:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    node = _keep_accumulator(self)
    if node.post_hooks is None:
        node.post_hooks = {}
    return RemovableHandle(node.post_hooks, hook)


def _retain_grad(self):
    """Keep .grad of a tensor that is not a leaf."""
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self.is_leaf:
        return
    node = _node_for_hooks(self)
    node.retain(node.output_index(self) if node.n_outputs > 1 else 0, self)


def _retains_grad(self):
    """Whether retain_grad() was called on a tensor that is not a leaf."""
    node = None if self.is_leaf else self.grad_fn
    return any(reference() is self for reference in (getattr(node, "retained", None) or {}).values())


def attach():
    """Give Tensor its methods that are about hooks."""
    Tensor.retains_grad = property(_retains_grad)
    Tensor.register_hook, Tensor.retain_grad = _register_hook, _retain_grad
    Tensor.register_post_accumulate_grad_hook = _post_accumulate_hook
