"""Gradients for many cotangents by one backward pass, whose cotangents are all of them (runtime/batched)."""

from functools import partial
from math import prod

from .creation import eye
from .runtime.batched.batch import FEW, Level, SampleBySample, all_samples, batch_of, innermost, tensor_of_batch
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor, shape_of
from .shaping import cat
from .utils._pytree import tree_flatten, tree_map

# So many elements of cotangents at once: Jacobians of long vectors are made in parts.
_MOST_ELEMENTS = 1 << 22


def pays(n, outputs):
    """Whether n rows take less time together than one after the other. Within vmap every pass has that cost anyway;
    elsewhere in a compiled call they cannot be together."""
    if any(batch_of(x) is not None for x in outputs):
        return n > 1
    return n > FEW and state.frame is None


def of_rows(cotangents, differentiate):
    """differentiate(a list of one cotangent each) for all rows of the cotangents: a list of tensors with the rows in
    front, None where it gives None. None if a row has to be seen alone."""
    size = len(cotangents[0])
    level = Level(size)
    try:
        with level:
            found = differentiate([tensor_of_batch(level, c, True) for c in cotangents])
            return [None if g is None else all_samples(level, g) for g in found]
    except SampleBySample as stopped:
        if stopped.level is not level:
            raise
        return None


def together(compute, what, args, kwargs):
    """compute(*what, args, kwargs), which finds a Jacobian. In a compiled call its passes would be one after the other,
    since the nodes are the call's: as what one sample gives, which all samples are, it has nodes of its own."""
    if state.frame is None or innermost() is not None or _count(args) <= FEW:
        return compute(*what, args, kwargs)
    level = Level(1)
    try:
        with level:
            return tree_map(partial(_plain, level), compute(*what, args, kwargs))
    except SampleBySample as stopped:
        if stopped.level is not level:
            raise
    return compute(*what, args, kwargs)


def _count(args):
    """How many elements a function is given."""
    return sum([prod(shape_of(x)) for x in tree_flatten(args)[0] if isinstance(x, Tensor)])


def _plain(level, x):
    batch = batch_of(x)
    if batch is None or batch.level is not level:
        return x
    assert not batch.is_varied
    return batch.physical


def of_all_but_last(outputs, cotangents, n, differentiate):
    """`of_rows` of n rows but the last one. None if that pays not."""
    return of_rows([c[: n - 1] for c in cotangents], differentiate) if pays(n - 1, (*outputs, *cotangents)) else None


def of_elements(output, likes, differentiate, chunk_size=None):
    """differentiate([a cotangent of output]), a list of tensors like `likes`, for 1 at each element of output and 0 at
    the others: with the elements of output in front. None if that pays not."""
    shape, n = tuple(output.shape), output.numel()
    if not pays(n, (output,)):
        return None
    longest = max([n, *[prod(x.shape) for x in likes]])
    step = min(max(2, _MOST_ELEMENTS // longest), chunk_size or n)
    if step < 2:
        return None
    ones, parts = eye(n, dtype=output.dtype, device=output.device), []
    for start in range(0, n, step):
        found = of_rows([ones[start : start + step].reshape(-1, *shape)], differentiate)
        if found is None:
            return None
        parts.append(found)
    columns = parts[0] if len(parts) == 1 else [None if part[0] is None else cat(part) for part in zip(*parts)]
    return [x.new_zeros(*shape, *x.shape) if g is None else g.reshape(*shape, *x.shape) for g, x in zip(columns, likes)]
