"""Datasets, and the loader that cuts them into batches.

A batch is collated from samples. A TensorDataset, and a Subset of one, fetch a whole batch with one read per tensor
instead.

    >>> import weft
    >>> data = TensorDataset(weft.arange(5), weft.zeros(5, 2))
    >>> [(index.tolist(), rows.shape) for index, rows in DataLoader(data, batch_size=3)]
    [([0, 1, 2], (3, 2)), ([3, 4], (2, 2))]
"""

import math
import warnings

import numpy as np

from ..absent import attribute_of
from ..compiler import dtypes
from ..compiler.ops import indexing, view
from ..creation import from_numpy, tensor
from ..runtime import random
from ..runtime.tensor import Tensor

__getattr__ = attribute_of(__name__)


class Dataset:
    """Something with `len()` and samples by index: define `__len__` and `__getitem__`."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other):
        return ConcatDataset([self, other])


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
    if tensor.requires_grad:
        return indexing.index_select(tensor, from_numpy(indices), axis=0)
    # Straight from the array: 5 us instead of 24 for a batch of 32 rows of two tensors, and nothing to record.
    return Tensor(tensor.array.take(indices, 0))


class Subset(Dataset):
    """The samples of a dataset at given indices, in that order."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, list(indices)

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]


class ConcatDataset(Dataset):
    """Datasets one after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        self.ends = []
        for dataset in self.datasets:
            self.ends.append(len(dataset) + (self.ends[-1] if self.ends else 0))

    def __len__(self):
        return self.ends[-1]

    def __getitem__(self, index):
        if index < 0:
            index += len(self)
        start = 0
        for dataset, end in zip(self.datasets, self.ends):
            if start <= index < end:
                return dataset[index - start]
            start = end
        raise IndexError(f"ConcatDataset: index is out of range for {len(self)} samples")


def random_split(dataset, lengths, generator=None):
    """Subsets of the given lengths, disjoint and in random order. Fractions that sum to 1 are lengths too."""
    lengths = _counts(lengths, len(dataset))
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
        return list(lengths)
    if any(not 0 <= fraction <= 1 for fraction in lengths):
        raise ValueError(f"random_split: fractions {list(lengths)} must lie between 0 and 1")
    counts = [math.floor(total * fraction) for fraction in lengths]
    for k in range(total - sum(counts)):
        counts[k % len(counts)] += 1
    return counts


class DataLoader:
    """Batches of a dataset, anew at every iteration.

    batch_size: samples per batch, the last one may be smaller (or is left out with drop_last); None: single samples.
    shuffle: in a new random order every time, drawn from `generator` or else from weft's own, so that
    weft.manual_seed decides it. collate_fn: makes a batch from a list of samples, `default_collate` if not given.
    sampler: indices in their order; batch_sampler: lists of indices, a batch each. Samples are loaded by the calling
    thread: num_workers gives a warning, and what is about workers or other devices changes nothing.
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=False,
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
        if num_workers:
            warnings.warn(
                f"DataLoader: there are no workers; samples are loaded by the calling thread, not by {num_workers} "
                "processes. num_workers=0 says so",
                stacklevel=2,
            )
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size <= 0):
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.collate_fn, self.sampler, self.generator = collate_fn, sampler, generator
        self.batch_sampler, self.num_workers, self.worker_init_fn = batch_sampler, num_workers, worker_init_fn
        self.pin_memory, self.timeout, self.persistent_workers = pin_memory, timeout, persistent_workers

    def __len__(self):
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        count = len(self.dataset if self.sampler is None else self.sampler)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def __iter__(self):
        if self.batch_sampler is not None:
            return (self._batch(list(indices)) for indices in self.batch_sampler)
        order = self._order()
        if self.batch_size is None:
            return (self.dataset[k] for k in order)
        starts = range(0, len(self) * self.batch_size, self.batch_size)
        return (self._batch(order[k : k + self.batch_size]) for k in starts)

    def _order(self):
        if self.sampler is not None:
            return list(self.sampler)
        if self.shuffle:
            return random.permutation(len(self.dataset), self.generator)
        return np.arange(len(self.dataset))

    def _batch(self, indices):
        if self.collate_fn is None:
            dataset, chosen = _flattened(self.dataset, np.asarray(indices, np.int64))
            if isinstance(dataset, TensorDataset):
                return dataset.batch(chosen)
        samples = [self.dataset[int(k)] for k in indices]
        return (self.collate_fn or default_collate)(samples)


def _flattened(dataset, indices):
    """The dataset under all subsets, and the indices there."""
    while type(dataset) is Subset:
        indices = np.asarray(dataset.indices, np.int64)[indices]
        dataset = dataset.dataset
    return dataset, np.ascontiguousarray(indices)


def get_worker_info():
    """None: samples are loaded by the calling thread."""
    return None


def default_collate(samples):
    """A list of samples as one batch: tensors, arrays and numbers are stacked, tuples, lists and dicts entry by entry,
    strings listed. TypeError for anything else."""
    first = samples[0]
    if isinstance(first, Tensor):
        return view.stack(*samples, axis=0)
    if isinstance(first, (np.ndarray, np.generic)):
        return tensor(np.stack(samples))
    if isinstance(first, float):
        return tensor(samples, dtype=dtypes.float64)
    if isinstance(first, int):
        return tensor(samples)
    if isinstance(first, (str, bytes)):
        return samples
    if isinstance(first, dict):
        return type(first)((key, default_collate([sample[key] for sample in samples])) for key in first)
    if isinstance(first, (tuple, list)):
        return _collate_sequences(samples)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__name__}; give DataLoader a collate_fn"
    )


def _collate_sequences(samples):
    first = samples[0]
    if any(len(sample) != len(first) for sample in samples):
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [default_collate(list(column)) for column in zip(*samples)]
    if hasattr(first, "_fields"):
        return type(first)(*columns)
    return columns
