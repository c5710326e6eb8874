"""Stores that go past the caches (compiler/emit/streams.py): where they are, and that they change no bit."""

import numpy as np
import pytest
from backend_models import gelu_chain, layer_norm, softmax
from graph_interpreter import check_equal

import weft
from weft.compiler.dtypes import float32
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import compile_graph
from weft.compiler.plain import changed
from weft.compiler.target import AVX2, AVX512

EAGER_TO = changed(AVX2, streams_from_bytes=1 << 12)


def _count(graph, target):
    return compile_graph(graph, target=target).text.count("!nontemporal")


def test_results_too_large_for_a_cache_are_streamed_on_targets_that_gain_by_it():
    large, small = layer_norm(4096, 768, backward=True)[0], layer_norm(900, 768, backward=True)[0]
    assert _count(large, AVX2) > 0 == _count(large, AVX512) == _count(small, AVX2)


def test_rows_that_begin_in_the_middle_of_lines_are_not():
    assert _count(layer_norm(64, 784)[0], EAGER_TO) > 0 == _count(layer_norm(64, 785)[0], EAGER_TO)


def _two_results(n):
    graph = Graph("two_results")
    x, y = (graph.input((n,), float32) for _ in range(2))
    graph.outputs = [TABLE["add"](x, y), TABLE["mul"](x, y)]
    return graph, [np.arange(n, dtype=np.float32) / (k + 3) for k in range(2)]


def test_two_results_that_take_turns_are_not():
    graph, arrays = _two_results(5000)
    assert _count(graph, EAGER_TO) == 0
    graph.outputs = graph.outputs[:1]
    assert _count(graph, EAGER_TO) > 0
    check_equal(graph, arrays, target=EAGER_TO)


@pytest.mark.parametrize("model", [layer_norm, softmax, gelu_chain])
@pytest.mark.parametrize("shape", [(33, 784), (70, 272), (3, 5008), (40, 785)])
def test_bits_are_the_same(model, shape):
    for backward in (False, True):
        check_equal(*model(*shape, backward=backward), target=EAGER_TO)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("first", [0, 1, 16])
def test_results_may_begin_anywhere_in_memory(n_threads, first):
    """What the caller owns need not begin at a line: as it does, or not, the same is written."""
    rows, columns = 2800, 1024  # 11 MB
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    memory = np.zeros(rows * columns + 64, np.float32)
    begin = -memory.ctypes.data % 64 // 4 + first
    out = weft.from_numpy(memory[begin : begin + x.size].reshape(x.shape))
    before = weft.get_num_threads()
    weft.set_num_threads(n_threads)
    try:
        double = weft.compile(lambda x, out: out.copy_(x * 2))
        for factor in (1, 3, 5):
            double(weft.tensor(x * factor), out)
            assert np.array_equal(out.numpy(), x * factor * 2)
            assert not memory[:begin].any() and not memory[begin + x.size :].any()
            weft.add(weft.tensor(x), factor, out=out)
            assert np.array_equal(out.numpy(), x + np.float32(factor))
    finally:
        weft.set_num_threads(before)
