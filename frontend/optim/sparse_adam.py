"""Adam of sparse gradients: averages of rows that were not read stay what they are."""

import math

from .optimizer import Optimizer, count_step, require, start_state


class SparseAdam(Optimizer):
    """Adam's step for the rows that a sparse gradient keeps; the others, their averages included, do not change:

        m = m + (1 - beta1) * (g - m),   v = v + (1 - beta2) * (g * g - v)             (-g if `maximize`)
        parameter = parameter - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps)

    For parameters with sparse gradients, as of `nn.Embedding(..., sparse=True)`; RuntimeError for a dense one. The
    state of a parameter: "step" (t, an int), "exp_avg" (m), "exp_avg_sq" (v).
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        require(lr > 0, f"Invalid learning rate: {lr}")
        require(eps > 0, f"Invalid epsilon value: {eps}")
        for k in (0, 1):
            require(0 <= betas[k] < 1, f"Invalid beta parameter at index {k}: {betas[k]}")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "maximize": maximize})
        if any(not p.has_array for group in self.param_groups for p in group["params"]):
            raise ValueError("SparseAdam requires dense parameter tensors")

    def update_group(self, group):
        if any(param._grad is not None for param in group["params"]):
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")

    def update_sparse(self, group, param, grad):
        """One step for the rows of a parameter that its gradient keeps."""
        state = self.state[param]
        if not state:
            start_state(state, param, ("exp_avg", "exp_avg_sq"))
        step, (beta1, beta2) = count_step(state), group["betas"]
        grad = (-grad if group["maximize"] else grad).coalesce()
        values = grad._values()
        if not values.numel():
            return
        mean, square = (state[name].sparse_mask(grad)._values() for name in ("exp_avg", "exp_avg_sq"))
        mean_change, square_change = (values - mean) * (1 - beta1), (values * values - square) * (1 - beta2)
        state["exp_avg"].add_(grad._with(mean_change))
        state["exp_avg_sq"].add_(grad._with(square_change))
        step_size = group["lr"] * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        denominator = (square_change + square).sqrt() + group["eps"]
        param.add_(grad._with((mean_change + mean) / denominator * -step_size))
