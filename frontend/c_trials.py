"""Calls of a function with several sizes, and what they have in common: how what it computes follows its extents.

A function is called with a few sizes. If its recordings differ in nothing but numbers that are polynomials of the
extents, in each of them of degree one, it is compiled for all of them, as calls of other sizes are
(runtime/programs/sizes.py). A function that does something else for a size that was not tried cannot be told from one
that does not.

    extents          n         n, m                         called with
    the examples     n         (n, m)
    larger           2n + 3    (2n+3, m), (n, 2m+3), both   from these and the examples the polynomials are found
    next to them     n + 1     (n+1, m), (n, m+1), both     these and the least must be as they say
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import prod

import numpy as np

from .c_calls import observed, packed_numbers, results_of
from .c_optimizers import Followed
from .compiler.dtypes import bool_
from .compiler.extent import LEAST, Scope, evaluate, filled
from .compiler.polynomial import polynomial_text
from .creation import arange, zeros_like
from .runtime.programs.opening import Formula
from .runtime.programs.sizes import Unlike, is_told_apart, merged, opened, parts_of


@dataclass(frozen=True, slots=True)
class Trial:
    """A call with extents, by name."""

    extents: dict
    result: object
    run: object
    tensors: list
    followed: Followed

    def text(self):
        return self.run.stretch.text(self.run.needed)


@dataclass(frozen=True, slots=True)
class Regime:
    """Which extents are open, and which are not: name -> a number, or the name of the open one that they are equal to.
    Sizes of 1 mean other things than larger ones, and so does whatever happens to be equal."""

    sample: dict  # name -> number in the examples, of all extents
    fixed: dict

    @property
    def open(self):
        return [name for name in self.sample if name not in self.fixed]

    def full(self, numbers):
        """All extents, from the open ones."""
        found = {**self.fixed, **numbers}
        while any(isinstance(x, str) for x in found.values()):
            found = {name: found[x] if isinstance(x, str) else x for name, x in found.items()}
        return {name: found[name] for name in self.sample}

    @property
    def guards(self):
        """That say when it holds."""
        return [(f"1*{name}+-1*{x}" if isinstance(x, str) else f"1*{name}+{-x}", "==", True)
                for name, x in self.fixed.items()]  # fmt: skip


class Trials:
    """Calls of a program in a Regime. Raises ValueError where they do not compute the same."""

    def __init__(self, program, name, regime):
        self.program, self.name, self.regime = program, name, regime
        base = {key: regime.sample[key] for key in regime.open}
        beyond = {key: 2 * n + 3 for key, n in base.items()}
        near = {key: n + 1 for key, n in base.items()}
        self.corners = [dict(zip(base, numbers)) for numbers in product(*zip(base.values(), beyond.values()))]
        self.all = [self.at(numbers) for numbers in self.corners]
        self.first = self.all[0]
        self.parts, self.text = self._common()
        further = [{**base, key: near[key]} for key in base] if len(base) > 1 else []
        self.all += [self.at(numbers) for numbers in [*further, near]] if base else []
        for trial in self.all[1:]:
            if self.text is None or not self._fits(trial):
                raise ValueError(
                    f"export: {name} does not compute the same for extents of {self._said(self.first)} and of "
                    f"{self._said(trial)}: what differs must be lengths a * n + b with whole a and b"
                )

    def _said(self, trial):
        numbers = [trial.extents[key] for key in self.regime.open]
        return str(numbers[0]) if len(self.regime.sample) == 1 else str(trial.extents)

    def _common(self):
        """(what the stretches of the corners are, with polynomials; their text), or (None, None)."""
        stretches = [trial.run.stretch for trial in self.all]
        try:
            if any(is_told_apart(*pair) for s in stretches[1:] for pair in zip(stretches[0].steps, s.steps)):
                return None, None
            parts = merged(
                [parts_of(s) for s in stretches], lambda *values: Formula(polynomial_text(self._terms(values)))
            )
            text = opened(self.first.run.stretch, parts, Scope(self.corners[0])).text(self.first.run.needed)
        except Unlike:
            return None, None
        return parts, text

    def _fits(self, trial):
        same = trial.followed.formulas == self.first.followed.formulas
        return same and filled(self.text, {key: trial.extents[key] for key in self.regime.open}) == trial.text()

    def least(self):
        """Of each open extent the smallest that is like the others, with the others as in the examples: what has a
        window of 5, say, needs 5. The calls are kept."""
        return {key: self._least(key) for key in self.regime.open}

    def _least(self, key):
        low, found = LEAST - 1, self.regime.sample[key]
        while found - low > 1:
            n = LEAST if low < LEAST else (low + found) // 2
            try:
                trial = self.at({**self.corners[0], key: n})
            except ValueError:
                trial = None
            if trial is not None and self._fits(trial):
                found = n
                self.all.append(trial)
            else:
                low = n
        return found

    def at(self, numbers):
        extents = self.regime.full(numbers)
        tensors = [_resized(t, axes, extents) for t, axes in zip(self.program.tensors, self.program.axes)]
        if any(n < self.regime.sample[name] for name, n in extents.items()):
            tensors = [_first_index(t) for t in tensors]
        try:
            result, run, _, found = observed(self.program, tensors, self.name)
        except Exception as error:
            said = next(iter(extents.values())) if len(extents) == 1 else extents
            raise ValueError(f"export: {self.name} fails with an extent of {said}: {error}") from error
        return Trial(extents, result, run, tensors, found)

    def opened(self, scope):
        """The stretch of all, with extents of this scope."""
        return opened(self.first.run.stretch, self.parts, scope)

    def results_of(self, trial):
        return results_of(trial.result, trial.run, self.program)

    def open_numbers(self):
        """(slot, type, polynomial) of the run-time numbers that follow the extents."""
        kinds = [np.float64 if code == -3 else np.int64 for _, code in self.first.run.program.numbers]
        values = zip(*[_numbers_of(trial, kinds) for trial in self.all])
        fitted = [(kind, self._fitted(own, "a Python number")) for kind, own in zip(kinds, values)]
        return tuple(
            (k, "f64" if kind is np.float64 else "i64", x) for k, (kind, x) in enumerate(fitted) if isinstance(x, str)
        )

    def shape_of(self, label):
        """Of a result: numbers, and polynomials."""
        shapes = [self.results_of(trial)[label].array.shape for trial in self.all]
        return [self._fitted(lengths, f"a length of {label}") for lengths in zip(*shapes)]

    def _fitted(self, values, what):
        """The value of all trials, or the polynomial it is."""
        if len(set(values)) == 1:
            return values[0]
        try:
            text = polynomial_text(self._terms(values[: len(self.corners)]))
        except (Unlike, ValueError, OverflowError):  # also of infinity and NaN
            text = None
        if text is None or any(evaluate(text, trial.extents) != v for trial, v in zip(self.all, values)):
            sizes = [self._said(trial) for trial in self.all]
            raise ValueError(
                f"export: {what} is {values} for extents of {', '.join(sizes)}; only a * n + b with whole a can be "
                "computed in C: instead of multiplying by 1 / n, divide by n or take .mean()"
            )
        return text

    def _terms(self, values):
        """names -> coefficient of the polynomial that has these values at the corners. Unlike if it has
        coefficients that are not whole."""
        names, (base, *_), (*_, beyond) = self.regime.open, self.corners, self.corners
        found = {}
        for chosen in _subsets(names):
            # The mixed difference over the chosen extents, times the product of (n - base) / (beyond - base).
            inside = [(c, Fraction(v)) for c, v in zip(self.corners, values) if all(
                c[key] == base[key] for key in names if key not in chosen
            )]  # fmt: skip
            difference = sum((-1) ** sum(c[key] == base[key] for key in chosen) * v for c, v in inside)
            slope = difference / prod(beyond[key] - base[key] for key in chosen)
            for part in _subsets(chosen):
                rest = prod(-base[key] for key in chosen if key not in part)
                found[part] = found.get(part, 0) + slope * rest
        if any(c.denominator != 1 for c in found.values()):
            raise Unlike
        return {key: int(c) for key, c in found.items() if c}


def _subsets(names):
    return [chosen for k in range(len(names) + 1) for chosen in combinations(names, k)]


def _resized(t, axes, extents):
    """The tensor with other lengths along these axes: its own over and over, so that indices stay valid."""
    found = t.detach().clone()
    for axis, name in axes:
        found = found.index_select(axis, arange(extents[name]) % found.shape[axis])
    return found.requires_grad_(t.requires_grad)


def _first_index(t):
    """Zeros in place of integers, which may be indices of what is shorter now."""
    return t if t.is_floating_point() or t.dtype is bool_ else zeros_like(t)


def _numbers_of(trial, kinds):
    words = np.frombuffer(packed_numbers(trial.run, trial.followed), np.int64)
    return [word.view(kind).item() for word, kind in zip(words, kinds)]
