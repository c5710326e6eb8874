"""Changes in place of tensors in the memory of a GPU, and what optimizers write."""

from ...compiler.gpu import NotForGpu
from ...compiler.graph import Graph
from ...compiler.ops.comparison import cast
from ...compiler.ops.view import clone
from ..eager.gate import adopt_history, check_fits, keep_old_value
from ..state.elsewhere import is_elsewhere
from ..state.modes import no_grad, state
from ..state.tensor import Tensor
from .arrays import outside_call
from .ops import apply, described, different_devices, inputs_of, key_of, no_kernel
from .programs import notes_for, program_for
from .trace import trace_for


def change(op, target, operands, attributes):
    """target's memory becomes op(*operands). Returns the target."""
    if state.frame is not None:
        with outside_call():
            return change(op, target, operands, attributes)
    gpu = target._meta.gpu
    new = apply(gpu, op, operands, attributes)
    check_fits(op.name, target, new)
    _check_writable(target)
    if new._node is not None:
        _require_alone(target)
        keep_old_value(new._node, target)
    target.tell_readers()
    _write(gpu, target, new)
    target.bump_version()
    adopt_history(target, new)
    return target


def _check_writable(target):
    if target._meta.is_shown_twice:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def _require_alone(target):
    """A change that has a derivative changes the history of all who share the memory, which is known for the CPU."""
    storage = target._storage
    others = [] if storage is None else [x for x in storage.living_sharers() if x is not target]
    if target._base is not None or others:
        raise NotImplementedError(
            f"in-place change of a tensor on {target._meta.device} that shares memory with a view, while gradients are "
            "recorded: change a copy (x = x.clone()), or do it under weft.no_grad()"
        )


def _write(gpu, target, value):
    """The elements of `value`, converted, into the memory of the target: it has memory of its own."""
    if not is_elsewhere(value):
        raise different_devices(gpu, "cpu", "copy_")
    trace = trace_for(gpu)
    if trace is not None and trace.change(target._meta, value._meta):
        return
    key = key_of(("written", target.dtype), state.default_dtype, (target, value), {})

    def make():
        graph = Graph("copy", state.default_dtype)
        given = inputs_of(graph, (target, value))
        graph.commits = [(given[0], _copied(given[1], target.dtype))]
        return graph, given, None

    program = program_for(gpu, key, make)
    if isinstance(program, NotForGpu):
        raise no_kernel(clone, program.reason)
    program.run(gpu, [target._meta, value._meta], ())


def _copied(value, dtype):
    return clone(value) if value.dtype is dtype else cast(value, dtype=dtype)


def update(gpu, rule, row, numbers, flags):
    """Compute rule(*row, *numbers, **flags) and write what it gives into the tensors of the row."""
    if state.frame is not None:
        with outside_call():
            return update(gpu, rule, row, numbers, flags)
    if any(not is_elsewhere(x) or x._meta.gpu is not gpu for x in row):
        raise different_devices(gpu, "cpu", "an optimizer's parameter, its gradient and its state")
    key = key_of((rule, "update", *map(described, row)), state.default_dtype, numbers, flags)
    trace, make = trace_for(gpu), lambda: _rule_graph(rule, row, numbers, flags)
    known = None if trace is None or key is None else notes_for(key, make)
    program = program_for(gpu, key, make) if known is None else known
    if isinstance(program, NotForGpu):
        _update_in_steps(rule, row, numbers, flags)
        return
    for x in row:
        x.tell_readers()
    if known is not None:
        if trace.update(rule, row, numbers, flags, tuple(known[1])):
            for k in known[1]:
                row[k].bump_version()
            return
        program = program_for(gpu, key, make)
    program.run(gpu, [*(x._meta for x in row), *(None for _ in numbers)], (*row, *numbers))
    for k in program.notes:
        row[k].bump_version()


def _rule_graph(rule, row, numbers, flags):
    graph = Graph(getattr(rule, "__name__", "update").strip("_"), state.default_dtype)
    given = inputs_of(graph, (*row, *numbers))
    new = rule(*given, **flags)
    for target, value, tensor in zip(given, new, row):
        if value is not None:
            check_fits(graph.name, tensor, value)
            graph.commits.append((target, _copied(value, target.dtype)))
    return graph, given, [k for k, value in enumerate(new) if value is not None]


def _update_in_steps(rule, row, numbers, flags):
    with no_grad():
        new = rule(*row, *numbers, **flags)
        for target, value in zip(row, new):
            if value is not None:
                check_fits(getattr(rule, "__name__", "update"), target, value)
        for target, value in zip(row, new):
            if isinstance(value, Tensor):
                target.tell_readers()
                _write(target._meta.gpu, target, value)
                target.bump_version()
