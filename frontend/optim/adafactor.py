"""Adafactor (Shazeer and Stern, 1804.04235): adaptive steps whose state for a matrix is a row and a column."""

from collections import defaultdict

from ..compiler.dtypes import float32
from ..compiler.formula import exceeds, least
from ..compiler.ops.arithmetic import add, div, maximum, mul, neg, rsqrt, sqrt, sub
from ..compiler.ops.contraction import matmul
from ..compiler.ops.statistics import mean
from ..creation import zeros
from ..runtime.eager.update import remember, update
from .adam import check_blended
from .optimizer import Optimizer, at_once, chosen_by, count_step, implementation, require, with_gradients


class Adafactor(Optimizer):
    """Steps scaled by an estimate of the mean square of the gradient, for matrices the product of its means over
    columns and over rows:

        b = t^beta2_decay
        R = (1 - b) R + b mean(g^2, -1),   C = (1 - b) C + b mean(g^2, -2),   V = R C / max(mean(R, -2), eps1)
        u = g / sqrt(max(V, eps1^2))                      (g minus the gradient if `maximize`)
        parameter = (1 - lr * weight_decay) * parameter - a * u / max(1, rms(u) / d),
        a = max(eps2, rms(parameter)) * min(lr, 1 / sqrt(t))

    eps is (eps1, eps2); eps1 None stands for the type's epsilon. The state of a parameter: "step" (t, an int), and
    "row_var" (R) and "col_var" (C), or "variance" (V) if it has fewer than two dimensions.
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        eps=(None, 1e-3),
        d=1.0,
        weight_decay=0.0,
        *,
        foreach=None,
        maximize=False,
    ):
        require(lr >= 0, f"Learning rate should be >= 0 but is: {lr}")
        require(beta2_decay <= 0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        require(eps[0] is None or eps[0] >= 0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        require(eps[1] >= 0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        require(d >= 1, f"Clipping threshold d should be >= 1 but is: {d}")
        require(weight_decay >= 0, f"weight_decay should be >= 0 but is: {weight_decay}")
        implementation(foreach=foreach, differentiable=False)
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": tuple(eps),
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step, number, param, kept):
        return _numbers(group, step, param.dtype, number)

    def update_group(self, group):
        rows_at = defaultdict(list)
        for param, grad in with_gradients(group):
            state = self.state[param]
            if not state:
                remember(state)
                state.update(_start(param))
            kept = [state[name] for name in _names(param)]
            rows_at[count_step(state), param.dtype, len(kept)].append((param, grad, *kept))
        for (step, dtype, _), rows in rows_at.items():
            rule = by_rows_and_columns if len(rows[0]) == 4 else by_elements
            update(rule, rows, _numbers(group, step, dtype), maximize=group["maximize"])


def _names(param):
    return ("row_var", "col_var") if param.ndim > 1 else ("variance",)


def _start(param):
    """No steps so far, and zeros."""
    shape = tuple(param.shape)
    shapes = {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:]), "variance": shape}
    return {"step": 0, **{name: at_once(zeros, shapes[name], dtype=param.dtype) for name in _names(param)}}


def _numbers(group, step, dtype, number=float):
    eps1, eps2 = group["eps"]
    if eps1 is None:
        eps1 = 2.0**-23 if dtype is float32 else 2.0**-52
    lr, share = number(group["lr"]), step ** float(group["beta2_decay"])
    kept, rate = 1.0 - lr * float(group["weight_decay"]), least(lr, step**-0.5)
    numbers = kept, float(eps1), float(eps1) ** 2, float(eps2), rate, float(group["d"])
    return (*numbers, share, 1.0 - share, exceeds(0.5, share))


def _blended(x, y, share, rest, is_near):
    """PyTorch's lerp, which begins at the nearer end; which one that is is another one after some steps."""
    check_blended(x, y)
    way = sub(y, x)
    return chosen_by(is_near, add(x, mul(way, share)), sub(y, mul(way, rest)))


def by_rows_and_columns(param, grad, rows, columns, *numbers, maximize):
    """For matrices, and stacks of them."""
    kept, eps1, least_square, eps2, rate, limit, *shares = numbers
    if maximize:
        grad = neg(grad)
    last = len(grad.shape) - 1
    square = mul(grad, grad)
    rows = _blended(rows, mean(square, axes=(last,), keepdim=True), *shares)
    columns = _blended(columns, mean(square, axes=(last - 1,), keepdim=True), *shares)
    scale = maximum(mean(rows, axes=(last - 1,), keepdim=True), eps1)
    estimate = div(matmul(rows, columns), scale)
    return _moved(param, grad, estimate, kept, least_square, eps2, rate, limit), None, rows, columns


def by_elements(param, grad, variance, *numbers, maximize):
    """For vectors and numbers."""
    kept, _, least_square, eps2, rate, limit, *shares = numbers
    if maximize:
        grad = neg(grad)
    variance = _blended(variance, mul(grad, grad), *shares)
    return _moved(param, grad, variance, kept, least_square, eps2, rate, limit), None, variance


def _moved(param, grad, estimate, kept, least_square, eps2, rate, limit):
    """The parameter after a step along the scaled gradient."""
    length = mul(maximum(_root_mean_square(param), eps2), rate)
    step = mul(rsqrt(maximum(estimate, least_square)), grad)
    clipping = maximum(div(_root_mean_square(step), limit), 1.0)
    return sub(mul(param, kept), mul(step, div(length, clipping)))


def _root_mean_square(x):
    return sqrt(mean(mul(x, x), axes=tuple(range(len(x.shape))), keepdim=False))
