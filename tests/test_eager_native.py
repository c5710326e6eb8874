"""Eager ops that native code has taken over do what Python does: bits, nodes, versions, modes and threads."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import weft
from weft.nn import functional
from weft.runtime.code import jit
from weft.runtime.eager import plan
from weft.runtime.replay import eager_native, eager_programs, native

# Where the layout of objects is not known, or native code is switched off, Python does all of it.
IS_NATIVE = native.layout() is not None
TIMES = 4


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)


def numbers(*shape, seed=0):
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def native_calls(function, what="calls_taken"):
    """How many ops of a call are done natively, once its plans are known. While code is made in the background, native
    code is told of none of them."""
    for _ in range(TIMES):
        function()
        with jit.compiling:
            pass
    for _ in range(2 * plan.CALLS_BEFORE_NATIVE):
        function()
    before = eager_native.taken(what)
    function()
    return eager_native.taken(what) - before


CALLS = {
    "add": lambda x, y, v: x + y,
    "bias": lambda x, y, v: x + v,
    "column": lambda x, y, v: x * y.sum(1, keepdim=True),
    "number": lambda x, y, v: x * 2.5,
    "integer": lambda x, y, v: 3 - x,
    "comparison": lambda x, y, v: weft.where(x > y, x, 0.0),
    "sum": lambda x, y, v: x.sum(),
    "mean": lambda x, y, v: x.mean(0),
    "var": lambda x, y, v: x.var(1),
    "matmul": lambda x, y, v: x @ y,
    "vector": lambda x, y, v: x @ v,
    "linear": lambda x, y, v: functional.linear(x, y, v),
    "softmax": lambda x, y, v: functional.softmax(x, -1),
    "log_softmax": lambda x, y, v: functional.log_softmax(x, 0),
    "layer_norm": lambda x, y, v: functional.layer_norm(x, (5,)),
    "gelu": lambda x, y, v: functional.gelu(x),
    "cat": lambda x, y, v: weft.cat([x, y, x], 1),
    "columns": lambda x, y, v: weft.cat([x[:, 1:2].clone(), y[:, 2:3].clone()], 1),
    "stack": lambda x, y, v: weft.stack([x, y]),
    "mse_loss": lambda x, y, v: functional.mse_loss(x, y),
    "transposed": lambda x, y, v: x.t() * y + v,
    "columns apart": lambda x, y, v: (x[:, ::2] - y[:, 1::2].sum()).exp(),
    "sum of a transposed": lambda x, y, v: x.t().sum(0) + y.t().mean(),
    "product of transposed": lambda x, y, v: x.t() @ y.t(),
    "backwards": lambda x, y, v: x.flip(0) * y,
    "integers": lambda x, y, v: ((x > y).long().sum(0) * 3 + 1) * v,
    "to double": lambda x, y, v: x.double() + y,
    "classes": lambda x, y, v: functional.cross_entropy(x, weft.tensor([0, 4, 2, 2, 1])),
    "batched": lambda x, y, v: weft.stack([x, y, x]) @ weft.stack([y, y, x]),
    "broadcast batch": lambda x, y, v: weft.stack([x, y]) @ y,
    "chunks": lambda x, y, v: [p * 2.0 for p in (x + y).chunk(3, 1)][1],
    "unbind": lambda x, y, v: (x * y).unbind(0)[3] + v,
    "fill": lambda x, y, v: weft.full_like(x, 2.5) * x,
    "middle": lambda x, y, v: weft.stack([x, y]).transpose(0, 1).sum(1),
    "reshaped": lambda x, y, v: weft.stack([x, y]).transpose(1, 2).reshape(10, 5) * v,
    "four loops": lambda x, y, v: weft.stack([x, y]).reshape(2, 1, 5, 5).expand(2, 3, 5, 5).permute(3, 1, 0, 2) + v,
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_native_and_have_the_bits_of_python(name):
    x, y, v = numbers(5, 5), numbers(5, 5, seed=1), numbers(5, seed=2)
    call = CALLS[name]
    plan.forget()
    first = call(x, y, v)
    assert (native_calls(lambda: call(x, y, v)) >= 1) is IS_NATIVE
    later = call(x, y, v)
    assert (later.dtype, later.shape, later.stride()) == (first.dtype, first.shape, first.stride())
    assert later.numpy().tobytes() == first.numpy().tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_gradients_have_the_bits_of_python(name):
    found = []
    plan.forget()
    for _ in range(TIMES + 2):
        leaves = [numbers(5, 5), numbers(5, 5, seed=1), numbers(5, seed=2)]
        for leaf in leaves:
            leaf.requires_grad_()
        out = CALLS[name](*leaves)
        out.sum().backward()
        nodes = [type(out.grad_fn).__name__, [type(n).__name__ for n, _ in out.grad_fn.next_functions]]
        found.append((nodes, [None if x.grad is None else x.grad.numpy().tobytes() for x in leaves]))
    assert all(one == found[0] for one in found)


def test_other_operands_than_the_plan_is_for_take_their_own_way():
    x, y = numbers(4, 4), numbers(4, 4, seed=1)
    native_calls(lambda: x + y)
    expected = x.numpy() + y.numpy().T
    assert (x + y.t()).numpy().tobytes() == expected.tobytes()
    assert (x + y[:, ::2].repeat(1, 2)).shape == (4, 4)
    assert (x + y.double()).dtype is weft.float64 and (x + 1).tolist() == (x.numpy() + np.float32(1)).tolist()
    with pytest.raises(RuntimeError, match="do not broadcast"):
        x + numbers(3)
    with pytest.raises(TypeError):
        x + "y"


def test_numbers_are_those_of_the_call():
    x = weft.ones(3)
    for number in (1.5, -0.0, float("inf"), 0.1, 1e30, True, 7, 2**53 + 1, -(2**70), 1.5):
        expected = np.ones(3, np.float32) * np.array(number, np.float64).astype(np.float32)
        for _ in range(TIMES):
            assert (x * number).numpy().tobytes() == expected.tobytes(), number
    assert (x * float("nan")).isnan().all()


def test_attributes_are_compared_by_value_and_kind():
    x = numbers(2, 3, 4)
    for _ in range(TIMES):
        for axes in ((0,), (1,), (2,), (0, 1), (1, 2)):
            for keepdim in (False, True):
                assert x.sum(axes, keepdim=keepdim).shape == x.numpy().sum(axes, keepdims=keepdim).shape


def test_calls_that_only_attributes_tell_apart_have_places_of_their_own():
    """A loop over the rows of a tensor asks for each of them in every step. Some share a place with others; that views
    that are gone are dropped from time to time costs no call."""
    x = numbers(64, 2)
    rows = lambda: [x[k] for k in range(64)]  # noqa: E731
    parts = lambda: [x[k : k + 3] for k in range(60)]  # noqa: E731
    # Others' plans have places too: fewer are left than in a process of its own, see below.
    assert native_calls(rows) >= (32 if IS_NATIVE else 0)
    assert native_calls(parts) >= (32 if IS_NATIVE else 0)
    assert [r.tolist() for r in rows()] == x.tolist() and parts()[7].tolist() == x.tolist()[7:10]


MANY_PLACES = """
import weft
from weft.runtime.eager import plan
from weft.runtime.replay import eager_native, native_making
native_making.PAYS_AFTER = 0
plan.CALLS_BEFORE_NATIVE = 1
x = weft.randn(64, 2)
for function in (lambda: [x[k] for k in range(64)], lambda: [x[k : k + 3] for k in range(60)]):
    for _ in range(4):
        function()
    before = eager_native.taken("calls_taken")
    function()
    print(eager_native.taken("calls_taken") - before)
