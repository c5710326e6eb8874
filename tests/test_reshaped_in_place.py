"""In-place changes of shapes: unsqueeze_, squeeze_, t_, transpose_, resize_; compared with PyTorch."""

import numpy as np
import pytest

import weft

CHANGES = """
y.unsqueeze_(0) ; y.unsqueeze_(-1) ; y.t_() ; y.transpose_(0, 1) ; y.swapaxes_(1, 0) ; y.swapdims_(-1, -2)
y.unsqueeze_(1).squeeze_() ; y.unsqueeze_(1).squeeze_(1) ; y.squeeze_() ; y.t_().t_()
y.t_().unsqueeze_(0) ; y.unsqueeze_(dim=0).transpose_(dim0=0, dim1=2)
"""
CASES = [change.strip() for change in CHANGES.replace("\n", ";").split(";") if change.strip()]


def changed(ns, change, before="y = x * 2", after="pass"):
    """(shape, values, the gradient of the sum of squares, version) after a change of y."""
    x = ns.tensor(np.arange(1.0, 7).reshape(2, 3), requires_grad=True)
    scope = {"x": x, "ns": ns}
    exec(before, scope)
    assert eval(change, scope) is scope["y"]
    exec(after, scope)
    y = scope["y"]
    (y * y).sum().backward()
    return tuple(y.shape), y.tolist(), x.grad.tolist(), y._version


@pytest.mark.oracle
@pytest.mark.parametrize("before", ["y = x * 2", "base = x * 2; y = base[:]", "base = x * 2; y = base[:, 1:]"])
@pytest.mark.parametrize("change", CASES)
def test_the_tensor_goes_on_as_the_view_of_what_it_was(change, before):
    torch = pytest.importorskip("torch")
    assert changed(weft, change, before) == changed(torch, change, before)


@pytest.mark.oracle
@pytest.mark.parametrize("change", ["y.unsqueeze_(0)", "y.t_()"])
def test_a_view_that_was_reshaped_is_changed_in_place(change):
    torch = pytest.importorskip("torch")
    before, after = "base = x * 2; y = base[:]", "y.mul_(3); y = base * 1.5"
    assert changed(weft, change, before, after) == changed(torch, change, before, after)


def test_leaves_and_their_views_stay_as_they_are():
    x = weft.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        x.unsqueeze_(0)
    view = x[:]
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used"):
        view.t_()
    assert x.shape == (2, 3) and view.shape == (2, 3)
    with weft.no_grad():
        x.unsqueeze_(0)
    assert x.shape == (1, 2, 3) and x.is_leaf and x.requires_grad


def test_what_a_node_has_saved_has_another_shape_now():
    x = weft.ones(2, 3, requires_grad=True)
    y = x * 2
    square = y * y
    y.unsqueeze_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()
    y = x * 2
    power = y.exp()
    power.t_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        power.sum().backward()


def test_views_with_gradients_of_memory_in_another_order_are_not_found_again():
    x = weft.ones(2, 3, requires_grad=True)
    y = x * 2
    view = y[0]
    with pytest.raises(NotImplementedError, match="do not lie in memory in their order"):
        y.t_()
    assert y.shape == (2, 3) and view.sum().item() == 6


def test_memory_is_shared_as_before():
    x = weft.arange(6)
    y, shown = x[1:5], x.numpy()
    y.unsqueeze_(0).mul_(10)
    assert shown.tolist() == [0, 10, 20, 30, 40, 5] and y.shape == (1, 4)


def test_the_gradient_that_is_kept_is_that_of_the_new_shape():
    y = weft.ones(2, 3, requires_grad=True) * 2
    y.retain_grad()
    y.unsqueeze_(0)
    y.sum().backward()
    assert y.grad.shape == (1, 2, 3)


def step(x, w):
    """A value of the call, an argument and a view change their shapes in it."""
    y = x * w
    y.unsqueeze_(0)
    z = weft.sin(y * 3)
    z.squeeze_(0)
    part = z[:, 1:]
    part.t_()
    return (part @ z).sum() + y.mean()


def test_a_compiled_call_computes_the_same_bits():
    compiled, x = weft.compile(step), weft.rand(3, 3)
    for _ in range(8):
        w = weft.rand(3, 3, requires_grad=True)
        ours = compiled(x, w)
        ours.backward()
        found, w.grad = w.grad, None
        plain = step(x, w)
        plain.backward()
        assert ours.item() == plain.item() and found.tolist() == w.grad.tolist()


def test_a_compiled_call_changes_the_shape_of_its_argument():
    @weft.compile
    def longer(x):
        total = (x * 2).sum()
        x.unsqueeze_(-1)
        return total + (x * x).sum()

    for k in range(6):
        x = weft.full((2,), float(k))
        assert longer(x).item() == 4 * k + 2 * k * k and x.shape == (2, 1)


def test_another_size():
    x = weft.arange(6.0)
    assert x.resize_(2, 2) is x and x.tolist() == [[0, 1], [2, 3]] and x._version == 1
    assert x.resize_((2, 2))._version == 1
    assert x.resize_as_(weft.ones(3))._version == 2 and x.tolist() == [0, 1, 2]
    assert x.resize_(5).tolist() == [0, 1, 2, 0, 0] and x._version == 3
    assert weft.ones(2, 3).t_().resize_(3).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        weft.ones(2, requires_grad=True).resize_(1)
    with pytest.raises(RuntimeError, match="a view of shape .2,. cannot become .3,."):
        x[:2].resize_(3)
