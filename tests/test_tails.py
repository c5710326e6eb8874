"""The ends of rows, stored in pieces where masks are slow (compiler/emit/tails.py)."""

import numpy as np
import pytest
from graph_interpreter import check_equal

from weft.compiler import dtypes
from weft.compiler.emit.builder import Module
from weft.compiler.emit.gemm import emit_gemm
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import compile_graph
from weft.compiler.target import AVX2, AVX512


def _rows(n, dtype=dtypes.float32):
    """Sums, a comparison and sums of columns of rows of n elements."""
    graph = Graph("rows")
    x, y = graph.input((37, n), dtype), graph.input((n,), dtype)
    total = TABLE["add"](x, y)
    graph.outputs = [total, TABLE["gt"](total, x), TABLE["sum"](total, axes=(0,), keepdim=False)]
    arrays = [np.random.default_rng(k).standard_normal(s).astype(dtype.numpy) for k, s in enumerate(((37, n), (n,)))]
    return graph, arrays


def _masked(text):
    return text.count("call void @llvm.masked.store")


@pytest.mark.parametrize("n", [10, 71])
def test_no_masks_where_they_are_slow(n):
    texts = [compile_graph(_rows(n)[0], target=target).text for target in (AVX2, AVX512)]
    assert _masked(texts[0]) == 0 < _masked(texts[1])


def test_products_of_any_width_have_none():
    strips = [[f for f in _functions(t) if "_strip" in f.split("(")[0]] for t in map(_gemm, (AVX2, AVX512))]
    assert [sum(map(_masked, s)) > 0 for s in strips] == [False, True]


def _gemm(target):
    module = Module(target)
    emit_gemm(module, "f32", target)
    return str(module)


def _functions(text):
    return text.split("\ndefine ")[1:]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("n", [*range(1, 34), 40, 71])
def test_every_width(n, dtype):
    check_equal(*_rows(n, dtype), target=AVX2)
