"""In-place changes of parts of tensors, through views that live: `row = x[0]; row += 1`, `x.view(-1).index_add_(...)`.
As without the decorator; what was computed with the part and with the whole sees the change."""

import random

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft.runtime.replay.frame_usual import UsualFrame
from weft.runtime.replay.native import native_code_is_used

KEPT = []


def row(x, v):
    y = x[1]
    y += v
    return y.clone(), x.sum(0)


def column(x, v):
    x[:, 2].mul_(0.5)
    return x * 2


def block(x, v):
    part = x[1:3, ::2]
    part.copy_(v[:2].expand(2, 2))
    part.add_(1)
    return part, x.sum()


def turned(x, v):
    x.t().mul_(v[:3].sum()).clamp_(-2, 2)
    return x


def flat(x, v):
    x.view(-1).index_add_(0, weft.tensor([0, 3, 3]), v[:3])
    x.view(2, 6).div_(2)
    return x + 1


def with_a_dimension(x, v):
    y = x.unsqueeze(1)
    y.sub_(v)
    return y.squeeze(1) is x, y.sum(1)


def of_the_call(x, v):
    y = x * 2
    z = y[0]
    z.zero_()
    w = y[0]
    w.add_(v)
    return y, z, w


def set_in_part(x, v):
    y = x[2]
    y[1] = v[0]
    y[2:] = 7.0
    return y * 1, x


def whole_after_part(x, v):
    y = x[0]
    y.add_(v)
    x.mul_(2)
    return y + 0, x + 0


def part_after_whole(x, v):
    y = x[0]
    x.mul_(2)
    y.add_(v)
    return y, x + 0


def two_parts(x, v):
    y, z = x[0], x[1]
    y.add_(v)
    z.sub_(v)
    y.add_(z)
    return y.clone(), z.clone(), x.clone()


def part_of_a_part(x, v):
    y = x[1:]
    z = y[0]
    z.add_(v)
    return y.clone(), z, x.clone()


def read_between(x, v):
    y = x[0]
    y.add_(v)
    if y.sum() > 0:
        y.mul_(0.5)
    return x.sum()


def under_no_grad(x, v):
    w = weft.nn.Parameter(x.detach().clone())
    loss = (w * v).sum()
    loss.backward()
    with weft.no_grad():
        w[0].sub_(w.grad[0])
        w[:, 1].zero_()
    return w.detach().clone(), w.grad


def with_gradients(x, v):
    w = v.detach().clone().requires_grad_()
    y = x * 1
    y[0].mul_(w)
    y.exp().sum().backward()
    return w.grad, y.detach()


def another_type(x, v):
    n = weft.zeros(3, dtype=weft.int64)
    m = n[:2]
    m += 2
    return n, error_of(lambda: m.add_(0.5))


def wrong_shape(x, v):
    y = x[0]
    return error_of(lambda: y.add_(x)), y + 1


def kept(x, v):
    y = x[1]
    y.add_(v)
    KEPT.append(y)
    return x + 0


def row_of_another_shape(x, v):
    y = weft.zeros(12)
    for k in range(3):
        y.view(3, 4)[k].add_(x[k] * 2)
    x.view(6, 2)[1].sub_(v[:2])
    return y, x.sum()


def column_of_the_transpose(x, v):
    z = x.t()[2]
    z.mul_(v[:3])
    x.t()[:, 1].clamp_(min=-1)
    return z, x * 1


def one_of_the_heads(x, v):
    y = (x * 2).view(3, 2, 2)
    y[:, 1].add_(v[:2])
    part = y.transpose(0, 1)[0, 1:]
    part.copy_(v.view(2, 2))
    return part, y.reshape(3, 4)


def across_the_rows(x, v):
    y = x.view(-1)[3:7]
    y.add_(v)
    return y, x * 1


def of_a_detached_one(x, v):
    x.detach().view(4, 3)[1].add_(1)
    y = x * 2
    y.data.t()[1].zero_()
    return y, x + 0


def of_another_shape_with_gradients(x, v):
    w = v.detach().clone().requires_grad_()
    y = (x * 1).view(4, 3)
    y.t()[1].mul_(w)
    y.exp().sum().backward()
    return w.grad, y.detach()


