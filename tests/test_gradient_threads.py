"""Backward passes of several threads that end at the same leaves."""

import sys
import threading

import pytest

import weft

N_THREADS, N_PASSES = 6, 20


def in_threads(function):
    start, failures = threading.Barrier(N_THREADS), []

    def run():
        start.wait()
        try:
            for _ in range(N_PASSES):
                function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(N_THREADS)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures


@pytest.mark.parametrize("hooked", [False, True])
def test_no_contribution_is_lost(hooked):
    # Two threads read the same gradient, and each wrote its own sum: one of the two was lost.
    for _ in range(3):
        x = weft.ones(3, requires_grad=True)
        if hooked:
            x.register_post_accumulate_grad_hook(lambda tensor: None)
        in_threads(lambda x=x: (x * 2).sum().backward())
        assert x.grad.tolist() == [2.0 * N_THREADS * N_PASSES] * 3


def test_hooks_for_the_first_gradient_run_once_in_every_pass():
    x, y = weft.ones(2, requires_grad=True), weft.ones(2, requires_grad=True)
    seen = []
    weft.autograd.graph.register_multi_grad_hook((x, y), seen.append, mode="any")
    in_threads(lambda: (x * y).sum().backward())
    assert len(seen) == N_THREADS * N_PASSES
