"""Datasets, and the loader that cuts them into batches.

A batch is collated from samples. A TensorDataset, and a Subset of one, fetch a whole batch with one read per tensor
instead.

    >>> import weft
    >>> data = TensorDataset(weft.arange(5), weft.zeros(5, 2))
    >>> [(index.tolist(), rows.shape) for index, rows in DataLoader(data, batch_size=3)]
    [([0, 1, 2], (3, 2)), ([3, 4], (2, 2))]
"""

import math
import operator
from itertools import accumulate, chain, cycle, islice

import numpy as np

from ..compiler import dtypes
from ..compiler.ops import indexing, view
from ..compiler.ops.table import OpError
from ..creation import as_tensor, from_numpy, tensor
from ..placement import beside
from ..public import of_module
from ..runtime.state import random
from ..runtime.state.tensor import Tensor, tensor_of
from . import workers
from .samplers import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .workers import get_worker_info

__getattr__, __dir__ = of_module(__name__)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]


class Dataset:
    """Something with `len()` and samples by index: define `__len__` and `__getitem__`."""

    def __class_getitem__(cls, kind):
        return cls

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Samples one after the other, without indices: define `__iter__`."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other):
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """The samples of several IterableDatasets, one dataset after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)

    def __iter__(self):
        return chain.from_iterable(self.datasets)

    def __len__(self):
        return sum(map(len, self.datasets))


class TensorDataset(Dataset):
    """Samples (x[k], y[k], ...) of tensors with equally many rows."""

    def __init__(self, *tensors):
        if not tensors:
            raise ValueError("TensorDataset: no tensors given; it needs at least one")
        sizes = [t.shape[0] for t in tensors]
        if len(set(sizes)) > 1:
            raise AssertionError(f"Size mismatch between tensors: they have {', '.join(map(str, sizes))} rows")
        self.tensors = tensors

    def __len__(self):
        return self.tensors[0].shape[0]

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def batch(self, indices):
        """The samples at an int64 array of indices, stacked: one read per tensor."""
        return [_rows(t, indices) for t in self.tensors]


def _rows(tensor, indices):
    if tensor.requires_grad or tensor._data is None:
        return indexing.index_select(tensor, beside(from_numpy(indices), tensor), axis=0)
    # Straight from the array: 5 us instead of 24 for a batch of 32 rows of two tensors, and nothing to record.
    return tensor_of(tensor.array.take(indices, 0))


class StackDataset(Dataset):
    """Samples of several datasets side by side: tuples, or dicts if the datasets are given by names."""

    def __init__(self, *args, **kwargs):
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: give datasets either as arguments or by names, at least one")
        self.datasets = kwargs or args
        sizes = [len(dataset) for dataset in (kwargs.values() if kwargs else args)]
        if len(set(sizes)) > 1:
            raise ValueError(f"Size mismatch between datasets: they have {', '.join(map(str, sizes))} samples")
        self._length = sizes[0]

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)


class Subset(Dataset):
    """The samples of a dataset at given indices, in that order. A sequence of indices is kept, not copied."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices if hasattr(indices, "__getitem__") else list(indices)

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        return _samples(self.dataset, [self.indices[k] for k in indices])


def _samples(dataset, indices):
    """The samples at these indices, by `__getitems__` where a dataset has it: one call for all."""
    read = getattr(dataset, "__getitems__", None)
    return [dataset[k] for k in indices] if read is None else read(indices)