def saved_before(x, v):
    w = v.detach().clone().requires_grad_()
    y = x * 1
    loss = (y.view(4, 3)[:, 0] * w).sum()
    y.t()[0].add_(1)
    return error_of(loss.backward), w.grad


PROGRAMS = [
    row, column, block, turned, flat, with_a_dimension, of_the_call, set_in_part, whole_after_part, part_after_whole,
    two_parts, part_of_a_part, read_between, under_no_grad, with_gradients, another_type, wrong_shape, kept,
    row_of_another_shape, column_of_the_transpose, one_of_the_heads, across_the_rows, of_a_detached_one,
    of_another_shape_with_gradients, saved_before,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_parts_that_change(program):
    def scenario(compile):
        KEPT.clear()
        f, x, seen, results = compile(program), weft.randn(3, 4), [], []
        for k in range(14):
            given = x if k % 5 != 3 else x[:]
            results.append(f(given, weft.randn(4)))
            seen += [results[-1], x.clone(), x._version]
            if k in (6, 9):
                x.mul_(0.5)
        return [*seen, *results, *KEPT]

    assert_same(scenario)


@pytest.mark.parametrize(
    "program",
    [row, column, turned, set_in_part, row_of_another_shape, column_of_the_transpose],
    ids=lambda p: p.__name__,
)
def test_nothing_runs_outside_the_programs(program):
    f, x = weft.compile(program), weft.randn(3, 4)
    for _ in range(8):
        f(x, weft.randn(4))
    assert f.breaks == () and f.recordings[0].not_replayed is None and f.recordings[0].replays


@twin
def test_state_that_is_changed_in_parts(compile):
    table, seen = weft.zeros(4, 4), []

    @compile
    def count(labels, found):
        table.view(-1).index_add_(0, labels * 4 + found, weft.ones(6))
        table[0].clamp_(max=3.0)
        return table.diagonal().sum() / table.sum()

    for _ in range(12):
        seen += [count(weft.randint(0, 4, (6,)), weft.randint(0, 4, (6,))), table.clone(), table._version]
    return seen


@twin
def test_what_a_backward_has_saved_of_a_part(compile):
    w, x = leaf(3), weft.randn(2, 3)

    def f(changes):
        y = x[0]
        z = (y * w).sum()
        if changes:
            y.add_(1)
        return z

    f, seen = compile(f), []
    for k in range(10):
        w.grad = None
        seen += [error_of(lambda k=k: f(k % 3 == 2).backward()), w.grad, x.clone()]
    return seen


@pytest.mark.parametrize("seed", range(6))
def test_parts_in_any_order(seed):
    def scenario(compile):
        draw = random.Random(seed)
        plan = [draw.randrange(9) for _ in range(5)]
        x, held = weft.randn(4, 4), []

        def f(v, odd):
            y, z = x[1], x.t()
            out = []
            for k in plan:
                if k == 0:
                    y.add_(v)
                elif k == 1:
                    z[2].mul_(0.5)
                elif k == 2:
                    x.add_(0.25)
                elif k == 3:
                    out.append(y.sum())
                elif k == 4:
                    out.append(x[1:3].clone())
                elif k == 5:
                    z.clamp_(-1, 1)
                elif k == 6:
                    x.view(-1)[3:9].sub_(v.sum())
                elif k == 7 and odd:
                    y.zero_()
                elif k == 8:
                    del y
                    y = x[draw.randrange(2) if odd else 1]
            held.append(y if odd else z)
            return out, x.sum(), y

        f, seen = compile(f), []
        for k in range(12):
            seen += [f(weft.randn(4), k % 4 == 3), x.clone(), x._version]
        return [*seen, *held]

    assert_same(scenario)


@pytest.mark.parametrize(
    "program", [row, turned, flat, set_in_part, two_parts, row_of_another_shape], ids=lambda p: p.__name__
)
def test_parts_are_changed_in_native_code(program, monkeypatch):
    asked, in_python = [], UsualFrame.inplace_again

    def counted(self, *args):
        asked.append(args[0].name)
        return in_python(self, *args)

    monkeypatch.setattr(UsualFrame, "inplace_again", counted)
    f, x = weft.compile(program), weft.randn(3, 4)
    for k in range(16):
        if k == 12:
            asked.clear()
        f(x, weft.randn(4))
    assert (asked == []) == native_code_is_used()
