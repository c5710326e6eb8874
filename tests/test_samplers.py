"""Samplers, and how a DataLoader walks them: one index at a time, in PyTorch's order."""

import itertools
import tracemalloc

import numpy as np
import pytest

import weft
from weft.utils import data
from weft.utils.data import DataLoader, TensorDataset


def rows():
    return TensorDataset(weft.arange(10), weft.arange(20.0).reshape(10, 2))


class Squares(data.Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, index):
        return index**2


def first(loader, count):
    return [batch[0].tolist() for batch in itertools.islice(loader, count)]


# --- walking ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dataset", [rows(), [(k,) for k in range(10)]], ids=["tensors", "list"])
def test_endless_samplers(dataset):
    assert first(DataLoader(dataset, batch_size=3, sampler=itertools.cycle([4, 2])), 2) == [[4, 2, 4], [2, 4, 2]]
    batches = ([k % 10, 3] for k in itertools.count())
    assert first(DataLoader(dataset, batch_sampler=batches), 3) == [[0, 3], [1, 3], [2, 3]]
    single = DataLoader(dataset, batch_size=None, sampler=itertools.repeat(5))
    assert [int(sample[0]) for sample in itertools.islice(single, 2)] == [5, 5]


def test_huge_samplers_take_no_memory():
    loader = DataLoader(rows(), batch_size=4, sampler=range(0, 10**9, 10**9))
    assert len(DataLoader(rows(), batch_size=4, sampler=range(10**9))) == 250_000_000
    tracemalloc.start()
    try:
        assert first(loader, 1) == [[0]]
        assert first(DataLoader(Squares(), sampler=(k % 7 for k in range(10**9))), 2) == [0, 1]
        assert len(data.Subset(rows(), range(10**9))) == 10**9
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("drop_last", [False, True])
def test_no_index_is_asked_for_before_its_batch(drop_last):
    asked = []

    def sampler():
        for k in range(5):
            asked.append(k)
            yield k

    loader = iter(DataLoader(rows(), batch_size=2, sampler=sampler(), drop_last=drop_last))
    assert asked == []
    assert next(loader)[0].tolist() == [0, 1] and asked == [0, 1]
    assert next(loader)[0].tolist() == [2, 3] and asked == [0, 1, 2, 3]
    assert len(list(loader)) == (not drop_last) and asked == [0, 1, 2, 3, 4]


def test_a_sampler_that_learns_from_the_training():
    hard = [0]
    seen = []
    for index, _ in DataLoader(rows(), batch_size=1, sampler=(hard[-1] for _ in range(3))):
        seen.append(index.item())
        hard.append(index.item() + 4)
    assert seen == [0, 4, 8]


def test_generators_serve_one_pass():
    loader = DataLoader(rows(), batch_size=2, sampler=(k for k in (1, 2, 3)))
    assert [len(list(loader)) for _ in range(2)] == [2, 0]
    with pytest.raises(TypeError, match="has no len"):
        len(loader)


def test_attributes_of_a_loader():
    loader = DataLoader(rows(), batch_size=2, shuffle=True)
    assert isinstance(loader.sampler, data.RandomSampler) and isinstance(loader.batch_sampler, data.BatchSampler)
    assert isinstance(DataLoader(rows()).sampler, data.SequentialSampler)
    given = [[0, 1], [2]]
    loader = DataLoader(rows(), batch_sampler=given)
    assert loader.batch_sampler is given and loader.batch_size is None and len(loader) == 2


def test_keys_that_are_no_numbers():
    prices = {"apple": 1.0, "pear": 2.0}
    assert first(
        DataLoader(prices, batch_size=None, sampler=["pear", "apple"], collate_fn=lambda x: weft.ones(1) * x), 2
    ) == [2.0, 1.0]
    assert [b.tolist() for b in DataLoader(prices, batch_size=2, sampler=["pear", "apple"])] == [[2.0, 1.0]]
    assert list(DataLoader(rows(), sampler=[slice(0, 2)]))[0][0].tolist() == [[0, 1]]


def test_a_tensor_dataset_with_samples_of_its_own():
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(x * 2 for x in super().__getitem__(index))

    assert first(DataLoader(Doubled(weft.arange(3)), batch_size=3), 1) == [[0, 2, 4]]
    assert first(DataLoader(data.Subset(Doubled(weft.arange(3)), [2, 1]), batch_size=2), 1) == [[4, 2]]


