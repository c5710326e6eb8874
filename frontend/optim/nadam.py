"""NAdam (Dozat, "Incorporating Nesterov momentum into Adam", 2016)."""

from collections import defaultdict

from ..compiler.ops.arithmetic import add, div, mul, neg, sqrt, sub
from ..runtime.eager.update import update
from .adam import blend, blend_weight, starts_near
from .counted import check_adaptive, decay_kind, penalty_number
from .optimizer import Optimizer, count_step, implementation, require, start_state, stored, widened, with_gradients


class NAdam(Optimizer):
    """Adam with Nesterov's momentum:

        mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2),   p_t = mu_1 mu_2 ... mu_t
        s = sqrt(v / (1 - beta2^t)) + eps
        parameter = parameter - lr (1 - mu_t) / (1 - p_t) * g / s - lr mu_(t+1) / (1 - p_(t+1)) * m / s

    with g, m and v as in Adam, and its decoupled_weight_decay. The state of a parameter: "step" (t, an int),
    "mu_product" (p, a float), "exp_avg" (m), "exp_avg_sq" (v).
    """

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        check_adaptive(lr, betas, eps, weight_decay)
        require(momentum_decay >= 0, f"Invalid momentum_decay value: {momentum_decay}")
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            **implementation(foreach=foreach, capturable=capturable, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step, number, param, kept):
        kept["mu_product"] = kept["mu_product"] * _momentum(group, step)
        return _numbers(group, step, kept["mu_product"], number)

    def update_group(self, group):
        rows_at = defaultdict(list)
        for param, grad in with_gradients(group):
            state = self.state[param]
            if not state:
                start_state(state, param, ("exp_avg", "exp_avg_sq"))
            step = count_step(state)
            # One from a file may be a tensor, as PyTorch keeps it.
            product = state["mu_product"] = float(state.get("mu_product", 1.0)) * _momentum(group, step)
            rows_at[step, product].append((param, grad, state["exp_avg"], state["exp_avg_sq"]))
        for (step, product), rows in rows_at.items():
            update(nadam, rows, _numbers(group, step, product), **_flags(group))


def _momentum(group, step):
    return group["betas"][0] * (1.0 - 0.5 * 0.96 ** (step * group["momentum_decay"]))


def _numbers(group, step, product, number=float):
    lr, (beta1, beta2) = number(group["lr"]), group["betas"]
    now, then = _momentum(group, step), _momentum(group, step + 1)
    return (
        *(penalty_number(group, number), blend_weight(1.0 - beta1), float(beta2), 1.0 - beta2, 1.0 - beta2**step),
        *(float(group["eps"]), lr * (1.0 - now) / (1.0 - product), lr * then / (1.0 - product * then)),
    )


def _flags(group):
    near = starts_near(1.0 - group["betas"][0])
    return {"decay": decay_kind(group), "maximize": group["maximize"], "near": near}


def nadam(param, grad, mean, square, *numbers, decay, maximize, near):
    penalty, mean_weight, old_share, new_share, square_correction, eps, of_gradient, of_mean = numbers
    if maximize:
        grad = neg(grad)
    if decay == "decoupled":
        param = mul(param, penalty)
    elif decay == "penalty":
        grad = add(grad, mul(param, penalty))
    mean = blend(mean, grad, mean_weight, near)
    square = stored(add(mul(square, old_share), mul(mul(widened(grad, square), new_share), grad)), square)
    deviation = add(sqrt(div(square, square_correction)), eps)
    param = sub(param, div(mul(widened(grad, deviation), of_gradient), deviation))
    return sub(param, div(mul(widened(mean, deviation), of_mean), deviation)), None, mean, square
