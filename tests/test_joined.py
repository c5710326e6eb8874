"""Joins along the outermost axis whose parts are written where the join has them: no kernel copies, no bit changes."""

import numpy as np
import pytest
from turn_taking import same, teams

import weft
from weft.compiler import dtypes
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import compile_graph

pool = pytest.fixture(teams)
ROW = (4, 16)  # a whole number of cache lines


def joins(parts_of, after=lambda c: TABLE["bmm"](c, TABLE["permute"](c, axes=(1, 0))), shape=ROW):
    """The kernels that join parts; `parts_of(graph, x)`: the parts, and other results of the program."""
    graph = Graph("joined")
    x = graph.input(shape, dtypes.float32)
    parts, others, *axis = parts_of(graph, x)
    c = TABLE["cat"](*parts, axis=axis[0] if axis else 0)
    graph.outputs = [after(c), *others]
    return [k for k in compile_graph(graph).plan.kernels if k.ops == ("cat",)]


def _products(x, n):
    """Values that are kernels of their own."""
    found = []
    for _ in range(n):
        x = TABLE["bmm"](x, TABLE["bmm"](TABLE["permute"](x, axes=(1, 0)), x))
        found.append(x)
    return found


def test_parts_lie_where_the_join_has_them():
    assert not joins(lambda graph, x: (_products(x, 3), []))


def _reshaped(graph, x):
    return [TABLE["reshape"](part, shape=(1, *ROW)) for part in _products(x, 3)], []


def test_stacked_parts_do():
    assert not joins(_reshaped, lambda c: TABLE["bmm"](c, TABLE["permute"](c, axes=(0, 2, 1))))


def test_joins_of_very_many_parts_do():
    assert not joins(lambda graph, x: (_products(x, 150), []))


def _states(x, n, step):
    """What so many steps make of x, one after the other."""
    states = []
    for k in range(n):
        states.append(step(states[-1] if states else x, k))
    return states


def test_steps_of_very_many_have_eager_bits(pool):
    weft.manual_seed(2)
    x, w = weft.randn(4, 32), weft.randn(32, 32) / 8

    def steps(x, w):
        states = _states(x, 140, lambda x, _: (x @ w).tanh() + 0.5)
        stacked = weft.stack(states)
        return stacked.reshape(-1, 32).t() @ stacked.reshape(-1, 32), stacked.sum((0, 1)), states[70] @ w

    same(pool, steps, x, w)


@pytest.mark.parametrize("parts_of", [
    lambda graph, x: ([x, *_products(x, 2)], []),  # an input
    lambda graph, x: ((found := _products(x, 3)), found[:1]),  # a result
    lambda graph, x: ([*_products(x, 2)] * 2, []),  # twice
    lambda graph, x: (_products(x, 3), [], 1),  # side by side
    lambda graph, x: ([TABLE["slice"](v, spec=((0, 1, 2), (0, 1, 16))) for v in _products(x, 3)], []),  # parts
], ids=range(5))  # fmt: skip
def test_others_are_copied(parts_of):
    assert len(joins(parts_of, lambda c: TABLE["bmm"](TABLE["permute"](c, axes=(1, 0)), c))) == 1


def test_parts_of_less_than_a_line_and_results_are_copied():
    assert len(joins(lambda graph, x: (_products(x, 3), []), shape=(3, 3))) == 1
    assert len(joins(lambda graph, x: (_products(x, 3), []), after=lambda c: c)) == 1


def test_steps_stacked_and_read_have_eager_bits(pool):
    weft.manual_seed(0)
    x, w = weft.randn(48, 64), weft.randn(64, 64) / 8

    def steps(x, w):
        states = _states(x, 5, lambda x, k: (x @ w).tanh() if k % 2 else x.sin() @ w)
        stacked = weft.stack(states)
        halves = weft.cat([stacked.sum(1), (stacked * 2).amax(1), w.exp()])
        return (
            stacked.transpose(1, 2) @ stacked,
            halves @ w,
            weft.cat([states[1].sum(0), states[3][0], w[3] * 2.0]).cos(),
        )

    same(pool, steps, x, w)


def test_a_join_may_be_read_after_its_parts_and_they_after_it(pool):
    weft.manual_seed(1)
    x, w = weft.randn(32, 64), weft.randn(64, 64) / 8

    def read(x, w):
        a, b = x @ w, (x + 1) @ w
        joined = weft.cat([a, b])
        product = joined.t() @ joined
        later = (a @ product).tanh() + b
        changed = joined * 2 + 1
        return later, changed @ w, (changed - weft.cat([b, a])).t() @ changed, (a + 1).t() @ b

    same(pool, read, x, w)


def test_gradients_of_parts_are_pytorchs():
    torch = pytest.importorskip("torch")
    given = np.random.default_rng(0).standard_normal((2, 32, 32)).astype(np.float32)

    def derivative(library, x, w):
        x, w = (library.tensor(a, requires_grad=True) for a in (x, w))
        states, h = [], x
        for _ in range(4):
            h = (h @ w).tanh()
            states.append(h)
        loss = (library.stack(states) @ w).pow(2).mean()
        return library.autograd.grad(loss, [x, w])

    compiled = weft.compile(lambda x, w: derivative(weft, x, w))
    for _ in range(4):
        found = compiled(given[0], given[1] / 8)
    for a, b in zip(found, derivative(torch, given[0], given[1] / 8)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)
