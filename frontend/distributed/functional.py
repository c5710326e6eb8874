"""Collectives that return new tensors and have derivatives: PyTorch's distributed.nn.functional.

The loss is the sum of the losses of all ranks. So the gradient of what one rank gives is collected from all ranks that
got it:

    all_reduce (sum)   backward: all_reduce           all_gather       backward: reduce_scatter
    broadcast          backward: reduce, to src       reduce_scatter   backward: all_gather
    gather             backward: scatter              scatter          backward: gather
    reduce (sum)       backward: broadcast            all_to_all       backward: all_to_all

Products, maxima and minima of floats are computed here from the parts of all ranks, in the order of any reduction:
their derivatives are those of the ops that this takes. (PyTorch reduces the cotangents in the same way instead.)

All ranks must take part in the backward pass too. Derivatives of higher order are those of these.
"""

from dataclasses import dataclass

import numpy as np

from ..autograd import Function
from ..creation import zeros
from ..functions import arithmetic
from ..runtime.state.tensor import tensor_of
from ..shaping import stack
from . import started
from .collectives import place_of
from .started import ReduceOp, member, same_kind, values_of

_PAIRS = {ReduceOp.PRODUCT: arithmetic.mul, ReduceOp.MAX: arithmetic.maximum, ReduceOp.MIN: arithmetic.minimum}


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """The tensors of all ranks made one."""
    if _is_of_parts(tensor, op):
        return _made_one(all_gather(tensor, group), op)
    return _Linear.apply(tensor, _ALL_REDUCE, op, member(group))


def broadcast(tensor, src, group=None):
    """The tensor of rank src; the others give one of its shape and type."""
    group = member(group)
    return _Linear.apply(tensor, _BROADCAST, place_of(group, src, None, "src"), group)


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    """The tensors of all ranks made one, on rank dst; zeros on the others."""
    if _is_of_parts(tensor, op):
        return _made_one(gather(tensor, dst, group), op)
    group = member(group)
    return _Linear.apply(tensor, _REDUCE, place_of(group, dst, None, "dst"), op, group)


def all_gather(tensor, group=None):
    """The tensors of all ranks, as a tuple."""
    return _Linear.apply(tensor, _ALL_GATHER, member(group)).unbind(0)


def gather(tensor, dst=0, group=None):
    """The tensors of all ranks as a tuple, on rank dst; zeros on the others."""
    group = member(group)
    return _Linear.apply(tensor, _GATHER, place_of(group, dst, None, "dst"), group).unbind(0)


def scatter(tensors, src=0, group=None):
    """This rank's tensor of those that rank src gives, one for each rank; the others give as many of their shape."""
    group = member(group)
    same_kind("scatter", tensors, tensors[0], group.n_ranks, "tensors")
    return _Linear.apply(stack(tensors), _SCATTER, place_of(group, src, None, "src"), group)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    """The k-th tensors of all ranks made one, on rank k. `output` says shape and type, and is not written."""
    group = member(group)
    same_kind("reduce_scatter", input_list, output, group.n_ranks, "input_list")
    stacked = stack(input_list)
    if _is_of_parts(stacked, op):
        return _made_one(_Linear.apply(stacked, _ALL_TO_ALL, group).unbind(0), op)
    return _Linear.apply(stacked, _REDUCE_SCATTER, op, group)


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    """The tensors that all ranks have for this one, as a tuple. The first list says shapes, and is not written; here
    all have one shape."""
    group = member(group)
    same_kind("all_to_all", input_tensor_list, output_tensor_list[0], group.n_ranks, "input_tensor_list")
    return _Linear.apply(stack(input_tensor_list), _ALL_TO_ALL, group).unbind(0)


# --- products, maxima, minima -----------------------------------------------------------------------------------------
def _is_of_parts(tensor, op):
    """Whether or not this rank needs a gradient: another one may."""
    return op in _PAIRS and tensor.dtype.category >= 2


