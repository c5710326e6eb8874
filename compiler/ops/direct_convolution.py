"""Convolution and its two adjoints as products over grids (compiler/grids.py), which read windows where they lie.

Terms for which a window reaches into the padding are left out of the sums. So positions with the same taps inside make
a group, dimension by dimension: the first ones, the interior, the last ones; in the gradient of the input also by what
remains of the position after division by the stride. For the weight it is each tap that has positions of its own.

    convolution          rows: output channels    columns: samples, positions    sum: input channels, taps
    its input's adjoint  rows: input channels     columns: samples, positions    sum: output channels, taps
    its weight's         rows: input channels     columns: output channels       sum: samples, positions

in row-major order of what the sum runs over. Where a group would be small, the caller pads the input itself.
"""

from functools import cache, partial
from itertools import product
from math import prod

from ..dtypes import float32, float64
from ..extent import estimated, is_open
from ..grids import BLOCK_DEPTH, DIMENSIONS, PIECE_BYTES, Grid, Group, Products
from ..kernels.library import GridProduct
from ..kernels.loop import CopyApart
from ..plain import Plain, changed
from ..shapes import contiguous_strides
from ..target import PANEL_BYTES
from .samples import Sample
from .table import TABLE, Meta, Op, register
from .view import copies, permute

# Rows that are computed from one packed panel, and units that there are at least, if there are rows enough.
_CHUNK, _LEAST_UNITS, _LEAST_CHUNK = 1024, 4, 64
# The same where groups share panels: the results of all groups stay in a cache until they are written.
_RESULT_BYTES, _LEAST_SHARED_CHUNK = 1 << 18, 16
# Of all taps: each is two offsets of 32 bits in scratch memory.
_MOST_SHARED_TERMS = 1 << 19
# One panel is packed twice, so that two threads share its rows, where there are so many for each cycle that packing a
# term takes. LeNet's first weight has 25, six columns and sums of 50176 terms: 381 us in place of 343 on one thread, to
# give a half to each of two. Of a step of 1.9 ms it would be a sixth that only one thread does.
_LEAST_SHARED = 8
_MOST_GROUPS = 64  # of channels
# Cycles: finding the columns of a panel and of two pieces, and packing a run of adjacent ones, a store that is masked
# and seldom aligned, or of a whole vector. Shorter pieces than this leave most of a vector empty.
_PANEL_SET_UP, _PIECES_SET_UP, _RUN, _WHOLE_RUN, _LEAST_PIECE = 900, 300, 5, 2, 32
# What is read where it lies falls into few sets of a cache, and is read again for every eight rows.
_FROM_AFAR = 1.03


class Band(Plain):
    """Positions along one dimension that see the same taps, and what they see: `at` and its steps are positions in the
    other array."""

    __slots__ = ("start", "step", "count", "tap", "tap_step", "taps", "at", "at_step", "at_tap")

    def __init__(self, start, step, count, tap, tap_step, taps, at, at_step, at_tap):
        self.start = start
        self.step = step
        self.count = count
        self.tap = tap
        self.tap_step = tap_step
        self.taps = taps
        self.at = at
        self.at_step = at_step
        self.at_tap = at_tap


def _bands(positions, step, taps_of, place, at_step, at_tap):
    """The Bands of range(start, positions, step) for every start below step; taps_of(position) -> taps it sees, evenly
    apart; place(position, tap) -> what it sees there."""
    found = []
    for start in range(min(step, positions)):
        before = None
        for position in range(start, positions, step):
            taps = taps_of(position)
            if taps == before:
                found[-1][1] += 1
                continue
            found.append([position, 1, taps])
            before = taps
    return [_band(step, *one, place, at_step, at_tap) for one in found]


def _band(step, start, count, taps, place, at_step, at_tap):
    first = taps[0] if taps else 0
    tap_step = taps[1] - first if len(taps) > 1 else 1
    at = place(start, first) if taps else 0
    return Band(start, step, count, first, tap_step, len(taps), at, at_step, at_tap(tap_step))


