"""weft.func against torch.func: results, nesting, what results are connected to, errors, and compiled calls."""

import numpy as np
import pytest
from test_replayed_hooks import departures

import weft
from weft import func, nn


def given(library, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((3,), (2, 3), (4, 3))
    return tuple(library.tensor(rng.normal(size=s), dtype=library.float64) for s in shapes)


def loss(x, w):
    return (w @ x).sin().pow(2).sum()


def vector(x, w):
    return (w @ x).tanh()


def in_dict(tree):
    return (tree["x"] * 2).exp().sum() + tree["y"][0].pow(2).sum()


CALLS = {
    "grad": lambda f, x, w, b: f.grad(loss)(x, w),
    "grad of two": lambda f, x, w, b: f.grad(loss, argnums=(0, 1))(x, w),
    "grad of the last": lambda f, x, w, b: f.grad(loss, argnums=-1)(x, w),
    "grad with aux": lambda f, x, w, b: f.grad(lambda x: (x.sum() * 2, {"a": x * 3}), has_aux=True)(x),
    "grad and value": lambda f, x, w, b: f.grad_and_value(loss)(x, w),
    "grad and value with aux": lambda f, x, w, b: f.grad_and_value(lambda x: (x.sum(), x), has_aux=True)(x),
    "grad of trees": lambda f, x, w, b: f.grad(in_dict)({"x": x, "y": [w, b]}),
    "third derivative": lambda f, x, w, b: f.grad(f.grad(f.grad(lambda x: x**5)))(x[0]),
    "grad of an inner grad": lambda f, x, w, b: f.grad(lambda y: (f.grad(lambda x: (x * y).sin().sum())(x) * y).sum())(
        x
    ),
    "vjp": lambda f, x, w, b: f.vjp(vector, x, w)[1](x[:2]),
    "vjp of one": lambda f, x, w, b: f.vjp(lambda x: (x.sin(), x.sum()), x)[1]((x, x[0])),
    "vjp with aux": lambda f, x, w, b: f.vjp(lambda x: (x.sin(), x), x, has_aux=True)[2],
    "jvp": lambda f, x, w, b: f.jvp(vector, (x, w), (x, w * 2)),
    "jvp with aux": lambda f, x, w, b: f.jvp(lambda x: (x.sin(), x * 3), (x,), (x,), has_aux=True),
    "jvp of a grad": lambda f, x, w, b: f.jvp(f.grad(lambda x: loss(x, w)), (x,), (x.exp(),)),
    "jacrev": lambda f, x, w, b: f.jacrev(vector, argnums=(0, 1))(x, w),
    "jacrev of a dict": lambda f, x, w, b: f.jacrev(lambda x: {"a": x.sin(), "b": x.sum()})(x),
    "jacfwd": lambda f, x, w, b: f.jacfwd(vector, argnums=(0, 1))(x, w),
    "jacfwd with aux": lambda f, x, w, b: f.jacfwd(lambda x: (x.pow(3), x.sum()), has_aux=True)(x),
    "hessian": lambda f, x, w, b: f.hessian(loss)(x, w),
    "hessian of two": lambda f, x, w, b: f.hessian(loss, argnums=(0, 1))(x, w),
    "jacfwd of jacrev": lambda f, x, w, b: f.jacfwd(f.jacrev(vector))(x, w),
    "jacrev of jacfwd": lambda f, x, w, b: f.jacrev(f.jacfwd(vector))(x, w),
    "linearize": lambda f, x, w, b: f.linearize(vector, x, w)[1](x.exp(), w),
    "vmap": lambda f, x, w, b: f.vmap(vector, in_dims=(0, None))(b, w),
    "vmap of dims": lambda f, x, w, b: f.vmap(lambda r, c: r * c, in_dims=(1, -1), out_dims=1)(w, b[:3].T[:2]),
    "vmap of trees": lambda f, x, w, b: f.vmap(
        lambda t: {"s": t["b"].sum(), "p": t["b"] * t["x"]}, in_dims=({"b": 0, "x": None},)
    )({"b": b, "x": x}),
    "vmap of vmap": lambda f, x, w, b: f.vmap(f.vmap(lambda r, c: (r * c).sum(), (None, 0)), (0, None))(w, b),
    "vmap of grad": lambda f, x, w, b: f.vmap(f.grad(loss), in_dims=(0, None))(b, w),
    "grad of vmap": lambda f, x, w, b: f.grad(lambda w: f.vmap(loss, in_dims=(0, None))(b, w).sum())(w),
    "vmap of hessian": lambda f, x, w, b: f.vmap(f.hessian(loss), in_dims=(0, None))(b, w),
    "vmap of jvp": lambda f, x, w, b: f.vmap(lambda t: f.jvp(lambda x: vector(x, w), (x,), (t,))[1])(b),
    "vmap of vjp": lambda f, x, w, b: f.vmap(f.vjp(lambda x: x.sin(), x)[1])(b),
    "vmap out none": lambda f, x, w, b: f.vmap(lambda r: (r * 2, 7), out_dims=(0, None))(b),
}


def leaves(result):
    return weft.utils._pytree.tree_leaves(result)


@pytest.mark.oracle
@pytest.mark.parametrize("name", CALLS)
def test_results_like_pytorch(name):
    torch = pytest.importorskip("torch")
    ours, theirs = CALLS[name](func, *given(weft)), CALLS[name](torch.func, *given(torch))
    assert weft.utils._pytree.tree_structure(ours) == weft.utils._pytree.tree_structure(theirs)
    for a, b in zip(leaves(ours), leaves(theirs)):
        assert getattr(a, "requires_grad", False) is False
        assert getattr(a, "shape", ()) == getattr(b, "shape", ())
        np.testing.assert_allclose(a, b, 1e-9, 1e-11)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "vmap of hessian"])
