"""Eager calls whose sizes change from call to call: one plan in native code serves them all, with the bits of the plans
of exact sizes, and PyTorch's numbers."""

import ctypes

import numpy as np
import pytest

import weft
from weft.compiler.extent import Scope
from weft.compiler.ops.arithmetic import add
from weft.compiler.ops.kinds import alias
from weft.compiler.ops.table import unregister
from weft.compiler.translate.kinds import offset_of
from weft.runtime.eager import eager_open, plan, varied
from weft.runtime.eager.eager_words import N_OPEN, N_PLANS, Sizes, Words, Written
from weft.runtime.replay import eager_native, native
from weft.runtime.replay.open_formulas import Tape

try:
    import torch
except ModuleNotFoundError:
    torch = None  # its numbers are compared where it is installed

IS_NATIVE = native.layout() is not None
SIZES = (7, 12, 3, 25, 2, 1, 0, 40, 17, 1, 64, 5, 33, 9)


@pytest.fixture(autouse=True)
def new_plans(monkeypatch):
    """Plans are made anew; what a case has told native code before is of no use to it."""
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    monkeypatch.setattr(varied, "CALLS_BEFORE", 1)
    plan.forget()
    forget_what_native_code_knows()
    yield
    plan.forget()


def forget_what_native_code_knows():
    """What other tests have told it may serve the calls of these: plans for their sizes, or steps for all sizes."""
    if not IS_NATIVE or not eager_native.install():
        return
    for name, nothing in (("plans", eager_native._nothing()), ("open", eager_native._nothing_open())):
        n = {"plans": N_PLANS, "open": N_OPEN}[name]
        words = (ctypes.c_int64 * n).from_address(eager_native.words_address() + offset_of(Words, name))
        words[:] = [nothing.address] * n


def of_library(library, seed=0):
    """(vector, rows, wide, positions): longer than any of SIZES."""
    draw = np.random.default_rng(seed)
    arrays = [draw.standard_normal(s).astype(np.float32) for s in ((200,), (200, 6), (4, 200, 6))]
    return *map(library.from_numpy, arrays), library.from_numpy(draw.integers(0, 50, 200))


