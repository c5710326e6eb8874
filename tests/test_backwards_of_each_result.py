"""Several results of one compiled call, and a backward pass from each: each frees its own part of the call only."""

import itertools

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft.runtime.replay import native

N_CALLS = 12


def apart(x, w, v):
    return (x @ w).tanh().sum(), (x * v).exp().mean()


def joined(x, w, v):
    h = (x @ w).tanh()
    return h.sum(), (h * v).exp().mean()


def chained(x, w, v):
    loss = ((x @ w).tanh() * v).sum()
    return loss, (loss * 2).exp(), (v * 3).sum()


def linear(x, w, v):
    return (x * w).sum(), (w + v).sum(), (v**2).sum()


FUNCTIONS = [apart, joined, chained, linear]


def test_such_backwards_are_native():
    f, w, v = weft.compile(apart), leaf(4, 4), leaf(4, 4)
    for _ in range(N_CALLS):
        a, b = f(weft.randn(4, 4), w, v)
        a.backward()
        b.backward()
    outside = f.recordings[0].usual.outside
    assert [x is None for x in outside.natives.values()] == [native.layout() is None] * 2
    assert outside.n_done <= (4 if native.layout() else 2 * N_CALLS)
    assert a._frame.frame is None and a._frame.outputs == ()  # nothing has made nodes, and nothing is kept


ORDERS = {
    "one after the other": lambda k, n: list(range(n)),
    "from the last": lambda k, n: list(range(n))[::-1],
    "in turn": lambda k, n: list(list(itertools.permutations(range(n)))[k % 2]),
    "one of them": lambda k, n: [k % n],
    "one twice": lambda k, n: [0, 0, 1],
    "twice around": lambda k, n: [*range(n), *range(n)],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kept", [False, True])
def test_each_by_itself(function, order, kept):
    def scenario(compile):
        f, w, v, seen = compile(function), leaf(4, 4), leaf(4, 4), []
        for k in range(N_CALLS):
            results = f(weft.randn(4, 4), w, v)
            if k % 3 == 2:
                w.grad = v.grad = None
            for place in order(k, len(results)):
                seen.append(error_of(results[place].backward, retain_graph=kept))
            seen += [g if g is None else g.clone() for g in (w.grad, v.grad)]
        return seen

    assert_same(scenario)


THEN = {
    "all": lambda results, w, v: weft.autograd.backward(list(results)),
    "asked for": lambda results, w, v: weft.autograd.grad(results[1], v),
    "asked for both": lambda results, w, v: weft.autograd.grad(results[1], [w, v]),
    "asked for both of both": lambda results, w, v: weft.autograd.grad(list(results[:2]), [w, v]),
    "may be unused": lambda results, w, v: weft.autograd.grad(results[1], [w, v], allow_unused=True),
    "into one": lambda results, w, v: results[1].backward(inputs=[v]),
    "with an op behind": lambda results, w, v: (results[1] * 2).backward(),
    "two behind": lambda results, w, v: (results[1] * results[0]).backward(),
    "with a history": lambda results, w, v: weft.autograd.grad(results[1], v, create_graph=True),
    "kept": lambda results, w, v: [results[1].backward(retain_graph=True), results[1].backward()][0],
    "a change": lambda results, w, v: [v.data.add_(0.0), results[1].backward()][1],
    "a node is asked for": lambda results, w, v: [results[1].grad_fn.name(), results[1].backward()][0],
    "a hook": lambda results, w, v: [results[1].register_hook(lambda g: g * 2), results[1].backward()][1],
}


# A compiled call knows what a backward of a result frees, not what the part of it needs that leads to some leaf.
OF_A_PART = "asked for", "with a history"


@pytest.mark.parametrize(
    "function, then",
    [
        pytest.param(function, then, id=f"{function.__name__}, {name}")
        for function in FUNCTIONS
        for name, then in THEN.items()
        if function is not joined or name not in OF_A_PART
    ],
)
def test_one_and_then_something_else(function, then):
    def scenario(compile):
        f, w, v, seen = compile(function), leaf(4, 4), leaf(4, 4), []
        for k in range(N_CALLS):
            results = f(weft.randn(4, 4), w, v)
            w.grad = v.grad = None
            results[0].backward(retain_graph=k % 4 == 3)
            seen.append(error_of(then, results, w, v))
            seen += [g if g is None else g.clone() for g in (w.grad, v.grad)]
        return seen

    assert_same(scenario)


@twin
def test_ops_behind_each(compile):
    f, w, v, seen = compile(apart), leaf(4, 4), leaf(4, 4), []
    for _ in range(N_CALLS):
        a, b = f(weft.randn(4, 4), w, v)
        (a * 0.5).backward()
        (b * 0.25).exp().backward()
        seen += [w.grad.clone(), v.grad.clone(), error_of((a + 1).backward)]
    return seen


@twin
def test_a_loss_for_each_of_two_models_and_two_optimizers(compile):
    first, second, seen = weft.nn.Linear(3, 1), weft.nn.Linear(3, 1), []
    optimizers = [weft.optim.SGD(m.parameters(), lr=0.1, momentum=0.5) for m in (first, second)]

    @compile
    def losses(batch):
        return {"first": (first(batch["x"]) ** 2).mean(), "second": (second(batch["x"]) - batch["y"]).abs().mean()}

    for _ in range(N_CALLS):
        found = losses({"x": weft.randn(5, 3), "y": weft.randn(5, 1)})
        for optimizer, loss in zip(optimizers, found.values()):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seen += [*found.values(), *[p.detach().clone() for m in (first, second) for p in m.parameters()]]
    return seen


@twin
def test_gradients_of_gradients_of_some(compile):
    f, w, v, seen = compile(joined), leaf(4, 4), leaf(4, 4), []
    for _ in range(N_CALLS):
        a, b = f(weft.randn(4, 4), w, v)
        found = weft.autograd.grad(b, [w, v], create_graph=True)
        found[0].square().sum().backward(retain_graph=True)
        found[1].square().sum().backward()
        seen += [*found, w.grad.clone(), v.grad.clone(), error_of(a.backward), error_of(b.backward)]
    return seen


@pytest.mark.oracle
def test_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")

    def gradients(T, compile):
        w, v = (T.tensor([[0.1 * i + 0.2 * j * k for i in range(3)] for j in range(3)]) for k in (1, 2))
        f, seen = compile(joined if T is weft else lambda x, w, v: joined(x, w, v)), []
        for p in (w, v):
            p.requires_grad_()
        for k in range(N_CALLS):
            a, b = f(T.tensor([[0.1 * k, 1.0, -0.3]] * 3), w, v)
            a.backward(retain_graph=True)
            b.backward()
            seen += [*w.grad.flatten().tolist(), *v.grad.flatten().tolist()]
        return seen

    assert gradients(weft, weft.compile) == pytest.approx(gradients(torch, lambda f: f), rel=1e-4)
