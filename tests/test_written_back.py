"""Tensors from outside that a call changes, reads and changes again: all of it is in the same memory."""

import pytest
from compiled_twin import assert_same, leaf
from red_zones import red_zones

import weft


@pytest.mark.parametrize("reader", ["product", "sum", "elementwise"])
def test_what_is_read_between_two_changes_is_what_was_there(reader):
    def scenario(compile):
        state, w = weft.zeros(6, 6), leaf(4, 6)

        @compile
        def step(x):
            with weft.no_grad():
                state.add_(x.t() @ x)
            loss = (x * w).square().sum()
            loss.item()
            between = state * 2
            read = {
                "product": lambda: x @ between @ between,
                "sum": lambda: between.sum(0) + between.sum(1),
                "elementwise": lambda: between.t() + 1,
            }[reader]()
            with weft.no_grad():
                state.mul_(0.5).add_(1)
            loss.backward()
            return loss.detach(), read

        for _ in range(7):
            w.grad = None
            yield step(weft.randn(4, 6)), w.grad, state.clone()

    assert_same(scenario)
    # No program is given that memory twice, once to write to and once to read.
    with red_zones():
        assert_same(scenario)


@pytest.mark.parametrize("n_batches", [3, 4, 5])
@pytest.mark.parametrize("update", ["SGD", "Adam", "by hand"])
def test_epochs_of_batches_whose_losses_are_read(update, n_batches):
    """Each batch begins from what the update of the one before has written, in the first calls too."""

    def scenario(compile):
        weft.manual_seed(0)
        x, y = weft.randn(4 * n_batches, 3), weft.randn(4 * n_batches, 1)
        model = weft.nn.Sequential(weft.nn.Linear(3, 5), weft.nn.ReLU(), weft.nn.Linear(5, 1))
        optimizer = None if update == "by hand" else getattr(weft.optim, update)(model.parameters(), lr=0.05)

        @compile
        def epoch(order):
            losses = []
            for rows in order.split(4):
                loss = ((model(x[rows]) - y[rows]) ** 2).mean()
                model.zero_grad()
                loss.backward()
                if optimizer is None:
                    with weft.no_grad():
                        for p in model.parameters():
                            p -= 0.05 * p.grad
                else:
                    optimizer.step()
                losses.append(loss.item())
            return losses

        for _ in range(7):
            yield epoch(weft.randperm(len(x))), list(model.parameters()), [p.grad for p in model.parameters()]

    assert_same(scenario)
    with red_zones():
        assert_same(scenario)