def test_compiled_calls_have_the_same_bits(name):
    def bits(result):
        return [x.tolist() if isinstance(x, weft.Tensor) else x for x in leaves(result)]

    compiled = weft.compile(lambda x, w, b: CALLS[name](func, x, w, b))
    expected = bits(CALLS[name](func, *given(weft)))
    for _ in range(3):
        assert bits(compiled(*given(weft))) == expected


def gradients_of_what_is_reached(x, w):
    """Results stay connected to w, which a compiled call must find out without nodes."""
    gradient = func.grad(lambda x: loss(x, w))(x)
    value, pull = func.vjp(lambda x: vector(x, w), x)
    return weft.autograd.grad(gradient.pow(2).sum() + pull(value)[0].sum(), w)[0], gradient.requires_grad


@pytest.mark.parametrize("name", ["vjp", "jvp of a grad", "hessian", "vmap of grad", "connected"])
def test_calls_with_transformations_are_replayed(name, monkeypatch):
    """Whether a result leaves as part of the graph was asked of nodes, which every call had to make for it."""
    x, w, b = given(weft)
    function = weft.compile(lambda x, w, b: CALLS[name](func, x, w, b))
    if name == "connected":
        w.requires_grad_()
        function = weft.compile(lambda x, w, b: gradients_of_what_is_reached(x, w))
        assert function(x, w, b)[1] is True
        assert function(x, w, b)[0].tolist() == gradients_of_what_is_reached(x, w)[0].tolist()
    assert departures(lambda: function(x, w, b), monkeypatch) == 0


@pytest.mark.parametrize("wrap", [weft.compile, lambda function: function])
def test_a_pullback_that_is_used_later_knows_what_was_differentiated_for(wrap):
    """Its results are no part of the graph, though the transformation that made it was over long before."""
    x, w, _ = given(weft)
    function = wrap(lambda x: loss(x, w))
    for _ in range(4):
        value, pull = func.vjp(func.grad(function), x)
        _, push = func.linearize(function, x)
        func.grad(function)(x)
        assert not value.requires_grad and not pull(x)[0].requires_grad and not push(x).requires_grad


def connected(library):
    """Gradients that pass through transformations, to what they are given and to what they reach."""
    f = library.func
    x, w, b = (t.requires_grad_() for t in given(library))
    plain = given(library, 1)[0]
    found = []
    for result in (
        f.grad(loss)(plain, w),
        f.grad(lambda x: loss(x, w))(plain),
        f.jacrev(vector)(x, w.detach()),
        f.vjp(vector, plain, w)[1](plain[:2])[0],
        f.jvp(lambda x: vector(x, w), (plain,), (plain,))[1],
        f.vmap(f.grad(loss), in_dims=(0, None))(b, w),
        f.vmap(lambda r: r * x)(b),
        f.hessian(lambda x: loss(x, w))(plain),
    ):
        assert result.requires_grad
        found += library.autograd.grad(result.pow(2).sum(), [x, w, b], allow_unused=True)
    with library.no_grad():
        assert not f.grad(loss)(plain, w).requires_grad
    assert not f.grad(loss)(plain, w.detach()).requires_grad and not f.vmap(lambda r: r * 2)(plain).requires_grad
    return [None if g is None else g.tolist() for g in found]


@pytest.mark.oracle
def test_results_are_connected_like_pytorch():
    torch = pytest.importorskip("torch")
    for a, b in zip(connected(weft), connected(torch)):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, 1e-9, 1e-11)


