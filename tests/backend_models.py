"""Graphs of well-known steps with arrays for their inputs: (graph, arrays, run-time scalars). Not a test."""

import numpy as np

from weft.compiler import autodiff, dtypes
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE

float32, int64 = dtypes.float32, dtypes.int64


def normal(seed, shape, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def one(graph):
    return graph.apply(TABLE["full"], (1.0,), {"shape": (), "dtype": float32})


def _with_gradients(graph, y, wanted, backward):
    """Outputs y, or the gradients for a cotangent that becomes the last input."""
    arrays = [normal(k, v.shape) for k, v in enumerate(graph.inputs())]
    graph.outputs = [y]
    if backward:
        cotangent = graph.input(y.shape, float32)
        arrays.append(normal(99, y.shape))
        graph.outputs = autodiff.backward(graph, [y], [cotangent], wanted)
    return graph, arrays, []


def softmax(rows, n, backward=False):
    graph = Graph("softmax")
    x = graph.input((rows, n), float32)
    return _with_gradients(graph, TABLE["softmax"](x, axis=1), [x], backward)


def layer_norm(rows, n, backward=False):
    graph = Graph("layer_norm")
    x, weight, bias = (graph.input(s, float32) for s in ((rows, n), (n,), (n,)))
    return _with_gradients(graph, TABLE["layer_norm"](x, weight, bias, eps=1e-5), [x, weight, bias], backward)


def gelu_chain(rows, n, backward=False):
    graph = Graph("gelu_chain")
    x, weight, bias = (graph.input(s, float32) for s in ((rows, n), (n,), (n,)))
    y = TABLE["gelu"](TABLE["add"](TABLE["mul"](x, weight), bias), approximate="tanh")
    return _with_gradients(graph, y, [x, weight, bias], backward)


def _cross_entropy(logits, target):
    return TABLE["nll_loss"](TABLE["log_softmax"](logits, axis=1), target, reduction="mean", ignore_index=-100)


def cross_entropy(rows, classes):
    """The loss and its gradient."""
    graph = Graph("cross_entropy")
    x, target = graph.input((rows, classes), float32), graph.input((rows,), int64)
    loss = _cross_entropy(x, target)
    graph.outputs = [loss, *autodiff.backward(graph, [loss], [one(graph)], [x])]
    return graph, [normal(0, x.shape), np.random.default_rng(1).integers(0, classes, rows)], []


def mlp_step(batch, sizes, momentum=0.9):
    """Forward, cross entropy, backward, SGD with momentum: weights and momenta are committed in place."""
    graph = Graph("mlp_step")
    x, target = graph.input((batch, sizes[0]), float32), graph.input((batch,), int64)
    rate = graph.scalar(dtypes.float64)
    shapes = [s for a, b in zip(sizes, sizes[1:]) for s in ((b, a), (b,))]
    parameters = [graph.input(s, float32) for s in shapes]
    momenta = [graph.input(s, float32) for s in shapes]
    h = x
    for k in range(0, len(parameters), 2):
        h = TABLE["linear"](h, *parameters[k : k + 2])
        h = TABLE["relu"](h) if k < len(parameters) - 2 else h
    loss = _cross_entropy(h, target)
    gradients = autodiff.backward(graph, [loss], [one(graph)], parameters)
    for p, m, g in zip(parameters, momenta, gradients):
        new = TABLE["add"](TABLE["mul"](m, momentum), g)
        graph.commits += [(m, new), (p, TABLE["sub"](p, TABLE["mul"](new, rate)))]
    graph.outputs = [loss]
    arrays = [normal(0, x.shape), np.random.default_rng(1).integers(0, sizes[-1], batch)]
    arrays += [normal(2 + k, s, 0.1) for k, s in enumerate(shapes + shapes)]
    return graph, arrays, [0.1]
