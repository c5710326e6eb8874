"""What is allowed and worth a warning, as in PyTorch: once in a process, or once for every line."""

import warnings

import pytest

import weft


@pytest.fixture
def always():
    before = weft.is_warn_always_enabled()
    weft.set_warn_always(True)
    assert weft.is_warn_always_enabled()
    yield
    weft.set_warn_always(before)


def said_by(function, words):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function()
    return [warning for warning in seen if words in str(warning.message)]


@pytest.mark.parametrize("compiled", [False, True])
def test_backward_that_keeps_its_graph_in_gradients_says_so(always, compiled):
    words = "Using backward() with create_graph=True"

    def step(x):
        (x * x).sum().backward(create_graph=True)
        return x.grad

    step = weft.compile(step) if compiled else step
    x = weft.ones(3, requires_grad=True)
    for _ in range(3):
        x.grad = None
        assert len(said_by(lambda: step(x), words)) == 1
    y = (x * x).sum()
    assert not said_by(lambda: weft.autograd.grad(y, x, create_graph=True), words)
    assert not said_by(y.backward, words)
    x.grad = None


def test_it_is_said_once():
    weft.set_warn_always(True)
    x = weft.ones(3, requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    weft.set_warn_always(False)
    assert not said_by(lambda: (x * x).sum().backward(create_graph=True), "create_graph")
    x.grad = None


@pytest.mark.parametrize("compiled", [False, True])
def test_grad_of_what_is_no_leaf(compiled):
    words = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed"

    def read(x):
        y = x * 2
        return y.grad

    def retained(x):
        y = x * 2
        y.retain_grad()
        assert y.grad is None
        y.sum().backward()
        return y.grad, x.grad, (x * 1).detach().grad

    read, retained = (weft.compile(f) if compiled else f for f in (read, retained))
    for _ in range(3):
        x = weft.ones(3, requires_grad=True)
        (found,) = said_by(lambda x=x: read(x), words)
        assert found.filename == __file__
        assert not said_by(lambda x=x: retained(x), words)
        assert not said_by(lambda x=x: x.grad, words)
