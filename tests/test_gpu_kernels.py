"""Kernels for a GPU, as far as they can be proved without one: run thread by thread on this machine they have the bits
of eager mode, and NVIDIA's assembler takes their PTX."""

import re
from types import SimpleNamespace

import backend_models as models
import numpy as np
import pytest
from gpu_grid import Divergence, Grid
from gpu_parts import assembled, check_on_grid, graph_of, ptxas
from random_graphs import RandomGraph

from weft.compiler import dtypes
from weft.compiler.gpu import NotForGpu, compile_for_gpu, joined
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.target import GPU
from weft.runtime.code import jit

float32, float64, int64 = dtypes.float32, dtypes.float64, dtypes.int64
NUMPY_ONLY = {"integer_pow": "computed by NumPy"}
# What no kernel for a GPU does.
REMAINDERS = {"floor_divide", "fmod", "remainder"}
ELEMENTWISE = [
    name
    for name, op in TABLE.items()
    if op.samples is not None and op.kind == "elementwise" and name not in {*NUMPY_ONLY, *REMAINDERS}
]
OTHER = [
    name
    for name, op in TABLE.items()
    if op.samples is not None and op.kind in ("reduction", "movement", "source", "view", "indexing")
]
PRODUCTS = ["bmm", "matmul", "linear"]
COMPOSITES = str.split("""
    embedding nll_loss one_hot softmax log_softmax layer_norm gelu softplus logsumexp var std cross logaddexp silu elu
    clamp lerp hypot norm windows window_sum max_pool max_pool_index batch_norm
    convolution convolution_input convolution_weight
""")


def test_most_of_the_table_is_here():
    assert len(ELEMENTWISE) > 55 and len(OTHER) > 20
    assert {*NUMPY_ONLY, *REMAINDERS} <= TABLE.keys()


# --- on an emulated grid ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("floating", [float32, float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", [*ELEMENTWISE, *OTHER, *PRODUCTS])
def test_an_op_and_its_gradients_have_the_bits_of_eager_mode(name, floating):
    with np.errstate(all="ignore"):
        check_on_grid(*graph_of(name, floating))


@pytest.mark.parametrize("name", [name for name in COMPOSITES if name in TABLE])
def test_composites_and_their_gradients(name):
    with np.errstate(all="ignore"):
        check_on_grid(*graph_of(name, float32))


@pytest.mark.parametrize("name", ["add", "exp", "where", "sum", "amax", "expand", "bmm"])
def test_operands_that_lie_backwards_and_apart(name):
    def spread_out(x):
        memory = np.zeros([2 * d for d in x.shape[::-1]], x.dtype)
        view = memory.transpose()[tuple(slice(None, None, 2) for _ in x.shape)][..., ::-1] if x.ndim else memory
        view[...] = x
        return view

    check_on_grid(*graph_of(name, float32, spread_out))


ROWS = [(5, 10), (3, 33), (2, 128), (4, 513), (3, 2048), (2, 5000), (700, 40)]


@pytest.mark.parametrize("shape", ROWS, ids=str)
@pytest.mark.parametrize("model", [models.softmax, models.layer_norm, models.gelu_chain], ids=lambda f: f.__name__)
def test_chains_of_rows_and_their_backward(model, shape):
    """Rows in registers and rows that are walked, tails, several blocks of sums, more rows than one block has warps."""
    check_on_grid(*model(*shape))
    check_on_grid(*model(*shape, backward=True))


def test_rows_and_columns_are_summed_by_warps_of_their_own():
    """The gradient of layer norm: a warp for each of its 300 rows, and one for 32 of its 700 columns."""
    program = check_on_grid(*models.layer_norm(300, 700, backward=True))
    assert sorted(launch.blocks for launch in program.launches) == [6, 6, 75]


def test_blocks_of_sums_are_for_many_warps_where_rows_or_columns_are_few():
    graph = Graph("sums")
    x = graph.input((4, 100_000), float32)
    graph.outputs = [TABLE["sum"](x, axes=(1,), keepdim=False)]
    program = check_on_grid(graph, [np.random.default_rng(0).standard_normal((4, 100_000)).astype(np.float32)])
    # 49 blocks of 2048 elements, then the sums of each row.
    assert [launch.blocks for launch in program.launches] == [13, 1]


@pytest.mark.parametrize("shape", [(7,), (100, 3), (3, 1000), (4096, 2), (300, 65), (1, 100_000), (20, 3, 70)], ids=str)
def test_sums_over_rows_columns_and_everything(shape):
    random = np.random.default_rng(0)
    for floating in (float32, float64):
        graph = Graph("sums")
        x = graph.input(shape, floating)
        for op in (TABLE["sum"], TABLE["amax"]):
            for axes in dict.fromkeys([(0,), (len(shape) - 1,), tuple(range(len(shape)))]):
                graph.outputs.append(graph.apply(op, (x,), {"axes": axes, "keepdim": False}))
        check_on_grid(graph, [random.standard_normal(shape).astype(floating.numpy)])


