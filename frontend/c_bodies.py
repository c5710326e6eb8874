"""The programs that serve all extents of a C function.

A program holds for the extents that its guards allow. At their borders others are made; where an extent is 1, or is
said to be equal to a number or to another extent, the function is called anew, with that as it is (a Regime). What no
program holds for is not served, and the C function says so.
"""

from dataclasses import replace
from math import prod

from .c_calls import formulas_by_slot, inputs_of, packed_numbers
from .c_trials import Regime, Trials
from .compiler.decompose import decompose
from .compiler.export_entry import LARGEST_EXTENT, Body
from .compiler.extent import LEAST, Coincidence, Scope, agree, evaluate
from .runtime.programs.sizes import reason_of
from .runtime.record.build import forward_graph

_MAX_PROGRAMS = 12  # of one Regime


class Bodies:
    """Those of a function, which `trials` has called: `layout`, `state` and `shapes` (of results, with polynomials) are
    those of its parameters; `compiled(graph)` makes a program."""

    def __init__(self, trials, layout, state, compiled, of):
        self.trials, self.layout, self.state, self.compiled, self.of = trials, layout, state, compiled, of
        self.program, self.name, self.sample = trials.program, trials.name, trials.regime.sample
        self.least = trials.least()
        self.shapes = {label: trials.shape_of(label) for label in layout.results}
        self.bodies, self.regimes = [], []

    def made(self):
        """The Body of each program."""
        self.regimes, seen = [self.trials.regime], []
        while self.regimes:
            regime = self.regimes.pop(0)
            if regime.fixed in seen:
                continue
            seen.append(regime.fixed)
            trials = self._trials_of(regime)
            if trials is not None:
                self._serve(trials)
        return tuple(self.bodies)

    def _trials_of(self, regime):
        """None if the function does something else then, or cannot be called so."""
        if not regime.fixed:
            return self.trials
        try:
            trials = Trials(self.program, self.name, regime)
            self._check(trials)
        except ValueError:
            return None
        return trials

    def _check(self, trials):
        """Raise ValueError unless state and results are what the C function has."""
        for trial in trials.all:
            sizes = {label: found.array.size for label, found in trials.results_of(trial).items()}
            expected = {label: _size(shape, trial.extents) for label, shape in self.shapes.items()}
            if sizes != expected or _inputs_of(trials, trial, self.of)[0] != self.state:
                raise ValueError

    # --- one regime ---------------------------------------------------------------------------------------------------
    def _serve(self, trials):
        """Make programs of a Regime, and note which others are needed."""
        regime, one = trials.regime, _Programs(trials, self)
        least = {key: max(self.least[name] for name in self._equal(regime, key)) for key in regime.open}
        pending, n_left = [_apart(trials.corners[0]), least], _MAX_PROGRAMS
        while pending and n_left:
            numbers = pending.pop(0)
            if any(agree(body.guards, regime.full(numbers)) for body in self.bodies):
                continue
            try:
                body = one.body(numbers, least)
            except Coincidence as coincidence:
                self.regimes.append(_narrowed(regime, coincidence.terms, numbers))
                continue
            if body is not None:
                n_left -= 1
                self.bodies.append(body)
                for others in (_apart(trials.corners[0]), least):
                    pending += _borders(body.guards, others, least, regime.full)
        self.regimes += [Regime(self.sample, {**regime.fixed, key: 1}) for key in least if least[key] == LEAST]
        for text, comparison, answer in [g for body in self.bodies for g in body.guards]:
            if comparison == "==" and not answer:
                self._note_equality(regime, text)

    def _note_equality(self, regime, text):
        """Two extents that must differ in some program may be equal in another."""
        for a in regime.open:
            for b in regime.open:
                if a < b and text in (f"1*{b}+-1*{a}", f"-1*{b}+1*{a}"):
                    self.regimes.append(Regime(self.sample, {**regime.fixed, b: a}))

    @staticmethod
    def _equal(regime, key):
        return [key, *[name for name, x in regime.fixed.items() if x == key]]


