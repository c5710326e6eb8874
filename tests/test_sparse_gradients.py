"""Gradients of sparse tensors, and sparse gradients: of leaves, through Functions, in optimizers and compiled calls."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.autograd import gradcheck, gradgradcheck

ASKS = True
INDICES = [[0, 1, 1, 0], [2, 0, 2, 2]]


def values(ns, seed=0, n=4, dtype="float64"):
    return ns.tensor(np.random.default_rng(seed).standard_normal(n), dtype=getattr(ns, dtype))


def sparse(v, size=(2, 3)):
    return weft.sparse_coo_tensor(INDICES, v, size)


FUNCTIONS = {
    "to_dense": lambda s, d: s.to_dense() * d,
    "mm": lambda s, d: weft.sparse.mm(s, d.t()),
    "mm, the other way": lambda s, d: d.t() @ s,
    "mv": lambda s, d: s @ d[0],
    "of two": lambda s, d: (s @ s.t()).to_dense(),
    "sum": lambda s, d: weft.sparse.sum(s) * d,
    "sum over rows": lambda s, d: weft.sparse.sum(s, 0).to_dense() * d,
    "times dense": lambda s, d: (s * d).to_dense(),
    "times sparse": lambda s, d: (s * d.to_sparse()).to_dense(),
    "plus dense": lambda s, d: d + s,
    "plus sparse": lambda s, d: (s + d.to_sparse()).to_dense(),
    "coalesced": lambda s, d: s.coalesce().values().tanh(),
    "of elements": lambda s, d: s.sin().to_dense() * d,
    "softmax": lambda s, d: weft.sparse.softmax(s, 1).to_dense() * d,
    "log_softmax": lambda s, d: weft.sparse.log_softmax(s, 0).to_dense() * d,
    "turned": lambda s, d: s.t().to_dense() @ d,
    "a part": lambda s, d: s[1].to_dense() * d[0],
    "joined": lambda s, d: weft.cat([s, s], 1).to_dense(),
    "csr": lambda s, d: s.to_sparse_csr() @ d.t(),
    "csc": lambda s, d: s.to_sparse_csc() @ d.t(),
    "bsr": lambda s, d: s.to_sparse_bsr((1, 3)).to_dense() * d,
    "masked": lambda s, d: d.sparse_mask(s.detach().coalesce()).to_dense() * s.to_dense(),
    "sampled": lambda s, d: weft.sparse.sampled_addmm(s.to_sparse_csr(), d, d.t() @ d).to_dense(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_both_orders(name):
    v = values(weft).requires_grad_()
    d = values(weft, 1, 6).reshape(2, 3).requires_grad_()

    def function(v, d):
        return FUNCTIONS[name](sparse(v), d)

    assert gradcheck(function, (v, d)) and gradgradcheck(function, (v, d))


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_a_sparse_leaf_has_a_gradient_of_its_places(layout):
    s = weft.eye(3, dtype=weft.float64).to_sparse(layout=getattr(weft, layout)).requires_grad_()
    assert s.is_leaf and s.grad is None
    for times in (1, 2):
        (s @ weft.ones(3, 2, dtype=weft.float64)).sum().backward()
        assert s.grad.layout is s.layout and s.grad.values().tolist() == [2.0 * times] * 3
    (found,) = weft.autograd.grad((s * 3).sum(), s)
    assert found.values().tolist() == [3.0] * 3
    s.grad = None
    assert s.grad is None
    assert gradcheck(lambda s: s.to_dense().sin(), s)


def test_hooks_run_as_anywhere_in_any_backward():
    s = weft.eye(2).to_sparse().requires_grad_()
    s.register_hook(lambda g: g * 2 + g)
    (found,) = weft.autograd.grad([s * 1], [s], [weft.eye(2)])
    assert found.values().tolist() == [3.0, 3.0]
    weft.autograd.backward([s * 1], [s.detach()])
    assert s.grad.values().tolist() == [3.0, 3.0]


def test_a_layer_takes_sparse_features():
    layer, x = nn.Linear(3, 2), weft.tensor([[0.0, 2, 0], [1, 0, 0]])
    found = layer(x.to_sparse())
    assert found.allclose(layer(x)) and weft.nn.functional.linear(x, layer.weight.to_sparse()).allclose(
        x @ layer.weight.t()
    )
    found.sum().backward()
    assert layer.weight.grad.tolist() == [[1.0, 2.0, 0.0]] * 2


def test_what_is_made_of_values_is_no_leaf():
    v = values(weft).requires_grad_()
    s = sparse(v)
    assert not s.is_leaf and s.requires_grad and s.grad_fn is not None and not s.detach().requires_grad
    assert weft.sparse_coo_tensor(INDICES, v, requires_grad=True).is_leaf
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        s.detach().requires_grad_().mul_(2)


def test_the_gradient_of_elements_of_one_place():
    """It is coalesced, as in PyTorch: each element of a place has the gradient of their sum."""
    s = weft.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), requires_grad=True)
    (s.to_dense() * 3).sum().backward()
    assert s.grad.indices().tolist() == [[0], [1]] and s.grad.values().tolist() == [3.0]
    with pytest.raises(NotImplementedError, match="x.grad = x.grad \\* 2"):
        s.grad.zero_()
    s.grad = s.grad * 2
    assert s.grad.values().tolist() == [6.0]


def test_hooks_see_sparse_gradients():
    s, seen = weft.eye(2).to_sparse().requires_grad_(), []
    s.register_hook(lambda g: seen.append(g) or g * 2)
    (s * 3).sum().backward()
    assert seen[0].is_sparse and s.grad.values().tolist() == [6.0, 6.0]


# --- sparse gradients of dense leaves ---------------------------------------------------------------------------------
def test_gradients_of_both_kinds_are_added_up():
    w = weft.ones(4, 2, requires_grad=True)

    def read(rows):
        weft.nn.functional.embedding(weft.tensor(rows), w, sparse=True).sum().backward()

    read([1, 2])
    first = w.grad
    assert first.is_sparse and first.coalesce().indices().tolist() == [[1, 2]]
    read([1, 3])
    assert w.grad is first and first.to_dense().sum(1).tolist() == [0.0, 4.0, 2.0, 2.0]
    (w * 2).sum().backward()
    assert w.grad is not first and not w.grad.is_sparse
    dense = w.grad
    read([0])
    assert w.grad is dense and dense.sum(1).tolist() == [6.0, 8.0, 6.0, 6.0]
    w.grad = None
    (weft.nn.functional.embedding(weft.tensor([1]), w, sparse=True).sum() + (w * w).sum()).backward()
    assert not w.grad.is_sparse and w.grad[:, 0].tolist() == [2.0, 3.0, 2.0, 2.0]


def test_a_sparse_cotangent_of_a_dense_tensor():
    x = weft.ones(2, requires_grad=True)
    x.backward(weft.eye(2)[0].to_sparse())
    assert x.grad.is_sparse and x.grad.to_dense().tolist() == [1.0, 0.0]


def test_ops_compute_with_dense_ones():
    w = weft.ones(3, 2, requires_grad=True)
    weft.nn.functional.embedding(weft.tensor([0, 0]), w * 3, sparse=True).sum().backward()
    assert w.grad.tolist() == [[6.0, 6.0], [0.0, 0.0], [0.0, 0.0]]
    (found,) = weft.autograd.grad(weft.nn.functional.embedding(weft.tensor([2]), w, sparse=True).sum(), w)
    assert found.is_sparse and found.indices().tolist() == [[2]]


def test_of_functions_of_users():
    class Scaled(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            assert gradient.is_sparse
            return gradient * 2, None

    w = weft.ones(3, 1, requires_grad=True)
    weft.nn.functional.embedding(weft.tensor([1]), Scaled.apply(w), sparse=True).sum().backward()
    assert w.grad.is_sparse and w.grad.to_dense().flatten().tolist() == [0.0, 2.0, 0.0]


def test_functions_of_users_take_and_give_sparse_tensors():
    class Product(weft.autograd.Function):
        @staticmethod
        def forward(ctx, s, d):
            ctx.save_for_backward(s, d)
            return s @ d, s * 2

        @staticmethod
        def backward(ctx, of_product, of_twice):
            s, d = ctx.saved_tensors
            assert of_twice.is_sparse
            return (of_product @ d.t()) + of_twice * 2, s.t() @ of_product

    v, d = values(weft).requires_grad_(), values(weft, 1, 6).reshape(3, 2).requires_grad_()

    def function(v, d):
        product, twice = Product.apply(sparse(v), d)
        assert twice.is_sparse and twice.requires_grad
        return product, twice.to_dense()

    assert gradcheck(function, (v, d)) and gradgradcheck(function, (v, d))

    class Made(weft.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return sparse(v)

        @staticmethod
        def backward(ctx, gradient):
            return gradient.sparse_mask(sparse(v.detach()))._values()

    assert gradcheck(lambda v: Made.apply(v).to_dense(), v)


def test_gather_and_bags():
    x = weft.arange(6.0).reshape(2, 3).requires_grad_()
    index = weft.tensor([[0, 0], [2, 1]])
    for sparse_grad in (False, True):
        x.grad = None
        (x.gather(1, index, sparse_grad=sparse_grad) ** 2).sum().backward()
        assert x.grad.is_sparse is sparse_grad and x.grad.to_dense().tolist() == [[0.0, 0, 0], [0.0, 8, 10]]
    for mode in ("sum", "mean", "max"):
        found = []
        for is_sparse in (False, True):
            bag = nn.EmbeddingBag(5, 2, mode=mode, sparse=is_sparse, _weight=weft.arange(10.0).reshape(5, 2))
            (bag(weft.tensor([[1, 1, 3], [0, 3, 4]])) ** 2).sum().backward()
            assert bag.weight.grad.is_sparse is is_sparse
            found.append(bag.weight.grad.to_dense().tolist())
        assert found[0] == found[1]


# --- optimizers -------------------------------------------------------------------------------------------------------
OPTIMIZERS = {
    "SGD": lambda ns, p: ns.optim.SGD(p, lr=0.1),
    "momentum": lambda ns, p: ns.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "Nesterov": lambda ns, p: ns.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "ascent": lambda ns, p: ns.optim.SGD(p, lr=0.01, maximize=True),
    "Adagrad": lambda ns, p: ns.optim.Adagrad(p, lr=0.1, lr_decay=0.01),
    "SparseAdam": lambda ns, p: ns.optim.SparseAdam(p, lr=0.1),
    "Adam": lambda ns, p: ns.optim.Adam(p),
    "RMSprop": lambda ns, p: ns.optim.RMSprop(p),
    "weight decay": lambda ns, p: ns.optim.SGD(p, lr=0.1, weight_decay=0.1),
}


def trained(ns, name):
    table = ns.nn.Embedding(6, 2, sparse=True, padding_idx=2)
    with ns.no_grad():
        table.weight.copy_(ns.arange(12.0).reshape(6, 2))
    optimizer = OPTIMIZERS[name](ns, list(table.parameters()))
    try:
        for rows in ([[0, 1], [1, 2]], [[3, 3], [1, 5]], [[0, 2], [2, 2]]):
            optimizer.zero_grad()
            (table(ns.tensor(rows)) ** 2).sum().backward()
            optimizer.step()
    except RuntimeError as error:
        return str(error).partition(",")[0].partition(" SparseAdam")[0]
    return table.weight.detach().numpy()


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    ours, theirs = trained(weft, name), trained(torch, name)
    if name == "weight decay":
        assert "weight_decay is not compatible with sparse gradients" in ours
    elif isinstance(theirs, str):
        assert ours == theirs
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_parameters_with_dense_gradients_beside_them():
    table, linear = nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1)
    optimizer = weft.optim.SGD([*table.parameters(), *linear.parameters()], lr=0.1)
    before = [p.detach().clone() for p in (*table.parameters(), *linear.parameters())]
    linear(table(weft.tensor([1]))).sum().backward()
    optimizer.step()
    assert (table.weight != before[0]).any(1).tolist() == [False, True, False, False]
    assert all((p != b).any() for p, b in zip(linear.parameters(), before[1:]))
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        weft.optim.SparseAdam(linear.parameters()).step()
    optimizer.zero_grad(set_to_none=False)
    assert table.weight.grad._nnz() == 0 and (linear.weight.grad == 0).all()


# --- compiled ---------------------------------------------------------------------------------------------------------
def graph_network(seed, decorate):
    """Some steps of a graph network: the losses and the parameters."""
    draws = np.random.default_rng(seed)
    adjacency = weft.sparse_coo_tensor(draws.integers(0, 20, (2, 60)), weft.tensor(draws.random(60)), (20, 20))
    adjacency = adjacency.float().coalesce()
    weft.manual_seed(seed)
    table, first, second = nn.Embedding(9, 8, sparse=True), nn.Linear(8, 8), nn.Linear(8, 3)
    optimizers = [
        weft.optim.SparseAdam(table.parameters(), lr=0.1),
        weft.optim.Adam([*first.parameters(), *second.parameters()], lr=0.1),
    ]
    nodes, classes = weft.tensor(draws.integers(0, 9, 20)), weft.tensor(draws.integers(0, 3, 20))

    @decorate
    def step(adjacency, nodes):
        for optimizer in optimizers:
            optimizer.zero_grad()
        hidden = weft.spmm(adjacency, first(table(nodes))).relu()
        loss = nn.functional.cross_entropy(adjacency @ second(hidden), classes)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    losses = [step(adjacency, nodes).item() for _ in range(6)]
    return step, losses, [p.tolist() for m in (table, first, second) for p in m.parameters()]


def test_compiled_calls_have_the_bits_of_eager_ones():
    _, losses, parameters = graph_network(0, lambda f: f)
    step, *found = graph_network(0, weft.compile)
    assert found == [losses, parameters] and losses[-1] < losses[0]
    text = step.explain()
    assert "a gradient is sparse" in text and "a sparse tensor is among its arguments" in text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_have_the_bits_of_eager_ones(name):
    v = values(weft).requires_grad_()
    d = values(weft, 1, 6).reshape(2, 3).requires_grad_()

    def function(v, d):
        y = FUNCTIONS[name](sparse(v), d)
        return y, *weft.autograd.grad((y * y).sum(), (v, d), allow_unused=True)

    compiled = weft.compile(function)
    for _ in range(4):
        for x, y in zip(function(v, d), compiled(v, d)):
            assert x is y is None or x.equal(y)
