"""Data pipes: datasets that are made of datasets, one step each, as chains of methods.

    >>> from weft.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(6)).filter(lambda n: n % 2).map(lambda n: n * n).batch(2))
    [[1, 9], [25]]

IterDataPipe is iterated, MapDataPipe indexed. `functional_datapipe(name)` makes a class of them a method of all others.
"""

import contextlib
import copy
import functools
import itertools
import random as python_random

from ..creation import empty
from .data import Dataset, IterableDataset, default_collate

__all__ = [
    "DFIterDataPipe",
    "DataChunk",
    "IterDataPipe",
    "MapDataPipe",
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
]


class _Pipe:
    """What both kinds have: methods that make the next step."""

    functions = {}

    def __getattr__(self, name):
        if name in type(self).functions:
            return functools.partial(type(self).functions[name], self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self):
        return type(self).__name__

    @classmethod
    def register_function(cls, function_name, function):
        """function(pipe, ...) as a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name, cls_to_register, enable_df_api_tracing=False):
        """A class of pipes as a method of all others of its kind. Exception if there is one of that name."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register


class IterDataPipe(_Pipe, IterableDataset):
    """A dataset that is iterated: `__iter__` of the user's; every `iter` of it begins anew."""

    functions = {}

    def __iter__(self):
        raise NotImplementedError("IterDataPipe: a pipe of yours defines __iter__")

    def reset(self):
        """Called by nobody here: every `iter` begins anew."""


class DFIterDataPipe(IterDataPipe):
    """An IterDataPipe of data frames."""


class MapDataPipe(_Pipe, Dataset):
    """A dataset that is indexed: `__getitem__`, and `__len__`, of the user's."""

    functions = {}

    def __getitem__(self, index):
        raise NotImplementedError("MapDataPipe: a pipe of yours defines __getitem__")


class DataChunk(list):
    """A batch as a list of its samples."""

    def __init__(self, items):
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent=""):
        """The samples in brackets."""
        return f"{indent}[{', '.join(str(item) for item in self)}]"

    def raw_iterator(self):
        """An iterator of the samples."""
        return iter(self.items)


class functional_datapipe:
    """Decorator: a class of pipes as a method of all others of its kind."""

    def __init__(self, name, enable_df_api_tracing=False):
        self.name = name

    def __call__(self, cls):
        kind = next(
            (kind for kind in (IterDataPipe, MapDataPipe) if isinstance(cls, type) and issubclass(cls, kind)), None
        )
        if kind is None:
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        kind.register_datapipe_as_function(self.name, cls)
        return cls


# --- what may be asked of pipes ---------------------------------------------------------------------------------------
class guaranteed_datapipes_determinism:
    """In the block a pipe that is marked `non_deterministic` cannot be made."""

    _is_on = False

    def __init__(self):
        self.before = guaranteed_datapipes_determinism._is_on

    def __enter__(self):
        guaranteed_datapipes_determinism._is_on = True

    def __exit__(self, *exception):
        guaranteed_datapipes_determinism._is_on = self.before


class non_deterministic:
    """Decorator: a class whose order may change, always, or (given a function) for arguments of which it says so."""

    def __init__(self, arg):
        self.cls = arg if isinstance(arg, type) else None
        self.asked = None if isinstance(arg, type) else arg
        if self.cls is None and not callable(arg):
            raise TypeError("non_deterministic decorates a class, or takes a function of its arguments")

    def __call__(self, *args, **kwargs):
        if self.cls is None:
            cls, asked = args[0], self.asked

            @functools.wraps(cls, updated=())
            def made(*args, **kwargs):
                if asked(*args, **kwargs):
                    self._refuse(cls)
                return cls(*args, **kwargs)

            return made
        self._refuse(self.cls)
        return self.cls(*args, **kwargs)

    def _refuse(self, cls):
        if guaranteed_datapipes_determinism._is_on:
            raise TypeError(
                f"{cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_determinism'. You can turn "
                "off determinism for this DataPipe if that is acceptable for your application"
            )


def argument_validation(function):
    """The function: annotations of arguments are for readers and checkers of types."""
    return function


def runtime_validation(function):
    """The function: what a pipe gives is not compared with its annotation."""
    return function


