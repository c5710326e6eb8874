"""The derivative of one node on arrays, as its plan has recorded it: no tensors between its steps."""

from ..state.tensor import show, tensor_of
from .saved import check_version


def run_on_arrays(node, program, roots, cotangent):
    """Cotangents of the operands; None if there are other arrays than were planned for."""
    recording, out = node.recording, node.out
    plan, inputs = recording.plan, [cotangent._data, None, *node.operands]
    if not is_planned(inputs[0], plan.meta):
        return None
    for k in recording.saved:
        saved = node.operands[k]
        tensor = saved.tensor
        if tensor._version != saved.version:
            node._restore(saved, k)
        inputs[k + 2] = array = tensor._data
        if not is_planned(array, plan.metas[k]):
            return None
    if out is not None:
        check_version(out, f"{node.name()}, output")
        inputs[1] = out.tensor._data
        if not is_planned(inputs[1], plan.meta):
            return None
    if program.quick is not None and program.quick.results == program.results:
        outputs = program.quick.outputs(inputs)
        if outputs is not None:
            return list(map(tensor_of, outputs))
    values = program.run(inputs)
    return [
        None
        if number is None
        else tensor_of(values[number])
        if number >= len(inputs) and root is None
        else _shown(node, cotangent, number, root, values, len(inputs))
        for number, root in zip(program.results, roots)
    ]


def is_planned(array, meta):
    return array is not None and array.shape == meta.shape and array.dtype == meta.dtype.numpy


def _shown(node, cotangent, number, root, values, n_inputs):
    """A result that is one of the inputs, or a view of one."""
    source = number if number < n_inputs else root
    tensor = cotangent if source == 0 else node.out.tensor if source == 1 else node.operands[source - 2].tensor
    if number < n_inputs:
        return tensor
    out = tensor_of(values[number])
    show(out, tensor, values[source])
    return out
