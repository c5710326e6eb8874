"""Calls of ever new sizes whose backward comes after the call: replayed, with eager mode's bits."""

import copy
import random
import threading

import pytest
from many_sizes import batch, n_replayed, needs_native, perceptron, same, sizes

import weft
from weft import nn
from weft.nn import functional as F

pytestmark = needs_native


class Sides:
    """make(model) -> the function that is compiled; after(model, optimizer, function, *arguments) is what follows, once
    with the compiled function and once with the plain one, on models of their own."""

    def __init__(self, make, after, model=None):
        model = model or perceptron()
        self.models = [model, copy.deepcopy(model)]
        self.optimizers = [weft.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in self.models]
        self.compiled = weft.compile(make(self.models[0]))
        self.functions = [self.compiled, make(self.models[1])]
        self.after = after

    def call(self, *given):
        results = [self.after(*side, *given) for side in zip(self.models, self.optimizers, self.functions)]
        self.check(*results)

    def check(self, mine, its):
        assert same(mine, its)
        for x, y in zip(self.models[0].parameters(), self.models[1].parameters()):
            assert same(x.detach(), y.detach())
            assert (x.grad is None) == (y.grad is None)
            assert x.grad is None or same(x.grad, y.grad)

    @property
    def n_replayed(self):
        return n_replayed(self.compiled)

    def run(self, n=30, given=batch, seed=0):
        for size in sizes(n, seed=seed):
            self.call(*given(size))


def loss_of(model):
    return lambda x, y: F.cross_entropy(model(x), y)


def trained(model, optimizer, loss, x, y):
    found = loss(x, y)
    optimizer.zero_grad()
    found.backward()
    optimizer.step()
    return found.detach()


def trained_by_grad(model, optimizer, loss, x, y):
    found = loss(x, y)
    gradients = weft.autograd.grad(found, list(model.parameters()))
    for p, g in zip(model.parameters(), gradients):
        p.grad = g
    optimizer.step()
    return [*gradients, found.item()]


