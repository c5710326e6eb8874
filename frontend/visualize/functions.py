"""A compiled function as pictures: its program's graph, stage by stage, with the names its tensors have outside."""

import inspect

from ..compiler.dtypes import DType
from ..compiler.graph import parse
from ..runtime.recording import INPUT, UPDATE
from .graphs import draw_graph, stages


def draw_function(function, tensors=None, *, results=("result",), width_px=1080):
    """{stage: SVG} of the program that a compiled function has run most; colours are its kernels.

    tensors: name -> tensor, for the boxes. results: names for the tensors that the function returns.
    """
    recording, program = busiest_program(function)
    plan = program.meta["plan"]
    graph = parse(program.meta["graph"])
    names = {v.number: name for v, name in zip(graph.outputs, results)} | value_names(function, tensors)
    kernels = [f"{'product' if k['kind'] == 'bmm' else k['kind']} {k['domain']}" for k in plan["kernels"]]
    drawn = {}
    for stage, values in stages(graph, len(results)).items():
        drawn[stage] = draw_graph(
            graph,
            groups=plan["groups"],
            kernels=kernels,
            names=names,
            values=values,
            title=f"{recording.name}: {stage}",
            width_px=width_px,
        )
    return drawn


def busiest_program(function):
    """(recording, program) of a compiled function: the program that has run most often."""
    found = [(r, p) for r in getattr(function, "recordings", ()) for p in r.programs]
    if not found:
        raise ValueError(f"{function!r}: no programs to draw; decorate with weft.compile and call it first")
    return max(found, key=lambda pair: pair[1].calls)


def value_names(function, tensors=None):
    """Number of a value of the busiest program's graph -> the name of an argument, of one of the tensors, of a
    gradient, or of an optimizer's number."""
    recording, program = busiest_program(function)
    graph = parse(program.meta["graph"])
    names_of_tensors = {id(t): name for name, t in (tensors or {}).items()}
    steps = {step.first: step for step in _steps(recording) if step.op is INPUT}
    arguments = _argument_names(function, recording)
    names, trained = {}, []
    for value, vid in zip(graph.inputs(), program.inputs):
        if vid not in steps:
            continue
        step = steps[vid]
        entered, _ = recording.last_entered.get(vid, (None, None))
        name = names_of_tensors.get(entered, arguments.get((vid, value.shape)))
        if name is not None:
            names[value.number] = name
        if step.metas[0].requires_grad:
            trained.append((name, value.shape))
    numbers = _number_names(recording)
    names |= {v.number: numbers[k] for v, (k, _) in zip(graph.scalars(), program.numbers) if k in numbers}
    return names | _gradient_names(graph, trained)


def _argument_names(function, recording):
    """(number, shape) of an input -> its name as an argument. A call numbers the tensors among its arguments first."""
    parameters = list(inspect.signature(function).parameters)
    described = recording.signature[0]
    if not all(_is_tensor(part) or part is None for part in described):
        return {}
    shapes = [(name, part[0]) for name, part in zip(parameters, described) if part is not None]
    return {(vid, shape): name for vid, (name, shape) in enumerate(shapes)}


def _is_tensor(part):
    """Whether a part of a signature describes a tensor: (shape, dtype, requires_grad)."""
    return isinstance(part, tuple) and len(part) == 3 and isinstance(part[1], DType)


def _gradient_names(graph, trained):
    """The last results of a training step are the gradients, in the order in which the parameters were met."""
    tail = graph.outputs[len(graph.outputs) - len(trained) :]
    if [v.shape for v in tail] != [shape for _, shape in trained]:
        return {}
    return {v.number: f"{name}.grad" for v, (name, _) in zip(tail, trained) if name is not None}


def _number_names(recording):
    """Position of a run-time number -> its name in the optimizer's rule."""
    names = {}
    for step in _steps(recording):
        if step.op is UPDATE:
            rule, row, count = step.attributes[0], step.detail.row_length, step.detail.n_numbers
            found = rule.__code__.co_varnames[row : row + count]
            names |= {step.first_number + k: name for k, name in enumerate(found)}
    return names


def _steps(recording):
    """Every step of the recording, on all paths."""
    stack = list(recording.root.following)
    while stack:
        step = stack.pop()
        yield step
        stack.extend(step.following)
