"""Calls of sizes that never come again, replayed by one UsualFrame whose facts follow from the sizes."""

import copy
import gc
import random
import sys
import threading
import warnings

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used

needs_native = pytest.mark.skipif(not native_code_is_used(), reason="calls are not replayed natively here")


def sizes(n, least=2, most=200, seed=0):
    return random.Random(seed).sample(range(least, most), n)


def n_replayed(compiled):
    """How many calls were replayed as those of many sizes."""
    return 0 if compiled._many is None else sum(many.n_calls for many in compiled._many.found)


def same(x, y):
    if isinstance(x, (list, tuple)):
        return type(x) is type(y) and len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    if not isinstance(x, weft.Tensor):
        return x == y
    alike = x.shape == y.shape and x.dtype == y.dtype and x.requires_grad == y.requires_grad
    return alike and x.stride() == y.stride() and np.array_equal(x.detach().numpy(), y.detach().numpy(), equal_nan=True)


def values_of(result):
    parts = result.values() if isinstance(result, dict) else [result]
    return [x.detach().tolist() for x in parts]


def perceptron(width=6):
    return nn.Sequential(nn.Linear(width, 12), nn.ReLU(), nn.Linear(12, 3))


class Twins:
    """A function of (model, optimizer, *arguments), compiled and eager, each with a model of its own."""

    def __init__(self, function, model=None, **options):
        self.models = [model or perceptron(), copy.deepcopy(model)] if model else [perceptron(), perceptron()]
        self.models[1].load_state_dict(self.models[0].state_dict())
        options = options or {"lr": 0.05, "momentum": 0.9}
        self.optimizers = [
            weft.optim.SGD(m.parameters(), **options) if [*m.parameters()] else None for m in self.models
        ]
        (first, second), (steps, others) = self.models, self.optimizers
        self.compiled = weft.compile(lambda *args, **kwargs: function(first, steps, *args, **kwargs))
        self.eager = lambda *args, **kwargs: function(second, others, *args, **kwargs)

    def call(self, *args, **kwargs):
        seeded = random.random()
        weft.manual_seed(int(1e6 * seeded))
        mine = self.compiled(*args, **kwargs)
        weft.manual_seed(int(1e6 * seeded))
        its = self.eager(*args, **kwargs)
        assert same(mine, its)
        for x, y in zip(self.models[0].state_dict().values(), self.models[1].state_dict().values()):
            assert same(x.detach(), y.detach())
        return mine

    @property
    def n_replayed(self):
        return n_replayed(self.compiled)


def batch(n, width=6):
    return weft.randn(n, width), weft.randint(0, 3, (n,))


# --- functions, each of which is replayed ----------------------------------------------------------------------------
def train(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def train_with_logits(model, optimizer, x, y):
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss.detach(), "right": (logits.argmax(1) == y).sum(), "logits": logits.detach() * 2}


def infer(model, optimizer, x, y):
    with weft.no_grad():
        return model(x).softmax(-1)


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

    def blocks_after(chosen):
        for n in chosen:
            step(weft.randn(n, 6), weft.zeros(n, dtype=weft.int64))
        gc.collect()
        return sys.getallocatedblocks()

    chosen = sizes(400, most=2000)
    blocks_after(chosen[:100])
    before = blocks_after(chosen[100:150])
    assert blocks_after(chosen[150:]) - before < 300
    assert n_replayed(step) > 380


# --- what departs -----------------------------------------------------------------------------------------------------
@needs_native
def test_a_value_is_read_in_the_middle():
    seen = []

    def step(model, optimizer, x, y, look):
        loss = F.cross_entropy(model(x), y)
        if look:
            seen.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    twins = Twins(step)
    for k, n in enumerate(sizes(90)):
        twins.call(*batch(n), k > 40 and k % 5 == 0)
    assert seen[::2] == seen[1::2] and seen
    assert twins.n_replayed > 40


@needs_native
def test_more_is_kept_than_usual():
    kept = []

    def step(model, optimizer, x, y, keep):
        with weft.no_grad():
            hidden = model[0](x)
            if keep:
                kept.append(hidden)
            return model[2](hidden.relu())

    twins = Twins(step)
    for k, n in enumerate(sizes(80)):
        twins.call(*batch(n), k > 40 and k % 4 == 0)
    assert kept and all(same(x, y) for x, y in zip(kept[::2], kept[1::2]))
    assert twins.n_replayed > 30