def loss_outside(model, optimizer, scores, x, y):
    loss = F.cross_entropy(scores(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def retained(model, optimizer, loss, x, y):
    found = loss(x, y)
    optimizer.zero_grad()
    found.backward(retain_graph=True)
    found.backward()
    optimizer.step()
    return found.detach()


def accumulated(model, optimizer, loss, x, y):
    optimizer.zero_grad()
    loss(x, y).backward()
    loss(x[1:], y[1:]).backward()
    optimizer.step()
    return None


def weighted(model, optimizer, loss, x, y):
    found = loss(x, y)
    optimizer.zero_grad()
    found.backward(weft.tensor(0.3))
    optimizer.step()
    return found.detach()


@pytest.mark.parametrize("after", [trained, trained_by_grad, retained, accumulated, weighted])
def test_a_loss_that_is_differentiated_after_the_call(after):
    sides = Sides(loss_of, after)
    sides.run(40)
    assert sides.n_replayed > 20


def test_scores_whose_loss_is_computed_outside():
    """As with weft.compile(model)."""
    sides = Sides(lambda model: model, loss_outside)
    sides.run(40, lambda n: (weft.randn(n, 6), weft.randint(0, 3, (n,))))
    assert sides.n_replayed > 20


def test_backward_runs_in_native_code():
    sides = Sides(loss_of, trained)
    sides.run(40)
    plans = [plan for many in sides.compiled._many.found for plan in many.backward.plans.values()]
    assert [plan.native is not None for plan in plans] == [True]
    assert plans[0].program.calls > 20


def test_of_several_results():
    def make(model):
        def found(x, y):
            scores = model(x)
            return F.cross_entropy(scores, y), (scores * scores).mean(), scores

        return found

    def after(model, optimizer, function, x, y):
        loss, size, scores = function(x, y)
        optimizer.zero_grad()
        kind = len(x) % 4
        if kind == 0:
            (loss + 0.1 * size).backward()
        elif kind == 1:
            loss.backward()
        elif kind == 2:
            weft.autograd.backward([loss, size])
        else:
            (loss + scores.sum()).backward()
        optimizer.step()
        return [loss.detach(), size.detach(), scores.detach()]

    sides = Sides(make, after)
    sides.run(80)
    assert sides.n_replayed > 40


def test_backward_in_another_order_than_calls():
    sides = Sides(loss_of, None)
    rng = random.Random(1)
    sides.after = trained
    sides.run(20)
    for _ in range(6):
        given = [batch(n) for n in sizes(5, seed=rng.random())]
        order = rng.sample(range(5), 5)
        for function, model in zip(sides.functions, sides.models):
            model.zero_grad()
            losses = [function(*one) for one in given]
            for k in order:
                losses[k].backward()
        sides.check(None, None)
    assert sides.n_replayed > 20


def test_graphs_that_are_looked_at_and_differentiated_again():
    def after(model, optimizer, loss, x, y):
        found = loss(x, y)
        parameters = list(model.parameters())
        if len(x) % 3 == 0:
            first = weft.autograd.grad(found, parameters, create_graph=True)
            second = weft.autograd.grad(sum((g * g).sum() for g in first), parameters)
            return [g.detach() for g in (*first, *second)]
        if len(x) % 3 == 1:
            seen = []
            handle = parameters[0].register_hook(lambda g: seen.append(g.clone()) or g * 2)
            found.backward()
            handle.remove()
            return [found.grad_fn.name(), *seen]
        node = found.grad_fn
        found.backward(inputs=parameters[:2])
        with pytest.raises(RuntimeError, match="second time"):
            found.backward()
        return [node.name(), found.detach()]

    sides = Sides(lambda model: lambda x, y: F.mse_loss(weft.tanh(model(x)), y), after, perceptron())
    sides.run(60, lambda n: (weft.randn(n, 6), weft.randn(n, 3)))
    assert sides.n_replayed > 20


def test_a_change_of_what_was_saved_is_refused():
    sides = Sides(loss_of, trained)
    sides.run(20)
    for n in sizes(4, seed=3):
        x, y = batch(n)
        for function, model in zip(sides.functions, sides.models):
            loss = function(x, y)
            with weft.no_grad():
                model[2].weight.mul_(1.01)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        sides.check(None, None)
    sides.run(10, seed=5)


def test_sizes_that_nothing_which_is_read_shows():
    """The gradient is the number of rows, which only the program's own numbers say."""

    def make(model):
        return lambda x: (model[0].bias.expand(len(x), 12).sum() + 0 * x.sum()).reshape(())

    def after(model, optimizer, function, x):
        model.zero_grad()
        function(x).backward()
        return model[0].bias.grad.clone()

    sides = Sides(make, after)
    sides.run(40, lambda n: (weft.randn(n, 6),))
    first, second = weft.randn(17, 6), weft.randn(29, 6)
    for function, model in zip(sides.functions, sides.models):
        model.zero_grad()
        early, late = function(first), function(second)
        early.backward()
        late.backward()
    sides.check(None, None)
    assert sides.models[0][0].bias.grad.tolist() == [46.0] * 12


def test_a_finalizer_differentiates_another_size():
    sides = Sides(loss_of, trained)
    sides.run(20)

    class Last:
        def __init__(self, loss):
            self.loss = loss

        def __del__(self):
            self.loss.backward()

    for n in sizes(6, seed=9):
        one, other = batch(n), batch(n + 3)
        for function, model in zip(sides.functions, sides.models):
            model.zero_grad()
            kept = Last(function(*other))
            loss = function(*one)
            del kept
            loss.backward()
        sides.check(None, None)


def test_threads_differentiate_calls_of_their_sizes():
    sides = Sides(loss_of, trained)
    sides.run(20)
    model, function = sides.models[0], sides.compiled
    given = [[batch(n) for n in sizes(30, seed=k)] for k in range(3)]
    parameters, plain = list(model.parameters()), sides.functions[1]
    its = list(sides.models[1].parameters())
    expected = [[weft.autograd.grad(plain(*one), its) for one in own] for own in given]
    found = [[] for _ in given]

    def work(k):
        for one in given[k]:
            found[k].append(weft.autograd.grad(function(*one), parameters))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for mine, theirs in zip(found, expected):
        assert all(same(list(a), list(b)) for a, b in zip(mine, theirs))


def test_layers_of_other_kinds():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(2, 4), nn.LayerNorm(4)
            self.attention, self.scores = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            h = self.norm(weft.tanh(self.first(x)))
            h = h + self.attention(h, h, h, need_weights=False)[0]
            return self.scores(h.mean(1))

    sides = Sides(loss_of, trained, Network())
    sides.run(40, lambda n: (weft.randn(3, n, 2), weft.randint(0, 3, (3,))))
    assert sides.n_replayed > 20


def test_arguments_with_gradients_are_recorded_and_it_is_said():
    def after(model, optimizer, loss, x, y):
        x = x.clone().requires_grad_()
        model.zero_grad()
        loss(x, y).backward()
        return x.grad

    sides = Sides(loss_of, after)
    sides.run(12)
    assert sides.n_replayed == 0
    assert "recorded anew: an argument gets a gradient after the call" in sides.compiled.explain()