def test_datasets_that_read_many_samples_at_once():
    calls = []

    class Stored(Squares):
        def __getitems__(self, indices):
            calls.append(indices)
            return [k + 100 for k in indices]

    assert [b.tolist() for b in DataLoader(Stored(), batch_size=4)] == [[100, 101, 102, 103], [104, 105, 106]]
    assert [b.tolist() for b in DataLoader(data.Subset(Stored(), [5, 1]), batch_size=4)] == [[105, 101]]
    assert calls == [[0, 1, 2, 3], [4, 5, 6], [5, 1]]


def test_subsets_keep_their_sequence():
    indices = weft.tensor([3, 1])
    part = data.Subset(rows(), indices)
    assert part.indices is indices and first(DataLoader(part, batch_size=2), 1) == [[3, 1]]
    assert first(DataLoader(data.Subset(part, np.array([1])), batch_size=2), 1) == [[1]]
    assert data.Subset(Squares(), (k for k in (2, 3)))[1] == 9


# --- weft's samplers --------------------------------------------------------------------------------------------------
def test_random_samplers():
    weft.manual_seed(0)
    sampler = data.RandomSampler(Squares())
    one, two = list(sampler), list(sampler)
    assert sorted(one) == sorted(two) == list(range(7)) and one != two and len(sampler) == 7
    weft.manual_seed(0)
    assert [list(sampler), list(DataLoader(Squares(), shuffle=True, collate_fn=list))] == [one, [[k**2] for k in two]]
    longer = data.RandomSampler(Squares(), num_samples=10, generator=weft.Generator(3))
    drawn = list(longer)
    assert sorted(drawn[:7]) == list(range(7)) and len(set(drawn[7:])) == 3 and len(longer) == 10
    shorter = list(data.RandomSampler(Squares(), num_samples=3))
    assert len(set(shorter)) == 3 and set(shorter) <= set(range(7))
    replaced = list(data.RandomSampler(Squares(), replacement=True, num_samples=3000))
    assert set(replaced) == set(range(7)) and max(map(replaced.count, range(7))) < 600


def test_random_subsets():
    sampler = data.SubsetRandomSampler([10, 20, 30], generator=weft.Generator(1))
    drawn = {tuple(sampler) for _ in range(40)}
    assert drawn == set(itertools.permutations([10, 20, 30])) and len(sampler) == 3


def test_weighted_samplers():
    weft.manual_seed(0)
    drawn = list(data.WeightedRandomSampler([1.0, 0.0, 3.0], 8000))
    assert drawn.count(1) == 0 and 0.72 < drawn.count(2) / 8000 < 0.78
    first_ones = [list(data.WeightedRandomSampler([1.0, 3.0, 0.0, 4.0], 3, replacement=False)) for _ in range(4000)]
    assert all(sorted(order) == [0, 1, 3] for order in first_ones)
    assert 0.46 < sum(order[0] == 3 for order in first_ones) / 4000 < 0.54
    second = [order[1] for order in first_ones if order[0] == 3]
    assert 0.70 < second.count(1) / len(second) < 0.80


def test_batches_of_samplers():
    batches = data.BatchSampler("abcdefg", 3, drop_last=False)
    assert [list(batches), len(batches)] == [[["a", "b", "c"], ["d", "e", "f"], ["g"]], 3]
    batches = data.BatchSampler("abcdefg", 3, drop_last=True)
    assert [list(batches), len(batches)] == [[["a", "b", "c"], ["d", "e", "f"]], 2]


def test_own_samplers():
    class Backwards(data.Sampler[int]):
        def __iter__(self):
            return iter([2, 1, 0])

    assert first(DataLoader(rows(), batch_size=2, sampler=Backwards()), 2) == [[2, 1], [0]]
    with pytest.raises(NotImplementedError, match="Sampler must define __iter__"):
        iter(data.Sampler())


# --- datasets without indices -----------------------------------------------------------------------------------------
class Stream(data.IterableDataset):
    def __init__(self, values):
        self.values = values

    def __iter__(self):
        assert data.get_worker_info() is None
        return iter(self.values)


class Counted(Stream):
    def __len__(self):
        return len(self.values)


def test_streams():
    assert first(DataLoader(Stream(itertools.count()), batch_size=3), 2) == [0, 3]
    loader = DataLoader(Counted(range(5)), batch_size=2)
    assert [b.tolist() for b in loader] == [b.tolist() for b in loader] == [[0, 1], [2, 3], [4]] and len(loader) == 3
    loader = DataLoader(Counted(range(5)), batch_size=2, drop_last=True)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3]] and len(loader) == 2
    assert list(DataLoader(Counted([(1, "a"), (2, "b")]), batch_size=None)) == [[1, "a"], [2, "b"]]
    joined = Counted([1]) + Counted([2, 3])
    assert [list(joined), len(joined)] == [[1, 2, 3], 3]
    with pytest.raises(TypeError, match="has no len"):
        len(DataLoader(Stream([1])))
    with pytest.raises(NotImplementedError, match="IterableDataset must define __iter__"):
        iter(data.IterableDataset())