CASES = {
    "prefix": lambda lib, v, r, w, i, n: (v[:n] * 2 + 1).sum(),
    "exponential": lambda lib, v, r, w, i, n: v[n : 2 * n].exp() - v[:n],
    "mean": lambda lib, v, r, w, i, n: r[:n].mean(0) if n else r[:2],
    "rows": lambda lib, v, r, w, i, n: r[:n].sum(1) * v[:n],
    "columns": lambda lib, v, r, w, i, n: r[:n, 1:4] + r[n : 2 * n, :3],
    "steps": lambda lib, v, r, w, i, n: r[: 2 * n : 2].sum(0) + r[:n, ::2].sum(),
    "transposed": lambda lib, v, r, w, i, n: r[:n].T.contiguous() + 1,
    "turned sum": lambda lib, v, r, w, i, n: r[:n].t().sum(0),
    "product": lambda lib, v, r, w, i, n: r[:n] @ r[:6],
    "turned product": lambda lib, v, r, w, i, n: r[:n].T @ r[:n],
    "products": lambda lib, v, r, w, i, n: w[:, :n] @ w[:, :6],
    "softmax": lambda lib, v, r, w, i, n: lib.softmax(r[:n], 1),
    "softmax of a column": lambda lib, v, r, w, i, n: lib.softmax(r[:n], 0),
    "layer_norm": lambda lib, v, r, w, i, n: lib.nn.functional.layer_norm(r[:n], (6,)),
    "var": lambda lib, v, r, w, i, n: r[:n].var(1) + r[: n + 2].var(),
    "gelu": lambda lib, v, r, w, i, n: lib.nn.functional.gelu(r[:n]),
    "mse_loss": lambda lib, v, r, w, i, n: lib.nn.functional.mse_loss(r[: n + 1], r[n : 2 * n + 1]),
    "cross_entropy": lambda lib, v, r, w, i, n: lib.nn.functional.cross_entropy(r[: n + 1], i[: n + 1] % 6),
    "sort": lambda lib, v, r, w, i, n: v[:n].sort().values,
    "largest": lambda lib, v, r, w, i, n: r[: n + 1].max(0).values,
    "cumsum": lambda lib, v, r, w, i, n: r[:n].cumsum(0),
    "cat": lambda lib, v, r, w, i, n: lib.cat([r[:n], r[: n + 1]]),
    "stack": lambda lib, v, r, w, i, n: lib.stack([v[:n], v[n : 2 * n]], 1),
    "pad": lambda lib, v, r, w, i, n: lib.nn.functional.pad(r[:3], (0, 0, n, 1)),
    "lookup": lambda lib, v, r, w, i, n: r[i[:n]],
    "embedding": lambda lib, v, r, w, i, n: lib.nn.functional.embedding(i[:n], r).sum(),
    "gather": lambda lib, v, r, w, i, n: r[:n].gather(1, (i[:n] % 6)[:, None]),
    "where": lambda lib, v, r, w, i, n: lib.where(r[:n] > 0, r[:n], 0.5),
    "masked": lambda lib, v, r, w, i, n: v[v > n / 20 - 2] * 2,
    "reshaped": lambda lib, v, r, w, i, n: r[:n].reshape(n * 6) * 2 + r[:n].flatten(),
    "expanded": lambda lib, v, r, w, i, n: v[:n, None].expand(n, 4) * v[:4],
    "pairs": lambda lib, v, r, w, i, n: (r[:n, None] - r[None, :n]).pow(2).sum(-1),
    "last": lambda lib, v, r, w, i, n: r[: n + 1][-1] + r[n],
    "attention": lambda lib, v, r, w, i, n: lib.nn.functional.scaled_dot_product_attention(
        w[:, :5], w[:, : n + 1], w[:, : n + 1]
    ),
    "powers": lambda lib, v, r, w, i, n: r[:n] ** 2 + r[:n].pow(3) + r[:n, :1] ** 2,
    "sums along both": lambda lib, v, r, w, i, n: lib.cat([r[:n].abs().sum(0), r[:n].abs().sum(1)]),
    "sums of both": lambda lib, v, r, w, i, n: w[:, :n].abs().sum((0, 1)) + w[:, :n].square().sum((1, 2), keepdim=True),
    "triangle": lambda lib, v, r, w, i, n: (r[:n] @ r[:n].T).triu(1) + (r[:n] @ r[:n].T).tril(),
    "causal mask": lambda lib, v, r, w, i, n: (r[:n] @ r[:n].T).masked_fill(
        lib.triu(lib.ones(n, n, dtype=lib.bool), diagonal=1), -1.0
    ),
    "filled with bools": lambda lib, v, r, w, i, n: (
        lib.full((n, 3), n - 7, dtype=lib.bool) * v[:3] + lib.full((n, 3), float("nan"), dtype=lib.bool)
    ),
    "integers": lambda lib, v, r, w, i, n: (i[:n] * 3 - i[n : 2 * n]).sum() + (i[:n] == 3).sum(),
    "doubles": lambda lib, v, r, w, i, n: r[:n].double().std(1),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_of_exact_plans_and_numbers_of_pytorch(name, monkeypatch):
    case, mine, theirs = CASES[name], of_library(weft), torch and of_library(torch)
    found = [case(weft, *mine, n) for n in SIZES]
    again = [case(weft, *mine, n) for n in SIZES]
    monkeypatch.setattr(varied, "ask", lambda *_: None)
    monkeypatch.setattr(plan, "_told", lambda *_, busy: busy)
    for n, one, other in zip(SIZES, found, again):
        # Native code does not know another thread's modes: there Python computes.
        exact = in_another_thread(lambda n=n: case(weft, *mine, n))
        for made in (one, other):
            assert made.numpy().tobytes() == exact.numpy().tobytes()
            assert made.stride() == exact.stride() and made.is_contiguous() == exact.is_contiguous()
        if torch is not None:
            wanted = case(torch, *theirs, n)
            assert tuple(one.shape) == tuple(wanted.shape)
            np.testing.assert_allclose(one.numpy(), wanted.numpy(), rtol=2e-5, atol=2e-6)


GRADIENTS = {k: c for k, c in CASES.items() if k not in ("integers", "masked")}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_both(name, monkeypatch):
    case = GRADIENTS[name]
    found = [gradients(weft, case, n) for n in SIZES]
    monkeypatch.setattr(varied, "ask", lambda *_: None)
    monkeypatch.setattr(plan, "_told", lambda *_, busy: busy)
    for n, one in zip(SIZES, found):
        exact = in_another_thread(lambda n=n: gradients(weft, case, n))
        wanted = [None] * len(exact) if torch is None else gradients(torch, case, n)
        for x, y, z in zip(one, exact, wanted):
            assert (x is None) == (y is None)
            if x is not None:
                assert x.numpy().tobytes() == y.numpy().tobytes()
            if torch is not None:
                assert (x is None) == (z is None)
            if z is not None:
                np.testing.assert_allclose(x.numpy(), z.numpy(), rtol=3e-4, atol=3e-5)


def gradients(library, case, n):
    *leaves, positions = of_library(library)
    for x in leaves:
        x.requires_grad_()
    made = case(library, *leaves, positions, n)
    (made * made).sum().backward()
    return [x.grad for x in leaves]


def in_another_thread(function):
    from threading import Thread

    found = []
    thread = Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


# --- that it is native code that serves them --------------------------------------------------------------------------
def test_a_size_that_was_never_seen_is_native_codes():
    v, rows, _, _ = of_library(weft)
    weight = weft.randn(6, 6, requires_grad=True)

    def step(n):
        ((rows[:n] @ weight).tanh() * v[:n, None]).mean().backward()
        weight.grad = None

    for n in range(3, 20):
        step(n)
    calls, nodes = eager_native.taken("calls_taken"), eager_native.taken("nodes_taken")
    for n in range(20, 60):
        step(n)
    if IS_NATIVE:
        assert eager_native.taken("calls_taken") - calls >= 40 * 7
        # Nearly all: some of the first shapes of an op are told apart before.
        assert eager_native.taken("nodes_taken") - nodes >= 36 * 4


def test_calls_that_must_be_told_apart_are_native_too():
    """Layers of several widths, sums along several axes and powers: what is alike but for numbers that have to be
    known."""
    from weft import nn

    rows, classes = of_library(weft)[1], of_library(weft)[3] % 3
    net = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3))

    def step(n):
        made = net(rows[:n])
        loss = nn.functional.cross_entropy(made, classes[:n]) + made.square().sum(0).mean() + (made**3).sum(1).mean()
        loss.backward()
        net.zero_grad()

    for n in range(3, 60):
        step(n)
    before = plan._plans.keys() | set()
    nodes = eager_native.taken("nodes_taken")
    for n in range(60, 100):
        step(n)
    if IS_NATIVE:
        assert not plan._plans.keys() - before
        assert eager_native.taken("nodes_taken") - nodes >= 40 * 14


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_has_a_plan_already_is_told_apart_too(order):
    """The first axis has one before another one comes."""
    rows = of_library(weft)[1]
    for axis in order:
        for n in range(3, 40):
            rows[:n].sum(axis)
    before, calls = plan._plans.keys() | set(), eager_native.taken("calls_taken")
    for n in range(40, 80):
        for axis in order:
            rows[:n].sum(axis)
    if IS_NATIVE:
        assert not plan._plans.keys() - before and eager_native.taken("calls_taken") - calls >= 40 * 4


