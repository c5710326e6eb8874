"""The order of groups while fusion joins them, against reachability computed from scratch."""

from dataclasses import dataclass

import networkx
import numpy as np

from weft.compiler import dtypes, precedence, sequence
from weft.compiler.fuse import fuse
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.precedence import Precedence


@dataclass(eq=False)
class Member:
    number: int


@dataclass(eq=False)
class Group:
    number: int
    values: list


class Model:
    """Groups of a random graph with recorded order, and the same as networkx sees it."""

    def __init__(self, seed, n=40, reach=12):
        self.rng = np.random.default_rng(seed)
        self.producers = {
            k: [int(p) for p in self.rng.integers(max(0, k - reach), k, self.rng.integers(0, 3))] if k else []
            for k in range(n)
        }
        self.users = {k: [u for u in range(n) for p in self.producers[u] if p == k] for k in range(n)}
        self.group_of = {k: Group(k, [Member(k)]) for k in range(n)}
        for group in self.group_of.values():
            group.values[0].op = Member
            Member.name = "member"
        self.precedence = Precedence(self.producers, self.users, self.group_of)

    def edges(self):
        return {
            (self.group_of[p].number, self.group_of[u].number)
            for u, below in self.producers.items()
            for p in below
            if self.group_of[p] is not self.group_of[u]
        }

    def between(self, x, y):
        """Whether a path from x to y passes through a third group."""
        view = networkx.DiGraph(self.edges())
        if x.number not in view or y.number not in view:
            return False
        if view.has_edge(x.number, y.number):
            view.remove_edge(x.number, y.number)
        return networkx.has_path(view, x.number, y.number)

    def pick(self):
        groups = list({g.number: g for g in self.group_of.values()}.values())
        x, y = (groups[k] for k in self.rng.choice(len(groups), 2, replace=False))
        return self.precedence.in_order(x, y)

    def join(self, x, y):
        number = int(self.rng.choice([x.number, y.number]))
        merged = Group(number, x.values + y.values)
        self.precedence.join(x, y, number)
        self.group_of.update((v.number, merged) for v in merged.values)

    def check_order(self):
        keys = self.precedence.order.keys
        assert all(keys[p] < keys[u] for p, u in self.edges())
        assert keys.keys() == {g.number for g in self.group_of.values()}


def _join_at_random(model, times):
    for _ in range(times):
        x, y = model.pick()
        assert not model.between(y, x)
        blocked = model.between(x, y)
        assert (model.precedence.between(x, y) is not None) == blocked
        if not blocked:
            model.join(x, y)
            model.check_order()


def test_groups_join_where_nothing_is_between_and_the_order_stays_one():
    for seed in range(40):
        _join_at_random(Model(seed), 30)


def test_keys_that_lie_too_close_are_made_anew(monkeypatch):
    monkeypatch.setattr(sequence, "_GAP", 4)
    for seed in range(40):
        _join_at_random(Model(seed), 30)


def _products(x, n):
    for _ in range(n):
        x = TABLE["bmm"](*(TABLE["reshape"](x, shape=s) for s in ((8, 8), (8, 8))))
    return x


def test_a_walk_that_is_too_long_keeps_groups_apart_and_says_so(monkeypatch):
    """Two ways from x to the last op, one of which the tree of last operands does not show."""
    graph = Graph("far")
    x = graph.input((64,), dtypes.float32)
    start = TABLE["exp"](x)
    first, second = _products(start, 20), _products(x, 20)
    joined = TABLE["bmm"](first, second)
    graph.outputs = [TABLE["add"](start, TABLE["reshape"](joined, shape=(64,)))]

    def reasons():
        return [r.reason for r in fuse(graph).refusals if "kernel of its own" not in r.reason]

    assert reasons() == [f"%{joined.number} bmm must run between them"]
    monkeypatch.setattr(precedence, "_MOST_EDGES", 8)
    assert reasons() == ["they are too far apart to see whether something must run between them"]
