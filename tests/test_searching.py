"""searchsorted and bucketize: PyTorch's positions, in programs and out of them."""

import numpy as np
import pytest

import weft

TYPES = [np.float64, np.float32, np.int64, np.int32]


def rows(n, dtype, batch=()):
    return np.sort(np.random.default_rng(n).integers(0, 20, size=(*batch, n)), -1).astype(dtype)


def values(dtype, shape=(3, 5)):
    made = np.random.default_rng(1).integers(-2, 23, size=shape).astype(dtype)
    if made.dtype.kind == "f" and made.size > 2:
        made.flat[:3] = np.nan, np.inf, -np.inf
    return made


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 100])
@pytest.mark.parametrize("right", [False, True])
def test_positions_are_numpys_in_a_program_and_out_of_it(dtype, n, right):
    sequence, wanted = rows(n, dtype), values(dtype)
    expected = np.searchsorted(sequence, wanted, "right" if right else "left").tolist()
    run = weft.compile(lambda s, v: weft.searchsorted(s, v, right=right) * 1, fullgraph=True)
    arguments = weft.tensor(sequence), weft.tensor(wanted)
    assert weft.searchsorted(*arguments, right=right).tolist() == expected == run(*arguments).tolist()
    assert weft.bucketize(arguments[1], arguments[0], right=right).tolist() == expected


def test_rows_have_their_own_sequences():
    sequence, wanted = rows(9, np.float64, (3,)), values(np.float64)
    found = weft.searchsorted(weft.tensor(sequence), weft.tensor(wanted), out_int32=True)
    assert found.dtype is weft.int32
    assert found.tolist() == [np.searchsorted(s, v).tolist() for s, v in zip(sequence, wanted)]


def test_single_numbers_and_nothing():
    assert weft.searchsorted(weft.arange(5.0), 2.5).item() == 3
    assert weft.searchsorted(weft.arange(5.0), weft.tensor(9.0)).item() == 5
    assert weft.searchsorted(weft.zeros(0), weft.ones(2)).tolist() == [0, 0]
    assert weft.searchsorted(weft.arange(5.0), weft.zeros(0)).tolist() == []


def test_other_types_are_left_to_numpy():
    sequence = weft.tensor([1, 3, 5], dtype=weft.uint8)
    assert weft.searchsorted(sequence, weft.tensor([0, 3, 9], dtype=weft.uint8)).tolist() == [0, 1, 3]


def test_sequences_of_all_lengths_share_a_program(monkeypatch):
    # Recorded, every one.
    monkeypatch.setattr("weft.runtime.replay.many_learning.LEAST_SIZES", float("inf"))
    run = weft.compile(lambda s, v: weft.searchsorted(s, v) + 1, fullgraph=True)
    for n in range(2, 12):
        wanted = weft.tensor(values(np.float64))
        assert run(weft.arange(float(n), dtype=weft.float64), wanted).tolist() == [
            [k + 1 for k in row] for row in np.searchsorted(np.arange(float(n)), wanted.numpy()).tolist()
        ]
    assert run.explain(verbose=True).count("serves many sizes") == 9


def test_interpolation_is_one_program_with_its_derivative():
    knots, at = weft.linspace(0, 1, 11, dtype=weft.float64), weft.rand(50, dtype=weft.float64)

    def fitted(heights):
        heights = heights.detach().requires_grad_()
        k = weft.searchsorted(knots, at).clamp(1, 10)
        part = (at - knots[k - 1]) / (knots[k] - knots[k - 1])
        value = ((heights[k - 1] * (1 - part) + heights[k] * part) ** 2).sum()
        return weft.autograd.grad(value, heights)[0]

    compiled, heights = weft.compile(fitted, fullgraph=True), weft.randn(11, dtype=weft.float64)
    for _ in range(5):
        assert compiled(heights).tolist() == fitted(heights).tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", TYPES)
def test_pytorch_finds_the_same(dtype):
    torch = pytest.importorskip("torch")
    for right in (False, True):
        sequence, wanted = rows(9, dtype, (3,)), values(dtype)
        expected = torch.searchsorted(torch.tensor(sequence), torch.tensor(wanted), right=right)
        assert weft.searchsorted(weft.tensor(sequence), weft.tensor(wanted), right=right).tolist() == expected.tolist()


# --- few elements, which are compared one with another ----------------------------------------------------------------
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32, np.bool_])
def test_modes_of_short_rows_are_those_found_row_by_row(kind):
    rng = np.random.default_rng(3)
    for _ in range(100):
        shape = tuple(rng.integers(1, 6, rng.integers(1, 4)))
        x = rng.integers(-2, 3, shape).astype(kind)
        if kind is np.float32:
            x = x * np.where(rng.random(shape) < 0.5, -1, 1).astype(kind)
        axis = int(rng.integers(0, len(shape)))
        found = weft.mode(weft.tensor(x), axis)
        lines = np.moveaxis(x, axis, -1)
        expected = [_mode_of(line) for line in lines.reshape(-1, lines.shape[-1])]
        assert found.indices.numpy().reshape(-1).tolist() == expected
        assert np.array_equal(
            found.values.numpy(), np.take_along_axis(lines, found.indices.numpy()[..., None], -1)[..., 0]
        )


def _mode_of(line):
    """The last position of the most frequent number, of equally frequent ones the smallest."""
    line = line.tolist()
    wanted = min(line, key=lambda x: (-line.count(x), x))
    return max(k for k, x in enumerate(line) if x == wanted)


def test_the_mode_of_rows_with_nan_counts_each_nan_alone():
    nan = float("nan")
    assert weft.tensor([[nan, 2.0, nan, 2.0], [nan, nan, nan, 1.0]]).mode(1).indices.tolist() == [3, 3]


@pytest.mark.oracle
@pytest.mark.parametrize("invert", [False, True])
def test_isin_of_few_and_of_many_is_pytorchs(invert):
    import torch

    x = np.array([1.0, np.nan, 0.0, -0.0, 3.0, np.inf], np.float32)
    for elements, wanted in ((x, x), (x[:0], x), (x, x[:0]), (np.arange(300).reshape(3, 100) % 7, np.arange(0, 90, 3))):
        given = [(library.tensor(elements), library.tensor(wanted)) for library in (torch, weft)]
        theirs, ours = torch.isin(*given[0], invert=invert), weft.isin(*given[1], invert=invert)
        assert ours.dtype is weft.bool and tuple(ours.shape) == tuple(theirs.shape)
        assert ours.tolist() == theirs.tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_indices_of_triangles_are_pytorchs(name):
    import torch

    for case in ((0, 0, 0), (3, 3, 0), (2, 4, -1), (4, 2, 2), (3, 0, 1), (1, 5, -3)):
        theirs, ours = getattr(torch, name)(*case), getattr(weft, name)(*case)
        assert ours.dtype is weft.int64 and tuple(ours.shape) == tuple(theirs.shape)
        assert ours.tolist() == theirs.tolist()
