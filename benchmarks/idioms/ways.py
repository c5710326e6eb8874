"""Calls that do not do the same every time: flags, outcomes, places that move; and state written by hand."""

import dataclasses
import itertools

from .registry import idiom


def in_turn(s, count, *shape):
    return itertools.cycle([s.numbers(*shape) for _ in range(count)])


def counted(call):
    """A call of the function with how often it was called."""
    count = itertools.count(1)
    return lambda: call(next(count))


@idiom
def flag_of_every_third_call(T, s):
    x = in_turn(s, 3, 4)

    @s.compile
    def f(x, keep):
        return (x if keep else x + 1), x.sum()

    return counted(lambda k: f(next(x), k % 3 == 0))


@idiom
def returned_early(T, s):
    x = in_turn(s, 5, 4)

    @s.compile
    def f(x, limit=1.5):
        n = x.norm()
        if n < limit:
            return x * 1, n
        if (x > 1).any():
            return x / n, n
        return x.clamp(-1, 1), n

    return lambda: f(next(x))


@idiom
def bounds_that_are_numbers(T, s):
    x = in_turn(s, 3, 7)

    @s.compile
    def f(x, low, high):
        y = T.where(x < low, low, x)
        return T.where(y > high, high, y), T.where(x.abs() < 0.5, 1, 0)

    return counted(lambda k: f(next(x), -1.0 / k, 1 if k % 4 == 0 else 0.7))


@idiom
def trained_two_times_of_three(T, s):
    norm, x = T.nn.BatchNorm1d(3), in_turn(s, 3, 6, 3)
    f = s.compile(lambda x: norm(x).relu().sum(1).detach())

    def call(k):
        norm.train(k % 3 != 0)
        return [f(next(x)), norm.running_mean]

    return counted(call)


@idiom
def parts_at_places_that_move(T, s):
    table = s.numbers(8, 3)

    @s.compile
    def f(i, j):
        return table[i] + table[j : j + 2].sum(0), table[-i - 1] * 2

    return counted(lambda k: f(k % 5, 3 * k % 6))


@idiom
def counted_in_a_matrix(T, s):
    counts, x, labels = T.zeros(3, 3), in_turn(s, 4, 6, 3), s.integers(3, 6)

    @s.compile
    def count(scores, labels):
        counts.view(-1).index_add_(0, labels * 3 + scores.argmax(1), T.ones(6))
        return counts.diagonal().sum() / counts.sum()

    return lambda: [count(next(x), labels), counts]


@idiom
def row_changed_through_its_name(T, s):
    table, x = T.zeros(4, 3), in_turn(s, 3, 3)

    @s.compile
    def f(x):
        row = table[1]
        row *= 0.9
        row += x
        return row.sum(), table.sum(0)

    return lambda: [*f(next(x)), table]


@idiom
def optimizer_as_a_class(T, s):
    class Nesterov:
        def __init__(self, params, lr):
            self.params, self.lr = list(params), lr
            self.speed = [T.zeros_like(p) for p in self.params]

        def zero_grad(self):
            for p in self.params:
                if p.grad is not None:
                    p.grad.detach_()
                    p.grad.zero_()

        @T.no_grad()
        def step(self):
            for i, p in enumerate(self.params):
                self.speed[i] = 0.9 * self.speed[i] + p.grad
                p -= self.lr * (p.grad + 0.9 * self.speed[i])

    model, x, y = s.weights(T.nn.Linear(3, 2)), in_turn(s, 3, 4, 3), in_turn(s, 2, 4, 2)
    optimizer = Nesterov(model.parameters(), 0.01)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def call():
        optimizer.lr *= 0.999
        return [step(next(x), next(y)), *model.parameters()]

    return call


@idiom
def state_as_a_data_class(T, s):
    @dataclasses.dataclass
    class State:
        hidden: object
        cell: object
        steps: int = 0

    w, u, x = s.numbers(3, 12, scale=0.3), s.numbers(3, 12, scale=0.3), in_turn(s, 3, 2, 3)

    @s.compile
    def lstm(x, state):
        i, f, g, o = (x @ w + state.hidden @ u).chunk(4, dim=-1)
        cell = f.sigmoid() * state.cell + i.sigmoid() * g.tanh()
        return dataclasses.replace(state, hidden=o.sigmoid() * cell.tanh(), cell=cell, steps=state.steps + 1)

    state = [State(T.zeros(2, 3), T.zeros(2, 3))]

    def call():
        state[0] = lstm(next(x), state[0])
        return [state[0].hidden, state[0].cell]

    return call


@idiom
def compiled_loss_in_a_compiled_step(T, s):
    model, x, y = s.weights(T.nn.Linear(4, 3)), in_turn(s, 3, 6, 4), s.integers(3, 6)

    @s.compile
    def loss_of(x, y, smoothing=0.0):
        scores = T.log_softmax(model(x), -1)
        found = -scores.gather(1, y.unsqueeze(1)).squeeze(1)
        return ((1 - smoothing) * found - smoothing * scores.mean(-1)).mean()

    @s.compile
    def step(x, y, lr):
        gradients = T.autograd.grad(loss_of(x, y, smoothing=0.1), list(model.parameters()))
        with T.no_grad():
            for (name, p), g in zip(model.named_parameters(), gradients):
                p.add_(g, alpha=-lr * (0.1 if "bias" in name else 1.0))
        return loss_of(x, y)

    return counted(lambda k: [step(next(x), y, 0.1 / k), *model.parameters()])