def _forward_bands(size, kernel, stride, before, dilation, positions):
    def taps_of(o):
        return [k for k in range(kernel) if 0 <= o * stride + k * dilation - before < size]

    return _bands(
        positions, 1, taps_of, lambda o, k: o * stride + k * dilation - before, stride, lambda n: n * dilation
    )


def _input_bands(size, kernel, stride, before, dilation, positions):
    def taps_of(q):
        at = [(k, *divmod(q + before - k * dilation, stride)) for k in range(kernel)]
        return [k for k, p, rest in at if rest == 0 and 0 <= p < positions]

    def place(q, k):
        return (q + before - k * dilation) // stride

    return _bands(size, stride, taps_of, place, 1, lambda n: -(n * dilation // stride))


# --- the products -----------------------------------------------------------------------------------------------------
def _of_positions(bands, source, target, weight, groups, by_output, last):
    """The Groups of a convolution (`by_output`: rows are output channels) or its input's adjoint, for operands
    (weight, source). `last`: whether samples are the last dimension in memory."""
    rank = len(weight) - 2
    outputs, inputs = weight[0] // groups, weight[1]
    w, s, t = contiguous_strides(weight), _strides(source, last), _strides(target, last)
    rows, terms = (outputs, w[0]), (inputs, w[1])
    if not by_output:
        rows, terms = terms, rows
    found = []
    for group, band in product(range(groups), list(product(*bands))):
        columns = [(d.count, d.at_step * s[2 + k], d.step * t[2 + k]) for k, d in enumerate(band)]
        samples = source[0], s[0], t[0]
        depth = [(d.taps, d.tap_step * w[2 + k], d.at_tap * s[2 + k]) for k, d in enumerate(band)]
        first = group * outputs * w[0] + sum(d.tap * n for d, n in zip(band, w[2:]))
        seen = group * terms[0] * s[1] + sum(d.at * n for d, n in zip(band, s[2:]))
        written = group * rows[0] * t[1] + sum(d.start * n for d, n in zip(band, t[2:]))
        found.append(
            Group(
                Grid(((*rows, t[1]),), first),
                Grid((*columns, samples) if last else (samples, *columns), seen, written),
                Grid(((*terms, s[1]), *depth)),
            )
        )
    assert rank <= DIMENSIONS - 1
    return tuple(g for g in found if g.rows.count and g.columns.count)


def _strides(shape, last):
    """Those of an array of the shape (samples, channels, positions) whose samples come first or last in memory."""
    if not last:
        return contiguous_strides(shape)
    *others, of_samples = contiguous_strides((*shape[1:], shape[0]))
    return of_samples, *others


def _chunked(groups, size, together=False):
    groups = tuple(_read(g, size) for g in groups)
    rows = max((g.rows.count for g in groups), default=1)
    units = estimated(Products(groups, rows, together).units(size))
    n = max(-(-rows // _CHUNK), min(-(-_LEAST_UNITS // max(units, 1)), rows // _LEAST_CHUNK), 1)
    if n == 1 and units == 1 and rows >= _LEAST_SHARED * _cycles_to_pack(groups[0], size):
        n = 2
    return Products(groups, -(-rows // n // 8) * 8 if n > 1 else rows, together)


def _cycles_to_pack(group, size):
    """Of a term, for every vector of columns."""
    vectors = -(-min(group.columns.count, PANEL_BYTES // size) * size // 64)
    return _moved_cycles(group.columns, 1, group.depth, 2, size) / vectors


def _read(group, size):
    """The group with its columns read in place, if they can be and few rows would read a packed panel."""
    inner = group.columns.dimensions[-1]
    if is_open(inner[0]) or inner[0] * size < _LEAST_PIECE or inner[1:] != (1, 1):
        return group
    other = changed(group, in_place=True)
    packed, in_place = (_panel_cycles(g, size) * estimated(g.panels(size)) for g in (group, other))
    return group if packed < _FROM_AFAR * in_place else other


def _panel_cycles(g, size):
    """A rough time for a panel or two pieces, measured on few rows: `cycles` is for many."""
    rows, vectors = g.rows.count + g.rows.count % 2, 2
    if g.in_place:
        return _PIECES_SET_UP + g.depth.count * vectors * rows + 6 * g.rows.count
    lanes, inner, run = 64 // size, g.columns.dimensions[-1][0], _RUN
    runs = 1 + (PANEL_BYTES // size - 1) / min(inner, lanes)
    if inner % lanes == 0:
        runs = vectors = min(2, g.columns.count // lanes)
        run = _WHOLE_RUN
    return _PANEL_SET_UP + g.depth.count * (run * runs + vectors * rows) + 3 * runs * g.rows.count


def _geometry(x, kernel, positions, how):
    before = [a for a, _ in how["padding"]]
    return list(zip(x[2:], kernel, how["stride"], before, how["dilation"], positions))


def _forward(x, weight, out, how, size):
    bands = [_forward_bands(*g) for g in _geometry(x, weight[2:], out[2:], how)]
    return _chunked(_of_positions(bands, x, out, weight, how["groups"], True, how.get("samples_last")), size)


def _input(g, weight, out, how, size):
    bands = [_input_bands(*one) for one in _geometry(out, weight[2:], g[2:], how)]
    return _chunked(_of_positions(bands, g, out, weight, how["groups"], False, how.get("samples_last")), size)


def _weight(x, g, out, how, size):
    """Operands x, g. Without padding all taps see all positions, and are rows too. Else they see most of them, and
    share what is packed."""
    geometry, groups = _geometry(x, out[2:], g[2:], how), how["groups"]
    outputs, inputs = g[1] // groups, out[1]
    s, t, w = contiguous_strides(x), contiguous_strides(g), contiguous_strides(out)
    whole = all(a == b == 0 for a, b in how["padding"])
    shares = not whole and groups == 1 and not any(map(is_open, x))
    shares = shares and prod(out[2:]) * x[0] * prod(g[2:]) <= _MOST_SHARED_TERMS
    numbers = contiguous_strides(g[2:])
    columns = (outputs, t[1], w[0])
    found = []
    for group, tap in product(range(groups), [()] if whole else list(product(*map(range, out[2:])))):
        rows, seen, of_g, depth = [(inputs, s[1], w[1])], group * inputs * s[1], group * outputs * t[1], []
        written, number = group * outputs * w[0], 0
        for k, (extent, taps, stride, before, dilation, positions) in enumerate(geometry):
            first, count = 0, positions
            if whole:
                rows.append((taps, dilation * s[2 + k], w[2 + k]))
            else:
                at = tap[k] * dilation - before
                first = max(0, -(at // stride))
                count = max(min(positions, (extent - 1 - at) // stride + 1) - first, 0)
                seen += (at + first * stride) * s[2 + k]
                written += tap[k] * w[2 + k]
            of_g += first * t[2 + k]
            number += first * numbers[k]
            depth.append((count, stride * s[2 + k], numbers[k] if shares else t[2 + k]))
        if shares:
            terms = Grid(((x[0], s[0], prod(g[2:])), *depth), 0, number)
            found.append(Group(Grid(tuple(rows), seen), Grid((columns,)), terms))
        else:
            terms = Grid(((x[0], s[0], t[0]), *depth))
            found.append(Group(Grid(tuple(rows), seen, written), Grid((columns,), of_g), terms))
    found = tuple(g for g in found if g.rows.count and g.columns.count)
    if not shares or not found:
        return _chunked(found, size, together=not whole)
    terms = Grid(((g[0], 0, t[0]), *((n, 0, by) for n, by in zip(g[2:], t[2:]))))
    return _shared(found, Group(Grid(((inputs, s[1], 0),)), Grid((columns,)), terms), size)


def _shared(groups, panel, size):
    """Rows of a unit are few enough for their results of all groups, and for some units."""
    rows = panel.rows.count
    n = max(-(-rows * len(groups) * PANEL_BYTES // _RESULT_BYTES), -(-_LEAST_UNITS // panel.panels(size)))
    n = max(min(n, rows // _LEAST_SHARED_CHUNK), 1)
    return Products(groups, -(-rows // n // 8) * 8 if n > 1 else rows, False, panel)


_LEAST_TAPS = 4  # of convolutions whose samples come last in memory

# --- whether it pays --------------------------------------------------------------------------------------------------
# Copies of windows that stay in caches cost little, and leave a plain product of matrices. What is added up to an image
# is read once, one after the other: of 3.8 MB, LeNet's second convolution takes 505 us that way and 1195 directly.
_SMALL_COPY, _SMALL_SUM = 1 << 21, 1 << 22
_LEAST_SAVED = 0.75  # of the multiply-adds, where copies are small
# Of how many samples copies are judged, whatever their number: LeNet takes 1.9 ms for a step of 64 with that of 64 and
# 2.5 with that of 16, and its first convolution 28 us for a gradient of two images with 16, and 57 with 64.
_USUAL_BATCH, _COPIED_BATCH = 16, 64


def can(operands, out, groups):
    """Whether the products can be made: floats, of at most three dimensions, that offsets of 32 bits reach."""
    x = operands[0]
    rank = len(x.shape) - 2
    if x.dtype not in (float32, float64) or not 1 <= rank <= DIMENSIONS - 1 or groups > _MOST_GROUPS:
        return False
    return all(0 < prod(shape) < 2**31 for shape in (operands[0].shape, operands[1].shape, out))


def usual(x):
    """x with the number of samples that times are estimated for: what is chosen must not depend on how many there are,
    where programs serve many numbers of them."""
    return Meta((_USUAL_BATCH, *x.shape[1:]), x.dtype)


def pays(time, weight, samples, positions, size, copying):
    """Whether products over grids, which take this time (`cycles`) for the usual batch, take less than one of matrices
    whose operand is a copy of all windows, or is added up to an image. `copying`: cycles for an element of it."""
    n_windows = positions * prod(weight[1:])
    if samples != 1:
        samples = _USUAL_BATCH if copying else _COPIED_BATCH
    if samples * n_windows * size > (_SMALL_SUM if copying else _SMALL_COPY):
        return True
    dense = n_windows * weight[0] * size / 64
    return time < _USUAL_BATCH * (_LEAST_SAVED * dense + n_windows * copying)


def cycles(products, size):
    """A rough time: multiply-adds of vectors, and runs of elements that are packed and written."""
    lanes, total = 64 // size, 0.0
    if products.panel:
        return _shared_cycles(products, size)
    for g in products.groups:
        if g.in_place:
            total += g.panels(size) * _panel_cycles(g, size)
            continue
        rows, n, depth = g.rows.count, g.columns.count, g.depth.count
        panels, vectors = g.panels(size), -(-n // lanes)
        read = _moved_cycles(g.columns, 1, g.depth, 2, size)
        written = _moved_cycles(g.columns, 2, g.rows, 2, size)
        total += depth * (rows + rows % 2) * vectors
        chunks = -(-rows // products.chunk)
        total += panels * (depth * read * chunks + rows * written + 600 * chunks)
        total += 8 * depth + 2 * depth // BLOCK_DEPTH * rows * vectors
    return total


def _shared_cycles(products, size):
    panel, rows, vectors = products.panel, products.panel.rows.count, -(-products.panel.columns.count * size // 64)
    panels, chunks = panel.panels(size), -(-rows // products.chunk)
    read = _moved_cycles(panel.columns, 1, panel.depth, 2, size)
    written = 0.5 * min(panel.columns.count, PANEL_BYTES // size)
    sums = sum(g.depth.count * (rows + rows % 2) * vectors for g in products.groups)
    return sums + panels * (chunks * (panel.depth.count * read + 900) + rows * len(products.groups) * written)


def _moved_cycles(columns, of_columns, rows, of_rows, size):
    """For a row of a panel: single elements, runs of columns, or blocks of rows that are transposed."""
    n = min(columns.count, 128 // size)
    run = min(_adjacent(columns, of_columns), 64 // size)
    if run == 1 and _adjacent(rows, of_rows) * size >= 32:
        return 0.5 * n
    is_by_two = run == 1 and of_columns == 1 and columns.dimensions[-1][1] == 2
    return 2.5 * n / min(columns.dimensions[-1][0], 64 // size) if is_by_two else 1.7 * n / run


def _adjacent(grid, which):
    """How many numbers in a row have adjacent offsets."""
    length = 1
    for dimension in reversed(grid.dimensions):
        if dimension[0] > 1:
            if dimension[which] != length:
                break
            length *= dimension[0]
    return length


def samples_last_pays(x, kernel):
    """Whether operands are copied so that samples come last, and the result back. A vector is of as many samples then,
    all whole, where runs of positions end with an image's rows, and the ends of images make groups of their own. The
    bits are the same, so it may depend on how many samples there are. An element is copied once, and read once for each
    tap; with one or two the copies take longer."""
    n = x.shape[0]
    whole = not is_open(n) and n * x.dtype.size_bytes % PIECE_BYTES == 0
    return whole and prod(kernel) >= _LEAST_TAPS and len(kernel) < DIMENSIONS


# --- entries ----------------------------------------------------------------------------------------------------------
def _counts(x, weight, how):
    padded = [d + a + b for d, (a, b) in zip(x.shape[2:], how["padding"])]
    return tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded, weight.shape[2:], how["stride"], how["dilation"])
    )


def _entry(name, stands_for, infer, make, order):
    """An entry that computes as a composite of that name does, whose derivatives it has. `order`: which operands are a
    and b of the products. Its attribute `samples_last`: the first operand and the result have their samples as the last
    dimension, (channels, *positions, samples)."""

    @cache
    def products(shapes, out, how, size):
        return make(*shapes, out, dict(how), size)

    def products_of(operands, out, attributes, size):
        shapes, out = [tuple(x.shape) for x in operands], tuple(out)
        if attributes.get("samples_last"):
            shapes[0], out = _samples_first(shapes[0]), _samples_first(out)
        if any(map(is_open, (*out, *(d for shape in shapes for d in shape)))):
            return make(*shapes, out, attributes, size)
        return products(tuple(shapes), out, tuple(sorted(attributes.items())), size)

    def its_infer(operands, attributes, default_float):
        x, other = operands
        if not attributes.get("samples_last"):
            return Meta(infer(x, other, attributes), x.dtype)
        n, *rest = infer(Meta(_samples_first(x.shape), x.dtype), other, attributes)
        return Meta((*rest, n), x.dtype)

    return register(
        Op(
            name,
            "routine",
            its_infer,
            vjp=lambda index: partial(_derivative, stands_for, index),
            compute_dtype=lambda operands, default_float: (tuple(x.dtype for x in operands), operands[0].dtype),
            kernel=GridProduct(products_of, order),
            samples=lambda: [Sample(s.operands[:2], s.attributes) for s in TABLE[stands_for].samples()],
            oracle=lambda torch, *operands, **how: TABLE[stands_for].oracle(torch, *operands, **how),
        )
    )


def _samples_first(shape):
    return (shape[-1], *shape[:-1])


def _derivative(stands_for, index, g, out, x, other, samples_last=False, **how):
    rule = TABLE[stands_for].vjp_rule(index)
    if not samples_last:
        return rule(g, out, x, other, **how)
    found = rule(with_samples_first(g), out, with_samples_first(x), other, **how)
    return with_samples_last(found) if index == 0 else found


def with_samples_last(x):
    return permute(x, axes=(*range(1, len(x.shape)), 0))


def with_samples_first(x):
    return permute(x, axes=(len(x.shape) - 1, *range(len(x.shape) - 1)))


direct_convolution = _entry(
    "direct_convolution",
    "convolution",
    lambda x, weight, how: (x.shape[0], weight.shape[0], *_counts(x, weight, how)),
    _forward,
    (1, 0),
)
direct_convolution_input = _entry(
    "direct_convolution_input",
    "convolution_input",
    lambda g, weight, how: (g.shape[0], weight.shape[1] * how["groups"], *how["size"]),
    _input,
    (1, 0),
)
direct_convolution_weight = _entry(
    "direct_convolution_weight",
    "convolution_weight",
    lambda x, g, how: (g.shape[1], x.shape[1] // how["groups"], *how["kernel"]),
    _weight,
    (0, 1),
)

# The operand with its samples last, and the result with its samples first.
rearranged = copies("rearranged", CopyApart())
