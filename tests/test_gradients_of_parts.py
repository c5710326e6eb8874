"""Gradients of parts of large tensors are added where the parts are: bits, order, and who else holds what arrives."""

import itertools

import numpy as np
import pytest

import weft

N = 300  # rows and columns: so many elements are added in place


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dense(pieces, start=None):
    """The sum that rules say: of tensors of zeros with one part each, in the order in which backward comes to them."""
    total = start
    for place, value in reversed(pieces):
        whole = np.zeros((N, N), np.float32)
        whole[place] = value
        total = whole if total is None else total + whole
    return total


def bits(x):
    return np.asarray(x).view(np.uint32).tolist()


def signed(seed, *shape):
    """Numbers among which there are many -0.0."""
    found = numbers(seed, *shape)
    found[found < 0.3] = -0.0
    return found


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("n_parts", [1, 2, 7])
def test_parts_have_the_bits_of_sums_of_whole_tensors(n_parts, is_leaf):
    x = weft.tensor(numbers(0, N, N), requires_grad=True)
    values = [signed(k, N // n_parts if n_parts > 1 else 20, N) for k in range(n_parts)]
    rows = len(values[0])
    for _ in range(3):
        x.grad = None
        base = x if is_leaf else x * 1.0
        parts = [base[k * rows : (k + 1) * rows] for k in range(n_parts)]
        weft.autograd.backward(parts, [weft.tensor(v) for v in values])
        expected = dense([(np.s_[k * rows : (k + 1) * rows], v) for k, v in enumerate(values)])
        # A product with 1.0 keeps the sign of a zero.
        assert bits(x.grad) == bits(expected)


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_parts_that_overlap_and_wholes_between_them(order):
    """In Python, and in native code, which takes part from some call on."""
    data, whole = numbers(0, N, N), signed(5, N, N)
    a, b, c = signed(1, 100, N), signed(2, N, 50), signed(3, N)
    pieces = [(np.s_[50:150], a), (np.s_[:, 10:60], b), (np.s_[:], whole), (np.s_[70], c)]
    expected = bits(dense([pieces[k] for k in order]))
    for _ in range(5):
        x = weft.tensor(data, requires_grad=True)
        parts = [x * 1.0 if k == 2 else x[pieces[k][0]] for k in order]
        weft.autograd.backward(parts, [weft.tensor(pieces[k][1]) for k in order])
        assert bits(x.grad) == expected


def test_steps_columns_and_diagonals():
    x = weft.tensor(numbers(0, N, N), requires_grad=True)
    (x[::2, ::3].sum() + (x[::7] * 2.0).sum() + x.diagonal(1).sum() + x.select(1, 3).sum()).backward()
    expected = np.zeros((N, N), np.float32)
    expected[:, 3] += 1
    expected[range(N - 1), range(1, N)] += 1
    expected[::7] += 2
    expected[::2, ::3] += 1
    assert (x.grad.numpy() == expected).all()


def test_compiled_and_eager_gradients_are_equal():
    def f(x):
        left, middle, right = x.split([100, 50, 150], dim=1)
        return (left[:, :50] * middle).sum() + right.tanh().sum() + sum(r.sum() for r in x.chunk(5))

    grads = []
    for function in (f, weft.compile(f)):
        x = weft.tensor(numbers(1, N, N), requires_grad=True)
        function(x).backward()
        grads.append(bits(x.grad))
    assert grads[0] == grads[1]


def test_what_others_hold_is_not_written_to():
    """A cotangent that two operands are given, one of which parts arrive at later."""
    x, y = (weft.tensor(numbers(k, N, N), requires_grad=True) for k in range(2))
    part = x[:20] * 3.0
    total = x + y
    cotangent = weft.ones(N, N)
    weft.autograd.backward([total, part], [cotangent, weft.ones(20, N)])
    assert (y.grad == 1).all() and (cotangent == 1).all()
    assert (x.grad[:20] == 4).all() and (x.grad[20:] == 1).all()


def test_hooks_see_the_sum_and_may_keep_it():
    x, seen = weft.tensor(numbers(0, N, N), requires_grad=True), []
    y = x * 1.0
    y.register_hook(seen.append)
    for factor in (1.0, 2.0):
        sum((factor * p).sum() for p in y.chunk(4)).backward(retain_graph=True)
    assert [bool((g == f).all()) for g, f in zip(seen, (1.0, 2.0))] == [True, True]
    assert (x.grad == 3).all()


def test_gradients_of_some_and_second_derivatives():
    x = weft.tensor(numbers(0, N, N), requires_grad=True)
    left, right = x.chunk(2)
    (g,) = weft.autograd.grad((left * right).sum(), x, create_graph=True)
    (h,) = weft.autograd.grad((g * g).sum(), x)
    assert (g == weft.cat([right, left])).all() and (h == 2 * x).all()
    p, q = x[:10], x[20:30]
    (only,) = weft.autograd.grad((p * 2.0 + q).sum(), p)
    assert (only == 2).all() and only.shape == (10, N)


@pytest.mark.oracle
def test_as_torch():
    torch = pytest.importorskip("torch")

    def step(library, x):
        parts = [*x.split(30), *x.unbind(1)[:4], x[10:20, ::2].reshape(-1), *x.tensor_split(3, 1)]
        return sum((p.exp() * (k + 1)).sum() for k, p in enumerate(parts))

    found = []
    for library in (torch, weft):
        x = library.tensor(numbers(7, N, N), requires_grad=True)
        step(library, x).backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