@pytest.mark.parametrize("option", [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}])
def test_streams_have_no_order(option):
    (name,) = option
    with pytest.raises(ValueError, match=f"DataLoader with IterableDataset: expected unspecified {name} option"):
        DataLoader(Stream([1]), **option)


def test_single_samples_become_tensors():
    samples = [np.ones(2), {"a": np.float32(1), "b": ["x", 2.0]}, (np.arange(2), 3)]
    array, mapping, pair = DataLoader(samples, batch_size=None)
    assert array.dtype is weft.float64 and mapping["a"].item() == 1 and mapping["b"] == ["x", 2.0]
    assert type(pair) is list and pair[0].tolist() == [0, 1] and pair[1] == 3
    assert list(DataLoader([1, 2], batch_size=None, collate_fn=str)) == ["1", "2"]


# --- errors -----------------------------------------------------------------------------------------------------------
ERRORS = {
    "no samples": (ValueError, "num_samples=0", lambda d: d.DataLoader([], shuffle=True)),
    "no batch": (ValueError, "batch_size=0", lambda d: d.DataLoader([1], batch_size=0)),
    "a batch of True": (ValueError, "batch_size=True", lambda d: d.BatchSampler([1], True, False)),
    "drop some": (ValueError, "drop_last=1", lambda d: d.BatchSampler([1], 2, 1)),
    "drop of single ones": (ValueError, "drop_last", lambda d: d.DataLoader([1], batch_size=None, drop_last=True)),
    "replacement": (TypeError, "replacement=2", lambda d: d.RandomSampler([1], replacement=2)),
    "half a sample": (ValueError, "num_samples=0.5", lambda d: d.RandomSampler([1], num_samples=0.5)),
    "weights of matrices": (ValueError, "1d sequence", lambda d: d.WeightedRandomSampler([[1.0]], 1)),
    "too many": (RuntimeError, "without replacement", lambda d: list(d.WeightedRandomSampler([1.0], 2, False))),
    "no weight": (RuntimeError, "not all 0|sum of probabilities", lambda d: list(d.WeightedRandomSampler([0.0], 1))),
    "sampler and order": (ValueError, "mutually exclusive", lambda d: d.DataLoader([1], sampler=[0], shuffle=True)),
    "two samplers": (ValueError, "mutually", lambda d: d.DataLoader([1], sampler=[0], batch_sampler=[[0]])),
    "nothing": (AssertionError, "empty iterable", lambda d: d.ConcatDataset(k for k in ())),
    "a stream": (AssertionError, "IterableDataset", lambda d: d.ConcatDataset([d.ChainDataset([])])),
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_errors(name):
    kind, words, function = ERRORS[name]
    with pytest.raises(kind, match=words):
        function(data)


@pytest.mark.oracle
@pytest.mark.parametrize("name", list(ERRORS))
def test_errors_are_pytorchs(name):
    kind, words, function = ERRORS[name]
    with pytest.raises(kind, match=words):
        function(pytest.importorskip("torch.utils.data"))


@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_samplers_part_a_dataset(drop_last):
    shares = [weft.utils.data.DistributedSampler(range(10), 3, k, drop_last=drop_last) for k in range(3)]
    found = [list(share) for share in shares]
    assert [*map(len, found)] == [*map(len, shares)] == ([3] * 3 if drop_last else [4] * 3)
    assert len({k for share in found for k in share}) == (9 if drop_last else 10)
    shares[0].set_epoch(1)
    assert list(shares[0]) != found[0] and list(shares[1]) == found[1]
    plain = weft.utils.data.DistributedSampler(range(10), 3, 1, shuffle=False, drop_last=drop_last)
    assert list(plain) == [1, 4, 7] + ([] if drop_last else [0])
    loader = weft.utils.data.DataLoader(weft.arange(10), batch_size=2, sampler=plain)
    assert next(iter(loader)).tolist() == [1, 4]


def test_distributed_samplers_say_what_they_need():
    with pytest.raises(RuntimeError, match="there is no process group to ask.*pass num_replicas and rank"):
        weft.utils.data.distributed.DistributedSampler(range(10))
    with pytest.raises(ValueError, match=r"Invalid rank 3, rank should be in the interval \[0, 2\]"):
        weft.utils.data.DistributedSampler(range(10), num_replicas=3, rank=3)
