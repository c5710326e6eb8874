"""Datasets and the loader: order, batches, collation, and errors."""

from collections import namedtuple

import numpy as np
import pytest

import weft
from weft.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, default_collate, random_split


class Squares(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, index):
        return index, float(index**2)


def pairs():
    return TensorDataset(weft.arange(10), weft.arange(20.0).reshape(10, 2))


def test_tensor_dataset_samples():
    index, row = pairs()[3]
    assert index.item() == 3 and row.tolist() == [6.0, 7.0] and len(pairs()) == 10


def test_batches_in_order_with_a_ragged_end():
    loader = DataLoader(pairs(), batch_size=4)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert [b[0].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[2][1].tolist() == [[16.0, 17.0], [18.0, 19.0]] and isinstance(batches[0], list)


def test_dropping_the_ragged_end():
    loader = DataLoader(pairs(), batch_size=4, drop_last=True)
    assert len(loader) == len(list(loader)) == 2
    assert list(DataLoader(pairs(), batch_size=11, drop_last=True)) == []


def test_fetched_and_collated_batches_are_equal():
    fetched = list(DataLoader(pairs(), batch_size=3))
    collated = list(DataLoader(pairs(), batch_size=3, collate_fn=default_collate))
    for a, b in zip(fetched, collated, strict=True):
        assert [(x.dtype, x.tolist()) for x in a] == [(x.dtype, x.tolist()) for x in b]


def order_of(loader):
    return [k for batch in loader for k in batch[0].tolist()]


def test_seed_decides_the_order():
    loader = DataLoader(pairs(), batch_size=3, shuffle=True)
    weft.manual_seed(5)
    first, second = order_of(loader), order_of(loader)
    weft.manual_seed(5)
    assert order_of(loader) == first != second
    assert sorted(first) == sorted(second) == list(range(10))


def test_own_generator_leaves_the_default_one_alone():
    weft.manual_seed(5)
    before = weft.rand(1).item()
    weft.manual_seed(5)
    loader = DataLoader(pairs(), shuffle=True, generator=weft.Generator(1))
    first = order_of(loader)
    assert weft.rand(1).item() == before
    assert order_of(DataLoader(pairs(), shuffle=True, generator=weft.Generator(1))) == first


def test_shuffled_rows_stay_together():
    for index, rows in DataLoader(pairs(), batch_size=4, shuffle=True):
        assert (rows[:, 0] == index * 2.0).all()


def test_batches_pass_gradients_to_the_dataset():
    x = weft.ones(4, 2, requires_grad=True)
    (rows,) = next(iter(DataLoader(TensorDataset(x), batch_size=3)))
    rows.sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0]] * 3 + [[0.0, 0.0]]


def test_indices_out_of_range():
    with pytest.raises(IndexError):
        list(DataLoader(pairs(), batch_size=1, sampler=[10]))


