"""Results of compiled functions as arguments of others, and backward outside of them all: what has a history is handed
on natively, and a backward pass goes from program to program."""

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft.runtime.replay import native

N_CALLS = 12


def model_and_loss(compile):
    net = weft.nn.Sequential(weft.nn.Linear(4, 5), weft.nn.Tanh(), weft.nn.Linear(5, 3))
    return net, compile(net), compile(lambda p, y: weft.nn.functional.cross_entropy(p, y))


def batch():
    return weft.randn(6, 4), weft.randint(0, 3, (6,))


def test_calls_on_such_results_end_natively(python_runs):
    net, model, loss_of = model_and_loss(weft.compile)
    for _ in range(N_CALLS):
        x, y = batch()
        loss_of(model(x), y).backward()
    usual = loss_of.recordings[0].usual
    assert usual.n_ended == (2 if native.layout() else N_CALLS - 3)
    assert usual.outside.n_done <= (2 if native.layout() else N_CALLS)


@pytest.mark.oracle
def test_training_is_that_of_pytorch():
    torch = pytest.importorskip("torch")

    def trained(T, compile, weights):
        net = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.Tanh(), T.nn.Linear(3, 1))
        for p, values in zip(net.parameters(), weights):
            p.data = T.tensor(values)
        model, loss_of = compile(net), compile(lambda p, y: ((p - y) ** 2).mean())
        optimizer, losses = T.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
        for k in range(N_CALLS):
            x = T.tensor([[0.1 * k, 1.0], [0.5, -0.2 * k], [1.0, 0.3]])
            optimizer.zero_grad()
            loss = loss_of(model(x), x.sum(1, keepdim=True))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    weights = [p.tolist() for p in weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.Linear(3, 1)).parameters()]
    ours = trained(weft, weft.compile, weights)
    assert ours == trained(weft, lambda f: f, weights)
    assert ours == pytest.approx(trained(torch, lambda f: f, weights), rel=1e-5)


def hooked(p, seen):
    p.register_hook(lambda g: seen.append(g.sum()))


