"""What a kernel reads across: it is read in rows, and turned, in tiles; with the elements of eager mode, by every team.

Members of a team take turns in random orders (turn_taking.py), two, three and five of them.
"""

import numpy as np
import pytest
from turn_taking import same, teams

import weft
from weft.compiler.emit.vector import transposed

pool = pytest.fixture(teams)

# Rows by 64, by 16 and left over; columns in whole vectors and left over.
SHAPES = [(16, 16), (17, 100), (33, 70), (64, 64), (80, 129), (95, 33), (130, 5), (5, 130), (200, 1000)]
DTYPES = [weft.float32, weft.float64, weft.int32, weft.int64, weft.bool]


def numbers(*shape, dtype=weft.float32):
    drawn = np.random.default_rng(len(shape)).standard_normal(shape) * 100
    return weft.tensor(drawn, dtype=weft.float64).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_copies(dtype, pool):
    def turned(*xs):
        return [x.t().contiguous() for x in xs]

    xs = [numbers(*shape, dtype=dtype) for shape in SHAPES]
    for x, y in zip(xs, weft.compile(turned)(*xs)):
        assert y.numpy().tobytes() == np.ascontiguousarray(x.numpy().T).tobytes()
    same(pool, turned, *xs)


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=lambda d: d.name)
def test_with_other_operands(dtype, pool):
    def both(x, y, row, column):
        return x.t() * y + row, (x.t() - column) * 2 + y, x.t() + x.t() * x.t(), y.t() + x * 3

    for n, m in SHAPES:
        arguments = [numbers(*shape, dtype=dtype) for shape in ((n, m), (m, n), (n,), (m, 1))]
        same(pool, both, *arguments)
        pool.jobs = 0


def test_operands_of_different_types(pool):
    def mixed(x, y, mask):
        return weft.where(mask.t(), x.t(), 0.0) + y.t(), x.t().to(weft.float64) * y.t(), x.t() > y.t()

    for n, m in SHAPES:
        mask = numbers(n, m) > 0
        same(pool, mixed, numbers(n, m), numbers(n, m, dtype=weft.int64), mask)


def test_views_of_parts_and_batches(pool):
    def views(x, y):
        part = x[1:, 2:90]
        return part.t() * 2, x.flip(0).t() + 1, y.transpose(-1, -2) + 1, y.permute(2, 0, 1).contiguous(), y.mT[1].exp()

    same(pool, views, numbers(100, 95), numbers(3, 70, 130))


def test_dimensions_between_those_that_change_places(pool):
    """A bias along one of them keeps the others from being two in all."""

    def between(x, y, z):
        turned = x.permute(3, 0, 1, 2)
        return (turned + y).relu(), turned <= y, z.permute(2, 1, 0) * y[:, :, 0]

    for n in (16, 64, 70, 95):
        arguments = numbers(5, 4, 6, n), numbers(5, 1, 1), numbers(n, 5, 33)
        same(pool, between, *arguments)
        pool.jobs = 0


def test_rows_of_which_none_fills_a_tile(pool):
    same(pool, lambda x: (x.t() + 1, x.t().exp()), numbers(300, 15))


def test_programs_for_many_sizes(pool):
    """Matrices of other extents meet a program that knows no extent: tiles are counted when it runs."""

    def turned(x, y):
        return x.t() * y + 1, y.t().contiguous()

    square, wide, tall = weft.compile(turned), weft.compile(turned), weft.compile(turned)
    for n in (70, 33, 16, 200, 5, 64, 129, 2, 95):
        same(pool, turned, numbers(n, n), numbers(n, n), compiled=square)
        same(pool, turned, numbers(n, 40), numbers(40, n), compiled=wide)
        same(pool, turned, numbers(40, n), numbers(n, 40), compiled=tall)
        pool.jobs = 0
    for compiled in (square, wide, tall):
        alone = sum("n" not in p.meta for r in compiled.recordings for p in r.programs)
        assert alone <= 2, compiled.explain()


def test_transposed_vectors():
    """Of as many vectors as each has lanes, whatever they are."""
    for n in (2, 4, 8, 16):
        shuffled = transposed(_Lists(), [list(range(k * n, k * n + n)) for k in range(n)])
        assert np.array_equal(shuffled, np.arange(n * n).reshape(n, n).T)


class _Lists:
    """A Builder whose vectors are lists."""

    @staticmethod
    def shuffle(x, y, lanes):
        return [(x + y)[k] for k in lanes]