def test_scans_along_columns():
    graph = Graph("scan")
    x = graph.input((50, 70), float32)
    graph.outputs = [graph.apply(TABLE["cumsum"], (x,), {"axis": 0})]
    check_on_grid(graph, [np.random.default_rng(0).standard_normal((50, 70)).astype(np.float32)])


@pytest.mark.parametrize("block", range(6))
def test_random_graphs(block):
    for seed, n_ops in [*[(s, 14) for s in range(15 * block, 15 * block + 15)], (1000 + block, 35)]:
        made = RandomGraph(seed, n_ops)
        try:
            with np.errstate(all="ignore"):
                check_on_grid(made.graph, made.arrays, made.numbers)
        except Exception as error:
            raise AssertionError(f"RandomGraph({seed}, {n_ops}) fails:\n{made.graph}") from error


@pytest.mark.parametrize("floating", [float32, float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    "left, right", [((1, 1), (1, 33)), ((8, 40), (40, 32)), ((9, 3), (3, 65)), ((2, 3, 17, 5), (2, 3, 5, 31))], ids=str
)
def test_products_whose_tiles_are_not_full_and_whose_operands_are_turned(left, right, floating):
    def swapped(x):
        *batch, first, second = range(len(x.shape))
        return graph.apply(TABLE["permute"], (x,), {"axes": (*batch, second, first)})

    graph, random = Graph("product"), np.random.default_rng(0)
    shapes = [left, right, left[:-2] + left[:-3:-1], right[:-2] + right[:-3:-1]]
    x, y, x_turned, y_turned = [graph.input(shape, floating) for shape in shapes]
    x_turned, y_turned = swapped(x_turned), swapped(y_turned)
    graph.outputs = [TABLE["bmm"](*pair) for pair in ((x, y), (x_turned, y), (x, y_turned), (x_turned, y_turned))]
    check_on_grid(graph, [random.standard_normal(shape).astype(floating.numpy) for shape in shapes])


def test_products_of_many_matrices_are_spread_over_all_warps():
    graph = Graph("many")
    x, y = graph.input((GPU.most_warps + 5, 1, 2), float32), graph.input((GPU.most_warps + 5, 2, 1), float32)
    graph.outputs = [TABLE["bmm"](x, y)]
    arrays = [np.random.default_rng(k).standard_normal(v.shape).astype(np.float32) for k, v in enumerate((x, y))]
    (launch,) = check_on_grid(graph, arrays).launches
    assert launch.blocks * launch.threads // 32 <= GPU.most_warps


def test_large_work_is_spread_over_more_units_than_there_are_warps():
    few = GPU.most_warps
    graph = Graph("wide")
    x = graph.input((40 * few,), float32)
    graph.outputs = [graph.apply(TABLE["mul"], (x, x), {})]
    program = check_on_grid(graph, [np.arange(40 * few, dtype=np.float32)])
    (launch,) = program.launches
    # 10,240 units of 32 elements: two for each warp.
    assert launch.blocks * launch.threads // 32 == 10_240 // 2


def test_numbers_known_at_run_time_and_memory_that_is_changed():
    graph = Graph("update")
    x, momentum = graph.input((1000,), float32), graph.input((1000,), float32)
    rate = graph.scalar(float64)
    new = TABLE["add"](TABLE["mul"](momentum, 0.9), x)
    graph.commits = [(momentum, new), (x, TABLE["sub"](x, TABLE["mul"](new, rate)))]
    graph.outputs = [TABLE["sum"](new, axes=(0,), keepdim=False)]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(1000).astype(np.float32) for _ in range(2)]
    check_on_grid(graph, arrays, (0.125,))


def test_conversions_to_integers_of_numbers_that_do_not_fit():
    for dtype in (dtypes.int32, int64):
        for floating in (float32, float64):
            graph = Graph("cast")
            x = graph.input((6,), floating)
            graph.outputs = [graph.apply(TABLE["cast"], (x,), {"dtype": dtype})]
            with np.errstate(invalid="ignore"):
                check_on_grid(graph, [np.array([1e30, -1e30, np.inf, -np.inf, np.nan, -2.9], floating.numpy)])


@pytest.mark.parametrize("shape", [(5, 10), (300, 1000)], ids=str)
def test_a_loss_that_checks_its_classes(shape):
    graph, arrays, _ = models.cross_entropy(*shape)
    assert check_on_grid(graph, arrays).checks


