"""Stochastic gradient descent (Robbins and Monro 1951), with momentum (Polyak 1964; Sutskever et al. 2013)."""

from ..compiler.ops.arithmetic import add, mul, neg, sub
from ..creation import zeros_like
from ..runtime.eager.update import remember, update, update_again
from ..runtime.state.marks import pure
from .optimizer import Optimizer, implementation, require, require_rate, stored, widened, with_gradients

_STATE = ("momentum_buffer",)


class SGD(Optimizer):
    """Gradient descent:

        d = gradient + weight_decay * parameter           (minus the gradient if `maximize`)
        b = momentum * b + (1 - dampening) * d            (b = d in the first step)
        d = d + momentum * b if `nesterov` else b
        parameter = parameter - lr * d

    The state of a parameter is its "momentum_buffer" b, if momentum is not 0.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        require_rate(lr)
        require(momentum >= 0, f"Invalid momentum value: {momentum}")
        require(weight_decay >= 0, f"Invalid weight_decay value: {weight_decay}")
        require(
            not nesterov or (momentum > 0 and dampening == 0),
            "Nesterov momentum requires a momentum and zero dampening",
        )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            **implementation(foreach=foreach, differentiable=differentiable, fused=fused),
        }
        super().__init__(params, defaults)

    @staticmethod
    def _formulas(group, step=None, number=float, *_):
        numbers = (number(group["lr"]), float(group["weight_decay"]))
        return (*numbers, float(group["momentum"]), 1.0 - group["dampening"]) if group["momentum"] != 0 else numbers

    @pure()
    def update_group(self, group):
        numbers = self._formulas(group)
        flags = {"decay": group["weight_decay"] != 0, "maximize": group["maximize"]}
        if group["momentum"] == 0:
            if not update_again(sgd, group["params"], self.state, (), numbers, **flags):
                update(sgd, with_gradients(group), numbers, **flags)
            return
        flags["nesterov"] = group["nesterov"]
        if update_again(sgd_momentum, group["params"], self.state, _STATE, numbers, first=False, **flags):
            return
        starting, moving = self._rows(group)
        update(sgd_momentum, starting, numbers, first=True, **flags)
        for param, _, buffer in starting:
            # Only now: a buffer that is there is taken for one that holds a direction.
            remember(self.state[param])
            self.state[param]["momentum_buffer"] = buffer
        update(sgd_momentum, moving, numbers, first=False, **flags)

    def update_sparse(self, group, param, grad):
        """One step for the rows of a parameter that its gradient keeps, and with momentum those that it has kept."""
        if group["weight_decay"] != 0:
            raise RuntimeError(
                "SGD: weight_decay is not compatible with sparse gradients, which would become dense; leave it out, or "
                "make the gradient dense: param.grad = param.grad.to_dense()"
            )
        grad = (-grad if group["maximize"] else grad).coalesce()
        if group["momentum"] != 0:
            state = self.state[param]
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = grad.clone()
            else:
                buffer = (buffer * group["momentum"]).add(grad, alpha=1 - group["dampening"])
            remember(state)
            state["momentum_buffer"] = buffer
            grad = grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        param.add_(grad, alpha=-group["lr"])

    def _rows(self, group):
        """(parameter, gradient, buffer) with buffers made now, and with buffers that hold a direction already."""
        starting, moving = [], []
        states = self.state
        for param, grad in with_gradients(group):
            buffer = states[param].get("momentum_buffer")
            if buffer is None:
                starting.append((param, grad, zeros_like(param)))
            else:
                moving.append((param, grad, buffer))
        return starting, moving


def ascent_or_descent(param, grad, weight_decay, *, decay, maximize):
    """The gradient of what is minimised: negated for `maximize`, with the derivative of the weight penalty."""
    if maximize:
        grad = neg(grad)
    return add(grad, mul(param, weight_decay)) if decay else grad


def sgd(param, grad, lr, weight_decay, *, decay, maximize):
    direction = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    return sub(param, mul(direction, lr)), None


def sgd_momentum(param, grad, buffer, lr, weight_decay, momentum, share, *, decay, maximize, nesterov, first):
    """`share` of the direction, 1 - dampening, enters the buffer; in the first step all of it does."""
    direction = ascent_or_descent(param, grad, weight_decay, decay=decay, maximize=maximize)
    if first:
        buffer = direction
    else:
        buffer = stored(add(mul(buffer, momentum), mul(widened(direction, buffer), share)), buffer)
    direction = add(direction, mul(widened(buffer, direction), momentum)) if nesterov else buffer
    return sub(param, mul(widened(direction, param), lr)), None, buffer
