"""A compiled function as pictures: its program's graph, stage by stage, with the names its tensors have outside."""

import inspect

from ..compiler.dtypes import DType
from ..compiler.graph import parse
from ..runtime.programs.recording import BACKWARD, INPUT, UPDATE
from .graphs import draw_graph, stages


def draw_function(function, tensors=None, *, results=("result",), width_px=1080):
    """{stage: SVG} of the program that a compiled function has run most; colours are its kernels.

    The stages are "forward", "backward" (whether it runs inside the call or after it) and "update", as far as there are
    any. tensors: name -> tensor, for the boxes. results: names for the tensors that the function returns.
    """
    recording, program = busiest_program(function)
    names = value_names(function, tensors, results)
    graph = parse(program.meta["graph"])
    if "backward_graph" in program.meta:
        drawn = {"forward": _draw(recording, program, "forward", names, None, width_px)}
        # It is compiled when backward() is called first.
        later = [p for p in recording.programs if p.meta["graph"] == program.meta["backward_graph"]]
        if later:
            names = _backward_names(later[0], _input_names(function, recording, tensors))
            drawn["backward"] = _draw(recording, later[0], "backward", names, None, width_px)
        return drawn
    return {
        stage: _draw(recording, program, stage, names, values, width_px)
        for stage, values in stages(graph, len(results)).items()
    }


def _draw(recording, program, stage, names, values, width_px):
    plan = program.meta["plan"]
    return draw_graph(
        program.meta["graph"],
        groups=plan["groups"],
        kernels=[f"{'product' if k['kind'] == 'bmm' else k['kind']} {k['domain']}" for k in plan["kernels"]],
        names=names,
        values=values,
        title=f"{recording.name}: {stage}",
        width_px=width_px,
    )


def busiest_program(function):
    """(recording, program) of a compiled function: the program that has run most often, backwards after it aside."""
    found = [(r, p) for r in getattr(function, "recordings", ()) for p in r.programs if "sources" not in p.meta]
    if not found:
        raise ValueError(f"{function!r}: no programs to draw; decorate with weft.compile and call it first")
    return max(found, key=lambda pair: pair[1].calls)


# --- names -----------------------------------------------------------------------------------------------------------
def value_names(function, tensors=None, results=("result",)):
    """Number of a value of the busiest program's graph -> the name of a result, of an argument, of one of the tensors,
    of a gradient, or of an optimizer's number."""
    recording, program = busiest_program(function)
    graph = parse(program.meta["graph"])
    inputs = _input_names(function, recording, tensors)
    names = {v.number: name for v, name in zip(graph.outputs, results)}
    names |= {v.number: inputs[vid] for v, vid in zip(graph.inputs(), program.inputs) if vid in inputs}
    numbers = _number_names(recording)
    names |= {v.number: numbers[k] for v, (k, _) in zip(graph.scalars(), program.numbers) if k in numbers}
    if "backward_graph" in program.meta:
        return names | {v.number: f"saved {k}" for k, v in enumerate(graph.outputs[program.meta["n_live"] :])}
    return names | _gradient_names(recording, program, graph, inputs)


def _input_names(function, recording, tensors):
    """Number of an input of the recording -> its name among the tensors, or as an argument of the function."""
    # A call numbers the tensors among its arguments first.
    names = {}
    described = recording.signature[0]
    if all(_is_tensor(part) or part is None for part in described):
        parameters = inspect.signature(function).parameters
        given = [(name, part[0]) for name, part in zip(parameters, described) if part is not None]
        shapes = {step.first: step.metas[0].shape for step in _steps(recording) if step.op is INPUT}
        names = {vid: name for vid, (name, shape) in enumerate(given) if shapes.get(vid) == shape}
    named = {id(t): name for name, t in (tensors or {}).items()}
    entered = {vid: id(met.tensor()) for vid, met in recording.last_entered.items()}
    return names | {vid: named[tensor] for vid, tensor in entered.items() if tensor in named}


def _is_tensor(part):
    """Whether a part of a signature describes a tensor: (shape, dtype, requires_grad)."""
    return isinstance(part, tuple) and len(part) == 3 and isinstance(part[1], DType)


def _gradient_names(recording, program, graph, inputs):
    """Names for the results that a backward of the call has made."""
    for step in _steps(recording):
        for (_, needed), found in step.known.forward.items():
            if found is program:
                leaves = {
                    made.first + k: leaf
                    for made in step.path()
                    if made.op is BACKWARD
                    for k, leaf in enumerate(made.detail.wanted)
                }
                live = zip(graph.outputs, needed.live)
                return {v.number: f"{inputs[leaves[vid]]}.grad" for v, vid in live if leaves.get(vid) in inputs}
    return {}


def _backward_names(program, inputs):
    """Names for the graph of a backward that runs after its call."""
    graph = parse(program.meta["graph"])
    names = {}
    for value, (kind, k) in zip(graph.inputs(), program.meta["sources"]):
        name = {"saved": f"saved {k}", "cotangent": "gradient in"}.get(kind, inputs.get(k))
        if name is not None:
            names[value.number] = name
    reached = zip(graph.outputs, program.meta["reached"])
    return names | {v.number: f"{inputs[vid]}.grad" for v, vid in reached if vid in inputs}


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