class ConcatDataset(Dataset):
    """Datasets one after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset; use ChainDataset, or a + b")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self):
        return self.cumulative_sizes[-1]

    @staticmethod
    def cumsum(sequence):
        """Where each of the datasets ends."""
        return list(accumulate(map(len, sequence)))

    def __getitem__(self, index):
        if index < 0:
            index += len(self)
        start = 0
        for dataset, end in zip(self.datasets, self.cumulative_sizes):
            if start <= index < end:
                return dataset[index - start]
            start = end
        raise IndexError(f"ConcatDataset: index is out of range for {len(self)} samples")


def random_split(dataset, lengths, generator=None):
    """Subsets of the given lengths, disjoint and in random order. Fractions that sum to 1 are lengths too."""
    lengths = _counts(list(lengths), len(dataset))
    if sum(lengths) != len(dataset):
        raise ValueError(
            f"Sum of input lengths does not equal the length of the input dataset: {sum(lengths)} and {len(dataset)}"
        )
    order = random.permutation(len(dataset), generator).tolist()
    ends = [sum(lengths[: k + 1]) for k in range(len(lengths))]
    return [Subset(dataset, order[end - length : end]) for length, end in zip(lengths, ends)]


def _counts(lengths, total):
    """Fractions as counts: rounded down, what is left goes to the first ones in turn (as in PyTorch)."""
    if not math.isclose(sum(lengths), 1) or sum(lengths) > 1 + 1e-9:
        return lengths
    if any(not 0 <= fraction <= 1 for fraction in lengths):
        raise ValueError(f"random_split: fractions {lengths} must lie between 0 and 1")
    counts = [math.floor(total * fraction) for fraction in lengths]
    for k in range(total - sum(counts)):
        counts[k % len(counts)] += 1
    return counts


class DataLoader:
    """Batches of a dataset, anew at every iteration.

    batch_size: samples per batch, the last one may be smaller (or is left out with drop_last); None: single samples.
    shuffle: in a new random order every time, drawn from `generator` or else from weft's own, so that
    weft.manual_seed decides it. sampler: any iterable of indices; batch_sampler: any iterable of lists of indices, a
    batch each; both are walked as batches are asked for. collate_fn: makes a batch from a list of samples,
    `default_collate` if not given (of single samples: `default_convert`). An IterableDataset is read in its own order.

    num_workers: samples are loaded by the calling thread, in the order and with the random numbers that so many workers
    would give (workers.py), and a warning says so once; what is about other devices changes nothing.
    """

    def __class_getitem__(cls, kind):
        return cls

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if num_workers:
            workers.say_once(num_workers)
        self._is_stream = isinstance(dataset, IterableDataset)
        if self._is_stream:
            _check_stream(shuffle, sampler, batch_sampler)
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            sampler = _default_sampler(dataset, shuffle, generator)
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last, self.generator = dataset, batch_size, drop_last, generator
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.num_workers, self.worker_init_fn, self.pin_memory = num_workers, worker_init_fn, pin_memory
        self.timeout, self.persistent_workers = timeout, persistent_workers
        self.prefetch_factor, self.multiprocessing_context = prefetch_factor, multiprocessing_context
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        single = batch_sampler is None
        self.collate_fn = (default_convert if single else default_collate) if collate_fn is None else collate_fn

    def __len__(self):
        if not self._is_stream:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        count = len(self.dataset)
        return count if self.batch_size is None else len(BatchSampler(range(count), self.batch_size, self.drop_last))

    def __iter__(self):
        if self.num_workers and (self.worker_init_fn is not None or not self._reads_rows()):
            return self._batches_of_workers()
        if self._is_stream:
            return self._batches_of_stream(self.dataset)
        if not self._auto_collation:
            return (self.collate_fn(self.dataset[k]) for k in self._index_sampler)
        if not self._reads_rows():
            return map(self._batch, self.batch_sampler)
        if type(self.batch_sampler) is BatchSampler:
            return self._batches_of_rows(self.batch_sampler)
        return map(self._rows, self.batch_sampler)

    @property
    def _auto_collation(self):
        """Whether samples are read one by one. Subclasses answer False, with a sampler of batches as `_index_sampler`,
        where their dataset reads a whole batch at once."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        """What a pass takes its indices from."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _reads_rows(self):
        """Whether a batch is one read per tensor: no code of a user's runs."""
        batched = self.batch_sampler is not None
        return batched and self.collate_fn is default_collate and _is_tensors(self.dataset)

    def _batch(self, indices):
        return self.collate_fn(_samples(self.dataset, indices))

    def _rows(self, indices):
        """The batch of a TensorDataset with one read per tensor."""
        indices = list(indices)
        try:
            positions = [operator.index(k) for k in indices]
        except TypeError:
            # Keys of another kind mean what they mean to the tensors.
            return self._batch(indices)
        return _rows_of(self.dataset, positions)

    def _batches_of_rows(self, batches):
        """The same where the order of a pass may be known as an array: its indices never become Python's ints, which
        takes most of the time of a batch."""
        sampler, size = batches.sampler, batches.batch_size
        order = sampler.whole_order() if type(sampler) in (SequentialSampler, RandomSampler) else None
        if order is None:
            yield from map(self._rows, batches)
            return
        for start in range(0, len(batches) * size, size):
            yield _rows_of(self.dataset, order[start : start + size])

    def _batches_of_workers(self):
        made = workers.workers(self, copied=self._is_stream)
        if self._is_stream:
            yield from workers.in_turn(made, [self._batches_of_stream(worker.info.dataset) for worker in made])
            return
        single = self.batch_sampler is None
        for worker, indices in zip(cycle(made), self.sampler if single else self.batch_sampler):
            with worker.at_work() as dataset:
                batch = self.collate_fn(dataset[indices]) if single else self._batch(indices)
            yield batch

    def _batches_of_stream(self, dataset):
        if self.batch_sampler is None:
            yield from map(self.collate_fn, dataset)
            return
        samples = iter(dataset)
        while batch := list(islice(samples, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield self.collate_fn(batch)


def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers):
    """ValueError for options about workers that contradict each other."""
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing. let num_workers > 0 to enable "
            "multiprocessing, otherwise set prefetch_factor to None."
        )
    if num_workers == 0 and persistent_workers:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle, sampler, batch_sampler):
    for name, value, is_given in (
        ("shuffle", shuffle, bool(shuffle)),
        ("sampler", sampler, sampler is not None),
        ("batch_sampler", batch_sampler, batch_sampler is not None),
    ):
        if is_given:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
            )


