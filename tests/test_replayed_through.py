"""In-place changes through another name of a whole tensor, `p.data.add_(...)`, in replayed calls. As without replay."""

import copy

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft import nn

N_CALLS, ODD_CALLS = 11, (6, 9)
KEPT = []


def by_data(w, x):
    loss = (x * w).square().sum()
    loss.backward()
    w.data.add_(w.grad, alpha=-0.01)
    w.grad = None
    return loss


def by_detach(w, x):
    w.detach().mul_(0.5).add_(x)
    return w * 2


def one_element(w, x):
    w.data[1] = x.sum()
    return w.sum()


def of_a_value(w, x):
    y = x * 2
    y.data.clamp_(-1, 1)
    y.data[0] = 7.0
    return y * w


def several(w, x):
    w.data.zero_()
    w.data.copy_(x)
    w.data += 1
    return w.exp()


@pytest.mark.parametrize("function", [by_data, by_detach, one_element, of_a_value, several], ids=lambda f: f.__name__)
def test_calls_are_replayed_and_nothing_runs_outside(function):
    def scenario(compile):
        w = leaf(4)
        f, seen = compile(lambda x: function(w, x)), []
        for _ in range(8):
            # Not the result itself: a backward of it would still read the tensor.
            seen += [f(weft.randn(4)).detach().clone(), w.detach().clone(), w._version, w.grad]
        if compile is weft.compile:
            text = f.explain()
            assert "calls are replayed" in text and "nothing ran outside the programs" in text
        return seen

    assert_same(scenario)


ODD = {
    "nothing": lambda w, d, y: None,
    "kept": lambda w, d, y: KEPT.append(d),
    "read": lambda w, d, y: d.tolist(),
    "the tensor is read": lambda w, d, y: w.tolist(),
    "another name": lambda w, d, y: KEPT.append(w.data),
    "a part": lambda w, d, y: KEPT.append(d[1:]),
    "again": lambda w, d, y: d.add_(1) and None,
    "the tensor itself": lambda w, d, y: quietly(w),
    "a gradient": lambda w, d, y: d.requires_grad_() and None,
    "still read by a backward": lambda w, d, y: error_of(lambda: ((w * w).sum(), d.add_(1))[0].backward()),
    "the version": lambda w, d, y: (w._version, d._version),
    "numpy": lambda w, d, y: d.numpy().copy(),
    "an exception": lambda w, d, y: 1 / 0,
}


def quietly(w):
    with weft.no_grad():
        w.mul_(2)


@pytest.mark.parametrize("name", ["data", "detach"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_the_odd_call(odd, name):
    def scenario(compile):
        KEPT.clear()
        w = leaf(4)

        def f(x, k):
            y = x * w.detach()
            d = w.data if name == "data" else w.detach()
            d.mul_(0.5)
            extra = odd(w, d, y) if k in ODD_CALLS else None
            d.add_(y)
            return w * 2, extra

        f, seen = compile(f), []
        for k in range(N_CALLS):
            found = error_of(f, weft.randn(4), k)
            seen += [found, w.detach().clone(), w._version]
        return [*seen, *[k.detach() for k in KEPT], w]

    assert_same(scenario)


@twin
def test_a_backward_after_the_call_meets_what_is_there(compile):
    """Results of an earlier call still have to read the tensor: it goes on with what it finds, as PyTorch does."""
    w = leaf(4)
    forward = compile(lambda x: (w * w * x).sum())

    def change(x):
        w.data.add_(x)

    change, seen = compile(change), []
    for _ in range(N_CALLS):
        loss = forward(weft.randn(4))
        change(weft.ones(4))
        loss.backward()
        seen += [w.grad.clone(), loss.detach()]
    return seen


@twin
def test_what_a_view_shows_requires_care(compile):
    """Another living view, an operand with a history, and memory that NumPy shows run as they do in eager mode."""
    w, held = leaf(4), []

    def f(x, k):
        if k == 5:
            held.append(w.detach()[1:])
        if k == 8:
            held.clear()
        w.data.add_(x if k != 3 else x * 1)
        if k == 9:
            return error_of(lambda: w.data.add_(w))
        return w * x

    f, seen = compile(f), []
    for k in range(N_CALLS):
        seen += [f(weft.randn(4), k), [h.clone() for h in held]]
    shown = w.detach().numpy()
    for _ in range(3):
        seen += [f(weft.randn(4), 0), shown.copy()]
    return seen


@twin
def test_a_teacher_that_follows(compile):
    student = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    teacher = copy.deepcopy(student)
    optimizer = weft.optim.Adam(student.parameters(), lr=0.01)

    def step(x, k):
        with weft.no_grad():
            wanted = teacher(x)
        loss = (student(x) - wanted + 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for slow, fast in zip(teacher.parameters(), student.parameters()):
            slow.data.mul_(0.9).add_(fast.data, alpha=0.1)
        return loss if k % 4 else loss * 2

    step, seen = compile(step), []
    for k in range(14):
        seen.append(step(weft.randn(5, 3), k).detach())
    return [*seen, *teacher.parameters(), *student.parameters()]


@twin
def test_what_was_computed_before_the_change_is_differentiated(compile):
    """In some calls somebody keeps what was computed from the tensor before."""
    w, kept = leaf(4), []

    def f(x, k):
        before = (x * w).exp()
        w.data.mul_(0.5)
        if k in (6, 7, 9):
            kept.append(before)
        return (x * w).sum() if k != 8 else (before * w).sum()

    f, seen = compile(f), []
    for k in range(N_CALLS):
        out = f(weft.randn(4), k)
        (slope,) = weft.autograd.grad(out, w, create_graph=True)
        if slope.requires_grad:
            slope.sum().backward()
        if kept:
            kept.pop().sum().backward()
        seen += [slope.detach(), w.detach().clone(), w.grad]
    return seen


def test_a_value_changed_through_data_before_the_call_goes_another_way():
    """Run without native replay too: nothing had counted its versions."""

    def scenario(compile):
        w = leaf(4)

        @compile
        def f(x, is_odd):
            y = x * 2
            y.data[0] = 7.0
            return weft.autograd.grad((y * w).sum(), w)[0] if is_odd else y + 1.0

        return [f(weft.randn(4), k in ODD_CALLS) for k in range(N_CALLS)]

    assert_same(scenario)
