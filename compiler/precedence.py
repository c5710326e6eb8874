"""Which groups must run before which, while fusion joins them.

Two groups may become one if no third must run between them. Sets of all that a group depends on would answer that at
once, but take space and time in the square of the number of ops. So groups are kept in an order in which they can run:

    x ... g ... y         a path from x to y has all its groups between them in the order

`Precedence.between` walks from both ends inside that stretch, taking turns, until the ways meet or one side has nowhere
to go. When x and y join, the smaller side moves out of the stretch. A recorded order is nearly right for all joins, so
most walks are short; the long ones, from the backward of a step to its forward, mostly follow the longest dependences,
which are a tree with numbered branches and need no walk.
"""

from .sequence import Sequence

# How many edges a walk may see: then the groups stay apart. Graphs with fewer edges are never refused for that.
_MOST_EDGES = 1000


class Precedence:
    """The order of groups (things with `number` and `values`) that grow.

    `producers`, `users`: value number -> numbers of the values it reads, and that read it; `group_of`: value number ->
    its group, kept by the caller.
    """

    def __init__(self, producers, users, group_of):
        self.producers, self.users, self.group_of = producers, users, group_of
        self.order = Sequence(producers)
        self.branch = _branches(producers)
        self._last = None

    def in_order(self, x, y):
        """The two groups, the one that stands first first."""
        keys = self.order.keys
        return (x, y) if keys[x.number] < keys[y.number] else (y, x)

    def feeds(self, x, y):
        """Whether y reads a value of x."""
        return any(g is x for g in self.feeding(y))

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
        if search.above_is_whole:
            stays, goes = y.number, x.number
            self.order.move_after(search.above, stays)
        else:
            stays, goes = x.number, y.number
            self.order.move_before(search.below, stays)
        self.order.remove(goes)
        if stays != number:
            self.order.rename(stays, number)

    # --- neighbours in the graph --------------------------------------------------------------------------------------
    def feeding(self, group):
        """Groups that a group reads, as often as it reads them."""
        return (self.group_of[p] for v in group.values for p in self.producers[v.number])

    def reading(self, group):
        return (self.group_of[u] for v in group.values for u in self.users[v.number])

    def is_branch_of(self, x, group):
        """Whether the longest dependences say already that the group needs x."""
        starts = [self.branch[v.number] for v in x.values]
        ends = [self.branch[v.number][0] for v in group.values]
        return any(first < end < last for first, last in starts for end in ends)


class _TooFar(Exception):
    """A walk saw too many edges."""


class _Search:
    """A walk down from y and one up from x. `below`: numbers of groups found that y needs; `above`: that need x. One of
    them is whole when nothing is between: `above_is_whole` says which."""

    def __init__(self, precedence, x, y):
        self.groups, self.x, self.y = precedence, x, y
        self.keys = keys = precedence.order.keys
        self.start, self.stop = keys[x.number], keys[y.number]
        self.below, self.above = set(), set()
        self.above_is_whole = False
        self.seen_edges = 0

    def run(self):
        """The first group that y reads and that needs x, or None. Raises _TooFar."""
        upwards = None
        for group in self.groups.feeding(self.y):
            if group is self.x or group is self.y or self.keys[group.number] < self.start or group.number in self.below:
                continue
            if self.groups.is_branch_of(self.x, group):
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
            if up is not None and (up.number in self.below or self.groups.is_branch_of(up, group)):
                return True
            self.seen_edges += 2
            if self.seen_edges > _MOST_EDGES:
                raise _TooFar
        return False

    def _down(self, group):
        """The numbers of groups at the edges below, group by group."""
        self.below.add(group.number)
        found = [group]
        # The list grows: nearer groups come first, because short ways to common ground are frequent.
        for group in found:
            for below in self.groups.feeding(group):
                yield below.number
                if self.keys[below.number] > self.start and below.number not in self.below:
                    self.below.add(below.number)
                    found.append(below)

    def _up(self):
        """The groups at the edges above, None where they were found before or are not between x and y."""
        found = [self.x]
        for group in found:
            for above in self.groups.reading(group):
                is_inside = above is not self.y and above is not self.x and self.keys[above.number] < self.stop
                is_new = is_inside and above.number not in self.above
                if is_new:
                    self.above.add(above.number)
                    found.append(above)
                yield above if is_new else None


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
