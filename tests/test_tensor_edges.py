"""Zero-dimensional and empty tensors, NaN and infinities, integers and bools: as PyTorch treats them."""

import numpy as np
import pytest
from test_tensor_spellings import assert_same, compared
from test_tensor_spellings import names as ordinary

import weft

# s is 0-d, e has no elements; the other names are those of the spellings.
EDGES = """
s.sum(0) ; s.sum(-1, keepdim=True) ; s.sum(()) ; s.mean(0) ; s.max(0) ; s.max() ; s.min(-1, keepdim=True)
s.argmax(0) ; s.argmax() ; s.argmin(-1, keepdim=True) ; s.softmax(0) ; s.log_softmax(-1) ; s.logsumexp(0)
s.var(unbiased=False) ; s.var() ; s.std(0) ; s.norm() ; s.norm(dim=0) ; s.prod() ; s.prod(0) ; s.any() ; s.all(0)
s.squeeze() ; s.squeeze(0) ; s.unsqueeze(0) ; s.unsqueeze(-1) ; s.flatten() ; s.t() ; s.T ; s.transpose(0, 0)
s.transpose(0, -1) ; s.permute(()) ; s.reshape(1, 1) ; s.expand(3) ; s.expand(2, 3) ; s.view(1) ; s[None] ; s[...]
s.clamp(0, 1) ; s.flip(0) ; s.roll(1) ; s.repeat(2) ; s.item() ; s.numel() ; s.stride() ; s.nonzero()
ns.stack([s, s]) ; s.masked_fill(ns.tensor(True), 3.) ; s.norm(1) ; s.amax() ; s.amax(0) ; s.mean() ; e.sum()
e.sum(0) ; e.sum(1) ; e.mean() ; e.mean(0) ; e.mean(1) ; e.prod() ; e.prod(0) ; e.max(1) ; e.amax(1) ; e.argmax(1)
e.any() ; e.all() ; e.any(0) ; e.all(0) ; e.var() ; e.var(0) ; e.std(1) ; e.norm() ; e.norm(dim=0) ; e.logsumexp(0)
e.logsumexp(1) ; e.softmax(0) ; e.softmax(1) ; e.log_softmax(1) ; e.reshape(0) ; e.reshape(-1) ; e.reshape(3, 0)
e.reshape(-1, 3) ; e.view(0, 5) ; e.flatten() ; e.t() ; e.squeeze() ; e.unsqueeze(1) ; e.permute(1, 0)
e.expand(2, 0, 3) ; e[0:0] ; e[:, 0] ; e[:, ns.tensor([0, 2])] ; e[e > 0] ; e.split(1) ; e.split(2, 1) ; e.chunk(2)
e.unbind() ; ns.cat([e, x]) ; ns.cat([x, e], 0) ; ns.cat([e, e], 1) ; ns.stack([e, e]) ; e @ w ; e.t() @ e
x @ ns.ones(3, 0) ; ns.ones(2, 0) @ ns.ones(0, 3) ; ns.ones(0) @ ns.ones(0)
ns.bmm(ns.ones(0, 2, 3), ns.ones(0, 3, 2)) ; e + 1 ; e * e ; e.exp() ; e.clamp(0, 1) ; e.nonzero() ; e.numel()
e.tolist() ; e.gather(1, ns.zeros(0, 2, dtype=ns.int64)) ; e.index_select(0, ns.tensor([], dtype=ns.int64))
e.tril() ; e.flip(0) ; e.roll(1) ; e.repeat(2, 1) ; ns.tensor([]).sum() ; ns.tensor([]).mean()
ns.tensor([]).norm() ; ns.tensor([1.0]).var() ; ns.tensor([1.0]).std(0) ; ns.tensor([[1.0], [2.0]]).var(1)
ns.tensor([float("nan"), 1.0]).max() ; ns.tensor([float("nan"), 1.0]).max(0)
ns.tensor([1.0, float("nan")]).argmax() ; ns.tensor([1.0, float("nan")]).min(0)
ns.tensor([1.0, float("nan")]).amin() ; ns.maximum(ns.tensor([1.0, float("nan")]), ns.tensor([float("nan"), 0.0]))
ns.tensor([float("nan"), 2.0]).clamp(0, 1) ; ns.tensor([float("nan"), 2.0]).relu()
ns.tensor([float("nan"), 2.0]).sign() ; ns.tensor([float("inf"), float("-inf")]).logsumexp(0)
ns.tensor([float("-inf"), float("-inf")]).logsumexp(0) ; ns.tensor([float("-inf"), 0.0]).softmax(0)
ns.tensor([float("inf"), 0.0]).softmax(0) ; ns.tensor([float("-inf"), float("-inf")]).log_softmax(0)
ns.tensor([float("nan"), 0.0]).any() ; ns.tensor([float("nan"), 0.0]).bool() ; ns.tensor([1.9, -1.9]).int()
ns.tensor([1.9, -1.9]).long() ; ns.tensor([300, -1]).bool() ; ns.tensor([2**40]).int()
ns.tensor([0.5, 1.5, 2.5, -0.5]).round() ; ns.tensor([5, 7]) // ns.tensor([2, -2])
ns.tensor([5, -7]) % ns.tensor([3, 3]) ; ns.tensor([-5, 7]).fmod(3) ; ns.tensor([5.0, -7.0]) // 2
ns.tensor([1.0, -1.0, 0.0]) / 0 ; ns.tensor([0.0, -1.0]).log() ; ns.tensor([-1.0, 0.0]).sqrt()
ns.tensor([0.0, 2.0]) ** -1 ; ns.tensor([0.0, 2.0]) ** 0 ; ns.tensor([-8.0]) ** (1/3) ; ns.tensor([-2.0]) ** 3
ns.tensor([-2.0]) ** 4 ; ns.tensor([2, 3]) ** 5 ; ns.tensor([2, 3]) ** 0 ; ns.tensor([2, 3]) ** 0.5
ns.tensor([2, 3]) ** 2.0 ; ns.tensor([True, False]) ** 2 ; ns.tensor([True, False]) + ns.tensor([True, True])
ns.tensor([True, False]) * 3 ; ns.tensor([True, False]).sum() ; ns.tensor([True, False]).float().mean()
ns.tensor([True, False]).prod() ; ns.tensor([True, False]).max() ; ns.tensor([True, False]).amin()
ns.tensor([3, 1, 2]).max(0) ; ns.tensor([3, 1, 2], dtype=ns.int32).sum()
ns.tensor([3, 1, 2], dtype=ns.int32).max() ; ns.tensor([2**31 - 1, 1], dtype=ns.int32).sum()
ns.tensor([2**31 - 1], dtype=ns.int32) + 1 ; ns.tensor([5, 5, 5]).argmax() ; ns.tensor([[1, 5], [5, 1]]).max(1)
ns.where(ns.tensor([True]), 1, 2) ; ns.where(ns.tensor([True]), 1.0, 2)
ns.where(ns.tensor([True]), ns.tensor([1]), 2.5) ; ns.arange(0, 1, 0.1) ; ns.arange(1, 0, -0.3) ; ns.arange(0)
ns.arange(2, 2) ; ns.linspace(0, 1, 1) ; ns.linspace(1, 0, 4) ; ns.linspace(0, 10, 5, dtype=ns.int64)
ns.full((), 3) ; ns.zeros(0) ; ns.zeros(2, 0) ; ns.eye(0) ; ns.tensor([[]]) ; ns.tensor([[], []])
ns.ones(()).expand(2, 2).sum() ; ns.ones(3)[1:].sum() ; x.sum(()) ; x.sum(dim=[]) ; x.sum(dim=None) ; x.mean(dim=())
x.prod() ; x.norm(0) ; x.norm(0.5) ; x.norm(-1) ; x.norm(float("-inf")) ; x.clamp(0.6, 0.3)
x.clamp(min=None, max=0.3) ; x.squeeze(1) ; x[None].squeeze(dim=(0, 1)) ; x.expand(5, -1, -1) ; x.flatten(0, 0)
x.split([2], 0) ; x.split([0, 2], 0) ; x.chunk(5, 0) ; x.chunk(2, 1) ; b.transpose(-1, -2) ; b.sum((-1, 0))
b.sum((0, 2), keepdim=True) ; b.mean((0, 1)) ; b.amax((0, 2)) ; b.var((0, 2)) ; b.logsumexp((0, 2)) ; b.max(1)
b.argmax(1) ; b.prod(1) ; b.any(2) ; b.softmax(1) ; b @ v ; v @ b.mT ; b @ x.T ; x @ b.mT ; b[:, None] @ b.mT
ns.ones(2, 1, 2, 3) @ ns.ones(4, 3, 2)
"""
REFUSED = """
s.tril() ; s @ s ; s.split(1) ; s.unbind() ; ns.cat([s, s]) ; e.max() ; e.max(0) ; e.amax() ; e.argmax()
e.argmax(0) ; e.norm(float("inf")) ; e.reshape(0, -1) ; ns.tensor([]).max()
"""


def expressions(block):
    return [e.strip() for e in block.replace("\n", ";").split(";") if e.strip()]


def names(ns):
    return {**ordinary(ns), "s": ns.tensor(0.5), "e": ns.zeros(0, 3)}


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", expressions(EDGES))
def test_edge_as_in_torch(expression):
    torch = pytest.importorskip("torch")
    assert_same(compared(eval(expression, names(weft))), compared(eval(expression, names(torch))))


@pytest.mark.parametrize("expression", expressions(REFUSED))
def test_refused(expression):
    """PyTorch refuses these as well."""
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError)):
        eval(expression, names(weft))


def test_no_warnings_from_numpy(recwarn):
    x = weft.tensor([0.0, -1.0, float("inf"), 1e30])
    for y in (x.log(), x.sqrt(), x / 0, x * x * x, x - x, x.exp(), x.long(), x % 0, x**-1, x.softmax(0), x.std()):
        y.tolist()
    assert not recwarn.list


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_printing_does_not_change_values(dtype):
    x = weft.tensor(np.linspace(-1, 1, 7), dtype=getattr(weft, dtype))
    before = x.tolist()
    repr(x)
    assert x.tolist() == before
