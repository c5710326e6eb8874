"""`x.data = y` where x is a view, or has views: x shows no part of what it was of, and its views go on together."""

import pytest
from compiled_twin import assert_same

import weft


def _both(program):
    """The program's observations, the same with and without compilation, a few calls long."""
    assert_same(lambda compile: iter([x for _ in range(4) for x in program(compile)]))
    return list(program(lambda f: f))


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_view_with_other_memory_is_no_view(is_inside):
    def program(compile):
        v, a = weft.tensor([3.0, 4.0], requires_grad=True), weft.ones(3, 2)
        flat = a.view(-1)

        def give(shown):
            shown.data = shown.data * 0.5
            return shown

        def change(shown):
            shown[0] = v[0]

        give, change = compile(give) if is_inside else give, compile(change)
        give(flat)
        change(flat)
        (flat * flat).sum().backward()
        yield v.grad, a, flat, a.requires_grad, flat.requires_grad, flat._base is None

    grad, a, flat, *flags = _both(program)[0]
    assert flags == [False, True, True]
    assert grad.tolist() == [6.0, 0.0] and a.tolist() == [[1.0, 1.0]] * 3 and flat.tolist() == [3.0] + [0.5] * 5


@pytest.mark.parametrize("is_inside", [True, False])
def test_views_of_what_a_tensor_was_stay_together(is_inside):
    """Both show the memory that base had, so a change of one is one of the other; base has nothing to do with it."""

    def program(compile):
        w, base = weft.tensor([3.0, 4.0], requires_grad=True), weft.ones(2, 2)
        first, row = base.view(-1), base[0]

        def give():
            base.data = base.data * 0.5

        give = compile(give) if is_inside else give
        give()

        def change():
            row.mul_(w)

        compile(change)()
        loss = (first * weft.arange(4.0)).sum()
        loss.backward()
        yield w.grad, base, first, row, base.requires_grad, first.requires_grad

    grad, base, first, row, *flags = _both(program)[0]
    assert flags == [False, True]
    assert grad.tolist() == [0.0, 1.0] and first.tolist() == [3.0, 4.0, 1.0, 1.0] and base.tolist() == [[0.5] * 2] * 2


@pytest.mark.parametrize("compiled", ["nothing", "making", "changing", "both"])
def test_views_of_a_computed_tensor_keep_its_history(compiled):
    def program(compile):
        w = weft.tensor([3.0, 4.0], requires_grad=True)

        def make():
            h = w * 2
            return h, h[:1], h.view(-1)

        def change(h, first, whole):
            h.data = h.data + 1.0
            first.mul_(10.0)
            return (whole * 3).sum() + (h * 5).sum()

        make = compile(make) if compiled in ("making", "both") else make
        change = compile(change) if compiled in ("changing", "both") else change
        h, first, whole = make()
        loss = change(h, first, whole)
        loss.backward()
        yield w.grad, loss, h, first, whole

    grad, loss, h, first, whole = _both(program)[0]
    assert grad.tolist() == [2 * (30 + 5), 2 * (3 + 5)]
    assert h.tolist() == [7, 9] and first.tolist() == [60] and whole.tolist() == [60, 8]


def test_a_computed_view_with_other_memory_keeps_its_history():
    def program(compile):
        w = weft.tensor([3.0, 4.0], requires_grad=True)

        def step():
            h = w * 2
            part = h[:1]
            part.data = part.data + 1.0
            part.mul_(10.0)
            return (part * 3).sum() + (h * 5).sum()

        loss = compile(step)()
        loss.backward()
        yield w.grad, loss

    grad, loss = _both(program)[0]
    assert grad.tolist() == [2 * (30 + 5), 2 * 5] and loss.item() == 10 * 7 * 3 + 14 * 5
