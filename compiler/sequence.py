"""Numbers in an order, in which some can be put elsewhere without touching the others."""

from itertools import pairwise

# Between neighbours, so that very many can be put in one place before all get new keys.
_GAP = 1 << 256


class Sequence:
    """`keys`: a number's place, to be compared with others; `previous`, `next`: its neighbours, None at the ends."""

    __slots__ = ("keys", "previous", "next")

    def __init__(self, numbers):
        self.keys = {number: (k + 1) * _GAP for k, number in enumerate(numbers)}
        self.previous, self.next = {}, {}
        for first, second in pairwise(self.keys):
            self._neighbours(first, second)

    def move_before(self, numbers, other):
        """Put some, in the order they are in, right before another one."""
        numbers = self._taken_out(numbers)
        self._insert(numbers, self.previous.get(other), other)

    def move_after(self, numbers, other):
        numbers = self._taken_out(numbers)
        self._insert(numbers, other, self.next.get(other))

    def remove(self, number):
        self._unlink(number)
        del self.keys[number]

    def rename(self, old, new):
        self.keys[new] = self.keys.pop(old)
        before, after = self.previous.pop(old, None), self.next.pop(old, None)
        self._neighbours(before, new)
        self._neighbours(new, after)

    def _taken_out(self, numbers):
        numbers = sorted(numbers, key=self.keys.get)
        for number in numbers:
            self._unlink(number)
        return numbers

    def _unlink(self, number):
        self._neighbours(self.previous.pop(number, None), self.next.pop(number, None))

    def _neighbours(self, before, after):
        """Two numbers, or the end of the order (None), follow each other."""
        if before is not None:
            self.next[before] = after
        if after is not None:
            self.previous[after] = before

    def _insert(self, numbers, before, after):
        low = 0 if before is None else self.keys[before]
        high = low + (len(numbers) + 1) * _GAP if after is None else self.keys[after]
        step = (high - low) // (len(numbers) + 1)
        for k, number in enumerate(numbers):
            self.keys[number] = low + (k + 1) * step
        for first, second in pairwise([before, *numbers, after]):
            self._neighbours(first, second)
        if step == 0:
            self._space_all(numbers[0])

    def _space_all(self, number):
        """New keys for all, in the same order."""
        while self.previous.get(number) is not None:
            number = self.previous[number]
        key = 0
        while number is not None:
            key += _GAP
            self.keys[number] = key
            number = self.next.get(number)
