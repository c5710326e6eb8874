"""Extents of C functions that their callers tell: which programs serve them.

A function is called with a few sizes. If its recordings differ in nothing but numbers that are affine functions of the
extent, it is compiled for all of them, as calls of other sizes are (runtime/programs/sizes.py). A program holds for the
extents that its guards allow; at their borders others are made, and what is said for one number alone is compiled for
that. A function that does something else for a size that was not tried cannot be told from one that does not.
"""

import re
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from .c_calls import inputs_of, observed, packed_numbers, results_of
from .compiler.decompose import decompose
from .compiler.export_entry import LARGEST_EXTENT, Body
from .compiler.extent import LEAST, Coincidence, Scope, agree, evaluate
from .compiler.pipeline import compile_graph
from .creation import arange
from .runtime.programs.sizes import family_of_extents, reason_of
from .runtime.record.build import forward_graph
from .runtime.state.tensor import Tensor

_MAX_PROGRAMS = 12


# --- what the caller asks for -----------------------------------------------------------------------------------------
def open_axes(dynamic_shapes, args):
    """(name of the extent or None, for each argument the axes whose length it is). `args`: name -> example."""
    if not dynamic_shapes:
        return None, [()] * len(args)
    named = _by_name(dynamic_shapes, args)
    axes = [_axes_of(name, named.get(name), x) for name, x in args.items()]
    found = {extent for own in axes for _, extent in own}
    if len(found) != 1:
        raise ValueError(
            f"export: dynamic_shapes names {sorted(found)}; one extent is known at run time, as many axes it is"
        )
    (extent,) = found
    if not extent.isidentifier() or not extent.isascii() or extent in args:
        raise ValueError(f"export: {extent!r} must be a name in C that no argument has")
    numbers = {x.shape[axis] for x, own in zip(args.values(), axes) for axis, _ in own}
    if len(numbers) != 1 or min(numbers) < LEAST:
        raise ValueError(
            f"export: the examples have {sorted(numbers)} as {extent!r}; it must be one number in all of them, and "
            f"{LEAST} or more"
        )
    return extent, [tuple(axis for axis, _ in own) for own in axes]


def _by_name(dynamic_shapes, args):
    if not isinstance(dynamic_shapes, dict):
        dynamic_shapes = dict(zip(args, dynamic_shapes))
    unknown = sorted(map(str, dynamic_shapes.keys() - args.keys()))
    if unknown:
        raise ValueError(f"export: dynamic_shapes names {unknown}; the arguments are {list(args)}")
    return dynamic_shapes


def _axes_of(name, wanted, x):
    """(axis, name of the extent) of the open axes of an argument."""
    items = wanted.items() if isinstance(wanted, dict) else enumerate(wanted or ())
    found = [(axis, extent) for axis, extent in items if extent is not None]
    for axis, extent in found:
        n_axes = x.ndim if isinstance(x, Tensor) else 0
        if not isinstance(axis, int) or not isinstance(extent, str) or not -n_axes <= axis < n_axes:
            raise ValueError(
                f"export: dynamic_shapes[{name!r}] has {axis!r}: {extent!r}; it must be an axis of a tensor of "
                f'{n_axes} dimensions and the name of its extent, such as {{0: "n"}}'
            )
    return [(axis % x.ndim, extent) for axis, extent in found]


class OpenArray(NamedTuple):
    """What an array of open shape is to those who describe it. Extents are texts, such as "2*n+1"."""

    shape: tuple
    dtype: object
    size: object = None


def with_shapes(parameters, trials, extent):
    """Parameters as they are for all extents."""
    axes = trials.program.axes
    return [_with_shape(p, axes[k] if k < len(axes) else (), trials, extent) for k, p in enumerate(parameters)]


def _with_shape(parameter, axes, trials, extent):
    if parameter.role == "state":
        return parameter
    if parameter.role == "result":
        shape = [_readable(d, extent) for d in trials.shape_of(parameter.name)]
    else:
        shape = [extent if k in axes else d for k, d in enumerate(parameter.array.shape)]
    return replace(parameter, array=OpenArray(tuple(shape), parameter.array.dtype))


def _readable(length, extent):
    """A length as it is written in C, and in Python."""
    if not isinstance(length, str):
        return length
    text = re.sub(r"\b1\*n", "n", length).replace("+-", "-").removesuffix("+0")
    return text.replace("n", extent)


