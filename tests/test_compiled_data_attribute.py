"""Steps and finished calls whose memory is changed through x.data: the same with and without compile, bit for bit."""

import pytest
from compiled_twin import leaf, twin
from scenario_parts import batches, net, params

import weft
from weft import optim, randn
from weft.nn import functional as F


def versions(*tensors):
    return [x._version for x in tensors]


def raised(function):
    try:
        return function()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)


# --- steps that train through .data -----------------------------------------------------------------------------------
def by_adding(p, lr):
    p.data.add_(p.grad, alpha=-lr)


def by_assigning(p, lr):
    p.data = p.data - lr * p.grad


def by_assigning_in_place(p, lr):
    p.data -= lr * p.grad.data


def by_filling(p, lr):
    p.data[...] = p.data - lr * p.grad


def by_copying(p, lr):
    p.data.copy_(p.data.sub(p.grad.data.mul(lr)))


UPDATES = [by_adding, by_assigning, by_assigning_in_place, by_filling, by_copying]


def training(compile, update):
    model = net()

    @compile
    def step(x, y, lr):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        for p in model.parameters():
            update(p, lr)
            p.grad = None
        return loss

    for k, (x, y) in enumerate(batches()):
        yield step(x, y, 0.1 / (k + 1)), params(model), versions(*model.parameters())


@pytest.mark.parametrize("update", UPDATES)
def test_training(update):
    twin(lambda compile: training(compile, update))()


@pytest.mark.parametrize("update", UPDATES)
def test_updates_with_a_graph_in_flight(update):
    """Before the backward of a second loss, whose graph has saved the weights."""

    @twin
    def scenario(compile):
        w, x = leaf(3, 3), randn(4, 3)

        @compile
        def step():
            first, second = (x @ w).tanh().square().mean(), ((x @ w.t()).exp() @ w).sum()
            first.backward()
            update(w, 0.5)
            w.grad = None
            (second * 2).backward()
            update(w, 0.1)
            return first, second

        for _ in range(4):
            yield step(), w, w.grad
            w.grad = None

    scenario()


@twin
def test_weights_that_change_between_a_call_and_its_backward(compile):
    """Eager nodes go on with what they find where they have saved it."""
    w, v = leaf(3, 3), leaf(3)
    forward = compile(lambda x: ((x @ w).exp() * v, (x @ w * v).tanh().sum()))
    changes = [
        lambda: w.data.mul_(0.5),
        lambda: setattr(w, "data", w.data.clone() + 1),
        lambda: v.data[1:].zero_(),
        lambda: [p.data.add_(0.25) for p in (w, v)],
        lambda: w.data.t().copy_(w.data),
    ]
    for change in changes:
        for k in range(7):
            first, second = forward(randn(2, 3))
            if k > 3:
                change()
            (first.sum() if k == 6 else second).backward(retain_graph=True)
            if k > 4:
                change()
            (second if k == 6 else first.sum()).backward()
            yield first, second, w.grad, v.grad
            w.grad = v.grad = None


@twin
def test_weights_that_change_before_the_backward_of_a_loss(compile):
    model = net()
    forward = compile(lambda x, y: F.mse_loss(model(x), y))
    losses = []
    for k, (x, y) in enumerate(batches(count=12)):
        losses.append(forward(x, y))
        if k % 4 == 3:
            model[0].weight.data.mul_(0.9)
            model[2].bias.data = model[2].bias.data + 0.1
        if k % 4 == 3 or k > 8:
            sum(losses).backward()
            losses.clear()
        yield params(model), versions(*params(model))


@twin
def test_data_of_results(compile):
    w = leaf(3)

    @compile
    def step(x):
        y = (x * w).exp()
        return y.data, y.data[1:], w.data[:2], y.sum().data, y

    for k in range(7):
        data, part, weights, total, y = step(randn(3))
        part.mul_(2.0)
        weights.add_(0.1)
        data[0] = 5.0
        yield data, part, weights, total, y, w, versions(data, part, weights, total, y, w)
        if k > 4:
            y.sum().backward()
            yield w.grad


@twin
def test_gradients_penalised_and_cut_through_data(compile):
    w = leaf(3)

    @compile
    def step(x):
        loss = (x * w).square().sum()
        loss.backward()
        w.grad.data.clamp_(-0.1, 0.1)
        w.data.sub_(w.grad.data)
        w.grad.data.zero_()
        return loss.data

    for _ in range(6):
        yield step(randn(3)), w, w.grad, versions(w)


@twin
def test_results_that_change_before_their_backward(compile):
    w = leaf(3)
    forward = compile(lambda x: ((h := x * w), h * h, h.exp()))
    for k in range(6):
        h, square, grown = forward(randn(3))
        (h, grown, square)[k % 3].data.mul_(2.0)
        if k > 3:
            h.data = weft.ones(3)
        (square.sum() + grown.sum()).backward()
        yield h, square, grown, w.grad


@twin
def test_second_derivatives_after_a_change(compile):
    w = leaf(3)
    forward = compile(lambda x: (x * w).exp().sum() * w.square().sum())
    for _ in range(3):
        loss = forward(randn(3))
        w.data.mul_(0.5)
        (first,) = weft.autograd.grad(loss, w, create_graph=True)
        first.square().sum().backward()
        yield loss, first, w


