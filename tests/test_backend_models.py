"""Well-known steps: equal to eager mode, and in as few kernels as their data dependences allow."""

import pytest
from backend_models import cross_entropy, gelu_chain, layer_norm, mlp_step, softmax
from graph_interpreter import check_equal

from weft.compiler.pipeline import compile_graph
from weft.compiler.plain import changed
from weft.compiler.target import AVX2, AVX512

NARROW = changed(AVX2, sweep_bytes=32)  # a vector of 32 bytes at a time

ROWS = [(64, 10), (5, 64), (3, 100), (2, 1000), (2, 2500), (130, 3), (300, 70)]


def _kernels(model, **options):
    return check_equal(*model, **options).plan.kernels


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("model", [softmax, layer_norm, gelu_chain])
@pytest.mark.parametrize("backward", [False, True])
def test_row_wise_chains_are_one_kernel(model, shape, backward):
    """And where threads share a sum of columns, one that adds its blocks."""
    assert sum(k.n_flops > 0 for k in _kernels(model(*shape, backward=backward))) == 1


@pytest.mark.parametrize("shape", [(64, 10), (256, 1000), (7, 130)])
def test_cross_entropy_and_its_gradient_are_three_kernels(shape):
    """The count of rows that are not ignored, the rows, and the mean."""
    assert len(_kernels(cross_entropy(*shape))) == 3


def test_mlp_step():
    """Per layer: the products, bias and relu, the mask with the bias gradient and bias update, the weight update."""
    kernels = _kernels(mlp_step(32, (20, 24, 16, 10)))
    kinds = [k.kind for k in kernels]
    assert kinds.count("bmm") == 8
    assert kinds.count("loop") == 10
    # Nothing is copied: the targets are checked in a kernel that comes before the first update.
    assert kinds.count("copy") == 0


def test_narrow_vectors_give_the_same_bits():
    check_equal(*mlp_step(9, (20, 24, 10)), target=NARROW)
    check_equal(*layer_norm(9, 100, backward=True), target=NARROW)


@pytest.mark.parametrize("backward", [False, True])
def test_rows_that_several_sweeps_read_are_asked_for_ahead(backward):
    """Of many rows, on targets that foresee little; results do not depend on it."""

    def asked(target, rows, columns):
        return compile_graph(layer_norm(rows, columns, backward=backward)[0], target=target).text.count("prefetch")

    assert asked(AVX2, 900, 768) > 0 == asked(AVX512, 900, 768)
    # What a level-2 cache holds, rows that registers hold, and rows that a level-1 cache does not hold twice.
    assert asked(AVX2, 30, 768) == asked(AVX2, 9000, 60) == asked(AVX2, 900, 7680) == 0
    check_equal(*layer_norm(101, 801, backward=backward), target=AVX2)


def test_a_wrong_target_changes_no_parameter():
    graph, arrays, scalars = mlp_step(8, (5, 7, 4))
    arrays[1][3] = 4
    check_equal(graph, arrays, scalars)
