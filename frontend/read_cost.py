"""What it costs to read a value in the middle of a compiled call: measured once, when somebody asks for it."""

import time

from .compiler.dtypes import float32
from .creation import ones
from .runtime.state.modes import state

# Together fewer calls than those after which a function may run eagerly (contest.py).
_N_ROUNDS, _N_CALLS = 9, 50
_measured = []


def seconds_of_a_read(compile):
    """The difference between two small functions that `compile` has compiled, of which one reads a value; the least of
    several rounds. None inside a compiled call, where nothing can be measured."""
    if state.frame is not None:
        return None
    if not _measured:
        reads, reads_not = _seconds(compile(_reads), compile(_reads_not))
        _measured.append(max(reads - reads_not, 0.0))
    return _measured[0]


def _reads_not(x):
    total = (x * 2).sum()
    return total + 1


def _reads(x):
    total = (x * 2).sum()
    total.item()
    return total + 1


def _seconds(*functions):
    x = ones(8, dtype=float32)
    least = dict.fromkeys(functions, float("inf"))
    for _ in range(_N_ROUNDS):
        for function in functions:
            began = time.perf_counter()
            for _ in range(_N_CALLS):
                function(x)
            least[function] = min(least[function], (time.perf_counter() - began) / _N_CALLS)
    return least.values()
