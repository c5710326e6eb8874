"""What the gradients that arrive at a node are like: shape and type of each of its outputs, by the kind of node."""

from functools import singledispatch
from math import prod
from typing import NamedTuple

from ...compiler.dtypes import from_numpy
from ..state.device import CPU
from ..state.size import Size
from .function_node import FunctionNode
from .node import AccumulateGrad, BaseNode, Node
from .rebase import AsStridedBackward0, CopySlices


class Expected(NamedTuple):
    """What the gradient of an output is like. It can stand for the output where only that is asked."""

    shape: Size
    dtype: object
    requires_grad = True
    device = CPU

    def numel(self):
        return prod(self.shape)


@singledispatch
def metas_of(node):
    """(shape, type) of every output; None where nobody knows."""
    return (None,) * node.n_outputs


@metas_of.register
def _(node: Node):
    return ((node.meta.shape, node.meta.dtype),)


@metas_of.register
def _(node: AccumulateGrad):
    return ((node.variable.shape, node.variable.dtype),)


@metas_of.register
def _(node: FunctionNode):
    return node.output_metas


@metas_of.register
def _(node: CopySlices):
    return ((node.place.base_shape, from_numpy(node.place.dtype)),)


@metas_of.register
def _(node: AsStridedBackward0):
    return ((node.place.shape, from_numpy(node.place.dtype)),)


def _input_metadata(node):
    """What is expected of the gradient of every output."""
    return tuple([None if meta is None else Expected(Size(meta[0]), meta[1]) for meta in metas_of(node)])


BaseNode._input_metadata = property(_input_metadata)
