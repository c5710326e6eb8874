"""The one door every op passes: evaluate, make an autograd node if one is needed, or hand over to the open recording.

`apply` is what calling an op of the table on tensors does. In-place ops come in by `apply_inplace`, which computes the
new value with the same op and then writes it into the target's memory, or lets an op that changes a part write that.
"""

from operator import is_

import numpy as np

from ...compiler.autodiff import has_rule
from ...compiler.ops.kinds import number_meta, refuse_complex
from ...compiler.ops.source import full
from ...compiler.ops.table import Op, OpError
from ...compiler.ops.view import clone, data
from ...compiler.storage import convert
from ..programs.evaluate import evaluate
from ..state.elsewhere import apply_in_call, is_elsewhere
from ..state.marks import stand_for_calls_of_ops
from ..state.modes import inferring, state, watching
from ..state.storage import InferenceStorage, check_writable
from ..state.tensor import Tensor, _apply, answering_for, is_inference, set_eager, show, tensor_of
from ..state.tracebacks import shorten
from .halves import in_float32
from .inference import refuse_inferred, require_inference_mode, show_inferred
from .node import Node, Saved, edge_of, record, show_watchers
from .owned import is_copied_once, is_large
from .plan import add_attributes, find, is_view_op, plan_for, take_over
from .rebase import check_rebase, rebase

apply = _apply
_new = object.__new__


def call(op, *operands, **attributes):
    """What calling an op does, in Python. Written out for a tensor, two, or one and a number, of a plan that is known:
    everything else is what Op.__call__ of the table says, in some calls more."""
    try:
        x = operands[0] if operands else None
        if x.__class__ is not Tensor:
            return _call_anything(op, *operands, **attributes)
        frame = state.frame
        if frame is not None:
            return apply_in_call(frame, op, operands, attributes)
        n, array = len(operands), x._data
        if n > 2 or array is None or watching:
            return apply_eagerly(op, operands, attributes)
        default_dtype, requires, other = state.default_dtype, x._requires_grad, None
        if n == 1:
            key = (op, default_dtype, array.dtype, array.shape)
        else:
            y = operands[1]
            kind = y.__class__
            if kind is Tensor and (other := y._data) is not None:
                key = (op, default_dtype, array.dtype, array.shape, other.dtype, other.shape)
                if y._requires_grad:
                    requires += 2
            elif kind is float or kind is int:
                key, other = (op, default_dtype, array.dtype, array.shape, kind), y
            else:
                return apply_eagerly(op, operands, attributes)
        plan = find(add_attributes(key, attributes) if attributes else key)
        if plan is None or plan.shows is not None and (inferring or plan.shows == "copy" and plan.steps is None):
            return apply_eagerly(op, operands, attributes)
        made = None
        if plan.steps is not None:
            steps, make, shape, dtype = plan.steps
            new = make(shape, dtype)
            made = steps((array, new) if n == 1 else (array, other, new)) and new
        if made is None:
            if plan.shows == "copy":
                return apply_eagerly(op, operands, attributes)
            made = plan.run(array) if n == 1 else plan.run(array, other)
        if inferring:
            out = tensor_of(made)
        else:
            # `tensor_of`, written out.
            out = _new(Tensor)
            out._data = made
            out._vid = -1
            out._frame = out._grad = out._node = out._accumulator = out._storage = out._base = out._meta = None
            out._requires_grad = False
        if plan.shows == "operand":
            show(out, x, array)
            if out._storage.__class__ is InferenceStorage:
                requires = 0
        if requires and plan.is_floating and state.grad_enabled:
            record(plan, operands, attributes, out, requires)
        else:
            requires = 0
        if plan.left:
            plan.left -= 1
            if not plan.left:
                take_over(plan, requires, (array,) if n == 1 else (array, other))
        return out
    except Exception as error:
        if error.__class__ is TypeError and any(isinstance(x, np.generic) for x in operands):
            # NumPy's numbers are numbers: nothing has happened yet.
            return call(op, *[x.item() if isinstance(x, np.generic) else x for x in operands], **attributes)
        shorten(error)
        raise


_call_anything = Op.__call__
stand_for_calls_of_ops(call)