def looked_up():
    """Rows of a table that is then changed: found at positions that are checked."""
    graph = Graph("looked up")
    table, where = graph.input((40, 100), float32), graph.input((70,), int64)
    rows = graph.apply(TABLE["index_select"], (table, where), {"axis": 0})
    graph.outputs = [TABLE["sum"](rows, axes=(1,), keepdim=False)]
    graph.commits = [(table, TABLE["mul"](table, 2.0))]
    random = np.random.default_rng(0)
    return graph, [random.standard_normal((40, 100)).astype(np.float32), random.integers(0, 40, 70)]


def test_elements_at_positions_that_are_checked():
    graph, arrays = looked_up()
    program = check_on_grid(graph, arrays)
    # Not one warp for all of it.
    assert max(launch.blocks for launch in program.launches) > 5


@pytest.mark.parametrize("position", [-1, 40, 1 << 40])
def test_nothing_is_changed_where_a_check_fails(position):
    graph, (table, where) = looked_up()
    where[33] = position
    before, grid = table.copy(), Grid(compile_for_gpu(graph))
    grid([table, where], [np.empty(70, np.float32)])
    assert grid.failed and np.array_equal(table, before)
    where[33] = 39
    grid([table, where], [np.empty(70, np.float32)])
    assert not grid.failed and np.array_equal(table, 2 * before)


def test_nothing_to_do_is_not_launched():
    graph = Graph("empty")
    x = graph.input((0, 3), float32)
    graph.outputs = [graph.apply(TABLE["exp"], (x,), {})]
    assert check_on_grid(graph, [np.zeros((0, 3), np.float32)]).launches == ()


@pytest.mark.parametrize("lane", [0, 5, 31])
def test_the_grid_finds_threads_that_part(lane):
    text = """define ptx_kernel void @parts(ptr %a) #0 {
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %lane = and i32 %thread, 31
  %one = icmp eq i32 %lane, LANE
  br i1 %one, label %out, label %together
together:
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  br label %out
out:
  ret void
}
attributes #0 = { nounwind }
"""
    launch = SimpleNamespace(kernel="parts", blocks=1, threads=32, operands=())
    grid = Grid(SimpleNamespace(text=text.replace("LANE", str(lane))))
    with pytest.raises(Divergence):
        grid.launch(launch, [0])


# --- refusals ---------------------------------------------------------------------------------------------------------
def test_what_has_no_kernel_is_named():
    graph = Graph("sorted")
    x = graph.input((4, 4), float32)
    y = TABLE["exp"](x)
    graph.outputs = [TABLE["sin"](graph.apply(TABLE["cumsum"], (y,), {"axis": 1}))]
    with pytest.raises(NotForGpu, match="^cumsum_rows is computed by a routine, and only") as found:
        compile_for_gpu(graph)
    # Neither the exp before it nor the sin after it.
    assert graph.values[found.value.number].op.name == "cumsum"


@pytest.mark.parametrize("name", sorted(REMAINDERS))
def test_an_inexact_remainder_is_refused(name):
    with pytest.raises(NotForGpu, match="exact remainder of floats"):
        compile_for_gpu(graph_of(name, float32)[0])


# --- PTX --------------------------------------------------------------------------------------------------------------
def texts_of(names, floating):
    return joined([compile_for_gpu(graph_of(name, floating)[0], name=f"{name}_").text for name in names])


@pytest.fixture(scope="module", params=[float32, float64], ids=["float32", "float64"])
def every_kernel(request):
    return texts_of([*ELEMENTWISE, *OTHER, *PRODUCTS], request.param)


def test_every_operation_of_floats_is_rounded_as_on_a_cpu(every_kernel):
    """No contraction of products and sums, no approximate division or root, no flushing of small numbers."""
    text = jit.ptx(every_kernel, "sm_80")
    found = set(
        re.findall(r"\b((?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos)\.[a-z0-9.]*f(?:32|64))", text)
    )
    assert {"add.rn", "mul.rn", "fma.rn", "div.rn", "sqrt.rn"} <= {name.rpartition(".")[0] for name in found}
    assert all(name.split(".")[1] == "rn" for name in found), found
    assert not re.search(r"\.ftz|\.approx|\.full", text)
    assert "ld.global" in text and "st.global" in text and not re.search(r"\bst\.[bu]", text)


@pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed: it is in the package nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("architecture", jit.PTX_ARCHITECTURES)
def test_the_assembler_takes_every_kernel(every_kernel, architecture, tmp_path):
    found = assembled(jit.ptx(every_kernel, architecture), architecture, tmp_path)
    assert len(found) >= len(ELEMENTWISE)
    registers, spilled = zip(*found.values())
    # Of 255. The assembler moves a word or two to memory where that leaves room for more warps: 24 bytes at most.
    assert max(registers) <= 128 and max(spilled) <= 32, sorted(found.items(), key=lambda kernel: kernel[1])[-3:]