def test_own_dataset_is_collated():
    batches = list(DataLoader(Squares(), batch_size=3))
    assert [b[0].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches[1][1].tolist() == [9.0, 16.0, 25.0] and batches[0][1].dtype is weft.float64


def test_sampler_and_single_samples():
    assert order_of(DataLoader(pairs(), batch_size=2, sampler=[9, 0, 4])) == [9, 0, 4]
    assert len(DataLoader(pairs(), batch_size=2, sampler=[9, 0, 4])) == 2
    assert list(DataLoader(Squares(), batch_size=None))[2] == [2, 4.0]
    assert len(DataLoader(Squares(), batch_size=None)) == 7


Point = namedtuple("Point", ["x", "y"])


def test_collation_keeps_structure():
    batch = default_collate([{"a": Point(weft.ones(2), 1), "b": "left"}, {"a": Point(weft.zeros(2), 2), "b": "right"}])
    assert isinstance(batch["a"], Point) and batch["a"].x.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert batch["a"].y.tolist() == [1, 2] and batch["b"] == ["left", "right"]
    assert default_collate([np.ones(2), np.zeros(2)]).dtype is weft.float64
    assert default_collate([np.float32(1), np.float32(2)]).dtype is weft.float32
    assert default_collate([True, False]).dtype is weft.bool
    assert default_collate([1, 2]).dtype is weft.int64


def test_collation_errors():
    with pytest.raises(TypeError, match="found object; give DataLoader a collate_fn"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        default_collate([[1], [1, 2]])
    with pytest.raises(
        ValueError, match=r"\(1,\) at entry 0 and \(2,\) at entry 1; pad them.*or give DataLoader a collate_fn"
    ):
        default_collate([weft.zeros(1), weft.zeros(2)])


def test_subsets_and_concatenation():
    part = Subset(Subset(pairs(), [8, 6, 4, 2]), [3, 0])
    assert len(part) == 2 and [part[k][0].item() for k in range(2)] == [2, 8]
    assert order_of(DataLoader(part, batch_size=2)) == [2, 8]
    joined = Squares() + Subset(Squares(), [1, 2])
    assert isinstance(joined, ConcatDataset) and len(joined) == 9 and joined[8] == (2, 4.0) == joined[-1]
    assert joined.cumulative_sizes == joined.cumsum(joined.datasets) and joined.cumulative_sizes[-1] == 9
    assert list(DataLoader(joined, batch_size=9))[0][0].tolist() == [0, 1, 2, 3, 4, 5, 6, 1, 2]
    with pytest.raises(IndexError, match="out of range for 9 samples"):
        _ = joined[9]


def test_random_split():
    weft.manual_seed(1)
    parts = random_split(pairs(), [7, 3])
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(parts[0].indices + parts[1].indices) == list(range(10))
    weft.manual_seed(1)
    assert random_split(pairs(), [7, 3])[0].indices == parts[0].indices
    assert [len(p) for p in random_split(pairs(), [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match="does not equal the length of the input dataset: 9 and 10"):
        random_split(pairs(), [7, 2])
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        random_split(pairs(), [1.5, -0.5])


def test_errors():
    with pytest.raises(AssertionError, match="Size mismatch between tensors: they have 2, 3 rows"):
        TensorDataset(weft.zeros(2), weft.zeros(3))
    with pytest.raises(ValueError, match="no tensors given"):
        TensorDataset()
    with pytest.raises(ValueError, match="batch_size should be a positive integer value, but got batch_size=0"):
        DataLoader(pairs(), batch_size=0)
    with pytest.raises(ValueError, match="sampler option is mutually exclusive with shuffle"):
        DataLoader(pairs(), sampler=[1], shuffle=True)
    with pytest.raises(ValueError, match="mutually exclusive with drop_last"):
        DataLoader(pairs(), batch_size=None, drop_last=True)
    with pytest.raises(NotImplementedError, match="Dataset must define __getitem__"):
        _ = Dataset()[0]


@pytest.mark.oracle
def test_split_sizes_like_pytorch():
    data = pytest.importorskip("torch.utils.data")
    for lengths in ([0.3, 0.3, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.85, 0.15], [0.98, 0.02]):
        theirs = data.random_split(range(101), lengths)
        ours = random_split(range(101), lengths)
        assert [len(p) for p in ours] == [len(p) for p in theirs]


@pytest.mark.oracle
def test_collation_like_pytorch():
    torch = pytest.importorskip("torch")
    samples = [(1, 2.5, "a", {"x": [np.float32(1), True]}), (3, 4.5, "b", {"x": [np.float32(2), False]})]
    theirs = torch.utils.data.default_collate(samples)
    assert repr(default_collate(samples)).replace("weft.", "torch.") == repr(theirs).replace("('a', 'b')", "['a', 'b']")


def test_a_loader_may_give_its_dataset_whole_batches_of_indices():
    class Table:
        def __len__(self):
            return 5

        def __getitem__(self, rows):
            return weft.arange(5.0)[rows], tuple(rows)

    class Whole(weft.utils.data.DataLoader):
        @property
        def _auto_collation(self):
            return False

        @property
        def _index_sampler(self):
            return self.batch_sampler

    batches = list(Whole(Table(), batch_size=2, collate_fn=lambda batch: batch))
    assert [rows for _, rows in batches] == [(0, 1), (2, 3), (4,)]
    assert [values.tolist() for values, _ in batches] == [[0, 1], [2, 3], [4]]