BETWEEN = {
    "nothing": lambda p, k, seen: p,
    "a hook": lambda p, k, seen: hooked(p, seen) or p if k % 4 == 3 else p,
    "a hook that changes it": lambda p, k, seen: [p.register_hook(lambda g: g * 2)] and p if k % 3 else p,
    "kept gradient": lambda p, k, seen: p.retain_grad() or seen.append(p) or p if k % 3 else p,
    "an op": lambda p, k, seen: p * 2,
    "a view": lambda p, k, seen: p.t().contiguous().t() if k % 2 else p[:],
    "in place": lambda p, k, seen: p.mul_(0.5) if k % 3 == 1 else p,
    "detached": lambda p, k, seen: p.detach() if k % 4 == 3 else p,
    "a leaf": lambda p, k, seen: p.detach().requires_grad_() if k % 4 == 3 else p,
    "asked for": lambda p, k, seen: seen.append(p.grad_fn is not None) or p,
    "frozen after": lambda p, k, seen: seen.append(p.requires_grad) or p,
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_with_something_between_the_calls(between):
    def scenario(compile):
        (net, model, loss_of), seen = model_and_loss(compile), []
        for k in range(N_CALLS):
            x, y = batch()
            if k % 5 == 4:
                net.zero_grad()
            p = between(model(x), k, seen)
            loss = loss_of(p, y)
            seen.append(loss)
            if loss.requires_grad:
                loss.backward()
            seen += [p.grad for p in net.parameters()]
        return seen

    assert_same(scenario)


def changed(p):
    with weft.no_grad():
        p.mul_(0.5)


def while_watched(loss):
    with weft.autograd.set_detect_anomaly(True):
        loss.backward()


def called_back(loss, net, seen):
    handle = net[0].weight.register_hook(
        lambda g: weft.autograd.Variable._execution_engine.queue_callback(lambda: seen.append("end"))
    )
    loss.backward()
    handle.remove()


PASSES = {
    "kept and freed": lambda loss, p, net, seen: [
        loss.backward(retain_graph=True),
        loss.backward(),
        seen.append(error_of(loss.backward)),
    ],
    "twice": lambda loss, p, net, seen: [loss.backward(), seen.append(error_of(loss.backward))],
    "the argument after": lambda loss, p, net, seen: [
        loss.backward(),
        seen.append(error_of(p.backward, weft.ones(6, 3))),
    ],
    "the argument before": lambda loss, p, net, seen: [
        p.backward(weft.ones(6, 3)),
        seen.append(error_of(loss.backward)),
    ],
    "both kept": lambda loss, p, net, seen: [p.backward(weft.ones(6, 3), retain_graph=True), loss.backward()],
    "both at once": lambda loss, p, net, seen: weft.autograd.backward([loss, p], [None, weft.ones(6, 3)]),
    "weighted": lambda loss, p, net, seen: loss.backward(weft.tensor(0.5)),
    "asked for": lambda loss, p, net, seen: seen.extend(weft.autograd.grad(loss, list(net.parameters()))),
    "of the argument": lambda loss, p, net, seen: seen.extend(weft.autograd.grad(loss, p)),
    "into some": lambda loss, p, net, seen: loss.backward(inputs=[net[0].weight]),
    "with a history": lambda loss, p, net, seen: seen.extend(
        weft.autograd.grad(loss, [net[0].weight], create_graph=True)
    ),
    "after a change of a weight": lambda loss, p, net, seen: [
        changed(net[2].weight),
        seen.append(error_of(loss.backward)),
    ],
    "after a change between": lambda loss, p, net, seen: [changed(p), seen.append(error_of(loss.backward))],
    "after a weight was frozen": lambda loss, p, net, seen: [
        net[2].bias.requires_grad_(False),
        loss.backward(),
        net[2].bias.requires_grad_(True),
    ],
    "in a block that watches": lambda loss, p, net, seen: while_watched(loss),
    "with something at its end": lambda loss, p, net, seen: called_back(loss, net, seen),
}


@pytest.mark.parametrize("do", PASSES.values(), ids=PASSES)
def test_a_pass_in_whatever_way(do):
    def scenario(compile):
        (net, model, loss_of), seen = model_and_loss(compile), []
        for k in range(N_CALLS):
            x, y = batch()
            if k % 5 == 4:
                net.zero_grad()
            p = model(x)
            loss = loss_of(p, y)
            if k % 4 == 3:
                do(loss, p, net, seen)
            else:
                loss.backward()
            seen += [q.grad if q.grad is None else q.grad.clone() for q in net.parameters()]
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("do", PASSES.values(), ids=PASSES)
def test_passes_that_are_all_like_that(do):
    def scenario(compile):
        (net, model, loss_of), seen = model_and_loss(compile), []
        for _ in range(N_CALLS):
            x, y = batch()
            net.zero_grad()
            p = model(x)
            do(loss_of(p, y), p, net, seen)
            seen += [q.grad if q.grad is None else q.grad.clone() for q in net.parameters()]
        return seen

    assert_same(scenario)


@twin
def test_calls_that_share_weights_and_arguments(compile):
    """What arrives at one leaf from several calls is added up in the order of eager mode."""
    w, seen = leaf(4, 4), []
    first, second = compile(lambda x: (x @ w).tanh()), compile(lambda x: (x * w).exp())
    third, total = compile(lambda a, b: (a @ b + w).sin()), compile(lambda *parts: sum(p.sum() for p in parts) / 7)
    for k in range(N_CALLS):
        x = weft.randn(4, 4, requires_grad=k % 2 == 1)
        a = first(x)
        b = second(a)
        c = third(a, b)
        loss = total(a, b, c, (w * 0.3).cos())
        w.grad = None
        loss.backward()
        seen += [loss, w.grad, x.grad]
    return seen


@twin
def test_several_results_go_on_to_several_calls(compile):
    w, seen = leaf(4, 4), []
    both = compile(lambda x: {"a": (x @ w).tanh(), "b": (x * w).sum(0), "c": x})
    one, other = compile(lambda a: (a**2).sum()), compile(lambda a, b: (a + b).exp().mean())
    for k in range(N_CALLS):
        w.grad, found = None, both(weft.randn(4, 4))
        if k % 3 == 0:
            one(found["a"]).backward()
        elif k % 3 == 1:
            (one(found["b"]) + other(found["a"], found["b"])).backward()
        else:
            other(*[v for v in found.values() if v.requires_grad]).backward()
        seen += [w.grad, *found.values()]
    return seen


@twin
def test_a_stack_of_calls_and_functions_of_users(compile):
    class Doubled(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append((weft.is_grad_enabled(), g.sum()))
            return g * 2

    seen, ws = [], [leaf(3, 3) for _ in range(4)]
    layers = [compile(lambda x, w: (x @ w).tanh()) for _ in ws]
    for k in range(N_CALLS):
        x = weft.randn(2, 3)
        for layer, w in zip(layers, ws):
            x = layer(x, w)
            x = Doubled.apply(x) if k % 3 == 2 else x
        x.backward(weft.ones(2, 3))
        seen += [w.grad.clone() for w in ws]
    return seen


@twin
def test_losses_are_kept_and_differentiated_in_any_order(compile):
    (net, model, loss_of), seen = model_and_loss(compile), []
    for k in range(4):
        losses = [loss_of(model(x), y) for x, y in [batch() for _ in range(N_CALLS)]]
        for loss in losses[:: 1 if k % 2 else -1]:
            loss.backward()
        seen += [q.grad.clone() for q in net.parameters()] + losses
    return seen


@twin
def test_results_are_dropped_before_the_loss_is_differentiated(compile):
    (net, model, loss_of), losses = model_and_loss(compile), []
    for _ in range(N_CALLS):
        x, y = batch()
        p = model(x)
        losses.append(loss_of(p, y))
        del p
    sum(losses).backward()
    return [*losses, *[q.grad for q in net.parameters()]]
