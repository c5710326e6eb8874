"""The workers of a DataLoader, in this process: what they would do, in turns, without what would be faster.

A worker has a number, random numbers of its own (weft's, Python's and NumPy's), and, for an IterableDataset, a copy of
the dataset. Batches come from the workers in turn, as from PyTorch's processes, so a dataset that shares its samples
out by `get_worker_info()`, and a `worker_init_fn` that seeds or sets something, do here what they do there.
"""

import copy
import random as python_random
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ..compiler import dtypes
from ..runtime.state import random

_at_work = threading.local()
_said = []


@dataclass(slots=True)
class WorkerInfo:
    """What `get_worker_info()` says inside a worker."""

    id: int
    num_workers: int
    seed: int
    dataset: object


def get_worker_info():
    """The worker that loads the present sample; None outside of workers."""
    return getattr(_at_work, "info", None)


def say_once(count):
    """A warning, the first time, that there are no processes."""
    if not _said:
        _said.append(count)
        warnings.warn(
            f"DataLoader: num_workers={count}, but samples are loaded in this process, by the calling thread; it is "
            "said only this once",
            stacklevel=3,
        )


class Worker:
    """One of them, for one pass over the data."""

    def __init__(self, number, count, base_seed, dataset, copied):
        self.info = WorkerInfo(number, count, base_seed + number, copy.copy(dataset) if copied else dataset)
        self.numbers = None

    @contextmanager
    def at_work(self):
        """The code inside sees this worker, and draws its numbers."""
        outside, before = get_worker_info(), _states()
        if self.numbers is None:
            _seed(self.info.seed)
        else:
            _set_states(self.numbers)
        _at_work.info = self.info
        try:
            yield self.info.dataset
        finally:
            self.numbers, _at_work.info = _states(), outside
            _set_states(before)


def workers(loader, copied):
    """The workers of a loader, each told by its worker_init_fn that it begins."""
    base_seed = _base_seed(loader.generator)
    made = [Worker(k, loader.num_workers, base_seed, loader.dataset, copied) for k in range(loader.num_workers)]
    if loader.worker_init_fn is not None:
        for worker in made:
            with worker.at_work():
                loader.worker_init_fn(worker.info.id)
    return made


def in_turn(made, batches):
    """The batches of iterators, one per worker, in turn; those that have ended are passed over."""
    open_ones = list(zip(made, batches))
    while open_ones:
        for pair in list(open_ones):
            worker, iterator = pair
            with worker.at_work():
                try:
                    batch = next(iterator)
                except StopIteration:
                    open_ones.remove(pair)
                    continue
            yield batch


def _base_seed(generator):
    """A number that the loader's generator, or weft's own, decides."""
    return int(random.uniform((), dtypes.float64, generator).array * 2**53)


def _states():
    return random.default_generator.get_state(), python_random.getstate(), np.random.get_state()  # noqa: NPY002


def _set_states(states):
    ours, pythons, numpys = states
    random.default_generator.set_state(ours)
    python_random.setstate(pythons)
    np.random.set_state(numpys)  # noqa: NPY002


def _seed(seed):
    random.default_generator.manual_seed(seed)
    python_random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
