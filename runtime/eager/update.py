"""Updates of many tensors by one rule: how optimizers write parameters. One entry of a compiled call's recording."""

from ...compiler.later import later
from ...compiler.ops.complex_numbers import view_as_complex, view_as_real
from ...compiler.ops.kinds import number_meta
from ...compiler.ops.table import Meta
from ...compiler.storage import convert
from ..state.elsewhere import any_elsewhere, is_elsewhere, used
from ..state.modes import captures, state
from ..state.storage import check_writable
from ..state.tensor import dtype_of
from . import plan
from .gate import check_fits, cleared_at_once
from .plan import add_attributes

_rule_program = later("runtime.programs.array_program:rule_program")


def update(rule, rows, numbers=(), **flags):
    """For every row (a tuple of tensors) compute rule(*row, *numbers, **flags) and write the results in place.

    rule: a pure function written with ops, which reaches nothing that changes; returns one new value per element of the
    row, None where it stays. A new value has its target's shape, and is converted to its type. Numbers are run-time
    Python floats that the rule may combine with tensors only; flags are fixed parts of the rule. All new values of a
    row are computed before any is written. Call it under no_grad.
    """
    if not rows:
        return
    frame = state.frame
    # Native code knows no complex types, so nobody need look for them.
    if frame is None and _updated_at_once(rule, rows, tuple(numbers), flags):
        return
    if any(x.dtype.is_complex for row in rows for x in row):
        rows = _update_complex(rule, rows, numbers, flags)
        if not rows:
            return
    if frame is not None and used and any_elsewhere(rows[0]):
        _learn_rows(rule, rows, tuple(numbers), flags)
    elif frame is not None:
        if captures:
            captures[-1].updates.append((len(frame.numbers), rows))
        frame.update(rule, rows, tuple(numbers), flags)
    else:
        _learn_rows(rule, rows, tuple(numbers), flags)


def _update_complex(rule, rows, numbers, flags):
    """Update the rows that have complex tensors as PyTorch does: real and imaginary parts are numbers of their own.
    They are written by ops, since programs have no complex numbers. Returns the other rows."""
    real = []
    for row in rows:
        if not any(x.dtype.is_complex for x in row):
            real.append(row)
            continue
        new = rule(*[view_as_real(x) if x.dtype.is_complex else x for x in row], *numbers, **flags)
        for target, value in zip(row, new):
            if value is not None:
                target.copy_(view_as_complex(value) if target.dtype.is_complex else value)
    return real


def update_again(rule, params, states, names, numbers, **flags):
    """Whether a compiled call did this update in its last call too, and has done it again.

    The rows are (param, gradient, states[param][name] for all names), for the params that have a gradient. If it has
    not, the caller makes the rows and calls `update`.
    """
    frame = state.frame
    return frame is not None and frame.update_again(rule, params, states, names, numbers, flags)


def remember(mapping):
    """If the compiled call in flight fails, this dict is to hold again what it holds now (counts, optimizer state)."""
    frame = state.frame
    if frame is not None:
        frame.remembered.append((_restore, (mapping, dict(mapping))))


def _restore(mapping, before):
    # Never between two states, since an exception may come here too: nothing, or all that was there and perhaps more.
    if not before:
        mapping.clear()
        return
    mapping.update(before)
    for name in mapping.keys() - before.keys():
        del mapping[name]


def count_steps(params, states):
    """Add one to states[param]["step"] for all params with a gradient, if it is the same number for all, and return the
    new number. None if nothing was done, which is so in all but usual calls."""
    frame = state.frame
    return None if frame is None else frame.count_steps(params, states)


def restore_steps(states, step):
    """Take back a count of native code's."""
    for values in states:
        values["step"] = step


def drop_gradients(tensors):
    """.grad = None for leaves that have one."""
    frame = state.frame
    if frame is not None:
        frame.changed_gradients.append((tensors, [t._grad for t in tensors]))
    for t in tensors:
        t._grad = None


def zero_gradients(tensors):
    """Fill .grad of leaves that have one with 0. It stays the tensor it is, unless it has a history."""
    for t in tensors:
        grad = t.grad
        if grad.requires_grad:
            if grad.is_leaf:
                grad.requires_grad = False
            else:
                t.grad = grad.detach()
    grads = [t.grad for t in tensors]
    if not all(grad.has_array for grad in grads) or not cleared_at_once(grads):
        for grad in grads:
            grad.zero_()


