"""Another thread reads a model while a compiled step trains it. It sees memory as it was before the call or as it is
after, and the training does not notice (runtime/record/onlooker.py: Visitor)."""

import sys
import threading

import pytest
from interrupts import Interrupt, Training, bits, history, places

import weft
from weft.runtime.record import onlooker

N_STEPS = 150


@pytest.fixture
def impatient(monkeypatch):
    """Readers do not wait for the end of the call."""
    monkeypatch.setattr(onlooker, "_PATIENCE_SECONDS", 0.0)


@pytest.fixture
def eager_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_thread(function):
    """What the function returns when it runs in another thread, while this one waits for it."""
    found = []
    thread = threading.Thread(target=lambda: found.append(_result(function)), daemon=True)
    thread.start()
    thread.join(60)
    assert found, "the thread did not end"
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _result(function):
    try:
        return function()
    except Exception as error:
        return error


def evaluates(training):
    with weft.no_grad():
        training.model(training.x).sum().item()


def takes_norms(training):
    for p in training.model.parameters():
        p.norm().item()
        # Read once: between two reads a step that begins sets it to None, in eager mode too.
        grad = p.grad
        if grad is not None:
            grad.norm().item()


def copies(training):
    for p in training.model.parameters():
        p.detach().numpy().copy()


def saves(training):
    {name: x.clone() for name, x in training.model.state_dict().items()}


@pytest.mark.parametrize("kind", ["adam", "by hand"])
@pytest.mark.parametrize("read", [evaluates, takes_norms, copies, saves], ids=lambda f: f.__name__)
def test_a_reader_all_the_time(kind, read, eager_switches):
    eager = Training(lambda f: f, kind)
    expected = history(eager, N_STEPS)[-1]
    training, stop, errors = Training(weft.compile, kind), [], []

    def work():
        while not stop:
            error = _result(lambda: read(training))
            if isinstance(error, Exception):
                errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    for _ in range(N_STEPS):
        training.step()
    stop.append(True)
    thread.join()
    assert training.losses == eager.losses and training.values() == expected
    assert not errors, errors[0]


@pytest.mark.parametrize("kind", ["adam", "statistics", "by hand"])
def test_what_is_seen_at_any_moment(kind, impatient):
    expected = history(Training(lambda f: f, kind), 6)
    for step in (0, 1, 2, 4):
        around = expected[max(step - 1, 0) : step + 2]
        allowed = {name: {seen.get(name) for seen in around} for name in expected[-1]}
        for at in places(kind, step, 4, "thread"):
            training = Training(weft.compile, kind)

            def handler():
                for name, value in in_thread(training.values).items():  # noqa: B023
                    assert value in allowed[name], f"{name} is neither as before the step nor as after it"  # noqa: B023

            interrupt = Interrupt(handler, at)
            for k in range(6):
                training.step(interrupt if k == step else None)
            assert training.values() == expected[-1], interrupt.place


def test_a_call_that_waits_for_its_reader():
    """Memory is as it was before the call; gradients of the call are computed for the reader."""
    weight = weft.ones(3, requires_grad=True)
    optimizer = weft.optim.SGD([weight], lr=0.5)
    seen = []

    @weft.compile
    def step(x):
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        seen.append(in_thread(lambda: (weight.tolist(), weight.grad.tolist(), (loss * 1).item(), loss.grad_fn.name())))
        return loss

    for k in range(5):
        before = weight.tolist()
        loss = step(weft.full((3,), 2.0))
        assert seen[k] == (before, [2.0] * 3, loss.item(), "SumBackward0")
        assert weight.tolist() == [1.0 - (k + 1)] * 3


def test_a_tensor_changed_in_place():
    """While the call is open, another thread reads, and makes views of, what it was."""
    counts, running = weft.zeros(3), weft.arange(3.0)
    seen = []

    @weft.compile
    def count(x):
        counts.add_(x)
        running.mul_(2).add_(x)
        seen.append(in_thread(lambda: (counts.tolist(), running[1:].tolist(), (running + counts).sum().item())))
        return counts.sum()

    for k in range(4):
        before = counts.tolist(), running[1:].tolist(), (running + counts).sum().item()
        assert count(weft.ones(3)).item() == 3.0 * (k + 1)
        assert seen[k] == before


def test_what_another_thread_may_not_do():
    weight = weft.ones(3, requires_grad=True)
    messages = []

    def change(value):
        with weft.no_grad():
            value.requires_grad_(False)

    @weft.compile
    def f(x):
        y = (weight * x).sum()
        for misuse in (lambda: change(y), lambda: y.register_hook(print), lambda: (y * 2).backward()):
            with pytest.raises(RuntimeError) as caught:
                in_thread(misuse)
            messages.append(str(caught.value))
        return y

    f(weft.ones(3)).backward()
    assert weight.grad.tolist() == [1.0] * 3
    assert "you can only change requires_grad flags of leaf" in messages[0]
    assert "was to be given hooks that belongs to a compiled call in flight" in messages[1]
    assert "it belongs to a compiled call in flight, and the code that runs backward is no part" in messages[2]


def test_one_storage_whoever_asks_first():
    """Two threads that make views of a tensor at once share its version."""
    from weft.runtime.state.tensor import storage_of

    for _ in range(200):
        tensor, gate = weft.ones(3), threading.Barrier(3)
        found = []

        def ask():
            gate.wait()  # noqa: B023
            found.append(storage_of(tensor))  # noqa: B023

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(storage) for storage in found}) == 1 and found[0] is tensor._storage


def test_readers_of_results(eager_switches):
    """Results that the call stores on an object are read elsewhere before the call has computed them."""
    kept, stop, wrong = [None], [], []

    @weft.compile
    def f(x):
        kept[0] = (x * 3).sum()
        for _ in range(3):
            x = x.exp().log()
        return x + kept[0]

    def work():
        while not stop:
            value = kept[0]
            if value is not None and bits(value) not in allowed:
                wrong.append(value)

    allowed = {bits((weft.full((4,), float(k)) * 3).sum()) for k in range(5)}
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    for k in range(300):
        f(weft.full((4,), float(k % 5)))
    stop.append(True)
    thread.join()
    assert not wrong


def test_a_call_that_goes_another_way_while_another_thread_begins_one():
    """That thread's call began in the books of the one that had left them, to which its thread comes back: it ended in
    the other thread's modes, in none of its calls."""
    inside, ended, results = threading.Event(), threading.Event(), []

    @weft.compile
    def f(x, way):
        h = x * 2.0
        if way == "another":
            h = h + 1.0
            second.start()
            inside.wait(10)
        if way == "second":
            inside.set()
            ended.wait(10)
        return h.sum()

    x = weft.ones(3)
    second = threading.Thread(target=lambda: results.append(f(x, "second").item()))
    for _ in range(12):
        f(x, "first")
    try:
        results.append(f(x, "another").item())
    finally:
        ended.set()
        second.join()
    assert results == [9.0, 6.0]
