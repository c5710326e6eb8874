"""Which groups must run before which, while fusion joins them.

Two groups may become one if no third must run between them. Sets of all that a group depends on would answer that at
once, but take space and time in the square of the number of ops. So groups are kept in an order in which they can run:

    x ... g ... y         a path from x to y has all its groups between them in the order

`Precedence.between` walks from both ends inside that stretch, taking turns, until the ways meet or one side has nowhere
to go. When x and y join, the smaller side moves out of the stretch. A recorded order is nearly right for all joins, so
most walks are short; the long ones, from the backward of a step to its forward, mostly follow the longest dependences,
which are a tree with numbered branches and need no walk.
"""

from itertools import pairwise

# How many edges a walk may see: then the groups stay apart. Graphs with fewer edges are never refused for that.
_MOST_EDGES = 1000
# Between neighbours in the order, so that very many can be moved to one place before all get new keys.
_GAP = 1 << 256


class Precedence:
    """The order of groups (things with `number` and `values`) that grow.

    `producers`, `users`: value number -> numbers of the values it reads, and that read it; `group_of`: value number ->
    its group, kept by the caller.
    """

    def __init__(self, producers, users, group_of):
        self.producers, self.users, self.group_of = producers, users, group_of
        self.keys = {number: (k + 1) * _GAP for k, number in enumerate(producers)}
        self.previous, self.next = {}, {}
        for first, second in pairwise(self.keys):
            self._neighbours(first, second)
        self.branch = _branches(producers)
        self._last = None

    def in_order(self, x, y):
        """The two groups, the one that stands first first."""
        return (x, y) if self.keys[x.number] < self.keys[y.number] else (y, x)

    def feeds(self, x, y):
        """Whether y reads a value of x."""
        return any(g is x for g in self._feeding(y))

    def between(self, x, y):
        """Why x and y, which comes after x in the order, cannot be one: the first group that y reads and that needs x;
        None if they can be joined."""
        search, self._last = _Search(self, x, y), None
        try:
            found = search.run()
        except _TooFar:
            return "they are too far apart to see whether something must run between them"
        if found is not None:
            return f"%{found.number} {found.values[0].op.name} must run between them"
        self._last = x, y, search
        return None

    def join(self, x, y, number):
        """After `between(x, y)` found nothing: one group, called `number`, in place of both."""
        first, second, search = self._last
        assert (x, y) == (first, second), "groups are joined that were not the last to be looked at"
        numbers = sorted(search.above if search.above_is_whole else search.below, key=self.keys.get)
        for moved in numbers:
            self._unlink(moved)
        if search.above_is_whole:
            stays, goes = y.number, x.number
            self._insert(numbers, y.number, self.next.get(y.number))
        else:
            stays, goes = x.number, y.number
            self._insert(numbers, self.previous.get(x.number), x.number)
        self._unlink(goes)
        del self.keys[goes]
        if stays != number:
            self._rename(stays, number)

    # --- neighbours in the graph --------------------------------------------------------------------------------------
    def _feeding(self, group):
        """Groups that a group reads, as often as it reads them."""
        return (self.group_of[p] for v in group.values for p in self.producers[v.number])

    def _reading(self, group):
        return (self.group_of[u] for v in group.values for u in self.users[v.number])

    def is_branch_of(self, x, group):
        """Whether the longest dependences say already that the group needs x."""
        starts = [self.branch[v.number] for v in x.values]
        ends = [self.branch[v.number][0] for v in group.values]
        return any(first < end < last for first, last in starts for end in ends)

    # --- the order ----------------------------------------------------------------------------------------------------
    def _unlink(self, number):
        before, after = self.previous.pop(number, None), self.next.pop(number, None)
        self._neighbours(before, after)

    def _neighbours(self, before, after):
        """Two groups, or the end of the order (None), follow each other."""
        if before is not None:
            self.next[before] = after
        if after is not None:
            self.previous[after] = before

    def _rename(self, old, new):
        self.keys[new] = self.keys.pop(old)
        before, after = self.previous.pop(old, None), self.next.pop(old, None)
        self._neighbours(before, new)
        self._neighbours(new, after)

    def _insert(self, numbers, before, after):
        """Put groups between two neighbours."""
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


class _TooFar(Exception):
    """A walk saw too many edges."""


class _Search:
    """A walk down from y and one up from x. `below`: numbers of groups found that y needs; `above`: that need x. One of
    them is whole when nothing is between: `above_is_whole` says which."""

    def __init__(self, precedence, x, y):
        self.order, self.x, self.y = precedence, x, y
        keys = precedence.keys
        self.start, self.stop = keys[x.number], keys[y.number]
        self.below, self.above = set(), set()
        self.above_is_whole = False
        self.seen_edges = 0

    def run(self):
        """The first group that y reads and that needs x, or None. Raises _TooFar."""
        keys, upwards = self.order.keys, None
        for group in self.order._feeding(self.y):
            if group is self.x or group is self.y or keys[group.number] < self.start or group.number in self.below:
                continue
            if self.order.is_branch_of(self.x, group):
                return group
            upwards = upwards or self._up()
            if self._needs(group, upwards):
                return group
        return None

    def _needs(self, group, upwards):
        if group.number in self.above:
            return True
        if self.above_is_whole:
            return False
        for number in self._down(group):
            if number == self.x.number or number in self.above:
                return True
            up = next(upwards, self)
            if up is self:
                self.above_is_whole = True
                return False
            if up in self.below:
                return True
            self.seen_edges += 2
            if self.seen_edges > _MOST_EDGES:
                raise _TooFar
        return False

    def _down(self, group):
        """The numbers of groups at the edges below, group by group."""
        keys = self.order.keys
        self.below.add(group.number)
        stack = [self.order._feeding(group)]
        while stack:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
                continue
            yield below.number
            if keys[below.number] > self.start and below.number not in self.below:
                self.below.add(below.number)
                stack.append(self.order._feeding(below))

    def _up(self):
        keys = self.order.keys
        stack = [self.order._reading(self.x)]
        while stack:
            above = next(stack[-1], None)
            if above is None:
                stack.pop()
                continue
            is_inside = above is not self.y and above is not self.x and keys[above.number] < self.stop
            if is_inside and above.number not in self.above:
                self.above.add(above.number)
                stack.append(self.order._reading(above))
            yield above.number


def _branches(producers):
    """value number -> (its number, the first number after it) in the tree where each hangs on the last one it reads:
    a value's branch is a stretch of numbers."""
    parent = {number: max(below, default=None) for number, below in producers.items()}
    size = dict.fromkeys(parent, 1)
    for number in sorted(parent, reverse=True):
        if parent[number] is not None:
            size[parent[number]] += size[number]
    start, free, result = 0, {}, {}
    for number in sorted(parent):
        if parent[number] is None:
            first, start = start, start + size[number]
        else:
            first = free[parent[number]]
            free[parent[number]] += size[number]
        free[number] = first + 1
        result[number] = first, first + size[number]
    return result
