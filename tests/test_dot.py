"""Products of two vectors, and of few long rows and one: the sum of their products, in the order of sums, however they
are written and lie; and products of many small matrices, which are those of each."""

import numpy as np
import pytest

import weft

SIZES = (0, 1, 3, 31, 100, 2049, 70_001)


def vectors(n, dtype, seed=0):
    draw = np.random.default_rng(seed)
    return [weft.tensor(draw.standard_normal(n) * 10.0 ** draw.integers(-3, 4, n), dtype=dtype) for _ in range(2)]


SPELLINGS = {
    "@": lambda x, y: x @ y,
    "matmul": lambda x, y: weft.matmul(x, other=y),
    "dot": lambda x, y: weft.dot(x, y),
    "method": lambda x, y: x.dot(y),
    "inner": lambda x, y: weft.inner(x, y),
    "vdot": lambda x, y: weft.vdot(x, y),
}


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_it_is_the_sum_of_the_products(spelling, dtype):
    function = SPELLINGS[spelling]
    compiled = weft.compile(function)
    for n in SIZES:
        x, y = vectors(n, dtype)
        wanted = (x * y).sum().item()
        assert [function(x, y).item(), compiled(x, y).item(), compiled(x, y).item()] == [wanted] * 3


def test_it_lies_as_it_likes_and_has_any_number_of_threads():
    x, y = vectors(300_000, weft.float64)
    spread = weft.zeros(300_000, 3, dtype=weft.float64)
    spread[:, 1] = y
    compiled, before = weft.compile(lambda x, y: x @ y), weft.get_num_threads()
    try:
        wanted = (x @ y).item()
        for n in (1, 2, 3):
            weft.set_num_threads(n)
            assert [f(x, z).item() for z in (y, spread[:, 1]) for f in (compiled, weft.dot)] == [wanted] * 4
        assert (x @ x[:1].expand(300_000)).item() == (x * x[0]).sum().item()
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("rows, k", [(1, 5000), (3, 4096), (7, 70_001), (2, 300_000)])
def test_few_long_rows_times_a_vector_are_sums(rows, k, dtype):
    draw = np.random.default_rng(rows)
    x = weft.tensor(draw.standard_normal((rows, k)), dtype=dtype)
    vector = weft.tensor(draw.standard_normal(k), dtype=dtype)
    compiled, before = weft.compile(lambda x, y: x @ y), weft.get_num_threads()
    wanted = [(row * vector).sum().item() for row in x]
    try:
        for n in (1, 2, 3):
            weft.set_num_threads(n)
            for same in (x, x.T.contiguous().T):
                assert [f(same, vector).tolist() for f in (compiled, weft.matmul, weft.mv)] == [wanted] * 3
            assert (x[:, None] @ vector).flatten().tolist() == wanted
    finally:
        weft.set_num_threads(before)


def test_rows_become_long_while_a_program_serves_all_lengths():
    draw = np.random.default_rng(6)
    x = weft.tensor(draw.standard_normal((2, 9000)), requires_grad=True)
    vector = weft.tensor(draw.standard_normal(9000))

    def run(x, vector):
        return (x @ vector).exp().sum()

    compiled = weft.compile(run, dynamic=True)
    for n in (3, 100, 4095, 4096, 70, 9000, 5000):
        both = []
        for function in (run, compiled):
            x.grad = None
            loss = function(x[:, :n] / 100, vector[:n])
            loss.backward()
            both.append((loss.item(), x.grad.tolist()))
        assert both[0] == both[1]


def test_derivatives_of_any_order():
    def run(x, y):
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        (first,) = weft.autograd.grad((x @ y) ** 2, x, create_graph=True)
        (second,) = weft.autograd.grad(first.dot(first), x)
        return first.detach(), second, weft.autograd.grad((x @ y).exp(), y)[0]

    x, y = (v / 1000 for v in vectors(40, weft.float64))
    compiled, wanted = weft.compile(run), run(x, y)
    for _ in range(3):
        assert [g.tolist() for g in compiled(x, y)] == [g.tolist() for g in wanted]
    p = (x * y).sum()
    assert weft.allclose(wanted[0], 2 * p * y) and weft.allclose(wanted[2], p.exp() * x)
    assert weft.allclose(wanted[1], 8 * p * (y * y).sum() * y)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "complex128", "bfloat16", "float16"])
def test_types_and_values_are_pytorchs(dtype):
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(3)
    arrays = [draw.integers(-4, 5, 50).astype("float64") for _ in range(2)]
    ours = [weft.tensor(a).to(getattr(weft, dtype)) for a in arrays]
    theirs = [torch.tensor(a).to(getattr(torch, dtype)) for a in arrays]
    found, wanted = ours[0] @ ours[1], theirs[0] @ theirs[1]
    assert str(found.dtype).partition(".")[2] == str(wanted.dtype).partition(".")[2] and found.item() == wanted.item()
    for function in (lambda t, x: x @ x[:3], lambda t, x: t.dot(x, x.reshape(5, 10))):
        with pytest.raises(RuntimeError):
            function(torch, theirs[0])
        with pytest.raises(RuntimeError):
            function(weft, ours[0])


BATCHES = [((500, 3, 3), (500, 3, 4)), ((70, 1, 9), (70, 9, 2)), ((40, 5, 300), (40, 300, 1)), ((6, 7, 2, 8), (8, 3))]


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("shapes", BATCHES, ids=str)
def test_a_batch_of_products_is_one_product_after_the_other(shapes, dtype):
    draw = np.random.default_rng(1)
    x, y = (weft.tensor(draw.standard_normal(shape), dtype=dtype) for shape in shapes)
    each = [a @ b for a, b in zip(x.flatten(0, -3), y.expand(*x.shape[:-2], *y.shape[-2:]).flatten(0, -3))]
    compiled = weft.compile(lambda x, y: x @ y)
    for left, right in ((x, y), (x.mT.contiguous().mT, y), (x, y.mT.contiguous().mT)):
        for product in (left @ right, weft.matmul(left, right), compiled(left, right)):
            assert product.flatten(0, -3).tolist() == [p.tolist() for p in each]
    if y.ndim == 3:
        spread = y[:1].expand(len(x), -1, -1)
        assert (x @ spread).tolist() == [(a @ y[0]).tolist() for a in x]
        assert x[::2].bmm(y[1::2]).tolist() == [(a @ b).tolist() for a, b in zip(x[::2], y[1::2])]


def test_rows_times_rows_by_letters_are_sums():
    draw = np.random.default_rng(2)
    x, y = (weft.tensor(draw.standard_normal((40, 700))) for _ in range(2))
    compiled = weft.compile(lambda x, y: weft.einsum("ij,ij->i", x, y))
    assert weft.einsum("ij,ij->i", x, y).tolist() == (x * y).sum(1).tolist() == compiled(x, y).tolist()
    assert weft.einsum("ij,ij->", x, y).item() == (x * y).reshape(-1).sum().item()
    assert weft.einsum("ij,kj->ik", x, y).tolist() == (x @ y.T).tolist()
    one = x[:, :1]
    assert weft.allclose(weft.einsum("ij,ij->i", one, y), one[:, 0] * y.sum(1))
