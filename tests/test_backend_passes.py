"""Passes as text in, text out. Long results are golden files: read the difference before you update them."""

import pytest
from backend_models import cross_entropy, layer_norm, mlp_step, softmax

from weft.compiler import dtypes
from weft.compiler.decompose import decompose
from weft.compiler.fuse import fuse
from weft.compiler.graph import Graph, parse
from weft.compiler.join_parts import join_parts
from weft.compiler.kernels.loop import runs
from weft.compiler.legalize import legalize, settle
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import compile_graph
from weft.compiler.simplify import remove_dead, simplify

_MIXED = """
graph mixed {
  %0 = input() : float32[4, 3]
  %1 = input() : int64[3]
  %2 = constant() {value=2} : int64[] weak
  %3 = scalar() : float64[] weak
  %4 = add(%0, %1) : float32[4, 3]
  %5 = mul(%4, %2) : float32[4, 3]
  %6 = mul(%5, %3) : float32[4, 3]
  %7 = sum(%6) {axes=(0, 1), keepdim=True} : float32[1, 1]
  %8 = gt(%0, %7) : bool[4, 3]
  %9 = amax(%8) {axes=(0,), keepdim=False} : bool[3]
  return %7, %9
}
"""


def _body(graph):
    """The text of a graph without its first and last line."""
    return "\n".join(line.strip() for line in str(graph).splitlines()[1:-1])


def test_decompose(golden):
    graph = Graph("composites")
    x = graph.input((4, 5), dtypes.float32)
    graph.outputs = [TABLE["softmax"](x, axis=1), TABLE["var"](x, axes=(0, 1), keepdim=False, correction=1)]
    primitive, _ = decompose(graph)
    golden("decompose.txt", str(primitive.verify()))


def test_legalize(golden):
    legal, _ = legalize(parse(_MIXED))
    golden("legalize.txt", str(legal.verify()))


def test_every_pass_leaves_a_valid_graph():
    for model in (
        softmax(4, 5, backward=True),
        layer_norm(4, 5, backward=True),
        cross_entropy(4, 5),
        mlp_step(4, (3, 2)),
    ):
        graph = model[0]
        for run in (decompose, legalize, simplify, settle):
            graph, _ = run(graph)
            graph.verify()


def test_runs_of_axes():
    assert runs((0, 1, 3)) == [(0, 2), (3, 1)]
    assert runs(()) == []


def _reshaped(x, shape):
    return TABLE["reshape"](x, shape=shape)


def _turned(x):
    return TABLE["permute"](x, axes=(1, 0))


REWRITES = [
    ("x * 1 -> x", lambda x: TABLE["mul"](x, 1.0), []),
    ("1 * x -> x", lambda x: TABLE["mul"](x.graph.constant(1), x), []),
    ("x / 1 -> x", lambda x: TABLE["div"](x, 1.0), []),
    ("x - 0.0 -> x", lambda x: TABLE["sub"](x, 0.0), []),
    ("x - -0.0 stays: it turns -0.0 into 0.0", lambda x: TABLE["sub"](x, -0.0), ["full", "sub"]),
    ("x + 0.0 stays: it turns -0.0 into 0.0", lambda x: TABLE["add"](x, 0.0), ["full", "add"]),
    ("x / 4 -> x * 0.25", lambda x: TABLE["div"](x, 4.0), ["full", "mul"]),
    ("x / 3 stays: a third is not exact", lambda x: TABLE["div"](x, 3.0), ["full", "div"]),
    ("neg(neg(x)) -> x", lambda x: TABLE["neg"](TABLE["neg"](x)), []),
    ("cast to its own type -> x", lambda x: TABLE["cast"](x, dtype=dtypes.float32), []),
    ("reshape(reshape(x)) -> reshape(x)", lambda x: _reshaped(_reshaped(x, (6,)), (3, 2)), ["reshape"]),
    ("reshape back -> x", lambda x: _reshaped(_reshaped(x, (6,)), (2, 3)), []),
    ("permute back -> x", lambda x: TABLE["permute"](TABLE["permute"](x, axes=(1, 0)), axes=(1, 0)), []),
    (
        "f(permute(x), permute(y)) -> permute(f(x, y))",
        lambda x: TABLE["add"](_turned(x), _turned(TABLE["exp"](x))),
        ["exp", "add", "permute"],
    ),
    (
        "f(permute(x), y) stays",
        lambda x: TABLE["add"](_turned(x), _reshaped(TABLE["exp"](x), (3, 2))),
        ["permute", "exp", "reshape", "add"],
    ),
    ("slice of everything -> x", lambda x: TABLE["slice"](x, spec=((0, 1, 2), (0, 1, 3))), []),
    ("common subexpressions are one", lambda x: TABLE["mul"](TABLE["exp"](x), TABLE["exp"](x)), ["exp", "mul"]),
]  # fmt: skip


@pytest.mark.parametrize(("story", "make", "expected"), REWRITES, ids=[r[0] for r in REWRITES])
def test_simplify(story, make, expected):
    graph = Graph("rewrite")
    graph.outputs = [make(graph.input((2, 3), dtypes.float32))]
    legal, _ = legalize(graph)
    simple, _ = simplify(legal)
    names = [v.op.name for v in simple.verify().values if v.op.name not in ("input", "constant")]
    assert names == expected, story


def _scattered(x, part, spec):
    zeros = x.graph.apply(TABLE["full"], (0,), {"shape": x.shape, "dtype": x.dtype})
    return TABLE["slice_scatter"](zeros, part, spec=spec)


