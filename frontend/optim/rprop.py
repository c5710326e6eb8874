"""Rprop (Riedmiller and Braun, 1993): a step size per element, changed by the signs of gradients alone."""

from ..compiler.ops.arithmetic import maximum, minimum, mul, neg, sign, sub
from ..compiler.ops.comparison import eq, gt, lt, where
from ..creation import zeros_like
from ..runtime.eager.update import remember
from .counted import update_counted
from .optimizer import Optimizer, at_once, full_of, implementation, require, require_rate, stored, widened


class Rprop(Optimizer):
    """Steps by the sign of the gradient g:

        s = g * (the gradient before)                     (minus the gradient if `maximize`)
        size = size * (etas[1] where s > 0, etas[0] where s < 0), between the step_sizes
        g = 0 where s < 0
        parameter = parameter - size * sign(g)

    The state of a parameter: "step" (an int), "prev" (the gradient before), "step_size" (lr at first).
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        require_rate(lr)
        require(0 < etas[0] < 1 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": tuple(etas),
            "step_sizes": tuple(step_sizes),
            "maximize": maximize,
            **implementation(foreach=foreach, differentiable=differentiable, capturable=capturable),
        }
        super().__init__(params, defaults)

    def update_group(self, group):
        def start(state, param, names):
            prev, size = at_once(zeros_like, param), at_once(full_of, param, float(group["lr"]))
            made = {"step": 0, "prev": prev, "step_size": size}
            remember(state)
            state.update(made)

        update_counted(self, group, rprop, ("prev", "step_size"), _numbers, _flags, start)


def _numbers(group, step):
    return tuple(map(float, (*group["etas"], *group["step_sizes"])))


def _flags(group, step):
    return {"maximize": group["maximize"]}


def rprop(param, grad, before, size, shrink, grow, smallest, largest, *, maximize):
    if maximize:
        grad = neg(grad)
    agreement = sign(mul(grad, before))
    turned = lt(agreement, 0.0)
    # A NaN stays one, as in PyTorch: no comparison holds for it.
    factor = where(eq(agreement, 0.0), 1.0, where(turned, shrink, where(gt(agreement, 0.0), grow, agreement)))
    size = stored(minimum(maximum(mul(size, factor), smallest), largest), size)
    grad = where(turned, 0.0, grad)
    return sub(param, widened(mul(sign(grad), size), param)), None, stored(grad, before), size
