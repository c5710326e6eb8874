"""C functions for a function of tensors, its gradients and its products with the Hessian.

Every function is called three times: what is made in the first call, such as the state of an optimizer, is there in the
others, and those two must compute the same.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from . import autograd, c_extents, c_names
from .c_arguments import taken_apart
from .c_bodies import Bodies
from .c_calls import Layout, Parameter, formulas_by_slot, inputs_of, observed, packed_numbers, results_of
from .c_optimizers import Followed, optimizer_names
from .c_trials import Regime, Trials
from .compiler.export import export_text
from .compiler.export_entry import Body, Entry
from .compiler.export_team import TeamEntry
from .compiler.pipeline import compile_graph
from .creation import zeros_like
from .placement import contiguous_format
from .runtime.code import jit
from .runtime.state.tensor import Tensor
from .utils._pytree import tree_flatten


@dataclass(frozen=True, slots=True)
class Function:
    """A C function: its Entry, its Parameters but for extents and the scratch memory, and the TeamEntry that threads
    call together, if there is one."""

    entry: Entry
    parameters: tuple
    team: TeamEntry | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What becomes a C function: `call` of `tensors`; `axes`: of each of them, the (axis, extent) that are open;
    `with_rates`: learning rates are fields of its state, by the names of the optimizers."""

    ending: str
    call: object
    tensors: list
    axes: list
    argument_names: list
    result_names: list | None
    optimizer_names: dict
    with_rates: bool


def functions_of(
    name, function, example_args, gradients, hvp, target, dynamic_shapes=None, threads=False, with_rates=False
):
    """(the Functions, name -> array of what they change), as export and aot are asked for them."""
    machine = jit.export_target(target)
    programs = programs_of(function, example_args, gradients, hvp, dynamic_shapes, with_rates)
    made = [_function(f"{name}{p.ending}", p, machine, function, extents, threads) for p, extents in programs]
    functions = [f for f, _ in made]
    for _, found in made:
        found.read_again()
    state = {f"{name}_initial_{f}": a for x in functions for p in x.parameters for f, a in p.fields}
    if with_rates and not any(key.endswith("_lr") and a.ndim == 0 for key, a in state.items()):
        raise ValueError("export: learning_rates=True, but no optimizer makes a step in the function")
    return functions, state


def object_of(functions, state, target):
    """Object code with all of them."""
    initial = {key: a.tobytes() for key, a in state.items()}
    entries = [entry for f in functions for entry in (f.entry, f.team) if entry is not None]
    return jit.compile_for(export_text(entries, initial, jit.export_target(target)), target)


# --- the programs -----------------------------------------------------------------------------------------------------
def programs_of(function, example_args, gradients, hvp, dynamic_shapes=None, with_rates=False):
    """(Program, name of each extent -> its number in the examples) of each."""
    all_names, args, put_together = taken_apart(function, example_args)
    places = [k for k, x in enumerate(args) if isinstance(x, Tensor)]
    c_arguments = c_names.arguments(all_names)
    tensors, names = [args[k] for k in places], [c_arguments[k] for k in places]
    extents, axes = c_extents.open_axes(dynamic_shapes, dict(zip(all_names, args)))
    axes = [axes[k] for k in places]
    rates = optimizer_names(function), with_rates

    def call(*given):
        full = list(args)
        for k, x in zip(places, given):
            full[k] = x
        return function(*put_together(full))

    yield Program("", _with_own_results(call), tensors, axes, names, None, *rates), extents
    floating = [k for k, x in enumerate(tensors) if x.is_floating_point()]
    if (gradients or hvp) and not floating:
        raise ValueError("export: gradients were asked for, but no argument is a tensor of floats")
    own = [names[k] for k in floating]
    leaves = [x.detach().clone().requires_grad_(k in floating) for k, x in enumerate(tensors)]
    if gradients:

        def value_and_grad(*given):
            value = _one_number(call(*given))
            return value, *_gradients(value, [given[k] for k in floating])

        results = ["value", *[f"grad_{n}" for n in own]]
        call_it = _with_own_results(value_and_grad)
        yield Program("_value_and_grad", call_it, leaves, axes, names, results, *rates), extents
    if hvp:
        vectors = [tensors[k].detach().clone() for k in floating]

        def products(*given):
            xs = [given[k] for k in floating]
            gradients = _gradients(_one_number(call(*given[: len(leaves)])), xs, create_graph=True)
            total = sum((g * v).sum() for g, v in zip(gradients, given[len(leaves) :]))
            return tuple(_gradients(total, xs)) if total.requires_grad else tuple([zeros_like(x) for x in xs])

        arguments, results = [*names, *[f"vector_{n}" for n in own]], [f"product_{n}" for n in own]
        every_axes = [*axes, *[axes[k] for k in floating]]
        call_it = _with_own_results(products)
        yield Program("_hvp", call_it, [*leaves, *vectors], every_axes, arguments, results, *rates), extents


def _with_own_results(call):
    """The same, with results that have memory of their own, without gaps: in C each is written where the caller says.
    What is a view, an argument, a parameter or the same as another is copied."""

    def called(*given):
        leaves, shape = tree_flatten(call(*given))
        found, seen = [], set(map(id, given))
        for x in leaves:
            found.append(_own(x, id(x) in seen) if isinstance(x, Tensor) else x)
            seen.add(id(x))
        return shape.unflatten(found)

    return called


