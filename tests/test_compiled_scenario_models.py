"""Models of many kinds in training, in steps that are called often enough to become usual calls: the same with and
without compile, bit for bit.
"""

import copy

import numpy as np
from compiled_twin import twin
from scenario_parts import N_STEPS, batches, net, params

import weft
from weft import nn, optim, randn
from weft.nn import functional as F


@twin
def test_tied_weights(compile):
    table, out = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
    out.weight = table.weight
    optimizer = optim.Adam([table.weight], lr=0.05)

    @compile
    def step(words):
        loss = F.cross_entropy(out(table(words[:-1])), words[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        words = weft.tensor(np.random.default_rng(k).integers(0, 6, 5))
        yield step(words), out.weight, table.weight


@twin
def test_freezing_in_the_middle_of_training(compile):
    model = net()
    optimizer = optim.Adam(model.parameters(), lr=0.05)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k, (x, y) in enumerate(batches(count=12)):
        model[0].requires_grad_(not 4 <= k < 8)
        yield step(x, y), params(model)


@twin
def test_average_of_weights(compile):
    model = net()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with weft.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(0.9).add_(p, alpha=0.1)
        return loss, average(x)

    for x, y in batches():
        yield step(x, y), params(model), params(average)


@twin
def test_training_and_evaluation_in_turn(compile):
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.4), nn.Linear(6, 2))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        if model.training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    for k, (x, y) in enumerate(batches(count=14)):
        model.train(k % 7 < 5)
        with weft.set_grad_enabled(model.training):
            yield step(x, y), params(model), list(model.buffers())


@twin
def test_results_in_dictionaries_and_tuples(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.heads = nn.Linear(3, 4), nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 1)})

        def forward(self, x):
            hidden = self.body(x).relu()
            return {name: head(hidden) for name, head in self.heads.items()}, (hidden, [hidden.mean(), None])

    model = Model()
    run = compile(model)
    for _ in range(N_STEPS):
        heads, (hidden, (mean, nothing)) = run(randn(4, 3))
        (heads["a"].sum() + heads["b"].square().sum() + mean).backward()
        yield heads, hidden, mean, nothing, params(model)


@twin
def test_auxiliary_losses_of_modules(compile):
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.penalty = nn.Linear(3, 3), None

        def forward(self, x):
            hidden = self.linear(x).relu()
            self.penalty = 0.1 * hidden.abs().mean()
            return hidden

    model = nn.Sequential(Sparse(), Sparse(), nn.Linear(3, 2))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y) + sum(m.penalty for m in model[:2]) + 1e-3 * sum(p.norm() for p in params(model))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for x, y in batches():
        yield step(x, y), params(model), model[0].penalty, model[1].penalty


@twin
def test_function_with_a_derivative_of_its_own(compile):
    class Round(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.round()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * (x.abs() < 1)

    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        loss = F.mse_loss(Round.apply(model(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for x, y in batches():
        yield step(x, y), params(model)


@twin
def test_state_carried_between_calls(compile):
    cell = nn.Linear(5, 2)
    optimizer = optim.Adam(cell.parameters(), lr=0.05)

    @compile
    def step(x, state):
        outputs = []
        for k in range(3):
            state = cell(weft.cat([x[:, k], state], 1)).tanh()
            outputs.append(state)
        loss = weft.stack(outputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, state.detach()

    state = weft.zeros(4, 2)
    for _ in range(N_STEPS):
        loss, state = step(randn(4, 3, 3), state)
        yield loss, state, params(cell)


@twin
def test_a_layer_is_replaced_and_added(compile):
    model = net()

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        model.zero_grad()
        loss.backward()
        with weft.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        return loss

    for k, (x, y) in enumerate(batches(count=12)):
        if k == 4:
            model[1] = nn.ReLU()
        if k == 8:
            model.append(nn.Linear(2, 2))
        yield step(x, y), params(model)


@twin
def test_target_network(compile):
    online, target = net(), net()
    optimizer = optim.Adam(online.parameters(), lr=0.02)

    @compile
    def step(x, following, action, reward):
        with weft.no_grad():
            wanted = reward + 0.9 * target(following).max(1).values
        chosen = online(x).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(chosen, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(9):
        if k % 3 == 0:
            target.load_state_dict(online.state_dict())
        action = weft.tensor(np.random.default_rng(k).integers(0, 2, 4))
        yield step(randn(4, 3), randn(4, 3), action, randn(4)), params(online), params(target)
