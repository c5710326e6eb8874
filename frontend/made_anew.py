"""Compiled functions that are made anew again and again, as where one is defined and decorated in a loop.

    for fold in folds:
        @weft.compile
        def step(x, y): ...
        for x, y in fold: step(x, y)

Each is recorded and replayed for itself, because it may mean other models by the same names. That pays after some
calls; where the last two that were made of the same code were called less often, the next runs eagerly until it has
been called as often as would have paid.
"""

from weakref import WeakKeyDictionary

# Recording, finding a program, and learning what to replay take as long as so many eager calls, or longer.
PAYS_AFTER = 16
_IN_A_ROW = 2
_made = WeakKeyDictionary()  # code -> CountedCalls of the last functions made of it


def n_eager_calls(function, calls):
    """How many calls of a function that is compiled now run eagerly before any is recorded. calls: its CountedCalls."""
    code = getattr(function, "__code__", None)
    if code is None or (function.__module__ or "").partition(".")[0] == "weft":
        return 0
    before = _made.setdefault(code, [])
    is_brief = len(before) == _IN_A_ROW and all(0 < other.n() < PAYS_AFTER for other in before)
    before.append(calls)
    del before[:-_IN_A_ROW]
    return PAYS_AFTER if is_brief else 0


class CountedCalls:
    """How often a compiled function was called; once it has lasted, often enough."""

    __slots__ = ("_n_left", "_at_first")

    def __init__(self, n_left):
        """n_left: a number that every call makes one less (compiled.py)."""
        self._n_left, self._at_first = n_left, n_left.value

    def n(self):
        return PAYS_AFTER if self._n_left is None else self._at_first - self._n_left.value

    def begin(self, n_left):
        """Calls are counted from this number on."""
        self._n_left.value = self._at_first = n_left

    def leave(self, n_left):
        """As many are left; those so far still count."""
        self._at_first -= self._n_left.value - n_left
        self._n_left.value = n_left

    def has_lasted(self):
        self._n_left = None
