"""Results of replayed calls that somebody differentiates later, or that are views: as without the decorator.

Every scenario calls one function often enough to be replayed; some calls in between do something else with the results.
"""

import gc

import numpy as np
import pytest
from compiled_twin import error_of, leaf, twin

import weft
from weft import nn
from weft.runtime.replay import usual_calls

N_CALLS = 10


def results(x, w):
    return (x @ w).tanh().sum()


@pytest.fixture
def outside(monkeypatch):
    """How many backward passes a replayed call has done by its program alone."""
    done = []
    real = usual_calls.ReplayedCall.backward_outside

    def counted(self, *arguments):
        done.append(real(self, *arguments))
        return done[-1]

    monkeypatch.setattr(usual_calls.ReplayedCall, "backward_outside", counted)
    return done


def test_a_backward_outside_is_one_program(outside):
    w = leaf(4, 4)
    f = weft.compile(results)
    for _ in range(N_CALLS):
        w.grad = None
        f(weft.randn(4, 4), w).backward()
    assert f.recordings[0].not_replayed is None
    assert outside.count(True) >= N_CALLS - 4


ODD = {
    "dropped": lambda loss, w, x: None,
    "twice": lambda loss, w, x: (loss.backward(), error_of(loss.backward))[1],
    "retained": lambda loss, w, x: (loss.backward(retain_graph=True), loss.backward()),
    "scaled": lambda loss, w, x: loss.backward(weft.tensor(0.5)),
    "wrong shape": lambda loss, w, x: error_of(loss.backward, weft.ones(2)),
    "through an op": lambda loss, w, x: (loss * 3).backward(),
    "through an op, retained": lambda loss, w, x: [
        y := loss * 3,
        y.backward(retain_graph=True),
        loss.backward(retain_graph=True),
        y.backward(),
        error_of(loss.backward),
    ][-1],
    "through an op twice": lambda loss, w, x: [y := loss.exp(), y.backward(), error_of((loss * 2).backward)][-1],
    "through an op and by itself": lambda loss, w, x: [y := loss * 3, loss.backward(), error_of(y.backward)][-1],
    "through an op, with a hook after": lambda loss, w, x: [
        y := loss * 3,
        loss.register_hook(lambda g: g * 2),
        y.backward(),
    ][-1],
    "through an op, retaining its gradient": lambda loss, w, x: [
        y := loss * 3,
        loss.retain_grad(),
        y.backward(),
        loss.grad,
    ][-1],
    "through an op, input changed": lambda loss, w, x: [y := loss * 3, x.add_(1), error_of(y.backward)][-1],
    "through an op, weight changed silently": lambda loss, w, x: [
        y := loss * 3,
        w.data.mul_(2.0),
        error_of(y.backward),
    ][-1],
    "through an op, grad": lambda loss, w, x: weft.autograd.grad(loss * 3, [w, loss])[0],
    "through an op, grad of the result": lambda loss, w, x: [y := loss * 3, weft.autograd.grad(y, loss)[0]][-1],
    "through an op, create_graph": lambda loss, w, x: (
        weft.autograd.grad(loss.exp(), w, create_graph=True)[0].sum().backward()
    ),
    "through an op, only some inputs": lambda loss, w, x: (loss * 3).backward(inputs=[w]),
    "through an op, anomalies watched": lambda loss, w, x: [
        y := loss * 3,
        weft.autograd.set_detect_anomaly(True),
        y.backward(),
        weft.autograd.set_detect_anomaly(False),
    ][2],
    "through an op, leaf with a hook": lambda loss, w, x: [
        handle := w.register_hook(lambda g: g * 2),
        (loss * 3).backward(),
        handle.remove(),
    ][1],
    "through an op that meets the leaf": lambda loss, w, x: (loss * w.sum() * 3 + w.exp().sum()).backward(),
    "through an op that fails": lambda loss, w, x: [
        y := loss * 3,
        y.register_hook(lambda g: 1 / 0),
        error_of(y.backward),
        loss.backward(),
    ][2],
    "kept by an op": lambda loss, w, x: KEPT.append(loss * 3),
    "its node kept": lambda loss, w, x: [node := (loss * 3).grad_fn, node.next_functions[0][0].name()][-1],
    "with a hook": lambda loss, w, x: (loss.register_hook(lambda g: g * 2), loss.backward())[1],
    "with a hook of the leaf": lambda loss, w, x: [
        handle := w.register_hook(lambda g: g * 2),
        loss.backward(),
        handle.remove(),
    ][1],
    "retaining its gradient": lambda loss, w, x: (loss.retain_grad(), loss.backward(), loss.grad)[2],
    "create_graph": lambda loss, w, x: weft.autograd.grad(loss, w, create_graph=True)[0].sum().backward(),
    "grad": lambda loss, w, x: weft.autograd.grad(loss, [w])[0],
    "grad twice": lambda loss, w, x: (weft.autograd.grad(loss, w), error_of(weft.autograd.grad, loss, w))[1],
    "grad_fn": lambda loss, w, x: [loss.grad_fn.name(), [n and n.name() for n, _ in loss.grad_fn.next_functions]],
    "weight changed first": lambda loss, w, x: (w.data.mul_(2.0), w.detach().add_(1), error_of(loss.backward))[2],
    "input changed first": lambda loss, w, x: (x.add_(1), error_of(loss.backward))[1],
    "result changed first": lambda loss, w, x: error_of(lambda: (loss.add_(1), loss.backward())),
    "only some inputs": lambda loss, w, x: loss.backward(inputs=[w]),
    "under no_grad": lambda loss, w, x: weft.no_grad()(loss.backward)(),
    "after the weight is frozen": lambda loss, w, x: (w.requires_grad_(False), loss.backward(), w.requires_grad_()),
    "kept": lambda loss, w, x: KEPT.append(loss),
}
KEPT = []


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_else_is_done_with_a_result(odd):
    def scenario(compile):
        f, w, seen = compile(results), leaf(4, 4), []
        KEPT.clear()
        for k in range(N_CALLS):
            x = weft.randn(4, 4)
            loss = f(x, w)
            if k in (5, 7, 8):
                seen.append(odd(loss, w, x))
            else:
                loss.backward()
            seen += [loss.detach().clone(), w.grad]
            if k % 3 == 0:
                w.grad = None
        seen += [error_of(loss.backward) for loss in KEPT]
        return [*seen, w.grad]

    twin(scenario)()


