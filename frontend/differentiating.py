"""The method of tensors that begins a backward pass: programs that compute and do not train need none of what is behind
it. One of later_families.py."""

from .autograd import backward as _backward

PUBLIC, METHODS = (), ("backward",)


def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Gradients of this tensor with respect to the leaves, added to their .grad."""
    _backward(self, gradient, retain_graph, create_graph, inputs=inputs)
