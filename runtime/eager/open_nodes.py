"""What native code of eager mode is told where only the call knows sizes (runtime/replay/open_plans.py)."""

from . import plan

NODES_BEFORE = 2  # that Python runs, before native code is told of their derivative
MOST_ATTEMPTS = 6
WAITING = 16  # nodes that Python runs before it is asked again whether a program for large operands pays
ATTEMPTS_BEFORE_REFUSAL = 2  # of which none succeeded: one may be for a cotangent that lies in an unusual way


class Hole:
    """Stands in an attribute where a number is that only the call tells: that in a place, less `shift`. is_first: the
    place gets its number here; else the two must be equal."""

    __slots__ = ("place", "shift", "is_first")

    def __init__(self, place, shift, is_first):
        self.place, self.shift, self.is_first = place, shift, is_first


class OpenDerivative:
    """The derivative of nodes of one op, of sizes that each node tells. make(numbers, cotangent) gives what native code
    reads: `native` the words of the first, and `made` all. left: how many nodes Python runs before the next is made.
    refused() is called if there can be none: derivatives for exact sizes, which native code may know, are better."""

    __slots__ = ("native", "made", "make", "refused", "left", "attempts")

    def __init__(self, make, refused):
        self.native, self.made, self.make, self.refused = None, [], make, refused
        self.left, self.attempts = NODES_BEFORE, 0

    def wait(self):
        """It does not pay yet."""
        self.attempts, self.left = self.attempts - 1, WAITING

    def ask(self, node, cotangent):
        """Python runs a node that native code might have run."""
        self.left -= 1
        if self.left or self.attempts == MOST_ATTEMPTS or cotangent._data is None:
            return
        self.attempts += 1
        self.left = NODES_BEFORE << self.attempts
        plan.take_over_open_derivative(self, node.sizes[1:], cotangent._data)
