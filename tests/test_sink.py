"""Factors of derivatives are computed where they are used, from what is in memory anyway."""

import numpy as np
import pytest

import weft
from weft.compiler.fuse import fuse
from weft.compiler.graph import parse
from weft.compiler.legalize import legalize, settle
from weft.compiler.simplify import simplify


def _groups(*lines, result):
    """The ops of each loop of a graph on two matrices; a product stands between what comes before and after it."""
    inputs = ["%0 = input() : float32[8, 8]", "%1 = input() : float32[8, 8]"]
    text = "\n  ".join(["graph factors {", *inputs, *lines, f"return {result}"]) + "\n}\n"
    graph = settle(simplify(legalize(parse(text))[0])[0])[0]
    return [sorted(v.op.name for v in g.values) for g in fuse(graph).groups if g.kind == "loop"]


def _line(number, text):
    return f"%{number} = {text} : float32[8, 8]"


_TANH, _SQUARE = _line(2, "tanh(%0)"), _line(3, "mul(%2, %2)")
_PRODUCT = _line(4, "bmm(%2, %1)")


def test_a_factor_goes_to_the_loop_after_the_product():
    lines = _TANH, _SQUARE, _PRODUCT, _line(5, "mul(%4, %3)"), _line(6, "add(%5, %2)")
    assert _groups(*lines, result="%6") == [["tanh"], ["add", "mul", "mul"]]


def test_ops_before_the_factor_go_with_it():
    lines = _TANH, _SQUARE, _PRODUCT, _line(5, "sub(%2, %3)"), _line(6, "mul(%4, %5)"), _line(7, "add(%6, %2)")
    assert _groups(*lines, result="%7") == [["tanh"], ["add", "mul", "mul", "sub"]]


@pytest.mark.parametrize(
    "lines, result",
    [
        ([_TANH, _SQUARE, _PRODUCT, _line(5, "mul(%4, %3)")], "%5, %3"),
        ([_TANH, _line(3, "exp(%2)"), _PRODUCT, _line(5, "mul(%4, %3)")], "%5"),
        ([_TANH, _SQUARE, _PRODUCT, _line(5, "mul(%4, %3)"), _line(6, "bmm(%5, %3)")], "%6"),
    ],
    ids=["a result", "dear", "read by a product too"],
)
def test_what_is_needed_elsewhere_or_dear_stays(lines, result):
    first, second = _groups(*lines, result=result)
    assert len(first) > 1 and len(second) == 1


def test_what_would_need_more_memory_stays():
    """Of three that the other loop does not read, none is read for one that it does."""
    sums = [_line(k, f"{op}(%0)") for k, op in ((2, "tanh"), (3, "exp"), (4, "sin"))]
    factor = _line(5, "add(%2, %3)"), _line(6, "add(%5, %4)")
    products = _line(7, "bmm(%2, %3)"), _line(8, "bmm(%7, %4)"), _line(9, "mul(%8, %6)")
    first, second = _groups(*sums, *factor, *products, result="%9")
    assert second == ["mul"] and first.count("add") == 2


def test_steps_of_networks_have_equal_bits():
    weft.manual_seed(0)
    layers = [weft.nn.Linear(24, 24) for _ in range(4)]
    x = weft.randn(16, 24)

    def step(x):
        h = x
        for layer, function in zip(layers, (weft.tanh, weft.sigmoid, weft.nn.functional.silu, weft.nn.functional.gelu)):
            h = function(layer(h))
        loss = (h * h).sum()
        return loss, *weft.autograd.grad(loss, [p for layer in layers for p in layer.parameters()])

    compiled = weft.compile(step)
    for _ in range(3):
        for a, b in zip(step(x), compiled(x)):
            assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


def test_a_parameter_that_changes_in_between_is_read_before():
    """The factor is made of an input which the program writes to: it has to be read while it is what it was."""
    w, rng = weft.ones(8, 8), np.random.default_rng(0)
    x, y = (weft.tensor(rng.standard_normal((8, 8), dtype=np.float32)) for _ in range(2))

    def step(x, y):
        factor = w * w
        product = (w + x) @ y
        w.sub_(product * 0.01)
        return product * factor

    expected_w, found = weft.ones(8, 8), []
    expected = []
    for _ in range(3):
        factor, product = expected_w * expected_w, (expected_w + x) @ y
        expected_w = expected_w - product * 0.01
        expected.append((product * factor).numpy().tobytes())
    compiled = weft.compile(step)
    for _ in range(3):
        found.append(compiled(x, y).numpy().tobytes())
    assert found == expected and w.numpy().tobytes() == expected_w.numpy().tobytes()


@pytest.mark.parametrize("shape", [(4,), (3, 1), (2, 1, 4), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("source", ["rand", "arange", "full"])
def test_ops_that_make_a_row_again_and_again_stay_where_there_is_a_loop_for_it(shape, source):
    """The sum of all elements is one run, in which no row of random numbers can be repeated."""
    made = {
        "rand": lambda: weft.rand(*shape),
        "arange": lambda: weft.arange(float(np.prod(shape))).view(shape),
        "full": lambda: weft.full(shape, 0.5),
    }[source]
    x = weft.tensor(np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32))

    def f(x):
        y = x * 2.0
        return (y * made()).sum(), y, ((y + made()) * x).mean()

    compiled, results = weft.compile(f), []
    for call in (f, compiled, compiled):
        weft.manual_seed(3)
        results.append([t.tolist() for t in call(x)])
    assert results[0] == results[1]
    weft.manual_seed(3)
    assert [t.tolist() for t in weft.compile(f)(x)] == results[0] == results[2]
