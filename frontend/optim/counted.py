"""Updates that depend on how many steps a parameter has made: the same for most optimizers.

The rows of one update are the parameters that have made as many steps; all have made as many unless some join late.
"""

from collections import defaultdict

from ..runtime.eager.update import count_steps, update, update_again
from .optimizer import count_step, require, require_rate, start_state, with_gradients


def update_counted(optimizer, group, rule, names, numbers, flags, start=start_state):
    """One step of a group by `rule`, over rows (parameter, gradient, its state under every name).

    numbers, flags: functions of the group and the count of steps, for `update`.
    start: makes the state of a parameter before its first step, as start_state does.
    """
    states = optimizer.state
    step = count_steps(group["params"], states)
    if step is not None:
        given = numbers(group, step)
        if update_again(rule, group["params"], states, names, given, **flags(group, step)):
            return
    rows_at = defaultdict(list)
    for param, grad in with_gradients(group):
        state = states[param]
        if not state:
            start(state, param, names)
        rows_at[count_step(state) if step is None else step].append((param, grad, *[state[name] for name in names]))
    for step, rows in rows_at.items():
        update(rule, rows, numbers(group, step), **flags(group, step))


def check_adaptive(lr, betas, eps, weight_decay):
    """ValueError for options that no relative of Adam takes."""
    require_rate(lr)
    require(eps >= 0, f"Invalid epsilon value: {eps}")
    for k in (0, 1):
        require(0 <= betas[k] < 1, f"Invalid beta parameter at index {k}: {betas[k]}")
    require(weight_decay >= 0, f"Invalid weight_decay value: {weight_decay}")


def decay_kind(group):
    """How the penalty on weights enters: "decoupled", "penalty" or None."""
    if group["weight_decay"] == 0:
        return None
    return "decoupled" if group["decoupled_weight_decay"] else "penalty"


def penalty_number(group, number=float):
    """What the parameter is multiplied by for it. `number`: as for Optimizer._formulas."""
    weight_decay = float(group["weight_decay"])
    return 1.0 - number(group["lr"]) * weight_decay if group["decoupled_weight_decay"] else weight_decay
