"""Views of what was detached, and of memory in any order: which of them get a history when another one is changed."""

import numpy as np
import pytest
from compiled_twin import assert_same

import weft


def test_what_detach_made_is_no_view_and_gets_no_history():
    w = weft.tensor([0.5, -1.0, 2.0], requires_grad=True)
    plain = weft.zeros(2, 3)
    apart, row = plain.detach(), plain[0]
    row.add_(w)
    assert plain.requires_grad and not apart.requires_grad
    part, other = apart[1], plain.detach()
    apart.mul_(w)
    assert apart.requires_grad and part.requires_grad and not other.requires_grad
    assert part.grad_fn.next_functions[0][0] is apart.grad_fn


def of_one_row(x, w):
    whole, turned = x.detach(), x.t()
    row, same = whole[0], whole[0]
    same.mul_(0.5)
    return whole, row, same, same.view(-1), turned[0], x.detach()


def of_what_has_a_history(x, w):
    x.mul_(w)
    whole = x.detach()
    row = whole[0]
    row.mul_(w)
    return whole, row, x.view(-1)


def twice_detached(x, w):
    first = x.detach()
    second, row = first.detach(), first[1]
    second.add_(1.0)
    first.mul_(w)
    return first, second, row, x[0]


def of_a_part(x, w):
    whole = x[:1].detach()
    part = whole[..., 1:]
    part += 1.0
    part *= w
    return whole, part, x.t()


@pytest.mark.parametrize("given", [lambda: weft.ones(2, 3), lambda: weft.from_numpy(np.ones((3, 2), np.float32)).t()])
@pytest.mark.parametrize("function", [of_one_row, of_what_has_a_history, twice_detached, of_a_part])
@pytest.mark.parametrize("late", [0, 1, -1])
def test_views_of_what_detach_made_are_its_views_in_compiled_calls(function, given, late):
    """Changed there and afterwards: what of the others has a history, and which gradients it gives."""

    def scenario(compile):
        f = compile(function)
        for _ in range(6):
            x, w = given() + 0.0, weft.tensor(1.5, requires_grad=True)
            results = f(x, w)
            results[late].mul_(w)
            yield [(t.requires_grad, t.detach().clone()) for t in (x, *results)]
            for t in results:
                if t.requires_grad:
                    yield weft.autograd.grad((t * t.detach()).sum(), w, retain_graph=True)[0]

    assert_same(lambda compile: list(scenario(compile)))


@pytest.mark.parametrize("compile", [lambda f: f, weft.compile])
def test_a_number_changed_by_a_view_of_it_stays_one(compile):
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    loss_of = compile(lambda: w.square().mean())
    for _ in range(4):
        w.grad, loss = None, loss_of()
        loss.unsqueeze(0).add_(1.0)
        loss.backward()
        assert loss.shape == () and w.grad.tolist() == [1.0, 2.0]


ORDERS = [
    lambda: np.arange(6, dtype=np.float32).reshape(3, 2).T,
    lambda: np.arange(24, dtype=np.float32).reshape(6, 4).T[1:3, ::2],
    lambda: np.arange(6, dtype=np.float32).reshape(2, 3)[::-1],
]


def changed_in_its_order(compile, array, change):
    """Gradients and values after a change of a base, or of a row of it, of which a row and a column are known then."""

    @compile
    def f(base, w):
        row, column = base[0], base[:, 1]
        change(base, w)
        return row, column, base

    for _ in range(5):
        w = weft.ones(3).mul(1.5).requires_grad_()
        results = f(weft.from_numpy(array()), w)
        (gradient,) = weft.autograd.grad(sum((t * (t.detach() + 1)).sum() for t in results), w)
        yield gradient.tolist(), *(t.tolist() for t in results)


@pytest.mark.parametrize("array", ORDERS)
@pytest.mark.parametrize("change", [lambda base, w: base.mul_(w), lambda base, w: base[1].mul_(w)])
@pytest.mark.parametrize("compile", [lambda f: f, weft.compile])
def test_views_of_memory_in_any_order_follow_their_base(array, change, compile):
    in_order = changed_in_its_order(compile, lambda: np.ascontiguousarray(array()), change)
    assert list(changed_in_its_order(compile, array, change)) == list(in_order)
