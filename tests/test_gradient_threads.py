"""Backward passes of several threads that end at the same leaves."""

import subprocess
import sys
import textwrap

import pytest
from together import in_threads

import weft

N_THREADS, N_PASSES = 6, 20


def often(function):
    """The function, as often as each of the threads calls it."""

    def run(_):
        for _ in range(N_PASSES):
            function()

    return run


@pytest.mark.parametrize("hooked", [False, True])
def test_no_contribution_is_lost(hooked):
    # Two threads read the same gradient, and each wrote its own sum: one of the two was lost.
    for _ in range(3):
        x = weft.ones(3, requires_grad=True)
        if hooked:
            x.register_post_accumulate_grad_hook(lambda tensor: None)
        in_threads(often(lambda x=x: (x * 2).sum().backward()), N_THREADS)
        assert x.grad.tolist() == [2.0 * N_THREADS * N_PASSES] * 3


def test_hooks_for_the_first_gradient_run_once_in_every_pass():
    x, y = weft.ones(2, requires_grad=True), weft.ones(2, requires_grad=True)
    seen = []
    weft.autograd.graph.register_multi_grad_hook((x, y), seen.append, mode="any")
    in_threads(often(lambda: (x * y).sum().backward()), N_THREADS)
    assert len(seen) == N_THREADS * N_PASSES


def test_threads_without_gradients_take_none_from_others():
    """Native code knows the modes of one thread at a time. Of which, changes while another one is in it."""
    code = """
        import sys, threading, weft
        sys.setswitchinterval(1e-6)
        stop = []

        def read():
            x, k = weft.ones(3, requires_grad=True), 0
            while not stop:
                k += 1
                with weft.no_grad():
                    assert not (x * x + float(k % 3)).sum().requires_grad
                z = weft.ones(k % 7 + 1, k % 5 + 1)
                for _ in range(12):
                    z = z * 1.5

        others = [threading.Thread(target=read) for _ in range(3)]
        for thread in others:
            thread.start()
        lost = 0
        for k in range(4000):
            w = weft.ones(k % 11 + 1, k % 3 + 1, requires_grad=True)
            lost += sum(not (w * w).sum().requires_grad for _ in range(14))
        stop.append(True)
        for thread in others:
            thread.join()
        assert lost == 0, lost
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
