"""Calls of a function that is exported: the program of one, and what each of its arrays is to a caller in C."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import c_names
from .c_arguments import result_names
from .c_optimizers import NOTHING, followed, things_outside
from .compiled import compile
from .compiler.export_entry import Data, Field, FieldFollowed, Given, Own
from .runtime.programs.capture import capturing
from .runtime.programs.user_lines import user_line
from .runtime.state.exposure import is_exposed
from .runtime.state.modes import state
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
class Layout:
    """Which parameter is what: names of the state's fields and of results; how many arguments there are before them."""

    state: tuple
    results: tuple
    n_arguments: int

    def field(self, key):
        """Where the state's field of this name is."""
        return Field(self.n_arguments + len(self.results), self.state.index(key))

    def fields_followed(self, found):
        """What a Body says of the fields of a Followed."""
        return tuple(
            [FieldFollowed(key, self.field(key), found.steps.get(key), found.after.get(key)) for key in found.fields]
        )

    def arrays(self, inputs, results, own_bytes):
        """Given, Field, Data or Own for all arrays of a program. `results`: name -> Result; `own_bytes`: of outputs
        that nobody asks for."""
        fields = {key: self.field(key) for key in self.state}
        found = {results[label].output: Given(self.n_arguments + k) for k, label in enumerate(self.results)}
        outputs = [found.get(k, Own(n_bytes)) for k, n_bytes in enumerate(own_bytes)]
        return (*[fields.get(a, a) if isinstance(a, str) else a for a in inputs], *outputs)


class Result(NamedTuple):
    """Which output of a program it is, and the array that its caller gets, which may have another shape."""

    output: int
    array: object


class Looks:
    """Which of the arguments a call reads the values of, outside its program: as `x.item()` does, or NumPy. What is
    computed with them would be a number of the example's for good, and nothing that the program has would tell."""

    def __init__(self, tensors):
        self._tensors, self._lines = {id(t): t for t in tensors}, []

    def __enter__(self):
        self._before, state.looks_on = state.looks_on, self
        return self

    def __exit__(self, *exception):
        state.looks_on = self._before

    def __call__(self, tensor):
        if id(tensor) in self._tensors:
            self._lines.append(user_line())

    def ended(self, results):
        """A function of arrays is about to return these: of no concern here."""

    def check(self):
        """Raise ValueError if values were read, or may have been: memory that NumPy was shown."""
        was_shown = any(map(is_exposed, self._tensors.values()))
        if self._lines or was_shown:
            where = f" [{self._lines[0]}]" if self._lines else " as a NumPy array"
            raise ValueError(
                f"export: the function reads values of an argument{where}, which are other ones in each call from C; "
                "compute with the tensor; of an `if` on data, weft.where can be the replacement"
            )


def observed(program, tensors, name):
    """(result, the Run, its graph, its Followed) of a call that is recorded anew."""
    program.call.__name__ = name
    compiled = compile(program.call, fullgraph="export", dynamic=False)
    with capturing() as capture, Looks(tensors) as looks:
        result = compiled(*tensors)
    looks.check()
    if len(capture.runs) != 1:
        what = "nothing that depends on tensors" if not capture.runs else f"{len(capture.runs)} programs in turn"
        raise ValueError(f"export: a call of {name} must be one program, and this one computes {what}")
    (run,) = capture.runs
    return result, run, run.graph()[0], followed(run, program.optimizer_names, program.with_rates)


def inputs_of(run, tensors, names, of, taken=()):
    """(Parameters of the arguments, name -> array of what is changed, per input a Given, Data or a name of those, which
    is none of those `taken`)."""
    places, outside = run.program.places, _names_outside(of)
    given = {id(t._data): k for k, t in enumerate(tensors)}
    arrays, changed, state = [], set(), {}
    for k, array in enumerate(run.arrays):
        at = given.get(id(array))
        if at is not None:
            arrays.append(Given(at))
            changed |= {at} if places[k].is_written else set()
        elif places[k].is_written:
            key = c_names.distinct(outside.get(id(array), f"tensor{len(state)}"), {*state, *taken})
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


def results_of(result, run, program):
    """name -> Result."""
    leaves, spec = tree_flatten(result)
    labels = program.result_names or result_names(leaves, spec, program.argument_names)
    leaves = [x for x in leaves if x is not None]
    for x in leaves:
        if not isinstance(x, Tensor):
            raise ValueError(f"export: the function returns a {type(x).__name__}; results must be tensors")
    found = {label: Result(_output_of(x, run.outputs, label), x._data) for label, x in zip(labels, leaves)}
    first = {}
    for label, result in found.items():
        if result.output in first:
            raise ValueError(
                f"export: {first[result.output]} and {label} are the same memory, and in C each result has its own; "
                "return one of them, or a .clone()"
            )
        first[result.output] = label
    return found


def _output_of(x, outputs, label):
    """Which output of the program is this result."""
    array = x._data
    for k, output in enumerate(outputs):
        starts_there = array.ctypes.data == output.ctypes.data and array.size == output.size
        if array is output or (starts_there and array.flags.c_contiguous and array.dtype == output.dtype):
            return k
    raise ValueError(
        f"export: {label}, of shape {tuple(x.shape)}, is a tensor that was there before; return a new one, such as "
        ".clone() of it"
    )


def packed_numbers(run, found=NOTHING):
    """The run-time numbers as 64-bit words, 0 for those that `found` has formulas of."""
    kinds = [(position, np.float64 if code == -3 else np.int64) for position, code in run.program.numbers]
    numbers = dict.fromkeys(found.formulas, 0)
    return b"".join(kind(numbers.get(position, run.numbers[position])).tobytes() for position, kind in kinds)


def formulas_by_slot(run, found):
    """(which word it is, Formula) of those."""
    slots = enumerate(position for position, _ in run.program.numbers)
    return tuple([(slot, found.formulas[position]) for slot, position in slots if position in found.formulas])


def _names_outside(function):
    """id of array -> a name for it in C: of tensors, modules and optimizers that a function finds outside."""
    found = {}
    for name, thing in things_outside(function).items():
        for path, x in _tensors_of(name, thing):
            found.setdefault(id(x._data), c_names.spelled(path))
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
