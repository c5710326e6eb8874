"""Changes in place of elements that do not lie in a row, by native code: the bits, versions and errors of Python's."""

import itertools

import numpy as np
import pytest

import weft
from weft.runtime.eager import owned, plan
from weft.runtime.replay import eager_native, native

IS_NATIVE = native.layout() is not None
TIMES = 5
TYPES = ["float32", "float64", "int64", "bool", "float16"]


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()


def made(library, dtype, *shape):
    values = np.random.default_rng(len(shape)).integers(-3, 4, shape)
    return library.tensor(values).to(getattr(library, dtype))


PARTS = {
    "columns": lambda x: x[:, ::2],
    "one column": lambda x: x[:, 1],
    "rows of columns": lambda x: x[1::3, 2::3],
    "transposed": lambda x: x.t(),
    "last dimensions": lambda x: x.view(5, 8, 23)[:, :, 2],
    "block": lambda x: x[1:-1, 1:-1],
    "diagonal": lambda x: x.diagonal(),
    "one": lambda x: x[2:3, 1:2],
}
WAYS = {
    "fill": lambda p, y: p.fill_(1),
    "zero": lambda p, y: p.zero_(),
    "copy": lambda p, y: p.copy_(y),
    "set": lambda p, y: p.__setitem__(slice(None), y),
    "number": lambda p, y: p.__setitem__(slice(None), 1),
    "add": lambda p, y: p.logical_or_(y) if "bool" in str(y.dtype) else p.add_(y),
    "by step": lambda p, y: p.__setitem__(slice(None, None, 2), y[::2]),
}


def changed(library, dtype, part, way, times=TIMES):
    """The whole, a part of which was changed so many times."""
    x = made(library, dtype, 40, 23)
    for _ in range(times):
        p = PARTS[part](x)
        WAYS[way](p, made(library, dtype, 1, *p.shape)[0])
    return x


@pytest.mark.oracle
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", PARTS)
def test_parts_become_what_they_become_in_pytorch(part, way):
    torch = pytest.importorskip("torch")
    for dtype in TYPES:
        ours, theirs = (changed(library, dtype, part, way) for library in (weft, torch))
        assert ours.tolist() == theirs.tolist(), dtype


@pytest.mark.parametrize("part", ["columns", "one column", "transposed"])
@pytest.mark.parametrize("way", ["fill", "copy", "set", "number"])
def test_native_code_makes_these_changes(part, way):
    changed(weft, "float32", part, way, 20)
    before = eager_native.taken("calls_taken")
    changed(weft, "float32", part, way, 20)
    assert (eager_native.taken("calls_taken") - before >= 20) is IS_NATIVE


def test_a_change_raises_the_version_once():
    x = weft.zeros(6, 6)
    for k in range(TIMES):
        x[:, 2].fill_(k)
        assert x._version == k + 1


def test_what_large_parts_are_filled_with_is_one_number(monkeypatch):
    """Python writes it, and it must still be the number of the target's type."""
    monkeypatch.setattr(owned, "MOST_SPREAD", 0)
    x = weft.zeros(8, 8, dtype=weft.int32)
    for _ in range(TIMES):
        x[:, ::2].fill_(2.0)
    assert x[:, ::2].eq(2).all() and x[:, 1::2].eq(0).all()
    y = weft.zeros(4, 4)
    for _ in range(TIMES):
        y.t().copy_(weft.arange(16.0).reshape(4, 4))
    assert weft.equal(y, weft.arange(16.0).reshape(4, 4).t())
    z = weft.zeros(3, 4, requires_grad=True)
    w = z * 1
    w[:, 1].fill_(5.0)
    w.sum().backward()
    assert z.grad.tolist() == [[1, 0, 1, 1]] * 3


def test_what_shows_elements_twice_is_not_written():
    for _ in range(TIMES):
        with pytest.raises(RuntimeError, match="single memory location"):
            weft.zeros(3, 1).expand(3, 4).fill_(1.0)


SHAPES = [(2, 3, 2, 64), (4, 2, 2, 48, 2), (32, 2), (3, 16, 40), (64, 3, 2), (2, 96, 5), (5, 7, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_permuted_operands_in_whatever_order_they_are_read(shape, dtype):
    x = made(weft, dtype, *shape)
    array = np.array(x.tolist())
    for order in itertools.islice(itertools.permutations(range(len(shape))), 1, 24):
        turned, expected = x.permute(order), array.transpose(order)
        other = made(weft, dtype, *expected.shape)
        for _ in range(TIMES):
            assert turned.contiguous().tolist() == expected.tolist()
            if dtype != "bool":
                assert (turned * 2).tolist() == (expected * 2).tolist()
                assert (turned + other).tolist() == (expected + np.array(other.tolist())).tolist()
                assert (other - turned[..., :1]).tolist() == (np.array(other.tolist()) - expected[..., :1]).tolist()