def test_plans_do_not_grow_with_the_number_of_sizes():
    x = weft.randn(5000)
    for n in range(2, 40):
        (x[:n] * 2 + 1).sum()
    before = len(plan._plans) + len(varied._kinds)
    for n in range(40, 3000):
        (x[:n] * 2 + 1).sum()
    if IS_NATIVE:
        # A few for good: sums of more than a block are others, and what is not there yet is made meanwhile.
        assert len(plan._plans) + len(varied._kinds) <= before + 4


def test_a_node_of_such_a_call_is_like_others():
    rows = weft.randn(50, 6, requires_grad=True)
    for n in (5, 6, 7, 8, 9):
        y = (rows[:n] * rows[:n]).sum(1)
    node = y.grad_fn
    assert node.name() == "SumBackward1" and node.next_functions[0][0].name() == "MulBackward0"
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z = rows.detach().clone()[:n] * 1
        z.requires_grad_()
        w = z * 2
        out = (w * w).sum()
        w.data  # noqa: B018
        w.detach().add_(1)
        out.backward()
    y.sum().backward(retain_graph=True)
    first = rows.grad.clone()
    y.sum().backward()
    assert (rows.grad == 2 * first).all()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    (grad,) = weft.autograd.grad((rows[:11] ** 3).sum(), rows, create_graph=True)
    (second,) = weft.autograd.grad(grad.sum(), rows)
    np.testing.assert_allclose(second.detach().numpy()[:11], 6 * rows.detach().numpy()[:11], rtol=1e-5)


