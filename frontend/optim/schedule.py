"""What all schedules share: they set `lr` in the optimizer's groups, once per call of `step()`.

    step()               last_epoch + 1, then the rates of get_lr()
    step(epoch)          last_epoch = epoch, then those of _get_closed_form_lr() where a schedule has it

Formulas of get_lr are PyTorch's chainable forms, the next rate from the present one, so that schedules combine.
"""

from types import FunctionType

from ..runtime.state.tensor import Tensor
from .optimizer import Optimizer


class LRScheduler:
    """Base of the schedules. `last_epoch` counts calls of step(); the constructor makes the first one.

    Subclasses define `get_lr()`, the rates of all groups for the present `last_epoch` (0, 1, ...). `_is_initial` is
    true while the constructor asks.
    """

    _is_initial = _get_lr_called_within_step = False
    _functions = ()  # attributes that are functions or lists of them

    def __init__(self, optimizer, last_epoch=-1):
        require_optimizer(optimizer)
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", value_of(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    "param 'initial_lr' is not specified in "
                    f"param_groups[{k}] when resuming scheduler with last_epoch >= 0"
                )
        self.base_lrs = present(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def step(self, epoch=None):
        """Set the rates of the next epoch, or of the one given. Call it after the optimizer's step."""
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _set_rates(self, rates):
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = self._present()

    def get_lr(self):
        raise NotImplementedError(f"{type(self).__name__} must define get_lr()")

    def get_last_lr(self):
        """The present rate of every group."""
        return self._last_lr

    def state_dict(self):
        """Everything but the optimizer. Of functions nothing is kept, and of other objects that are called their
        attributes."""
        kept = {key: value for key, value in vars(self).items() if key not in ("optimizer", *self._functions)}
        for name in self._functions:
            kept[name] = _each(_attributes, getattr(self, name))
        return kept

    def load_state_dict(self, state_dict):
        """Take over the result of `state_dict`."""
        for name in self._functions:
            saved, present_ones = state_dict[name], getattr(self, name)
            for value, function in zip(saved, present_ones) if isinstance(saved, list) else [(saved, present_ones)]:
                if value is not None:
                    vars(function).update(value)
        vars(self).update({key: value for key, value in state_dict.items() if key not in self._functions})

    def _present(self):
        return present(self.optimizer, "lr")


def require_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def present(optimizer, name):
    """The option of this name in every group."""
    return [value_of(group[name]) for group in optimizer.param_groups]


def value_of(rate):
    """A rate that stays as it is: one kept in a tensor is changed there."""
    return rate.clone() if isinstance(rate, Tensor) else rate


def set_rate(group, rate):
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(float(rate))
    else:
        group["lr"] = rate


def for_each_group(name, optimizer, value):
    """One value per group, of one for all or a list of them. ValueError if the list has another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {count}."
        )
    return list(value)


def _each(function, value):
    return [function(x) for x in value] if isinstance(value, list) else function(value)


def _attributes(x):
    """What a state keeps of something that is called."""
    return None if x is None or isinstance(x, FunctionType) else vars(x).copy()
