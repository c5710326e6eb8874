"""L-BFGS (Nocedal, "Updating quasi-Newton matrices with limited storage", Math. Comp. 35, 1980)."""

from ..compiler.ops.complex_numbers import view_as_real
from ..creation import zeros_like
from ..runtime.eager.update import remember
from ..runtime.state.modes import enable_grad, no_grad
from ..shaping import cat
from .line_search import CURVATURE, DECREASE, Point, Start, cubic_minimum, strong_wolfe
from .optimizer import Optimizer, require, require_rate

_LEAST_CURVATURE = 1e-10  # of a step that is remembered


class LBFGS(Optimizer):
    """Quasi-Newton steps: the direction is -H g, where H approximates the inverse of the Hessian by the last
    `history_size` steps and changes of the gradient.

    `step(closure)` makes up to max_iter of them; the closure clears gradients, computes the loss, calls backward and
    returns the loss, which happens max_eval times at most (5/4 of max_iter unless given). line_search_fn: None for
    steps of length lr, or "strong_wolfe". It ends early where no element of the gradient is above tolerance_grad, or
    the step or the change of the loss is below tolerance_change.

    There is one group of parameters; the state is that of its first.
    """

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    ):
        require_rate(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        require(len(self.param_groups) == 1, "LBFGS doesn't support per-parameter options (parameter groups)")

    def step(self, closure):
        """Up to max_iter steps. Returns the first loss."""
        if self.param_groups[0]["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        with no_grad():
            return _Descent(self, closure).run()


class _Descent:
    """One call of step(): the present loss and gradient, and the state while it changes."""

    def __init__(self, optimizer, closure):
        self.group, self.closure = optimizer.param_groups[0], closure
        self.params = self.group["params"]
        self.kept = optimizer.state[self.params[0]]
        self.state = {"func_evals": 0, "n_iter": 0, **self.kept}
        self.calls = 0

    def run(self):
        first_loss = self.call()
        self.loss, self.gradient = float(first_loss), self.flat_gradient()
        if not self.is_flat():
            for left in reversed(range(self.group["max_iter"])):
                if self.iterate(left == 0):
                    break
        remember(self.kept)
        self.kept.update(self.state)
        return first_loss

    def iterate(self, is_last):
        """One step; whether it was the last one that is worth it."""
        group, state = self.group, self.state
        state["n_iter"] += 1
        direction = state["d"] = self.direction()
        length, slope = self.first_length(), (self.gradient * direction).sum().item()
        state["prev_flat_grad"], state["prev_loss"], state["t"] = self.gradient, self.loss, length
        if slope > -group["tolerance_change"]:
            return True
        if group["line_search_fn"] is not None:
            self.search(direction, length, slope)
        else:
            self.move(direction, length)
            if not is_last:
                self.loss, self.gradient = float(self.call()), self.flat_gradient()
        return (
            is_last
            or self.calls >= group["max_eval"]
            or self.is_flat()
            or (direction * state["t"]).abs().max().item() <= group["tolerance_change"]
            or abs(self.loss - state["prev_loss"]) < group["tolerance_change"]
        )

    def direction(self):
        """-H g, by the two loops over the history."""
        state = self.state
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -self.gradient
        self.remember_step()
        direction, weights = -self.gradient, []
        history = list(zip(state["old_dirs"], state["old_stps"], state["ro"]))
        for change, step, inverse in reversed(history):
            weights.append((step * direction).sum() * inverse)
            direction = direction - change * weights[-1]
        direction = direction * state["H_diag"]
        for (change, step, inverse), weight in zip(history, reversed(weights)):
            direction = direction + step * (weight - (change * direction).sum() * inverse)
        return direction

    def remember_step(self):
        """Add the last step to the history, if the loss curves upwards along it."""
        state, size = self.state, self.group["history_size"]
        change, step = self.gradient - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = (change * step).sum().item()
        if curvature <= _LEAST_CURVATURE:
            return
        for name, value in (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / curvature)):
            # The lists of the call before stay as they are, should this one fail.
            state[name] = [*state[name], value][-size:]
        state["H_diag"] = curvature / (change * change).sum().item()

    def first_length(self):
        lr = float(self.group["lr"])
        if self.state["n_iter"] > 1:
            return lr
        return min(1.0, 1.0 / self.gradient.abs().sum().item()) * lr

    def search(self, direction, length, slope):
        """Move by a length that the line search finds."""
        start, group = [param.clone() for param in self.params], self.group

        def point_at(length):
            self.move(direction, length)
            loss, gradient = float(self.call()), self.flat_gradient()
            for param, value in zip(self.params, start):
                param.copy_(value)
            return Point(length, loss, gradient, (gradient * direction).sum().item())

        size, left = direction.abs().max().item(), group["max_eval"] - self.calls
        here = Start(0.0, self.loss, self.gradient, slope)
        found = strong_wolfe(point_at, here, length, size, group["tolerance_change"], left)
        self.loss, self.gradient, self.state["t"] = found.loss, found.gradient, found.length
        self.move(direction, found.length)

    def move(self, direction, length):
        """Add length * direction to the parameters."""
        begin = 0
        for param in map(_real, self.params):
            end = begin + param.numel()
            param.add_(direction[begin:end].view_as(param) * length)
            begin = end

    def call(self):
        self.calls += 1
        self.state["func_evals"] += 1
        with enable_grad():
            return self.closure()

    def flat_gradient(self):
        """The gradients of all parameters as one vector."""
        return cat([_flat(param) for param in self.params])

    def is_flat(self):
        return self.gradient.abs().max().item() <= self.group["tolerance_grad"]


def _flat(param):
    return _real(zeros_like(param) if param.grad is None else param.grad).reshape(-1)


def _real(x):
    """Of complex numbers real and imaginary parts, as numbers of their own."""
    return view_as_real(x) if x.dtype.is_complex else x


# --- by the names that minimizers written for PyTorch import ----------------------------------------------------------
def _cubic_interpolate(x1, f1, g1, x2, f2, g2, bounds=None):
    low, high = sorted((float(x1), float(x2))) if bounds is None else map(float, bounds)
    first, second = (Point(float(x), float(f), None, float(g)) for x, f, g in ((x1, f1, g1), (x2, f2, g2)))
    return cubic_minimum(first, second, (low, high))


def _strong_wolfe(
    obj_func, x, t, d, f, g, gtd, c1=DECREASE, c2=CURVATURE, tolerance_change=1e-9, max_ls=25
):  # fmt: skip
    """(loss, gradient, length, number of evaluations) of a step from x along d; obj_func(x, length, d): (loss,
    gradient)."""
    n_calls = 0

    def point_at(length):
        nonlocal n_calls
        n_calls += 1
        loss, gradient = obj_func(x, length, d)
        return Point(length, float(loss), gradient, gradient.dot(d).item())

    here = Start(0.0, float(f), g, float(gtd), c1, c2)
    found = strong_wolfe(point_at, here, t, d.abs().max().item(), tolerance_change, max_ls)
    return found.loss, found.gradient, found.length, n_calls
