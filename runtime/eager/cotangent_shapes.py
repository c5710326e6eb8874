"""Cotangents in the shape of what they are of, where a user's Python may have made them of another."""

from ...compiler.autodiff import conform


def is_broadcast(given, shape):
    """Whether something of this shape may have been broadcast to the given one: then sums lead back."""
    lead = len(given) - len(shape)
    return lead >= 0 and all(a in (1, b) for a, b in zip(shape, given[lead:]))


def in_shape_of(node, cotangent):
    """The cotangent of what a node has made. Where that has other memory since (`x.data = y`), what comes back
    may be of another shape: it is summed as PyTorch sums what was broadcast, and raises else."""
    given, shape = cotangent.shape, node.output_shape
    if not is_broadcast(given, shape):
        raise RuntimeError(
            f"{node.name()} got an invalid gradient of its output - got {list(given)} but expected shape compatible "
            f"with {list(shape)}. Was the output's .data replaced since?"
        )
    return conform(cotangent, shape, cotangent.dtype)