class runtime_validation_disabled:
    """A block in which nothing is different: see runtime_validation."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


# --- the usual steps --------------------------------------------------------------------------------------------------
class IterableWrapper(IterDataPipe):
    """What any iterable gives. deepcopy: of a copy of it, so that it can be iterated again."""

    def __init__(self, iterable, deepcopy=True):
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self):
        source = self.iterable
        if self.deepcopy:
            with contextlib.suppress(TypeError):  # generators and files have no copies
                source = copy.deepcopy(source)
        yield from source

    def __len__(self):
        return len(self.iterable)


class SequenceWrapper(MapDataPipe):
    """The elements of any sequence, or of a dict."""

    def __init__(self, sequence, deepcopy=True):
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index):
        return self.sequence[index]

    def __len__(self):
        return len(self.sequence)


class _Step(IterDataPipe):
    def __init__(self, datapipe):
        self.datapipe = datapipe

    def __len__(self):
        return len(self.datapipe)


@functional_datapipe("map")
class Mapper(_Step):
    """fn of every sample, or of what it has at input_col (an index or key, or several), put at output_col (by default
    there, -1: behind it)."""

    def __init__(self, datapipe, fn, input_col=None, output_col=None):
        super().__init__(datapipe)
        self.fn, self.input_col, self.output_col = fn, input_col, output_col
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")

    def __iter__(self):
        for sample in self.datapipe:
            yield self.fn(sample) if self.input_col is None else self._replaced(sample)

    def _replaced(self, sample):
        several = isinstance(self.input_col, (list, tuple))
        value = self.fn(*(sample[c] for c in self.input_col)) if several else self.fn(sample[self.input_col])
        changed = dict(sample) if isinstance(sample, dict) else list(sample)
        if self.output_col == -1 and isinstance(changed, list):
            changed.append(value)
        elif self.output_col is not None:
            changed[self.output_col] = value
        elif several:
            changed[self.input_col[0]] = value
            for column in sorted(self.input_col[1:], reverse=True):
                del changed[column]
        else:
            changed[self.input_col] = value
        return tuple(changed) if isinstance(sample, tuple) else changed


@functional_datapipe("filter")
class Filter(_Step):
    """The samples for which filter_fn (of the sample, or of what it has at input_col) is true."""

    def __init__(self, datapipe, filter_fn, input_col=None):
        super().__init__(datapipe)
        self.filter_fn, self.input_col = filter_fn, input_col

    def __iter__(self):
        return (s for s in self.datapipe if self.filter_fn(s if self.input_col is None else s[self.input_col]))

    def __len__(self):
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


@functional_datapipe("batch")
class Batcher(_Step):
    """Lists of batch_size samples, the last one shorter unless drop_last."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=DataChunk):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        super().__init__(datapipe)
        self.batch_size, self.drop_last, self.wrapper_class = batch_size, drop_last, wrapper_class

    def __iter__(self):
        samples = iter(self.datapipe)
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self):
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(_Step):
    """The samples in batches, one by one, through unbatch_level levels (-1: all)."""

    def __init__(self, datapipe, unbatch_level=1):
        super().__init__(datapipe)
        self.unbatch_level = unbatch_level

    def __iter__(self):
        for batch in self.datapipe:
            yield from self._parts(batch, self.unbatch_level)

    def _parts(self, x, level):
        if level == 0 or level == -1 and not isinstance(x, (list, DataChunk)):
            yield x
            return
        for part in x:
            yield from self._parts(part, level if level == -1 else level - 1)

    def __len__(self):
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


@functional_datapipe("collate")
class Collator(Mapper):
    """collate_fn of every batch: tensors of all samples by default."""

    def __init__(self, datapipe, conversion=None, collate_fn=None):
        super().__init__(datapipe, collate_fn or conversion or default_collate)


@functional_datapipe("shuffle")
class Shuffler(_Step):
    """The samples in the order of chance, drawn from a buffer of buffer_size."""

    def __init__(self, datapipe, *, buffer_size=10000, unbatch_level=0):
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        super().__init__(datapipe if unbatch_level == 0 else UnBatcher(datapipe, unbatch_level))
        self.buffer_size, self.enabled, self.seed = buffer_size, True, None

    def set_shuffle(self, shuffle=True):
        """Whether the order changes at all."""
        self.enabled = shuffle
        return self

    def set_seed(self, seed):
        """The seed of the next iteration."""
        self.seed = seed
        return self

    def __iter__(self):
        if not self.enabled:
            yield from self.datapipe
            return
        chance, self.seed = python_random.Random(_seed() if self.seed is None else self.seed), None
        buffer = []
        for sample in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
                continue
            k = chance.randint(0, self.buffer_size - 1)
            buffer[k], sample = sample, buffer[k]
            yield sample
        chance.shuffle(buffer)
        yield from buffer


def _seed():
    return int(empty(()).uniform_(0, 2**24).item())


@functional_datapipe("concat")
class Concater(IterDataPipe):
    """One pipe after the other."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        return itertools.chain.from_iterable(self.datapipes)

    def __len__(self):
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(IterDataPipe):
    """Tuples of one sample of every pipe, until the first one ends."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        return zip(*self.datapipes)

    def __len__(self):
        return min(map(len, self.datapipes))


@functional_datapipe("sharding_filter")
class ShardingFilter(_Step):
    """Every n-th sample, after apply_sharding(n, k) those from the k-th on."""

    def __init__(self, datapipe):
        super().__init__(datapipe)
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances, instance_id):
        """Which samples this pipe gives."""
        self.num_of_instances, self.instance_id = num_of_instances, instance_id

    def __iter__(self):
        return itertools.islice(self.datapipe, self.instance_id, None, self.num_of_instances)

    def __len__(self):
        n, k = self.num_of_instances, self.instance_id
        return len(range(k, len(self.datapipe), n))


@functional_datapipe("map")
class _MapStep(MapDataPipe):
    def __init__(self, datapipe, fn):
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index):
        return self.fn(self.datapipe[index])

    def __len__(self):
        return len(self.datapipe)
