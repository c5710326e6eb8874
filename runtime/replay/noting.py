"""Calls of functions that are only looked at: which ops, with which attributes, they come to (native_functions.py).

Noted    a tensor without values, which a function is called with in the place of one
Noter    what the ops on those are noted by, and the draws of random numbers
made_by  what a function returns then
"""

import threading
import warnings
from math import prod
from typing import NamedTuple

from ...compiler.ops.kinds import number_meta
from ...compiler.ops.view import clone, detach
from ..eager.plan import is_view_op
from ..programs.recording import ValueMeta
from ..state.attributes import refusal
from ..state.modes import frame_hidden, state, watching
from ..state.random import DrawnLater, Generator, default_generator
from ..state.tensor import Tensor, _apply

_MOST_STEPS, _MOST_IN_CONSTANTS = 256, 256
# What steps make lives until the call ends: of more than so many steps they make no more elements than these.
_FEW_STEPS, _MOST_IN_STEPS = 32, 1 << 18


class Noted(Tensor):
    """A tensor that has a shape and a type and nothing else: who asks whether it requires gradients, what it shows or
    what its values are gets an error. `noter` has the ops that lead to it, `place` says where it stands among them."""

    __slots__ = ("noter", "place")

    def apply_op(self, op, operands, attributes):
        return self.noter.apply(_apply, op, operands, attributes)


OF_TENSORS, OF_NUMBERS, CHANGE = range(3)


class Step(NamedTuple):
    """An op, and the places of its operands; of a CHANGE that of the tensor whose value it becomes."""

    op: object
    attributes: dict
    places: list
    how: int
    target: tuple = ("given", 0)


