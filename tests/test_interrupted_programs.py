"""Ctrl-C in the middle of a program: it ends soon, and nothing has changed.

Here programs look after every few microseconds of work, and the look that sees the interrupt is chosen.
"""

import ctypes
import signal

import pytest

import weft
from weft import nn, optim
from weft.compiler import pipeline, schedule
from weft.compiler.conventions import SEEN
from weft.compiler.kernels import library
from weft.nn import functional as F
from weft.runtime.code import kernels, looking
from weft.runtime.code.cache import default_cache
from weft.runtime.programs import fused


class Looks:
    """Counts the looks of programs; look number `at` sees an interrupt."""

    made = []  # eager mode keeps programs, and they the address that they look at

    def __init__(self):
        self.made.append(self)
        self.count, self.at = 0, None
        self.function = ctypes.CFUNCTYPE(ctypes.c_int)(self.look)  # with or without the lock
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value

    def look(self):
        self.count += 1
        return self.count == self.at

    def of(self, function):
        """How often a call looks, and its result."""
        self.count, self.at = 0, None
        result = function()
        return self.count, result

    def interrupt(self, at, function):
        """Call it, with an interrupt that this look sees."""
        self.count, self.at = 0, at
        try:
            return function()
        finally:
            assert self.count >= at
            self.at = None


