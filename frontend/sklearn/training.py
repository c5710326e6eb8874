"""One module in training: its optimizer, its step, its random numbers, and what was best so far."""

import copy
from contextlib import contextmanager
from functools import partial
from inspect import signature

import numpy as np

from ..autograd import no_grad
from ..compiled import compile
from ..creation import tensor
from ..nn.module import Module
from ..runtime.state.random import default_generator
from ..runtime.state.tensor import Tensor

# Compiling pays after some steps; before and after, the bits are the same.
COMPILED_AFTER_STEPS = 100
PREDICTED_ROWS = 4096


class Training:
    """A module and all that training it needs to go on later, in another process too.

    loss: a function of (outputs, targets). n_outputs: how many numbers the module must give for a sample; None if only
    the loss knows. seed: of everything that is drawn: first values, the order of samples,
    dropout. The program's own random numbers are not touched.
    """

    def __init__(self, make_module, make_optimizer, loss, n_outputs, seed):
        self.loss, self.n_outputs = loss, n_outputs
        self.order = np.random.RandomState(seed)
        self._random = None
        self.steps = 0
        with self._own_random(seed):
            self.module = make_module()
        self.optimizer = make_optimizer(self.module.parameters())
        self._compiled = None

    def __getstate__(self):
        return {**self.__dict__, "_compiled": None}

    @contextmanager
    def _own_random(self, seed=None):
        """weft's default generator goes on in the block where it was at the end of the last one."""
        before = default_generator.get_state()
        try:
            if seed is None:
                default_generator.set_state(self._random)
            else:
                default_generator.manual_seed(seed)
            yield
            self._random = default_generator.get_state()
        finally:
            default_generator.set_state(before)

    def epoch(self, inputs, targets, weights, batch_size):
        """One pass over the samples in a new order. The mean of the loss over them, by their weights if they have
        some, of which 1 is the mean."""
        self.module.train()
        rows = self.order.permutation(len(inputs))
        total = 0.0
        with self._own_random():
            for batch in _batches(rows, batch_size):
                arrays = (inputs, targets) if weights is None else (inputs, targets, weights)
                total += len(batch) * self._step(*[tensor(a[batch]) for a in arrays]).item()
        return total / len(rows)

    def _step(self, *batch):
        self.steps += 1
        if self._compiled is None and self.steps > COMPILED_AFTER_STEPS:
            self._compiled = compile(self._train)
        return (self._compiled or self._train)(*batch)

    def _train(self, x, y, weights=None):
        self.optimizer.zero_grad()
        loss = self._loss(self.outputs(x), y, weights)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _loss(self, outputs, y, weights):
        if weights is None:
            loss = self.loss(outputs, y)
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                raise ValueError(f"loss: it must return a tensor of one element, got {_description(loss)}")
            return loss
        each = _unreduced(self.loss)(outputs, y)
        if not isinstance(each, Tensor) or not each.ndim or len(each) != len(y):
            raise ValueError(
                f"loss: with a sample_weight and reduction='none' it must return a number for each of {len(y)} "
                f"samples, got {_description(each)}"
            )
        return (each.reshape(len(y), -1).mean(1) * weights).mean()

    def outputs(self, x):
        outputs = self.module(x)
        if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(x):
            raise ValueError(
                f"weft.sklearn: the module must return a tensor of shape (samples, outputs); for an input of shape "
                f"{tuple(x.shape)} it returned {_description(outputs)}"
            )
        if self.n_outputs not in (None, outputs.shape[1]):
            raise ValueError(
                f"weft.sklearn: the module must give {self.n_outputs} numbers for each sample, one for each class or "
                f"target; it returned {_description(outputs)}"
            )
        return outputs

    def predict(self, inputs):
        """The outputs of the module in evaluation, as an array."""
        self.module.eval()
        parts = [inputs[k : k + PREDICTED_ROWS] for k in range(0, len(inputs), PREDICTED_ROWS)]
        with no_grad(), self._own_random():
            return np.concatenate([self.outputs(tensor(part)).numpy() for part in parts])

    def loss_of(self, inputs, targets, weights):
        """The loss of samples, with nothing learnt from them."""
        with no_grad():
            weights = None if weights is None else tensor(weights / weights.mean())
            return self._loss(tensor(self.predict(inputs)), tensor(targets), weights).item()

    def state(self):
        return copy.deepcopy(self.module.state_dict())

    def restore(self, state):
        self.module.load_state_dict(state)


def make_module(module, n_inputs, n_outputs, options, dtype):
    """A new module: from a factory, or a copy of the one that was given."""
    if isinstance(module, Module):
        if options:
            raise ValueError("module_options: they are handed to a factory; the module that was given is already made")
        made = copy.deepcopy(module)
    else:
        made = module(n_inputs, n_outputs, **(options or {}))
        if not isinstance(made, Module):
            raise TypeError(f"module: the factory must return a weft.nn.Module, got {type(made).__name__}")
    return made.to(dtype)


def _unreduced(loss):
    """The loss, with a number for each sample."""
    if isinstance(loss, Module) and hasattr(loss, "reduction"):
        loss = copy.copy(loss)
        loss.reduction = "none"
        return loss
    try:
        parameters = signature(loss).parameters.values()
    except ValueError:
        parameters = ()
    if not any(p.name == "reduction" or p.kind is p.VAR_KEYWORD for p in parameters):
        raise ValueError(
            "sample_weight: the loss must take reduction='none', as those of weft.nn.functional do, and then return a "
            f"number for each sample; {getattr(loss, '__name__', loss)!r} does not"
        )
    return partial(loss, reduction="none")


def _description(x):
    return f"a tensor of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


def _batches(rows, size):
    """The rows in batches. A last one of one row, of which a batch norm makes nothing, is part of the one before."""
    ends = list(range(size, len(rows), size))
    if size > 1 and ends and len(rows) - ends[-1] == 1:
        ends.pop()
    return np.split(rows, ends)
