"""Ops without a kernel in the middle of replayed calls: they run eagerly there, call after call, and all else is as
without the decorator."""

import pytest
from compiled_twin import assert_same, error_of

import weft

N_CALLS, ODD_CALLS = 12, (6, 9)
KEPT = []
# Divisors that are tensors are looked at where they stand, and those that are numbers are not.
D2, D3, D4, D5, D7 = (weft.tensor(k) for k in (2, 3, 4, 5, 7))


def integers(x, n, state):
    return ((n * 3) % D5 + 1) // D2 * x


def in_turn(x, n, state):
    return (n % D5 % D3).sum() * x, n // D2 // D2


def at_the_start(x, n, state):
    return x[n % D4] + n // D3


def spectrum(x, n, state):
    return weft.linalg.eigvalsh(x.outer(x) + weft.eye(4)) * 3


def of_state(x, n, state):
    state.add_(n)
    return x[(state % D4)] * 2


def handed_back(x, n, state):
    return n * 2 % D7


def in_a_branch(x, n, state):
    y = n * 2 % D7
    return x + y if y.sum() > 4 else x - y


def with_a_read(x, n, state):
    total = (x * 2).sum().item()
    return (n + 1) % D3 + total


def complex_numbers(x, n, state):
    z = weft.complex(x, x * 0)
    for _ in range(3):
        z = z * z + x
    return z.abs() < 2


PROGRAMS = [complex_numbers, integers, in_turn, at_the_start, spectrum, of_state, handed_back, in_a_branch, with_a_read]
ODD = {
    "nothing": lambda x, n: (x, n),
    "fails": lambda x, n: (x, n * 0),
    "requires gradients": lambda x, n: (x.detach().requires_grad_(), n),
    "a view": lambda x, n: (weft.stack([x, x])[1], weft.stack([n, n], 1)[:, 0]),
    "memory of an array": lambda x, n: (x, weft.from_numpy(n.numpy())),
    "other values": lambda x, n: (x, -n - 9),
    "other types": lambda x, n: (x.double(), n.to(weft.int32)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_ops_without_kernels(program, odd):
    def scenario(compile):
        f, state, seen = compile(program), weft.zeros(4, dtype=weft.int64), []
        for k in range(N_CALLS):
            x, n = weft.randn(4), weft.randint(1, 9, (4,))
            x, n = odd(x, n) if k in ODD_CALLS else (x, n)
            seen += [error_of(lambda x=x, n=n: KEPT.append(f(x, n, state))), state.clone(), x, n]
        seen += KEPT
        KEPT.clear()
        return seen

    assert_same(scenario)


def test_the_exception_of_such_an_op_can_be_caught():
    def scenario(compile):
        @compile
        def f(n, by):
            try:
                m = n * 2 % by
            except RuntimeError:
                m = n + 1
            return m * 3

        return [f(weft.arange(4), weft.tensor([1, 2, 3, int(k not in (7, 9))])) for k in range(12)]

    assert_same(scenario)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_such_calls_are_replayed_and_explained(program):
    f, state = weft.compile(program), weft.zeros(4, dtype=weft.int64)
    for _ in range(12):
        f(weft.randn(4), weft.randint(2, 5, (4,)), state)
    assert f.recordings[0].not_replayed is None and f.recordings[0].replays
    counts = [count for reason, _, count in f.breaks if "NumPy" in reason or "kernel" in reason]
    assert counts and all(count % 12 == 0 for count in counts), f.breaks
