"""Compiled functions whose Python need not run (frontend/whole_calls.py) and that do more than ops: change tensors in
place, make leaves and tensors, ask for gradients (runtime/replay/usual_whole.py)."""

import pytest
from compiled_twin import twin
from whole_parts import N, check, runs, settled

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

pytestmark = pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")
INF = float("inf")


def masked(x):
    kept, _ = x.topk(2, -1)
    h = x * 2.0
    h[x < kept[:, [-1]]] = -INF
    late = h.softmax(-1) > 0.5
    late[..., 1:] = late[..., :-1].clone()
    late[..., 0] = 0
    return h.masked_fill(late, 0.25).softmax(-1), h


def through_a_view(x):
    h = x.clone()
    part = h[:, 1:]
    part.mul_(weft.tensor([0.5, 1.5]))
    h[0] += part[1].sum()
    return [h, h.sum()]


def per_sample(x):
    def loss(row, scale):
        return (row * scale).tanh().sum()

    return weft.func.vmap(weft.func.grad(loss), in_dims=(0, None))(x, x[0])


def curvature(x):
    return weft.func.hessian(lambda row: (row.sin() * x[1]).sum())(x[0])


def with_a_penalty(w):
    def f(x):
        q = (x * w).sin()
        (slope,) = weft.autograd.grad(q.sum(), w, create_graph=True)
        return q.sum() + slope.square().sum(), slope.detach()

    return f


@pytest.mark.parametrize("function", (masked, through_a_view, per_sample, curvature))
def test_functions(function):
    x = weft.randn(3, 3)
    function(x)  # methods that native code takes over with their first call are others from then on
    compiled = settled(function, x)
    assert not runs(compiled, x)
    results = [check(compiled, weft.randn(3, 3)) for _ in range(4)]
    assert not runs(compiled, x)
    for result in results:
        first = result if isinstance(result, weft.Tensor) else result[0]
        first.mul_(2.0)  # what is done to results is no part of the next call
        check(compiled, x)


def test_gradients_with_a_history():
    w = weft.randn(3, requires_grad=True)
    compiled = settled(with_a_penalty(w), weft.randn(3))
    assert not runs(compiled, weft.randn(3))

    def scenario(compile):
        w = weft.randn(3, requires_grad=True)
        f, seen = compile(with_a_penalty(w)), []
        for k in range(N + 8):
            if k == N + 2:
                w.register_hook(lambda g: seen.append(g.sum().item()))
            if k == N + 5:
                w.data = weft.randn(3)
            loss, slope = f(weft.randn(3))
            yield loss, slope
            loss.backward()
            yield w.grad, list(seen)

    twin(scenario)()


def test_state_that_is_changed_in_place():
    def scenario(compile):
        total, aliases = weft.zeros(3), []

        @compile
        def f(x, scale):
            total.mul_(0.5).add_(x * scale)
            x.clamp_(-1.0, 1.0)
            return total.sum(), x

        for k in range(N + 10):
            if k == N + 3:
                aliases.append(total.data)
            if k == N + 6:
                aliases[0].zero_()
            x = weft.randn(3)
            result, same = f(x, 0.5)
            yield result, same is x, x, total, x._version, total._version, list(aliases)

    twin(scenario)()
    total = weft.zeros(3)
    f = settled(lambda x: total.add_(x) * 1.0, weft.ones(3))
    assert not runs(f, weft.ones(3))
    assert total.tolist() == [N + 1.0] * 3


def test_gradients_for_each_sample_of_a_batch():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def loss(parameters, x, y):
        return F.cross_entropy(weft.func.functional_call(net, parameters, (x[None],)), y[None])

    def f(x, y):
        parameters = {name: p.detach() for name, p in net.named_parameters()}
        found = weft.func.vmap(weft.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        return {name: g.square().mean(0) for name, g in found.items()}

    compiled = settled(f, weft.randn(2, 3), weft.tensor([0, 1]))
    for _ in range(3):
        x, y = weft.randn(2, 3), weft.tensor([1, 0])
        assert not runs(compiled, x, y)
        check(compiled, x, y)
        net[0].weight.data.mul_(0.5)


_scale = 2.0


def scaled_loss(row):
    return (row * _scale).sin().prod()


MADE = {
    "vmap": weft.func.vmap(scaled_loss),
    "vmap of a gradient": weft.func.vmap(weft.func.grad(scaled_loss)),
    "vmap of a hessian": weft.func.vmap(weft.func.hessian(scaled_loss), chunk_size=5),
    "vmap of vmap": weft.func.vmap(weft.func.vmap(lambda a: a.exp() * 2), in_dims=1, out_dims=1),
    "gradient of vmap": weft.func.grad(lambda x: weft.func.vmap(scaled_loss)(x).square().sum()),
    "value and gradient": weft.func.vmap(weft.func.grad_and_value(scaled_loss)),
    "jacobian": weft.func.jacrev(lambda x: (x[0] * x[1]).cos() * _scale),
    "forward jacobian": weft.func.jacfwd(lambda x: x.sum(1).cos() * _scale),
}


@pytest.mark.parametrize("name", MADE)
def test_what_transformations_make_does_what_its_function_does(name, monkeypatch):
    function, x = MADE[name], weft.randn(12, 3)
    compiled = settled(function, x)
    assert not runs(compiled, weft.randn(12, 3))
    check(compiled, weft.randn(12, 3))
    monkeypatch.setattr(f"{__name__}._scale", 3.0)
    check(compiled, x)


def test_what_a_transformation_has_is_compared():
    def loss(row):
        return row.sin().sum()

    function, x = weft.func.vmap(loss), weft.randn(12, 3)
    compiled = settled(function, x)
    assert not runs(compiled, x)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__))
    cells["func"].cell_contents = lambda row: row.cos().sum()
    check(compiled, x)
    cells["out_dims"].cell_contents = 0
    cells["func"].cell_contents = lambda row: row * 2
    check(compiled, x)
    cells["out_dims"].cell_contents = 1
    check(compiled, x)
