"""Derivatives where a formula could go wrong: kinks, ties, zeros, infinities; and of composed functions.

First and second order against PyTorch. The second order is the gradient of the sum of squares of the first.
"""

import numpy as np
import pytest

import weft

# x holds zeros, ties, both signs; p is positive; m is a matrix with a zero row and one zero in another.
EXPRESSIONS = """
x.abs() ; x.sign() * x ; x.relu() ; x.relu() ** 2 ; x.clamp(-1, 1) ; x.clamp(min=0) ; x.clamp(max=1)
x.clamp(0.0, 0.5) ; x.clamp_min(0) * x ; x.clamp(x * 0 - 1, x * 0 + 1) ; ns.maximum(x, x.flip(0))
ns.minimum(x, x * 0) ; ns.maximum(x, x) ; x ** 2 ; x ** 3 ; x ** 1 ; x ** 0 ; x ** 4 ; x ** 1.0 ; x ** 2.0
p ** 0.5 ; p ** -0.5 ; p ** -1 ; p ** -2 ; p ** 2.5 ; p ** p ; 2 ** x ; ns.pow(x * x, p) ; p ** x
x.square().sqrt() ; (x * x + 1).rsqrt() ; ns.where(x > 0, x, x * x) ; ns.where(x > 0, p.log(), x)
ns.where(x == 0, 1.0, x) * x ; x.max() ; x.min() ; x.amax() ; x.amin() ; x.max(0)[0] ; m.max(1)[0] ; m.amax(1)
m.amax((0, 1)) ; m.min(0)[0] ; m.max() * m ; m.prod(1) ; m.prod(0) ; m.prod() ; x.prod() ; x.prod(0, keepdim=True)
p.prod() ; m.norm() ; m.norm(dim=1) ; x.norm() ; x.norm(1) ; p.norm(3) ; x.norm(float("inf")) ; (x * 0).norm()
m.var() ; m.var(1) ; m.std(0) ; m.var(1, unbiased=False) ; p.std() ; m.var((0, 1), keepdim=True) ; m.logsumexp(1)
m.logsumexp((0, 1)) ; m.softmax(0) ; m.softmax(1) ** 2 ; m.log_softmax(1) ; (m * 100).softmax(1) ; m.mean(0) ** 2
m.sum(1) ** 2 ; (m * m).mean() ; m.mean((0, 1), keepdim=True) * m ; x % 0.7 ; x.fmod(0.7) ; p % p.flip(0)
p.fmod(p.flip(0)) ; ns.atan2(p, x) ; ns.atan2(x, p) ; x.floor() + x ; x.round() * x ; x.trunc() * x ; x.frac()
x.sigmoid() ; (x * 30).sigmoid() ; (x * 30).tanh() ; x.expm1() ; p.log1p() ; x.erf() ; x.erfc() ; x.sin() * x.cos()
(x / 3).tan() ; (x / 3).asin() ; (x / 3).acos() ; x.atan() ; x.sinh() ; x.cosh() ; x.exp2() ; p.log2() ; p.log10()
ns.logaddexp(x, p) ; ns.hypot(x, p) ; (p / 4).logit() ; p.reciprocal() ; p.rsqrt() ; 1 / p ; 2 / p - p ; x + x
x - x ; x * x * x ; x / p ; -x ; x.lerp(p, 0.3) ; x.addcmul(x, p, value=2) ; x.addcdiv(x, p) ; m @ m.t() ; m @ m[0]
m[0] @ m[1] ; m[0] @ m.t() ; m.t() @ m @ m.t() ; m.mv(m[0]) ; m[0].dot(m[2]) ; m[0].outer(m[1]) ; m[None] @ m.t()
m.expand(2, 3, 4) @ m.t() ; (m[:, None] @ m.t()) ** 2 ; ns.addmm(m[0, :3], m, m.t())
ns.addmm(m[0, :3], m, m.t(), beta=2, alpha=3) ; ns.bmm(m[None], m.t()[None]) ; ns.inner(m[0], m[1])
m.tril() @ m.t() ; m.triu(1) ** 2 ; m.diagonal() ** 2 ; m[0] ** 2 ; m[1:, ::2] ** 2 ; m[:, 1] * m[:, 2]
m[[0, 0, 2]] ** 2 ; m[m > 0] ** 2 ; m[ns.tensor([0, 1]), ns.tensor([1, 1])] ** 2 ; m.t() ** 2 ; m.reshape(2, 6) ** 2
m.flatten()[3:] ** 2 ; m[..., None] ** 2 ; m.unsqueeze(0) ** 2 ; m.permute(1, 0) ** 3 ; ns.cat([m, m * m]) ** 2
ns.stack([m, m * m], 1) ** 2 ; m.split(2)[0] ** 2 ; m.split([1, 2])[1] ** 2 ; m.chunk(2, 1)[1] ** 2
m.unbind()[1] ** 2 ; ns.cat(m.unbind()) ** 2 ; m.narrow(1, 1, 2) ** 2 ; m.flip(0) * m ; m.roll(1, 0) * m
m.repeat(2, 1) ** 2 ; m.gather(1, ns.tensor([[0, 0], [1, 3], [2, 2]])) ** 2
m.index_select(1, ns.tensor([1, 1, 0])) ** 2 ; (m * m).scatter_add(1, ns.tensor([[0, 0], [1, 3], [2, 2]]), m[:, :2])
m.index_add(0, ns.tensor([0, 0]), m[:2] ** 2) ; (m * m).scatter(1, ns.tensor([[0, 1], [1, 3], [2, 0]]), m[:, :2])
m.masked_fill(m > 0, 0.0) ** 2 ; m.masked_select(m > 0) ** 2 ; m.clone() ** 2 ; m.double() ** 2
m.float().double() ** 2 ; m.contiguous() ** 2 ; m.t().contiguous() ** 2 ; m.detach() * m ; m.diff() ** 2
m[:, :3].trace() ** 2 ; x.diag() ** 2 ; ns.meshgrid(x, p, indexing="ij")[0] ** 2 ; m.broadcast_to(2, 3, 4) ** 2
F.gelu(x) ; F.gelu(x, approximate="tanh") ; F.silu(x) ; F.softplus(x) ; F.leaky_relu(x, 0.1) ; F.relu(x) * x
F.layer_norm(m, (4,)) ; F.mse_loss(x, p) ; F.l1_loss(x, p) ; F.binary_cross_entropy_with_logits(x, p / 4)
F.cross_entropy(m, ns.tensor([0, 1, 3])) ; F.nll_loss(m, ns.tensor([0, 1, 3]), reduction="sum")
F.linear(m, m, m[:, 0]) ; F.linear(m[0], m, m[:, 0]) ; F.linear(m[None], m)
F.cross_entropy(m, ns.tensor([0, -100, 3])) ; F.embedding(ns.tensor([[0, 0], [2, 1]]), m) ** 2
F.softmax(m, dim=0) * m
"""
CASES = [e.strip() for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()]
VALUES = {
    "x": [0.0, 1.0, -1.0, 2.0, 2.0, -0.5],
    "p": [0.5, 1.0, 2.0, 0.25, 3.0, 1.5],
    "m": [[0.5, -1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.5, 1.5, -0.5, 0.25]],
}


