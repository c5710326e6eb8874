"""Derivatives that were wrong in corners: programs and PyTorch's own tests came upon them."""

import pytest

import weft


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("values", [[0.0, 0.0], [0.0, 2.0], [3.0, 2.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("own", [1.5, 0.0])
def test_products_of_zeros_have_second_derivatives(values, own, include_self):
    # x * y * z at y = z = 0 has the second derivative x for y and z; it was 0.
    index = weft.zeros(len(values), dtype=weft.int64)

    def product(x, source):
        return x.scatter_reduce(0, index, source, "prod", include_self=include_self)

    given = [weft.tensor(v, dtype=weft.float64, requires_grad=True) for v in ([own], values)]
    assert weft.autograd.gradcheck(product, given)
    assert weft.autograd.gradgradcheck(product, given)


def test_the_second_derivative_of_two_zeros_is_the_rest():
    source = weft.zeros(2, dtype=weft.float64, requires_grad=True)
    index = weft.tensor([0, 0])
    out = weft.tensor([3.0], dtype=weft.float64).scatter_reduce(0, index, source, "prod")
    (first,) = weft.autograd.grad(out.sum(), source, create_graph=True)
    assert first.tolist() == [0, 0]
    assert weft.autograd.grad(first[0], source)[0].tolist() == [0, 3]


def test_powers_of_a_negative_base_with_complex_exponents():
    # The gradient was NaN: the logarithm of the base is complex.
    base = weft.tensor([-1.0, -2.5, 0.5], dtype=weft.float64)
    exponent = weft.tensor([0.3 + 0.7j, -1 + 2j, 1.5j], dtype=weft.complex128, requires_grad=True)
    assert weft.autograd.gradcheck(lambda e: weft.pow(base, e), [exponent])
    assert weft.autograd.gradcheck(lambda e: weft.pow(-1.0, e), [exponent])


MEDIANS = {
    "equals": [1.0, 0.0, 1.0, 0.0, 1.0, 0.0],
    "two in the middle": [4.0, 1.0, 3.0, 2.0],
    "missing": [1.0, float("nan"), 3.0, 3.0, float("nan")],
    "infinite": [float("-inf"), float("-inf"), 2.0],
    "one": [2.0],
}


def median_and_gradient(lib, function, values, run=lambda f: f):
    x = lib.tensor(values, dtype=lib.float64, requires_grad=True)
    out = run(lambda x: getattr(lib, function)(x * 2))(x)
    out.backward()
    return str(out.item()), x.grad.tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("function", ["median", "nanmedian"])
@pytest.mark.parametrize("name", MEDIANS)
def test_the_median_of_all_is_all_that_equal_it(name, function):
    # The gradient went to one of them.
    torch = pytest.importorskip("torch")
    expected = median_and_gradient(torch, function, MEDIANS[name])
    assert median_and_gradient(weft, function, MEDIANS[name]) == expected
    assert median_and_gradient(weft, function, MEDIANS[name], weft.compile) == expected


def test_medians_of_matrices_and_integers():
    assert weft.tensor([[3, 1], [2, 2]]).median().item() == 2 and weft.tensor(5.0).median().item() == 5
    x = weft.ones(2, 2, requires_grad=True)
    x.median().backward()
    assert x.grad.tolist() == [[0.25, 0.25]] * 2
