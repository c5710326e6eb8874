"""Training as users write it, in steps that are called often enough to become usual calls: the same with and without
compile, bit for bit. Each scenario shows losses, parameters (with their gradients) and whatever else it makes.
"""

import copy

import numpy as np
import pytest
from compiled_twin import assert_same, twin
from scenario_parts import N_STEPS, batches, net, params

import weft
from weft import nn, optim, randn
from weft.nn import functional as F


# --- gradients --------------------------------------------------------------------------------------------------------
@twin
def test_clipping_by_norm(compile):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    @compile
    def step(x, y, limit):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
        return loss, norm

    for k, (x, y) in enumerate(batches()):
        yield step(x, y, 0.1 if k != 5 else 100.0), params(model)


@twin
def test_clipping_by_value_and_a_decision_on_the_norm(compile):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    skipped = []

    @compile
    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        if norm > 0.25:
            skipped.append(norm.item())
            return norm
        optimizer.step()
        return norm

    for x, y in batches():
        yield step(x, y), params(model), list(skipped)


@twin
def test_accumulation_over_micro_batches(compile):
    model = net()
    optimizer = optim.Adam(model.parameters(), lr=0.05)

    @compile
    def step(x, y):
        total = 0.0
        for k in range(0, 6, 2):
            loss = F.mse_loss(model(x[k : k + 2]), y[k : k + 2]) / 3
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    for x, y in batches(6):
        yield step(x, y), params(model)


@twin
def test_accumulation_over_calls(compile):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y, number):
        loss = F.mse_loss(model(x), y) / 2
        loss.backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=number % 4 == 1)
        return loss

    for k, (x, y) in enumerate(batches(count=12)):
        yield step(x, y, k), params(model)


