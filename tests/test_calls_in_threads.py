"""Compiled functions that several threads call at the same time, from their first call on: each gets what it would get
alone, though the interpreter goes from thread to thread as often as it can."""

import random

import numpy as np
import pytest
from together import in_threads

import weft
from weft import nn

N_THREADS = 3


def bits(result):
    if isinstance(result, weft.Tensor):
        return result.detach().numpy().tobytes()
    if isinstance(result, dict):
        return [bits(x) for x in result.values()]
    if isinstance(result, (list, tuple)):
        return [bits(x) for x in result]
    return result


def functions():
    weft.manual_seed(0)
    model, w = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), weft.arange(6.0)

    def changed(x):
        y = x.clone()
        y.add_(w)
        y[0] *= 2
        y.view(-1).mul_(2)
        return y, y[1:]

    def gradients(x):
        x = x.detach().clone().requires_grad_()
        (x * w).sin().sum().backward()
        return x.grad

    def some_gradients(x):
        x = x.detach().requires_grad_()
        return weft.autograd.grad(model(x).pow(2).sum(), x)[0]

    def without_gradients(x):
        with weft.no_grad():
            return model(x).softmax(-1)

    def in_a_loop(x):
        for _ in range(3):
            x = x * 0.5 + w
        return {"x": x, "of it": [x.sum(), x.max(1).values]}

    return [
        model,
        changed,
        gradients,
        some_gradients,
        without_gradients,
        in_a_loop,
        lambda x: (x * 2).sum().item(),
        lambda x: x * 2 if x.sum() > 0 else x * 3,
        lambda x: (x[1:], x.t()),
        lambda x: weft.from_numpy((x * 2).numpy() + 1),
        lambda x: weft.func.vmap(lambda row: (row * w).sum())(x),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_one_thread(seed):
    given = functions()
    compiled = [weft.compile(function) for function in given]
    numbers = np.random.default_rng(seed)
    inputs = [weft.from_numpy(numbers.normal(size=(4 + k % 2, 6)).astype("f4")) for k in range(6)]
    wanted = [[bits(function(x)) for x in inputs] for function in given]

    def work(k):
        which = random.Random(N_THREADS * seed + k)
        for _ in range(100):
            i, j = which.randrange(len(given)), which.randrange(len(inputs))
            assert bits(compiled[i](inputs[j])) == wanted[i][j], i

    in_threads(work, N_THREADS)


OPTIMIZERS = [
    lambda parameters: weft.optim.SGD(parameters, lr=0.05),
    lambda parameters: weft.optim.SGD(parameters, lr=0.05, momentum=0.9),
    lambda parameters: weft.optim.AdamW(parameters, lr=0.01),
]


def network(k):
    weft.manual_seed(k)
    layers = [nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)]
    return nn.Sequential(*layers[:1], nn.BatchNorm1d(7), *layers[1:]) if k % 2 else nn.Sequential(*layers)


def trained(step, model, k):
    optimizer, numbers = OPTIMIZERS[k % 3](model.parameters()), np.random.default_rng(k)
    for _ in range(50):
        x, y = (weft.from_numpy(numbers.normal(size=(6, n)).astype("f4")) for n in (5, 2))
        step(model, optimizer, x, y)
    return bits(list(model.parameters()))


@pytest.mark.parametrize("clipped", [False, True])
def test_models_trained_by_one_function_in_several_threads(clipped):
    def step(model, optimizer, x, y):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if clipped:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    for first in range(0, 9, N_THREADS):
        compiled, models = weft.compile(step), [network(first + k) for k in range(N_THREADS)]
        wanted = [trained(step, network(first + k), first + k) for k in range(N_THREADS)]
        found = [None] * N_THREADS

        def work(k, first=first, compiled=compiled, models=models, found=found):
            found[k] = trained(compiled, models[k], first + k)

        in_threads(work, N_THREADS)
        assert found == wanted
