"""Adadelta (Zeiler, 1212.5701)."""

from ..compiler.ops.arithmetic import add, div, mul, sqrt, sub
from .counted import update_counted
from .optimizer import Optimizer, implementation, require, require_rate, stored, widened
from .sgd import ascent_or_descent


class Adadelta(Optimizer):
    """Steps as long as those before, relative to the gradients:

        g = gradient + weight_decay * parameter           (minus the gradient if `maximize`)
        v = rho * v + (1 - rho) * g * g
        d = sqrt(u + eps) / sqrt(v + eps) * g,   u = rho * u + (1 - rho) * d * d
        parameter = parameter - lr * d

    The state of a parameter: "step" (an int), "square_avg" (v), "acc_delta" (u).
    """

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-6,
        weight_decay=0,
        foreach=None,
        *,
        capturable=False,
        maximize=False,
        differentiable=False,
    ):
        require_rate(lr)
        require(0 <= rho <= 1, f"Invalid rho value: {rho}")
        require(eps >= 0, f"Invalid epsilon value: {eps}")
        require(weight_decay >= 0, f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(capturable=capturable, foreach=foreach, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step, number, *_):
        return _numbers(group, step, number)

    def update_group(self, group):
        update_counted(self, group, adadelta, ("square_avg", "acc_delta"), _numbers, _flags)


def _numbers(group, step, number=float):
    rho = float(group["rho"])
    return float(group["weight_decay"]), rho, 1.0 - rho, float(group["eps"]), number(group["lr"])


def _flags(group, step):
    return {"decay": group["weight_decay"] != 0, "maximize": group["maximize"]}


def adadelta(param, grad, square, steps, weight_decay, old_share, new_share, eps, lr, *, decay, maximize):
    grad = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    square = stored(add(mul(square, old_share), mul(mul(widened(grad, square), new_share), grad)), square)
    step = mul(div(sqrt(add(steps, eps)), sqrt(add(square, eps))), grad)
    steps = stored(add(mul(steps, old_share), mul(mul(widened(step, steps), new_share), step)), steps)
    return sub(param, mul(widened(step, param), lr)), None, square, steps
