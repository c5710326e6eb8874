"""Compiled calls of several threads that share leaves: what they add to one `.grad` adds up, whichever way they go.

Each program begins with no recording, so that calls of both threads are recorded, learned, compared in Python and in
native code, and depart, while the interpreter goes from thread to thread as often as it can.
"""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from together import in_threads

import weft
from weft.runtime.state import turns

N_THREADS, N_CALLS = 3, 400


def busy():
    for _ in range(30):
        pass


def plain(p):
    return weft.compile(lambda x: (x * p).sum().backward())


def kept(p):
    @weft.compile
    def step(x):
        loss = (x * p).sum()
        busy()
        loss.backward()
        busy()
        return loss

    return step


def read_in_the_middle(p):
    @weft.compile
    def step(x):
        loss = (x * p).sum()
        loss.backward()
        value = loss.item()
        busy()
        return value

    return step


def read_again(p):
    """The gradient decides which way the call goes."""

    @weft.compile
    def step(x):
        loss = (x * p).sum()
        loss.backward()
        return loss.item() if p.grad.sum() > 40 else loss

    return step


def lets_others_go(p):
    @weft.compile
    def step(x):
        loss = (x * p).sum()
        loss.backward()
        time.sleep(0)

    return step


def afterwards(p):
    loss_of = weft.compile(lambda x: (x * p).sum())

    def step(x):
        loss = loss_of(x)
        busy()
        loss.backward()

    return step


def hooked(p):
    """Gradients pass through nodes."""

    @weft.compile
    def step(x):
        y = x * p
        y.register_hook(lambda gradient: gradient * 1.0)
        y.sum().backward()

    return step


def eager_beside(p):
    """In one of the threads."""
    compiled, eager, threads = plain(p), lambda x: (x * p).sum().backward(), []

    def step(x):
        threads.append(threading.get_ident())
        (eager if threads[-1] == threads[0] else compiled)(x)

    return step


PROGRAMS = [plain, kept, read_in_the_middle, read_again, lets_others_go, afterwards, hooked, eager_beside]


def all_added_up(make):
    """What an element of the gradient is, and what it has to be, after calls of several threads."""
    p = weft.ones(4, requires_grad=True)
    step = make(p)

    def run(_):
        x = weft.ones(4)
        for _ in range(N_CALLS):
            step(x)

    in_threads(run, N_THREADS)
    return p.grad.tolist(), [1.0 * N_THREADS * N_CALLS] * 4


@pytest.mark.parametrize("make", PROGRAMS)
def test_gradients_of_several_threads_add_up(make):
    for _ in range(3):
        found, wanted = all_added_up(make)
        assert found == wanted


def test_gradients_add_up_without_native_code():
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import test_turns
        for make in test_turns.PROGRAMS:
            found, wanted = test_turns.all_added_up(make)
            assert found == wanted, (make.__name__, found, wanted)
    """
    environment = {**os.environ, "WEFT_NATIVE_REPLAY": "0"}
    arguments = [sys.executable, "-c", textwrap.dedent(code), os.path.dirname(__file__)]
    subprocess.run(arguments, check=True, env=environment)


def test_calls_that_wait_for_another_threads_call_end():
    """A call whose Python waits for a compiled call of another thread, which is recorded meanwhile."""
    w = weft.ones(3, requires_grad=True)
    inner = weft.compile(lambda x: (x * w).sum())
    found = []

    @weft.compile
    def outer(x):
        y = x * 2
        thread = threading.Thread(target=lambda: found.append(inner(x).item()))
        thread.start()
        thread.join()
        return y.sum()

    for k in range(4):
        assert outer(weft.full((3,), 1.0 + k)).item() == 6.0 * (k + 1)
    assert found == [3.0, 6.0, 9.0, 12.0]


def test_eager_calls_wait_for_nobody():
    """A function whose calls run eagerly, while a recorded call of another thread stands still until it has been
    called often."""
    doubled, counted = weft.compile(lambda x: x * 2, backend="eager"), []
    go_on = threading.Event()

    @weft.compile
    def recorded(x):
        go_on.wait()
        return x + len(counted)

    waiting = threading.Thread(target=lambda: counted.append(recorded(weft.ones(2)).tolist()))
    waiting.start()
    for _ in range(50):
        assert doubled(weft.ones(2)).tolist() == [2.0, 2.0]
    go_on.set()
    waiting.join()
    assert counted == [[1.0, 1.0]]


def test_a_turn_whose_block_an_exception_has_ended_between_two_lines_is_free():
    """As a signal handler's may. Other threads waited, and went on without from then on."""
    block = turns.following()
    block.__enter__()
    assert turns._turn.mine() is block
    del block
    found, wanted = all_added_up(lets_others_go)
    assert turns._turn.holder() is None and found == wanted


def test_calls_that_end_in_an_error_give_their_turn_back():
    """In Python of the user's, in the program at the end, and where a call has departed from native code."""
    table, k = weft.arange(5.0), 0

    @weft.compile
    def step(i):
        y = table[i] * 2
        if k % 10 == 9:
            raise ValueError("a tenth call")
        return y.sum() if k % 7 else y.sum() + 1

    for k in range(120):
        failed = k % 10 == 9 or k % 13 == 12
        try:
            step(weft.tensor([9 if k % 13 == 12 else k % 5]))
        except (ValueError, IndexError):
            assert failed
        else:
            assert not failed
        assert turns._turn.holder() is None and turns.state.turn is None


def test_a_fork_inside_of_a_recorded_call():
    """The child goes on with the call, and other threads of the parent do not hold its turn."""
    code = """
        import os, threading, weft
        stop, begun = threading.Event(), threading.Event()

        @weft.compile
        def standing(x):
            begun.set()
            stop.wait()
            return x + 1

        thread = threading.Thread(target=standing, args=(weft.ones(2),))
        thread.start()
        begun.wait()
        child = os.fork()
        if child == 0:
            p = weft.ones(2, requires_grad=True)
            step = weft.compile(lambda x: (x * p).sum().backward())
            for _ in range(5):
                step(weft.ones(2))
            os._exit(0 if p.grad.tolist() == [5.0, 5.0] else 1)
        stop.set()
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
    """
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
