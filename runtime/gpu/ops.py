"""Ops on tensors in the memory of a GPU, and their derivatives: each is one program, found by what it is given.

view           strides over the same memory; nothing runs
composite      one program of all its ops, or these one by one if it ends in a view or one of them has none
anything else  one program
"""

from ...compiler.autodiff import vjp
from ...compiler.gpu import NotForGpu
from ...compiler.graph import INPUT, Graph, Value
from ...compiler.ops.indexing import index_put
from ...compiler.ops.kinds import is_unknown, number_meta, refuse_complex
from ...compiler.ops.spelling import index_
from ...compiler.ops.view import clone, data
from ..eager.gate import record_op
from ..eager.halves import in_float32
from ..eager.plan import add_attributes
from ..eager.saved import Shape
from ..state.elsewhere import is_elsewhere
from ..state.modes import no_grad, state
from ..state.tensor import Tensor
from .arrays import outside_call, tensor_at, tensor_showing
from .moves import moved
from .programs import notes_for, program_for
from .trace import trace_for

_AT_PLACES = (index_, index_put)


def apply(gpu, op, operands, attributes):
    """What an op gives, as a tensor on the GPU."""
    if state.frame is not None:
        with outside_call():
            return apply(gpu, op, operands, attributes)
    operands = on_one_gpu(gpu, op, operands)
    metas = [x if isinstance(x, Tensor) else number_meta(x) for x in operands]
    meta = op.infer(metas, attributes, state.default_dtype)
    refuse_complex(op, [m.dtype for m in metas])
    out = _seen(op, operands, attributes, meta) if op.kind == "view" else None
    if out is None:
        out = _computed(gpu, op, operands, attributes, metas, meta)
    if state.grad_enabled:
        record_op(op, operands, attributes, out)
    return out


def on_one_gpu(gpu, op, operands):
    """The operands, those without dimensions copied from the CPU. RuntimeError for others that are elsewhere."""
    found = []
    for x in operands:
        if isinstance(x, Tensor):
            if not is_elsewhere(x):
                x = _from_cpu(gpu, op, x)
            elif x._meta.gpu is not gpu:
                raise different_devices(gpu, str(x._meta.device), op.name)
        found.append(x)
    return tuple(found)


def _from_cpu(gpu, op, x):
    # As in PyTorch, a place may be told by a tensor on the CPU, and so may a number.
    if x.ndim and not (op in _AT_PLACES and x.dtype.category < 2):
        raise different_devices(gpu, "cpu", op.name)
    return moved(x, gpu)


def different_devices(gpu, other, what):
    """The error of what is given tensors on several devices."""
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"cuda:{gpu.number} and {other}! ({what}: move one of them with .to(...))"
    )


# --- views ------------------------------------------------------------------------------------------------------------
def _seen(op, operands, attributes, meta):
    """The result of a view op; None if it has to be copied."""
    x = operands[0]
    array = x._meta
    if op.lower is None:
        raise no_kernel(op, "shows the bytes of memory, which a tensor on a GPU does not give")
    if op is data:
        out = tensor_at(array)
        out.share_memory(x)
        return out
    mapped = op.lower(array.shape, array.strides, array.offset, **attributes)
    if mapped is None:
        return None
    shown, trace = array.seen(meta.shape, *mapped), trace_for(array.gpu)
    if trace is not None:
        trace.view(op, array, attributes, shown)
    return tensor_showing(x, shown)


# --- programs ---------------------------------------------------------------------------------------------------------
def _computed(gpu, op, operands, attributes, metas, meta):
    is_composite = op.decompose is not None
    if is_composite and ("view" in op.extra or any(m.dtype.is_half for m in (*metas, meta))):
        return _in_steps(op, operands, attributes, meta)
    key = key_of(op, state.default_dtype, operands, attributes)
    trace, make = trace_for(gpu), lambda: _graph(op, operands, attributes)
    is_put_off = trace is not None and key is not None
    program = notes_for(key, make) if is_put_off else program_for(gpu, key, make)
    if isinstance(program, NotForGpu):
        if is_composite:
            return _in_steps(op, operands, attributes, meta)
        raise no_kernel(op, program.reason)
    if is_put_off:
        return tensor_at(trace.op(op, operands, attributes, meta))
    arrays = [x._meta if isinstance(x, Tensor) else None for x in operands]
    (made,) = program.run(gpu, arrays, operands)
    return tensor_at(made)


def no_kernel(op, reason):
    """The error of an op that a GPU cannot run."""
    return NotImplementedError(
        f"{op.name}: there is no kernel for a GPU yet (it {reason}). Compute it on the CPU: x.cpu(), and .to('cuda') "
        "brings the result back"
    )


