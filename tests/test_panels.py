"""A large matrix that many products of few rows read is copied into panels once; no bit changes by it."""

import numpy as np
import pytest
from turn_taking import same, teams

import weft
from weft import nn
from weft.compiler import dtypes
from weft.compiler.graph import Graph
from weft.compiler.legalize import legalize, settle
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import compile_graph
from weft.compiler.simplify import simplify
from weft.compiler.target import AVX2, AVX512, GPU

pool = pytest.fixture(teams)


def products(count, rows, depth, columns, turned=False, dtype=dtypes.float32):
    """A graph of products that are no chain: rows of one array by the same matrix."""
    graph = Graph("steps")
    x = graph.input((count, rows, depth), dtype)
    w = graph.input((columns, depth) if turned else (depth, columns), dtype)
    right = TABLE["permute"](w, axes=(1, 0)) if turned else w
    left = [TABLE["slice"](x, spec=((k, 1, 1), (0, 1, rows), (0, 1, depth))) for k in range(count)]
    graph.outputs = [TABLE["bmm"](TABLE["reshape"](a, shape=(rows, depth)), right) for a in left]
    return graph


def settled(graph, target=AVX512):
    found, _ = settle(simplify(legalize(graph)[0])[0], target)
    found.verify()
    return [v for v in found.values if v.op.name == "product_of_panels"], found


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("element", "width"), [(dtypes.float32, 32), (dtypes.float64, 16)])
def test_what_many_products_of_few_rows_read_lies_in_panels(turned, element, width):
    found, graph = settled(products(4, 5, 200, 7 * 32, turned, element))
    assert len(found) == 4 and len({v.operands[1] for v in found}) == 1
    assert found[0].operands[1].shape == (7 * 32 // width, 200, width)
    assert [v.op.name for v in graph.values].count("clone") == 1


@pytest.mark.parametrize(
    ("sizes", "target"),
    [
        ((3, 5, 200, 224), AVX512),  # three products do not pay for the copy
        ((4, 1, 200, 224), AVX512),  # a product of one row is another routine
        ((4, 65, 200, 224), AVX512),  # many rows are worth packing for each
        ((4, 5, 200, 220), AVX512),  # no whole panels
        ((4, 5, 64, 256), AVX512),  # stays in a level-1 cache
        ((4, 5, 200, 224), GPU),
    ],
)
def test_others_are_read_as_they_are(sizes, target):
    found, graph = settled(products(*sizes), target)
    assert not found and [v.op.name for v in graph.values].count("bmm") == sizes[0]


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=lambda t: t.name)
def test_every_target_has_programs_with_panels(target):
    kernels = compile_graph(products(4, 5, 200, 224, True), target=target).plan.kernels
    found = [k for k in kernels if k.ops == ("product_of_panels",)]
    assert [k.domain for k in found] == [(5, 224)] * 4
    assert {k.n_flops for k in found} == {2 * 5 * 200 * 224}


@pytest.mark.parametrize(("rows", "depth", "columns"), [(5, 200, 224), (33, 520, 32), (64, 300, 96), (2, 1100, 480)])
def test_products_by_panels_have_the_bits_of_products(rows, depth, columns, pool):
    weft.manual_seed(0)
    x, w = weft.randn(5, rows, depth), weft.randn(columns, depth)
    v = weft.randn(depth, columns).double()

    def function(x, w, v):
        return (
            *(row @ w.t() for row in x),
            *(row.double() @ v for row in x),
            *(row.t().contiguous().t() @ w.t() for row in x),
        )

    same(pool, function, x, w, v)
    wanted = x[0].numpy().astype(np.float64) @ w.numpy().T.astype(np.float64)
    np.testing.assert_allclose(function(x, w, v)[0].numpy(), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_by_panels_have_pytorchs_derivatives(kind):
    import torch

    r = np.random.default_rng(0)
    given, cotangent = (r.standard_normal((6, 9, n)).astype(np.float32) for n in (20, 160))
    torch.manual_seed(0)
    model = getattr(torch.nn, kind)(20, 160)
    mine = getattr(nn, kind)(20, 160)
    mine.load_state_dict({k: weft.tensor(v.numpy()) for k, v in model.state_dict().items()})

    def derivatives(library, layer, x):
        out = layer(x)[0]
        return out, *library.autograd.grad(out, [x, *layer.parameters()], library.tensor(cotangent))

    expected = derivatives(torch, model, torch.tensor(given, requires_grad=True))
    compiled = weft.compile(lambda x: derivatives(weft, mine, x))
    x = weft.tensor(given, requires_grad=True)
    eager = derivatives(weft, mine, x)
    for _ in range(5):
        got = compiled(x)
    for a, b, c in zip(got, eager, expected):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
        np.testing.assert_allclose(a.detach().numpy(), c.detach().numpy(), rtol=2e-4, atol=2e-4)