@needs_native
def test_an_exception_in_the_middle():
    def step(model, optimizer, x, y, fails):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        if fails:
            raise ValueError("no")
        loss.backward()
        optimizer.step()
        return loss

    twins = Twins(step)
    for k, n in enumerate(sizes(80)):
        x, y = batch(n)
        if k > 40 and k % 3 == 0:
            for function in (twins.compiled, twins.eager):
                with pytest.raises(ValueError, match="no"):
                    function(x, y, True)
        else:
            twins.call(x, y, False)
    assert twins.n_replayed > 30


@needs_native
def test_an_index_out_of_range():
    def step(model, optimizer, places, table):
        with weft.no_grad():
            return F.embedding(places, table) * 2

    twins, table = Twins(step), weft.randn(10, 4)
    for k, n in enumerate(sizes(70)):
        places = weft.randint(0, 10, (n,))
        if k > 30 and k % 4 == 0:
            places[n // 2] = 10
            with pytest.raises(IndexError):
                twins.compiled(places, table)
            continue
        twins.call(places, table)
    assert twins.n_replayed > 30


@needs_native
def test_a_second_backward_is_refused():
    twins = Twins(train_and_give_logits)
    for n in sizes(30):
        loss, logits = twins.call(*batch(n))
        assert logits.shape == (n, 3) and logits.grad_fn is not None
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    assert twins.n_replayed > 15


def train_and_give_logits(model, optimizer, x, y):
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss, logits


@needs_native
def test_parameters_and_options_change():
    twins = Twins(train)
    for k, n in enumerate(sizes(120)):
        if k == 50:
            for model in twins.models:
                model[0].weight.data = model[0].weight.data * 0.5
        if k == 80:
            for optimizer in twins.optimizers:
                optimizer.param_groups[0]["lr"] = 0.001
        if k == 100:
            for model in twins.models:
                model[2].bias.requires_grad_(False)
        twins.call(*batch(n))
    assert twins.n_replayed > 10


@needs_native
def test_arguments_of_other_kinds_come_in_between():
    twins = Twins(infer)
    for k, n in enumerate(sizes(100)):
        x, y = batch(n)
        kind = k % 5 if k > 30 else 0
        if kind == 1:
            x = weft.randn(6, n).t()
        if kind == 2:
            x = weft.from_numpy(np.random.default_rng(k).standard_normal((n, 6)).astype(np.float32))
        if kind == 3:
            x = weft.randn(2 * n, 6)[::2]
        if kind == 4:
            x = x[:1]
        twins.call(x, y)
    assert twins.n_replayed > 20


@needs_native
def test_gradients_of_arguments():
    def step(model, optimizer, x, y):
        model(x).sum().backward()
        return x.grad * 2

    twins = Twins(step)
    for n in sizes(40):
        x, y = batch(n)
        mine, its = x.clone().requires_grad_(), x.clone().requires_grad_()
        assert same(twins.compiled(mine, y), twins.eager(its, y))
        assert same(mine.grad, its.grad)


def test_backward_outside():
    twins = Twins(lambda model, optimizer, x, y: F.cross_entropy(model(x), y))
    for n in sizes(30):
        x, y = batch(n)
        losses = [twins.compiled(x, y), twins.eager(x, y)]
        for loss, optimizer in zip(losses, twins.optimizers):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert same(*losses)
    assert same(twins.models[0][0].weight.detach(), twins.models[1][0].weight.detach())


@needs_native
def test_two_threads():
    model = perceptron()
    compiled = weft.compile(lambda x: model(x).softmax(-1))
    failures = []

    def work(seed):
        with weft.no_grad():
            for n in sizes(150, seed=seed):
                x = weft.randn(n, 6)
                if not same(compiled(x), model(x).softmax(-1)):
                    failures.append(n)

    with weft.no_grad():
        for n in sizes(20):
            compiled(weft.randn(n, 6))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@needs_native
def test_it_calls_itself():
    def step(model, optimizer, x, depth):
        with weft.no_grad():
            y = model(x)
            return y if depth == 0 else twins.compiled(x[:-1], depth - 1).sum() + y

    model = perceptron()
    compiled = weft.compile(lambda x, depth: step(model, None, x, depth))
    eager = lambda x, depth: step(model, None, x, depth)  # noqa: E731

    class twins:  # noqa: N801
        pass

    for n in sizes(40, least=8):
        x = weft.randn(n, 6)
        twins.compiled = compiled
        mine = compiled(x, n % 2)
        twins.compiled = eager
        assert same(mine, eager(x, n % 2))


def test_explain_says_so():
    twins = Twins(infer)
    for n in sizes(30):
        twins.call(*batch(n))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = twins.compiled.explain()
    if native_code_is_used():
        assert "of sizes that are new are replayed" in text