@twin
def test_hooks_on_parameters(compile):
    model, seen = net(), []
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for k, (x, y) in enumerate(batches(count=9)):
        if k == 3:
            handle = model[0].weight.register_hook(lambda gradient: gradient * 0.5)
            other = model[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
        if k == 6:
            handle.remove()
            other.remove()
        yield step(x, y), params(model), list(seen)


@twin
def test_hook_on_a_hidden_value(compile):
    model, seen = net(), []
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        hidden = model[0](x)
        hidden.register_hook(lambda gradient: seen.append(gradient.abs().max().item()))
        hidden.retain_grad()
        loss = F.mse_loss(model[2](hidden.tanh()), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, hidden.grad

    for x, y in batches():
        yield step(x, y), params(model), list(seen)


@twin
def test_graph_retained_for_two_backwards(compile):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        first, second = F.mse_loss(out, y), out.abs().mean()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
        return first, second

    for x, y in batches():
        yield step(x, y), params(model)


@twin
def test_gradients_of_two_losses_apart(compile):
    model = net()

    @compile
    def step(x, y):
        out = model(x)
        a = weft.autograd.grad(F.mse_loss(out, y), params(model), retain_graph=True)
        b = weft.autograd.grad(out.abs().mean(), params(model))
        cosine = sum((u * v).sum() for u, v in zip(a, b))
        with weft.no_grad():
            for p, u, v in zip(params(model), a, b):
                p -= 0.1 * (u + v) if cosine > 0 else 0.1 * u
        return cosine

    for x, y in batches():
        yield step(x, y), params(model)


@twin
def test_grad_inside_a_step(compile):
    model = net()

    @compile
    def step(x, y, rate):
        gradients = weft.autograd.grad(F.mse_loss(model(x), y), params(model))
        with weft.no_grad():
            for p, g in zip(params(model), gradients):
                p.sub_(rate * g)
        return gradients[0]

    for k, (x, y) in enumerate(batches()):
        yield step(x, y, 0.1 / (k + 1)), params(model)


@twin
def test_product_of_hessian_and_vector(compile):
    w = randn(4, requires_grad=True)

    @compile
    def product(v, x):
        loss = ((x @ w).tanh() ** 2).sum()
        (gradient,) = weft.autograd.grad(loss, [w], create_graph=True)
        (result,) = weft.autograd.grad((gradient * v).sum(), [w])
        return loss, result

    for _ in range(N_STEPS):
        yield product(randn(4), randn(5, 4)), w


@twin
def test_gradient_penalty(compile):
    critic = net(3, 1)
    optimizer = optim.Adam(critic.parameters(), lr=0.05)

    @compile
    def step(x):
        x = x.detach().requires_grad_()
        score = critic(x).sum()
        (gradient,) = weft.autograd.grad(score, [x], create_graph=True)
        penalty = ((gradient.norm(dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        (penalty - score * 0.1).backward()
        optimizer.step()
        return penalty

    for _ in range(N_STEPS):
        yield step(randn(4, 3)), params(critic)


# --- optimizers -------------------------------------------------------------------------------------------------------
@twin
def test_two_optimizers_in_turn(compile):
    maker, judge = net(2, 3), net(3, 1)
    for_maker, for_judge = optim.Adam(maker.parameters(), lr=0.02), optim.RMSprop(judge.parameters(), lr=0.01)

    @compile
    def step(real, noise):
        fake = maker(noise)
        for_judge.zero_grad()
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        loss.backward()
        for_judge.step()
        for_maker.zero_grad()
        other = F.softplus(-judge(fake)).mean()
        other.backward()
        for_maker.step()
        return loss, other

    for _ in range(N_STEPS):
        yield step(randn(4, 3), randn(4, 2)), params(maker), params(judge)


@twin
def test_groups_of_parameters(compile):
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": [model[2].weight], "weight_decay": 0.1}]
    optimizer = optim.AdamW(groups, lr=0.05)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k, (x, y) in enumerate(batches(count=10)):
        if k == 4:
            optimizer.add_param_group({"params": [model[2].bias], "lr": 0.2})
        if k == 7:
            optimizer.param_groups[0]["lr"] = 0.5
        yield step(x, y), params(model)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: optim.lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 5),
        lambda o: optim.lr_scheduler.LinearLR(o, total_iters=4),
        lambda o: optim.lr_scheduler.LambdaLR(o, lambda k: 1 / (k + 1)),
    ],
)
def test_schedules(make):
    def scenario(compile):
        model = net()
        optimizer = optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
        schedule = make(optimizer)

        @compile
        def step(x, y):
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        for x, y in batches():
            yield step(x, y), params(model), schedule.get_last_lr()

    assert_same(scenario)


@twin
def test_schedule_that_waits_for_a_plateau(compile):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(loss.item())
        return loss

    for x, y in batches(count=10):
        yield step(x, y), params(model), optimizer.param_groups[0]["lr"]


@twin
def test_closure(compile):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.2)

    @compile
    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    for x, y in batches():
        yield step(x, y), params(model)


@twin
def test_line_search(compile):
    """A closure is asked several times, and the parameters go back where a step was too long."""
    w = randn(3, requires_grad=True)

    def loss_of(x):
        return ((x @ w) ** 2).mean() + (w - 1).abs().sum()

    @compile
    def step(x):
        w.grad = None
        loss = loss_of(x)
        loss.backward()
        before, rate = w.detach().clone(), 1.0
        with weft.no_grad():
            while rate > 1e-3:
                w.copy_(before - rate * w.grad)
                if loss_of(x) < loss:
                    break
                rate /= 2
        return loss, rate

    for _ in range(N_STEPS):
        yield step(randn(4, 3)), w


@twin
def test_finding_a_learning_rate(compile):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=1e-3)
    start = copy.deepcopy(model.state_dict())
    losses = []

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    for x, y in batches(count=9):
        step(x, y)
        optimizer.param_groups[0]["lr"] *= 4.0
        if losses[-1] > 4 * losses[0]:
            break
    yield losses, params(model)
    model.load_state_dict(start)
    for x, y in batches(count=3):
        step(x, y)
        yield losses, params(model)


@twin
def test_an_optimizer_of_the_user(compile):
    class Signs(optim.Optimizer):
        def __init__(self, parameters, lr):
            super().__init__(parameters, {"lr": lr})

        @weft.no_grad
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    memory = self.state[p].setdefault("mean", weft.zeros_like(p))
                    memory.lerp_(p.grad, 0.1)
                    p.add_(memory.sign(), alpha=-group["lr"])

    model = net()
    optimizer = Signs(model.parameters(), 0.05)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for x, y in batches():
        yield step(x, y), params(model), [s["mean"] for s in optimizer.state.values()]


@twin
def test_logistic_regression_by_scipy(compile):
    minimize = pytest.importorskip("scipy.optimize").minimize
    x, y = randn(20, 3, dtype=weft.float64), (randn(20, dtype=weft.float64) > 0).double()

    @compile
    def loss_of(w):
        return F.binary_cross_entropy_with_logits(x @ w[:3] + w[3], y) + 0.01 * (w * w).sum()

    def value_and_gradient(array):
        w = weft.tensor(array, requires_grad=True)
        loss = loss_of(w)
        loss.backward()
        return loss.item(), w.grad.numpy()

    found = minimize(value_and_gradient, np.zeros(4), jac=True, method="L-BFGS-B")
    yield found.x, found.fun, found.nit