class Noter:
    """values: arguments, keys of draws, constants and results. A key is found when it is drawn and a constant when a
    step reads it, so that places are known at the end only."""

    notes_changes = True

    def __init__(self, is_in_place=False):
        """is_in_place: no tensor requires gradients or shows the memory of others, and one that is given may change."""
        self.steps, self.constants, self.n_given, self.n_drawn = [], [], 0, 0
        self.n_made = []  # elements of what each step makes
        self.is_in_place, self.is_changed = is_in_place, False

    def tensor(self, shape, dtype, place):
        made = object.__new__(Noted)
        made._data, made._meta, made.noter, made.place = None, ValueMeta(tuple(shape), dtype), self, place
        if self.is_in_place:
            made._requires_grad, made._base, made._storage = False, None, None
        return made

    def apply(self, run, op, operands, attributes):
        """An op that eager mode has been asked for: of constants it is computed."""
        if any(x.__class__ in _LATER for x in operands):
            return self.note(op, operands, attributes)
        state.forward = None
        try:
            return run(op, operands, attributes)
        finally:
            state.forward = self

    def change(self, _, op, target, operands, attributes):
        """The last that a function does: what fails then has changed nothing, or what may be changed again."""
        if not self.is_in_place or target.__class__ is not Noted or target.place[0] != "given":
            raise NotImplementedError("a change in place of what is not given for that")
        made = operands[0]
        if op is not clone or self.is_changed or not self._is_made_last(made):
            # Of several results each is copied to its place, and nothing else comes between.
            made = self.note(op, operands, attributes, is_last=op is clone)
        if (made.shape, made.dtype) != (target.shape, target.dtype):
            raise NotImplementedError("a change of type or shape, which is an error")
        self.steps[-1] = self.steps[-1]._replace(how=CHANGE, target=target.place)
        self.is_changed, self.n_made[-1] = True, 0
        return target

    def tangents(self, tensors):
        """Who asks for them in forward mode is told that there are none."""
        return (None,) * len(tensors)

    def most_between(self, results):
        """Elements of the largest value that steps make and that is none of the results, which have these places."""
        return max((n for k, n in enumerate(self.n_made) if ("step", k) not in results), default=0)

    def _is_made_last(self, x):
        """Whether x is what the last step makes of tensors, in memory of its own: then that can be its target's."""
        if x.__class__ is not Noted or x.place != ("step", len(self.steps) - 1):
            return False
        last = self.steps[-1]
        return last.how == OF_TENSORS and not is_view_op(last.op)

    def note(self, op, operands, attributes, is_last=False):
        if self.is_changed and not is_last:
            raise NotImplementedError("an op after a change")
        many = len(self.steps) == _MOST_STEPS or len(self.steps) >= _FEW_STEPS and sum(self.n_made) > _MOST_IN_STEPS
        if refusal(attributes) is not None or many:
            raise NotImplementedError("attributes that cannot be compared, or many steps")
        metas = [
            x if isinstance(x, Tensor) else number_meta(int(x) if x.__class__ is DrawnLater else x) for x in operands
        ]
        meta = op.infer(metas, attributes, state.default_dtype)
        how = OF_TENSORS if any(isinstance(x, Tensor) for x in operands) else OF_NUMBERS
        self.steps.append(Step(op, dict(attributes), [self._place(x) for x in operands], how))
        self.n_made.append(0 if is_view_op(op) else prod(meta.shape))
        made = self.tensor(meta.shape, meta.dtype, ("step", len(self.steps) - 1))
        if op is detach:
            made._base = None  # for set_apart, which has nothing to do for what is used inside of the call only
        return made

    def copy_of(self, x):
        """A copy in every call of a small tensor that the function has made of numbers."""
        if x.__class__ is not Tensor or x._data is None or x._requires_grad or x._data.size > _MOST_IN_CONSTANTS:
            return x
        return self.note(clone, (x,), {})

    def leads_outside(self, place):
        """Whether a result is what detach() gives, or a view of that: then it is more than what the op makes of it."""
        while place[0] == "step":
            op, _, places, *_ = self.steps[place[1]]
            if op is detach:
                return True
            if not is_view_op(op):
                return False
            place = places[0]
        return False

    def next_keys(self, n):
        self.n_drawn += n
        return tuple(map(DrawnLater, range(self.n_drawn - n, self.n_drawn)))

    def _place(self, x):
        if x.__class__ is Noted:
            if x.noter is not self:
                raise NotImplementedError("a tensor of another call")
            return x.place
        if x.__class__ is DrawnLater:
            return "draw", int(x)
        if isinstance(x, Tensor) and (x._requires_grad or _n_held(x.array) > _MOST_IN_CONSTANTS):
            raise NotImplementedError("a tensor of somebody's, or a large one")
        return self.constant(x)

    def constant(self, x):
        self.constants.append(x)
        return "constant", len(self.constants) - 1

    def number(self, place):
        kind, k = place
        first = self.n_given + self.n_drawn
        before = {"given": 0, "draw": self.n_given, "constant": first, "step": first + len(self.constants)}
        return before[kind] + k


def _n_held(array):
    """How many elements lie in memory: one for all that are expanded from it."""
    return prod([n for n, step in zip(array.shape, array.strides) if step])


_LATER = (Noted, DrawnLater)


class _Warned(Exception):
    pass


def made_by(noter, function, args, kwargs, generator=default_generator):
    """What the function returns; None if it fails or warns: that it does in every call. The draws of the generator are
    noted."""
    here, warn = threading.get_ident(), warnings.warn

    def refuse(*given, **named):
        if threading.get_ident() == here:
            raise _Warned
        warn(*given, **named)

    def next_keys(n):
        return noter.next_keys(n) if threading.get_ident() == here else Generator.next_keys(generator, n)

    def next_key():
        return next_keys(1)[0]

    warnings.warn, before, state.forward = refuse, state.forward, noter
    watching.append(noter)
    generator.next_keys, generator.next_key = next_keys, next_key
    try:
        with frame_hidden():
            made = function(*args, **kwargs)
    except Exception:  # whatever it is: the function does the same with the tensors, and raises its error
        made = None
    finally:
        for name in ("next_keys", "next_key"):
            vars(generator).pop(name, None)
        watching.remove(noter)
        warnings.warn, state.forward = warn, before
    return made
