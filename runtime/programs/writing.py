"""Memory that Python changes in several steps, as eager mode without native code adds to a gradient: no program changes
it meanwhile, in any thread."""

from .arena import arena
from .flights import Flight


class Writing:
    """A `with` block that changes an array. Programs that write into their inputs ask meanwhile, and those in flight
    without the lock are waited for (flights.py)."""

    __slots__ = ("flight",)

    def __init__(self, array):
        self.flight = Flight([array], [0])

    def __enter__(self):
        self.flight.begin(not arena.is_used_here())
        arena.let_writers_ask(self, True)

    def __exit__(self, *exception):
        arena.let_writers_ask(self, False)
        self.flight.end()
