"""Random graphs: compiled equal to eager, bit for bit. A failure prints the graph, which parses back."""

import numpy as np
import pytest
from graph_interpreter import check_equal
from random_graphs import RandomGraph

from weft.compiler.graph import parse
from weft.compiler.plain import changed
from weft.compiler.target import AVX2

NARROW = changed(AVX2, sweep_bytes=32)  # a vector of 32 bytes at a time


def _check(seed, n_ops, **options):
    made = RandomGraph(seed, n_ops)
    try:
        with np.errstate(all="ignore"):
            check_equal(made.graph, made.arrays, made.numbers, **options)
    except Exception as error:
        raise AssertionError(f"RandomGraph({seed}, {n_ops}) fails:\n{made.graph}") from error


@pytest.mark.parametrize("block", range(10))
def test_small_graphs(block):
    for seed in range(20 * block, 20 * block + 20):
        _check(seed, 14)


@pytest.mark.parametrize("block", range(6))
def test_larger_graphs(block):
    for seed in range(1000 + 15 * block, 1000 + 15 * block + 15):
        _check(seed, 35)


def test_narrow_vectors():
    for seed in range(2000, 2030):
        _check(seed, 25, target=NARROW)


def test_their_text_parses_back():
    for seed in range(50):
        graph = RandomGraph(seed).graph
        assert str(parse(str(graph))) == str(graph)