def apply_eagerly(op, operands, attributes):
    """The op now, outside any recording. Raises the op's own error for operands it cannot take."""
    if watching:
        if state.forward is not None:
            return state.forward.apply(apply_eagerly, op, operands, attributes)
        if state.profile is not None and state.profile.is_new():
            return state.profile.op(apply_eagerly, op, operands, attributes)
    default_dtype = state.default_dtype
    key, arrays, requires = _asked(op, operands, default_dtype)
    if attributes and key is not None:
        key = add_attributes(key, attributes)
    # A call in flight may hold other values than memory does.
    if key is None or state.frame is not None:
        if isinstance(arrays, Tensor):
            return arrays._meta.apply(op, operands, attributes)
        return _apply_unplanned(op, operands, attributes)
    plan = find(key)
    if plan is None:
        plan = plan_for(key, op, arrays, attributes, default_dtype, requires if state.grad_enabled else 0)
    if plan is None:
        return _apply_unplanned(op, operands, attributes)
    out = tensor_of(plan.run(*arrays))
    if plan.shows is not None:
        if plan.shows == "operand":
            show(out, operands[0], arrays[0])
            if inferring and state.inference:
                show_inferred(op, out, operands[0])
            elif out._storage.__class__ is InferenceStorage:
                requires = 0
        else:
            out._data = _own_memory(out._data, operands)
    if requires and plan.is_floating and state.grad_enabled:
        record(plan, operands, attributes, out, requires)
    else:
        requires = 0
    if plan.left:
        plan.left -= 1
        if not plan.left:
            take_over(plan, requires, arrays)
    return out


def _asked(op, operands, default_dtype):
    """(key of a plan but for attributes, arrays and numbers, which of them require gradients: of operand k bit k); in
    their place (None, an operand) if that is elsewhere."""
    key, arrays, requires, bit = [op, default_dtype], [], 0, 1
    for x in operands:
        kind = x.__class__
        if kind is Tensor or issubclass(kind, Tensor):
            array = x._data
            if array is None:
                if is_elsewhere(x):
                    return None, x, 0
                array = x.array
            if x._requires_grad:
                requires |= bit
            key += array.dtype, array.shape
            arrays.append(array)
        else:
            if kind is not float and kind is not int:
                number_meta(x)  # refuses an array here: the key of a plan would not say of which shape it is
            key.append(kind)
            arrays.append(x)
        bit += bit
    return tuple(key), arrays, requires


def _apply_unplanned(op, operands, attributes):
    if op.kind == "view" and op is not data and operands[0].__class__ is Tensor:
        return _view_unplanned(op, operands, attributes)
    if op.kind == "composite" and op.evaluate is None:
        return _composite(op, operands, attributes)
    metas = [x if isinstance(x, Tensor) else number_meta(x) for x in operands]
    meta = op.infer(metas, attributes, state.default_dtype)
    types = op.compute_dtype(metas, state.default_dtype)[0] if op.compute_dtype else None
    arrays = [x.array if isinstance(x, Tensor) else x for x in operands]
    out = tensor_of(evaluate(op, arrays, attributes, types, meta))
    if op is data:
        out.share_memory(operands[0])
    elif is_view_op(op):
        show(out, operands[0], arrays[0])
        if inferring and state.inference:
            show_inferred(op, out, operands[0])
    if state.grad_enabled and not (is_inference(out) and is_view_op(op)):
        record_op(op, operands, attributes, out)
    return out


def _view_unplanned(op, operands, attributes):
    """The same of a view, of which nothing is computed: loops cut other parts every time."""
    x = operands[0]
    array = x.array
    op.infer(operands, attributes, state.default_dtype)
    out = tensor_of(op.evaluate(array, **attributes))
    show(out, x, array)
    if inferring and state.inference:
        show_inferred(op, out, x)
    if x._requires_grad and state.grad_enabled and not is_inference(out):
        record_op(op, operands, attributes, out)
    return out


def _composite(op, operands, attributes):
    metas = [x if isinstance(x, Tensor) else number_meta(x) for x in operands]
    meta = op.infer(metas, attributes, state.default_dtype)
    refuse_complex(op, [m.dtype for m in metas])
    recorded = state.grad_enabled
    state.grad_enabled = False
    try:
        out = in_float32(op, operands, attributes, meta)
        if out is None:
            out = op.decompose(*operands, **attributes)
        if any(out is x for x in operands):
            out = tensor_of(out.array)
            show(out, operands[0], out._data)
            if inferring and state.inference:
                show_inferred(op, out, operands[0])
        elif out._base is not None and "view" not in op.extra:
            out = tensor_of(_own_memory(out._data, operands))
    finally:
        state.grad_enabled = recorded
    if recorded:
        record_op(op, operands, attributes, out)
    return out


