"""Steps of composites and derivatives that Python runs where native code is off: the bits are those of the ops."""

import gc
import threading

import numpy as np
import pytest
from test_eager_native import CALLS, numbers

import weft
from weft.nn import functional
from weft.runtime.code import jit
from weft.runtime.eager import eager_computing, engine, gate, plain_sweep, plan
from weft.runtime.replay import eager_native, eager_python


@pytest.fixture(autouse=True)
def no_native_code(monkeypatch):
    """Other tests' plans may be native code's already: these are made anew, under names nobody has asked for."""
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    # A plan is not taken over while another thread compiles, which one that an earlier test has left may.
    monkeypatch.setattr(jit, "is_compiling", lambda: False)
    monkeypatch.setattr(eager_native, "install", lambda: None)
    monkeypatch.setattr("weft.compiler.ops.table.Op.__call__", gate.call)
    plan.forget()
    yield
    plan.forget()


def _runs_so(plan):
    """Whether the plan's kernels run in one call."""
    return plan.run.__module__ == eager_python.__name__


def _names():
    return {p.op.name for p in plan._plans.values() if _runs_so(p)}


@pytest.mark.parametrize("name", CALLS)
def test_bits_and_gradients_are_those_of_single_ops(name):
    function, x, y, v = CALLS[name], numbers(5, 5), numbers(5, 5, seed=1), numbers(5, seed=2)
    seen = []
    for _ in range(6):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        out = function(a, b, v)
        grads = weft.autograd.grad(out.sum(), (a, b), allow_unused=True) if out.requires_grad else ()
        seen.append([t.numpy().tobytes() for t in (out.detach(), *grads) if t is not None])
    assert all(other == seen[0] for other in seen)


def test_ops_composites_and_derivatives_run_so():
    x = numbers(5, 5)
    for _ in range(4):
        functional.softmax(x, -1)
        (x + x).exp(), x > 0.5, x.sum(1), x @ x
        functional.layer_norm(x.clone().requires_grad_(), (5,)).sum().backward()
    assert {"softmax", "layer_norm", "add", "exp", "gt", "sum", "matmul"} <= _names()
    (recording,) = [
        r for p in plan._plans.values() if p.op.name == "layer_norm" for r in p.recordings.values() if _runs_so(p)
    ]
    assert recording.derivative[0].quick is not None


def test_operands_that_lie_otherwise_and_indices_out_of_bounds():
    x, target = numbers(4, 6), weft.tensor([0, 3, 2, 1, 3, 0])
    for _ in range(4):
        wanted = functional.softmax(x.t().contiguous(), -1)
        loss = functional.cross_entropy(x.t().contiguous(), target)
    assert functional.softmax(x.t(), -1).tolist() == wanted.tolist()
    assert functional.cross_entropy(x.t(), target).item() == loss.item()
    with pytest.raises(IndexError, match="out of bounds"):
        functional.cross_entropy(x.t().contiguous(), target + 1)
    assert functional.cross_entropy(x.t().contiguous(), target).item() == loss.item()


def test_threads_that_run_one_plan():
    inputs = [numbers(8, 8, seed=k) for k in range(4)]
    wanted = [functional.softmax(x, -1).tolist() for x in inputs]
    for _ in range(4):
        functional.softmax(inputs[0], -1)
    wrong = []

    def run(k):
        for _ in range(200):
            if functional.softmax(inputs[k], -1).tolist() != wanted[k]:
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_numbers_that_no_float_is_are_left_to_the_ops():
    steps = int(eager_computing.LARGEST_EXACT)
    x = weft.tensor(np.array([1.0, 2.0]))
    function = weft.compile(lambda x, n: x * n)
    for n in (2, 2.5, steps, steps + 1, True):
        for _ in range(4):
            assert (x * n).tolist() == function(x, n).tolist()


