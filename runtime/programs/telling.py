"""Numbers among the arguments that tell which way a call goes, such as the n of `x[:n]`.

    f(x, 5)  f(x, 7)  f(x, 6)  f(x, 7)     another way for each number, the same one again for the same: it tells
    step(x, 1)  step(x, 2)  step(x, 3)     one way: a count, which tells nothing

A function with such a number goes as many ways as numbers come, and each of them again: it is worth to wait until they
are known, and to know more of them than of an `if` on data, if few programs serve them all.
"""

_FEWEST = 4  # ways that were told, before it is believed
MOST_WAYS = 48


class Telling:
    """ends: by place among the leaves of the arguments, the last step of calls with each number. n_again: how often a
    number has come again."""

    __slots__ = ("ends", "n_again", "_n_changed")

    def __init__(self):
        self.ends, self._n_changed, self.n_again = {}, {}, 0

    def note(self, numbers, step):
        """A call with these numbers (by place) was followed to its end, which is this step."""
        came_again = False
        for place, x in numbers.items():
            ends = self.ends.setdefault(place, {})
            known = ends.get(x)
            if known is not None:
                came_again = True
                self._n_changed[place] = self._n_changed.get(place, 0) + (known is not step)
            if known is not None or len(ends) < 2 * MOST_WAYS:
                ends[x] = step
        self.n_again += came_again

    def tells(self):
        """Whether a number has told the ways of nearly all calls."""
        return any(map(self._tells, self.ends))

    def _tells(self, place):
        ends = self.ends[place]
        n_ways = len(set(map(id, ends.values())))
        return n_ways >= _FEWEST and 4 * n_ways >= 3 * len(ends) and 2 * self._n_changed.get(place, 0) <= len(ends)

    def most_ways(self, otherwise, programs):
        """How many ways are known at most, which have these programs."""
        n_alone = sum(not program.serves_many for program in programs)
        return MOST_WAYS if 2 * n_alone < len(programs) and self.tells() else otherwise