def per_sample(library):
    """Gradients of every sample, and an ensemble of models."""
    f, layers = library.func, library.nn
    models = []
    for k in range(3):
        model = layers.Sequential(layers.Linear(3, 4), layers.Tanh(), layers.Linear(4, 1)).double()
        with library.no_grad():
            for number, p in enumerate(model.parameters()):
                p.copy_(library.linspace(-1, 1 + k, p.numel()).reshape(p.shape) * (number + 1))
        models.append(model)
    x, w, b = given(library)

    def sample_loss(params, buffers, row):
        return f.functional_call(models[0], (params, buffers), (row,)).pow(2).sum()

    params = {name: p.detach() for name, p in models[0].named_parameters()}
    gradients = f.vmap(f.grad(sample_loss), in_dims=(None, None, 0))(params, {}, b)
    stacked, buffers = f.stack_module_state(models)
    outputs = f.vmap(lambda p, q, x: f.functional_call(models[0], (p, q), (x,)), (0, 0, None))(stacked, buffers, b)
    assert all(p.requires_grad for p in stacked.values())
    return [*gradients.values(), outputs.detach()]


@pytest.mark.oracle
def test_samples_and_ensembles_like_pytorch():
    torch = pytest.importorskip("torch")
    for a, b in zip(per_sample(weft), per_sample(torch)):
        np.testing.assert_allclose(a.tolist(), b.tolist(), 1e-9, 1e-11)


def test_meta_learning_compiles():
    """A step that learns through steps: gradients through grad of functional_call."""
    found = []
    for wrap in (weft.compile, lambda function: function):
        weft.manual_seed(0)
        model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

        def inner(params, x, y, model=model):
            return nn.functional.mse_loss(func.functional_call(model, params, (x,)), y)

        @wrap
        def step(x, y, model=model, optimizer=optimizer, inner=inner):
            optimizer.zero_grad()
            params = dict(model.named_parameters())
            gradients = func.grad(inner)(params, x, y)
            adapted = {name: p - 0.1 * gradients[name] for name, p in params.items()}
            loss = inner(adapted, x, y)
            loss.backward()
            optimizer.step()
            return loss

        x = weft.linspace(-1, 1, 10)[:, None]
        found.append([step(x, x.sin()).item() for _ in range(4)])
    assert found[0] == found[1] and found[0][-1] < found[0][0]


def test_functional_calls_leave_the_module_as_it_was():
    layer = nn.Linear(2, 2)
    tied = nn.Sequential(layer, layer)
    before = dict(tied.named_parameters(remove_duplicate=False))
    zeros = weft.zeros(2, 2)
    assert func.functional_call(tied, {"0.weight": zeros, "0.bias": weft.ones(2)}, weft.ones(1, 2)).tolist() == [[1, 1]]
    assert all(x is before[name] for name, x in tied.named_parameters(remove_duplicate=False))
    with pytest.raises(RuntimeError, match="Linear"):
        func.functional_call(layer, {"weight": zeros}, (weft.ones(3),))
    assert layer.weight is before["0.weight"] and layer._parameters["weight"] is layer.weight
    with pytest.raises(RuntimeError, match="Missing key"):
        func.functional_call(layer, {"weight": zeros}, (weft.ones(2),), strict=True)
    with pytest.raises(ValueError, match="appear in multiple dictionaries"):
        func.functional_call(layer, ({"weight": zeros}, {"weight": zeros}), (weft.ones(2),))
    assert func.functional_call(layer, {"w": zeros}, (weft.ones(2),)).tolist() == layer(weft.ones(2)).tolist()
    assert not hasattr(layer, "w")
    with pytest.raises(AttributeError, match="has no attribute `inner`"):
        func.functional_call(layer, {"inner.w": zeros}, (weft.ones(2),))
    with pytest.raises(ValueError, match="which are tied"):
        func.functional_call(tied, {"0.weight": zeros, "1.weight": weft.ones(2, 2)}, weft.ones(1, 2))
    norm = func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
    assert norm[0].running_mean is None


def test_random_numbers_of_samples():
    x = weft.zeros(3)
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        weft.vmap(lambda r: r + weft.rand(2))(x)
    different = weft.vmap(lambda r: r + weft.rand(2), randomness="different")(x)
    same = weft.vmap(lambda r: r + weft.rand(2), randomness="same")(x)
    assert not different[0].equal(different[1]) and same[0].equal(same[1])