# --- calls with other sizes -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Trial:
    """A call with extents n."""

    n: int
    result: object
    run: object
    tensors: list

    def text(self):
        return self.run.stretch.text(self.run.needed)


class Trials:
    """Calls of a program with the extents of the examples and with others. Raises ValueError where these compute
    something else."""

    def __init__(self, program, name):
        self.program, self.name = program, name
        n = next(t.shape[axes[0]] for t, axes in zip(program.tensors, program.axes) if axes)
        self.all = [self.at(n), self.at(2 * n + 3), self.at(n + 1)]
        self.first = self.all[0]
        self.family = self._family(*self.all[:2])
        for other in self.all[1:]:
            if self.family is None or not self._fits(other):
                raise ValueError(
                    f"export: {name} does not compute the same for extents of {self.first.n} and of {other.n}: what "
                    "differs must be lengths a * n + b with whole a and b"
                )
        least = self._least()
        self.least, self.all = least.n, [*self.all, least]
        self.sizes = [trial.n for trial in self.all]

    def _family(self, first, second):
        def described(stretch):
            return stretch.text(first.run.needed)

        return family_of_extents(first.run.stretch, second.run.stretch, described, (first.n, second.n))

    def _least(self):
        """The call with the smallest extent that is like the others: what has a window of 5, say, needs 5."""
        low, found = LEAST - 1, self.first
        while found.n - low > 1:
            n = LEAST if low < LEAST else (low + found.n) // 2
            try:
                trial = self.at(n)
            except ValueError:
                trial = None
            if trial is not None and self._fits(trial):
                found = trial
            else:
                low = n
        return found

    def _fits(self, trial):
        return self.family.number_of(trial.text()) == trial.n

    def at(self, n):
        tensors = [_resized(t, axes, n) for t, axes in zip(self.program.tensors, self.program.axes)]
        try:
            result, run, _ = observed(self.program, tensors, self.name)
        except Exception as error:
            raise ValueError(f"export: {self.name} fails with an extent of {n}: {error}") from error
        return Trial(n, result, run, tensors)

    def results_of(self, trial):
        return results_of(trial.result, trial.run, self.program.result_names)

    def open_numbers(self):
        """(slot, type, polynomial) of the run-time numbers that follow the extent."""
        kinds = [np.float64 if code == -3 else np.int64 for _, code in self.first.run.program.numbers]
        values = zip(*[_numbers_of(trial.run, kinds) for trial in self.all])
        fitted = [(kind, self._fitted(own, "a Python number")) for kind, own in zip(kinds, values)]
        return tuple(
            (k, "f64" if kind is np.float64 else "i64", x) for k, (kind, x) in enumerate(fitted) if "n" in str(x)
        )

    def shape_of(self, label):
        """Of a result: numbers, and polynomials."""
        shapes = [self.results_of(trial)[label].array.shape for trial in self.all]
        return [self._fitted(lengths, f"a length of {label}") for lengths in zip(*shapes)]

    def _fitted(self, values, what):
        """The value of all trials, or the polynomial it is."""
        if len(set(values)) == 1:
            return values[0]
        factor = (values[1] - values[0]) / (self.sizes[1] - self.sizes[0])
        constant = values[0] - factor * self.sizes[0]
        if not factor.is_integer() or any(factor * n + constant != v for n, v in zip(self.sizes, values)):
            raise ValueError(
                f"export: {what} is {values} for extents of {self.sizes}; only a * n + b with whole a can be computed "
                "in C: instead of multiplying by 1 / n, divide by n or take .mean()"
            )
        return f"{int(factor)}*n+{int(constant)}"


def _resized(t, axes, n):
    """The tensor with n elements along these axes: its own over and over, so that indices stay valid."""
    found = t.detach().clone()
    for axis in axes:
        found = found.index_select(axis, arange(n) % found.shape[axis])
    return found.requires_grad_(t.requires_grad)


def _numbers_of(run, kinds):
    words = np.frombuffer(packed_numbers(run), np.int64)
    return [word.view(kind).item() for word, kind in zip(words, kinds)]


