"""Eager mode on large operands: programs in place of steps, with the same bits, on memory that nobody holds."""

import sys
import threading

import numpy as np
import pytest

import weft
from weft.runtime.code.cache import Cache
from weft.runtime.eager import plan
from weft.runtime.programs import fused, large, program
from weft.runtime.programs.rules import Rule
from weft.runtime.replay import eager_native, native

F = weft.nn.functional
IS_NATIVE = native.layout() is not None


def bits(x):
    x = x.detach().numpy() if isinstance(x, weft.Tensor) else x
    return x.shape, x.dtype, x.tobytes()


@pytest.fixture
def eagerly(monkeypatch):
    """A function that says what a call gives step by step, and what it gives by programs: three times each."""
    monkeypatch.setattr(fused, "FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(fused, "FEWEST_OF_ONE", 1)
    monkeypatch.setattr(fused, "LargeProgram", lambda *args: made.append(args) or large.LargeProgram(*args))
    plan.forget()
    made = []

    def both(function):
        found = []
        for takes_programs in (False, True):
            monkeypatch.setattr(fused.Fused, "outputs", _OUTPUTS if takes_programs else lambda *_: None)
            monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
            plan.forget()
            found.append([function() for _ in range(3)])
        assert made and all(one == found[0][0] for ways in found for one in ways)
        return found[0][0]

    yield both
    plan.forget()
    large.forget()


_OUTPUTS = fused.Fused.outputs


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


_LAYOUTS = {
    "rows": lambda: weft.tensor(array(12, 40)),
    "transposed": lambda: weft.tensor(array(40, 12)).t(),
    "every other column": lambda: weft.tensor(array(12, 80))[:, ::2],
    "from the middle": lambda: weft.tensor(array(14, 44))[1:13, 3:43],
    "one row": lambda: weft.tensor(array(40)).expand(12, 40),
    "one number": lambda: weft.tensor(array(1)).expand(12, 40),
}
_CALLS = {
    "a sum of two": lambda x, y: x + y,
    "an integer": lambda x, y: x * 3,
    "a bool": lambda x, y: x + True,
    "a float": lambda x, y: 2.5 - x,
    "where": lambda x, y: weft.where(x > 0, x, y),
    "to double": lambda x, y: x.double() + y,
    "exp": lambda x, y: x.exp(),
    "columns": lambda x, y: x.sum(0),
    "everything": lambda x, y: x.sum(),
    "variance": lambda x, y: x.var(1),
    "cumsum": lambda x, y: x.cumsum(1),
    "greatest": lambda x, y: x.max(1).values,
    "product": lambda x, y: x @ y.t(),
    "contiguous": lambda x, y: x.contiguous() * 1.0,
    "clone": lambda x, y: x.clone(),
    "gather": lambda x, y: x[weft.tensor([3, 0, 3, 11])],
    "backwards": lambda x, y: x.flip(1) * y.flip(0, 1),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, y[0], y[1], training=True),
    "elu": lambda x, y: F.elu(x, 0.7) + F.hardtanh(y),
    "cat": lambda x, y: weft.cat([x, y], 1),
    "a row": lambda x, y: x + y[0],
    "softmax": lambda x, y: x.softmax(0),
    "silu": lambda x, y: F.silu(x),
}


@pytest.mark.parametrize("name", _CALLS)
def test_operands_may_lie_in_memory_in_any_way(eagerly, name):
    y = weft.tensor(array(12, 40, seed=1), requires_grad=True)

    def run(make=None):
        found = []
        for make in _LAYOUTS.values():
            x = make().requires_grad_()
            y.grad = None
            out = _CALLS[name](x, y)
            out.backward(weft.tensor(array(*out.shape, seed=2)).to(out.dtype))
            found += [bits(out), bits(x.grad), y.grad is not None and bits(y.grad)]
            out = _CALLS[name](x, y)
            out.sum().backward()
            found.append(bits(x.grad))
        return found

    eagerly(run)


