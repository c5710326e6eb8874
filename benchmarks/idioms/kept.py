"""Tensors that are kept and picked: other names of parameters, made in the call too, buffers that are
sampled from, layers by number."""

import copy
import random
from collections import deque

from .registry import idiom


def training_step(T, s, optimizer="SGD"):
    net = s.weights(T.nn.Sequential(T.nn.Linear(6, 8), T.nn.Tanh(), T.nn.Linear(8, 2)))
    optim, x, y = getattr(T.optim, optimizer)(net.parameters(), lr=0.01), s.numbers(5, 6), s.numbers(5, 2)

    @s.compile
    def step(x, y):
        optim.zero_grad()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        optim.step()
        return loss

    return net, lambda: step(x, y)


@idiom
def step_beside_a_state_dict(T, s):
    net, step = training_step(T, s)
    best = net.state_dict()
    return lambda: [step(), best["0.weight"]]


@idiom
def step_beside_a_state_dict_adam(T, s):
    net, step = training_step(T, s, "Adam")
    checkpoint = {"epoch": 3, "model": net.state_dict()}
    return lambda: [step(), checkpoint["model"]["2.bias"]]


@idiom
def step_beside_detached_parameters(T, s):
    net, step = training_step(T, s)
    before = [p.detach() for p in net.parameters()]
    return lambda: [step(), before[0]]


@idiom
def step_beside_data_of_parameters(T, s):
    net, step = training_step(T, s)
    before = [p.data for p in net.parameters()]
    return lambda: [step(), before[0]]


@idiom
def early_stopping(T, s):
    net, step = training_step(T, s)
    state = {"best": net.state_dict(), "least": float("inf")}

    def call():
        loss = step().item()
        if loss < 0.5 * state["least"]:
            state.update(best=copy.deepcopy(net.state_dict()), last=net.state_dict(), least=loss)
        return state["last"]["0.bias"]

    return call


@idiom
def functional_step_on_detached_parameters(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(6, 8), T.nn.Tanh(), T.nn.Linear(8, 1)))
    optim, x, y = T.optim.SGD(net.parameters(), lr=0.01), s.numbers(12, 6), s.numbers(12)

    def loss(params, x, y):
        return (T.func.functional_call(net, params, (x,))[:, 0] - y).pow(2).mean()

    @s.compile
    def step(x, y):
        params = {k: p.detach() for k, p in net.named_parameters()}
        gradients = T.func.grad(loss)(params, x, y)
        for k, p in net.named_parameters():
            p.grad = gradients[k]
        optim.step()
        return gradients["0.bias"]

    return lambda: step(x, y)


@idiom
def gradients_per_sample_of_detached_parameters(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(6, 8), T.nn.Tanh(), T.nn.Linear(8, 1)))
    optim, x, y = T.optim.SGD(net.parameters(), lr=0.01), s.numbers(12, 6), s.numbers(12)

    def loss(params, x, y):
        return (T.func.functional_call(net, params, (x,))[0] - y).pow(2)

    @s.compile
    def step(x, y):
        params = {k: p.detach() for k, p in net.named_parameters()}
        gradients = T.vmap(T.func.grad(loss), (None, 0, 0))(params, x, y)
        norms = sum(g.flatten(1).pow(2).sum(1) for g in gradients.values()).sqrt()
        scale = (1 / norms).clamp(max=1)
        for k, p in net.named_parameters():
            p.grad = T.tensordot(scale, gradients[k], dims=1) / len(x)
        optim.step()
        return norms

    return lambda: step(x, y)


@idiom
def step_with_an_average_and_a_snapshot(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(6, 8), T.nn.Tanh(), T.nn.Linear(8, 2)))
    optim, x, y = T.optim.Adam(net.parameters(), lr=0.01), s.numbers(5, 6), s.numbers(5, 2)
    shadow = [p.detach().clone() for p in net.parameters()]

    @s.compile
    def step(x, y):
        now = [p.detach() for p in net.parameters()]
        before = now[0].clone()
        optim.zero_grad()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        optim.step()
        for mine, p in zip(shadow, now):
            mine.mul_(0.99).add_(p, alpha=0.01)
        return loss.detach(), (now[0] - before).norm()

    return lambda: [*step(x, y), shadow[0]]


@idiom
def average_beside_its_state_dict(T, s):
    net, average = (s.weights(T.nn.Linear(5, 3)) for _ in range(2))
    kept, x = average.state_dict(), s.numbers(4, 5)

    @s.compile
    def f(x):
        with T.no_grad():
            for mine, other in zip(average.parameters(), net.parameters()):
                mine.mul_(0.99).add_(other, alpha=0.01)
            return average(x)

    return lambda: [f(x), kept["weight"]]


@idiom
def sample_of_a_replay_buffer(T, s):
    rng, buffer = random.Random(0), deque([s.numbers(4) for _ in range(64)], maxlen=64)

    @s.compile
    def f():
        batch = T.stack(rng.sample(list(buffer), 8))
        return (batch * 2).tanh().sum(1)

    return f


@idiom
def layer_by_number(T, s):
    layers = T.nn.ModuleList([s.weights(T.nn.Linear(6, 6)) for _ in range(8)])
    x, turn = s.numbers(3, 6), [0]

    @s.compile
    def f(x, k):
        with T.no_grad():
            return layers[k](x).relu()

    def call():
        turn[0] = (turn[0] * 3 + 1) % 8
        return f(x, turn[0])

    return call


@idiom
def sample_from_a_list_trained(T, s):
    rng, xs, ys = random.Random(1), [s.numbers(4) for _ in range(50)], [s.numbers() for _ in range(50)]
    w = T.zeros(4, requires_grad=True)

    @s.compile
    def f(k):
        loss = ((xs[k] * w).sum() - ys[k]) ** 2
        (gradient,) = T.autograd.grad(loss, [w])
        with T.no_grad():
            w.sub_(0.01 * gradient)
        return loss

    return lambda: f(rng.randrange(50))
