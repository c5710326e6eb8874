"""C functions for a function of tensors: what its calls compute, and what each array of that is to a caller.

Every function is called three times: what is made in the first call, such as the state of an optimizer, is there in the
others, and those two must compute the same.
"""

import inspect
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import autograd
from .compiled import compile
from .compiler.export import Data, Entry, Field, Given, Own, export_text
from .compiler.pipeline import compile_graph
from .creation import tensor, zeros_like
from .runtime.code import jit
from .runtime.programs.capture import capturing
from .runtime.state.tensor import Tensor
from .utils._pytree import tree_flatten


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of a C function. `role`: "argument", "changed argument", "result" or "state" (a struct with these `fields`)."""

    name: str
    role: str
    array: object = None
    fields: tuple = ()


@dataclass(frozen=True, slots=True)
class Function:
    """A C function: its Entry, and its Parameters but for the scratch memory."""

    entry: Entry
    parameters: tuple


def functions_of(name, function, example_args, gradients, hvp, target):
    """(the Functions, name -> array of what they change), as export and aot are asked for them."""
    machine = jit.export_target(target)
    functions = [
        _function(f"{name}{ending}", program, args, names, machine, function)
        for ending, program, args, names in _programs(function, example_args, gradients, hvp)
    ]
    return functions, {f"{name}_initial_{f}": a for x in functions for p in x.parameters for f, a in p.fields}


def object_of(functions, state, target):
    """Object code with all of them."""
    initial = {key: a.tobytes() for key, a in state.items()}
    return jit.compile_for(export_text([f.entry for f in functions], initial, jit.export_target(target)), target)


# --- the programs -----------------------------------------------------------------------------------------------------
def _programs(function, example_args, gradients, hvp):
    """(ending of the name, function of the tensors, tensors, names of arguments and results) of each."""
    if not isinstance(example_args, (tuple, list)):
        raise ValueError(f"export: example_args must be a tuple, got {type(example_args).__name__}")
    args = [_example(x) for x in example_args]
    places = [k for k, x in enumerate(args) if isinstance(x, Tensor)]
    names = _argument_names(function, len(args))
    tensors = [args[k] for k in places]

    def call(*given):
        full = list(args)
        for k, x in zip(places, given):
            full[k] = x
        return function(*full)

    yield "", _detached(call), tensors, ([names[k] for k in places], None)
    floating = [k for k, x in enumerate(tensors) if x.is_floating_point()]
    if (gradients or hvp) and not floating:
        raise ValueError("export: gradients were asked for, but no argument is a tensor of floats")
    own = [names[places[k]] for k in floating]
    leaves = [x.detach().clone().requires_grad_(k in floating) for k, x in enumerate(tensors)]
    all_names = [names[k] for k in places]
    if gradients:

        def value_and_grad(*given):
            value = _one_number(call(*given))
            return value.detach(), *_gradients(value, [given[k] for k in floating])

        yield "_value_and_grad", value_and_grad, leaves, (all_names, ["value", *[f"grad_{n}" for n in own]])
    if hvp:
        vectors = [tensors[k].detach().clone() for k in floating]

        def products(*given):
            xs = [given[k] for k in floating]
            gradients = _gradients(_one_number(call(*given[: len(leaves)])), xs, create_graph=True)
            total = sum((g * v).sum() for g, v in zip(gradients, given[len(leaves) :]))
            return tuple(_gradients(total, xs)) if total.requires_grad else tuple([zeros_like(x) for x in xs])

        arguments = [*all_names, *[f"vector_{n}" for n in own]]
        yield "_hvp", products, [*leaves, *vectors], (arguments, [f"product_{n}" for n in own])


def _example(x):
    if isinstance(x, np.ndarray):
        return tensor(x)
    return x.detach().clone().contiguous() if isinstance(x, Tensor) else x


def _argument_names(function, count):
    try:
        names = [p.name for p in inspect.signature(function).parameters.values() if p.kind < p.VAR_POSITIONAL]
    except (TypeError, ValueError):
        names = []
    return [*names, *[f"a{k}" for k in range(len(names), count)]][:count]


def _detached(call):
    def detached(*given):
        leaves, shape = tree_flatten(call(*given))
        return shape.unflatten([x.detach() if isinstance(x, Tensor) else x for x in leaves])

    return detached


def _one_number(value):
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        what = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"export: gradients are those of one floating number, but the function returns {what}")
    return value.reshape(())


def _gradients(value, xs, create_graph=False):
    if not value.requires_grad:
        return [zeros_like(x) for x in xs]
    return autograd.grad(value, xs, create_graph=create_graph, materialize_grads=True)


# --- from a call to an entry ------------------------------------------------------------------------------------------
def _function(name, program, tensors, names, machine, of):
    """The Function of a program of tensors."""
    _observed(program, tensors, name)  # makes what is made in the first call: the state of an optimizer
    result, run, graph = _observed(program, tensors, name)
    _, again, graph_again = _observed(program, tensors, name)
    numbers = _packed_numbers(run)
    if str(graph) != str(graph_again) or numbers != _packed_numbers(again):
        raise ValueError(
            "export: what the function computes is not the same in every call: random draws, or a number that changes "
            "from call to call, as in the correction of Adam's first steps, cannot be exported"
        )
    # The state that is exported is what the last call has left.
    arguments, state, arrays = _inputs(again, tensors, names[0], of)
    results = {}
    for label, x in _labelled(result, names[1]):
        at = _output_of(x, run.outputs, label)
        results[at] = Given(len(arguments))
        arguments.append(Parameter(label, "result", run.outputs[at]))
    outputs = [results.get(k, Own(a.nbytes)) for k, a in enumerate(run.outputs)]
    if state:
        fields = {key: Field(len(arguments), k) for k, key in enumerate(state)}
        arrays = [fields.get(a, a) if isinstance(a, str) else a for a in arrays]
        arguments.append(Parameter("state", "state", fields=tuple(state.items())))
    compiled = compile_graph(graph, target=machine, for_itself=True)
    kinds = [(p.role, p.array is not None and (p.array.dtype.name, p.array.ndim)) for p in arguments]
    of_numbers = kinds == [("argument", ("float64", 1)), ("result", ("float64", 0))]
    entry = Entry(name, compiled, (*arrays, *outputs), numbers, len(arguments), of_numbers)
    return Function(entry, tuple(arguments))


def _observed(program, tensors, name):
    """(result, the Run, its graph) of a call that is recorded anew."""
    program.__name__ = name
    compiled = compile(program, fullgraph=True, dynamic=False)
    with capturing() as capture:
        result = compiled(*tensors)
    if len(capture.runs) != 1:
        what = "nothing that depends on tensors" if not capture.runs else f"{len(capture.runs)} programs in turn"
        raise ValueError(f"export: a call of {name} must be one program, and this one computes {what}")
    (run,) = capture.runs
    return result, run, run.graph()[0]


def _inputs(run, tensors, names, of):
    """(Parameters of the arguments, name -> array of what is changed, per input a Given, Data or a name of those)."""
    places, outside = run.program.places, _names_outside(of)
    given = {id(t._data): k for k, t in enumerate(tensors)}
    arrays, changed, state = [], set(), {}
    for k, array in enumerate(run.arrays):
        at = given.get(id(array))
        if at is not None:
            arrays.append(Given(at))
            changed |= {at} if places[k].is_written else set()
        elif places[k].is_written:
            key = outside.get(id(array), f"tensor{len(state)}")
            state[key] = array
            arrays.append(key)
        else:
            arrays.append(Data(_memory_of(array)))
    roles = ["changed argument" if k in changed else "argument" for k in range(len(tensors))]
    return [Parameter(*x) for x in zip(names, roles, [t._data for t in tensors])], state, arrays


def _memory_of(array):
    """From its first element to its last, whatever lies between them."""
    if array.size == 0:
        return b""
    if min(array.strides, default=0) < 0:
        raise ValueError(f"export: a tensor of shape {array.shape} lies backwards in memory; make it .contiguous()")
    reach = 1 + sum((d - 1) * s for d, s in zip(array.shape, array.strides)) // array.itemsize
    return as_strided(array, (reach,), (array.itemsize,)).tobytes()


def _labelled(result, labels):
    """(name, tensor) of the results."""
    leaves = [x for x in tree_flatten(result)[0] if x is not None]
    for x in leaves:
        if not isinstance(x, Tensor):
            raise ValueError(f"export: the function returns a {type(x).__name__}; results must be tensors")
    if labels is None:
        labels = ["result"] if len(leaves) == 1 else [f"result{k}" for k in range(len(leaves))]
    return list(zip(labels, leaves))


def _output_of(x, outputs, label):
    """Which output of the program is this result."""
    array = x._data
    for k, output in enumerate(outputs):
        starts_there = array.ctypes.data == output.ctypes.data and array.size == output.size
        if array is output or (starts_there and array.flags.c_contiguous and array.dtype == output.dtype):
            return k
    raise ValueError(
        f"export: {label}, of shape {tuple(x.shape)}, is a view, an argument or a tensor that was there before; return "
        "a new one, such as .clone() of it"
    )


def _packed_numbers(run):
    kinds = [(position, np.float64 if code == -3 else np.int64) for position, code in run.program.numbers]
    return b"".join(kind(run.numbers[position]).tobytes() for position, kind in kinds)


def _names_outside(function):
    """id of array -> a name for it in C: of tensors, modules and optimizers that a function finds outside."""
    found = {}
    try:
        outside = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:
        return found
    for name, thing in [*outside.nonlocals.items(), *outside.globals.items()]:
        for path, x in _tensors_of(name, thing):
            found.setdefault(id(x._data), "".join(c if c.isalnum() and c.isascii() else "_" for c in path))
    return found


def _tensors_of(name, thing):
    if isinstance(thing, Tensor):
        yield name, thing
    elif hasattr(thing, "named_parameters"):
        for members in (thing.named_parameters(), thing.named_buffers()):
            yield from ((f"{name}_{key}", x) for key, x in members)
    elif hasattr(thing, "param_groups"):
        for k, state in enumerate(thing.state.values()):
            yield from ((f"{name}_{k}_{key}", x) for key, x in state.items() if isinstance(x, Tensor))
