"""Collectives that return new tensors and have derivatives: PyTorch's distributed.nn.functional.

The loss is the sum of the losses of all ranks. So the gradient of what one rank gives is collected from all ranks that
got it:

    all_reduce (sum)   backward: all_reduce           all_gather       backward: reduce_scatter
    broadcast          backward: reduce, to src       reduce_scatter   backward: all_gather
    gather             backward: scatter              scatter          backward: gather
    reduce (sum)       backward: broadcast            all_to_all       backward: all_to_all

All ranks must take part in the backward pass too. Derivatives of higher order are those of these.
"""

import numpy as np

from ..autograd import Function
from ..creation import zeros
from ..runtime.state.tensor import Tensor
from ..shaping import stack
from . import started
from .collectives import place_of
from .started import ReduceOp, member, same_kind, values_of

_LINEAR = (ReduceOp.SUM, ReduceOp.AVG)


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """The tensors of all ranks made one. With gradients, op is SUM or AVG."""
    _check_linear("all_reduce", op, tensor)
    return _AllReduce.apply(tensor, op, member(group))


def broadcast(tensor, src, group=None):
    """The tensor of rank src; the others give one of its shape and type."""
    group = member(group)
    return _Broadcast.apply(tensor, place_of(group, src, None, "src"), group)


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    """The tensors of all ranks made one, on rank dst; zeros on the others."""
    _check_linear("reduce", op, tensor)
    group = member(group)
    return _Reduce.apply(tensor, place_of(group, dst, None, "dst"), op, group)


def all_gather(tensor, group=None):
    """The tensors of all ranks, as a tuple."""
    return _AllGather.apply(tensor, member(group)).unbind(0)


def gather(tensor, dst=0, group=None):
    """The tensors of all ranks as a tuple, on rank dst; zeros on the others."""
    group = member(group)
    return _Gather.apply(tensor, place_of(group, dst, None, "dst"), group).unbind(0)


def scatter(tensors, src=0, group=None):
    """This rank's tensor of those that rank src gives, one for each rank; the others give as many of their shape."""
    group = member(group)
    same_kind("scatter", tensors, tensors[0], group.size, "tensors")
    return _Scatter.apply(stack(tensors), place_of(group, src, None, "src"), group)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    """The k-th tensors of all ranks made one, on rank k. `output` says shape and type, and is not written."""
    group = member(group)
    same_kind("reduce_scatter", input_list, output, group.size, "input_list")
    _check_linear("reduce_scatter", op, input_list[0])
    return _ReduceScatter.apply(stack(input_list), op, group)


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    """The tensors that all ranks have for this one, as a tuple. The first list says shapes, and is not written; here
    all have one shape."""
    group = member(group)
    same_kind("all_to_all", input_tensor_list, output_tensor_list[0], group.size, "input_tensor_list")
    return _AllToAll.apply(stack(input_tensor_list), group).unbind(0)


def _check_linear(name, op, tensor):
    if op not in _LINEAR and tensor.requires_grad:
        raise NotImplementedError(
            f"{name}: ReduceOp.{op.name} has no derivative here; use ReduceOp.SUM or AVG, or give tensor.detach()"
        )


def _result(group, work, shape):
    return Tensor(group.wait(work).reshape(shape))


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, tensor, op, group):
        ctx.op, ctx.group = op, group
        return _result(group, started.all_reduce(tensor, op, group), tensor.shape)

    @staticmethod
    def backward(ctx, cotangent):
        return _AllReduce.apply(cotangent, ctx.op, ctx.group), None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, tensor, root, group):
        ctx.root, ctx.group = root, group
        return _result(group, started.broadcast(tensor, root, group), tensor.shape)

    @staticmethod
    def backward(ctx, cotangent):
        return _Reduce.apply(cotangent, ctx.root, ReduceOp.SUM, ctx.group), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx, tensor, root, op, group):
        ctx.root, ctx.op, ctx.group = root, op, group
        found = group.wait(started.reduce(tensor, root, op, group))
        return zeros(tensor.shape, dtype=tensor.dtype) if found is None else Tensor(found.reshape(tensor.shape))

    @staticmethod
    def backward(ctx, cotangent):
        gradient = _Broadcast.apply(cotangent, ctx.root, ctx.group)
        return gradient / ctx.group.size if ctx.op is ReduceOp.AVG else gradient, None, None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return _result(group, started.all_gather(tensor, group), (group.size, *tensor.shape))

    @staticmethod
    def backward(ctx, cotangent):
        return _ReduceScatter.apply(cotangent, ReduceOp.SUM, ctx.group), None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, stacked, op, group):
        ctx.op, ctx.group = op, group
        return _result(group, started.reduce_scatter(stacked.unbind(0), op, group), stacked.shape[1:])

    @staticmethod
    def backward(ctx, cotangent):
        gradient = _AllGather.apply(cotangent, ctx.group)
        return gradient / ctx.group.size if ctx.op is ReduceOp.AVG else gradient, None, None


class _Gather(Function):
    @staticmethod
    def forward(ctx, tensor, root, group):
        ctx.root, ctx.group = root, group
        rows, shape = group.wait(started.gather(tensor, root, group)), (group.size, *tensor.shape)
        return zeros(shape, dtype=tensor.dtype) if rows is None else Tensor(rows.reshape(shape))

    @staticmethod
    def backward(ctx, cotangent):
        return _Scatter.apply(cotangent, ctx.root, ctx.group), None, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx, stacked, root, group):
        ctx.root, ctx.group = root, group
        rows = stacked.unbind(0)
        work = started.scatter(rows if group.rank == root else None, rows[0], root, group)
        return _result(group, work, stacked.shape[1:])

    @staticmethod
    def backward(ctx, cotangent):
        return _Gather.apply(cotangent, ctx.root, ctx.group), None, None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, stacked, group):
        ctx.group = group
        counts = [stacked.numel() // group.size] * group.size
        values = np.ascontiguousarray(values_of(stacked, "all_to_all"))
        return _result(group, started.all_to_all(values, stacked.dtype, counts, counts, group), stacked.shape)

    @staticmethod
    def backward(ctx, cotangent):
        return _AllToAll.apply(cotangent, ctx.group), None
