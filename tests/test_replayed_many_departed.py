"""Calls of ever new sizes that do something else than the replay knows, and others that come in between."""

import threading
import warnings

import numpy as np
import pytest
from many_sizes import Twins, batch, infer, needs_native, perceptron, same, sizes, train

import weft
from weft.nn import functional as F
from weft.runtime.replay.native import native_code_is_used


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
