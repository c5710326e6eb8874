"""Long calls that nothing can stop (runtime/code/aside.py): Ctrl-C ends the wait for them."""

import _thread
import os
import signal
import threading

import numpy as np
import pytest

import weft
from weft.runtime.code import aside as module
from weft.runtime.code.aside import aside

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="sends a signal to itself")


@pytest.fixture
def begun(monkeypatch):
    """The threads that were begun for such calls."""
    found = []

    def start(function, arguments):
        found.append(function)
        return _thread.start_new_thread(function, arguments)

    monkeypatch.setattr(module, "start_new_thread", start)
    return found


def test_ctrl_c_ends_the_wait():
    entered, leave, ended = threading.Event(), threading.Event(), threading.Event()

    def call():
        entered.set()
        leave.wait(300)
        ended.set()

    def press():
        entered.wait(300)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=press).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            aside(call)
        assert not leave.is_set() and not ended.is_set()  # it still runs
    finally:
        signal.signal(signal.SIGINT, before)
        leave.set()
    assert ended.wait(300)


def test_a_handler_that_does_not_raise_changes_nothing():
    entered, handled = threading.Event(), threading.Event()

    def call():
        entered.set()
        return handled.wait(300)

    def press():
        entered.wait(300)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, lambda number, frame: handled.set())
    threading.Thread(target=press).start()
    try:
        assert aside(call) is True
    finally:
        signal.signal(signal.SIGINT, before)


def test_results_errors_and_contexts_are_those_of_the_call():
    assert aside(divmod, 7, 2) == (3, 1) and aside(sorted, [1, 2], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        aside(divmod, 1, 0)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        aside(np.divide, np.ones(2), np.zeros(2))


def on_another_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def spd(n):
    x = weft.randn(n, n)
    return x @ x.T + n * weft.eye(n)


LONG = {
    "svdvals": lambda: weft.linalg.svdvals(weft.ones(350, 350) + weft.eye(350)),
    "qr": lambda: weft.linalg.qr(weft.eye(400) * 3 + 1.0)[1],
    "batch": lambda: weft.linalg.eigh(weft.eye(40).expand(600, 40, 40) + 1.0)[0],
    "fft": lambda: weft.fft.fft(weft.arange(1 << 20).float()),
    "argsort": lambda: weft.argsort(weft.arange(7_000_000, dtype=weft.float32), descending=True),
}


@pytest.mark.parametrize("name", LONG)
def test_long_ops_are_made_by_another_thread(name, begun):
    result = LONG[name]()
    assert begun
    begun.clear()
    same = on_another_thread(LONG[name])  # which no signal interrupts
    assert not begun and weft.equal(result, same)


def test_short_ops_are_not(begun):
    weft.linalg.svd(weft.ones(50, 50))
    weft.fft.fft(weft.ones(1000))
    weft.sort(weft.ones(100_000))
    assert not begun


def test_their_errors_say_what_they_say_of_small_ones(begun):
    messages = []
    for n in (3, 400):
        with pytest.raises(weft.linalg.LinAlgError) as caught:
            weft.linalg.svdvals(weft.full((n, n), float("nan")))
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and begun


def test_in_compiled_functions_and_backward_too(begun):
    x = spd(800).requires_grad_()
    compiled = weft.compile(lambda x: weft.linalg.slogdet(x)[1] * 2)
    found = [weft.autograd.grad(f(x), x)[0] for f in (compiled, compiled, lambda x: weft.linalg.slogdet(x)[1] * 2)]
    assert begun and weft.equal(found[0], found[1]) and weft.equal(found[0], found[2])
