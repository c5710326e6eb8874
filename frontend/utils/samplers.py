"""Samplers: which samples a DataLoader reads, in what order. Any iterable of indices is one.

A loader walks its sampler as it needs indices and never makes a list of it, so a sampler may be endless, and may decide
by what the training has done so far.
"""

from itertools import islice

import numpy as np

from ..compiler import dtypes
from ..creation import as_tensor
from ..runtime.distributed.group import world
from ..runtime.state import random


class Sampler:
    """Subclass it with `__iter__`, and with `__len__` if the length is known."""

    def __class_getitem__(cls, kind):
        return cls

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler):
    """0, 1, ... to the length of a dataset."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)

    def whole_order(self):
        """The indices of a pass as an array; None where only walking gives them."""
        return np.arange(len(self.data_source))


class RandomSampler(Sampler):
    """The positions of a dataset in a new random order every time, from `generator` or else from weft's own.

    num_samples: how many, the dataset's length if None; more than that begin the next order. replacement: draw each
    position by itself.
    """

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        _require_bool("replacement", replacement, TypeError)
        _require_positive("num_samples", self.num_samples)

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        size, left = len(self.data_source), self.num_samples
        while left > 0:
            order = self._draws(size, min(left, 1024)) if self.replacement else self._order(size)
            yield from order[:left].tolist()
            left -= len(order)

    def whole_order(self):
        """The indices of a pass as an array; None where only walking gives them."""
        return self._order(len(self)) if self._num_samples is None and not self.replacement else None

    def _order(self, size):
        return random.permutation(size, self.generator)

    def _draws(self, size, count):
        return (random.uniform((count,), dtypes.float64, self.generator).array * size).astype(np.int64)

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given indices in a new random order every time."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for k in random.permutation(len(self.indices), self.generator).tolist():
            yield self.indices[k]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """num_samples positions, each drawn with a probability proportional to its weight; without replacement, each once
    at most (Efraimidis and Spirakis, Information Processing Letters 97, 2006)."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        _require_positive("num_samples", num_samples)
        _require_bool("replacement", replacement, ValueError)
        self.weights = as_tensor(weights, dtype=dtypes.float64)
        if self.weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {self.weights.shape}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        weights = self.weights.detach().array
        _check_weights(weights, self.num_samples, self.replacement)
        count = self.num_samples if self.replacement else len(weights)
        draws = random.uniform((count,), dtypes.float64, self.generator).array
        if self.replacement:
            ends = np.cumsum(weights)
            return iter(np.searchsorted(ends, draws * ends[-1], side="right").tolist())
        with np.errstate(divide="ignore"):
            times = -np.log1p(-draws) / weights
        return iter(np.argsort(times, kind="stable")[: self.num_samples].tolist())

    def __len__(self):
        return self.num_samples


def _check_weights(weights, count, replacement):
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise RuntimeError("WeightedRandomSampler: weights must be finite, not negative, and not all 0")
    possible = int((weights > 0).sum())
    if not replacement and count > possible:
        raise RuntimeError(
            f"WeightedRandomSampler: cannot draw num_samples={count} without replacement from {possible} positions "
            "whose weight is not 0; draw fewer, or with replacement=True"
        )


class BatchSampler(Sampler):
    """Lists of batch_size indices of another sampler; the last may be shorter, or is left out with drop_last."""

    def __init__(self, sampler, batch_size, drop_last):
        _require_positive("batch_size", batch_size)
        _require_bool("drop_last", drop_last, ValueError)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


class DistributedSampler(Sampler):
    """The share of process `rank` of `num_replicas`: every num_replicas-th position of an order that all of them know.

    The order is that of `seed` and the epoch, which `set_epoch` tells before every pass; with shuffle=False it is
    0, 1, .... So that all shares are equal, the first positions come again at the end, or with drop_last the last are
    left out. Without the two numbers they are those of the process group, and a RuntimeError if there is none.
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        group = world.group
        if (num_replicas is None or rank is None) and group is None:
            raise RuntimeError(
                "DistributedSampler: there is no process group to ask; call weft.distributed.init_process_group('mpi') "
                "first, or pass num_replicas and rank"
            )
        num_replicas = group.n_ranks if num_replicas is None else num_replicas
        rank = group.place if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        whole, rest = divmod(len(dataset), num_replicas)
        self.num_samples = whole + (rest > 0 and not drop_last)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        size = len(self.dataset)
        order = np.arange(size)
        if self.shuffle:
            order = random.permutation(size, random.Generator().manual_seed(self.seed + self.epoch))
        return iter(np.resize(order, self.total_size)[self.rank :: self.num_replicas].tolist())

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """The pass that comes next: another order for every epoch."""
        self.epoch = epoch


def _require_positive(name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def _require_bool(name, value, error):
    if not isinstance(value, bool):
        raise error(f"{name} should be a boolean value, but got {name}={value}")