@pytest.mark.oracle
@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: f.grad(lambda x: x)(x),
        lambda f, x: f.grad(lambda x: 3.0)(x),
        lambda f, x: f.grad(lambda x: x.sum(), argnums=2)(x),
        lambda f, x: f.grad(lambda x: x.sum(), argnums=(0, 0))(x),
        lambda f, x: f.grad(lambda x: x.sum(), argnums=1.5)(x),
        lambda f, x: f.grad(lambda x: x.sum(), has_aux=True)(x),
        lambda f, x: f.vjp(lambda x: (x, x), x)[1](x),
        lambda f, x: f.vjp(lambda x: "x", x),
        lambda f, x: f.jvp(lambda x: x, x, x),
        lambda f, x: f.vmap(lambda x: x)(),
        lambda f, x: f.vmap(lambda x: x, in_dims="0")(x),
        lambda f, x: f.vmap(lambda x: x, in_dims=(0, 0))(x),
        lambda f, x: f.vmap(lambda x: x, in_dims=(0.5,))(x),
        lambda f, x: f.vmap(lambda x: x, in_dims=3)(x),
        lambda f, x: f.vmap(lambda x, y: x)(x, 3),
        lambda f, x: f.vmap(lambda x, y: x)(x, x[:2]),
        lambda f, x: f.vmap(lambda x: "x")(x),
        lambda f, x: f.vmap(lambda x: x, out_dims=(0, 0))(x),
        lambda f, x: f.vmap(lambda x: x, out_dims="0")(x),
        lambda f, x: f.vmap(lambda x: x, out_dims=None)(x),
        lambda f, x: f.vmap(lambda x: x, randomness="some")(x),
        lambda f, x: f.vmap(lambda x: x, chunk_size=0)(x),
        lambda f, x: f.stack_module_state([]),
    ],
)
def test_errors_like_pytorch(call):
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        call(torch.func, given(torch)[0])
    with pytest.raises(theirs.type):
        call(func, given(weft)[0])


@pytest.mark.oracle
def test_batches_of_whatever_arguments_and_results_compiled_and_not():
    torch = pytest.importorskip("torch")

    def outcomes(T, compile):
        x, seen = T.arange(12.0).reshape(3, 4), []
        calls = [
            (lambda x: x.sum(), {}, (x,)),
            (lambda x: (x * 2).flip(0), {"out_dims": 1}, (x,)),
            (lambda x: (x * 2).flip(0), {"out_dims": -1, "in_dims": 1}, (x,)),
            (lambda x, k: x * k, {"in_dims": (0, None)}, (x, 3)),
            (lambda a, b: {"sum": a + b["y"], "both": (a, b["y"] * 2)}, {}, (x, {"y": x + 1})),
            (lambda d: [d["x"].exp()], {"in_dims": ({"x": 1},)}, ({"x": x},)),
            (lambda x: (x.sum(), x.mean()), {"out_dims": (0, 0)}, (x,)),
        ]
        for f, options, args in calls:
            batched = compile(T.func.vmap(f, **options))
            for _ in range(5):
                found = batched(*args)
            flat = torch.utils._pytree.tree_leaves(found) if T is torch else weft.utils._pytree.tree_leaves(found)
            seen += [(tuple(t.shape), t.flatten().tolist()) for t in flat]
        return seen

    expected = outcomes(torch, lambda f: f)
    assert outcomes(weft, lambda f: f) == outcomes(weft, weft.compile)
    for (shape, values), (theirs, wanted) in zip(outcomes(weft, weft.compile), expected, strict=True):
        assert shape == theirs and values == pytest.approx(wanted, rel=1e-6)


def test_what_was_differentiated_for_can_be_changed_in_place():
    """The leaf that stands for it, another name of its memory, was kept alive by nodes that nobody could reach."""

    def stepper():
        weft.manual_seed(0)
        q, v = weft.randn(5, 3, dtype=weft.float64), weft.zeros(5, 3, dtype=weft.float64)

        def energy(q):
            far = (q[:, None] - q[None]).square().sum(-1) + weft.eye(5, dtype=weft.float64)
            return (far**-6 - far**-3).triu(1).sum()

        def step(dt, scale):
            force, (value, parts) = weft.func.grad_and_value(
                lambda q: (energy(q) * scale, {"q": q.sum()}), has_aux=True
            )(q)
            v.sub_(dt * force)
            with weft.no_grad():
                q.add_(dt * v)
            return value + parts["q"], q.clone()

        return step

    dt, scale = weft.tensor(0.01, dtype=weft.float64), weft.tensor(2.0, dtype=weft.float64)
    eager, step = stepper(), stepper()
    compiled = weft.compile(step, fullgraph=True)
    for _ in range(5):
        for got, wanted in zip(compiled(dt, scale), eager(dt, scale)):
            assert got.numpy().tobytes() == wanted.numpy().tobytes()
    # Where something around it wants a derivative, gradients have a history as before.
    scale.requires_grad_()
    force = weft.func.grad(lambda x: (x**3).sum() * scale)(weft.ones(2, dtype=weft.float64))
    assert weft.autograd.grad(force.sum(), scale)[0].item() == 6.0
