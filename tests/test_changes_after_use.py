"""Operands that are changed in place between an op and its backward: an error only where the derivative reads them."""

import pytest

import weft

FUNCTIONS = {
    "index": lambda lib, x: x[lib.tensor([0, 2])],
    "mask": lambda lib, x: x[lib.tensor([True, False, True])],
    "matmul": lambda lib, x: x @ lib.ones(3, 2),
    "batched": lambda lib, x: lib.ones(2, 4, 3) @ x,
    "mv": lambda lib, x: lib.ones(2, 3).mv(x),
    "dot": lambda lib, x: x.dot(lib.ones(3)),
}
pytestmark = pytest.mark.parametrize("name", FUNCTIONS)


def changed_after(name, lib, leaf):
    x = leaf * 1
    y = FUNCTIONS[name](lib, x)
    x.mul_(2)
    y.sum().backward()
    return y, x


def results_of(name, lib, function):
    leaf = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    found = [t.tolist() for t in function(name, lib, leaf)]
    return found, leaf.grad.tolist()


def test_what_only_its_shape_is_asked_of_may_change(name):
    # `t[mask] = t[mask]` was an error in backward: the derivative of an index reads no values.
    eager, compiled = results_of(name, weft, changed_after), weft.compile(changed_after)
    for _ in range(3):
        assert results_of(name, weft, compiled) == eager


@pytest.mark.oracle
def test_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    assert results_of(name, weft, changed_after) == results_of(name, torch, changed_after)


def test_the_second_derivative_is_that_of_the_product(name):
    x = weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64, requires_grad=True)
    lib = type("Doubles", (), {"tensor": weft.tensor, "ones": lambda *s: weft.ones(*s, dtype=weft.float64)})
    assert weft.autograd.gradgradcheck(lambda x: FUNCTIONS[name](lib, x * x), (x,))