def _default_sampler(dataset, shuffle, generator):
    if isinstance(dataset, IterableDataset):
        return None
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


def _is_tensors(dataset):
    """Whether the samples are the rows of a TensorDataset, also under subsets."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return getattr(type(dataset), "__getitem__", None) is TensorDataset.__getitem__


def _rows_of(dataset, positions):
    while type(dataset) is Subset:
        positions = [dataset.indices[k] for k in positions]
        dataset = dataset.dataset
    return dataset.batch(np.asarray(positions, np.int64))


def default_collate(batch):
    """A list of samples as one batch: tensors, arrays and numbers are stacked, tuples, lists and dicts entry by entry,
    strings listed. TypeError for anything else."""
    first = batch[0]
    if isinstance(first, Tensor):
        _check_equal("tensor", batch)
        return view.stack(*batch, axis=0)
    if isinstance(first, (np.ndarray, np.generic)):
        _check_equal("array", batch)
        return tensor(np.stack(batch))
    if isinstance(first, float):
        return tensor(batch, dtype=dtypes.float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, dict):
        return type(first)((key, default_collate([sample[key] for sample in batch])) for key in first)
    if isinstance(first, (tuple, list)):
        return _collate_sequences(batch)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__name__}; give DataLoader a collate_fn"
    )


def _check_equal(noun, batch):
    """What is stacked must have one shape; lengths that differ are the usual case."""
    for k, x in enumerate(batch):
        if x.shape != batch[0].shape:
            raise OpError(
                f"default_collate: stack expects each {noun} to be equal size, but got {tuple(batch[0].shape)} at "
                f"entry 0 and {tuple(x.shape)} at entry {k}; pad them in the dataset, or give DataLoader a collate_fn"
            )


def _collate_sequences(samples):
    first = samples[0]
    if any(len(sample) != len(first) for sample in samples):
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [default_collate(list(column)) for column in zip(*samples)]
    if hasattr(first, "_fields"):
        return type(first)(*columns)
    return columns


def default_convert(data):
    """A sample with tensors for NumPy arrays and numbers, also in dicts, lists and tuples (which become lists)."""
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in "SUO" else as_tensor(data)
    if isinstance(data, dict):
        return type(data)((key, default_convert(value)) for key, value in data.items())
    if hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, (tuple, list)):
        return list(map(default_convert, data))
    return data