@twin
def test_a_call_that_changes_what_it_has_read_and_is_differentiated_twice(compile):
    w = leaf(3)

    @compile
    def forward(x):
        h = x * w
        w.data.mul_(0.5)
        return (h.exp() * w).sum()

    for _ in range(3):
        (first,) = weft.autograd.grad(forward(randn(3)), w, create_graph=True)
        first.square().sum().backward()
        yield first, w, w.grad


@twin
def test_data_as_a_value(compile):
    """Reading .data stays in the program, next to an optimizer's step and a moving average."""
    model, average = net(), net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y) + 0.01 * sum(p.data.abs().sum() for p in model.parameters())
        loss.backward()
        optimizer.step()
        for slow, p in zip(average.parameters(), model.parameters()):
            slow.data.mul_(0.9).add_(p.data, alpha=0.1)
        return loss, loss.data

    for x, y in batches():
        yield step(x, y), params(model), params(average)


@twin
def test_a_value_read_through_data_before_its_base_changes(compile):
    w, v = leaf(3), leaf(3)

    @compile
    def forward(x):
        return (x * v * w.data).sum()

    for k in range(5):
        loss = forward(randn(3))
        with weft.no_grad():
            w.add_(1.0)
        if k % 2:
            w.data.mul_(0.5)
        loss.backward()
        yield loss, w, v


def test_reading_data_runs_nothing_outside_the_program():
    w = leaf(3)
    read = weft.compile(lambda x: (x + w.data.square()).sum() * w.data[0])
    for _ in range(4):
        read(randn(3))
    assert "nothing ran outside the programs" in read.explain()


def test_explain_names_the_reason():
    w = leaf(3)

    @weft.compile
    def change(x):
        y = w.data * x.requires_grad_()
        with weft.no_grad():
            w.add_(1.0)
        return y.sum()

    change(randn(3))
    assert "in-place change of memory that .data shows, and that a backward will read" in change.explain()


def test_a_change_that_a_finished_call_cannot_follow():
    """Another input has changed in between, which its backward does not read: the call cannot be run again."""
    w, v, shift = leaf(3), leaf(3), randn(3)
    loss = weft.compile(lambda: (w * v + shift).exp().sum() * 1.0)()
    shift.add_(1.0)
    w.data = w.data.clone()
    with pytest.raises(RuntimeError, match=r"float32\(3,\), was changed through .data after the call"):
        loss.backward()


# --- found by random programs -----------------------------------------------------------------------------------------
@twin
def test_an_empty_view_has_the_version_of_its_base(compile):
    x = randn(2)
    empty = compile(lambda x: x[1:][1:])(x)
    empty.add_(1.0)
    yield versions(x, empty)


@twin
def test_a_view_whose_base_has_got_other_memory(compile):
    w = leaf(3, 2)
    detached = w.detach()
    w.data = randn(2)
    look = compile(lambda x: (x[0]._version, x[0] * 2, x[1:]))
    for _ in range(3):
        detached.add_(1.0)
        version, doubled, part = look(detached)
        part.mul_(2.0)
        yield version, doubled, versions(w, detached, part), detached, w


@twin
def test_a_detached_tensor_that_only_gave_its_memory(compile):
    # The call kept it, and so refused the change: "has live views".
    x, other, weight = randn(3), randn(3), leaf(3)

    @compile
    def step():
        other.data = x.detach()
        x.add_(weight)
        return x.sum()

    yield step(), other


@twin
def test_values_that_lose_their_memory_to_data(compile):
    @compile
    def step(x):
        y = x.exp()
        y.data.add_(1.0)
        z = y.square().mean()
        y.relu_()
        z.relu_()
        return z

    x = leaf(3)
    for k in range(6):
        z = step(x)
        yield z, raised(z.backward) if x.requires_grad else None
        if k in (2, 3):
            x.requires_grad_(k == 3)


@twin
def test_an_optimizer_changes_memory_that_others_see(compile):
    # It runs eagerly then, and the backward of what was saved before gave gradients at the new weights.
    w = leaf(3)
    seen = w.detach()
    optimizer = optim.SGD([w], lr=0.1)

    @compile
    def step(x):
        saved = (w * w * x).sum()
        w.grad = x
        optimizer.step()
        return raised(saved.backward)

    for _ in range(3):
        yield step(randn(3)), w, seen


@twin
def test_gradients_of_a_leaf_whose_memory_somebody_else_has_changed(compile):
    # It comes in anew after the change; autograd.grad saw only what was computed from then on.
    w = leaf(3)
    seen = w.detach()

    @compile
    def step(again):
        y = w.tanh().sum()
        seen.add_(1.0)
        if again:
            y = y + (w * 2).sum()
        return weft.autograd.grad(y, [w], allow_unused=True)

    for again in (False, True, False, True):
        yield step(again), w


@pytest.mark.parametrize("compile", [lambda f: f, weft.compile])
def test_a_leaf_that_is_frozen_and_changed_after_a_part_was_differentiated(compile):
    w, b = weft.ones(3, 3).requires_grad_(), weft.ones(3, requires_grad=True)
    f = compile(lambda x: ((x @ w + b).sum(), (x * b).sum()))
    x, alias = weft.ones(2, 3), w.data
    for k in range(6):
        w.requires_grad_(True)
        first, second = f(x)
        assert weft.autograd.grad(first, [w, b])[0].tolist() == [[2.0] * 3] * 3
        w.requires_grad_(False)
        w.mul_(2)
        assert weft.autograd.grad(second, [b])[0].tolist() == [2.0] * 3 and alias.tolist() == [[2.0 ** (k + 1)] * 3] * 3
