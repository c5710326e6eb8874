"""Updates of many tensors by one rule: how optimizers write parameters. One entry of a compiled call's recording."""

from .gate import check_fits, check_writable
from .modes import state


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
    if frame is not None:
        frame.update(rule, rows, tuple(numbers), flags)
        return
    for row in rows:
        update_eagerly(rule, row, numbers, flags)


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


def update_eagerly(rule, row, numbers, flags):
    new = rule(*row, *numbers, **flags)
    for target, value in zip(row, new):
        if value is not None:
            check_fits(getattr(rule, "__name__", "update"), target, value)
            check_writable(target)
    for target, value in zip(row, new):
        if value is not None:
            target.tell_readers()
            target.array[...] = value.array
            target.bump_version()
