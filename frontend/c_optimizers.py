"""Numbers that optimizers make of their learning rates and of how many steps they have made, as fields of a C struct.

An optimizer counts in Python, and its numbers follow from the count (the bias corrections of Adam), or from numbers
that it keeps beside it (the product of the momenta of NAdam). In C these are fields, which the function changes as the
optimizer does, and the numbers are computed anew by the same formulas in each call.
"""

import inspect
import struct
from dataclasses import dataclass
from itertools import count

import numpy as np

from . import c_names
from .compiler.formula import Formula
from .runtime.programs.capture import floats_of


@dataclass(frozen=True, slots=True)
class Followed:
    """position of a run-time number -> its Formula; name of a field -> the 0-d array that it holds after the call; what
    a call adds to those that are counts; the Formulas of what it leaves in others; and name -> (dict, key) where Python
    has the number."""

    formulas: dict
    fields: dict
    steps: dict
    after: dict
    sources: dict

    def read_again(self):
        """Let the fields hold what is there now: later calls may have gone on."""
        for name, (mapping, key) in self.sources.items():
            self.fields[name][...] = mapping[key]

    def is_like(self, before):
        """Whether a call has gone on from the one before."""
        if [*self.fields] != [*before.fields] or any(
            getattr(self, what) != getattr(before, what) for what in ("formulas", "steps", "after")
        ):
            return False
        numbers = {key: x.item() for key, x in before.fields.items()}
        expected = {key: x + self.steps.get(key, 0) for key, x in numbers.items()}
        expected |= {key: formula.evaluate(numbers) for key, formula in self.after.items()}
        return all(x == expected[key] for key, x in self.fields.items())


NOTHING = Followed({}, {}, {}, {}, {})


def followed(run, names, with_rates):
    """The Followed of the last Run: what of its numbers follows from counts and, with_rates, from learning rates.

    names: id of optimizer -> what it is called. Raises ValueError for a learning rate that cannot be a field.
    """
    found, fields, kept = Followed({}, {}, {}, {}, {}), {}, {}
    optimizers = list({id(x): x for x in run.optimizers}.values())
    for (start, rows), step in zip(run.updates, _steps_of_call(run.updates)):
        at, param = run.line_of_number(start), rows[0][0]
        for optimizer, k in _owners(optimizers, param):
            own = _Group(optimizer, k, names.get(id(optimizer), "optimizer"), param, step, at)
            own.keep(run.kept.get(id(param), {}), kept.get(id(param)))
            for offset, x in enumerate(own.numbers(run.numbers[start:], with_rates)):
                if isinstance(x, Formula):
                    found.formulas[start + offset] = _named(x, own, fields, found)
            kept[id(param)] = own.kept
            if own.nth == own.n_steps:
                found.after.update(own.left(fields, found))
    return found


class _Group:
    """A group of an optimizer in one update: `place` says which of all updates of its first parameter it is."""

    def __init__(self, optimizer, k, name, param, place, at):
        self.optimizer, self.group, self.at, self.param = optimizer, optimizer.param_groups[k], at, param
        self.prefix = name if len(optimizer.param_groups) == 1 else f"{name}_group{k}"
        nth, self.n_steps = place
        self.state = optimizer.state.get(param, {})
        steps = self.state.get("step")
        self.end = steps if isinstance(steps, int) else None
        self.nth = nth  # step of the call, from 1
        self.before, self.kept = {}, {}

    def keep(self, before, kept):
        """What the optimizer keeps of the parameter: `before` the call, as floats, and before this step as Formulas, if
        it is not the first."""
        self.before, self.kept = before, kept or {name: Formula("field", name) for name in before}

    def left(self, fields, found):
        """name of a field -> the Formula of what the call leaves in it."""
        named = {name: _named(Formula("field", name), self, fields, found).left for name in self.kept}
        return {named[name]: _named(x, self, fields, found) for name, x in self.kept.items()}

    def numbers(self, recorded, with_rates):
        """Numbers, and Formulas of "lr", "step" and what is kept (all as they are before the call), that were recorded
        as these; nothing if there are none."""
        step = 1 if self.end is None else Formula("field", "step") + self.nth
        group, number = self.group, float
        if with_rates:
            group, number = {**self.group, "lr": Formula("field", "lr")}, lambda x: x
        kept, self.kept = self.kept, {}
        if self.before.keys() != floats_of(self.state).keys():
            return ()  # they were made in this call: those of the next ones follow from them
        made = self.optimizer._formulas(group, step, number, self.param, kept)
        count = 0 if self.end is None else self.end - self.n_steps
        fields = {"lr": self.group["lr"], "step": count, **self.before}
        if made is not None and not any(map(_differ, [_value(x, fields) for x in made], recorded)):
            self.kept = kept
        else:
            made = ()
            if with_rates:
                raise ValueError(
                    f"export: the learning rate of {type(self.optimizer).__name__} cannot be a field: in the step of "
                    f"{self.at} its numbers are not those of one rate in every call"
                )
            return ()
        return made


def _named(formula, own, fields, found):
    """With the names of the struct's fields for "lr", "step" and what is kept."""
    if not isinstance(formula, Formula):
        return formula
    if formula.op != "field":
        return Formula(formula.op, *[_named(x, own, fields, found) for x in (formula.left, formula.right)])
    what = formula.left
    if what == "lr":
        key, source, value = (own.prefix, what), own.group, np.array(float(own.group[what]))
    else:
        # Parameters that have made another number of steps have numbers of their own.
        key, source = (own.prefix, what, own.end, own.n_steps, own.before.get(what)), own.state
        value = np.array(own.end, np.int64) if what == "step" else np.array(own.state[what])
    if key not in fields:
        name = fields[key] = c_names.distinct(f"{own.prefix}_{what}", found.fields)
        found.fields[name], found.sources[name] = value, (source, what)
        if what == "step":
            found.steps[name] = own.n_steps
    # The count is added to when the call has ended: until then it is that of the calls before.
    return Formula("field", fields[key])


def _steps_of_call(updates):
    """Of each update, (which one of its first parameter in the call it is, how many there are)."""
    params = [id(rows[0][0]) for _, rows in updates]
    counters = {param: count(1) for param in params}
    return [(next(counters[param]), params.count(param)) for param in params]


def _owners(optimizers, param):
    return [(x, k) for x in optimizers for k, g in enumerate(x.param_groups) if any(p is param for p in g["params"])]


def _value(x, fields):
    return float(x.evaluate(fields) if isinstance(x, Formula) else x)


def _differ(x, y):
    return struct.pack("d", x) != struct.pack("d", y)


# --- what optimizers are called ---------------------------------------------------------------------------------------
def optimizer_names(function):
    """id of optimizer -> its name in C, of those that a function finds outside."""
    things = things_outside(function).items()
    return {id(x): c_names.spelled(name) for name, x in things if hasattr(x, "param_groups")}


def things_outside(function):
    """name -> what a function finds outside: what it closes over, attributes of the object that it is or whose method
    it is, globals. A module is called "module"."""
    function = inspect.unwrap(function)
    owner = getattr(function, "__self__", None) if inspect.ismethod(function) else function
    own = {"module": owner} if hasattr(owner, "named_parameters") else getattr(owner, "__dict__", {})
    try:
        outside = inspect.getclosurevars(function if inspect.isroutine(function) else type(function).__call__)
    except TypeError:
        return dict(own)
    found = {**outside.nonlocals, **own}
    return {**found, **{name: thing for name, thing in outside.globals.items() if name not in found}}
