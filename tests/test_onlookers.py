"""Code that Python runs in the middle of weft's own: signal handlers, finalizers, callbacks. What it sees is what eager
mode would show, and what it does changes nothing of the call it interrupts (runtime/record/onlooker.py)."""

import contextvars
import gc
import signal
import weakref

import numpy as np
import pytest
from interrupts import Interrupt, Training, bits, history, places

import weft
from weft.runtime.code.cache import Cache
from weft.runtime.programs.evaluate import quietly
from weft.runtime.replay import frame_spans, native
from weft.runtime.state.modes import state

N_STEPS = 7
KINDS = ("adam", "statistics", "by hand")
CALLS = (0, 1, 2, 4)  # recorded; recorded again with the optimizer's state; replayed; replayed natively, if it can be


def reads(training, allowed):
    """A handler that copies everything, as one that saves a checkpoint does."""

    def handler():
        for name, value in training.values().items():
            assert value in allowed[name], f"{name} is neither as before the step nor as after it"

    return handler


def clones(training, allowed):
    def handler():
        for name, value in training.model.state_dict().items():
            assert bits(value.clone()) in allowed[name], name
            assert bits(value.reshape(-1).view(value.numel())) in allowed[name], name

    return handler


def evaluates(training, allowed):
    def handler():
        with weft.no_grad():
            training.model.eval()(training.x).sum().item()
            training.model.train()
        assert "tensor" in repr(training.loss) + repr(training.model[0].weight) or training.loss is None

    return handler


def trains_another(training, allowed):
    other = Training(weft.compile, "adam")

    def handler():
        with weft.enable_grad():
            other.step()

    return handler


HANDLERS = (reads, clones, evaluates, trains_another)