# --- programs ---------------------------------------------------------------------------------------------------------
class Bodies:
    """The programs for all extents of a function, made from calls: `inputs` and `results` are those of one of them."""

    def __init__(self, trials, layout, inputs, results, machine, of):
        self.trials, self.layout, self.inputs, self.results = trials, layout, inputs, results
        self.machine, self.of = machine, of
        self.found = self._inputs_of(trials.first)
        if any(self._inputs_of(trial) != self.found for trial in trials.all):
            raise ValueError("export: a tensor that the function makes from numbers or arrays depends on the extent")
        self.numbers, self.open_numbers = packed_numbers(trials.first.run), trials.open_numbers()

    def made(self):
        """The Body of each program."""
        least, bodies = self.trials.least, []
        pending = [self.trials.first.n, least, *([1] if least == LEAST else [])]
        while pending and len(bodies) < _MAX_PROGRAMS:
            n = pending.pop(0)
            if any(agree(body.guards, n) for body in bodies):
                continue
            body = self._body(n) if n >= least else self._exact(n)
            if body is not None:
                bodies.append(body)
                pending += [n for n in _borders(body.guards) if n >= least]
        return tuple(bodies)

    def _body(self, n):
        """That for n, and for whatever its guards allow."""
        trial, scope = self.trials.first, Scope(n)
        try:
            stretch = self.trials.family.opened(trial.run.stretch, scope)
            graph, _, _ = forward_graph(stretch, trial.run.needed)
            if not _is_within(graph):
                return None
            compiled = compile_graph(graph, target=self.machine, for_itself=True)
            own_bytes = [prod(v.shape, start=v.dtype.size_bytes) for v in graph.outputs]
            arrays = self.layout.arrays(self.inputs, self.results, own_bytes)
            body = Body(compiled, arrays, self.numbers, self.open_numbers)
            assert body.scratch_bytes >= 0, body.scratch_bytes  # what this asks of n is a guard too
        except Coincidence:
            return self._exact(n)
        except Exception as error:  # whatever a pass does that only ints can do
            message = f"export: {self.trials.name} cannot have an extent of {n} known at run time: {reason_of(error)}"
            raise ValueError(message) from error
        at_least = (f"1*n+-{self.trials.least}", "<", False)
        guards = [at_least, *[(text, how, answer) for (text, how), answer in scope.guards.items()]]
        return replace(body, guards=tuple(guards))

    def _exact(self, n):
        """That for n alone; None if the function does something else then, or cannot be called so."""
        try:
            trial = self.trials.at(n)
            results = self.trials.results_of(trial)
        except ValueError:
            return None
        state, inputs = self._inputs_of(trial)
        if state != self.found[0] or list(results) != list(self.results):
            return None
        compiled = compile_graph(trial.run.graph()[0], target=self.machine, for_itself=True)
        arrays = self.layout.arrays(inputs, results, [a.nbytes for a in trial.run.outputs])
        return Body(compiled, arrays, packed_numbers(trial.run), (), ((f"1*n+-{n}", "==", True),))

    def _inputs_of(self, trial):
        """(names and shapes of the state, inputs)."""
        _, state, inputs = inputs_of(trial.run, trial.tensors, self.trials.program.argument_names, self.of)
        return [(name, a.shape) for name, a in state.items()], inputs


def _is_within(graph):
    """Whether slices of what has a length of its own lie in it. What they ask of the extent is a guard."""
    sliced = [v for v in decompose(graph)[0].values if "spec" in (v.attributes or ())]
    for value in sliced:
        for (start, step, length), d in zip(value.attributes["spec"], value.operands[0].shape):
            last = start + (length - 1) * step
            if not (start >= 0 and last >= 0 and start < d and last < d):
                return False
    return True


def _borders(guards):
    """Extents on both sides of where guards change their answers, between powers of two."""
    found = []
    for text, _, _ in guards:
        sign = lambda n, text=text: (lambda x: (x > 0) - (x < 0))(evaluate(text, n))  # noqa: E731
        low = LEAST
        while low < LARGEST_EXTENT:
            high = min(2 * low, LARGEST_EXTENT)
            if sign(low) != sign(high):
                found += _border(sign, low, high)
            low = high
    return found


def _border(sign, low, high):
    before = sign(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sign(middle) == before else (low, middle)
    return [low, high, high + 1]
