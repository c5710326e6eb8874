"""Numbers that optimizers make of their learning rates and of how many steps they have made, as fields of a C struct.

An optimizer counts in Python, and its numbers follow from the count (the bias corrections of Adam). In C the count is a
field that the function adds to, and the numbers are computed anew by the same formulas in each call.
"""

import inspect
import struct
from dataclasses import dataclass
from itertools import count

import numpy as np

from . import c_names
from .compiler.formula import Formula


@dataclass(frozen=True, slots=True)
class Followed:
    """position of a run-time number -> its Formula; name of a field -> the 0-d array that it holds after the call; what
    a call adds to those that are counts; and name -> (dict, key) where Python has the number."""

    formulas: dict
    fields: dict
    steps: dict
    sources: dict

    def read_again(self):
        """Let the fields hold what is there now: later calls may have gone on."""
        for name, (mapping, key) in self.sources.items():
            self.fields[name][...] = mapping[key]

    def is_like(self, before):
        """Whether a call has gone on from the one before."""
        same = self.formulas == before.formulas and self.steps == before.steps and [*self.fields] == [*before.fields]
        added = [(self.fields[key] - x, self.steps.get(key, 0)) for key, x in before.fields.items()] if same else ()
        return same and all(found == expected for found, expected in added)


NOTHING = Followed({}, {}, {}, {})


def followed(run, names, with_rates):
    """The Followed of the last Run: what of its numbers follows from counts and, with_rates, from learning rates.

    names: id of optimizer -> what it is called. Raises ValueError for a learning rate that cannot be a field.
    """
    found, fields = Followed({}, {}, {}, {}), {}
    optimizers = list({id(x): x for x in run.optimizers}.values())
    for (start, rows), step in zip(run.updates, _steps_of_call(run.updates)):
        at = run.line_of_number(start)
        for optimizer, k in _owners(optimizers, rows[0][0]):
            own = _Group(optimizer, k, names.get(id(optimizer), "optimizer"), rows[0][0], step, at)
            for offset, x in enumerate(own.numbers(run.numbers[start:], with_rates)):
                if isinstance(x, Formula):
                    found.formulas[start + offset] = _named(x, own, fields, found)
    return found


class _Group:
    """A group of an optimizer in one update: `place` says which of all updates of its first parameter it is."""

    def __init__(self, optimizer, k, name, param, place, at):
        self.optimizer, self.group, self.at = optimizer, optimizer.param_groups[k], at
        self.prefix = name if len(optimizer.param_groups) == 1 else f"{name}_group{k}"
        nth, self.n_steps = place
        self.state = optimizer.state.get(param, {})
        steps = self.state.get("step")
        self.end = steps if isinstance(steps, int) else None
        # Which step of the call this is, from 1; and the count after it.
        self.nth, self.now = nth, None if self.end is None else self.end - self.n_steps + nth

    def numbers(self, recorded, with_rates):
        """Numbers, and Formulas of "lr" and "step", that were recorded as these; nothing if there are none."""
        step = 1 if self.now is None else Formula("field", "step")
        group, number = self.group, float
        if with_rates:
            group, number = {**self.group, "lr": Formula("field", "lr")}, lambda x: x
        made = self.optimizer._formulas(group, step, number)
        fields = {"lr": self.group["lr"], "step": self.now}
        if made is None or any(map(_differ, [_value(x, fields) for x in made], recorded)):
            if with_rates:
                raise ValueError(
                    f"export: the learning rate of {type(self.optimizer).__name__} cannot be a field: in the step of "
                    f"{self.at} its numbers are not those of one rate in every call"
                )
            return ()
        return made


def _named(formula, own, fields, found):
    """With the names of the struct's fields for "lr" and "step"."""
    if not isinstance(formula, Formula):
        return formula
    if formula.op != "field":
        return Formula(formula.op, *[_named(x, own, fields, found) for x in (formula.left, formula.right)])
    if formula.left == "lr":
        key, value = (own.prefix, "lr"), np.array(float(own.group["lr"]))
    else:
        # Parameters that have made another number of steps have a count of their own.
        key, value = (own.prefix, "step", own.end, own.n_steps), np.array(own.end, np.int64)
    if key not in fields:
        name = c_names.distinct(f"{key[0]}_{key[1]}", found.fields)
        fields[key] = name
        found.fields[name] = value
        found.sources[name] = (own.group, "lr") if formula.left == "lr" else (own.state, "step")
        if formula.left == "step":
            found.steps[name] = own.n_steps
    leaf = Formula("field", fields[key])
    # The count is added to when the call has ended: until then it is that of the calls before.
    return leaf if formula.left == "lr" else leaf + own.nth


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
    try:
        outside = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:
        return {}
    things = {**outside.globals, **outside.nonlocals}
    return {id(x): c_names.spelled(name) for name, x in things.items() if hasattr(x, "param_groups")}
