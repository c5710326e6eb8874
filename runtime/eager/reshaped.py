"""In-place changes of how a tensor shows its memory: x.unsqueeze_(0) gives x itself another shape.

The memory stays, so nothing is written; x goes on as the view of what it was, with the history of such a view. A
compiled call in flight steps out: the tensor becomes one from outside.
"""

from ..state.modes import state, step_out, watching
from ..state.tensor import is_inference, tensor_of
from .gate import LEAF_IN_PLACE
from .inference import inferred_among, refuse_inferred, require_inference_mode, spoil, views_of
from .node import edge_of, keep_output
from .rebase import _set, check_view, take_memory
from .saved_hooks import with_history, without_history


def reshape_in_place(name, target, view):
    """The target, which shows its memory as view(what it was) shows it."""
    if _is_plain(target):
        require_inference_mode(target)
        show_as(target, view(target)._data)
        return target
    recorded = state.grad_enabled and target._requires_grad
    if recorded and target.is_leaf:
        refuse_inferred(target)
    require_inference_mode(target)
    if recorded and (target.is_leaf or target._base is not None and _is_leaf(target._base)):
        raise RuntimeError(LEAF_IN_PLACE if target.is_leaf else _VIEW_OF_LEAF)
    if state.grad_enabled and target._base is not None:
        check_view(target, target._base)
    target.leave_call()
    block = step_out(f"{name}: an in-place change of a shape")
    try:
        level = state.level
        tangent = None if level is None else level.tangent(target)
        old = with_history(target, edge_of(target)) if target._requires_grad else without_history(target)
        new = view(old)
        keep_output(target)
        show_as(target, new._data)
        if tangent is not None:
            level.set(target, view(tangent))
        if recorded:
            _set(target, (new._node, 0))
            spoil(inferred_among(views_of(target), target))
    finally:
        block.__exit__(None, None, None)
    return target


def _is_plain(target):
    """Whether no history, call in flight or tangent is there that a change of the shape would have to tell."""
    is_own = target._data is not None and target._base is None and not target._requires_grad
    return is_own and state.frame is None and state.level is None and not watching


_VIEW_OF_LEAF = "a view of a leaf Variable that requires grad is being used in an in-place operation."


def _is_leaf(base):
    return base._requires_grad and base.is_leaf


def show_as(target, array):
    """The target's array is this one of the same memory."""
    target.tell_readers()
    target._data = array
    target.bump_version()


def resize_in_place(target, shape, n_elements):
    """The target, of this shape: its elements in their order as far as they go, then zeros."""
    if target._requires_grad and not is_inference(target):
        raise RuntimeError("cannot resize variables that require grad: use x = x.reshape(...) or a new tensor")
    require_inference_mode(target)
    if tuple(target.shape) == shape:
        return target
    target.leave_call()
    block = step_out("resize_: an in-place change of a shape")
    try:
        _resize(target, shape, n_elements)
    finally:
        block.__exit__(None, None, None)
    return target


def _resize(target, shape, n_elements):
    array = target.array
    if n_elements <= array.size and array.flags.c_contiguous:
        show_as(target, array.reshape(-1)[:n_elements].reshape(shape))
        return
    if target._base is not None:
        raise RuntimeError(
            f"resize_: a view of shape {target.shape} cannot become {shape}, which its own elements do not fill; "
            "resize a copy (x = x.clone())"
        )
    grown = array.ravel().copy()
    grown.resize(n_elements, refcheck=False)
    version = target._version
    take_memory(target, tensor_of(grown.reshape(shape)))
    target._storage.version = version
    target.bump_version()
