"""Calls of sizes that never come again, replayed by one UsualFrame whose facts follow from the sizes."""

import random
from functools import partial
from itertools import islice

import pytest
from leaks import growth
from many_sizes import Twins, batch, infer, n_replayed, needs_native, perceptron, same, sizes, train, values_of

import weft
from weft import nn
from weft.nn import functional as F


# --- functions, each of which is replayed ----------------------------------------------------------------------------
def train_with_logits(model, optimizer, x, y):
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss.detach(), "right": (logits.argmax(1) == y).sum(), "logits": logits.detach() * 2}


def reshaped(model, optimizer, x, y):
    with weft.no_grad():
        rows = x.reshape(-1, 3).sum(1)
        return rows.reshape(x.shape[0], 2) * x.shape[0], x.view(x.numel()) + 1


def made_inside(model, optimizer, x, y):
    with weft.no_grad():
        places = weft.arange(x.shape[0]).float()
        return model(x) + places[:, None] / x.size(0), weft.zeros(x.shape[0], 2) + y[:, None]


def attention(model, optimizer, x, y):
    with weft.no_grad():
        scores = x @ x.T / x.shape[1] ** 0.5
        mask = weft.ones(x.shape[0], x.shape[0]).tril().bool()
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ x


def changed_inside(model, optimizer, x, y):
    with weft.no_grad():
        total = weft.zeros(3)
        total += model(x).sum(0)
        return total


def read_at_the_end(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def read_in_the_middle(model, optimizer, x, y):
    with weft.no_grad():
        total = float(x.sum())
        h = model(x) * 2 + total
        most = h.max().item()
        return h * most if most > -1e9 else h


def changed_parts(model, optimizer, x, y):
    with weft.no_grad():
        h = model(x)
        h.relu_()
        h += x.shape[0]
        h[:, 0] = 5
        h[1:] *= 2
        return h, h.mul_(y[:, None]).sum(0)


def joined_and_turned(model, optimizer, x, y):
    with weft.no_grad():
        both = weft.cat([x, x.flip(0)], 1)
        heads = both.view(x.shape[0], 3, 4).transpose(0, 1)
        return heads.reshape(3, -1), heads.contiguous().view(-1), weft.stack([x, x]).sum((0, 2))


def with_gradients(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    grads = weft.autograd.grad(loss, list(model.parameters()))
    return [g * 2 for g in grads]


FUNCTIONS = [
    train,
    train_with_logits,
    infer,
    reshaped,
    made_inside,
    attention,
    changed_inside,
    changed_parts,
    joined_and_turned,
    with_gradients,
]


@needs_native
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_new_sizes_are_replayed(function):
    twins = Twins(function)
    for n in sizes(40):
        twins.call(*batch(n))
    assert twins.n_replayed > 25, twins.compiled.explain()
    assert not twins.compiled.breaks


@needs_native
@pytest.mark.parametrize("function", [train, infer, train_with_logits], ids=lambda f: f.__name__)
def test_results_are_kept_or_dropped(function):
    twins, kept = Twins(function), []
    for k, n in enumerate(sizes(60)):
        x, y = batch(n)
        result = twins.call(x, y)
        if k % 3:
            kept.append((values_of(result), result))
        if k % 7 == 0:
            del kept[: len(kept) // 2]
    assert twins.n_replayed > 40
    assert all(before == values_of(now) for before, now in kept)


@needs_native
def test_normalisation_and_dropout():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    twins = Twins(train, model)
    for n in sizes(40):
        twins.call(*batch(n))
    twins.compiled.explain()
    assert same(twins.models[0][1].running_mean, twins.models[1][1].running_mean)


@needs_native
def test_several_sizes():
    def step(model, optimizer, x, keep):
        with weft.no_grad():
            return (model(x) * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)

    twins, choose = Twins(step), random.Random(1)
    for _ in range(60):
        n, m = choose.randrange(2, 60), choose.randrange(2, 90)
        twins.call(weft.randn(n, m, 6), weft.rand(n, m))
    assert twins.n_replayed > 30, twins.compiled.explain()


@needs_native
def test_keywords_and_containers():
    twins = Twins(lambda model, optimizer, batch, *, scale=1.0: train(model, optimizer, batch["x"] * scale, batch["y"]))
    for n in sizes(40):
        x, y = batch(n)
        twins.call({"x": x, "y": y}, scale=0.5)
    assert twins.n_replayed > 25


@needs_native
def test_a_layer_that_looks_at_sizes():
    """Python of layers runs, whatever is known of them for other sizes."""

    class Looks(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 50 else x + x.shape[0]

    model = nn.Sequential(nn.Linear(6, 4), Looks())
    twins = Twins(infer, model)
    for n in sizes(80):
        twins.call(*batch(n))
    assert twins.n_replayed > 40


@needs_native
def test_an_if_on_sizes_and_on_data():
    def step(model, optimizer, x, y):
        with weft.no_grad():
            h = model(x)
            if x.shape[0] % 3 == 0:
                h = h.exp()
            if float(x.sum()) > 0:
                h = h + 1
            return h

    twins = Twins(step)
    for n in sizes(120):
        twins.call(*batch(n))


@needs_native
def test_questions_about_layouts():
    def step(model, optimizer, x, y):
        with weft.no_grad():
            h = model(x)
            return h * h.stride(0), h.t().is_contiguous(), h.t().contiguous().stride(0), list(h.shape)

    twins = Twins(step)
    for n in sizes(50):
        twins.call(*batch(n))


@needs_native
def test_a_size_that_comes_back_gets_its_own_replay():
    twins = Twins(train)
    for n in sizes(20):
        twins.call(*batch(n))
    before = twins.n_replayed
    for _ in range(12):
        twins.call(*batch(77))
    assert before > 8 and twins.n_replayed - before < 5
    assert any(r.replays for r in twins.compiled.recordings)


@needs_native
def test_memory_stays_flat():
    model = perceptron()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = weft.compile(lambda x, y: train(model, optimizer, x, y))

    chosen = iter(sizes(400, most=2000))

    def use(n_sizes):
        for n in islice(chosen, n_sizes):
            step(weft.randn(n, 6), weft.zeros(n, dtype=weft.int64))

    use(150)
    [blocks] = growth(partial(use, 80))
    assert blocks < 40
    assert n_replayed(step) > 380


@needs_native
def test_calls_of_new_sizes_count_as_going_one_way():
    """So a few that had to wait for something are no reason to run eagerly."""
    twins = Twins(train)
    given = sizes(40)
    for n in given[:20]:
        twins.call(*batch(n))
    contest, compiled = twins.compiled._contest, twins.compiled
    assert contest._goes_many_ways(None)
    contest._goes_many_ways(compiled._many.usual)
    before = n_replayed(compiled)
    for n in given[20:]:
        twins.call(*batch(n))
    assert n_replayed(compiled) == before + 20
    assert not contest._goes_many_ways(compiled._many.usual) and contest._goes_one_way()
    for _ in range(20):
        compiled._many._followed()
    assert contest._goes_many_ways(compiled._many.usual)