"""


def test_in_a_process_of_their_own_nearly_all_have_places():
    done = subprocess.run([sys.executable, "-c", MANY_PLACES], capture_output=True, text=True, check=True)
    assert [int(n) >= (48 if IS_NATIVE else 0) for n in done.stdout.split()] == [True, True], done.stdout


def test_class_indices_are_checked():
    x = numbers(3, 4)
    loss = lambda target: functional.nll_loss(x, weft.tensor(target)).item()  # noqa: E731
    for _ in range(TIMES):
        assert loss([0, 3, 1]) == pytest.approx(-(x[0, 0] + x[1, 3] + x[2, 1]).item() / 3)
    for wrong in ([0, 4, 1], [0, -1, 1]):
        with pytest.raises(IndexError, match="out of bounds"):
            loss(wrong)
    assert loss([0, -100, 1]) == pytest.approx(-(x[0, 0] + x[2, 1]).item() / 2)


def test_one_plan_takes_operands_however_they_lie():
    plan.forget()
    x, y = numbers(6, 6), numbers(6, 6, seed=1)
    lying = [lambda t: t, lambda t: t.t(), lambda t: t.flip(0), lambda t: t[0].expand(6, 6), lambda t: t.t().flip(1)]
    expected = {(j, k): p(x).numpy() * q(y).numpy() for j, p in enumerate(lying) for k, q in enumerate(lying)}
    for _ in range(8 * TIMES):
        for j, k in expected:
            assert (lying[j](x) * lying[k](y)).numpy().tobytes() == expected[j, k].tobytes()
    assert native_calls(lambda: x.t() * y) == (2 if IS_NATIVE else 0)


def test_modes_are_those_of_the_thread():
    x = weft.ones(3, requires_grad=True)
    native_calls(lambda: x * x)
    found = {}

    def other():
        with weft.no_grad():
            found["other"] = [(x * x).requires_grad for _ in range(TIMES)]

    with weft.no_grad():
        assert not (x * x).requires_grad
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert (x * x).requires_grad and found["other"] == [False] * TIMES
    thread = threading.Thread(target=lambda: found.update(third=[(x * x).requires_grad for _ in range(TIMES)]))
    thread.start()
    thread.join()
    assert found["third"] == [True] * TIMES
    with weft.inference_mode():
        assert not (x * x).requires_grad


def test_compiled_calls_record_what_was_native_before():
    x, y = numbers(3), numbers(3, seed=1)
    native_calls(lambda: x * y)
    f = weft.compile(lambda x, y: x * y + x)
    for _ in range(6):
        assert f(x, y).numpy().tobytes() == (x * y + x).numpy().tobytes()


def test_changes_of_saved_values_are_noticed():
    for make in (lambda x: x.exp(), lambda x: x * x, functional.softmax):
        for _ in range(TIMES):
            x = weft.ones(3, requires_grad=True) * 2.0
            y = make(x) if make is not functional.softmax else make(x, 0)
            (x if y.grad_fn.name().startswith("Mul") else y).detach().add_(1.0)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


def test_hooks_of_leaves_are_called():
    seen = []
    x = weft.ones(2, requires_grad=True)
    x.register_hook(lambda g: seen.append(g.tolist()))
    for _ in range(TIMES):
        (x * 3).sum().backward()
    assert seen == [[3.0, 3.0]] * TIMES


def test_tensors_of_other_classes():
    class Marked(weft.Tensor):
        pass

    x, p = Marked(weft.ones(3).numpy()), weft.nn.Parameter(weft.ones(3))
    for _ in range(TIMES):
        assert type(x + x) is Marked and type(weft.ones(3) + 1.0) is weft.Tensor and (p * x).grad_fn is not None


def test_references_are_counted():
    x, y = numbers(3, 3), numbers(3, 3, seed=1).requires_grad_()
    functions = [lambda: x + x, lambda: y * x, lambda: functional.softmax(y, -1), lambda: x.sum(1), lambda: x * 2.0]
    watched = [x, y, x._data, y._data, x._data.dtype, weft.float32, None, (), 0, -1]
    for function in functions:
        native_calls(function)
        gc.collect()
        before = [sys.getrefcount(one) for one in watched]
        for _ in range(1000):
            function()
        gc.collect()
        after = [sys.getrefcount(one) for one in watched]
        # One too many or too few in each call would be a thousand; plans that are made after so many calls hold a few.
        assert max(abs(b - a) for a, b in zip(before, after)) < 500, (before, after)


def test_operands_of_what_stays_with_python_are_let_go_of():
    for call in (lambda x: x.cumsum(0), lambda x: x.t(), lambda x: x.exp()):
        for _ in range(TIMES):
            x = numbers(3, 3)
            call(x)
            reference = weakref.ref(x)
            del x
            assert reference() is None


def test_plans_are_replaced_and_forgotten():
    for _ in range(2):
        for n in range(1, 60):
            x = weft.ones(n)
            for _ in range(TIMES):
                assert (x + x).tolist() == [2.0] * n
        plan.forget()


ALONE = """
import weft
from weft.runtime.eager import plan
from weft.runtime.replay import eager_native
x = weft.ones(3)
for _ in range(40):
    y = x + x