def to_array(x):
    # PyTorch's gradient of sign is a tensor without memory.
    return x.detach().numpy() if isinstance(x, weft.Tensor) else x.detach().numpy(force=True)


def derivatives(ns, expression):
    """(value, first order, second order) with respect to x, p and m, zeros where there is none."""
    leaves = {k: ns.tensor(v, dtype=ns.float64, requires_grad=True) for k, v in VALUES.items()}
    value = eval(expression, {"ns": ns, "F": ns.nn.functional, **leaves})
    inputs = list(leaves.values())
    first = ns.autograd.grad(value.sum(), inputs, create_graph=True, allow_unused=True)
    squares = sum((g * g).sum() for g in first if g is not None)
    second = [None] * len(inputs)
    if squares.requires_grad:
        second = ns.autograd.grad(squares, inputs, allow_unused=True)
    zeros = [np.zeros(np.shape(v)) for v in VALUES.values()]
    orders = [[z if g is None else to_array(g) for g, z in zip(order, zeros)] for order in (first, second)]
    return [to_array(value), *orders[0], *orders[1]]


def test_there_are_many():
    assert len(CASES) > 190


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", CASES)
def test_derivatives_as_in_torch(expression):
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(derivatives(weft, expression), derivatives(torch, expression)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_powers_of_zero_have_their_limit():
    """d/dp 0**p is 0 for p > 0 in every order; PyTorch's second order is NaN."""
    p = weft.tensor([1.0, 2.0], requires_grad=True)
    (first,) = weft.autograd.grad((0**p).sum(), p, create_graph=True)
    (second,) = weft.autograd.grad((first * first).sum(), p, allow_unused=True, materialize_grads=True)
    assert first.tolist() == second.tolist() == [0, 0]