@twin
def test_several_results(compile):
    f = compile(lambda x, w, v: ((x * w).exp(), (x * v).sum(), x + 1))
    w, v, seen = leaf(3), leaf(3), []
    for k in range(N_CALLS):
        a, b, c = f(weft.randn(3), w, v)
        if k % 4 == 0:
            b.backward()
        if k % 4 in (1, 3):
            weft.autograd.backward([b, a], [None, weft.ones(3)] if k > 4 else [weft.tensor(2.0), a.detach()])
        if k % 4 == 2:
            seen += [(a.sum() * b).detach()]
            (a.sum() * b).backward()
        seen += [a.detach(), b.detach(), c, w.grad, v.grad]
    return seen


@pytest.mark.parametrize("change", ("mul_", "detach_"))
@pytest.mark.parametrize("outside", (False, True))
def test_gradients_go_where_an_argument_came_from(change, outside):
    """What becomes of the argument after the call is not what the call has seen."""

    def scenario(compile):
        f, w, seen = compile(lambda h: (h + 1).sum()), leaf(3), []
        for _ in range(N_CALLS):
            h, w.grad = w * 2, None
            loss = f(h)
            h.mul_(3) if change == "mul_" else h.detach_()
            (loss * 1 if outside else loss).backward()
            seen += [loss.detach(), w.grad]
        return seen

    twin(scenario)()


@twin
def test_results_feed_another_compiled_function(compile):
    f, g = compile(lambda x, w: (x * w).tanh()), compile(lambda h, v: (h * v).sum())
    w, v, seen = leaf(3), leaf(3), []
    for _ in range(N_CALLS):
        loss = g(f(weft.randn(3), w), v)
        loss.backward()
        seen += [loss.detach(), w.grad.clone(), v.grad.clone()]
    return seen


@twin
def test_a_model_with_everything_else_outside(compile):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)
    forward, seen = compile(model), []
    for _ in range(N_CALLS):
        loss = nn.functional.mse_loss(forward(weft.randn(5, 4)), weft.zeros(5, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.detach())
    return [*seen, *model.parameters()]


@twin
def test_an_argument_that_is_a_leaf(compile):
    f, seen = compile(lambda theta: ((theta - 2) ** 2).sum()), []
    for k in range(N_CALLS):
        theta = weft.tensor(np.full(3, k / 4), requires_grad=True)
        value = f(theta)
        value.backward()
        seen += [value.detach(), theta.grad]
    return seen


@twin
def test_a_gradient_that_is_there_already_grows(compile):
    f, w, seen = compile(results), leaf(4, 4), []
    kept = w.grad
    for k in range(N_CALLS):
        if k == 6:
            kept = w.grad
        f(weft.ones(4, 4), w).backward()
        seen += [w.grad.clone(), kept is w.grad]
    return seen


@twin
def test_views_as_results(compile):
    f = compile(lambda a, b: ((a + b).t(), (a * b)[1:], b.reshape(8, 2), (a - b).sum().detach(), b[0]))
    b, seen = weft.randn(4, 4), []
    for k in range(N_CALLS):
        a = weft.randn(4, 4)
        found = f(a, b)
        if k in (5, 8):
            found[1].mul_(2)
            found[2][0, 0] = 9.0
        seen += [
            *[x.clone() for x in found],
            [x._base is not None for x in found],
            [x._version for x in found],
            b.clone(),
        ]
        if k == 6:
            kept = found
    return [*seen, *kept]


@twin
def test_views_with_a_history(compile):
    f = compile(lambda x, w: (x * w).t())
    w, seen = leaf(3, 2), []
    for k in range(N_CALLS):
        y = f(weft.randn(3, 2), w)
        if k % 3:
            y.backward(weft.ones(2, 3))
        seen += [y.detach().clone(), w.grad, y.grad_fn.name()]
    return seen


@twin
def test_a_view_and_its_base_in_turn(compile):
    def f(a, which):
        b = a * 2
        v = b[1:]
        return (b, v) if which == 0 else (v if which == 1 else b)

    f, seen = compile(f), []
    for k in range(24):
        found = f(weft.randn(4), (k // 6) % 3)
        seen.append(found if isinstance(found, weft.Tensor) else list(found))
    return seen


def test_results_leave_no_garbage():
    f, w, x = weft.compile(lambda x, w: (results(x, w), (x * w).detach(), (x + w).t())), leaf(4, 4), weft.randn(4, 4)
    for _ in range(20):
        f(x, w)[0].backward()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for k in range(60):
            loss, *_ = f(x, w)
            if k % 3:
                loss.backward()
        del loss, _
        assert len(gc.get_objects()) - before < 40
    finally:
        gc.enable()
