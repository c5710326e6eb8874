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


def test_views_of_what_is_turned_in_place_follow_it():
    x = weft.arange(6.0).reshape(2, 3).requires_grad_()
    y = x * 2
    view = y[0]
    y.t_()
    y.mul_(weft.tensor([1.0, 10.0]))
    view[1:].sum().backward()
    assert view.tolist() == [0, 2, 4] and x.grad.tolist() == [[0, 2, 2], [0, 0, 0]]


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


def test_set_takes_the_memory_of_another_tensor():
    taker, giver = weft.zeros(3), weft.arange(6.0)
    version = taker._version
    assert taker.set_(giver) is taker and taker._version == version + 1
    giver[0], taker[1] = 9, 7
    assert taker.tolist() == giver.tolist() == [9, 7, 2, 3, 4, 5]
    turned = weft.zeros(2).set_(giver.reshape(2, 3).t())
    giver[1] = 50
    assert turned.tolist() == [[9, 3], [50, 4], [2, 5]] and turned.stride() == (1, 3)
    assert weft.zeros(1).set_(giver, 2, (2, 2)).tolist() == [[2, 3], [4, 5]]
    assert weft.ones(3).set_().shape == (0,)


def test_what_set_refuses():
    leaf = weft.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        leaf.set_(weft.ones(2))
    with pytest.raises(NotImplementedError, match="set_: has no derivative"):
        (leaf * 1).set_(weft.ones(2))
    with pytest.raises(RuntimeError, match="Could not set tensor of type int64 to a tensor of type float32"):
        weft.zeros(2).set_(weft.tensor([1]))
    with pytest.raises(NotImplementedError, match="give a view with these strides"):
        weft.zeros(2).set_(weft.arange(6.0), 0, (2, 2), (1, 1))
    with pytest.raises(NotImplementedError, match="give the contiguous tensor"):
        weft.zeros(2).set_(weft.arange(6.0), 4, (2, 2))
    with pytest.raises(NotImplementedError, match="source is a list"):
        weft.zeros(2).set_([1.0])


@pytest.mark.parametrize("compiled", [False, True])
def test_parameters_trained_in_one_vector(compiled):
    """As programs do that send all parameters at once: every parameter is a part of one vector."""
    weft.manual_seed(0)
    model = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Tanh(), weft.nn.Linear(4, 1))
    x, y = weft.randn(8, 3), weft.randn(8, 1)
    vector, offset = weft.cat([p.detach().reshape(-1) for p in model.parameters()]), 0
    with weft.no_grad():
        for p in model.parameters():
            p.set_(vector, offset, p.shape)
            offset += p.numel()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run, losses = weft.compile(step) if compiled else step, []
    for k in range(6):
        losses.append(run(x, y).item())
        assert vector.tolist() == weft.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()
        if k == 3:
            vector.mul_(0.5)
    weft.manual_seed(0)
    model = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Tanh(), weft.nn.Linear(4, 1))
    optimizer, expected = weft.optim.SGD(model.parameters(), lr=0.1), []
    for k in range(6):
        expected.append(step(x, y).item())
        if k == 3:
            with weft.no_grad():
                for p in model.parameters():
                    p.mul_(0.5)
    assert losses == expected


def test_set_in_a_compiled_call():
    def change(a, b):
        c = a * 1
        c.set_(b * 2)
        return c + 1, c

    run = weft.compile(change)
    for k in range(4):
        a, b = weft.ones(2), weft.full((3,), float(k))
        assert [r.tolist() for r in run(a, b)] == [r.tolist() for r in change(a, b)]


def test_graphs_from_before_set_have_no_gradient_of_the_new_value():
    x = weft.ones(2, requires_grad=True)
    edge = weft.autograd.graph.get_gradient_edge(x)
    before = (x * 3).sum()
    with weft.no_grad():
        x.set_(weft.full((2,), 5.0))
    with pytest.raises(RuntimeError, match="to not have been used in the graph"):
        weft.autograd.grad(before, x, retain_graph=True)
    assert weft.autograd.grad(before, edge)[0].tolist() == [3, 3]
    (x * x).sum().backward()
    assert x.grad.tolist() == [10, 10]


RESHAPED = {
    "as_strided_": lambda v: v.as_strided_((3,), (1,)),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "transpose_": lambda v: v.transpose_(0, -1),
    "squeeze_": lambda v: v.squeeze_(0),
}


class _Shown(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g


@pytest.mark.parametrize("name", RESHAPED)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_may_not_be_changed_may_not_be_reshaped(name, is_compiled):
    """A view that no_grad, unbind or a Function has made: what it is from then on would not be known to its base."""
    reshape = RESHAPED[name]

    def of_parts(x):
        return reshape(x.clone().unbind()[0])

    def of_a_function(x):
        return reshape(_Shown.apply(x.clone()))

    def without_history(x):
        base = x.clone()
        with weft.no_grad():
            shown = base[0]
        return reshape(shown)

    x = weft.rand(2, 3, requires_grad=True)
    for change, sentence in (
        (of_parts, "function that returns multiple views"),
        (of_a_function, "view was created inside a custom Function"),
        (without_history, "A view was created in no_grad mode"),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            (weft.compile(change) if is_compiled else change)(x)
        with weft.no_grad():
            change(x)
        change(x.detach())
