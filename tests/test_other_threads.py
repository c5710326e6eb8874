"""Long programs let go of the interpreter's lock: other threads of Python go on, and see nothing in between.

Here all programs do, however short they are.
"""

import ctypes
import gc
import sys
import threading
import weakref

import pytest

import weft
from weft import nn
from weft.compiler import pipeline
from weft.compiler.conventions import LET_GO, SEEN, TAKE_AGAIN
from weft.nn import functional as F
from weft.runtime.code import looking
from weft.runtime.code.cache import default_cache
from weft.runtime.programs.arena import arena


@pytest.fixture(autouse=True)
def nothing_on_disk(monkeypatch):
    """Programs are made in each test, as it wants them."""
    monkeypatch.setenv("WEFT_CACHE", "0")
    default_cache.cache_clear()
    yield
    default_cache.cache_clear()


@pytest.fixture
def let_go(monkeypatch):
    monkeypatch.setattr(pipeline, "LET_GO_FROM", 0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)
    assert not arena.is_lent


class Trained:
    def __init__(self, compiler, seed=0, width=48):
        weft.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(20, width), nn.Tanh(), nn.LayerNorm(width), nn.Linear(width, 4))
        self.optimizer = weft.optim.Adam(self.model.parameters(), lr=1e-2)
        self.x, self.y = weft.randn(64, 20), weft.randint(0, 4, (64,))
        self.step, self.losses = compiler(self._step), []

    def _step(self):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train(self, n):
        self.losses += [self.step() for _ in range(n)]

    def values(self):
        return [loss.item() for loss in self.losses], [p.tolist() for p in self.model.parameters()]


