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


def test_sequences_of_all_lengths_share_a_program():
    run = weft.compile(lambda s, v: weft.searchsorted(s, v) + 1, fullgraph=True)
    for n in range(2, 12):
        wanted = weft.tensor(values(np.float64))
        assert run(weft.arange(float(n), dtype=weft.float64), wanted).tolist() == [
            [k + 1 for k in row] for row in np.searchsorted(np.arange(float(n)), wanted.numpy()).tolist()
        ]
    assert run.explain().count("serves many sizes") == 9


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
