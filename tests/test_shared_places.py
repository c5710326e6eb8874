"""Computed places that threads share: what is read, added or put by indices, and joins, with the bits of one thread.

Members of a team take turns in random orders (turn_taking.py), two, three and five of them.
"""

import numpy as np
import pytest
from turn_taking import same, teams

import weft

pool = pytest.fixture(teams)


def numbers(*shape, dtype=weft.float32, seed=0):
    draw = np.random.default_rng(seed)
    # Of very different sizes, so that another order of sums would give other bits.
    return weft.tensor(draw.standard_normal(shape) * 10.0 ** draw.integers(-3, 4, shape), dtype=dtype)


def places(end, *shape, seed=1):
    return weft.tensor(np.random.default_rng(seed).integers(0, end, shape))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reading(axis, pool):
    x = numbers(20, 70, 130)
    every, some = places(x.shape[axis], *x.shape), places(x.shape[axis], 33)

    def read(x, every, some):
        return x.gather(axis, every), x.index_select(axis, some), weft.take_along_dim(x, every, dim=axis)

    same(pool, read, x, every, some)


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_adding(axis, dtype, pool):
    x, part = numbers(20, 70, 130, dtype=dtype), numbers(20, 70, 130, dtype=dtype, seed=2)
    every, some = places(x.shape[axis], *x.shape), places(x.shape[axis], 33)

    def add(x, part, every, some):
        slices = part.index_select(axis, some)
        return x.scatter_add(axis, every, part), x.index_add(axis, some, slices), x * 2

    same(pool, add, x, part, every, some)


@pytest.mark.parametrize("shape", [(1, 3, 9, 9), (3, 9, 9), (1, 64, 9, 9), (2, 24, 9, 9)])
def test_windows_that_overlap(shape, pool):
    """Taps of the windows that overlap are added in their order, which is nobody's to share: of one image, channels
    are."""
    x = numbers(*shape, dtype=weft.float64)
    windows = numbers(*shape[:-3], shape[-3] * 16, 9, dtype=weft.float64)

    def add(x, windows):
        weight = x.reshape(-1)[: shape[-3] * 2 * 9].reshape(shape[-3], 2, 3, 3)
        up = weft.nn.functional.conv_transpose2d(x, weight, stride=2, padding=1)
        return up, weft.nn.functional.fold(windows, output_size=(8, 8), kernel_size=4, stride=2), x * 2

    same(pool, add, x, windows)


def test_places_that_several_rows_share(pool):
    """Rows of a table that repeat: neither rows of the index nor those of the table belong to one thread only."""
    table, index, g = numbers(40, 65), places(40, 30, 11), numbers(30, 11, 65, seed=3)

    def lookup(table, index, g):
        table = table.detach().requires_grad_()
        rows = weft.nn.functional.embedding(index, table)
        (rows * g).sum().backward()
        return rows, table.grad

    same(pool, lookup, table, index, g)


def test_columns_of_a_wide_table_with_few_places(pool):
    table, index, part = numbers(3, 1000), places(3, 500), numbers(500, 1000, seed=2)
    same(pool, lambda table, index, part: table.index_add(0, index, part), table, index, part)


def test_putting(pool):
    x, index, part = numbers(300, 90), weft.tensor(np.random.default_rng(0).permutation(300)[:100]), numbers(100, 90)

    def put(x, index, part):
        y = x.clone()
        y[index] = part
        z = x * 1
        z[:100, 3:83:2] = part[:, :40]
        return y, z

    same(pool, put, x, index, part)


def test_joining(pool):
    x, y, z = numbers(64, 100), numbers(64, 33, seed=2), numbers(64, 1, seed=3)

    def join(x, y, z):
        rows = weft.cat([x.t(), y.t(), z.t()])
        return weft.cat([x, y, z], dim=1), rows, weft.stack([x, x * 2, -x]), weft.nn.functional.pad(x, (3, 70, 2, 1))

    same(pool, join, x, y, z)


@pytest.mark.parametrize("row", [0, 20, 47])
def test_whoever_finds_a_place_outside_says_so(row, pool):
    """The caller may be done before another member notes that a check has failed."""
    table, bad = numbers(30, 64), places(30, 48, 64)
    bad[row, 5] = 30
    read = weft.compile(lambda table, index: table.gather(0, index))
    assert (read(table, places(30, 48, 64)) == table.gather(0, places(30, 48, 64))).all()
    for _ in range(6):
        with pytest.raises(IndexError, match="30"):
            read(table, bad)
    assert pool.jobs >= 7


def test_nothing_is_written_after_any_member_has_found_a_place_outside(pool):
    table, total, bad = numbers(30, 64), numbers(48, 64, seed=4), places(30, 48, 64)
    bad[40, 5] = -1

    def update(table, total, index):
        total += table.gather(0, index)

    compiled = weft.compile(update)
    compiled(table, total, places(30, 48, 64))
    before = total.numpy().copy()
    for _ in range(6):
        with pytest.raises(IndexError):
            compiled(table, total, bad)
        assert (total.numpy() == before).all()
    assert pool.jobs >= 7


@pytest.mark.parametrize("number", [0, -0.0, 2.5, float("nan"), 2**24 + 1])
def test_one_number_everywhere_is_written_where_something_is_added_or_put(number, pool):
    """No memory of its own holds it: the first thing that the op writes is the number."""
    part, index = numbers(70, 130), places(200, 70)
    every = places(200, 70, 130)

    def change(part, index, every):
        base = weft.full((200, 130), number, dtype=weft.float32)
        row = weft.full((1, 1), number, dtype=weft.float32).expand(200, 130)
        whole = weft.full((200, 130), int(number) if number == number else 7)
        joined = weft.full((200, 130), number, dtype=weft.float32)
        joined[3:140:2, ::1] = part[:69]
        return (
            base.index_add(0, index, part),
            row.scatter_add(0, every, part),
            base.index_copy(0, index, part),
            whole.index_add(0, index, part.long()),
            joined,
        )

    same(pool, change, part, index, every)
    eager = [x.numpy().tobytes() for x in change(part, index, every)]
    assert [x.numpy().tobytes() for x in weft.compile(change)(part, index, every)] == eager


def test_derivatives_of_reads_have_no_memory_of_zeros():
    def gradient(x, index):
        return weft.autograd.grad(x.index_select(0, index).square().sum(), x)[0]

    compiled = weft.compile(gradient)
    x, index = numbers(300, 7).requires_grad_(), places(300, 40)
    for _ in range(3):
        found = compiled(x, index)
    assert found.numpy().tobytes() == gradient(x, index).numpy().tobytes()
    text = compiled.explain(verbose=True)
    assert "index_add" in text and "clone" not in text
