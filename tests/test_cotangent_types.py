"""Cotangents of another type than their output: they take its type, as in PyTorch."""

import pytest
from compiled_twin import assert_same, leaf

import weft


@pytest.mark.parametrize("dtype", [weft.float64, weft.float32, weft.int64, weft.float16])
@pytest.mark.parametrize("inside", [True, False])
def test_a_cotangent_takes_the_type_of_its_output(dtype, inside):
    def scenario(compile):
        w, x = leaf(4, 3), weft.randn(5, 4)

        def step(x, cotangent):
            w.grad = None
            y = (x @ w).tanh()
            if inside:
                y.backward(cotangent)
            return y

        step = compile(step)
        for k in range(6):
            cotangent = (weft.arange(15.0).reshape(5, 3) - k).to(dtype)
            y = step(x, cotangent)
            if not inside:
                weft.autograd.backward([y], [cotangent])
            yield w.grad, w.grad.dtype
        yield weft.autograd.grad((x @ w).sum(1), w, grad_outputs=weft.ones(5).to(dtype), create_graph=True)[0]

    assert_same(scenario)


def test_gradients_flow_through_the_conversion():
    w, g = weft.ones(3, requires_grad=True), weft.ones(3, dtype=weft.float64, requires_grad=True)
    (found,) = weft.autograd.grad(w * 3, w, g, create_graph=True)
    (again,) = weft.autograd.grad(found.sum(), g)
    assert found.dtype is weft.float32 and again.dtype is weft.float64 and again.tolist() == [3, 3, 3]


def test_a_complex_cotangent_of_a_real_output_is_refused():
    with pytest.raises(RuntimeError, match="gradient of an output of type weft.float32 cannot be weft.complex64; pass"):
        weft.ones(2, requires_grad=True).exp().backward(weft.ones(2, dtype=weft.complex64))


@pytest.mark.oracle
def test_pytorch_does_the_same():
    import torch

    for library in (torch, weft):
        x = library.tensor([1.0, 2.0], requires_grad=True)
        (x * x).backward(library.tensor([1, 2]))
        assert x.grad.dtype is library.float32 and x.grad.tolist() == [2, 8]