def _sum_of_parts(*specs, other=False):
    """x's slices put into zeros at the same places and added up, with exp(x) after the first if there is another."""
    graph = Graph("parts")
    x = graph.input((4, 3), dtypes.float32)
    total = None
    for spec in specs:
        part = _scattered(x, TABLE["slice"](x, spec=spec), spec)
        total = part if total is None else TABLE["add"](total, part)
        if other:
            total, other = TABLE["add"](total, TABLE["exp"](x)), False
    graph.outputs = [total]
    return graph


def _rows(start, length):
    return ((start, 1, length), (0, 1, 3))


@pytest.mark.parametrize(
    ("specs", "other", "names"),
    [
        ((_rows(2, 2), _rows(0, 2)), False, ["slice", "slice", "add", "add", "cat"]),
        ((_rows(0, 1), _rows(2, 1)), False, ["slice", "slice", "add", "full", "add", "full", "cat"]),
        ((_rows(0, 1), _rows(1, 3)), True, ["slice", "exp", "slice", "add", "add", "cat", "add"]),
    ],
    ids=["all rows", "some rows", "something else"],
)
def test_sums_of_parts_are_joins(specs, other, names):
    graph = _sum_of_parts(*specs, other=other)
    joined, _ = join_parts(graph)
    assert [
        v.op.name for v in remove_dead(joined)[0].verify().values if v.op.name not in ("input", "constant")
    ] == names


@pytest.mark.parametrize(
    "specs",
    [(_rows(0, 2), _rows(1, 2)), (_rows(0, 2), ((0, 1, 4), (1, 1, 1))), (((0, 2, 2), (0, 1, 3)), _rows(1, 1))],
    ids=["overlapping", "other axes", "steps"],
)
def test_other_sums_stay(specs):
    graph = _sum_of_parts(*specs)
    assert str(join_parts(graph)[0]) == str(graph)


def test_unused_values_go_but_not_those_that_may_fail():
    graph = Graph("unused")
    x, index = graph.input((5, 3), dtypes.float32), graph.input((2,), dtypes.int64)
    TABLE["exp"](x)
    TABLE["index_select"](x, index, axis=0)
    graph.outputs = [x]
    simple, _ = simplify(graph)
    assert [v.op.name for v in simple.values] == ["input", "input", "index_select"]


@pytest.mark.parametrize("n_products, axes, n_copies", [(4, (1, 0), 1), (9, (1, 0), 1), (3, (1, 0), 0), (9, (0, 1), 0)])
def test_what_many_products_read_across_is_turned_once(n_products, axes, n_copies):
    graph = Graph("steps")
    h, w = graph.input((2, 5), dtypes.float32), graph.input((5, 5), dtypes.float32)
    turned = TABLE["permute"](w, axes=axes)
    for _ in range(n_products):
        h = TABLE["tanh"](TABLE["bmm"](h, turned))
    graph.outputs = [h]
    settled, _ = settle(simplify(legalize(graph)[0])[0])
    settled.verify()
    copies = [v for v in settled.values if v.op.name == "clone"]
    rights = {v.operands[1] for v in settled.values if v.op.name == "bmm"}
    assert len(copies) == n_copies and len(rights) == 1
    assert not copies or rights == set(copies)


def test_settle_gives_every_result_a_value_of_its_own():
    graph = Graph("results")
    x = graph.input((2, 3), dtypes.float32)
    y = TABLE["neg"](x)
    turned = TABLE["reshape"](TABLE["permute"](y, axes=(1, 0)), shape=(6,))
    graph.outputs = [x, y, y, TABLE["reshape"](y, shape=(6,)), turned]
    settled, _ = settle(graph)
    assert _body(settled.verify()) == "\n".join([
        "%0 = input() : float32[2, 3]",
        "%1 = neg(%0) : float32[2, 3]",
        "%2 = permute(%1) {axes=(1, 0)} : float32[3, 2]",
        "%3 = clone(%2) : float32[3, 2]",
        "%4 = reshape(%3) {shape=(6,)} : float32[6]",
        "%5 = reshape(%1) {shape=(6,)} : float32[6]",
        "%6 = clone(%0) : float32[2, 3]",
        "%7 = clone(%1) : float32[2, 3]",
        "%8 = clone(%5) : float32[6]",
        "return %6, %1, %7, %8, %4",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("softmax", softmax(64, 10)),
        ("softmax_long_rows", softmax(8, 1000)),
        ("layer_norm_backward", layer_norm(300, 100, backward=True)),
        ("mlp_step", mlp_step(32, (20, 24, 10))),
    ],
)
def test_stages(golden, name, model):
    """The fusion groups with their refusals, and the loop nests."""
    texts = {}
    compile_graph(model[0], watch=texts.__setitem__)
    assert list(texts) == ["graph", "decomposed", "simplified", "fusion", "loops", "llvm"]
    golden(f"{name}.txt", "\n".join(texts[k] for k in ("simplified", "fusion", "loops")))


def _refusals(graph):
    settled, _ = settle(graph)
    return [r.reason for r in fuse(settled).refusals]


def test_refusals_say_why():
    graph = Graph("apart")
    x = graph.input((4, 6), dtypes.float32)
    y = TABLE["neg"](x)
    graph.outputs = [TABLE["bmm"](y, TABLE["permute"](y, axes=(1, 0)))]
    assert _refusals(graph) == ["bmm is a kernel of its own"]

    graph = Graph("apart")
    y = TABLE["neg"](graph.input((4, 4), dtypes.float32))
    graph.outputs = [TABLE["add"](y, TABLE["permute"](y, axes=(1, 0)))]
    assert _refusals(graph) == ["it is read in another order"]

    graph = Graph("apart")
    x = graph.input((4, 6), dtypes.float32)
    total = TABLE["sum"](x, axes=(0,), keepdim=True)
    graph.outputs = [TABLE["sub"](x, TABLE["expand"](total, shape=(4, 6)))]
    assert _refusals(graph) == ["the column sums are complete only after the last row"]
