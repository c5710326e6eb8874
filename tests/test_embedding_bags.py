"""weft.embedding_bag, which has another signature than nn.functional.embedding_bag and gives four tensors."""

import pytest

import weft
import weft.nn.functional as F

OFFSETS = [[0, 2], [0, 2, 5], [0, 0, 3]]


def given(torch):
    weight = torch.arange(12.0).reshape(4, 3) * torch.tensor([1.0, -1.0, 1.0])
    return weight.requires_grad_(), torch.tensor([0, 1, 2, 3, 1])


def found(torch, offsets, mode, padding_idx, weighted):
    weight, indices = given(torch)
    factors = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]) if weighted else None
    results = torch.embedding_bag(
        weight, indices, torch.tensor(offsets), False, mode, False, factors, False, padding_idx
    )
    results[0].sum().backward()
    return [(x.tolist(), x.requires_grad) for x in results], weight.grad.tolist()


def cases():
    for offsets in OFFSETS:
        for mode, weighted in ((0, False), (0, True), (1, False), (2, False)):
            yield from ((offsets, mode, padding_idx, weighted) for padding_idx in (None, 1, -1))


def test_four_results():
    weight, indices = given(weft)
    values, bags, sizes, largest = weft.embedding_bag(weight, indices, weft.tensor([0, 2]), mode=2)
    assert values.tolist() == F.embedding_bag(indices, weight, weft.tensor([0, 2]), mode="max").tolist()
    assert (bags.tolist(), sizes.tolist()) == ([0, 0, 1, 1, 1], [2, 3])
    assert largest.tolist() == [[1, 0, 1], [3, 1, 3]]
    with pytest.raises(RuntimeError, match="`mode` must be sum, mean, or max"):
        weft.embedding_bag(weight, indices, weft.tensor([0]), mode="sum")
    with pytest.raises(RuntimeError, match="indices must be a 1-D tensor"):
        weft.embedding_bag(weight, indices.reshape(1, 5), weft.tensor([0]))


@pytest.mark.oracle
def test_they_are_pytorchs():
    torch = pytest.importorskip("torch")
    for case in cases():
        assert found(weft, *case) == found(torch, *case), case
