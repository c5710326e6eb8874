"""Adam (Kingma and Ba, 1412.6980), AMSGrad (Reddi et al., 1904.09237), AdamW (Loshchilov and Hutter, 1711.05101)."""

from collections import defaultdict

from ..compiler.ops.arithmetic import add, div, maximum, mul, neg, sqrt, sub
from ..compiler.ops.table import OpError
from ..runtime.eager.update import count_steps, update, update_again
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


class Adam(Optimizer):
    """Steps scaled by running averages of the gradient and of its square:

        g = gradient + weight_decay * parameter           (minus the gradient if `maximize`)
        m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g * g
        parameter = parameter - lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    With `decoupled_weight_decay` the gradient is left alone and the parameter is multiplied by 1 - lr * weight_decay
    first. With `amsgrad` the largest v so far takes the place of v. The state of a parameter: "step" (t, an int),
    "exp_avg" (m), "exp_avg_sq" (v), "max_exp_avg_sq".
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
    ):
        require_rate(lr)
        require(eps >= 0, f"Invalid epsilon value: {eps}")
        for k in (0, 1):
            require(0 <= betas[k] < 1, f"Invalid beta parameter at index {k}: {betas[k]}")
        require(weight_decay >= 0, f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            **implementation(foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused),
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    _known_as = "Adam"  # in errors, where AdamW is one too

    @staticmethod
    def _formulas(group, step, number, *_):
        return _numbers(group, step, number)

    def update_group(self, group):
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")
        step = count_steps(group["params"], self.state)
        if step is not None:
            numbers = _numbers(group, step)
            if update_again(adam, group["params"], self.state, names, numbers, **_flags(group)):
                return
        rows_at = defaultdict(list)
        for param, grad in with_gradients(group):
            state = self.state[param]
            if not state:
                start_state(state, param, names)
            rows_at[count_step(state) if step is None else step].append((param, grad, *[state[name] for name in names]))
        for step, rows in rows_at.items():
            update(adam, rows, _numbers(group, step), **_flags(group))


class AdamW(Adam):
    """Adam with decoupled weight decay: the penalty does not pass through the averages."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        options = implementation(foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused)
        options.update(maximize=maximize, decoupled_weight_decay=True)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)


def _numbers(group, step, number=float):
    lr, (beta1, beta2) = number(group["lr"]), group["betas"]
    weight_decay = float(group["weight_decay"])
    penalty = 1.0 - lr * weight_decay if group["decoupled_weight_decay"] else weight_decay
    mean_weight, step_size = blend_weight(1.0 - beta1), lr / (1.0 - beta1**step)
    return penalty, mean_weight, float(beta2), 1.0 - beta2, step_size, (1.0 - beta2**step) ** 0.5, float(group["eps"])


def _flags(group):
    kind = "decoupled" if group["decoupled_weight_decay"] else "penalty"
    return {
        "decay": kind if group["weight_decay"] != 0 else None,
        "amsgrad": group["amsgrad"],
        "maximize": group["maximize"],
        "near": starts_near(1.0 - group["betas"][0]),
    }


# (1 - t) x + t y is computed from the nearer of x and y, which is exact there (PyTorch's lerp). Rules cannot branch on
# t, a number known only at run time: the caller decides, and hands over the distance from the chosen end.
def starts_near(t):
    """Whether x is the nearer end."""
    return abs(t) < 0.5


def blend_weight(t):
    """The distance from the nearer end."""
    return t if starts_near(t) else 1.0 - t


def blend(x, y, weight, near):
    check_blended(x, y)
    return add(x, mul(sub(y, x), weight)) if near else sub(y, mul(sub(y, x), weight))


def check_blended(x, y):
    """OpError for a state of another type than its gradient."""
    if x.dtype is not y.dtype:
        raise OpError(
            f"optimizer step: expected dtype {x.dtype.name} for `end` (the gradient) but got dtype {y.dtype.name}: the "
            "state was made when the parameter had another type. Convert it with "
            "optimizer.load_state_dict(optimizer.state_dict()), or make a new optimizer"
        )


def adam(param, grad, mean, square, *rest, decay, amsgrad, maximize, near):
    """`rest`: the largest square so far if `amsgrad`, then the numbers of `_numbers`."""
    largest, numbers = (rest[0], rest[1:]) if amsgrad else (None, rest)
    penalty, mean_weight, old_square_share, new_square_share, step_size, square_correction, eps = numbers
    if maximize:
        grad = neg(grad)
    if decay == "decoupled":
        param = mul(param, penalty)
    elif decay == "penalty":
        grad = add(grad, mul(param, penalty))
    mean = blend(mean, grad, mean_weight, near)
    square = stored(add(mul(square, old_square_share), mul(mul(widened(grad, square), new_square_share), grad)), square)
    if amsgrad:
        largest = stored(maximum(largest, square), largest)
    denominator = add(div(sqrt(largest if amsgrad else square), square_correction), eps)
    param = sub(param, div(mul(widened(widened(mean, param), denominator), step_size), denominator))
    return (param, None, mean, square, largest) if amsgrad else (param, None, mean, square)
