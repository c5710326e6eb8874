"""How long this process has compiled native code that is no program of a user's; later processes find it on disk."""

from contextlib import contextmanager
from time import perf_counter

REPLAYS_AND_NODES, KERNELS = "what replays calls and makes nodes", "kernels of eager ops and routines"
seconds = {}  # of each of these
in_background = 0.0  # seconds of a thread that made what replays calls and makes nodes; not part of `total`


@contextmanager
def timed(what):
    """The time of the block counts; of what compiles in another block, that block's."""
    began, inside = perf_counter(), sum(seconds.values())
    try:
        yield
    finally:
        inside = sum(seconds.values()) - inside
        seconds[what] = seconds.get(what, 0.0) + perf_counter() - began - inside


def total():
    """All of it, in seconds."""
    return sum(seconds.values())


def lines():
    """For explain."""
    made = list(seconds.items())
    if in_background:
        made.append((f"{REPLAYS_AND_NODES}, in the background", in_background))
    return [f"compiled in this process, and kept on disk: {what}, {1e3 * took:.3g} ms" for what, took in made]
