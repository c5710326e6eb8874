"""The one door every op passes: evaluate, make an autograd node if one is needed, or hand over to the open recording.

`apply` is what calling an op of the table on tensors does. In-place ops come in by `apply_inplace`, which computes the
new value with the same op and then writes it into the target's memory.
"""

import numpy as np

from ..compiler.autodiff import has_rule
from ..compiler.ops.kinds import number_meta
from ..compiler.ops.table import Meta, OpError
from ..compiler.ops.view import data
from ..compiler.storage import convert
from .evaluate import evaluate
from .halves import in_float32
from .modes import state
from .node import Node, Saved, edge_of, record
from .plan import add_attributes, find, is_view_op, plan_for, take_over
from .tensor import Tensor, _apply, set_eager, show, tensor_of

apply = _apply


def apply_eagerly(op, operands, attributes):
    """The op now, outside any recording. Raises the op's own error for operands it cannot take."""
    default_dtype = state.default_dtype
    # `requires`: of operand k, bit k says whether it requires gradients.
    key, arrays, requires, bit = [op, default_dtype], [], 0, 1
    for x in operands:
        if isinstance(x, Tensor):
            array = x._data
            if array is None:
                array = x.array
            if x._requires_grad:
                requires |= bit
            key.append(array.dtype)
            key.append(array.shape)
            arrays.append(array)
        else:
            key.append(x.__class__)
            arrays.append(x)
        bit += bit
    # A call in flight may hold other values than memory does.
    if state.frame is not None or attributes and not add_attributes(key, attributes):
        return _apply_unplanned(op, operands, attributes)
    key = tuple(key)
    plan = find(key) or plan_for(key, op, arrays, attributes, default_dtype)
    if plan is None:
        return _apply_unplanned(op, operands, attributes)
    out = tensor_of(plan.run(*arrays))
    if plan.shows is not None:
        if plan.shows == "operand":
            show(out, operands[0], arrays[0])
        else:
            out._data = _own_memory(out._data, operands)
    if requires and plan.is_floating and state.grad_enabled:
        record(plan, operands, attributes, out, requires)
    else:
        requires = 0
    if plan.left:
        plan.left -= 1
        if not plan.left:
            take_over(plan, requires)
    return out


def _apply_unplanned(op, operands, attributes):
    if op.kind == "composite" and op.evaluate is None:
        return _composite(op, operands, attributes)
    metas = [x if isinstance(x, Tensor) else number_meta(x) for x in operands]
    meta = op.infer(metas, attributes, state.default_dtype)
    types = op.compute_dtype(metas, state.default_dtype)[0] if op.compute_dtype else None
    arrays = [x.array if isinstance(x, Tensor) else x for x in operands]
    out = Tensor(evaluate(op, arrays, attributes, types, meta))
    if op is data:
        out.share_memory(operands[0])
    elif is_view_op(op):
        show(out, operands[0], arrays[0])
    if state.grad_enabled:
        _record(op, operands, attributes, out)
    return out


def _composite(op, operands, attributes):
    metas = [x if isinstance(x, Tensor) else number_meta(x) for x in operands]
    meta = op.infer(metas, attributes, state.default_dtype)
    recorded = state.grad_enabled
    state.grad_enabled = False
    try:
        out = in_float32(op, operands, attributes, meta)
        if out is None:
            out = op.decompose(*operands, **attributes)
        if any(out is x for x in operands):
            out = Tensor(out.array)
            show(out, operands[0], out._data)
        elif out._base is not None and "view" not in op.extra:
            out = Tensor(_own_memory(out._data, operands))
    finally:
        state.grad_enabled = recorded
    if recorded:
        _record(op, operands, attributes, out)
    return out


def _own_memory(array, operands):
    """The result of an op that is no view and ended in a reshape, mostly of memory that nobody else has seen."""
    seen = any(isinstance(x, Tensor) and np.may_share_memory(array, x._data) for x in operands)
    return array.copy() if seen or not array.flags.c_contiguous else array


def _record(op, operands, attributes, out):
    requires = [isinstance(x, Tensor) and x._requires_grad for x in operands]
    if True not in requires or not out.dtype.is_floating_point:
        return
    edges = tuple(edge_of(x) if r and has_rule(op, k) else None for k, (x, r) in enumerate(zip(operands, requires)))
    if any(e is not None for e in edges):
        out._requires_grad = True
        out._node = Node(op, attributes, operands, out, edges)