@pytest.mark.parametrize("make_handler", HANDLERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_at_any_moment(kind, make_handler):
    eager = Training(lambda f: f, kind)
    expected = history(eager, N_STEPS)
    for step in CALLS:
        around = expected[max(step - 1, 0) : step + 2]
        allowed = {name: {seen.get(name) for seen in around} for name in expected[-1]}
        for at in places(kind, step, 3, make_handler.__name__):
            training = Training(weft.compile, kind)
            for _ in range(step):
                training.step()
            interrupt = Interrupt(make_handler(training, allowed), at)
            training.step(interrupt)
            while len(training.losses) < N_STEPS:
                training.step()
            assert training.losses == eager.losses and training.values() == expected[-1], interrupt.place


class Stop(Exception):
    pass


def raise_stop():
    raise Stop


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_at_any_moment(kind):
    """A timeout, or Ctrl-C: whatever part of the step has been done, the training can go on from there."""
    n_stopped = 0
    for step in CALLS[1:]:
        for at in places(kind, step, 6, "exception"):
            training = Training(weft.compile, kind)
            for _ in range(step):
                training.step()
            interrupt = Interrupt(raise_stop, at, raises=True)
            try:
                training.step(interrupt)
            except Stop:
                n_stopped += 1
            else:
                # Native code that has been made meanwhile has fewer bytecodes before it.
                assert interrupt.place is None
                training.losses.pop()
            assert state.frame is None, interrupt.place
            training.step()
            assert len(training.losses) == step + 1 and len(training.values()) > 4, interrupt.place
    assert n_stopped > 5


def test_an_exception_that_the_call_survives():
    """Here the call itself catches what the handler raises, and goes on."""

    def run(compile, interrupt):
        x = weft.arange(4.0)

        def f(x):
            seen = []
            for k in range(3):
                try:
                    with interrupt if k == 1 else Interrupt():
                        seen.append((x * 2 + k).sum())
                except Stop:
                    seen.append(weft.ones(()))
            return seen

        return [y.item() for y in compile(f)(x)]

    counted = Interrupt()
    right = run(lambda f: f, counted)
    run(weft.compile, counted := Interrupt())
    for at in range(1, counted.count, 11):
        try:
            got = run(weft.compile, Interrupt(raise_stop, at, raises=True))
        except RuntimeError as error:
            assert "interrupted by an exception in the middle of one of its ops" in str(error)
            continue
        assert got in (right, [right[0], 1.0, right[2]])
        assert state.frame is None


# --- what handlers may not do -----------------------------------------------------------------------------------------
def refused(step, change):
    """The messages of the errors that a handler meets which changes the training at any moment of a step."""
    expected = history(Training(lambda f: f, "adam"), N_STEPS)[-1]
    messages = set()
    for at in places("adam", step, 40, change.__name__):
        training, done = Training(weft.compile, "adam"), []

        def handler():
            try:
                change(training)  # noqa: B023
                done.append(True)  # noqa: B023
            except (RuntimeError, NotImplementedError) as error:
                messages.add(str(error))

        try:
            for k in range(N_STEPS):
                training.step(Interrupt(handler, at) if k == step else None)
        except RuntimeError as error:
            # Between two ops a handler's change is part of the call: its backward has freed what the step's needs.
            assert done and "a second time" in str(error), error
        assert done or training.values() == expected
    return messages


def scales(training):
    with weft.no_grad():
        training.model[0].weight.mul_(0.5)


def runs_backward(training):
    with weft.enable_grad():
        (training.loss * 2).backward()


def test_changing_a_tensor_of_the_call_is_refused_or_part_of_it():
    messages = refused(1, scales)
    assert messages and all(
        "was to be changed in place that belongs to a compiled call in flight" in m for m in messages
    )


def test_backward_through_a_value_of_the_call_is_refused_or_part_of_it():
    words = ("it belongs to a compiled call in flight", "a second time", "modified by an inplace operation")
    messages = {m for m in refused(1, runs_backward) if not any(word in m for word in words)}
    assert not messages


# --- where such code comes from ---------------------------------------------------------------------------------------
def test_callbacks_of_the_garbage_collector_call_compiled_functions():
    f = weft.compile(lambda x: (x * 2, x + 1, x - 1, (x * 3).sum()))
    xs = [weft.full((50,), float(k)) for k in range(50)]
    inside, seen = [], []

    def callback(phase, info):
        if phase == "stop" and not inside:
            inside.append(True)
            seen.append(f(xs[49])[0].tolist())
            inside.clear()

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(3, 2, 2)
    try:
        for k in range(200):
            assert f(xs[k % 47])[3].item() == 150.0 * (k % 47)
    finally:
        gc.callbacks.remove(callback)
        gc.set_threshold(*before)
    assert seen and all(values == [98.0] * 50 for values in seen)


def test_the_collector_comes_while_a_context_changes():
    """NumPy's warnings are turned off in a context; what computes in the middle of that turns them off too."""
    x, inside, seen = np.ones(3), [], []

    def callback(phase, info):
        if phase == "stop" and not inside:
            inside.append(True)
            seen.append(quietly(np.add, x, x))
            [contextvars.copy_context() for _ in range(3)]
            inside.clear()

    def compute(n_variables):  # how many allocations a change takes depends on them
        for k in range(n_variables):
            contextvars.ContextVar(f"variable {k}").set(True)
        for threshold in range(1, 12):
            gc.set_threshold(threshold, 2, 2)
            for k in range(30):
                held = [contextvars.copy_context() for _ in range(k % 7)]  # noqa: F841 (those kept for later run out)
                assert (quietly(np.add, x, x) == 2).all()
                held = [[] for _ in range(k % 7)]  # noqa: F841

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    try:
        for n_variables in range(50):
            contextvars.copy_context().run(compute, n_variables)
    finally:
        gc.callbacks.remove(callback)
        gc.set_threshold(*before)
    assert seen and all((y == 2).all() for y in seen)


def test_finalizers_that_compute():
    """Results of earlier calls are dropped in the middle of later ones, and whoever watches them computes."""
    weight, seen = weft.ones(3, requires_grad=True), []

    def compute():
        try:
            seen.append((weight.detach() * 2).sum().item())
        except Exception as error:
            seen.append(error)

    def watch(tensor):
        weakref.finalize(tensor, compute)

    def train(compile):
        weight.data = weft.ones(3)

        @compile
        def step(x):
            weight.grad = None
            loss = (weight * x).sum()
            loss.backward()
            with weft.no_grad():
                weight.sub_(weight.grad)
            return loss

        losses = []
        for k in range(8):
            loss = step(weft.full((3,), 0.5**k))
            watch(loss)
            watch(weight.grad)
            losses.append(loss.item())
        return losses

    assert train(weft.compile) == train(lambda f: f)
    assert len(seen) > 8 and all(isinstance(value, float) for value in seen), seen


def test_signals_while_training():
    expected = history(Training(lambda f: f, "adam"), 40)[-1]
    before = signal.getsignal(signal.SIGALRM)
    try:
        for delay in (0.0004, 0.0011, 0.0023):
            training = Training(weft.compile, "adam")
            signal.signal(signal.SIGALRM, lambda *_: training.values())  # noqa: B023
            signal.setitimer(signal.ITIMER_REAL, delay, 0.05)
            for _ in range(40):
                training.step()
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert training.values() == expected
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- the disk cache ---------------------------------------------------------------------------------------------------
def test_what_is_stored_is_what_its_key_says(tmp_path, monkeypatch):
    """A handler comes between the key of a program and the building of it; another process then finds the program."""

    class Interrupted(Cache):
        def get(self, key):
            if training.loss is not None and key.startswith("input"):
                training.values()
            return super().get(key)

    eager = history(Training(lambda f: f, "adam"), 3)
    training = Training(weft.compile, "adam")
    monkeypatch.setattr("weft.runtime.programs.program.default_cache", lambda: Interrupted(tmp_path / "kernels"))
    assert history(training, 3) == eager
    monkeypatch.setattr("weft.runtime.programs.program.default_cache", lambda: Cache(tmp_path / "kernels"))
    assert history(Training(weft.compile, "adam"), 3) == eager


@pytest.mark.parametrize("at", range(6))
def test_a_handler_while_what_a_module_does_is_learned(monkeypatch, at):
    """Between the questions that the learning asks, when the module's Python has run: the call goes on elsewhere then,
    and has forgotten what was about to be learned."""
    asked, number = [], frame_spans.Spans._number

    def interrupted(self, x):
        found = number(self, x)
        asked.append(x)
        if len(asked) % 7 == at:
            weft.ones(1) + 1
        return found

    eager, compiled = Training(lambda f: f, "adam"), Training(weft.compile, "adam")
    monkeypatch.setattr(frame_spans.Spans, "_number", interrupted)
    expected, found = history(eager, 12), history(compiled, 12)
    assert found == expected
    assert asked or not native.native_code_is_used()
