"""A gradient that comes by way of a view is no copy where nobody else knows its memory, and one where somebody does."""

import pytest

import weft
from weft.runtime.eager import owned


@pytest.fixture
def copies(monkeypatch):
    """The shapes of gradients that were copied."""
    made, clone = [], owned.clone
    monkeypatch.setattr(owned, "clone", lambda x: made.append(x.shape) or clone(x))
    return made


def _gradient(x, function, cotangent):
    x.grad = None
    function(x.view(2, 3, 4)).backward(cotangent)
    return x.grad


def test_the_gradient_of_a_view_is_the_memory_of_its_own(copies):
    x, cotangent = weft.randn(6, 4, requires_grad=True), weft.randn(2, 3, 4)
    for _ in range(30):
        found = _gradient(x, lambda v: v * 2, cotangent)
        assert found._base is None and found.view(2, 3, 4).equal(cotangent * 2)
    assert copies == []
    found.zero_()
    found += 1
    assert found.sum() == 24 and x.grad is found


def test_what_the_user_has_given_is_copied(copies):
    x, cotangent = weft.randn(6, 4, requires_grad=True), weft.randn(2, 3, 4)
    before = cotangent.clone()
    for _ in range(30):
        _gradient(x, lambda v: v, cotangent).zero_()
    assert len(copies) == 30 and cotangent.equal(before)


@pytest.mark.parametrize("keep", [lambda g: g, lambda g: g.view(-1), lambda g: g.numpy(), lambda g: g.detach()])
def test_what_a_hook_has_kept_is_copied(keep, copies):
    x, cotangent, seen = weft.randn(6, 4, requires_grad=True), weft.randn(2, 3, 4), []

    def function(v):
        v.register_hook(lambda g: seen.append(keep(g)))
        return v * 3

    for _ in range(20):
        _gradient(x, function, cotangent).zero_()
    assert len(copies) == 20 and all(abs(float(g.sum()) - float(cotangent.sum()) * 3) < 1e-4 for g in seen)


def test_parts_and_repeated_elements_are_copied(copies):
    x = weft.randn(6, 4, requires_grad=True)
    (x[:3] * 2).sum().backward()
    assert x.grad.sum() == 24
    x.grad = None
    x.expand(2, 6, 4).sum().backward()
    assert x.grad.sum() == 48
    x.grad = None
    x.t().backward(weft.ones(4, 6))
    assert x.grad.equal(weft.ones(6, 4)) and x.grad.is_contiguous()


def test_two_leaves_of_one_memory_do_not_share_it():
    x, y = weft.randn(4, requires_grad=True), weft.randn(2, 2, requires_grad=True)
    for _ in range(20):
        x.grad = y.grad = None
        z = x * 2 + (y * 1).view(4)
        (z * weft.arange(4.0)).sum().backward()
        x.grad += 1
        assert y.grad.flatten().tolist() == [0, 1, 2, 3] and x.grad.tolist() == [1, 3, 5, 7]