# --- in place -------------------------------------------------------------------------------------------------------
def apply_inplace(op, target, operands, attributes):
    """target's memory becomes op(*operands), one of which usually is the target. Returns the target."""
    frame, array = state.frame, target._data
    if frame is not None and frame.inplace_again(op, target, operands, attributes):
        return target
    _check_inplace(target, operands)
    if frame is not None:
        # It may be another one now, which follows what the one before did not expect.
        frame = state.frame
        # A program would write without asking.
        if array is not None and not array.flags.writeable:
            check_writable(target)
        return frame.apply_inplace(op, target, operands, attributes)
    return inplace_eagerly(op, target, operands, attributes)


def inplace_eagerly(op, target, operands, attributes):
    # Called by its own name, an op of tensors may be native code's.
    is_native = state.frame is None and operands and operands[0].__class__ is Tensor
    new = op(*operands, **attributes) if is_native else apply_eagerly(op, operands, attributes)
    if target._data is None or (target._data.shape, target._data.dtype) != (new._data.shape, new._data.dtype):
        check_fits(op.name, target, new)
    check_writable(target)
    if new._node is not None:
        _keep_old_value(new._node, target)
    target.tell_readers()
    np.copyto(target.array, convert(new._data, target.dtype))
    target.bump_version()
    adopt_history(target, new)
    return target


def _keep_old_value(node, target):
    """A derivative that reads the target means its value before the change: a copy, with the history it had."""
    old = None
    for saved in node.operands:
        if isinstance(saved, Saved) and saved.tensor is target:
            if old is None:
                old = Tensor(target.array.copy())
                old._node, old._requires_grad = target._node, target._requires_grad
            saved.tensor, saved.version = old, 0


def check_fits(name, target, new):
    """OpError unless an in-place result has the target's shape and converts to its type without losing category."""
    if new.shape != target.shape:
        raise OpError(f"{name}_: output with shape {target.shape} doesn't match the broadcast shape {new.shape}")
    if new.dtype.category > target.dtype.category:
        raise OpError(
            f"{name}_: result type {new.dtype.name} can't be cast to the desired output type {target.dtype.name}"
        )


def check_writable(target):
    """RuntimeError where writing would change several elements at once, or memory that NumPy says is read-only."""
    array = target.array
    if not array.flags.writeable:
        reason = "the NumPy array whose memory the tensor shares is read-only"
        if 0 in array.strides:
            reason = "more than one element of the written-to tensor refers to a single memory location"
        raise RuntimeError(
            f"unsupported operation: {reason}. Please clone() the tensor before performing the operation."
        )


def adopt_history(target, new):
    """The target is now what `new` is, also for autograd."""
    if new._node is not None:
        target._node = new._node
        target._requires_grad = True
        node = new._node
        if node.out is not None:
            # The saved output is the memory just written.
            node.out.tensor._data = target._data
            node.out.tensor._storage = target._storage
            node.out.version = target._version
    elif state.grad_enabled and target._requires_grad and not target.is_leaf:
        target._node = None
        target._requires_grad = False


def _check_inplace(target, operands):
    if not state.grad_enabled:
        return
    if target._requires_grad and target.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Use `with weft.no_grad():` around the update, or compute a new tensor."
        )
    base = target._base
    if base is not None:
        if target._requires_grad and base._requires_grad and base.is_leaf:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        # A detached view (.data, detach()) does not require gradients: changing it is the user's own business.
        if target._requires_grad or any(_requires(x) for x in operands):
            raise NotImplementedError(
                f"in-place change of a view (shape {target.shape} of a tensor of shape {base.shape}) while gradients "
                "are recorded is not supported yet: the base's history would be lost. Compute a new tensor instead, "
                "for example with weft.where or weft.cat, or change the base before it is used."
            )
    elif target._requires_grad or any(_requires(x) for x in operands):
        _check_views(target)


def _check_views(target):
    """A base whose live views would silently keep their old history, or lack the new one.

    Views without gradients of a base that has them are detached, and stay so.
    """
    tracked = target._requires_grad
    if any(t._base is target and (t._requires_grad or not tracked) for t in _living_sharers(target)):
        raise NotImplementedError(
            f"in-place change of a tensor of shape {target.shape} that has live views is not supported yet while "
            "gradients are recorded: the views' history would be stale. Compute a new tensor instead."
        )


def _living_sharers(target):
    storage, frame = target._storage, state.frame
    if storage is None:
        sharers = []
    else:
        # A call keeps its own tensors, and says which of them somebody else does.
        sharers = [t for t in storage.living_sharers() if t is not target and (frame is None or t._frame is not frame)]
    return sharers if frame is None else [*sharers, *frame.living_views(target)]


def _requires(x):
    return isinstance(x, Tensor) and x._requires_grad


def meta_of(x):
    return Meta(x.shape, x.dtype) if isinstance(x, Tensor) else number_meta(x)


set_eager(apply_eagerly)
