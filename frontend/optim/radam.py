"""RAdam (Liu et al., 1908.03265): Adam whose adaptive step waits until its variance is known."""

from ..compiler.formula import exceeds, most
from ..compiler.ops.arithmetic import add, div, mul, neg, sqrt, sub
from .adam import blend, blend_weight, starts_near
from .counted import check_adaptive, decay_kind, penalty_number, update_counted
from .optimizer import Optimizer, chosen_by, implementation, stored, widened


class RAdam(Optimizer):
    """Adam with a step rectified by r, and without its denominator while the average is too short (rho <= 5):

        rho_inf = 2 / (1 - beta2) - 1,   rho = rho_inf - 2 t beta2^t / (1 - beta2^t)
        r = sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))
        parameter = parameter - lr * m / (1 - beta1^t) * (r * sqrt(1 - beta2^t) / (sqrt(v) + eps) if rho > 5 else 1)

    with m and v as in Adam, and its decoupled_weight_decay. The state of a parameter: "step" (t, an int), "exp_avg"
    (m), "exp_avg_sq" (v).
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        check_adaptive(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(foreach=foreach, capturable=capturable, differentiable=differentiable),
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step, number, *_):
        return _numbers(group, step, number)

    def update_group(self, group):
        update_counted(self, group, radam, ("exp_avg", "exp_avg_sq"), _numbers, _flags)


def _length(group, step):
    """The length of the average of squares, now and in the end."""
    beta2 = group["betas"][1]
    in_the_end = 2.0 / (1.0 - beta2) - 1.0
    return in_the_end - 2.0 * step * beta2**step / (1.0 - beta2**step), in_the_end


def _numbers(group, step, number=float):
    beta1, beta2 = group["betas"]
    length, longest = _length(group, step)
    rectified, is_rectified = 1.0, 0.0
    if longest > 5.0:
        rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        is_rectified = exceeds(length, 5.0)  # a number, since it is another one after some steps
    correction = (1.0 - beta2**step) ** 0.5
    return (
        *(penalty_number(group, number), blend_weight(1.0 - beta1), float(beta2), 1.0 - beta2, 1.0 - beta1**step),
        *(number(group["lr"]), float(group["eps"]), correction, most(rectified, 0.0) ** 0.5, is_rectified),
    )


def _flags(group, step):
    near = starts_near(1.0 - group["betas"][0])
    return {"decay": decay_kind(group), "maximize": group["maximize"], "near": near}


def radam(param, grad, mean, square, *numbers, decay, maximize, near):
    penalty, mean_weight, old_share, new_share, mean_correction, lr, eps, square_correction, rectified, *which = numbers
    if maximize:
        grad = neg(grad)
    if decay == "decoupled":
        param = mul(param, penalty)
    elif decay == "penalty":
        grad = add(grad, mul(param, penalty))
    mean = blend(mean, grad, mean_weight, near)
    square = stored(add(mul(square, old_share), mul(mul(widened(grad, square), new_share), grad)), square)
    step = mul(div(widened(mean, param), mean_correction), lr)
    adaptive = mul(mul(step, div(square_correction, add(sqrt(square), eps))), rectified)
    return sub(param, chosen_by(*which, adaptive, step)), None, mean, square