def _own(x, is_known):
    if is_known or x._is_view() or not x.is_contiguous() or (x.is_leaf and x.requires_grad):
        return x.detach().clone(memory_format=contiguous_format)
    return x.detach()


def _one_number(value):
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        is_tensor = isinstance(value, Tensor)
        what = f"{value.dtype.name} of shape {tuple(value.shape)}" if is_tensor else type(value).__name__
        raise ValueError(f"export: gradients are those of one floating number, but the function returns {what}")
    return value.reshape(())


def _gradients(value, xs, create_graph=False):
    if not value.requires_grad:
        return [zeros_like(x) for x in xs]
    return autograd.grad(value, xs, create_graph=create_graph, materialize_grads=True)


# --- from a call to an entry ------------------------------------------------------------------------------------------
class Known(NamedTuple):
    """What calls have shown of a program: the last Run, its graph, all Parameters, name -> array of the state, and per
    input and output of the graph a Given, Field, Data or Own; `layout`: which Parameter is what; `followed`: which
    numbers follow from fields of the state."""

    run: object
    graph: object
    parameters: list
    state: dict
    arrays: tuple
    layout: Layout
    followed: Followed


def known(name, program, of, between=lambda: None):
    """The Known of a program of tensors, a function `of` the user's. `between`: called after the first call."""
    observed(program, program.tensors, name)  # makes what is made in the first call: the state of an optimizer
    between()
    _, run, graph, before = observed(program, program.tensors, name)
    result, again, graph_again, found = observed(program, program.tensors, name)
    arguments, state, arrays = inputs_of(again, program.tensors, program.argument_names, of, found.fields)
    same_data = arrays == inputs_of(run, program.tensors, program.argument_names, of, found.fields)[2]
    if str(graph) != str(graph_again) or not same_data:
        raise ValueError(
            "export: what the function computes is not the same in every call: random draws, or other operations from "
            f"call to call{_where(graph, graph_again, again)}, cannot be exported"
        )
    _check_numbers(run, again, before, found)
    # The state that is exported is what the last call has left.
    state |= found.fields
    results = results_of(result, again, program)
    layout = Layout(tuple(state), tuple(results), len(arguments))
    arguments += [Parameter(label, "result", found.array) for label, found in results.items()]
    if state:
        arguments.append(Parameter("state", "state", fields=tuple(state.items())))
    arrays = layout.arrays(arrays, results, [a.nbytes for a in again.outputs])
    return Known(again, graph, arguments, state, arrays, layout, found)


def _where(graph, graph_again, again):
    """ " [line]" of the first op that was another one before, if there is one."""
    pairs = zip(str(graph).splitlines()[1:], str(graph_again).splitlines()[1:], graph_again.values)
    line = next((again.line_of(value.number) for before, now, value in pairs if before != now), None)
    return f" [{line}]" if line else ""


def _check_numbers(run, again, before, found):
    """Raise ValueError for a number that is another one in each call, and no formula of the state."""
    pairs = zip(run.program.numbers, _words(run, before), _words(again, found))
    changed = [position for (position, _), x, y in pairs if x != y]
    if changed:
        raise ValueError(
            "export: what the function computes is not the same in every call: random draws, or a number that changes "
            f"from call to call [{again.line_of_number(changed[0])}], cannot be exported. weft's optimizers count "
            "their steps in C, and learning_rates=True makes rates fields of the state"
        )
    if not found.is_like(before):
        raise ValueError(
            "export: what the function computes is not the same in every call: a learning rate or a count of steps is "
            "changed by the function itself; change it between the calls"
        )


def _words(run, found):
    packed = packed_numbers(run, found)
    return [packed[k : k + 8] for k in range(0, len(packed), 8)]


def _function(name, program, machine, of, extents, threads):
    """(the Function of a program of tensors, its Followed)."""
    trials = None

    def try_other_extents():
        nonlocal trials
        trials = Trials(program, name, Regime(extents, {})) if extents else None

    run, graph, arguments, state, arrays, layout, found = known(name, program, of, try_other_extents)
    own_state = [(key, a.shape) for key, a in state.items() if key not in found.fields]

    def bodies_of(compiled):
        if extents:
            return Bodies(trials, layout, own_state, compiled, of).made()
        numbers, formulas = packed_numbers(run, found), formulas_by_slot(run, found)
        return (Body(compiled(graph), arrays, numbers, (), (), formulas, layout.fields_followed(found)),)

    bodies = bodies_of(partial(compile_graph, target=machine, for_itself=True))
    shared = bodies_of(partial(compile_graph, target=machine, for_team=True)) if threads else None
    if extents:
        arguments = c_extents.with_shapes(arguments, program.axes, trials.shape_of)
    entry = Entry(name, bodies, len(arguments), None if extents else _n_numbers(arguments), tuple(extents))
    team = TeamEntry(name, shared, len(arguments), tuple(extents)) if threads else None
    return Function(entry, tuple(arguments), team), found


def _n_numbers(parameters):
    """Of how many numbers in one array a number becomes, as integration wants it; None if it does not."""
    kinds = [(p.role, p.array is not None and (p.array.dtype.name, p.array.ndim)) for p in parameters]
    is_one = kinds == [("argument", ("float64", 1)), ("result", ("float64", 0))]
    return parameters[0].array.shape[0] if is_one else None