def together(*functions):
    """Each in a thread of its own, until all are done."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "it did not end"
    assert not errors, errors[0]


def program_of(compiled):
    return compiled.recordings[-1].programs[-1]


def test_short_programs_keep_it_and_long_ones_let_go():
    short, x = weft.compile(lambda x: (x @ x).tanh().sum()), weft.randn(64, 64)
    long = weft.compile(lambda x: (x @ x @ x @ x).tanh().sum())
    short(x), long(weft.randn(1024, 1024))
    assert LET_GO not in program_of(short).meta["symbols"]
    assert {LET_GO, TAKE_AGAIN} <= set(program_of(long).meta["symbols"])


def test_what_a_program_writes_into_is_known():
    training = Trained(weft.compile)
    training.train(3)
    program = program_of(training.step)
    written = {program.inputs[k] for k in program.writes}
    # Parameters, and two moments of each.
    assert len(written) == 3 * len(list(training.model.parameters()))
    evaluate = weft.compile(lambda x: training.model(x).sum())
    evaluate(training.x)
    assert program_of(evaluate).writes == ()


def test_the_lock_is_not_held_while_a_program_runs(let_go, monkeypatch):
    """The program asks CPython whether its thread holds the lock where it would ask for Ctrl-C, and goes on if not."""
    monkeypatch.setattr(pipeline, "LOOK_EVERY", 1000)
    holds_lock = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
    monkeypatch.setattr(looking, "seen_address", lambda: holds_lock)
    x, w = weft.randn(200, 200), weft.zeros(200, 200)

    def function(x):
        y = (x @ x).tanh() @ x
        w.add_(y)
        return y.exp().sum()

    compiled = weft.compile(function)
    found = compiled(x)
    assert {SEEN, LET_GO} <= set(program_of(compiled).meta["symbols"])
    changed = w.clone()
    w.zero_()
    assert found.equal(function(x)) and changed.equal(w)
    # It says the truth where the lock is held.
    assert ctypes.pythonapi.PyGILState_Check() == 1


def test_two_models_trained_at_the_same_time(let_go):
    expected = [Trained(lambda f: f, seed) for seed in (1, 2, 3)]
    found = [Trained(weft.compile, seed) for seed in (1, 2, 3)]
    for training in expected:
        training.train(60)
    together(*(lambda t=training: t.train(60) for training in found))
    assert [t.values() for t in found] == [t.values() for t in expected]


@pytest.mark.parametrize("threads", [1, 2])
def test_one_function_called_by_several_threads(let_go, threads):
    before = weft.get_num_threads()
    weft.set_num_threads(threads)
    try:
        function = weft.compile(lambda x, w: (x @ w).tanh().sum(1))
        w = weft.randn(300, 200)
        given = [weft.randn(100, 300) for _ in range(3)]
        expected = [(x @ w).tanh().sum(1).tolist() for x in given]
        results = [[] for _ in given]

        def work(k):
            for _ in range(30):
                results[k].append(function(given[k], w).tolist())

        together(*(lambda k=k: work(k) for k in range(3)))
        assert all(one == wanted for found, wanted in zip(results, expected) for one in found)
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize("writer_is_long", [True, False])
def test_who_evaluates_a_model_in_training_sees_whole_steps(monkeypatch, let_go, writer_is_long):
    """A step adds one to every weight, so all that is seen in one evaluation is one number. A short step runs in native
    code, which leaves it to Python while a long program is in flight."""
    weights = [weft.zeros(40, 50) for _ in range(6)]

    def step():
        with weft.no_grad():
            for w in weights:
                w.add_(1.0)

    train, evaluate = weft.compile(step), weft.compile(lambda: weft.stack([w.mean() for w in weights]))
    evaluate()
    monkeypatch.setattr(pipeline, "LET_GO_FROM", 0 if writer_is_long else 1e12)
    for _ in range(10):
        train()
    assert LET_GO in program_of(evaluate).meta["symbols"]
    assert (LET_GO in program_of(train).meta["symbols"]) == writer_is_long
    seen, stop = [], []

    def watch():
        while not stop:
            seen.append(evaluate().tolist())

    def work():
        try:
            for _ in range(300):
                train()
        finally:
            stop.append(True)

    together(work, watch)
    assert all(len(set(one)) == 1 for one in seen)
    assert [w.mean().item() for w in weights] == [310.0] * 6


def test_backwards_after_calls_in_several_threads(let_go):
    def work(compiler, start, found):
        w = start.clone().requires_grad_()
        loss_of = compiler(lambda x: ((x @ w).tanh() ** 2).mean())
        for k in range(25):
            w.grad = None
            loss_of(weft.full((20, 30), 0.01 * k)).backward()
            found.append(w.grad.tolist())

    starts, expected, found = [weft.randn(30, 30) for _ in range(2)], [[], []], [[], []]
    for start, one in zip(starts, expected):
        work(lambda f: f, start, one)
    together(*(lambda k=k: work(weft.compile, starts[k], found[k]) for k in range(2)))
    assert found == expected


def test_memory_that_is_let_go_of_while_a_program_reads_it(let_go):
    """Another thread gives a parameter other memory all the time."""
    weight, stop = weft.ones(64, 64), []
    function = weft.compile(lambda x: (x @ weight).sum())
    x = weft.ones(4, 64)

    def replace():
        while not stop:
            weight.data = weft.ones(64, 64)

    def work():
        try:
            for _ in range(200):
                assert function(x).item() == 4 * 64 * 64
        finally:
            stop.append(True)

    together(work, replace)


def test_an_error_in_a_program_gives_everything_back(let_go):
    table = weft.randn(10, 3)
    lookup = weft.compile(lambda index: table[index].sum(0))
    good, bad = weft.tensor([1, 2]), weft.tensor([1, 20])
    expected = table[good].sum(0)
    for _ in range(6):
        assert lookup(good).equal(expected)
        with pytest.raises(IndexError):
            lookup(bad)
        assert not arena.is_lent


@pytest.mark.parametrize("differentiates", [False, True])
def test_results_are_let_go_of_when_nobody_holds_them(let_go, differentiates):
    """Each call's were kept by the replay, for good."""
    w = weft.randn(200, requires_grad=True)

    @weft.compile
    def step(x):
        y = (x * w).tanh()
        return (y.sum().detach(), *weft.autograd.grad(y.sum(), w)) if differentiates else y.detach()

    x, seen = weft.randn(40, 200), []
    for _ in range(30):
        results = step(x)
        seen += [weakref.ref(y._data) for y in (results if differentiates else [results])]
    del results
    assert LET_GO in program_of(step).meta["symbols"]
    gc.collect()
    assert sum(array() is not None for array in seen) == 0
