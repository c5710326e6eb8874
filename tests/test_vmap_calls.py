"""vmap of functions as people write them, many kinds of calls: what a loop over the samples gives, bit for bit."""

import numpy as np
import pytest

import weft
from weft.nn import functional as F

N = 12


def rows():
    return weft.tensor(np.random.default_rng(0).normal(size=(N, 3)))


def matrix(r):
    return weft.outer(r, r) + weft.eye(3, dtype=r.dtype)


CALLS = {
    "parts": lambda r: (r[1], r[1:], r[[2, 0]], r[..., None], r[: r.shape[0] // 2], r[None]),
    "a loop": lambda r: sum(r[i] * i for i in range(len(r))),
    "iteration": lambda r: weft.stack([q * 2 for q in r]),
    "unpacking": lambda r: (lambda a, b, c: a * b + c)(*r),
    "numbers out and in": lambda r: weft.tensor(r.tolist()),
    "truth": lambda r: r * 2 if r.sum() > 0 else r / 2,
    "a mask": lambda r: r[r > -100],
    "unique": lambda r: r.unique()[:1],
    "comparisons": lambda r: ((r > 0).any(), (r > 0) & (r < 1), r.isnan(), r.sign()),
    "integers": lambda r: (r * 100).long() * 2 // 3 % 5,
    "einsum": lambda r: (weft.einsum("i,j->ij", r, r), weft.einsum("i,i->", r, r)),
    "unfold": lambda r: weft.outer(r, r).reshape(-1).unfold(0, 3, 2),
    "products": lambda r: (matrix(r).mv(r), weft.kron(r, r), weft.linalg.cross(r, r.flip(0)), r.dot(r)),
    "resized": lambda r: F.interpolate(r[None, None], scale_factor=2),
    "convolved": lambda r: F.conv1d(r[None, None], weft.ones(1, 1, 2, dtype=r.dtype)),
    "padded": lambda r: F.pad(r, (1, 2)),
    "scattered": lambda r: (
        weft.zeros(4, dtype=r.dtype).scatter(0, weft.tensor([0, 1, 3]), r),
        r.new_zeros(4).scatter_add_(0, weft.tensor([0, 1, 1]), r),
        r.new_zeros(4).index_add_(0, weft.tensor([0, 1, 1]), r),
    ),
    "grids": lambda r: weft.meshgrid(r, r, indexing="ij"),
    "matrices": lambda r: (weft.linalg.inv(matrix(r)), weft.linalg.det(matrix(r)), weft.linalg.cholesky(matrix(r))),
    "factors": lambda r: (weft.linalg.svdvals(matrix(r)), *weft.linalg.qr(matrix(r)), weft.linalg.eigvalsh(matrix(r))),
    "exponential": lambda r: weft.linalg.matrix_exp(weft.outer(r, r)),
    "solved": lambda r: (weft.linalg.solve(matrix(r), r), weft.cholesky_solve(r[:, None], 2 * matrix(r * 0))),
    "order": lambda r: (*r.sort(), r.median(), r.kthvalue(2)[0], r.quantile(0.3), r.argsort(descending=True)),
    "searched": lambda r: (
        weft.searchsorted(r.sort()[0], r),
        weft.bucketize(r, weft.tensor([-1.0, 0.0, 1.0]).double()),
    ),
    "running": lambda r: (r.cumsum(0), r.cummax(0)[0], r.logcumsumexp(0), r.cumprod(0), r.diff()),
    "counted": lambda r: weft.histc(r, 4),
    "distances": lambda r: (
        weft.cdist(r[:, None], r[:, None]),
        F.pairwise_distance(r, r * 2),
        F.cosine_similarity(r, r, 0),
    ),
    "densities": lambda r: (
        weft.distributions.Normal(r, 1.0).log_prob(r * 2).sum(),
        weft.distributions.MultivariateNormal(r, matrix(r * 0)).log_prob(r * 2),
    ),
    "diagonals": lambda r: (weft.diag_embed(r), weft.tril(matrix(r)), matrix(r).fill_diagonal_(0), matrix(r).trace()),
    "transforms": lambda r: (weft.fft.rfft(r).abs(), weft.fft.fft(r).real),
    "complex": lambda r: (weft.complex(r, r * 2).exp() * weft.complex(r, -r).conj()).abs(),
    "half": lambda r: (r.half() * 2).softmax(0),
    "windows": lambda r: F.max_pool1d(r[None], 2, 1),
    "losses": lambda r: (F.smooth_l1_loss(r, r * 2), F.kl_div(r.log_softmax(0), r.softmax(0), reduction="sum")),
    "assigned": lambda r: assigned(r, r.new_zeros(3, 3)),
    "assigned to zeros": lambda r: assigned(r, weft.zeros(3, 3, dtype=r.dtype)),
}


def assigned(r, made):
    made[0, 1], made[1, 0], made[2] = -r[2], r[2], r
    made[:, 0] += r
    made[made > 1] = 1.0
    return made


def alike(a, b):
    return a.dtype is b.dtype and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy(), equal_nan=True)


def listed(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    function, x = CALLS[name], rows()
    expected = [weft.stack(column) for column in zip(*[listed(function(row)) for row in x])]
    for made in (weft.vmap(function), weft.compile(weft.vmap(function))):
        for _ in range(2):
            found = listed(made(x))
            assert len(found) == len(expected) and all(map(alike, found, expected))


@pytest.mark.parametrize("mode", [weft.inference_mode, weft.no_grad, weft.enable_grad])
def test_modes(mode):
    x = rows()
    with mode():
        assert alike(weft.vmap(lambda r: (r * 2).sin().sum())(x), (x * 2).sin().sum(1))


@pytest.mark.parametrize("shape", [(N, 0), (N,), (N, 1), (N, 2, 0)])
def test_samples_without_dimensions_or_elements(shape):
    x = weft.ones(*shape)
    assert alike(weft.vmap(lambda r: (r * 3).sum() + 1)(x), weft.stack([(r * 3).sum() + 1 for r in x]))


def test_positions_that_differ_between_samples():
    x, one, two = rows(), weft.arange(N) % 3, weft.arange(2 * N).reshape(N, 2) % 3
    for function, at in (
        (lambda r, i: r[i], one),
        (lambda r, i: r.index_select(0, i), two),
        (lambda r, i: r.gather(0, i), two),
        (lambda r, i: r.clone().index_fill_(0, i, 9.0), two),
        (lambda r, i: r.clone().index_put_((i,), r[:2] * 7), two),
        (lambda r, i: F.one_hot(i, 3) * r, one),
        (lambda r, i: F.embedding(i, x), one),
    ):
        assert alike(weft.vmap(function)(x, at), weft.stack([function(r, i) for r, i in zip(x, at)]))
    with pytest.raises(IndexError, match="index 3 is out of bounds for"):
        weft.vmap(lambda r, i: r.index_select(0, i))(x, two + 1)


def test_sparse_tensors_and_subclasses_are_taken_one_by_one():
    dense = weft.eye(N)
    found = weft.vmap(lambda r: (r * 2).to_dense().sum() if r.is_sparse else r.sum())(dense.to_sparse())
    assert alike(found, weft.full((N,), 2.0))

    class Own(weft.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    x = rows().as_subclass(Own)
    assert alike(weft.vmap(lambda r: r * 2)(x).as_subclass(weft.Tensor), rows() * 2)
