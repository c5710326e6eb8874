"""Functions with several results: each result is a tensor of its own, and what gives them is computed once."""

import numpy as np
import pytest

import weft


def matrices(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) + np.eye(shape[-1]) * np.arange(2.0, 2 + shape[-1])


# name -> (function of the module and a batch of square matrices, results that have a derivative)
FUNCTIONS = {
    "svd": (lambda m, x: m.linalg.svd(x), 3),
    "svd of a high matrix": (lambda m, x: m.linalg.svd(x[..., :2], full_matrices=False), 3),
    "qr": (lambda m, x: m.linalg.qr(x), 2),
    "eigh": (lambda m, x: m.linalg.eigh(x + x.mT), 2),
    "eig": (lambda m, x: m.linalg.eig(x), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_results_share_nothing(name, shape):
    function, n_derived = FUNCTIONS[name]
    results = function(weft, weft.tensor(matrices(*shape), requires_grad=True))
    for k, result in enumerate(results):
        others = [r for r in results if r is not result]
        before = [r.detach().clone() for r in others]
        assert result._base is None and result._version == 0 and result.is_contiguous()
        assert (result.grad_fn is not None) == (k < n_derived)
        with weft.no_grad():
            result.zero_()
        assert result._version == 1 and not any(r._version for r in others)
        assert all((r == b).all() for r, b in zip(others, before))
        results = function(weft, weft.tensor(matrices(*shape), requires_grad=True))


@pytest.mark.oracle
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_described_as_in_pytorch(name):
    torch = pytest.importorskip("torch")

    def described(module):
        results = FUNCTIONS[name][0](module, module.tensor(matrices(2, 3, 3), requires_grad=True))
        return [
            (str(r.dtype).split(".")[-1], tuple(r.shape), r._base is None, r.requires_grad, r.is_leaf) for r in results
        ]

    assert described(weft) == described(torch)


def scaled_left(m, x):
    """A loss that needs S after U has been changed."""
    u, s, vh = m.linalg.svd(x)
    loss = s.log().sum() + (vh**2 * m.arange(1.0, 4.0, dtype=x.dtype)).sum()
    u.mul_(2.0)
    return loss + (u**3).sum()


def test_a_change_of_one_result_is_none_of_what_a_backward_needs():
    x = weft.tensor(matrices(3, 3), requires_grad=True)

    def without_change(x):
        u, s, vh = weft.linalg.svd(x)
        return s.log().sum() + (vh**2 * weft.arange(1.0, 4.0, dtype=x.dtype)).sum() + ((u * 2.0) ** 3).sum()

    (expected,) = weft.autograd.grad(without_change(x), [x])
    (found,) = weft.autograd.grad(scaled_left(weft, x), [x])
    assert (found == expected).all()
    compiled = weft.compile(lambda x: weft.autograd.grad(scaled_left(weft, x), [x])[0])
    for _ in range(5):
        assert (compiled(x) == expected).all()


CHOICES = {"all": lambda r: r, "one": lambda r: r[-1], "some, one of them used": lambda r: (r[0] * 2, r[0])}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES)
def test_a_compiled_function_may_return_all_some_or_one_of_them(name, chosen):
    function = FUNCTIONS[name][0]
    compiled = weft.compile(lambda x: chosen(function(weft, x)))
    for seed in range(5):
        x = weft.tensor(matrices(2, 3, 3, seed=seed))
        found, expected = compiled(x), chosen(function(weft, x))
        pairs = zip(found, expected) if isinstance(expected, tuple) else [(found, expected)]
        assert all(f._base is None and (f == e).all() for f, e in pairs)
