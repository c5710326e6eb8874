"""Edges of the graph in the place of tensors, and what their nodes expect."""

import pytest

import weft
from weft import autograd
from weft.autograd.graph import get_gradient_edge


def run(function, compiled):
    return weft.compile(function) if compiled else function


def in_two_steps(library, x):
    """The gradient of a loss, by way of an edge in the middle, alone and in a tuple."""
    of = library.autograd.graph.get_gradient_edge
    middle = x.sin().cos().sum()
    loss = middle.exp().sin()
    edge = of(middle)
    (given,) = library.autograd.grad(loss, edge, retain_graph=True)
    (alone,) = library.autograd.grad(edge, x, grad_outputs=given, retain_graph=True)
    (listed,) = library.autograd.grad((edge,), (x,), grad_outputs=(given,), retain_graph=True)
    (of_one,) = library.autograd.grad(edge, x, retain_graph=True)
    library.autograd.backward(edge, given, retain_graph=True)
    library.autograd.backward((loss, edge), inputs=[of(x)])
    return [alone.tolist(), listed.tolist(), of_one.tolist(), x.grad.tolist()]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_edge_is_as_good_as_its_tensor(compiled):
    def whole(x):
        return x.sin().cos().sum().exp().sin()

    found = run(lambda x: in_two_steps(weft, x), compiled)
    for _ in range(3):
        x = weft.tensor([1.0, 2.0], requires_grad=True)
        y = weft.tensor([1.0, 2.0], requires_grad=True)
        alone, listed, _, _ = found(x)
        assert alone == listed == autograd.grad(whole(y), y)[0].tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("compiled", [False, True])
def test_edges_give_what_they_give_in_pytorch(compiled):
    import torch

    theirs = in_two_steps(torch, torch.tensor([1.0, 2.0], requires_grad=True))
    ours = run(lambda x: in_two_steps(weft, x), compiled)(weft.tensor([1.0, 2.0], requires_grad=True))
    for one, other in zip(ours, theirs):
        assert one == pytest.approx(other, rel=2e-6)


def test_cotangents_of_edges_are_checked():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    many, one = get_gradient_edge(x.sin()), get_gradient_edge(x.sin().sum())
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        autograd.grad(many, x)
    with pytest.raises(RuntimeError, match="Mismatch in shape: grad_output"):
        autograd.grad(one, x, grad_outputs=weft.ones(4))
    with pytest.raises(RuntimeError, match="required to have the same dtype"):
        autograd.grad(one, x, grad_outputs=weft.ones((), dtype=weft.complex64))
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        autograd.grad((one, one), x, grad_outputs=(weft.ones(()),))


class Halves(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[:1] * 1, x[1:] * 2

    @staticmethod
    def backward(ctx, first, second):
        return weft.cat([first, second * 2])


@pytest.mark.parametrize("compiled", [False, True])
def test_nodes_say_what_they_expect(compiled):
    def metas(x):
        y = x * 2
        first, _ = Halves.apply(y)
        changed = x * 1
        changed[0].mul_(2)
        leaf = get_gradient_edge(x).node
        return [node._input_metadata for node in (y.grad_fn, y.sum().grad_fn, first.grad_fn, changed.grad_fn, leaf)]

    for _ in range(3):
        found = run(metas, compiled)(weft.ones(3, dtype=weft.float64, requires_grad=True))
        assert [[tuple(meta.shape) for meta in metas] for metas in found] == [
            [(3,)],
            [()],
            # In a compiled call a Function that does nothing but ops has a node for each of its outputs.
            [(1,)] if compiled else [(1,), (2,)],
            [(3,)],
            [(3,)],
        ]
        assert all(meta.dtype is weft.float64 and meta.device.type == "cpu" for metas in found for meta in metas)


def test_gradcheck_of_no_elements():
    empty = weft.rand((0, 1), dtype=weft.float64, requires_grad=True)
    assert autograd.gradcheck(weft.diagonal, (empty,), check_forward_ad=True)
