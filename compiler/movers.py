"""Loop nests of the ops that are kernels of their own: copies into parts of a result, additions at computed positions,
and positions of extremes. Their operands are in memory."""

from math import prod

from .loopnest import At, Extreme, Index, Kernel, Load, Loop, Parameter, Store, Sweep, Update
from .lower import Lowered, lanes_for
from .ops.comparison import element_of
from .ops.table import TABLE
from .registers import memory_element
from .shapes import contiguous_strides


def lower_mover(value, accesses, lanes_bytes):
    """The Lowered kernel of a cat, slice_scatter, scatter_add, index_add, index_put, argmax or argmin."""
    writer = _Writer(value, [accesses[o.number] for o in value.operands], lanes_bytes)
    _WRITERS[value.op.name](writer)
    return writer.lowered()


def lower_copy(source, target, lanes_bytes):
    """A copy from a contiguous value into an input's own memory, which may be strided."""
    writer = _Writer(target, [], lanes_bytes)
    # The source holds the target's elements in row-major order, perhaps under another shape.
    contiguous = contiguous_strides(target.shape)
    writer.copy(source, contiguous, 0, target.shape, target.strides or contiguous, 0)
    return writer.lowered()


class _Writer:
    """The kernel being written: its result is `value`, its operands have `accesses`."""

    def __init__(self, value, accesses, lanes_bytes):
        self.value, self.accesses = value, accesses
        elements = {element_of(value.dtype)} | {element_of(a.base.dtype) for a in accesses}
        self.lanes = lanes_for(elements, lanes_bytes)
        self.parameters, self.body = {}, []
        self.count, self.checks = 0, False

    def fresh(self):
        self.count += 1
        return self.count - 1

    def memory(self, value):
        if value not in self.parameters:
            self.parameters[value] = Parameter(f"p{len(self.parameters)}", memory_element(value.dtype))
        return self.parameters[value].name

    def lowered(self):
        kernel = Kernel(tuple(self.parameters.values()), self.lanes, tuple(self.body), self.checks)
        return Lowered(kernel, tuple(("value", v.number) for v in self.parameters))

    def nest(self, dims, make_body):
        """Loops over dims (extents, outermost first) around the statements make_body(index names) gives."""
        names = [f"i{k}" for k in range(len(dims))]
        body = make_body(names)
        for name, extent in zip(reversed(names), reversed(dims)):
            body = [Loop(name, extent, tuple(body))]
        self.body += body

    def copy(self, source, strides, offset, shape, to_strides, to_offset):
        """Elements of `shape` from one place to another."""
        dims = _joint_collapse(shape, strides, to_strides)
        load, store = self.memory(source), self.memory(self.value)
        element = element_of(source.dtype)

        def body(names):
            name = self.fresh()
            *outer, (extent, step, to_step) = dims
            at = At(offset, _terms(names, [s for _, s, _ in outer]), step)
            to = At(to_offset, _terms(names, [s for _, _, s in outer]), to_step)
            return [Sweep(extent, (Load(name, load, at, element), Store(store, to, name)))]

        self.nest([d for d, _, _ in dims[:-1]], body)

    def copy_operand(self, k, to_strides, to_offset):
        a = self.accesses[k]
        self.copy(a.base, a.strides, a.offset, a.shape, to_strides, to_offset)


def _terms(names, steps):
    return tuple((n, s) for n, s in zip(names, steps) if s)


def _joint_collapse(shape, first, second):
    """((size, stride, stride), ...) with runs of both stride lists merged; at least one entry."""
    merged = []
    for d, s, t in zip(shape, first, second):
        if d == 1:
            continue
        if merged and merged[-1][1] == d * s and merged[-1][2] == d * t:
            merged[-1] = (merged[-1][0] * d, s, t)
        else:
            merged.append((d, s, t))
    return merged or [(1, 1, 1)]


def _write_cat(writer):
    value = writer.value
    strides, start = contiguous_strides(value.shape), 0
    axis = value.attributes["axis"]
    for k, operand in enumerate(value.operands):
        writer.copy_operand(k, strides, start * strides[axis])
        start += operand.shape[axis]


def _write_slice_scatter(writer):
    value = writer.value
    strides = contiguous_strides(value.shape)
    spec = value.attributes["spec"]
    writer.copy_operand(0, strides, 0)
    writer.copy_operand(
        1,
        tuple(s * step for s, (_, step, _) in zip(strides, spec)),
        sum(s * start for s, (start, _, _) in zip(strides, spec)),
    )