def key_of(what, default_dtype, operands, attributes):
    """Equal for what one program computes; None if attributes cannot be told apart."""
    key = [what, default_dtype]
    for x in operands:
        key += described(x)
    return add_attributes(tuple(key), attributes) if attributes else tuple(key)


def described(x):
    """What of an operand decides a program: how its elements lie, or what number it is."""
    if isinstance(x, Tensor):
        array = x._meta
        return array.dtype, array.shape, None if array.is_contiguous else array.strides
    if x.__class__ is Shape:
        return x.dtype, tuple(x.shape), Shape
    return x.__class__, () if x.__class__ in (float, int, bool) else x


def inputs_of(graph, operands):
    """Values of a graph that stand for operands: tensors, shapes, and numbers that only the call tells."""
    found = []
    for x in operands:
        if isinstance(x, Tensor):
            array = x._meta
            found.append(graph.input(array.shape, array.dtype, None if array.is_contiguous else array.strides))
        elif x.__class__ is Shape:
            found.append(graph.input(tuple(x.shape), x.dtype))
        elif x.__class__ in (float, int, bool):
            found.append(graph.scalar(number_meta(x).dtype))
        else:
            found.append(graph.constant(x))
    return found


def _graph(op, operands, attributes):
    graph = Graph(op.name, state.default_dtype)
    given = inputs_of(graph, operands)
    if op.decompose is not None:
        out = op.decompose(*given, **attributes)
        if not isinstance(out, Value) or out.op is INPUT or out.op.kind == "view":
            raise NotForGpu(op.name, "ends in a view of its operand", None)
    else:
        out = graph.apply(op, tuple(given), attributes)
    graph.outputs = [out]
    return graph, given, None


def _in_steps(op, operands, attributes, meta):
    """A composite by its ops, one after the other."""
    with no_grad():
        out = None if "view" in op.extra else in_float32(op, operands, attributes, meta)
        if out is None:
            out = op.decompose(*operands, **attributes)
        array = out._meta
        if any(out is x for x in operands):
            return tensor_showing(out, array)
        if out._base is not None and "view" not in op.extra:
            # No view, though it ended in one.
            shown = any(isinstance(x, Tensor) and x._meta.block is array.block for x in operands)
            return clone(out) if shown or not array.is_contiguous else tensor_at(array)
    return out


# --- derivatives ------------------------------------------------------------------------------------------------------
def derive(gpu, node, wanted, given):
    """Cotangents of the operands of a node where one is wanted, by one program: given are the cotangent, the output and
    the operands, with a Shape for what the rules do not read. None if they have to be computed op by op."""
    op, attributes, operands = node.op, node.attributes, given[2:]
    if any(is_unknown(op, k) for k, is_wanted in enumerate(wanted) if is_wanted):
        return None
    if any(isinstance(x, Tensor) and not (is_elsewhere(x) and x._meta.gpu is gpu) for x in given):
        return None
    key = key_of((op, wanted), state.default_dtype, given, attributes)

    def make():
        graph = Graph(f"{op.name}_backward", state.default_dtype)
        values = inputs_of(graph, given)
        cotangent, out, *rest = values
        found = [vjp(op, k, cotangent, out, rest, attributes) if w else None for k, w in enumerate(wanted)]
        numbers, places = {v.number: k for k, v in enumerate(values)}, []
        for v in found:
            if v is None or v.op is INPUT:
                # What arrives is passed on as it is.
                places.append(None if v is None else ~numbers[v.number])
                continue
            places.append(len(graph.outputs))
            graph.outputs.append(v)
        return graph, values, places

    trace = trace_for(gpu)
    is_put_off = trace is not None and key is not None
    program = notes_for(key, make) if is_put_off else program_for(gpu, key, make)
    if isinstance(program, NotForGpu):
        return None
    if is_put_off:
        places = program[1]
        computed = tuple([k for k, at in enumerate(places) if at is not None and at >= 0])
        made = trace.derivative(op, computed, given, attributes, [operands[k] for k in computed])
        return _at(places, list(map(tensor_at, made)), given)
    arrays = [x._meta if isinstance(x, Tensor) else None for x in given]
    if any(arrays[k] is None for k in program.given):
        return None
    made = [tensor_at(array) for array in program.run(gpu, arrays, given)]
    found = _at(program.notes, made, given)
    assert all(x is None or (tuple(x.shape), x.dtype) == (tuple(y.shape), y.dtype) for x, y in zip(found, operands))
    return found


def _at(places, made, given):
    """For each operand its cotangent: which of those made, ~k for what is given at k, None for none."""
    return [None if at is None else made[at] if at >= 0 else given[~at] for at in places]
