"""Averaged stochastic gradient descent (Polyak and Juditsky, SIAM J. Control Optim. 30, 1992)."""

from collections import defaultdict

from ..compiler.ops.arithmetic import add, mul, sub
from ..creation import zeros_like
from ..runtime.eager.update import remember, update
from .optimizer import Optimizer, at_once, count_step, implementation, require, stored, widened, with_gradients
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
        require(lr >= 0, f"Invalid learning rate: {lr}")
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

    def update_group(self, group):
        rows_at = defaultdict(list)
        lr, lambd = float(group["lr"]), float(group["lambd"])
        for param, grad in with_gradients(group):
            state = self.state[param]
            if not state:
                made = {"step": 0, "eta": lr, "mu": 1.0, "ax": at_once(zeros_like, param)}
                remember(state)
                state.update(made)
            step = count_step(state)
            # Those from a file may be tensors, as PyTorch keeps them.
            rows_at[float(state["eta"]), float(state["mu"])].append((param, grad, state["ax"]))
            state["eta"] = lr / (1.0 + lambd * lr * step) ** group["alpha"]
            state["mu"] = 1.0 / max(1.0, step - group["t0"])
        for (eta, mu), rows in rows_at.items():
            numbers = (float(group["weight_decay"]), 1.0 - lambd * eta, eta, mu)
            flags = {"decay": group["weight_decay"] != 0, "maximize": group["maximize"]}
            update(asgd, rows, numbers, averaging=mu != 1.0, **flags)


def asgd(param, grad, average, weight_decay, share, eta, mu, *, decay, maximize, averaging):
    grad = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    moved = sub(mul(param, share), mul(widened(grad, param), eta))
    average = stored(add(average, mul(sub(moved, average), mu)), average) if averaging else stored(moved, average)
    return moved, None, average
