"""What transformations give has a history where it depends on a tensor of outside that requires gradients, and none
elsewhere."""

import numpy as np
import pytest

import weft

NUMBERS = np.random.default_rng(0).standard_normal((2, 4))


def pulled(library, f, x):
    out, pull = library.func.vjp(f, x)
    return pull(library.ones_like(out))[0]


def pulled_with(library, f, x, w):
    out, pull = library.func.vjp(f, x)
    return pull(w * library.ones_like(out))[0]


def pushed(library, f, x):
    # PyTorch's has no history, whatever it depends on.
    return library.func.linearize(f, x)[1](library.ones_like(x)).detach()


PROGRAMS = {
    "jacrev": lambda ns, f, x, w: ns.func.jacrev(f)(x),
    "jacfwd": lambda ns, f, x, w: ns.func.jacfwd(f)(x),
    "hessian": lambda ns, f, x, w: ns.func.hessian(lambda y: f(y).sum())(x),
    "jacrev of grad": lambda ns, f, x, w: ns.func.jacrev(ns.func.grad(lambda y: f(y).sum()))(x),
    "grad of jacrev": lambda ns, f, x, w: ns.func.grad(lambda y: (ns.func.jacrev(f)(y) ** 2).sum())(x),
    "jacfwd of jacrev": lambda ns, f, x, w: ns.func.jacfwd(ns.func.jacrev(f))(x),
    "vjp": lambda ns, f, x, w: pulled(ns, f, x),
    "vjp with a cotangent of outside": lambda ns, f, x, w: pulled_with(ns, f, x, w),
    "linearize": lambda ns, f, x, w: pushed(ns, f, x),
    "vmap of jacrev": lambda ns, f, x, w: ns.func.vmap(ns.func.jacrev(f))(ns.stack([x, x * 2.0])),
}
OUTSIDE = {
    "nothing": lambda x, w: lambda y: (y * y).sin(),
    "a weight": lambda x, w: lambda y: (y * w).sin() * w,
    "the argument too": lambda x, w: lambda y: (y * x).sin(),
}


def found(library, name, outside, of_leaf, recorded):
    x = library.tensor(NUMBERS[0], requires_grad=of_leaf)
    w = library.tensor(NUMBERS[1], requires_grad=True)
    with library.set_grad_enabled(recorded):
        result = PROGRAMS[name](library, OUTSIDE[outside](x, w), x, w)
    if result.requires_grad:
        (result * result).sum().backward()
    gradients = [None if t.grad is None else t.grad.tolist() for t in (x, w)]
    return result.requires_grad, result.tolist(), gradients


@pytest.mark.oracle
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("of_leaf", [False, True])
@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_histories_are_those_of_pytorch(name, outside, of_leaf, recorded):
    torch = pytest.importorskip("torch")
    requires, values, gradients = found(torch, name, outside, of_leaf, recorded)
    for _ in range(3):
        ours = found(weft, name, outside, of_leaf, recorded)
        assert ours[0] == requires
        np.testing.assert_allclose(ours[1], values, rtol=1e-9, atol=1e-12)
        for own, theirs in zip(ours[2], gradients):
            assert (own is None) == (theirs is None)
            if own is not None:
                np.testing.assert_allclose(own, theirs, rtol=1e-9, atol=1e-12)