@pytest.fixture(params=["keeps the lock", "lets go of the lock"])
def looks(monkeypatch, request):
    found, routine = Looks(), kernels.routine
    monkeypatch.setenv("WEFT_CACHE", "0")
    monkeypatch.setattr(pipeline, "LOOK_EVERY", 3000)
    monkeypatch.setattr(kernels, "routine", lambda symbol: found.address if symbol == SEEN else routine(symbol))
    monkeypatch.setattr(looking, "seen_address", lambda: found.address)
    if request.param == "lets go of the lock":
        monkeypatch.setattr(pipeline, "LET_GO_FROM", 0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield found
    signal.signal(signal.SIGINT, before)


def chain(x, w):
    s = x
    for _ in range(4):
        s = (s * w).tanh().sin() + x
        s = s - s.mean(1, keepdim=True)
    return s


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupted_at_every_look(looks, threads):
    before = weft.get_num_threads()
    weft.set_num_threads(threads)
    try:
        weft.manual_seed(0)
        x, w = weft.randn(300, 500), weft.randn(300, 500)
        compiled = weft.compile(chain)
        expected = chain(x, w)
        kept = x.clone(), w.clone()
        for _ in range(3):  # recorded, compared, replayed
            n_looks, result = looks.of(lambda: compiled(x, w))
            assert n_looks > 10 and result.equal(expected)
            for at in {1, 2, 7, n_looks // 2, n_looks - 1, n_looks}:
                with pytest.raises(KeyboardInterrupt):
                    looks.interrupt(at, lambda: compiled(x, w))
                assert x.equal(kept[0]) and w.equal(kept[1])
            assert compiled(x, w).equal(expected)
    finally:
        weft.set_num_threads(before)


def test_a_handler_that_raises_nothing(looks):
    weft.manual_seed(0)
    x, w = weft.randn(300, 500), weft.randn(300, 500)
    compiled, expected, seen = weft.compile(chain), chain(x, w), []
    n_looks, _ = looks.of(lambda: compiled(x, w))
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        for k in range(5):
            assert looks.interrupt(n_looks // 2, lambda: compiled(x, w)).equal(expected)
            assert len(seen) == k + 1
    finally:
        signal.signal(signal.SIGINT, before)


def trained(compiler):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 300), nn.Tanh(), nn.LayerNorm(300), nn.Linear(300, 10))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    x, y = weft.randn(400, 100), weft.randint(0, 10, (400,))

    @compiler
    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def state():
        moments = [t for s in optimizer.state.values() for t in s.values() if weft.is_tensor(t)]
        return [t.clone() for t in [*model.parameters(), *moments]]

    return step, state


def same(xs, ys):
    return len(xs) == len(ys) and all(a.equal(b) for a, b in zip(xs, ys))


def test_a_training_step_is_done_whole_or_not_at_all(looks):
    step, state = trained(weft.compile)
    eager, eager_state = trained(lambda f: f)
    for k in range(6):
        n_looks, loss = looks.of(step)
        assert loss.item() == eager().item() and same(state(), eager_state())
        before = state()
        with pytest.raises(KeyboardInterrupt):
            looks.interrupt(max(1, n_looks * (k + 1) // 6), step)
        assert same(state(), before)
    assert step().item() == eager().item() and same(state(), eager_state())


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_training_step_can_be_interrupted_until_all_of_it_is_computed(looks, monkeypatch, threads):
    """What it writes comes last, in no other bits; as long as that is not very much."""
    before = weft.get_num_threads()
    weft.set_num_threads(threads)
    # What is on disk was made by another rule.
    monkeypatch.setenv("WEFT_CACHE", "0")
    default_cache.cache_clear()
    try:
        found = {}
        for most_written in (-1, 1 << 28):
            monkeypatch.setattr(schedule, "_LONG_FLOPS", 0)
            monkeypatch.setattr(schedule, "_MOST_WRITTEN_LAST", most_written)
            step, state = trained(weft.compile)
            eager, eager_state = trained(lambda f: f)
            for _ in range(4):
                found[most_written], loss = looks.of(step)
                assert loss.item() == eager().item() and same(state(), eager_state())
                kept = state()
                for at in {1, found[most_written] // 2, found[most_written]}:
                    with pytest.raises(KeyboardInterrupt):
                        looks.interrupt(at, step)
                    assert same(state(), kept)
        assert found[1 << 28] > found[-1]
    finally:
        weft.set_num_threads(before)
        monkeypatch.undo()
        default_cache.cache_clear()


def test_a_backward_outside(looks):
    weft.manual_seed(0)
    x, w = weft.randn(300, 500), weft.randn(300, 500, requires_grad=True)
    chain(x, w).sum().backward()
    expected, w.grad = w.grad, None
    compiled = weft.compile(chain)
    for _ in range(4):
        total = compiled(x, w).sum()
        with pytest.raises(KeyboardInterrupt):
            looks.interrupt(2, lambda t=total: t.backward(retain_graph=True))
        assert w.grad is None
        total.backward()
        assert w.grad.equal(expected)
        w.grad = None


@pytest.mark.parametrize("n_before", [3, 300])
def test_python_that_is_interrupted_while_it_is_recorded(n_before):
    """What was recorded would have to be compiled first: the call has not happened."""
    interrupts = []
    weight, total = weft.ones(3, requires_grad=True), weft.zeros(3)

    @weft.compile
    def step(x):
        total.add_(x)
        (weight * x).sum().backward()
        for _ in range(n_before):
            x = x * 1.5 - 0.25
        if interrupts:
            raise interrupts.pop()
        return x

    interrupts.append(KeyboardInterrupt("in the middle"))
    with pytest.raises(KeyboardInterrupt, match="in the middle"):
        step(weft.ones(3))
    assert not [p for recording in step.recordings for p in recording.programs]
    assert total.tolist() == [0.0] * 3 and weight.grad is None
    expected = weft.ones(3)
    for _ in range(n_before):
        expected = expected * 1.5 - 0.25
    for k in range(3):
        assert step(weft.ones(3)).equal(expected)
        assert total.tolist() == [k + 1.0] * 3
        assert weight.grad.tolist() == [k + 1.0] * 3


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "left, right",
    [
        ((300, 70), (70, 600)),  # of some columns in every turn
        ((3000, 70), (70, 20)),  # of some rows
        ((33, 500), (500, 1000)),
        ((3, 90, 50), (50, 700)),
        ((40, 30, 50), (40, 50, 45)),  # of some matrices
        ((4, 1, 900), (900, 700)),
    ],
)
def test_a_long_product_is_interrupted_in_its_middle(looks, threads, left, right):
    before = weft.get_num_threads()
    weft.set_num_threads(threads)
    try:
        weft.manual_seed(0)
        for dtype in (weft.float32, weft.float64):
            x, w = weft.randn(*left).to(dtype), weft.randn(*right).to(dtype)
            compiled = weft.compile(lambda x, w: x @ w)
            expected = x @ w
            n_looks, result = looks.of(lambda: compiled(x, w))  # noqa: B023
            assert n_looks > 2 and result.equal(expected)
            for at in {1, n_looks // 2, n_looks}:
                with pytest.raises(KeyboardInterrupt):
                    looks.interrupt(at, lambda: compiled(x, w))  # noqa: B023
            assert compiled(x, w).equal(expected)
            assert compiled(x[..., :-1], w[..., :-1, :]).equal(x[..., :-1] @ w[..., :-1, :])
            assert compiled(x, w[..., :-1]).equal(expected[..., :-1])
            turned = w.mT.contiguous().mT
            assert compiled(x, turned).equal(expected)
            assert compiled(x.mT.contiguous().mT, turned).equal(expected)
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize("looks", ["keeps the lock"], indirect=True)
def test_what_runs_without_the_interpreters_lock_takes_it_to_look(looks, monkeypatch):
    apart = Looks()
    apart.function = ctypes.CFUNCTYPE(ctypes.c_int)(apart.look)  # which takes the lock
    monkeypatch.setattr(looking, "seen_address", lambda: ctypes.cast(apart.function, ctypes.c_void_p).value)
    fused.forget()
    weft.manual_seed(0)
    x = weft.randn(512, 1024)

    def run():
        return F.softmax((x * 2).tanh().exp() @ x.mT, 1)

    expected = run()
    n_looks, _ = apart.of(lambda: [run() for _ in range(300)])
    assert n_looks > 10 and not looks.count
    for at in (1, n_looks // 300, 3):
        with pytest.raises(KeyboardInterrupt):
            apart.interrupt(at, lambda: [run() for _ in range(300)])
        assert run().equal(expected)


def test_looking_without_the_lock():
    """The real one, called as native code calls it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        seen = ctypes.CFUNCTYPE(ctypes.c_int)(looking.seen_address())
        assert [seen() for _ in range(3)] == [0, 0, 0] and looking.seen_without_lock() == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_short_programs_do_not_look():
    compiled = weft.compile(chain)
    compiled(weft.ones(30, 50), weft.ones(30, 50))
    assert SEEN not in compiled.recordings[0].programs[0].meta["symbols"]


@pytest.fixture
def stretches(monkeypatch):
    """Eager work that is cut after little of it: how many calls of kernels there were."""
    monkeypatch.setattr(kernels, "_MOST_AT_ONCE", 20_000)
    monkeypatch.setattr(kernels, "_FEWEST_ROWS", 64)
    monkeypatch.setattr(library, "_PART_NS", 2000)
    monkeypatch.setattr(library, "_PART_FLOPS", 5000)
    count, cut, each = [], kernels._stretches, library._each

    def counted(*sizes):
        found = list(cut(*sizes))
        count.append(len(found))
        return found

    def counted_parts(n, *costs):
        count.append(-(-n // each(n, *costs)))
        return each(n, *costs)

    monkeypatch.setattr(kernels, "_stretches", counted)
    monkeypatch.setattr(library, "_each", counted_parts)
    return count


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize(
    "left, right", [((97, 31), (31, 203)), ((203, 31), (31, 71)), ((203, 201), (201, 5)), ((2, 97, 31), (31, 211))]
)
def test_a_long_product_of_eager_mode_is_computed_in_stretches(stretches, left, right, dtype):
    """Between two of them Python runs handlers of signals. Sizes are this test's own: eager mode remembers plans."""
    weft.manual_seed(0)
    x, w = weft.randn(*left).to(dtype), weft.randn(*right).to(dtype)
    compiled = weft.compile(lambda x, w: x @ w)
    for a in (x, x.mT.contiguous().mT):
        for b in (w, w.mT.contiguous().mT):
            assert (a @ b).equal(compiled(a, b))
    assert max(stretches) > 2


def test_long_routines_of_eager_mode_are_computed_in_parts(stretches):
    weft.manual_seed(0)
    q, rows = weft.randn(3, 2, 71, 12), weft.randn(53, 257)
    functions = [
        lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        lambda: rows.sort(1).values,
        lambda: rows.cumsum(1),
        lambda: rows.logcumsumexp(0),
    ]
    for function in functions:
        assert function().equal(weft.compile(function)())
    assert max(stretches) > 2
