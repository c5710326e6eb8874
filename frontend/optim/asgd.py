"""Averaged stochastic gradient descent (Polyak and Juditsky, SIAM J. Control Optim. 30, 1992)."""

from collections import defaultdict

from ..compiler.formula import exceeds, most
from ..compiler.ops.arithmetic import add, mul, sub
from ..creation import zeros_like
from ..runtime.eager.update import remember, update
from .optimizer import (
    Optimizer,
    at_once,
    chosen_by,
    count_step,
    implementation,
    require,
    require_rate,
    stored,
    widened,
    with_gradients,
)
from .sgd import ascent_or_descent


class ASGD(Optimizer):
    """Gradient descent that keeps the average of the parameters since step t0:

        g = gradient + weight_decay * parameter           (minus the gradient if `maximize`)
        parameter = (1 - lambd * eta) * parameter - eta * g
        a = a + mu * (parameter - a)                      (a = parameter while mu is 1)
        eta = lr / (1 + lambd * lr * t)^alpha,   mu = 1 / max(1, t - t0)

    The state of a parameter: "step" (t, an int), "ax" (a), "eta" (lr at first) and "mu" (1 at first), which are floats.
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        require_rate(lr)
        require(weight_decay >= 0, f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(foreach=foreach, differentiable=differentiable, capturable=capturable),
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step, number, param, kept):
        made = _numbers(group, kept["eta"], kept["mu"])
        kept.update(_next(group, step, number))
        return made

    def update_group(self, group):
        rows_at = defaultdict(list)
        for param, grad in with_gradients(group):
            state = self.state[param]
            if not state:
                made = {"step": 0, "eta": float(group["lr"]), "mu": 1.0, "ax": at_once(zeros_like, param)}
                remember(state)
                state.update(made)
            step = count_step(state)
            # Those from a file may be tensors, as PyTorch keeps them.
            rows_at[float(state["eta"]), float(state["mu"])].append((param, grad, state["ax"]))
            state.update(_next(group, step))
        flags = {"decay": group["weight_decay"] != 0, "maximize": group["maximize"]}
        for (eta, mu), rows in rows_at.items():
            update(asgd, rows, _numbers(group, eta, mu), **flags)


def _next(group, step, number=float):
    """What is kept for the step after this one."""
    lr, lambd = number(group["lr"]), float(group["lambd"])
    return {"eta": lr / (1.0 + lambd * lr * step) ** group["alpha"], "mu": 1.0 / most(1.0, step - group["t0"])}


def _numbers(group, eta, mu):
    return float(group["weight_decay"]), 1.0 - float(group["lambd"]) * eta, eta, mu, exceeds(1.0, mu)


def asgd(param, grad, average, weight_decay, share, eta, mu, is_averaging, *, decay, maximize):
    grad = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    moved = sub(mul(param, share), mul(widened(grad, param), eta))
    new = chosen_by(is_averaging, add(average, mul(sub(moved, average), mu)), moved)
    return moved, None, stored(new, average)
