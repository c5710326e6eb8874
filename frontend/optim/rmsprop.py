"""RMSprop (Tieleman and Hinton, Coursera lecture 6.5, 2012), centred variant by Graves (arXiv 1308.0850)."""

from ..compiler.ops.arithmetic import add, div, mul, sqrt, sub
from ..runtime.eager.update import count_steps, update, update_again
from .adam import blend, blend_weight, starts_near
from .optimizer import (
    Optimizer,
    count_step,
    implementation,
    require,
    require_rate,
    start_state,
    stored,
    widened,
    with_gradients,
)
from .sgd import ascent_or_descent


class RMSprop(Optimizer):
    """Steps scaled by the root of a running average v of the squared gradient:

        g = gradient + weight_decay * parameter           (minus the gradient if `maximize`)
        v = alpha * v + (1 - alpha) * g * g,   m = alpha * m + (1 - alpha) * g
        s = sqrt(v - m * m if `centered` else v) + eps
        b = momentum * b + g / s
        parameter = parameter - lr * b                    (lr * g / s without momentum)

    The state of a parameter: "step" (an int), "square_avg" (v), "grad_avg" (m), "momentum_buffer" (b).
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        require_rate(lr)
        require(eps >= 0, f"Invalid epsilon value: {eps}")
        require(momentum >= 0, f"Invalid momentum value: {momentum}")
        require(weight_decay >= 0, f"Invalid weight_decay value: {weight_decay}")
        require(alpha >= 0, f"Invalid alpha value: {alpha}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(capturable=capturable, foreach=foreach, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step=None, number=float, *_):
        alpha = float(group["alpha"])
        numbers = (number(group["lr"]), float(group["weight_decay"]), alpha, 1.0 - alpha)
        return (*numbers, blend_weight(1.0 - alpha), float(group["eps"]), float(group["momentum"]))

    def update_group(self, group):
        names = ["square_avg"]
        names += ["grad_avg"] if group["centered"] else []
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        numbers = self._formulas(group)
        flags = {
            "decay": group["weight_decay"] != 0,
            "maximize": group["maximize"],
            "centered": group["centered"],
            "momentum": group["momentum"] > 0,
            "near": starts_near(1.0 - float(group["alpha"])),
        }
        step = count_steps(group["params"], self.state)
        if step is None or not update_again(rmsprop, group["params"], self.state, tuple(names), numbers, **flags):
            update(rmsprop, self._rows(group, names, step), numbers, **flags)

    def _rows(self, group, names, step):
        """Counts the step too, unless it is counted."""
        rows = []
        for param, grad in with_gradients(group):
            state = self.state[param]
            if not state:
                start_state(state, param, names)
            if step is None:
                count_step(state)
            rows.append((param, grad, *[state[name] for name in names]))
        return rows


def rmsprop(param, grad, square, *rest, decay, maximize, centered, momentum, near):
    """`rest`: the running mean if `centered`, the buffer if `momentum`, then the seven numbers."""
    *averages, lr, weight_decay, old_share, new_share, mean_weight, eps, inertia = rest
    grad = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    square = stored(add(mul(square, old_share), mul(mul(widened(grad, square), new_share), grad)), square)
    variance, kept = square, [square]
    if centered:
        mean = blend(averages[0], grad, mean_weight, near)
        variance = sub(square, mul(mean, mean))
        kept.append(mean)
    deviation = add(sqrt(variance), eps)
    if not momentum:
        return sub(param, div(mul(widened(grad, deviation), lr), deviation)), None, *kept
    buffer = stored(add(mul(averages[-1], inertia), div(grad, deviation)), averages[-1])
    return sub(param, mul(widened(buffer, param), lr)), None, *kept, buffer