def _made_one(parts, op):
    """The bits that runtime/distributed/sums.py gives."""
    dtype, pair = parts[0].dtype, _PAIRS[op]
    parts = [part.to(dtype.wide) for part in parts] if dtype.is_half else list(parts)
    while len(parts) > 1:
        parts = [pair(a, b) for a, b in zip(parts[::2], parts[1::2])] + parts[len(parts) & ~1 :]
    return parts[0].to(dtype)


# --- what is linear ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class _Exchange:
    """A linear function of a tensor, `forward(tensor, *how)`, and its transpose, `backward(cotangent, *how)`."""

    forward: object
    backward: object


class _Linear(Function):
    """`apply(tensor, exchange, *how)`."""

    @staticmethod
    def forward(ctx, tensor, exchange, *how):
        ctx.exchange, ctx.how = exchange, how
        return exchange.forward(tensor, *how)

    @staticmethod
    def backward(ctx, cotangent):
        return ctx.exchange.backward(cotangent, *ctx.how), *[None] * (1 + len(ctx.how))


def _result(group, work, shape):
    return tensor_of(group.wait(work).reshape(shape))


def _all_reduced(tensor, op, group):
    return _result(group, started.all_reduce(tensor, op, group), tensor.shape)


def _broadcast(tensor, root, group):
    return _result(group, started.broadcast(tensor, root, group), tensor.shape)


def _reduced(tensor, root, op, group):
    found = group.wait(started.reduce(tensor, root, op, group))
    return zeros(tensor.shape, dtype=tensor.dtype) if found is None else tensor_of(found.reshape(tensor.shape))


def _all_gathered(tensor, group):
    return _result(group, started.all_gather(tensor, group), (group.n_ranks, *tensor.shape))


def _reduced_and_scattered(stacked, op, group):
    return _result(group, started.reduce_scatter(stacked.unbind(0), op, group), stacked.shape[1:])


def _gathered(tensor, root, group):
    rows, shape = group.wait(started.gather(tensor, root, group)), (group.n_ranks, *tensor.shape)
    return zeros(shape, dtype=tensor.dtype) if rows is None else tensor_of(rows.reshape(shape))


def _scattered(stacked, root, group):
    rows = stacked.unbind(0)
    work = started.scatter(rows if group.place == root else None, rows[0], root, group)
    return _result(group, work, stacked.shape[1:])


def _exchanged(stacked, group):
    counts = [stacked.numel() // group.n_ranks] * group.n_ranks
    values = np.ascontiguousarray(values_of(stacked, "all_to_all"))
    return _result(group, started.all_to_all(values, stacked.dtype, counts, counts, group), stacked.shape)


def _share(gradient, op, group):
    """Of a sum or an average."""
    return gradient / group.n_ranks if op is ReduceOp.AVG else gradient


_ALL_REDUCE = _Exchange(_all_reduced, lambda g, op, group: _Linear.apply(g, _ALL_REDUCE, op, group))
_BROADCAST = _Exchange(_broadcast, lambda g, root, group: _Linear.apply(g, _REDUCE, root, ReduceOp.SUM, group))
_REDUCE = _Exchange(_reduced, lambda g, root, op, group: _share(_Linear.apply(g, _BROADCAST, root, group), op, group))
_ALL_GATHER = _Exchange(_all_gathered, lambda g, group: _Linear.apply(g, _REDUCE_SCATTER, ReduceOp.SUM, group))
_REDUCE_SCATTER = _Exchange(
    _reduced_and_scattered, lambda g, op, group: _share(_Linear.apply(g, _ALL_GATHER, group), op, group)
)
_GATHER = _Exchange(_gathered, lambda g, root, group: _Linear.apply(g, _SCATTER, root, group))
_SCATTER = _Exchange(_scattered, lambda g, root, group: _Linear.apply(g, _GATHER, root, group))
_ALL_TO_ALL = _Exchange(_exchanged, lambda g, group: _Linear.apply(g, _ALL_TO_ALL, group))
