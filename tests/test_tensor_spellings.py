"""The spellings of functions and methods people write: positional and keyword, dim and keepdim, negative dims.

Every expression is evaluated with weft, and where PyTorch is installed with both: type, shape and values are equal.
"""

import numpy as np
import pytest

import weft

REDUCTIONS = """
x.sum(dim=1) ; x.sum(dim=-1, keepdim=True) ; x.sum(-1, True) ; x.sum((0, 1)) ; x.sum([0]) ; x.sum(dtype=ns.float64)
x.sum(0, dtype=ns.float64) ; ns.sum(x, dim=0) ; ns.sum(x, 1, keepdim=True) ; ns.sum(input=x)
x.mean(dim=(0, 1), keepdim=True) ; i.float().mean() ; i.sum() ; i.sum(0) ; k.sum() ; k.sum(0)
i.mean(dtype=ns.float32) ; x.prod(dim=0) ; x.prod(0, keepdim=True) ; i.prod() ; x.max(dim=0) ; x.max(dim=0).values
x.max(dim=1, keepdim=True)[1] ; x.max(0, True)[0] ; x.min(dim=-1)[1] ; ns.max(x) ; ns.max(x, 0)[0] ; ns.max(x, y)
ns.min(x, y) ; x.max(y) ; x.argmax() ; x.argmax(dim=1) ; x.argmax(1, keepdim=True) ; x.argmin(dim=-1, keepdim=True)
x.argmax(keepdim=True) ; k.any() ; k.all() ; k.any(dim=1) ; k.all(1, keepdim=True) ; k.any(0) ; i.any() ; i.all()
x.any() ; x.amax(dim=(0, 1)) ; x.amax() ; x.amin(1, keepdim=True) ; x.var() ; x.var(dim=1) ; x.var(1)
x.var(1, keepdim=True) ; x.var(unbiased=False) ; x.var(1, False) ; x.var(1, unbiased=False)
x.var(dim=1, correction=0) ; x.std(0, keepdim=True) ; x.std(unbiased=True) ; x.std(1, False)
ns.var(x, 1, correction=2) ; ns.var_mean(x, 1) ; ns.std_mean(x) ; x.logsumexp(dim=1) ; x.logsumexp(1, keepdim=True)
x.logsumexp((0, 1)) ; ns.logsumexp(x, dim=0) ; x.norm() ; x.norm(dim=0) ; x.norm(2, 1) ; x.norm(p=1, dim=1)
x.norm(1) ; x.norm(float("inf")) ; x.norm(p=3, dim=0, keepdim=True) ; x.norm("fro") ; ns.norm(x, dim=1)
x.softmax(dim=-1) ; x.softmax(-1) ; x.softmax(0, dtype=ns.float64) ; x.log_softmax(dim=1) ; ns.softmax(x, dim=1)
"""
SHAPES = """
x.reshape(3, -1) ; x.reshape((3, 2)) ; x.reshape([6]) ; ns.reshape(x, (6,)) ; ns.reshape(x, shape=(6,))
x.reshape(shape=(6,)) ; x.view(6) ; x.view((3, 2)) ; x.view(-1, 1) ; x.view_as(ns.zeros(6))
x.reshape_as(ns.zeros(6)) ; x.permute(1, 0) ; x.permute((1, 0)) ; x.permute(dims=(1, 0)) ; x.permute(-1, 0)
ns.permute(x, (1, 0)) ; ns.permute(x, dims=(1, 0)) ; x.transpose(0, 1) ; x.transpose(dim0=0, dim1=1)
x.transpose(-1, -2) ; ns.transpose(x, 0, 1) ; x.swapaxes(0, 1) ; x.swapdims(0, 1) ; x.T ; x.mT ; x.expand(2, 2, 3)
x.expand(-1, 3) ; x.expand((2, -1, -1)) ; x[:1].expand(4, 3) ; ns.broadcast_to(x, (2, 2, 3))
ns.broadcast_tensors(x, ns.ones(3))[1] ; x.unsqueeze(0) ; x.unsqueeze(dim=-1) ; x.unsqueeze(0).squeeze()
x.unsqueeze(0).squeeze(0) ; x.squeeze(0) ; x.unsqueeze(0).unsqueeze(0).squeeze((0, 1))
x.unsqueeze(-1).squeeze(dim=-1) ; ns.squeeze(x[:1]) ; ns.unsqueeze(x, 1) ; x.flatten() ; x.flatten(start_dim=0)
b.flatten(1) ; b.flatten(0, 1) ; b.flatten(start_dim=1, end_dim=2) ; ns.flatten(b, 1) ; x.ravel()
x.unflatten(1, (3, 1)) ; b.unflatten(-1, (-1, 1)) ; x.movedim(0, 1) ; b.movedim((0, 1), (2, 0)) ; ns.cat([x, y])
ns.cat((x, y), dim=1) ; ns.cat([x, y], -1) ; ns.cat([x, i]) ; ns.cat(tensors=[x, y], dim=0)
ns.cat([ns.tensor([]), x]) ; ns.concat([x, y]) ; ns.concatenate([x, y], dim=1) ; ns.stack([x, y])
ns.stack([x, y], dim=1) ; ns.stack([x, y], -1) ; ns.hstack([x, y]) ; ns.vstack([x, y]) ; ns.hstack([v, v])
ns.vstack([v, v]) ; x.split(2, dim=1) ; x.split([1, 2], dim=1)[1] ; x.split(split_size=2, dim=1)[0]
ns.split(x, 2, 1)[1] ; ns.split(x, [1, 2], dim=-1)[0] ; x.chunk(2, dim=1) ; x.chunk(chunks=2, dim=-1)[1]
ns.chunk(x, 3, 1)[2] ; x.unbind() ; x.unbind(dim=1)[2] ; ns.unbind(x, 1)[0] ; x.narrow(1, 1, 2)
ns.narrow(x, 0, 0, 1) ; x.select(1, 0) ; x.select(dim=0, index=-1) ; ns.select(x, 1, 2)
"""
PRODUCTS = """
x @ w ; ns.matmul(x, w) ; x.matmul(w) ; x.mm(w) ; x.mv(v) ; v.dot(v) ; ns.dot(v, v) ; ns.inner(v, v) ; v @ v ; v @ w
x @ v ; b @ w ; b @ b.mT ; b.bmm(b.mT) ; ns.bmm(b, b.transpose(1, 2)) ; v.outer(v) ; ns.outer(v, v)
ns.addmm(bias, x, w) ; ns.addmm(bias, x, w, beta=2, alpha=3)
"""
POSITIONS = """
x.gather(1, ns.tensor([[0, 2], [1, 1]])) ; x.gather(dim=1, index=ns.tensor([[0, 2], [1, 1]]))
ns.gather(x, 0, ns.tensor([[0, 1, 0]])) ; x.index_select(0, ns.tensor([1, 0]))
x.index_select(dim=1, index=ns.tensor([1, 0])) ; ns.index_select(x, 1, ns.tensor([2]))
x.scatter_add(1, ns.tensor([[0, 0, 1], [1, 2, 2]]), y) ; ns.scatter_add(x, 1, ns.tensor([[0, 0, 1], [1, 2, 2]]), y)
x.clone().scatter_add_(1, ns.tensor([[0, 0, 1], [1, 2, 2]]), y) ; x.clone().scatter_(1, ns.tensor([[0], [2]]), 9.0)
x.scatter(1, ns.tensor([[0], [2]]), 9.0) ; x.scatter(1, ns.tensor([[0, 1, 2], [2, 1, 0]]), y)
x.clone().index_add_(0, ns.tensor([0, 0]), y) ; x.index_add(0, ns.tensor([0, 0]), y)
x.index_add(0, ns.tensor([0, 0]), y, alpha=2) ; x.index_fill(0, ns.tensor([0]), 5.0)
x.take_along_dim(ns.tensor([[0], [1]]), 1) ; x.take_along_dim(ns.tensor([[0], [1]]), dim=1) ; x.masked_fill(k, 0.0)
x.masked_fill(mask=k, value=-1) ; x.masked_fill(k, ns.tensor(3.0)) ; x.clone().masked_fill_(k, 2.0)
x.masked_select(k) ; x[k] ; ns.nonzero(k) ; k.nonzero(as_tuple=True)[0] ; ns.where(k, x, y) ; ns.where(k, x, 0.0)
ns.where(k)[1] ; x.where(k, y) ; x.where(k, 0.0) ; ns.nn.functional.one_hot(ns.tensor([0, 2]), num_classes=4)
ns.nn.functional.one_hot(ns.tensor([0, 2]))
"""
ARITHMETIC = """
x.clamp(0.3, 0.5) ; x.clamp(min=0.3) ; x.clamp(max=0.3) ; x.clamp(min=0.3, max=0.5) ; ns.clamp(x, min=0.3)
ns.clamp(x, 0.3, 0.5) ; ns.clamp(x, min=y) ; x.clip(0.3, 0.5) ; x.clamp_min(0.4) ; x.clone().clamp_(0.3, 0.5)
x.clone().clamp_(min=0.5) ; x.clone().clamp_min_(0.5) ; x.add(y, alpha=2) ; x.sub(y, alpha=2)
ns.add(x, y, alpha=2) ; ns.sub(x, y, alpha=2) ; ns.sub(x, 1) ; x.div(y) ; x.div(y, rounding_mode="floor")
x.div(y, rounding_mode="trunc") ; ns.div(x, 2) ; x.true_divide(2) ; x.floor_divide(0.3) ; x // 0.3 ; 7 % i ; 2 ** i
i ** 2 ; i // 2 ; -7 // i ; x.fmod(0.3) ; x.remainder(0.3) ; ns.remainder(5, i) ; x.pow(2) ; x.pow(exponent=2)
x.pow(y) ; ns.pow(x, 2) ; ns.pow(2, x) ; x.abs() ; x.absolute() ; x.neg() ; x.negative() ; x.sign() ; x.exp2()
ns.sigmoid(x) ; x.erf() ; ns.erf(x) ; x.arctan() ; x.arcsin() ; ns.arctan2(x, y) ; x.square() ; x.round(decimals=1)
x.round() ; x.frac() ; x.logit() ; x.erfc() ; x.lerp(y, 0.3) ; ns.lerp(x, y, ns.tensor(0.3))
x.addcmul(y, y, value=2) ; x.addcdiv(y, y) ; x.atan2(y) ; x.eq(y) ; x.ne(1) ; x > 0.5 ; x >= y ; x.gt(0.5) ; x.lt(y)
ns.isclose(x, y) ; ns.allclose(x, x) ; x.equal(x) ; ns.equal(x, y) ; x.isnan() ; x.isinf() ; x.isfinite() ; k & k
k | ~k ; k ^ k ; ~k ; k.logical_not() ; i & 3 ; i | 1 ; i ^ 5 ; ~i ; k.logical_and(i) ; ns.logical_xor(k, i)
x.flip(0) ; x.flip([0, 1]) ; x.flip(dims=(1,)) ; x.roll(1) ; x.roll(1, 0) ; x.roll((1, 1), (0, 1)) ; x.repeat(2, 1)
x.repeat(2, 2, 1) ; x.tile((2,)) ; x.tril() ; x.triu(1) ; x.tril(diagonal=-1) ; ns.tril(x, 1) ; x.diag()
x.diagonal() ; ns.diag(v) ; ns.trace(x[:, :2])  ; ns.maximum(x, y) ; ns.negative(x) ; ns.logaddexp(x, y)
x.nan_to_num() ; ns.empty(3).uniform_(0, 1).shape ; ns.empty(3).normal_(mean=0, std=1).shape ; ns.zeros(3).fill_(2)
ns.zeros(3).add_(1).mul_(2).sub_(1).div_(2) ; ns.ones(3).zero_() ; x.clone().copy_(y) ; x.clone().sqrt_().exp_()
x.clone().addcmul_(y, y, value=0.5) ; x.clone().addcdiv_(y, y, value=0.5) ; x.clone().lerp_(y, 0.5)
x.clone().pow_(2) ; x.clone().add_(y, alpha=3) ; x.clone().tanh_()
"""
CREATION = """
ns.zeros(2, 3) ; ns.zeros((2, 3)) ; ns.zeros([2, 3], dtype=ns.int64) ; ns.zeros(size=(2,)) ; ns.zeros(())
ns.ones(2, requires_grad=True) ; ns.ones(3, dtype=ns.bool) ; ns.full((2, 2), 7) ; ns.full((2,), 1.5)
ns.full((2,), True) ; ns.full(size=(2,), fill_value=2) ; ns.full((2,), 3, dtype=ns.float32) ; ns.arange(5)
ns.arange(1, 5) ; ns.arange(1, 5, 2) ; ns.arange(0, 1, 0.25) ; ns.arange(5.0) ; ns.arange(5, 0, -2)
ns.arange(start=1, end=4) ; ns.arange(3, dtype=ns.float64) ; ns.linspace(0, 1, 5) ; ns.linspace(0, 1, steps=3)
ns.linspace(start=0, end=1, steps=3) ; ns.eye(3) ; ns.eye(2, 3) ; ns.eye(2, dtype=ns.int64) ; ns.zeros_like(x)
ns.ones_like(i) ; ns.ones_like(x, dtype=ns.int64) ; ns.full_like(x, 3) ; ns.empty(2, 3).shape
ns.empty_like(x).shape ; ns.tensor(3) ; ns.tensor(3.0) ; ns.tensor(True) ; ns.tensor([1, 2.5])
ns.tensor([[1, 2], [3, 4]]) ; ns.tensor([1, 2], dtype=ns.float64) ; ns.tensor(np.arange(3))
ns.tensor(np.float32(1.5)) ; ns.tensor([]) ; ns.tensor([x[0, 0], 2]) ; ns.as_tensor([1, 2])
ns.as_tensor(np.ones(2), dtype=ns.float32) ; ns.from_numpy(np.arange(3)) ; x.new_zeros(2, 3) ; x.new_zeros((2,))
x.new_ones(2) ; x.new_full((2,), 3.0) ; x.new_tensor([1, 2]) ; i.new_tensor([1.5]) ; x.new_empty(2).shape
ns.rand(2, 3).shape ; ns.rand((2,)).dtype ; ns.rand(size=(2,)).shape ; ns.randn(2, generator=ns.Generator()).shape
ns.randn(2, 3, dtype=ns.float64).dtype ; ns.randint(5, (3,)).dtype ; ns.randint(0, 5, (3,)).shape
ns.randint(low=0, high=5, size=(3,)).shape ; ns.randperm(4).dtype ; ns.normal(0.0, 1.0, (2,)).shape
ns.normal(0.0, 1.0, size=(2,)).shape ; ns.normal(ns.zeros(3), 1.0).shape ; ns.bernoulli(ns.ones(3))
ns.rand_like(x).shape ; ns.randn_like(x).shape
"""
QUESTIONS = """
x.to(ns.float64) ; x.to(i) ; x.to(dtype=ns.int64) ; x.to("cpu") ; x.to("cpu", ns.float64)
x.to(ns.float64, copy=True) ; x.double() ; x.float() ; x.int() ; x.long() ; x.bool() ; x.type(ns.float64)
x.type_as(i) ; x.tolist() ; x.numpy().sum() ; x.size() ; x.size(0) ; x.size(dim=-1) ; x.shape ; x.dim() ; x.ndim
x.ndimension() ; x.numel() ; ns.numel(x) ; x.nelement() ; x.stride() ; x.t().stride(0) ; x.is_contiguous()
x.t().is_contiguous() ; x.contiguous() ; x.element_size() ; x.itemsize ; x.nbytes ; x.is_floating_point()
ns.is_floating_point(x) ; ns.is_tensor(x) ; x.dtype.is_floating_point ; x.data ; x.detach() ; x.cpu() ; x.is_leaf
x.requires_grad ; len(x) ; float(x[0, 0]) ; int(i[0, 0]) ; bool(k[0, 0]) ; f"{x[0, 0]:.3f}"
f"{x[0, 0].item():.2f}" ; x.max().item() ; ns.result_type(x, i) ; ns.promote_types(ns.int64, ns.float32)
ns.can_cast(ns.float32, ns.int64) ; ns.iinfo(ns.int64).max ; ns.get_default_dtype()
ns.is_grad_enabled() ; ns.meshgrid(v, v, indexing="ij")[0] ; ns.count_nonzero(x) ; x.diff()
ns.nn.functional.softmax(x, dim=1) ; ns.nn.functional.normalize(x) ; ns.relu(x) ; x.relu_()
"""
EXPRESSIONS = [
    e.strip()
    for block in (REDUCTIONS, SHAPES, PRODUCTS, POSITIONS, ARITHMETIC, CREATION, QUESTIONS)
    for e in block.replace("\n", ";").split(";")
    if e.strip()
]