def _own_memory(array, operands):
    """The result of an op that is no view and ended in a reshape, mostly of memory that nobody else has seen."""
    # An array that is no view of another is new, unless it is one of theirs.
    of_others = np.may_share_memory if array.base is not None else is_
    seen = any(isinstance(x, Tensor) and of_others(array, x._data) for x in operands)
    return array.copy() if seen or not array.flags.c_contiguous else array


def record_op(op, operands, attributes, out):
    """Give the result of an op the node that made it, if gradients flow to any operand: without a plan."""
    requires = [isinstance(x, Tensor) and x._requires_grad for x in operands]
    if True not in requires or not out.dtype.is_differentiable:
        return
    edges = tuple(edge_of(x) if r and has_rule(op, k) else None for k, (x, r) in enumerate(zip(operands, requires)))
    if any(e is not None for e in edges):
        out._requires_grad = True
        out._node = Node(op, attributes, operands, out, edges)
        if watching:
            show_watchers(out._node, out)


# --- in place -------------------------------------------------------------------------------------------------------
def apply_inplace(op, target, operands, attributes):
    """target's memory becomes op(*operands), one of which usually is the target. Returns the target."""
    frame = state.frame
    if frame is None:
        if _change_natively(op, target, operands, attributes):
            return target
    elif frame.inplace_again(op, target, operands, attributes):
        return target
    return change_anew(op, target, operands, attributes)


def change_anew(op, target, operands, attributes):
    """The same of a change that neither native code makes nor the call in flight has expected."""
    array = target._data
    if array is None and is_elsewhere(target):
        _check_inplace(target, operands)
        return inplace_eagerly(op, target, operands, attributes)
    if state.frame is not None and _is_refused(target, operands):
        state.frame.drop_unseen_views(target)
    _check_inplace(target, operands)
    # It may be another one now, which follows what the one before did not expect.
    frame = state.frame
    if frame is not None:
        # A program would write without asking.
        if array is not None and not array.flags.writeable:
            check_writable(target)
        return frame.apply_inplace(op, target, operands, attributes)
    return inplace_eagerly(op, target, operands, attributes)


def _never(*_):
    return False


_change_natively = _clear_natively = _never


def cleared_at_once(tensors):
    """Whether native code has set all elements of a list of tensors to 0; if not, nothing has happened."""
    return _clear_natively(tensors)


def set_native_change(function):
    """function(op, target, operands, attributes) changes the target if native code can do that, and says so."""
    global _change_natively
    _change_natively = function


def native_change():
    return _change_natively


def set_native_clear(function):
    """function(list of tensors) sets all elements to 0 if native code can do that for all of them, and says so."""
    global _clear_natively
    _clear_natively = function


def inplace_eagerly(op, target, operands, attributes):
    if watching:
        if state.forward is not None:
            return state.forward.change(inplace_eagerly, op, target, operands, attributes)
        if state.profile is not None and state.profile.is_new():
            return state.profile.change(inplace_eagerly, op, target, operands, attributes)
    if watching and state.watchers:
        # A hook may keep what is saved as it is given it: not the memory that changes.
        operands = tuple([_old_value(x) if x is target else x for x in operands])
        if state.mutations is not None:
            state.mutations.before_change(target)
    if target._data is None and is_elsewhere(target):
        return target._meta.change(op, target, operands, attributes)
    if op.change is not None and _changed_in_part(op, target, operands, attributes):
        return target
    # Called by its own name, an op of tensors may be native code's.
    is_native = state.frame is None and operands and operands[0].__class__ is Tensor
    if is_native and op is clone and is_copied_once(*operands, target):
        new = operands[0]
    elif op is full and target._data is not None and (is_large(target) or not attributes["shape"]):
        # One number is all there is to compute.
        new = apply_eagerly(op, operands, {**attributes, "shape": ()})
        new._data = np.broadcast_to(new._data, target._data.shape)
    else:
        new = op(*operands, **attributes) if is_native else apply_eagerly(op, operands, attributes)
    if new._data is None and is_elsewhere(new):
        new._meta.refuse()
    if target._data is None or (target._data.shape, target._data.dtype) != (new._data.shape, new._data.dtype):
        check_fits(op.name, target, new)
    check_writable(target)
    if new._node is not None:
        keep_old_value(new._node, target)
    target.tell_readers()
    np.copyto(target.array, convert(new._data, target.dtype))
    target.bump_version()
    adopt_history(target, new)
    return target


# Of so many elements the whole is computed natively, with its node, before Python has found out what a part is.
_FEW = 1 << 12