def test_numbers_of_every_kind():
    x, whole = weft.tensor([1.5, -2.0]), weft.tensor([3, -4])
    for _ in range(4):
        seen = [(x * n).tolist() for n in (2, 2.0, True, -0.0)]
        assert seen == [[3.0, -4.0], [3.0, -4.0], [1.5, -2.0], [-0.0, 0.0]]
        assert str(seen[3][0]) == "-0.0"
        assert (whole * 3).tolist() == [9, -12] and (whole * 0.5).tolist() == [1.5, -2.0]
        assert (whole * (1 << 60)).tolist() == [3 << 60, -4 << 60]
        assert weft.arange(2, 11, 3).tolist() == [2, 5, 8]


def test_operands_that_are_let_go_of_meanwhile():
    """What a plan's kernels read in between is the plan's, not its calls'."""
    for _ in range(4):
        wanted = functional.softmax(numbers(6, 6), -1).tolist()
    kept = [p.run for p in plan._plans.values() if p.op.name == "softmax" and _runs_so(p)]
    plan.forget()
    gc.collect()
    for run in kept:
        assert run(numbers(6, 6).numpy()).tolist() == wanted
    assert kept


# --- backward passes over plain nodes (runtime/eager/plain_sweep.py) --------------------------------------------------
def _model():
    x, w, b = (numbers(3, 3, seed=k).requires_grad_() for k in range(3))

    def loss(scale=1.0):
        y = x
        for _ in range(3):
            y = (y * w + b).tanh() * scale
        return y.sum()

    return (x, w, b), loss


@pytest.fixture
def plain_nodes(monkeypatch):
    """How many nodes were run as plain ones: a list of them."""
    run, seen = plain_sweep._has_run, []

    def noting(*args):
        done = run(*args)
        seen.append(done)
        return done

    monkeypatch.setattr(engine, "_sweep_natively", engine.sweep_in_python)
    monkeypatch.setattr(plain_sweep, "_has_run", noting)
    return seen


def _gradients(leaves, loss):
    for leaf in leaves:
        leaf.grad = None
    loss().backward()
    return [leaf.grad.numpy().tobytes() for leaf in leaves]


def test_plain_nodes_give_the_gradients_of_rules(plain_nodes):
    leaves, loss = _model()
    first = _gradients(leaves, loss)
    for _ in range(6):
        assert _gradients(leaves, loss) == first
    assert plain_nodes[-12:].count(True) >= 10
    found = weft.autograd.grad(loss(), leaves)
    assert [g.numpy().tobytes() for g in found] == first
    assert [g.numpy().tobytes() for g in weft.autograd.grad(loss(), leaves[1:2])] == first[1:2]


def test_gradients_of_plain_nodes_share_no_memory(plain_nodes):
    a, b = numbers(3, 3).requires_grad_(), numbers(3, 3, seed=1).requires_grad_()
    for _ in range(6):
        a.grad = b.grad = None
        (a + b).exp().sum().backward()
    a.grad.zero_()
    assert bool((b.grad == (a + b).exp()).all())
    assert True in plain_nodes


def test_hooks_among_plain_nodes_are_called(plain_nodes):
    (x, w, b), loss = _model()
    for _ in range(6):
        plain = _gradients((x, w, b), loss)
    seen = []

    def hooked():
        y = x * w
        y.register_hook(lambda g: seen.append(g) or g * 2.0)
        return (y + b).sum()

    x.grad = b.grad = None
    hooked().backward()
    assert len(seen) == 1
    assert bool((x.grad == 2.0 * w).all())
    assert bool((b.grad == 1.0).all())
    assert _gradients((x, w, b), loss) == plain


def test_what_is_freed_or_changed_is_refused_at_plain_nodes(plain_nodes):
    leaves, loss = _model()
    for _ in range(6):
        _gradients(leaves, loss)
    total = loss()
    total.backward(retain_graph=True)
    total.backward()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()
    inner = leaves[0] * 2.0
    product = inner * leaves[1]
    for _ in range(6):
        (leaves[0] * 2.0 * leaves[1]).sum().backward()
    inner.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_a_passed_on_gradient_is_added_where_something_has_arrived(plain_nodes):
    x = numbers(3, 3).requires_grad_()
    for _ in range(6):
        x.grad = None
        ((x + x) + (x - x) + x).sum().backward()
    assert bool((x.grad == 3.0).all())
