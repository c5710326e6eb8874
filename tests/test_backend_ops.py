"""Every sample of the op table, compiled: the same bits as eager mode."""

import numpy as np
import pytest
from graph_interpreter import check_equal, strides_of

from weft.compiler import dtypes
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE

_NAMES = [name for name, op in TABLE.items() if op.samples is not None]


def _graph(op, sample, floating, arrange):
    """A graph of one op, its operands inputs as `arrange` lays them out, and the arrays."""
    graph, operands, arrays = Graph(op.name, dtypes.float32), [], []
    for x in sample.operands:
        if isinstance(x, np.ndarray):
            x = arrange(x.astype(floating.numpy) if x.dtype.kind == "f" else x)
            operands.append(graph.input(x.shape, dtypes.from_numpy(x.dtype), strides_of(x)))
            arrays.append(x)
        else:
            operands.append(graph.constant(x))
    graph.outputs = [graph.apply(op, tuple(operands), sample.attributes)]
    return graph, arrays


def _spread_out(x):
    """The array with its axes in reverse in memory, every second element used, the last axis backwards."""
    if x.ndim == 0:
        return x
    memory = np.zeros([2 * d for d in x.shape[::-1]], x.dtype)
    view = memory.transpose()[tuple(slice(None, None, 2) for _ in x.shape)]
    view = view[..., ::-1]
    view[...] = x
    return view


def _check(name, floating, arrange, is_of_use=lambda arrays: True):
    op = TABLE[name]
    for sample in op.samples():
        if not is_of_use([x for x in sample.operands if isinstance(x, np.ndarray)]):
            continue
        graph, arrays = _graph(op, sample, floating, arrange)
        eager_only = op.extra.get("eager_only")
        if not eager_only or eager_only([o.dtype for o in graph.outputs[0].operands], sample.attributes) is None:
            check_equal(graph, arrays)


@pytest.mark.parametrize("name", _NAMES)
def test_float32(name):
    _check(name, dtypes.float32, lambda x: x)


@pytest.mark.parametrize("name", _NAMES)
def test_float64(name):
    _check(name, dtypes.float64, lambda x: x)


@pytest.mark.parametrize("name", _NAMES)
def test_strided_inputs(name):
    _check(name, dtypes.float32, _spread_out, lambda arrays: any(x.ndim and x.size for x in arrays))
