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