class _Programs:
    """Those of one Regime."""

    def __init__(self, trials, of_all):
        self.trials, self.layout, self.compiled = trials, of_all.layout, of_all.compiled
        found = [_inputs_of(trials, trial, of_all.of) for trial in trials.all]
        if any(x != found[0] for x in found):
            raise ValueError("export: a tensor that the function makes from numbers or arrays depends on the extent")
        self.inputs, self.results = found[0][1], trials.results_of(trials.first)
        first = trials.first
        self.numbers, self.open_numbers = packed_numbers(first.run, first.followed), trials.open_numbers()
        self.formulas = formulas_by_slot(first.run, first.followed)
        self.fields = self.layout.fields_followed(first.followed)

    def body(self, numbers, least):
        """That for these numbers, and for whatever its guards allow; None if there is none."""
        scope, regime = Scope(numbers), self.trials.regime
        try:
            graph, _, _ = forward_graph(self.trials.opened(scope), self.trials.first.run.needed)
            if not _is_within(graph):
                return None
            compiled = self.compiled(graph)
            own_bytes = [prod(v.shape, start=v.dtype.size_bytes) for v in graph.outputs]
            arrays = self.layout.arrays(self.inputs, self.results, own_bytes)
            body = Body(compiled, arrays, self.numbers, self.open_numbers, (), self.formulas, self.fields)
            assert body.scratch_bytes >= 0, body.scratch_bytes  # what this asks of n is a guard too
        except Coincidence:
            raise
        except Exception as error:  # whatever a pass does that only ints can do
            said = next(iter(numbers.values())) if len(regime.sample) == 1 else regime.full(numbers)
            message = f"export: {self.trials.name} cannot have an extent of {said} known at run time: "
            raise ValueError(message + reason_of(error)) from error
        at_least = [(f"1*{name}+{-n}", "<", False) for name, n in least.items()]
        guards = [(text, how, answer) for (text, how), answer in scope.guards.items()]
        return replace(body, guards=(*regime.guards, *at_least, *guards))


def _inputs_of(trials, trial, of):
    """(names and shapes of the state, inputs)."""
    taken = trial.followed.fields
    _, state, inputs = inputs_of(trial.run, trial.tensors, trials.program.argument_names, of, taken)
    return [(name, a.shape) for name, a in state.items()], inputs


def _size(shape, extents):
    return prod(evaluate(d, extents) if isinstance(d, str) else d for d in shape)


def _is_within(graph):
    """Whether nothing has a negative length, and slices of what has a length of its own lie in it. What they ask of the
    extents is a guard."""
    values = decompose(graph)[0].values
    if not all(d >= 0 for value in values for d in value.shape):
        return False
    for value in [v for v in values if "spec" in (v.attributes or ())]:
        for (start, step, length), d in zip(value.attributes["spec"], value.operands[0].shape):
            last = start + (length - 1) * step
            if not (start >= 0 and last >= 0 and start < d and last < d):
                return False
    return True


# --- which extents are left -------------------------------------------------------------------------------------------
def _apart(numbers):
    """These numbers, made different from each other: what is equal by chance says nothing."""
    found = {}
    for name, n in numbers.items():
        while n in found.values():
            n += 1
        found[name] = n
    return found


def _narrowed(regime, terms, numbers):
    """The Regime in which these terms are 0."""
    unknowns = {name for term in terms for name in term}
    fixed = None
    if len(unknowns) == 1 and unknowns <= set(regime.open):
        (name,) = unknowns
        fixed = {name: numbers[name]}
    elif unknowns <= set(regime.open) and sorted(terms) == sorted((name,) for name in unknowns) and len(terms) == 2:
        (a, x), (b, y) = [(name, terms[name,]) for name in sorted(unknowns)]
        fixed = {b: a} if x == -y else None
    return Regime(regime.sample, {**regime.fixed, **(fixed or numbers)})


def _borders(guards, others, least, full):
    """Extents on both sides of where guards change their answers as one of them grows, between powers of two."""
    found = []
    for text, _, _ in guards:
        for name in others:
            sign = lambda n, text=text, name=name: _sign(evaluate(text, full({**others, name: n})))  # noqa: E731
            low = LEAST
            while low < LARGEST_EXTENT:
                high = min(2 * low, LARGEST_EXTENT)
                if sign(low) != sign(high):
                    found += [{**others, name: n} for n in _border(sign, low, high) if n >= least[name]]
                low = high
    return found


def _sign(x):
    return (x > 0) - (x < 0)


def _border(sign, low, high):
    before = sign(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sign(middle) == before else (low, middle)
    return [low, high, high + 1]