def _write_scatter_add(writer):
    value = writer.value
    strides = contiguous_strides(value.shape)
    _, index, part = writer.accesses
    writer.checks = True
    writer.copy_operand(0, strides, 0)
    axis = value.attributes["axis"] if value.shape else 0
    others = tuple(0 if k == axis else s for k, s in enumerate(strides))

    def body(names):
        where, x = writer.fresh(), writer.fresh()
        target = Index(where, strides[axis], value.shape[axis]) if value.shape else Index(where, 0, 1)
        return [
            Load(where, writer.memory(index.base), _position(names, index), element_of(index.base.dtype)),
            Load(x, writer.memory(part.base), _position(names, part), element_of(part.base.dtype)),
            Update(writer.memory(value), At(0, _terms(names, others), 0), target, TABLE["add"], x),
        ]

    writer.nest(index.shape, body)


def _position(names, access):
    return At(access.offset, _terms(names, access.strides), 0)


def _write_index_add(writer):
    _write_slices(writer, writer.value.shape, TABLE["add"])


def _write_index_put(writer):
    _write_slices(writer, writer.value.attributes["merged"], None)


def _write_slices(writer, shape, op):
    """The base, and slices of the part combined with (op) or put over (None) its slices at the index, in order of the
    index. `shape` is the result's, in which one axis is indexed."""
    value = writer.value
    _, index, part = writer.accesses
    writer.checks = True
    axis, n_index = value.attributes["axis"], len(index.shape)
    strides = contiguous_strides(shape)
    writer.copy_operand(0, contiguous_strides(value.shape), 0)
    lead_steps, slice_steps = part.strides[: axis + n_index], part.strides[axis + n_index :]
    inner = prod(shape[axis + 1 :])
    # The elements of a slice are walked in vectors where both sides are contiguous, else one by one.
    lane = int(inner > 1 and slice_steps == strides[axis + 1 :])

    def body(names):
        where, x = writer.fresh(), writer.fresh()
        lead, rest = names[: axis + n_index], names[axis + n_index :]
        at_index = At(index.offset, _terms(lead[axis:], index.strides), 0)
        load = Load(where, writer.memory(index.base), at_index, element_of(index.base.dtype))
        target = Index(where, strides[axis], shape[axis])
        steps, to_steps = _terms(lead, lead_steps), _terms(lead[:axis], strides[:axis])
        steps, to_steps = steps + _terms(rest, slice_steps), to_steps + _terms(rest, strides[axis + 1 :])
        read = Load(x, writer.memory(part.base), At(part.offset, steps, lane), element_of(part.base.dtype))
        update = Update(writer.memory(value), At(0, to_steps, lane), target, op, x)
        return [load, Sweep(inner, (read, update))] if lane else [load, read, update]

    writer.nest((*shape[:axis], *index.shape, *(() if lane else shape[axis + 1 :])), body)


def _write_extreme(writer):
    value = writer.value
    (x,) = writer.accesses
    if not x.shape:
        x_steps, count, step, kept = (), 1, 0, ()
    else:
        axis = value.attributes["axis"]
        count, step = x.shape[axis], x.strides[axis]
        kept = x.shape[:axis] + x.shape[axis + 1 :]
        x_steps = x.strides[:axis] + x.strides[axis + 1 :]
    dims = _joint_collapse(kept, x_steps, contiguous_strides(kept))
    # Lanes go along the rows where those are contiguous, and long enough to fill them.
    by_rows = step == 1 and count >= 2 * writer.lanes

    def body(names):
        name = writer.fresh()
        *outer, (extent, lane, _) = dims
        if by_rows:
            at = At(x.offset, _terms(names, [s for _, s, _ in dims]), 0)
            to = At(0, _terms(names, [s for _, _, s in dims]), 0)
            find = Extreme(name, writer.memory(x.base), at, count, step, value.op.lower)
            return [find, Store(writer.memory(value), to, name)]
        at = At(x.offset, _terms(names, [s for _, s, _ in outer]), lane)
        to = At(0, _terms(names, [s for _, _, s in outer]), 1)
        find = Extreme(name, writer.memory(x.base), at, count, step, value.op.lower)
        return [Sweep(extent, (find, Store(writer.memory(value), to, name)))]

    writer.nest([d for d, _, _ in (dims if by_rows else dims[:-1])], body)


_WRITERS = {
    "cat": _write_cat,
    "slice_scatter": _write_slice_scatter,
    "scatter_add": _write_scatter_add,
    "index_add": _write_index_add,
    "index_put": _write_index_put,
    "argmax": _write_extreme,
    "argmin": _write_extreme,
}
