"""What may be an error is asked in compiled calls too if nobody uses what comes of it."""

import pytest
from compiled_twin import error_of, twin

import weft


def rows(x, w):
    return (x * w)[weft.randperm(3)]


def with_a_history(x, y, w):
    total = (y * w).sum()
    rows(x, w)
    return total, y.detach()


def nothing_else(x, y, w):
    rows(x, w)


def after_a_read(x, y, w):
    total = (y * w).sum()
    total.item()
    rows(x, w)
    return total * 2


def before_a_read(x, y, w):
    total = (y * w).sum()
    rows(x, w)
    total.item()
    return total * 2


def before_a_backward(x, y, w):
    total = (y * w).sum()
    rows(x, w)
    total.backward()


def a_backward_after_a_read(x, y, w):
    total = (y * w).sum()
    total.item()
    rows(x, w)
    total.backward()


def a_label(x, y, w):
    weft.nn.functional.cross_entropy(x * w, weft.tensor([4]))
    return (y * w).sum()


BODIES = [
    with_a_history, nothing_else, after_a_read, before_a_read, before_a_backward, a_backward_after_a_read, a_label,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("fails", ["always", "at last"])
def test_an_index_out_of_range_that_nobody_uses(body, fails):
    def scenario(compile):
        f, y = compile(body), weft.randn(3, 4)
        w = weft.randn(1, 4, requires_grad=True)
        wide = weft.randn(5, 8, requires_grad=True)
        for k in range(9):
            leaf = wide if fails == "at last" and k < 6 else w
            n = leaf.shape[-1]
            yield error_of(f, weft.randn(n), y.repeat(1, n // 4)[: len(leaf)], leaf)
            w.grad = wide.grad = None

    twin(scenario)()
