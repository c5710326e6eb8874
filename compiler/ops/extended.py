"""Tensors made longer by their own elements: mirrored at the edges, the edges repeated, or going around.

Along each axis the result is three pieces of the operand, one after the other, so that whole rows are copied:

    reflect     c b   a b c d   c b         the elements beside the edge, backwards
    replicate   a a   a b c d   d d         the edge again and again
    circular    c d   a b c d   a b         the elements of the other end
"""

from . import samples
from .arithmetic import add
from .kinds import composite
from .reduction import sum_
from .samples import Sample
from .table import Meta
from .view import cat, clone, expand, slice_, slice_scatter
from .windows import padded


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


def _piece(x, axis, piece):
    start, step, length = piece
    if step:
        return slice_(x, spec=_spec(x.shape, axis, *piece))
    edge = slice_(x, spec=_spec(x.shape, axis, start, 1, 1))
    return expand(edge, shape=tuple(length if k == axis else d for k, d in enumerate(x.shape)))


def _extended(x, padding, mode):
    for axis, before, after in padding:
        size = x.shape[axis]
        first, kept = cut(before, after, size)
        left, right = _pieces(mode, before, after, size)
        parts = [_piece(x, axis, p) for p in (left, (first, 1, kept), right) if p is not None]
        x = cat(*parts, axis=axis) if len(parts) > 1 else clone(parts[0])
    return x


def _extended_vjp(g, out, x, padding, mode):
    """What came of an element is added up: the kept one, then what is before and after it."""
    sizes = {axis: x.shape[axis] for axis, _, _ in padding}
    for axis, before, after in reversed(padding):
        first, kept = cut(before, after, sizes[axis])
        cuts = tuple((first, sizes[axis] - first - kept) if k == axis else (0, 0) for k in range(len(g.shape)))
        place, whole = max(before, 0), g
        g = padded(clone(_piece(g, axis, (place, 1, kept))), cuts)
        for piece, begin in zip(_pieces(mode, before, after, sizes[axis]), (0, place + kept)):
            if piece is None:
                continue
            start, step, length = piece
            part = _piece(whole, axis, (begin, 1, length))
            if not step:
                part, step, length = sum_(part, axes=(axis,), keepdim=True), 1, 1
            spec = _spec(g.shape, axis, start, step, length)
            g = slice_scatter(g, add(slice_(g, spec=spec), part), spec=spec)
    return g


def _infer(operands, attributes, default_float):
    (x,), more = operands, {axis: before + after for axis, before, after in attributes["padding"]}
    return Meta(tuple(d + more.get(k, 0) for k, d in enumerate(x.shape)), x.dtype)


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
extended = composite(
    "extended",
    _infer,
    _extended,
    vjp=(_extended_vjp,),
    on_complex=True,
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
