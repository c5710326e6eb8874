"""Adagrad (Duchi, Hazan, Singer, JMLR 12, 2011)."""

from collections import defaultdict

from ..compiler.ops.arithmetic import add, div, mul, sqrt, sub
from ..runtime.eager.update import count_steps, update, update_again
from .optimizer import (
    Optimizer,
    count_step,
    full_of,
    implementation,
    require,
    require_rate,
    stored,
    widened,
    with_gradients,
)
from .sgd import ascent_or_descent


class Adagrad(Optimizer):
    """Steps scaled by the root of the sum of all squared gradients:

        g = gradient + weight_decay * parameter           (minus the gradient if `maximize`)
        s = s + g * g
        parameter = parameter - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    The state of a parameter, made when the optimizer is: "step" (t, an int) and "sum" (s).
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        require_rate(lr)
        require(lr_decay >= 0, f"Invalid lr_decay value: {lr_decay}")
        require(weight_decay >= 0, f"Invalid weight_decay value: {weight_decay}")
        require(initial_accumulator_value >= 0, f"Invalid initial_accumulator_value value: {initial_accumulator_value}")
        require(eps >= 0, f"Invalid epsilon value: {eps}")
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
            **implementation(foreach=foreach, differentiable=differentiable, fused=fused),
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group):
        group = self._checked(param_group)
        start = float(group["initial_accumulator_value"])
        made = {param: {"step": 0, "sum": full_of(param, start)} for param in group["params"]}
        # No group is without its state, if an exception comes here.
        self.state.update(made)
        self.param_groups.append(group)

    @staticmethod
    def _formulas(group, step, number, *_):
        return _numbers(group, step)

    def update_group(self, group):
        flags = {"decay": group["weight_decay"] != 0, "maximize": group["maximize"]}
        step = count_steps(group["params"], self.state)
        if step is not None:
            numbers = _numbers(group, step)
            if update_again(adagrad, group["params"], self.state, ("sum",), numbers, **flags):
                return
        rows_at = defaultdict(list)
        for param, grad in with_gradients(group):
            state = self.state[param]
            rows_at[count_step(state) if step is None else step].append((param, grad, state["sum"]))
        for step, rows in rows_at.items():
            update(adagrad, rows, _numbers(group, step), **flags)

    def update_sparse(self, group, param, grad):
        """One step for the rows of a parameter that its gradient keeps."""
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[param]
        rate, _, eps = _numbers(group, count_step(state))
        grad = (-grad if group["maximize"] else grad).coalesce()
        values = grad._values()
        if not values.numel():
            return
        state["sum"].add_(grad._with(values * values))
        root = state["sum"].sparse_mask(grad)._values().sqrt() + eps
        param.add_(grad._with(values / root), alpha=-rate)


def _numbers(group, step):
    lr = group["lr"] / (1.0 + (step - 1) * group["lr_decay"])
    return lr, float(group["weight_decay"]), float(group["eps"])


def adagrad(param, grad, total, lr, weight_decay, eps, *, decay, maximize):
    grad = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    total = stored(add(total, mul(grad, grad)), total)
    return sub(param, div(mul(widened(grad, total), lr), add(sqrt(total), eps))), None, total
