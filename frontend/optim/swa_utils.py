"""Averages of weights over training: stochastic weight averaging (Izmailov et al., 1803.05407) and exponential ones.

>>> import weft
>>> model = weft.nn.Linear(2, 1)
>>> averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
>>> averaged.update_parameters(model)
>>> averaged(weft.ones(3, 2)).shape
(3, 1)
"""

import copy
import math
from itertools import chain

from ..creation import tensor
from ..nn.module import Module
from ..nn.normalization import _BatchNorm
from ..public import of_module
from ..runtime.state.modes import no_grad
from .schedule import LRScheduler, for_each_group

__getattr__, __dir__ = of_module(__name__)

__all__ = [
    *("AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn"),
    "update_bn",
]


def get_ema_avg_fn(decay=0.999):
    """The function (average, value, count) -> decay * average + (1 - decay) * value."""
    _check_decay(decay)

    @no_grad()
    def ema_update(average, value, num_averaged):
        return decay * average + (1 - decay) * value

    return ema_update


def get_ema_multi_avg_fn(decay=0.999):
    """The same for lists of tensors, in place."""
    _check_decay(decay)

    @no_grad()
    def ema_update(averages, values, num_averaged):
        for average, value in zip(averages, values, strict=True):
            if average.is_floating_point():
                average.lerp_(value, 1 - decay)
            else:
                average.copy_(average * decay + value * (1 - decay))

    return ema_update


def get_swa_avg_fn():
    """The function (average, value, count) -> average of count + 1 values."""

    @no_grad()
    def swa_update(average, value, num_averaged):
        return average + (value - average) / (num_averaged + 1)

    return swa_update


def get_swa_multi_avg_fn():
    """The same for lists of tensors, in place."""
    update = get_swa_avg_fn()

    @no_grad()
    def swa_update(averages, values, num_averaged):
        for average, value in zip(averages, values, strict=True):
            average.copy_(update(average, value, num_averaged))

    return swa_update


def _check_decay(decay):
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


class AveragedModel(Module):
    """A copy of the model whose parameters are averages of the model's at the calls of update_parameters(model).

    avg_fn: a function of (average, value, how many so far); multi_avg_fn: of lists of them, in place; equal weights
    without both. With `use_buffers` buffers are averaged too, else they are those of the last model.
    """

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model).to(device=device)
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model):
        """Take the model's present parameters into the averages; the first time they are those."""
        averages, values = ([x.detach() for x in _averaged(m, self.use_buffers)] for m in (self.module, model))
        if self.n_averaged.item() == 0:
            _copy(averages, values)
        elif self.avg_fn is None:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, values, self.n_averaged)
        else:
            _copy(averages, [self.avg_fn(a, value, self.n_averaged) for a, value in zip(averages, values)])
        if not self.use_buffers:
            _copy(self.module.buffers(), model.buffers())
        self.n_averaged += 1


def _averaged(model, use_buffers):
    return chain(model.parameters(), model.buffers()) if use_buffers else model.parameters()


def _copy(targets, values):
    for target, value in zip(targets, values, strict=True):
        target.copy_(value)


@no_grad()
def update_bn(loader, model, device=None):
    """Compute the running statistics of all batch normalisations anew, from the batches of a loader.

    A batch is a tensor, or a list or tuple that begins with one.
    """
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        # All batches count the same.
        module.momentum = None
    try:
        for batch in loader:
            model((batch[0] if isinstance(batch, (list, tuple)) else batch).to(device=device))
    finally:
        for module, momentum in momenta.items():
            module.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From the present rate to swa_lr in anneal_epochs, along half a cosine ("cos") or a line ("linear")."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        for group, rate in zip(optimizer.param_groups, for_each_group("swa_lr", optimizer, swa_lr)):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        epoch = self._step_count - 1
        if self.anneal_epochs == 0:
            epoch = max(1, epoch)
        before, now = self._share(epoch - 1), self._share(epoch)
        rates = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates

    def _share(self, epoch):
        """How much of the way is done at an epoch."""
        share = max(0, min(1, epoch / max(1, self.anneal_epochs)))
        return share if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * share)) / 2
