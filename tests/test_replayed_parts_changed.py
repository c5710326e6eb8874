"""In-place changes of parts while gradients are recorded, `a[i] += v` and its kin, in compiled calls: as without."""

import pytest
from compiled_twin import assert_same, error_of, leaf

import weft

KEPT = []


def stiffness(x):
    """The matrix of a chain of springs."""
    k = weft.zeros(5, 5)
    for i in range(4):
        k[i : i + 2, i : i + 2] += x[i] * weft.tensor([[1.0, -1.0], [-1.0, 1.0]])
    return (k @ k * weft.eye(5)).sum()


def rows(x):
    y = x * 2
    y[0] *= 3
    y[1:3] += y[0]
    y[-1] -= x[2] ** 2
    return (y**2).sum()


def columns(x):
    m = weft.stack([x, x * 2])
    m[:, 1] *= x[0]
    m[0, 2] += x[1]
    m[0][3] /= 1 + x[2] ** 2
    return (m**3).sum()


def by_a_name(x):
    y = x * 1.5
    v = y[1:]
    v *= x[:-1]
    v += 1
    return (v * y[:-1]).sum() + y.prod()


def of_the_whole_while_parts_are_held(x):
    y = x * 1.5
    first, last = y[0], y[-1]
    y.mul_(x)
    first.add_(last)
    return y.sum() * first + last


def into_what_needs_none(x):
    y = weft.zeros(2, 5)
    part = y[1]
    y[0, 0] = 3.0
    part[2:] = x[2:]
    part[0] = x[0] * 2
    return (y * y).sum() + part.prod()


def a_copy_of_itself(x):
    y = x * 2
    y[1:4] = y[1:4]
    y[0], y[1] = y[1].clone(), y[0].clone()
    return (y * weft.arange(5.0)).sum()


def without_gradients_inside(x):
    y = x.detach().clone()
    y[0] += 1
    with weft.no_grad():
        y[1:] *= 2
    return (y * x).sum()


FUNCTIONS = [stiffness, rows, columns, by_a_name, of_the_whole_while_parts_are_held, into_what_needs_none]
FUNCTIONS += [a_copy_of_itself, without_gradients_inside]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_inside_the_call(function):
    def scenario(compile):
        def step(x):
            value = function(x)
            return value.detach(), weft.autograd.grad(value, x)[0]

        f, seen = compile(step), []
        for _ in range(9):
            seen.append(f(leaf(5)))
        if compile is weft.compile:
            text = f.explain()
            assert "fast path: yes" in text.splitlines()[0] and "calls are replayed" in text, text
            assert "nothing ran outside the programs" in text
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_outside_of_it(function):
    def scenario(compile):
        f, seen = compile(function), []
        for k in range(9):
            x = leaf(5)
            value = f(x)
            seen.append(value)
            if k % 3:
                value.backward()
            seen.append(x.grad)
        return seen

    assert_same(scenario)


@pytest.mark.oracle
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_are_pytorchs(function, monkeypatch):
    torch = pytest.importorskip("torch")
    numbers = [0.3, 0.7, -0.2, 1.1, 0.5]

    def gradient(T):
        monkeypatch.setitem(function.__globals__, "weft", T)
        x = T.tensor(numbers, requires_grad=True)
        value = function(x)
        value.backward()
        return value.item(), x.grad.tolist(), x._version

    ours, theirs = gradient(weft), gradient(torch)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5) and ours[1] == pytest.approx(theirs[1], rel=1e-4)
    assert ours[2] == theirs[2]


def test_what_is_handed_out_has_the_history_it_has_without_the_decorator():
    def scenario(compile):
        @compile
        def f(x):
            y = x * 2
            part = y[1:3]
            part *= x[0]
            return y, part, part.grad_fn.name(), y.grad_fn.name(), y._version

        seen = []
        for k in range(8):
            x = leaf(4)
            y, part, *names = f(x)
            seen += [y, part, names]
            (y.sum() if k % 2 else part.sum()).backward()
            seen.append(x.grad)
            part.detach().add_(1)
            seen += [y, part]
        return seen

    assert_same(scenario)


def test_what_a_backward_needs_and_has_changed_is_an_error():
    def overwritten(x):
        y = x * 2
        part = y[0]
        square = part * part
        part += 1
        return weft.autograd.grad(square, x)[0]

    def written_onto_itself(x):
        y = x * 2
        least = weft.minimum(y, x)
        y[0] = y[0]
        return weft.autograd.grad(least.sum(), x)[0]

    def of_a_leaf(x):
        x[0] += 1
        return x

    def held_without_gradients(x):
        y = x * 2
        with weft.no_grad():
            part = y[0]
        part += x[0]
        return y

    def scenario(compile):
        seen = []
        for function in (overwritten, written_onto_itself, of_a_leaf, held_without_gradients):
            f = compile(function)
            seen += [error_of(f, leaf(4)) for _ in range(5)]
        return seen

    assert_same(scenario)


def test_calls_that_keep_a_view_after_calls_that_did_not():
    def scenario(compile):
        @compile
        def f(x, keep):
            y = x * 3
            part = y[0]
            if keep:
                KEPT.append(part)
            del part
            y[1:] += x[0]
            y[0] += 1
            return y.sum()

        seen = []
        KEPT.clear()
        for k in range(12):
            x = leaf(3)
            f(x, k in (6, 9)).backward()
            seen += [x.grad, *KEPT]
        return seen

    assert_same(scenario)


def test_state_from_outside_is_changed_by_its_parts():
    def scenario(compile):
        table = weft.zeros(3, 4)

        @compile
        def f(x, k=1):
            row = table[k]
            row += x
            table[0, 1:3] -= row[:2]
            return (table * x).sum(1)

        return [value for _ in range(9) for value in (f(weft.randn(4)), table.clone(), table._version)]

    assert_same(scenario)


def test_an_error_in_the_middle_leaves_what_eager_mode_leaves():
    def scenario(compile):
        @compile
        def f(x, fail):
            y = x * 2
            y[0] += x[1]
            if fail:
                raise ValueError("no")
            y[1:] *= x[0]
            return y.sum()

        seen = []
        for k in range(9):
            x = leaf(3)
            seen += [error_of(f, x, k in (4, 7)), x]
        return seen

    assert_same(scenario)


def test_second_derivatives_of_a_call_that_changes_what_it_has_read():
    def scenario(compile):
        w, h = leaf(3, 4), weft.randn(3, 4)

        @compile
        def step(x):
            doubled, row = h * 2.0, h[0]
            h.mul_(x)
            return (doubled * w * w).sum() * row.sum()

        for _ in range(8):
            loss = step(weft.randn(3, 4))
            (gradient,) = weft.autograd.grad(loss, w, create_graph=True)
            yield gradient, weft.autograd.grad((gradient * gradient).sum(), w), h

    assert_same(scenario)
