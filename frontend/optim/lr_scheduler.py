"""Learning-rate schedules: they set `lr` in the optimizer's groups, once per call of `step()`.

Formulas are PyTorch's chainable forms: the next rate from the present one, so that schedulers combine.
"""

import math
from collections import Counter

from ..absent import attribute_of
from .optimizer import Optimizer

__getattr__ = attribute_of(__name__)


class LRScheduler:
    """Base of the schedules. `last_epoch` counts calls of step(); the constructor makes the first one.

    Subclasses define `next_rates()`, the rate of every group for the present `last_epoch` (1, 2, ...), or `get_lr()`
    for all of them.
    """

    def __init__(self, optimizer, last_epoch=-1):
        _require_optimizer(optimizer)
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group["initial_lr"] = group["lr"]
            elif "initial_lr" not in group:
                raise KeyError(
                    "param 'initial_lr' is not specified in "
                    f"param_groups[{k}] when resuming scheduler with last_epoch >= 0"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def step(self):
        """Set the rates of the next epoch. Call it after the optimizer's step."""
        self.last_epoch += 1
        rates = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = self._present()

    def get_lr(self):
        """The rates for the present `last_epoch` (0, 1, ...). Schedules of users define it, as in PyTorch."""
        return self.next_rates() if self.last_epoch > 0 else self.first_rates()

    def first_rates(self):
        """The rates before the first step()."""
        return self._present()

    def next_rates(self):
        raise NotImplementedError(f"{type(self).__name__} must define get_lr()")

    def get_last_lr(self):
        """The present rate of every group."""
        return self._last_lr

    def state_dict(self):
        """Everything but the optimizer and functions."""
        return {key: value for key, value in vars(self).items() if key != "optimizer" and not _holds_function(value)}

    def load_state_dict(self, state_dict):
        vars(self).update(state_dict)

    def _present(self):
        return [group["lr"] for group in self.optimizer.param_groups]


_LRScheduler = LRScheduler  # PyTorch's older name


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(epoch); one function for all groups, or a list with one per group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        _require_optimizer(optimizer)
        count = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def next_rates(self):
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas)]

    first_rates = next_rates


class StepLR(LRScheduler):
    """Times gamma every `step_size` epochs."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def next_rates(self):
        factor = self.gamma if self.last_epoch % self.step_size == 0 else 1
        return [rate * factor for rate in self._present()]


class MultiStepLR(LRScheduler):
    """Times gamma at every epoch in `milestones` (twice if it is there twice)."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def next_rates(self):
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [rate * factor for rate in self._present()]


class ExponentialLR(LRScheduler):
    """Times gamma every epoch."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def next_rates(self):
        return [rate * self.gamma for rate in self._present()]


class LinearLR(LRScheduler):
    """The initial rate times a factor that moves from start_factor to end_factor in `total_iters` epochs."""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        """The rates for the present `last_epoch` (0, 1, ...). Schedules of users define it, as in PyTorch."""
        return self.next_rates() if self.last_epoch > 0 else self.first_rates()

    def first_rates(self):
        return [rate * self.start_factor for rate in self._present()]

    def next_rates(self):
        if self.last_epoch > self.total_iters:
            return self._present()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return [rate * (1.0 + rise / before) for rate in self._present()]


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to eta_min along half a cosine of T_max epochs (Loshchilov and Hutter, 1608.03983).

    T_max is PyTorch's spelling.
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def next_rates(self):
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # The quotient below would be 0 / 0 here: the cosine begins to rise again.
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * rise for rate, base in zip(self._present(), self.base_lrs)]
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in self._present()]


class ReduceLROnPlateau:
    """Times `factor` when the metric given to step() has not become better for more than `patience` epochs.

    Better: below (mode "min") or above ("max") the best so far by `threshold`, relative ("rel") or absolute ("abs").
    After a reduction `cooldown` epochs are not counted. A rate never goes below min_lr, nor changes by less than eps.
    """

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        _require_optimizer(optimizer)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ValueError(f"expected {count} min_lrs, got {len(self.min_lrs)}")
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0

    def step(self, metrics):
        """Tell the metric of an epoch: a number or a tensor with one element."""
        current = float(metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self):
        """The present rate of every group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self):
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict):
        vars(self).update(state_dict)

    def _is_better(self, current):
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            bound = self.best * (1.0 + sign * self.threshold)
        else:
            bound = self.best + sign * self.threshold
        return current < bound if self.mode == "min" else current > bound

    def _reduce(self):
        for group, low in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            rate = max(group["lr"] * self.factor, low)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate


def _require_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _holds_function(value):
    return isinstance(value, list) and any(callable(x) for x in value)
