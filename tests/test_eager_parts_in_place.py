"""Changes in place of parts that are not row-major: columns, steps, transposed tensors. As the op computes them."""

import numpy as np
import pytest

import weft
from weft.runtime.replay import eager_native, native

TIMES = 24  # calls, from the first of which on Python does them, and then native code
PARTS = {
    "columns": lambda x: x[:, 3:],
    "one column": lambda x: x[:, 4],
    "inside": lambda x: x[1:-1, 2:-2],
    "steps": lambda x: x[::2, ::3],
    "transposed": lambda x: x.t(),
    "rows of the transposed": lambda x: x.t()[4:],
    "turned": lambda x: x.view(4, 10, 50).permute(2, 0, 1)[1:],
    "a diagonal": lambda x: x.diagonal(),
}
CHANGES = {
    "add a number": lambda p, q, row: p.add_(1.5),
    "mul by itself": lambda p, q, row: p.mul_(p),
    "a tensor like it": lambda p, q, row: p.sub_(q),
    "one that lies in rows": lambda p, q, row: p.add_(q.contiguous()),
    "a row": lambda p, q, row: p.mul_(row),
    "another type": lambda p, q, row: p.add_(q.double()),
    "clamp": lambda p, q, row: p.clamp_(-0.5, 0.5),
    "tanh": lambda p, q, row: p.tanh_(),
    "floor_divide": lambda p, q, row: p.floor_divide_(0.3),
}


def tensor(seed=0):
    return weft.tensor(np.random.default_rng(seed).standard_normal((40, 50)).astype(np.float32))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("part", PARTS)
def test_parts_change_as_copies_of_them_do(part, change):
    take, alter = PARTS[part], CHANGES[change]
    for _ in range(TIMES):
        x, q = tensor(), take(tensor(1))
        row = tensor(2).reshape(-1)[: q.shape[-1]]
        copy = take(x).clone(memory_format=weft.contiguous_format)
        alter(copy, q, row)
        rest = tensor()
        take(rest).copy_(copy)
        p = take(x)
        assert alter(p, q, row) is p
        assert x.numpy().tobytes() == rest.numpy().tobytes()


def test_native_code_changes_them():
    x = tensor()
    column = x[:, 3:]
    for _ in range(TIMES):
        column.add_(1.0)
    before = eager_native.taken("calls_taken")
    for _ in range(10):
        column.add_(1.0)
    assert (eager_native.taken("calls_taken") >= before + 10) is (native.layout() is not None)


def test_operands_that_overlap_are_read_before_they_are_written():
    for _ in range(TIMES):
        x = tensor()
        expected = x.numpy().copy()
        expected[:, 1:] += expected[:, :-1].copy()
        x[:, 1:].add_(x[:, :-1])
        assert (x.numpy() == expected).all()
        square = weft.tensor(np.arange(9.0).reshape(3, 3))
        square.t().add_(square)
        assert square.tolist() == [[0.0, 4.0, 8.0], [4.0, 8.0, 12.0], [8.0, 12.0, 16.0]]


def test_what_shows_elements_twice_or_is_a_leaf_stays_refused():
    for _ in range(TIMES):
        with pytest.raises(RuntimeError, match="more than one element"):
            weft.zeros(3, 1).expand(3, 4).add_(1.0)
        with pytest.raises(RuntimeError, match="more than one element"):
            weft.zeros(4, 3).t()[:, :1].expand(3, 4).add_(1.0)
        leaf = weft.zeros(4, 3, requires_grad=True)
        with pytest.raises(RuntimeError, match="leaf"):
            leaf.t().add_(1.0)


def test_versions_count_and_saved_values_are_missed():
    for _ in range(TIMES):
        x = tensor().requires_grad_()
        y = x * 1.0
        z = y * y
        before = y._version
        y.detach()[:, 3:].add_(1.0)
        assert y._version == before + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
