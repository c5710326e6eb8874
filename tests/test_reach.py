"""Native code and Python name the same nodes as those that autograd.grad runs."""

import pytest

import weft
from weft.runtime.eager import reach
from weft.runtime.eager.node import edge_of


class Doubled(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def leaf(*shape):
    return weft.ones(*shape).requires_grad_()


def chain(x, w, other):
    y = x
    for _ in range(5):
        y = y * w + other
    return [y], [x, w]


def inner(x, w, other):
    h = (x * w).tanh()
    return [(h * h + other).sum(), h], [h, other]


def wanted_of_wanted(x, w, other):
    h = x.exp()
    k = h * w
    return [k.sum(), (k + other).sum()], [k, h, x]


def unreached(x, w, other):
    return [(x * x).sum()], [w, x]


def function(x, w, other):
    return [Doubled.apply(x * w) + x], [x]


def several_results(x, w, other):
    values, _ = (x * w).sort(dim=0)
    return [values + other, x.max(dim=0).values], [x, other]


def long(x, w, other):
    for _ in range(3000):
        x = x * w
    return [x], [w]


@pytest.mark.parametrize(
    "graph", [chain, inner, wanted_of_wanted, unreached, function, several_results, long], ids=lambda f: f.__name__
)
def test_nodes_that_lead_to_wanted_edges(graph):
    outputs, inputs = graph(leaf(3, 3), leaf(3, 3), leaf(3, 3))
    roots, wanted = [(edge_of(x), None) for x in outputs], [edge_of(x) for x in inputs]
    found = reach.reach(roots, wanted)
    assert found == reach.reach_in_python(roots, wanted)
    assert [*map(found.get, [edge[0] for edge in wanted])].count(None) == 0


def test_a_finished_compiled_call_is_behind():
    @weft.compile
    def step(x):
        return (x * 3).exp()

    x = leaf(3)
    for _ in range(4):
        y = step(x)
        roots, wanted = [(edge_of((y * y).sum()), None)], [edge_of(x)]
        assert reach.reach(roots, wanted) == reach.reach_in_python(roots, wanted)
        (g,) = weft.autograd.grad((y * y).sum(), x)
        assert weft.allclose(g, 2 * y * y * 3)