def _changed_in_part(op, target, operands, attributes):
    """Whether an op that changes a part of its first operand has done so in its memory: if nobody asks for what it was
    before, nothing of the rest need be computed."""
    array, requires, bit = target._data, 0, 1
    if state.frame is not None or array is None or operands[0] is not target or not array.flags.c_contiguous:
        return False
    arrays, recorded = [], state.grad_enabled
    for x in operands:
        if not isinstance(x, Tensor) or x._data is None:
            return False
        if recorded and x._requires_grad:
            requires |= bit
        arrays.append(x._data)
        bit += bit
    if requires and array.size < _FEW:
        return False
    key = (op, state.default_dtype, *[fact for x in arrays for fact in (x.dtype, x.shape)])
    key = add_attributes(key, attributes)
    if key is None:
        return False
    plan = find(key) or plan_for(key, op, arrays, attributes, state.default_dtype)
    metas, meta = operands, target
    if plan is None:
        meta = op.infer(operands, attributes, state.default_dtype)
    else:
        metas, meta = plan.metas, plan.meta
    types = op.compute_dtype(metas, state.default_dtype)[0]
    if any(m.dtype is not d for m, d in zip(metas, types)) or (meta.shape, meta.dtype) != (target.shape, target.dtype):
        return False
    if target.dtype.is_half and op.kind != "movement" and "moves" not in op.traits:
        # Sums are of the type that these are computed in.
        return False
    # NumPy's assignment to slices reads all that overlaps before it writes.
    if op.kind != "movement" and any(np.may_share_memory(array, x) for x in arrays[1:]):
        return False
    new = None
    if requires:
        recording = None if plan is None else plan.recordings.get(requires)
        if recording is None or recording and (recording.reads_out or 0 in recording.saved):
            return False
        new = tensor_of(array)
        record(plan, operands, attributes, new, requires)
    check_writable(target)
    target.tell_readers()
    op.change(*arrays, **attributes)
    target.bump_version()
    if new is not None:
        adopt_history(target, new)
    if plan is not None and plan.left:
        plan.left -= 1
        if not plan.left:
            take_over(plan, requires, arrays)
    return True


def keep_old_value(node, target):
    """A derivative that reads the target means its value before the change: a copy, with the history it had."""
    old = None
    for saved in node.operands:
        if saved.__class__ is Saved and saved.tensor is target:
            if old is None:
                old = _old_value(target)
            saved.tensor, saved.version = old, 0


def _old_value(target):
    """A copy of what the target is before it changes, with the history it has."""
    if target._node is None and target.has_history:
        # Of a compiled call: without a node of its own the copy would be a leaf.
        answering_for(target).use_nodes(target)
    old = target._meta.copied() if target._data is None and is_elsewhere(target) else tensor_of(target.array.copy())
    old._node, old._requires_grad = target._node, target._requires_grad
    return old


def check_fits(name, target, new):
    """OpError unless an in-place result has the target's shape and converts to its type without losing category."""
    if new.shape != target.shape:
        raise OpError(f"{name}_: output with shape {target.shape} doesn't match the broadcast shape {new.shape}")
    if new.dtype.category > target.dtype.category:
        raise OpError(
            f"{name}_: result type {new.dtype.name} can't be cast to the desired output type {target.dtype.name}"
        )


def adopt_history(target, new):
    """The target is now what `new` is, also for autograd."""
    if new._node is not None:
        rebase(target, (new._node, 0))
        node = new._node
        if node.out.__class__ is Saved:
            # The saved output is the memory just written.
            node.out.tensor._data = target._data
            if target._data is None and is_elsewhere(target):
                node.out.tensor._meta = target._meta
            node.out.tensor._storage = target._storage
            node.out.version = target._version
    elif state.grad_enabled and target._requires_grad and not target.is_leaf:
        rebase(target, None)


LEAF_IN_PLACE = (
    "a leaf Variable that requires grad is being used in an in-place operation. "
    "Use `with weft.no_grad():` around the update, or compute a new tensor."
)


def _check_inplace(target, operands):
    if not state.grad_enabled:
        require_inference_mode(target)
        return
    if target._requires_grad and target.is_leaf:
        refuse_inferred(target)
        raise RuntimeError(LEAF_IN_PLACE)
    require_inference_mode(target)
    if target._base is not None or target._storage is not None:
        check_rebase(target, any(map(_requires, operands)))


def _is_refused(target, operands):
    """Whether a change is one that eager mode does not know, perhaps because of what would be gone in eager mode."""
    try:
        _check_inplace(target, operands)
    except NotImplementedError:
        return True
    return False


def _requires(x):
    return isinstance(x, Tensor) and x._requires_grad


set_eager(apply_eagerly)