OF_WHAT_THEY_SAVE = {
    "result": lambda x: x.exp(),
    "result and operand": lambda x: x.pow(0.5),
    "operand": lambda x: x.sin(),
    "operands": lambda x: x * (x + 1),
    "result of several dimensions": lambda x: x.softmax(0),
    "positions": lambda x: x.max(0).values,
    "a condition": lambda x: weft.where(x > 0.5, x, x * x),
}


@pytest.mark.parametrize("name", OF_WHAT_THEY_SAVE)
def test_none_of_many_sizes_runs_a_second_time(name):
    """Nodes that Python has run are asked when native code knows their derivative by now."""
    kept = []
    for n in range(2, 30):
        x = weft.linspace(0.1, 1, n, requires_grad=True)
        loss = OF_WHAT_THEY_SAVE[name](x).sum()
        loss.backward()
        kept.append((x, x.grad.tolist(), loss))
    for x, before, loss in kept:
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        assert x.grad.tolist() == before


# --- what native code must not suppose --------------------------------------------------------------------------------
@pytest.fixture
def composite():
    """An op whose steps depend on more than guards can say: whether its attribute is an int."""
    made = alias("told_ints", lambda x, *, n: add(x, 1.0 if isinstance(n, int) else 2.0))
    yield made
    unregister("told_ints")


def test_steps_that_are_others_for_an_extent_serve_one_number_alone(composite):
    x = weft.zeros(3)
    assert all(composite(x, n=n).tolist() == [1.0] * 3 for n in range(2, 40))
    refusals = [v.refusal for key, v in varied._kinds.items() if key[0] is composite]
    assert not IS_NATIVE or refusals == ["Untraceable: rules that take other steps for this number"]


def test_a_size_that_comes_very_often_gets_a_plan_of_its_own(monkeypatch):
    x, y = weft.randn(64, 4), weft.randn(4)
    for n in range(3, 20):
        x[:n] * y
    rows = x[:40]
    expected = (rows * y).numpy().tobytes()
    n_plans = len(plan._plans)
    calls = eager_native.taken("calls_taken")
    for _ in range(eager_open.CALLS_BEFORE_EXACT + 3 * eager_open.CALLS_FOR_EXACT):
        assert (rows * y).numpy().tobytes() == expected
    if IS_NATIVE:
        assert len(plan._plans) == n_plans + 1
        assert eager_native.taken("calls_taken") - calls >= eager_open.CALLS_BEFORE_EXACT + eager_open.CALLS_FOR_EXACT


# --- formulas ---------------------------------------------------------------------------------------------------------
def test_formulas_are_what_extents_are():
    """Native code's sums, products and whole quotients of numbers, run as Python, against Extent's own."""
    scope = Scope({"u0": 7, "u1": 12})
    scope.takes_coincidences = True
    a, b = scope.extents.values()
    wanted = [a * b + 3, (a * 5 + 2) // 4, a * a * b - b, (b + 63) // 64 * 64, -(-(a * 4) // 64) * 64, a - 5 + b * -2]
    assert (a * b > 4) and a != b and a + 5 == b
    tape = Tape(scope.extents)
    sizes = tape.sizes(scope, [(k, x) for k, x in enumerate(wanted)], [])
    for first, second in ((7, 12), (2, 7), (100, 105), (2, 2), (9, 300)):
        words = type("Words", (), {"sizes": [first, second] + [0] * 200})()
        now = {"a": first, "b": second}
        numbers = [
            first * second + 3,
            (first * 5 + 2) // 4,
            first * first * second - second,
            (second + 63) // 64 * 64,
            -(-(first * 4) // 64) * 64,
            first - 5 + second * -2,
        ]
        assert eager_open.serves(words, sizes) == (first * second > 4 and first != second and first + 5 == second), now
        assert not eager_open.serves(words, sizes) or [words.sizes[one.value] for one in sizes.written] == numbers
    assert isinstance(sizes, Sizes) and all(isinstance(one, Written) for one in sizes.written)
