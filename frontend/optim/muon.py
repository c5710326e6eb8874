"""Muon (Jordan 2024; Liu et al., 2502.16982): steps for matrices along directions without preferred axes."""

import math

from ..added_products import addmm
from ..compiler.dtypes import bfloat16
from ..creation import zeros_like
from ..runtime.eager.update import remember
from .optimizer import Optimizer, at_once, require, with_gradients

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_RATES = (None, "original", "match_rms_adamw")


class Muon(Optimizer):
    """Steps along the nearest matrix with orthonormal rows or columns, approximately:

        b = b + (1 - momentum) * (gradient - b)
        d = gradient + momentum * (b - gradient) if `nesterov` else b
        parameter = (1 - lr * weight_decay) * parameter - lr * rate * orthogonalized(d)

    rate is sqrt(max(1, rows / columns)), or 0.2 * sqrt(max(rows, columns)) for adjust_lr_fn="match_rms_adamw", with
    which learning rates are those of AdamW. All parameters are matrices; give the others to another optimizer. The
    state of a parameter is its "momentum_buffer" b.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=COEFFICIENTS,
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        require(lr >= 0, f"Learning rate should be >= 0 but is: {lr}")
        require(momentum >= 0, f"momentum should be >= 0 but is: {momentum}")
        require(weight_decay >= 0, f"weight decay should be >= 0 but is: {weight_decay}")
        require(adjust_lr_fn in _RATES, f"Adjust learning rate function {adjust_lr_fn} is not supported")
        require(len(ns_coefficients) == 3, "Coefficients must be a tuple of exactly 3 values")
        require(ns_steps < 100, "Number of steps must be less than 100 for computational efficiency")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)

    def _check_new(self, group):
        for param in group["params"]:
            require(
                param.ndim == 2,
                f"Muon only supports 2D parameters whereas we found a parameter with size: {param.size()}; give it to "
                "another optimizer",
            )
        super()._check_new(group)

    def update_group(self, group):
        lr, momentum = float(group["lr"]), float(group["momentum"])
        for param, grad in with_gradients(group):
            if param.dtype.is_complex:
                raise RuntimeError("Muon does not support complex parameters; train weft.view_as_real(z)")
            buffer = self._buffer(param)
            buffer.lerp_(grad, 1.0 - momentum)
            direction = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            step = orthogonalized(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
            param.mul_(1.0 - lr * float(group["weight_decay"]))
            param.add_(step.to(param.dtype), alpha=-lr * _rate(group["adjust_lr_fn"], *param.shape))

    def _buffer(self, param):
        values = self.state[param]
        if "momentum_buffer" not in values:
            # What a failing compiled call must take back.
            remember(values)
            values["momentum_buffer"] = at_once(zeros_like, param)
        return values["momentum_buffer"]


def _rate(kind, rows, columns):
    """How much longer the step of a matrix is for its shape."""
    return 0.2 * math.sqrt(max(rows, columns)) if kind == "match_rms_adamw" else math.sqrt(max(1.0, rows / columns))


def orthogonalized(matrix, coefficients, steps, eps):
    """U S V^T -> about U V^T, in bfloat16: Newton and Schulz's iteration x -> a x + (b g + c g g) x with g = x x^T.

    The coefficients make small singular values grow fast; all end somewhere between 0.5 and 1.5.
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(bfloat16)
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x