def test_integers_that_are_no_floats_and_integer_tensors(eagerly):
    x, whole = weft.tensor(array(40)), weft.arange(40)

    def run():
        found = [x * (2**53 + 1), x + 2**60, whole + 3, whole * 2**40, whole > 7, whole // 3, whole % 7, whole + 2.5]
        found += [whole.clamp(3, 2**40), whole.clamp(-(2**60), 7), whole // -3, whole * -1, True + whole, whole == 4]
        found += [whole.int() + 3, whole.int().clamp(1, 5), whole * 2**62, whole & 6, x.clamp(-1, 1), x**2, 7 - x]
        return [bits(y) for y in found]

    eagerly(run)


def test_an_error_of_a_check_is_that_of_eager_mode(eagerly):
    x = weft.tensor(array(12, 40))

    def run():
        with pytest.raises(IndexError) as error:
            x.index_select(0, weft.tensor([3, 12]))
        return str(error.value), bits(x.index_select(0, weft.tensor([3, 11])))

    eagerly(run)


# --- many sizes -------------------------------------------------------------------------------------------------------
def test_a_program_serves_many_sizes(monkeypatch):
    """The first size is compiled for what it is, the second for all."""
    monkeypatch.setattr(fused, "FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    plan.forget()
    compiled, build = [], Rule.build
    monkeypatch.setattr(Rule, "build", lambda rule, stretch: compiled.append(rule) or build(rule, stretch))
    cache = Cache(None)
    monkeypatch.setattr(program, "default_cache", lambda: cache)
    for n in (50, 57, 64, 65, 99):
        x = weft.tensor(array(n, 40), requires_grad=True)
        monkeypatch.setattr(fused.Fused, "outputs", _OUTPUTS)
        for _ in range(3):
            out = F.layer_norm(F.silu(x), (40,)).softmax(0)
            (gradient,) = weft.autograd.grad(out, x, weft.tensor(array(n, 40, seed=1)))
        monkeypatch.setattr(fused.Fused, "outputs", lambda *_: None)
        steps = F.layer_norm(F.silu(x), (40,)).softmax(0)
        (expected,) = weft.autograd.grad(steps, x, weft.tensor(array(n, 40, seed=1)))
        assert bits(out) == bits(steps) and bits(gradient) == bits(expected)
    plan.forget()
    # Three ops and their derivatives: for one size, for all that Python calls, and for all that native code calls.
    assert len(compiled) <= 18


# --- memory -----------------------------------------------------------------------------------------------------------
def test_memory_of_results_is_used_again_when_nobody_holds_it():
    x = weft.tensor(array(600, 500))
    large.forget()
    held = [x.exp() for _ in range(6)]
    expected = bits(held[0])
    assert len({y.data_ptr() for y in held}) == 6
    shown = held[0].numpy()[::3]
    part, kept = held[1][5:], held[2].data_ptr()
    del held[:3]
    later = [(x * k).exp_() for k in range(2, 6)]
    assert kept in {y.data_ptr() for y in later} or large._results == {}
    assert all(bits(y) == expected for y in held)
    assert shown.tobytes() == held[0].numpy()[::3].tobytes()
    assert bits(part) == bits(held[0][5:])


def test_what_is_kept_for_results_has_a_limit(monkeypatch):
    monkeypatch.setattr(large, "KEPT_BYTES", 1 << 20)
    large.forget()
    for n in range(5):
        for _ in range(4):
            large.new_result((100_000 + n,), np.dtype(np.float32))
        assert sum(a.nbytes for kept in large._results.values() for a in kept) <= 1 << 20
    assert large.new_result((1_000_000,), np.dtype(np.float32)).nbytes > large.KEPT_BYTES
    large.forget()


def test_what_is_saved_for_backward_is_not_written_over():
    x = weft.tensor(array(600, 500), requires_grad=True)
    y = x.exp()
    z = (y * 2.0).tanh()
    del y
    for _ in range(5):
        weft.tensor(array(600, 500)).exp().tanh()
    z.sum().backward()
    with weft.no_grad():
        e = (2.0 * x.exp()).tanh()
        expected = (1.0 - e * e) * 2.0 * x.exp()
    assert np.allclose(x.grad.numpy(), expected.numpy())


# --- threads ----------------------------------------------------------------------------------------------------------
def test_threads_of_python_compute_beside_each_other():
    arrays = [array(700, 700, seed=k) for k in range(3)]
    expected = [bits(F.gelu(weft.tensor(a)).softmax(1)) for a in arrays]
    found = [[] for _ in arrays]

    def work(k):
        for _ in range(8):
            found[k].append(bits(F.gelu(weft.tensor(arrays[k])).softmax(1)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [set(f) for f in found] == [{e} for e in expected]


def test_the_lock_is_free_while_a_long_op_runs(monkeypatch):
    """A thread that waits for the lock only, with switches forced by nobody, goes on in the middle of one op: not of
    every one, where other processes have the cores."""
    x = weft.tensor(array(3000, 3000))
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    plan.forget()
    x.sin()
    steps, ended = [], threading.Event()

    def count():
        while not ended.is_set():
            steps.append(None)
            ended.wait(0.0001)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    thread = threading.Thread(target=count)
    try:
        thread.start()
        counted = len(steps)
        for _ in range(1000):
            x.sin()
            if len(steps) > counted:
                break
        assert len(steps) > counted
    finally:
        sys.setswitchinterval(before)
        ended.set()
        thread.join()


# --- called by native code --------------------------------------------------------------------------------------------
_LARGE_CALLS = {
    "neg": lambda x, y: -x,
    "add": lambda x, y: x + y,
    "a number": lambda x, y: x * 2.5,
    "comparison": lambda x, y: x > y,
    "sum": lambda x, y: x.sum(),
    "rows": lambda x, y: x.sum(1),
    "columns": lambda x, y: x.sum(0),
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "composite": lambda x, y: F.layer_norm(x, (520,)),
    "power": lambda x, y: x**3,
    "an integer": lambda x, y: 2 * x,
    "integers": lambda x, y: x.clamp(-1, 1),
    "of integers": lambda x, y: x.long().clamp(-1, 1),
}


@pytest.mark.parametrize("name", _LARGE_CALLS)
def test_native_code_calls_programs(name, monkeypatch):
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    call, x, y = _LARGE_CALLS[name], weft.tensor(array(520, 520)), weft.tensor(array(520, 520, seed=1))
    plan.forget()
    first, held = bits(call(x, y)), []
    for _ in range(70):
        assert bits(call(x, y)) == first
    before = eager_native.taken("calls_taken")
    for _ in range(5):
        held.append(call(x, y))
    # Of a kind four results are kept, the others are Python's.
    assert (eager_native.taken("calls_taken") > before) is IS_NATIVE
    assert [bits(one) for one in held] == [first] * 5
    assert len({one.data_ptr() for one in held}) == 5
    assert bits(call(y, x)) == bits(call(weft.tensor(y.numpy()), weft.tensor(x.numpy())))
    assert bits(call(x.t(), y.t())) == bits(call(x.t().contiguous(), y.t().contiguous()))
    plan.forget()


@pytest.mark.parametrize("shape, is_soon", [((520, 200), True), ((520,), True), ((520, 1100), False)])
def test_native_code_calls_programs_of_products(shape, is_soon, monkeypatch):
    """They have much memory for what is in between; those that take several milliseconds let go of the lock."""
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()
    x, y = weft.tensor(array(520, 520)), weft.tensor(array(*shape, seed=1))
    first = bits(x @ y)
    for _ in range(70):
        assert bits(x @ y) == first
    before = eager_native.taken("calls_taken")
    for _ in range(3):
        x @ y
    assert (eager_native.taken("calls_taken") - before == 3) is (is_soon and IS_NATIVE)
    held = [x @ y for _ in range(3)]
    assert [bits(one) for one in held] == [first] * 3
    plan.forget()


@pytest.mark.parametrize(
    "show",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[1:, 3:],
        lambda x: x[:1].expand(520, 1040),
        lambda x: x[0, 0].expand(520, 520),
    ],
)
def test_native_code_calls_programs_for_operands_that_lie_in_any_way(show, monkeypatch):
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()
    x = show(weft.tensor(array(520, 1040)))
    for call in (lambda: F.hardtanh(x), lambda: x * 2.5, lambda: x.clone()):
        first = bits(call())
        for _ in range(70):
            assert bits(call()) == first
        before = eager_native.taken("calls_taken")
        out = call()
        assert (eager_native.taken("calls_taken") > before) is IS_NATIVE
        assert bits(out) == first
    plan.forget()


_LARGE_DERIVATIVES = {
    "a number": (lambda x, y: x * 2.5, 1),
    "an integer": (lambda x, y: 3 / x, 1),
    "composite": (lambda x, y: F.hardtanh(x), 1),
    "of its result": (lambda x, y: x.exp(), 1),
    "of both": (lambda x, y: x * y, 1),
    "of a row": (lambda x, y: x + y[0], 1),
    "of a row too": (lambda x, y: x / y[:1], 1),
    "parts": (lambda x, y: weft.cat([x, y]), 1),
    "softmax": (lambda x, y: x.softmax(1), 1),
    "two ops": (lambda x, y: (x * y).exp(), 2),
    "added up": (lambda x, y: x * x, 1),
}


@pytest.mark.parametrize("name", _LARGE_DERIVATIVES)
def test_native_code_calls_the_programs_of_derivatives(name, monkeypatch):
    """Bits are those of steps, whoever holds earlier gradients; and Python runs what is hooked or lies otherwise."""
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()
    call, n_nodes = _LARGE_DERIVATIVES[name]
    x, y = (weft.tensor(array(520, 520, seed=k), requires_grad=True) for k in (0, 1))
    given = weft.tensor(array(*call(x, y).shape, seed=2))
    hooked = weft.tensor(array(520, 520), requires_grad=True)
    hooked.register_hook(lambda cotangent: cotangent * 1.0)

    def gradients(x, given):
        x.grad = y.grad = None
        call(x, y).backward(given)
        return [w.grad for w in (x, y) if w.grad is not None]

    with monkeypatch.context() as steps:
        steps.setattr(fused.Fused, "outputs", lambda *_: None)
        plan.forget()
        first = [bits(g) for g in gradients(x, given)]
    plan.forget()
    held = []
    for _ in range(30):
        assert [bits(g) for g in gradients(x, given)] == first
    before = eager_native.taken("nodes_taken")
    for _ in range(5):
        held += gradients(x, given)
    assert eager_native.taken("nodes_taken") - before >= (5 * n_nodes if IS_NATIVE else 0)
    assert [bits(g) for g in held] == first * 5
    assert len({g.data_ptr() for g in held}) == len(held)
    assert [bits(g) for g in gradients(hooked, given)] == first
    assert [bits(g) for g in gradients(x, weft.tensor(given.numpy().T.copy()).t())] == first
    grads = weft.autograd.grad(call(x, y), x, given, retain_graph=True)
    assert bits(grads[0]) == first[0]
    plan.forget()


def test_gradients_flow_through_programs_that_native_code_calls(monkeypatch):
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    found = []
    for _ in range(70):
        x = weft.tensor(array(520, 520)).requires_grad_()
        (x * x + x).sum().backward()
        found.append(bits(x.grad))
    assert set(found) == {found[0]}
    assert np.allclose(x.grad.numpy(), 2 * x.detach().numpy() + 1, atol=1e-5)


def test_results_that_wait_are_let_go_of(monkeypatch):
    """Lists of them are the same ones for native code and Python, also when they were emptied."""
    large.forget()
    monkeypatch.setattr(large, "KEPT_BYTES", 1000)
    monkeypatch.setattr(large, "MOST_KINDS", 3)
    first, dtype = large.results_of((10,), np.dtype("f4")), np.dtype("f4")
    held = large.new_result((10,), dtype)
    assert [id(a) for a in first] == [id(held)]
    large.new_result((250,), dtype)
    assert first == [] and large.results_of((10,), dtype) is first
    for n in range(1, 9):
        large.results_of((n,), dtype)
    assert len(large._results) <= 5
    large.forget()


def test_many_steps_on_small_operands_are_a_program_too(monkeypatch):
    """As those of a recurrent layer: what takes the time is each step, not what it computes."""
    made = []
    monkeypatch.setattr(fused, "LargeProgram", lambda *args: made.append(args) or large.LargeProgram(*args))
    weft.manual_seed(0)
    layer, x = weft.nn.GRU(3, 4, batch_first=True), weft.randn(2, 7, 3)

    def gradients():
        outputs, last = layer(x)
        layer.zero_grad()
        (outputs.square().sum() + last.sum()).backward()
        return [bits(outputs.detach()), *(bits(p.grad) for p in layer.parameters())]

    found = []
    for before in (1 << 62, 0):
        monkeypatch.setattr(fused, "ELEMENTS_BEFORE", before)
        monkeypatch.setattr(fused, "ELEMENTS_BEFORE_FINDING", before)  # it may be on disk
        plan.forget()
        found += [gradients() for _ in range(3)]
        assert bool(made) is (before == 0)
    assert all(one == found[0] for one in found)


_IN_PLACE = {
    "lerp": lambda x, y, z: x.lerp_(y, 0.25),
    "addcmul": lambda x, y, z: x.addcmul_(y, z, value=0.5),
    "of a row": lambda x, y, z: x.addcmul_(y[0], z[:, :1]),
    "of itself": lambda x, y, z: x.addcmul_(x, x),
    "of its parts": lambda x, y, z: x.addcmul_(x[0], x[:, :1]),
    "turned": lambda x, y, z: x.lerp_(x.t(), 0.25),
    "a transposed target": lambda x, y, z: x.t().lerp_(y, 0.25),
    "no number": lambda x, y, z: x.nan_to_num_(0.5),
    "softmax": lambda x, y, z: x.copy_(x.softmax(1)),
    "limits": lambda x, y, z: F.hardtanh_(x, -0.5, 0.5),
    "masked": lambda x, y, z: x.masked_fill_(y > 0, 0.5),
    "masked by itself": lambda x, y, z: x.masked_fill_(x > 0, 0.5),
}


@pytest.mark.parametrize("name", _IN_PLACE)
def test_changes_in_place_by_programs(name, monkeypatch):
    """Composites of elementwise ops are written over their target, with the bits of a new array."""
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()
    change, start = _IN_PLACE[name], array(520, 520)
    start[3, 5] = np.nan
    y, z = (weft.tensor(array(520, 520, seed=k)) for k in (1, 2))
    with monkeypatch.context() as steps:
        steps.setattr(fused.Fused, "outputs", lambda *_: None)
        x = weft.tensor(start)
        change(x, y, z)
        first = bits(x)
    plan.forget()
    for _ in range(40):
        x = weft.tensor(start)
        version, place = x._version, x.data_ptr()
        change(x, y, z)
        assert (bits(x), x._version, x.data_ptr()) == (first, version + 1, place)
    plan.forget()


def test_a_view_that_must_copy_is_a_copy_of_its_own(eagerly):
    """By programs, too: nobody else's memory, whatever goes on in the meantime, and a gradient that goes back."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 70, 8)).astype(np.float32)
    y = weft.from_numpy(x).clone().requires_grad_()

    def run():
        held = [y.detach().transpose(0, 1).reshape(70, -1) for _ in range(4)]
        for k, one in enumerate(held):
            one.mul_(k)
        flat = y.permute(2, 1, 0).reshape(-1)
        y.grad = None
        (flat * weft.arange(x.size)).sum().backward()
        shared = y.detach().view(60, 560)
        assert shared.data_ptr() == y.data_ptr() and not any(one.data_ptr() == y.data_ptr() for one in held)
        return bits(flat), bits(y.grad), *map(bits, held)

    flat, grad, *held = eagerly(run)
    assert flat == bits(x.transpose(2, 1, 0).reshape(-1))
    places = np.arange(x.size, dtype=np.float32).reshape(8, 70, 60)
    assert grad == bits(np.ascontiguousarray(places.transpose(2, 1, 0)))
    rows = np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(70, -1)
    assert held == [bits(rows * np.float32(k)) for k in range(4)]