def names(ns):
    """Operands of numbers between 0.1 and 0.9, the same for both libraries."""
    numbers = np.random.default_rng(0)
    shapes = {"x": (2, 3), "y": (2, 3), "w": (3, 4), "v": (3,), "b": (2, 2, 3), "bias": (4,), "z": (1,)}
    made = {k: ns.tensor(np.float32(numbers.uniform(0.1, 0.9, s))) for k, s in shapes.items()}
    made["i"] = ns.tensor([[1, 2, 3], [4, 5, 6]])
    made["k"] = ns.tensor([[True, False, True], [False, False, True]])
    return {"ns": ns, "np": np, **made}


def compared(value):
    """A result as what the two libraries must agree on."""
    if hasattr(value, "detach"):
        return str(value.dtype).split(".")[-1], tuple(value.shape), value.detach().numpy().astype(float)
    if isinstance(value, (tuple, list)):
        return tuple(compared(v) for v in value)
    return value if isinstance(value, (bool, int, float)) else str(value).replace("torch.", "weft.")


def assert_same(ours, theirs):
    if isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert_same(a, b)
    elif isinstance(ours, (float, np.ndarray)):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    else:
        assert ours == theirs


def test_there_are_many():
    assert len(EXPRESSIONS) > 400 and len(set(EXPRESSIONS)) == len(EXPRESSIONS)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_spelling(expression):
    value = eval(expression, names(weft))
    assert not isinstance(value, np.ndarray)


@pytest.mark.oracle
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_spelling_in_torch(expression):
    torch = pytest.importorskip("torch")
    assert_same(compared(eval(expression, names(weft))), compared(eval(expression, names(torch))))


@pytest.mark.oracle
def test_result_types_are_pytorchs_whatever_the_shapes():
    import torch

    def types(lib):
        kinds = [lib.float32, lib.float64, lib.bfloat16, lib.int64, lib.int32, lib.uint8, lib.bool, lib.complex64]
        given = [True, 2, 2.5, 1j, *(lib.zeros(s, dtype=k) for k in kinds for s in ((), (3,), (2, 2)))]
        pairs = [(x, y) for x in given for y in given]
        return [str(lib.result_type(x, y)).removeprefix(f"{lib.__name__}.") for x, y in pairs]

    assert types(weft) == types(torch)