assert y.tolist() == [2.0] * 3 and eager_native.taken("calls_taken") == 0
"""


def test_without_native_code():
    environment = {**os.environ, "WEFT_NATIVE_REPLAY": "0"}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_changes_in_place_have_the_bits_of_python():
    found = []
    plan.forget()
    for _ in range(TIMES + 2):
        x, y = numbers(3, 3), numbers(3, 3, seed=1)
        x.add_(y).mul_(2.0).sub_(y[0]).exp_()
        x[1].div_(3.0)
        x += 1
        y[2].zero_()
        y.fill_(2.0)
        found.append((x._version, x.numpy().tobytes()))
    assert all(one == found[0] for one in found)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        y[0].add_(y)


VIEWS = {
    "t": lambda x: x.t(),
    "row": lambda x: x[1],
    "column": lambda x: x[:, 1],
    "element": lambda x: x[1, 2],
    "rows": lambda x: x[1:],
    "reshape": lambda x: x.reshape(2, 10),
    "view": lambda x: x.view(-1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x.unsqueeze(0).expand(3, 4, 5),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_those_of_python(name):
    def seen(x):
        before = x._version
        out = VIEWS[name](x)
        array = out._data
        found = array.strides, array.shape, array.flags.writeable, array.base is x._data, out._base is x
        if name != "expand":
            with weft.no_grad():
                out.add_(1.0)
        return *found, out.storage_offset(), x._version - before, out._version - before, x.detach().numpy().tobytes()

    for requires_grad in (False, True):
        plan.forget()
        found = [seen(numbers(4, 5).requires_grad_(requires_grad)) for _ in range(TIMES + 2)]
        assert all(one == found[0] for one in found)
    x = numbers(4, 5)
    assert (native_calls(lambda: VIEWS[name](x)) >= 1) is IS_NATIVE


def test_views_are_known_to_what_they_show():
    x = numbers(4, 5)
    native_calls(lambda: x[1])
    views = [x[1] for _ in range(100)]
    assert {id(t) for t in x._storage.living_sharers()} >= {id(x), *map(id, views)}
    del views
    before = eager_native.taken("calls_taken")
    for _ in range(100):
        x[1]
    # Two of 32 were left to Python, which dropped the dead ones.
    assert eager_native.taken("calls_taken") - before == (100 if IS_NATIVE else 0)
    assert len(x._storage.sharers) < 80
    views = [x[1] for _ in range(100)]
    assert {id(t) for t in x._storage.living_sharers()} >= {id(x), *map(id, views)}
    memory = np.ones(3, np.float32)
    memory.flags.writeable = False
    y = weft.from_numpy(memory)
    for _ in range(TIMES):
        with pytest.raises(RuntimeError, match="read-only"):
            y.reshape(1, 3).add_(1.0)


def test_results_need_no_room_among_the_values_in_between():
    """They were given an address there, so that an array of 64 K floats was left to NumPy and fresh memory."""
    plan.forget()
    x, y = numbers(300, 300), numbers(300, 300, seed=1)
    expected = (np.maximum(x.numpy(), 0) * y.numpy()).tobytes()
    assert native_calls(lambda: x.relu() * y) == (2 if IS_NATIVE else 0)
    assert (x.relu() * y).numpy().tobytes() == expected


@pytest.mark.parametrize("join", [weft.cat, weft.stack])
def test_many_tensors_are_joined_natively(join):
    """As lists of what a loop has computed are. Where all of them require gradients or none does."""
    plan.forget()
    parts = [numbers(2, 3, seed=k) for k in range(20)]
    expected = join(parts).numpy().tobytes()
    assert native_calls(lambda: join(parts)) == IS_NATIVE
    found = []
    for requiring in (20, 0, 7, 1) * TIMES:
        leaves = [x.clone().requires_grad_(k < requiring) for k, x in enumerate(parts)]
        out = join(leaves)
        assert out.detach().numpy().tobytes() == expected
        assert out.requires_grad == (requiring > 0)
        if requiring:
            (out * out).sum().backward()
            found.append([None if x.grad is None else x.grad.tolist() for x in leaves])
            assert all((x.grad is not None) == (k < requiring) for k, x in enumerate(leaves))
    assert all(found[k] == found[k % 3] for k in range(len(found)))
    assert found[0][0] == (parts[0] * 2).tolist()
    leaves = [x.clone().requires_grad_() for x in parts]
    assert native_calls(lambda: join(leaves)) == IS_NATIVE


def test_plans_that_differ_in_numbers_words_or_types_have_places_of_their_own():
    x = numbers(4, 4)
    slopes = [0.01 * k for k in range(1, 41)]
    kinds = [weft.float64, weft.int64, weft.bool]
    calls = [lambda s=s: functional.leaky_relu(x, s) for s in slopes]
    calls += [lambda d=d: x.to(d) for d in kinds]
    calls += [lambda r=r: functional.mse_loss(x, x + 1.0, reduction=r) for r in ("mean", "sum", "none")]
    calls += [lambda c=c: x * c for c in (2, 2.0, True)]

    def all_of_them():
        return [call() for call in calls]

    taken = native_calls(all_of_them)
    assert taken >= len(calls) if IS_NATIVE else taken == 0
    with weft.no_grad():
        for s, found in zip(slopes, all_of_them()):
            assert found.tolist() == weft.where(x > 0, x, x * s).tolist()


def test_a_program_with_thousands_of_plans_stays_native():
    tensors = [weft.ones(1 + k % 50, 1 + k // 50) for k in range(1500)]

    def all_of_them():
        for x in tensors:
            x + x

    taken = native_calls(all_of_them)
    assert taken > 1450 if IS_NATIVE else taken == 0


# With how many ops each calls.
WITHOUT_STEPS = {
    "argmax": (lambda x: x.argmax(1), 1),
    "argmin of all": (lambda x: x.argmin(), 2),
    "max": (lambda x: x.max(0).indices, 2),
    "running sum of columns": (lambda x: x.cumsum(0), 1),
    "running product of columns": (lambda x: x.cumprod(0), 1),
    "running sum of integers": (lambda x: x.long().cumsum(0), 2),
}


@pytest.mark.parametrize("name", WITHOUT_STEPS)
def test_plans_without_steps_get_a_program_once_they_are_called_often(name, monkeypatch):
    """The first calls are Python's; those after them a program's, with the same bits, also of what nobody has let go of
    and with a history."""
    for often in ("CALLS_BEFORE_FINDING", "CALLS_BEFORE_COMPILING"):
        monkeypatch.setattr(eager_programs, often, 1)
    monkeypatch.setattr(eager_native, "CALLS_BETWEEN_REFUSALS", 1)
    (function, n_ops), x, w = WITHOUT_STEPS[name], numbers(5, 4), numbers(5, 4).requires_grad_()
    x[1, 2], x[3, 1], x[2, 0] = float("nan"), float("-inf"), -0.0
    plan.forget()
    before, kept = function(x), []
    assert native_calls(lambda: kept.append(function(x))) == (n_ops if IS_NATIVE else 0)
    assert {out.numpy().tobytes() for out in kept} == {before.numpy().tobytes()}
    for _ in range(3):
        out = function(w)
        if out.requires_grad:
            w.grad = None
            out.backward(weft.ones(out.shape))
            compiled = weft.compile(function)(w)
            assert w.grad.tolist() == weft.autograd.grad(compiled, w, weft.ones(out.shape))[0].tolist()


def test_division_with_remainder_of_floats_is_native_and_of_integers_looks_for_zeros():
    x = weft.tensor([7.5, -7.5, 0.0, -0.0, float("inf"), float("nan"), 1e30])
    whole = weft.tensor([7, -7, 0])
    for y in (2, 2.5, -3.0, 0.0, weft.tensor(-2.0)):
        first = [f(x, y).numpy().tobytes() for f in (weft.remainder, weft.floor_divide, weft.fmod)]
        for _ in range(30):
            assert [f(x, y).numpy().tobytes() for f in (weft.remainder, weft.floor_divide, weft.fmod)] == first
    for _ in range(30):
        assert (whole // 2).tolist() == [3, -4, 0] and (whole % -2).tolist() == [-1, -1, 0]
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            whole // 0
    if native.layout() is not None:
        before = eager_native.taken("calls_taken")
        x // 2, x % 2.5
        assert eager_native.taken("calls_taken") - before == 2
