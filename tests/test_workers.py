"""DataLoader(num_workers=...): in this process, and yet what PyTorch's worker processes give."""

import random

import numpy as np
import pytest

import weft
from weft.utils import data, workers
from weft.utils.data import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:DataLoader. num_workers")


def shared_out(library):
    """A stream whose workers share its samples out, as PyTorch's documentation writes it."""

    class Range(library.utils.data.IterableDataset):
        def __init__(self, start, end):
            self.start, self.end = start, end

        def __iter__(self):
            info = library.utils.data.get_worker_info()
            if info is None:
                return iter(range(self.start, self.end))
            share = -(-(self.end - self.start) // info.num_workers)
            first = self.start + info.id * share
            return iter(range(first, min(first + share, self.end)))

    return Range(3, 14)


def set_by_worker(library):
    class Range(library.utils.data.IterableDataset):
        def __init__(self, start, end):
            self.start, self.end = start, end

        def __iter__(self):
            return iter(range(self.start, self.end))

    def share_out(number):
        info = library.utils.data.get_worker_info()
        assert info.id == number
        dataset, whole = info.dataset, info.dataset.end - info.dataset.start
        share = -(-whole // info.num_workers)
        dataset.start = dataset.start + number * share
        dataset.end = min(dataset.start + share, dataset.end)

    return Range(0, 10), share_out


def with_numbers(library):
    class Numbered(library.utils.data.Dataset):
        def __len__(self):
            return 7

        def __getitem__(self, index):
            info = library.utils.data.get_worker_info()
            return index, info.id, info.num_workers

    return Numbered()


def as_lists(loader):
    return [plain(batch) for batch in loader]


def plain(x):
    return x if isinstance(x, int) else x.tolist() if hasattr(x, "tolist") else [plain(y) for y in x]


@pytest.mark.oracle
@pytest.mark.parametrize(
    "make",
    [
        lambda library: library.utils.data.DataLoader(shared_out(library), batch_size=2, num_workers=2),
        lambda library: library.utils.data.DataLoader(shared_out(library), batch_size=2, num_workers=2, drop_last=True),
        lambda library: library.utils.data.DataLoader(shared_out(library), batch_size=None, num_workers=3),
        lambda library: library.utils.data.DataLoader(
            set_by_worker(library)[0], num_workers=2, worker_init_fn=set_by_worker(library)[1], batch_size=3
        ),
        lambda library: library.utils.data.DataLoader(with_numbers(library), batch_size=2, num_workers=2),
        lambda library: library.utils.data.DataLoader(
            with_numbers(library), batch_sampler=[[3], [1, 2]], num_workers=1
        ),
    ],
)
def test_batches_like_those_of_processes(make):
    torch = pytest.importorskip("torch")
    ours = make(weft)
    assert as_lists(ours) == as_lists(ours) == as_lists(make(torch))


class Noisy(data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return weft.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002


def test_workers_draw_numbers_of_their_own():
    def run():
        weft.manual_seed(3)
        loader = DataLoader(Noisy(), num_workers=2)
        return as_lists(loader), as_lists(loader), weft.rand(1).item()

    random.seed(5)
    before = random.getstate()
    first, second, after = run()
    assert random.getstate() == before
    assert first != second and len({str(x) for x in first}) == 6
    assert run() == (first, second, after)
    generator = weft.Generator().manual_seed(1)
    own = as_lists(DataLoader(Noisy(), num_workers=2, generator=generator))
    assert own == as_lists(DataLoader(Noisy(), num_workers=2, generator=generator.manual_seed(1)))


def test_seeds_of_workers_stay_in_them():
    def seed(number):
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002

    random.seed(7)
    expected = random.Random(7).random()
    batches = as_lists(DataLoader(Noisy(), num_workers=2, worker_init_fn=seed))
    assert random.random() == expected
    assert batches[0][1][0] == random.Random(0).random() and batches[1][1][0] == random.Random(1).random()


def test_tensors_are_read_as_ever_and_endless_streams_go_on():
    rows = data.TensorDataset(weft.arange(10))
    weft.manual_seed(0)
    expected = as_lists(DataLoader(rows, batch_size=4, shuffle=True))
    weft.manual_seed(0)
    assert as_lists(DataLoader(rows, batch_size=4, shuffle=True, num_workers=3)) == expected

    class Endless(data.IterableDataset):
        def __iter__(self):
            k = data.get_worker_info().id
            while True:
                yield k
                k += 10

    loader = iter(DataLoader(Endless(), batch_size=2, num_workers=2))
    assert [next(loader).tolist() for _ in range(4)] == [[0, 10], [1, 11], [20, 30], [21, 31]]
    assert data.get_worker_info() is None


def test_an_exception_leaves_the_worker():
    class Broken(data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            raise KeyError(index)

    with pytest.raises(KeyError):
        list(DataLoader(Broken(), num_workers=2))
    assert data.get_worker_info() is None


def test_it_is_said_once(monkeypatch):
    monkeypatch.setattr(workers, "_said", [])
    with pytest.warns(UserWarning, match="num_workers=4, but samples are loaded in this process") as found:
        for _ in range(2):
            DataLoader([1], num_workers=4)
    assert len(found) == 1


def test_stacked_datasets():
    both = data.StackDataset(data.TensorDataset(weft.arange(3)), [5, 6, 7])
    assert len(both) == 3 and both[1][0][0].item() == 1 and both[1][1] == 6
    named = data.StackDataset(left=[1, 2], right=["a", "b"])
    assert named[1] == {"left": 2, "right": "b"}
    assert [batch["left"].tolist() for batch in DataLoader(named)] == [[1], [2]]
    with pytest.raises(ValueError, match="Size mismatch between datasets: they have 1, 2 samples"):
        data.StackDataset([1], [1, 2])
    with pytest.raises(ValueError, match="give datasets either as arguments or by names"):
        data.StackDataset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        DataLoader([1], **options)
