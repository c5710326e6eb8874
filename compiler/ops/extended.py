"""Tensors made longer by their own elements: mirrored at the edges, the edges repeated, or going around.

Along each axis the result is three pieces of the operand, one after the other, so that whole rows are copied:

    reflect     c b   a b c d   c b         the elements beside the edge, backwards
    replicate   a a   a b c d   d d         the edge again and again
    circular    c d   a b c d   a b         the elements of the other end
"""

from itertools import product

import numpy as np

from ..kernels.nest import Nest
from ..shapes import contiguous_strides, joint_runs
from . import samples
from .arithmetic import add
from .padded import padded
from .reduction import sum_
from .samples import Sample
from .table import Meta, Op, register
from .view import as_slices, clone, slice_, slice_scatter


def cut(before, after, size):
    """(where what is kept begins, how long it is): negative padding cuts."""
    first = max(-before, 0)
    return first, size - first - max(-after, 0)


def _pieces(mode, before, after, size):
    """(start, step, length) of what comes before the kept elements and after them; None where nothing does."""
    first, kept = cut(before, after, size)
    starts = {
        "reflect": ((before, -1), (size - 2, -1)),
        "replicate": ((0, 0), (size - 1, 0)),
        "circular": ((first + kept - before, 1), (first, 1)),
    }[mode]
    return [(*start, length) if length > 0 else None for start, length in zip(starts, (before, after))]


def _spec(shape, axis, start, step, length):
    return tuple((start, step, length) if k == axis else (0, 1, d) for k, d in enumerate(shape))


def _regions(shape, padding, mode):
    """Of each part of the result that is copied as it lies: (where in an operand of this shape it comes from, where it
    goes), as specs of slices. A step of 0 repeats one element."""
    ways = [[((0, 1, size), (0, 1, size))] for size in shape]
    for axis, before, after in padding:
        left, right = _pieces(mode, before, after, shape[axis])
        first, kept = cut(before, after, shape[axis])
        ways[axis], begin = [], 0
        for start, step, length in filter(None, (left, (first, 1, kept), right)):
            ways[axis].append(((start, step, length), (begin, 1, length)))
            begin += length
    for way in product(*ways):
        yield tuple(zip(*way))


def _once(spec):
    """The spec with one element of those that are repeated."""
    return tuple((start, step, n) if step else (start, 1, 1) for start, step, n in spec)


def _evaluate(x, padding, mode):
    out = np.empty(_shape(x.shape, padding), x.dtype)
    for here, there in _regions(x.shape, padding, mode):
        out[as_slices(there)] = x[as_slices(_once(here))]
    return out


def _write(writer):
    """Image by image, all regions of each."""
    value, (x,) = writer.value, writer.accesses
    padding, strides = value.attributes["padding"], contiguous_strides(value.shape)
    lead = min(axis for axis, _, _ in padding)
    outer = joint_runs(x.shape[:lead], x.strides[:lead], strides[:lead])

    def image(names):
        body = []
        for here, there in _regions(x.shape, **value.attributes):
            steps = [s * step for s, (_, step, _) in zip(x.strides, here)]
            offsets = [
                sum(s * start for s, (start, _, _) in zip(t, spec)) for t, spec in ((x.strides, here), (strides, there))
            ]
            inner = joint_runs([n for _, _, n in here[lead:]], steps[lead:], strides[lead:])
            named = [(name, *d[1:]) for name, d in zip(names, outer)]
            body += writer.copied(x.base, inner, x.offset + offsets[0], offsets[1], named)
        return body

    writer.nest([n for n, _, _ in outer], image)


def _extended_vjp(g, out, x, padding, mode):
    """What came of an element is added up: the kept one, then what is before and after it."""
    sizes = {axis: x.shape[axis] for axis, _, _ in padding}
    for axis, before, after in reversed(padding):
        first, kept = cut(before, after, sizes[axis])
        cuts = tuple((first, sizes[axis] - first - kept) if k == axis else (0, 0) for k in range(len(g.shape)))
        place, whole = max(before, 0), g
        g = padded(clone(slice_(g, spec=_spec(g.shape, axis, place, 1, kept))), cuts)
        for piece, begin in zip(_pieces(mode, before, after, sizes[axis]), (0, place + kept)):
            if piece is None:
                continue
            start, step, length = piece
            part = slice_(whole, spec=_spec(whole.shape, axis, begin, 1, length))
            if not step:
                part, step, length = sum_(part, axes=(axis,), keepdim=True), 1, 1
            spec = _spec(g.shape, axis, start, step, length)
            g = slice_scatter(g, add(slice_(g, spec=spec), part), spec=spec)
    return g


def _shape(shape, padding):
    more = {axis: before + after for axis, before, after in padding}
    return tuple(d + more.get(k, 0) for k, d in enumerate(shape))


def _infer(operands, attributes, default_float):
    (x,) = operands
    return Meta(_shape(x.shape, attributes["padding"]), x.dtype)


def _node_name(operands, attributes):
    """PyTorch's circular padding is written with copies."""
    kind = {"reflect": "Reflection", "replicate": "Replication", "circular": "Circular"}[attributes["mode"]]
    return f"{kind}Pad{len(attributes['padding'])}DBackward0"


def _torch_extended(torch, x, padding, mode):
    for axis, before, after in padding:
        turned = x.movedim(axis, -1)
        made = torch.nn.functional.pad(turned.reshape(1, -1, turned.shape[-1]), (before, after), mode=mode)
        x = made.reshape(*turned.shape[:-1], made.shape[-1]).movedim(-1, axis)
    return x


# padding: (axis, how many before, how many after) of each axis in turn.
extended = register(
    Op(
        "extended",
        "movement",
        _infer,
        _evaluate,
        (_extended_vjp,),
        kernel=Nest(_write),
        traits=frozenset(["moves"]),
        extra={"regions": _regions},
        node_name=_node_name,
        samples=lambda: [
            Sample((samples.numbers(k, shape),), {"padding": padding, "mode": mode})
            for mode in ("reflect", "replicate", "circular")
            for k, (shape, padding) in enumerate(
                (
                    ((3, 4), ((1, 3, 2),)),
                    ((2, 3, 4), ((2, 1, 3), (1, 0, 2))),
                    ((2, 3, 5), ((2, -1, 2), (1, 1, -1))),
                    ((2, 3, 5), ((2, -1, -2), (1, 2, 2))),
                )
            )
        ],
        oracle=_torch_extended,
    )
)