def update_eagerly(rule, row, numbers, flags):
    """One row. Returns what native code knows of the rule for such a row, if it knows it."""
    if row[0]._data is None and is_elsewhere(row[0]):
        row[0]._meta.update(rule, row, numbers, flags)
        return None
    planned = state.frame is None and _update_as_planned(rule, row, numbers, flags)
    if planned:
        return planned.native
    _in_python[0] += 1
    new = rule(*row, *numbers, **flags)
    for target, value in zip(row, new):
        if value is not None:
            check_fits(getattr(rule, "__name__", "update"), target, value)
            check_writable(target)
    for target, value in zip(row, new):
        if value is not None:
            target.tell_readers()
            target.array[...] = convert(value.array, target.dtype)
            target.bump_version()
    return None


# --- all rows at once -------------------------------------------------------------------------------------------------
def _updated_at_once(rule, rows, numbers, flags):
    """Whether native code knew all rows, and has updated them."""
    found = _at_once.get(_key_of_rows(rule, rows, numbers, flags)) if _native else None
    return found is not None and _native[0](found[0], rows, numbers)


def _learn_rows(rule, rows, numbers, flags):
    """Row after row. If native code knows all of them, it does them at once the next time."""
    native = [update_eagerly(rule, row, numbers, flags) for row in rows]
    key = _key_of_rows(rule, rows, numbers, flags)
    if key is not None and None not in native:
        if len(_at_once) >= _MOST_PROGRAMS:
            _at_once.clear()
        # What is known of the rows holds the memory that its words point to.
        _at_once[key] = tuple([one.words for one in native]), native


def _key_of_rows(rule, rows, numbers, flags):
    """Equal for steps of one optimizer, mostly; native code looks at every row."""
    if rows.__class__ is not list:
        return None
    key = [rule, state.default_dtype, len(numbers), len(rows), rows[0][0].shape]
    return add_attributes(key, flags)


def forget():
    """What was found out about rules is found out anew."""
    _programs.clear()
    _at_once.clear()


def set_native(function):
    """function(words of rows, rows, numbers) updates them, and says whether it did."""
    _native[:] = [function]


def rows_in_python():
    """How many rows were computed by Python so far."""
    return _in_python[0]


# --- rules on arrays --------------------------------------------------------------------------------------------------
def _update_as_planned(rule, row, numbers, flags):
    """The same with a program of the rule, if it has one whose results fit their targets: the program."""
    arrays, key = [x.array for x in row], [rule, state.default_dtype, len(numbers)]
    for array in arrays:
        key += (array.dtype, array.shape)
    key = None if {*map(type, numbers)} - _FLOAT else add_attributes(key, flags)
    if key is None:
        return None
    program = _find(key, rule, arrays, numbers, flags)
    if program is None or program.updated_natively(row, numbers):
        return program
    _in_python[0] += 1
    known, program = program, program.program
    values = program.run([*arrays, *numbers])
    written = [k for k, result in enumerate(program.results) if result is not None]
    for k in written:
        if not arrays[k].flags.writeable:
            check_writable(row[k])
    for k in written:
        row[k].tell_readers()
        arrays[k][...] = convert(values[program.results[k]], dtype_of(arrays[k]))
        row[k].bump_version()
    return known


def _find(key, rule, arrays, numbers, flags):
    """The program, made the second time: a rule that is a new function in every step costs nothing but the question."""
    program = _programs.get(key)
    if program is None or program is _ASKED:
        program = _ASKED if program is None else _make(rule, arrays, numbers, flags)
        if len(_programs) >= _MOST_PROGRAMS:
            _programs.clear()
        _programs[key] = program
    return None if program is _ASKED or program is _NONE else program


def _make(rule, arrays, numbers, flags):
    metas = [Meta(x.shape, dtype_of(x)) for x in arrays] + [number_meta(x) for x in numbers]
    found = _rule_program(rule, metas, flags, state.default_dtype)
    if found is None:
        return _NONE
    program, results = found
    fits = all(
        r is None or (r.shape == m.shape and r.dtype.category <= m.dtype.category) for r, m in zip(results, metas)
    )
    return _Rule(program, metas) if fits and len(results) <= len(arrays) else _NONE


class _Rule:
    """The program of a rule, and after some rows what native code knows of it (eager_native.py)."""

    __slots__ = ("program", "metas", "left", "native")

    def __init__(self, program, metas):
        self.program, self.metas, self.native = program, metas, None
        self.left = plan.CALLS_BEFORE_NATIVE

    def updated_natively(self, row, numbers):
        if self.left:
            self.left -= 1
            if not self.left:
                plan.take_over_update(self)
        return self.native is not None and _native[0]((self.native.words,), [row], numbers)


_FLOAT, _MOST_PROGRAMS = {float}, 1024
_ASKED, _NONE = "asked for once", "none can be made"
_programs = {}
_at_once = {}  # what tells steps of optimizers apart -> (words of all their rows, what holds them)
_native = []  # the function that updates rows, once there is one
_in_python = [0]
