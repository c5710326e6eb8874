"""The keyword `out`: results written into tensors that exist.

write        what `out=` means for a result
check_apart  what it asks of the memory of operands; write_apart is both, write_op the same of an elementwise op
taking_out   a function that has no such keyword, with it; take_out does so for a module
"""

from functools import lru_cache, wraps

import numpy as np

from . import absent
from .compiler.ops.comparison import cast
from .compiler.ops.kinds import number_meta
from .compiler.ops.table import Meta
from .compiler.ops.view import clone
from .kinds import QUICK
from .numpy_words import BY_NUMPY
from .runtime.eager.gate import apply_inplace, native_change
from .runtime.state import marks
from .runtime.state.aligned import address_of
from .runtime.state.marks import hopeless
from .runtime.state.modes import state, watching
from .runtime.state.said import warn
from .runtime.state.storage import Storage
from .runtime.state.tensor import Tensor, shape_of


def write(function, out, result):
    """Put the result into `out`, which is returned: a tensor, or one for each of several results.

    It is cast to out's type, and `out` takes its shape (with a warning, unless out is empty). RuntimeError if the
    result has a gradient, or a type that does not convert to out's.
    """
    if isinstance(result, tuple):
        for part, target in zip(result, _one_each(function, out, result)):
            write(function, target, part)
        # Whatever its class makes of its arguments.
        return tuple.__new__(type(result), out)
    if _is_moved_at_once(out, result):
        return out
    if not isinstance(out, Tensor):
        raise TypeError(f"{function}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if (result._requires_grad or out._requires_grad) and state.grad_enabled:
        raise RuntimeError(
            f"{function}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad. Use the result instead, or weft.no_grad()"
        )
    if state.forward is not None and any(t is not None for t in state.forward.tangents((result, out))):
        raise NotImplementedError(
            f"Trying to use forward AD with {function} that does not support it because it is an out= function. Use "
            "the result instead"
        )
    kind, own = result.dtype, out.dtype
    if kind is not own and function in _OF_ONE_TYPE:
        raise RuntimeError(f"{function}: Expected out tensor to have dtype {kind.name}, but got {own.name} instead")
    if kind is not own and kind.category > own.category:
        raise RuntimeError(f"{function}: result type {kind.name} can't be cast to the desired output type {own.name}")
    if out._data is not None and out._data.size and 0 in out._data.strides:
        _require_elements_apart(function, out._data)
    if shape_of(result) != shape_of(out):
        _resize(out, result)
    else:
        # Where gradients are recorded, neither has one.
        apply_inplace(clone, out, (result if kind is own else cast(result, dtype=own),), {})
    return out


def _is_moved_at_once(out, result):
    """Whether native code has put the result into `out`: of the same shape and type, and without gradients."""
    if out.__class__ is not Tensor or result.__class__ is not Tensor or out._requires_grad or result._requires_grad:
        return False
    to, data = out._data, result._data
    if watching or to is None or data is None or to.dtype is not data.dtype or to.shape != data.shape:
        return False
    return state.frame is None and to.flags.c_contiguous and native_change()(clone, out, (result,), _NONE)


def _require_elements_apart(function, array):
    """RuntimeError if elements lie in one place: NumPy's strides of 0, which its arrays may be written through."""
    if any(step == 0 and size > 1 for step, size in zip(array.strides, array.shape)):
        raise RuntimeError(
            f"{function}: unsupported operation: more than one element of the written-to tensor refers to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def write_apart(name, out, result, *operands):
    """`write`, if the operands lie apart from `out` in memory."""
    check_apart(name, operands, [out])
    return write(name, out, result)


def write_op(name, op, out, *operands):
    """`write_apart` of what an elementwise op makes of operands. It is computed in out's memory, if that has the
    result's shape and type and nothing is recorded."""
    if out.__class__ is Tensor and not watching:
        frame = state.frame
        if frame is None and _change_at_once(op, out, operands):
            return out
        # What the call in flight expects here has been found to fit.
        if frame is not None and frame.inplace_again(op, out, operands, {}):
            return out
        if _is_made_there(op, out, operands):
            return apply_inplace(op, out, operands, {})
    return write_apart(name, out, op(*operands), *operands)


def _change_at_once(op, out, operands):
    """Whether native code has computed what an elementwise op makes in the memory of `out`. It looks at shapes, types
    and gradients itself."""
    data = out._data
    if data is None or not data.ndim or out._requires_grad:
        return False
    for x in operands:
        if isinstance(x, Tensor) and (x._requires_grad or not (_known_apart(x, out) or _are_apart(x._data, data))):
            return False
    return native_change()(op, out, operands, _NONE)


def _is_made_there(op, out, operands):
    if out._requires_grad or not shape_of(out) or out._data is not None and not _is_whole(out._data):
        return False
    facts = []
    for x in operands:
        if isinstance(x, Tensor):
            if x._requires_grad or not _known_apart(x, out):
                return False
            facts.append((shape_of(x), x.dtype))
        else:
            facts.append(x.__class__)
    return _made(op, state.default_dtype, *facts) == (shape_of(out), out.dtype)


def _is_whole(array):
    return array.size and array.flags.c_contiguous and array.flags.writeable


@lru_cache(4096)
def _made(op, default_dtype, *facts):
    """(shape, dtype) of the result for operands of these shapes and types, or numbers of these classes."""
    metas = [Meta(*fact) if fact.__class__ is tuple else number_meta(fact(1)) for fact in facts]
    try:
        made = op.infer(metas, {}, default_dtype)
    except (RuntimeError, TypeError):
        # Said to the user by the op itself.
        return None
    return made.shape, made.dtype


def _one_each(function, out, result):
    if not isinstance(out, (tuple, list)) or len(out) != len(result):
        raise TypeError(f"{function}(): argument 'out' must be a tuple of {len(result)} Tensors, got {out!r}")
    return out


def _resize(out, result):
    if out.numel():
        warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
            f"match the required output shape {list(result.shape)}. Give an output of that shape, or an empty one.",
            stacklevel=4,
        )
    value = result.detach().to(out.dtype)
    out.data = value.clone() if value is result or value._base is not None else value


_NEW = Storage()
_NONE = {}

# Functions that read elements at other places than they write, or whose results have a type that is fixed.
_MOVING = str.split("bernoulli cat gather index_select kthvalue masked_select take")
_OF_ONE_TYPE = str.split("amax amin aminmax complex gather index_select kthvalue masked_select multinomial take")


def check_apart(name, operands, targets):
    """RuntimeError where a result would be written over a part of an operand. The whole operand may be the target of a
    function that computes element by element or row by row."""
    for x in operands:
        kind = x.__class__
        if kind is Tensor or isinstance(x, Tensor):
            for target in targets:
                if isinstance(target, Tensor) and not (_known_apart(x, target) or _are_apart(x._data, target._data)):
                    _check_memory(name, x, target)
        elif kind is list or kind is tuple or isinstance(x, (tuple, list)):
            check_apart(name, x, targets)


def _check_memory(name, x, target):
    if (_overlap if name in _MOVING else _overlap_in_part)(x, target):
        raise RuntimeError(
            f"{name}: unsupported operation: some elements of the input tensor and the written-to tensor refer "
            "to a single memory location. Please clone() the tensor before performing the operation."
        )


def _known_apart(x, y):
    """Whether they have memory of their own for all that is known without looking: no views, not the same tensor, no
    common sharers, no arrays of the user."""
    if x is y or x._base is not None or y._base is not None:
        return False
    ours, theirs = x._storage, y._storage
    if ours is None or theirs is None:
        return not (ours or theirs or _NEW).exposed
    shared = ours is theirs or ours.sharers is not None and ours.sharers is theirs.sharers
    return not (shared or ours.exposed or theirs.exposed)


def _are_apart(x, y):
    """Whether arrays, None of what is pending, have no byte between them, from the first to the last."""
    return x is not None and y is not None and not np.may_share_memory(x, y)


def _overlap(x, y):
    if (x._data is None or y._data is None) and x._base is y._base is None:
        # A value that a compiled call has not computed yet has memory of its own, unless it is a view.
        return False
    return np.may_share_memory(x.array, y.array)


def _overlap_in_part(x, y):
    return _overlap(x, y) and not _are_same_memory(x.array, y.array)


def _are_same_memory(x, y):
    return x.shape == y.shape and x.strides == y.strides and address_of(x) == address_of(y)


def _takes(function, keyword):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if (function.__kwdefaults__ or {}).get(keyword) is BY_NUMPY:
        return False
    code = function.__code__
    return keyword in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def taking_out(name, function):
    """The function with a keyword `out`; itself if it has one. One that has a `dtype` computes in that of `out` unless
    it is given one."""
    if _takes(function, "out"):
        return function
    takes_dtype = _takes(function, "dtype")

    @wraps(function)
    def function_with_out(*args, **kwargs):
        if not kwargs:
            return function(*args)
        out = kwargs.get("out")
        if out is not None and place is not None and place not in hopeless:
            try:
                found = marks.answer(place, args, kwargs)
            except Exception:  # noqa: BLE001 - the function does the same, and its error says more
                found = None
            if found is not None:
                return found
        kwargs.pop("out", None)
        if out is None:
            return function(*args, **kwargs)
        targets = out if isinstance(out, (tuple, list)) else [out]
        check_apart(name, args, targets)
        if takes_dtype and name not in _OF_ONE_TYPE and isinstance(out, Tensor):
            kwargs.setdefault("dtype", out.dtype)
        return write(name, out, function(*args, **kwargs))

    function_with_out.without_keywords = function
    # What has a door has asked there.
    place = marks.place_of(function_with_out) if name in QUICK else None
    return function_with_out


def take_out(path, names):
    """Give the functions among a module's `names` the keyword where PyTorch's of the same path have it."""
    for name in (*absent.taking_out(path), *names.get("TAKING_OUT", ())):
        if name in names:
            names[name] = taking_out(name, names[name])
