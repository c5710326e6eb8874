"""Adamax (Kingma and Ba, 1412.6980, section 7.1): Adam with the largest gradient in place of the mean square."""

from ..compiler.ops.arithmetic import abs_, add, div, maximum, mul, sub
from .adam import blend, blend_weight, starts_near
from .counted import check_adaptive, update_counted
from .optimizer import Optimizer, implementation, stored, widened
from .sgd import ascent_or_descent


class Adamax(Optimizer):
    """Steps scaled by the largest gradient so far, which fades:

        g = gradient + weight_decay * parameter           (minus the gradient if `maximize`)
        m = beta1 * m + (1 - beta1) * g,   u = max(beta2 * u, |g| + eps)
        parameter = parameter - lr / (1 - beta1^t) * m / u

    The state of a parameter: "step" (t, an int), "exp_avg" (m), "exp_inf" (u).
    """

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        check_adaptive(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(foreach=foreach, differentiable=differentiable, capturable=capturable),
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step, number, *_):
        return _numbers(group, step, number)

    def update_group(self, group):
        update_counted(self, group, adamax, ("exp_avg", "exp_inf"), _numbers, _flags)


def _numbers(group, step, number=float):
    beta1, beta2 = group["betas"]
    step_size = number(group["lr"]) / (1.0 - beta1**step)
    mean_weight = blend_weight(1.0 - beta1)
    return float(group["weight_decay"]), mean_weight, float(beta2), float(group["eps"]), step_size


def _flags(group, step):
    near = starts_near(1.0 - group["betas"][0])
    return {"decay": group["weight_decay"] != 0, "maximize": group["maximize"], "near": near}


def adamax(param, grad, mean, largest, *numbers, decay, maximize, near):
    weight_decay, mean_weight, fading, eps, step_size = numbers
    grad = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    mean = blend(mean, grad, mean_weight, near)
    largest = stored(maximum(mul(largest, fading), add(abs_(grad), eps)), largest)
    return sub(param, div(mul(widened(widened(mean, param), largest), step_size), largest)), None, mean, largest
