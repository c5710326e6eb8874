"""Programs as the runtime calls them: commits and their hazards, checks, results that share a value, the plan."""

import ctypes
import re

import numpy as np
from backend_models import mlp_step
from graph_interpreter import Program, check_equal

from weft.compiler import dtypes
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import ARRAY_DATA_OFFSET, compile_graph

float32, int64 = dtypes.float32, dtypes.int64
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def _copies(program):
    return [k.kind for k in program.plan.kernels].count("copy")


def _groups(text):
    """function -> the attributes it is made with"""
    groups = dict(re.findall(r"^attributes (#\d+) = \{ (.*) \}$", text, re.MULTILINE))
    return {name: groups[group] for name, group in re.findall(r"^define .*@(\w+)\(.*\) (#\d+) \{$", text, re.MULTILINE)}


def test_llvm_takes_its_time_for_kernels_alone_where_somebody_waits():
    graph = mlp_step(8, (6, 5, 4))[0]
    awaited, exported = (_groups(compile_graph(graph, for_itself=x).text) for x in (False, True))
    quickly = {name for name, attributes in awaited.items() if "optnone" in attributes}
    assert quickly == {"body", "weft_program"} and {name[0] for name in awaited.keys() - quickly} == {"k"}
    assert awaited.keys() == exported.keys() and "optnone" not in str(exported)


def test_update_in_place():
    graph = Graph()
    x, rate = graph.input((3, 4), float32), graph.scalar(dtypes.float64)
    graph.commits = [(x, TABLE["sub"](x, TABLE["mul"](x, rate)))]
    program = check_equal(graph, [X], [0.1])
    assert _copies(program) == 0 and program.plan.arena_bytes == 0


def test_others_read_the_old_value():
    graph = Graph()
    x = graph.input((3, 4), float32)
    new = TABLE["neg"](x)
    graph.outputs = [TABLE["sum"](x, axes=(0, 1), keepdim=False), TABLE["bmm"](x, TABLE["permute"](new, axes=(1, 0)))]
    graph.commits = [(x, new)]
    check_equal(graph, [X])


def test_a_transposed_update_goes_through_a_copy():
    graph = Graph()
    x = graph.input((4, 4), float32)
    graph.commits = [(x, TABLE["add"](x, TABLE["permute"](x, axes=(1, 0))))]
    assert _copies(check_equal(graph, [np.arange(16, dtype=np.float32).reshape(4, 4)])) == 1


def test_rows_that_read_twice_go_through_a_copy():
    """Softmax reads a row in several passes and writes in the last; with x updated by it, the row is still complete."""
    graph = Graph()
    x = graph.input((3, 4), float32)
    graph.commits = [(x, TABLE["softmax"](x, axis=1))]
    check_equal(graph, [X])


def test_two_inputs_change_places():
    graph = Graph()
    x, y = graph.input((3, 4), float32), graph.input((3, 4), float32)
    graph.commits = [(x, y), (y, x)]
    check_equal(graph, [X, X + 1])


def test_strided_target():
    graph = Graph()
    x = graph.input((3, 4), float32, strides=(1, 3))
    graph.commits = [(x, TABLE["exp"](x))]
    check_equal(graph, [X])


def test_one_value_many_results():
    graph = Graph()
    x = graph.input((3, 4), float32)
    y = TABLE["exp"](x)
    graph.outputs = [y, y, x, TABLE["permute"](y, axes=(1, 0)), graph.apply(TABLE["full"], (2.0,), _FULL)]
    graph.commits = [(x, y)]
    check_equal(graph, [X])


_FULL = {"shape": (2, 3), "dtype": float32}


def test_step_counter_is_read_before_it_is_counted():
    graph = Graph()
    step, x = graph.input((), float32), graph.input((3, 4), float32)
    following = TABLE["add"](step, 1.0)
    graph.outputs = [TABLE["div"](x, following), TABLE["mul"](x, step)]
    graph.commits = [(step, following)]
    check_equal(graph, [np.float32(3).reshape(()), X])


def test_a_failed_check_leaves_every_commit_as_it_was():
    for bad in (-1, 5):
        graph = Graph()
        x, index = graph.input((5, 3), float32), graph.input((4,), int64)
        picked = TABLE["index_select"](x, index, axis=0)
        graph.commits = [(x, TABLE["index_add"](TABLE["neg"](x), index, picked, axis=0))]
        graph.outputs = [TABLE["sum"](picked, axes=(0,), keepdim=False)]
        check_equal(graph, [np.ones((5, 3), np.float32), np.array([0, 1, bad, 2])])


def test_updates_wait_for_no_check_of_positions_that_pooling_computes():
    """They would all be written after the last pooling's gradient, when no gradient is in a cache any more."""
    graph = Graph()
    x, g, weight, rate = (graph.input(s, float32) for s in ((2, 3, 7, 9), (2, 3, 4, 5), (3, 4), (3, 4)))
    how = {"kernel": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    placed = TABLE["max_pool"].vjp_rule(0)(g, TABLE["max_pool"](x, **how), x, **how)
    graph.commits = [(weight, TABLE["sub"](weight, rate))]
    graph.outputs = [placed]
    image = np.random.default_rng(0).standard_normal((2, 3, 7, 9)).astype(np.float32)
    image[0, 0, :3], image[1, 1, 2, 2], image[1, 2] = -np.inf, np.nan, 0
    program = check_equal(graph, [image, np.ones((2, 3, 4, 5), np.float32), X, X])
    assert "i1 @k" not in program.compiled.text


def test_unused_indexing_is_still_checked():
    graph = Graph()
    x, index = graph.input((5, 3), float32), graph.input((2,), int64)
    TABLE["index_select"](x, index, axis=0)
    graph.outputs = [x]
    check_equal(graph, [np.ones((5, 3), np.float32), np.array([0, 7])])


def test_reading_from_nothing_fails():
    graph = Graph()
    x, index = graph.input((0, 3), float32), graph.input((2,), int64)
    graph.outputs = [TABLE["index_select"](x, index, axis=0)]
    check_equal(graph, [np.ones((0, 3), np.float32), np.array([0, 0])])


def test_a_plan_counts_what_its_program_takes_and_gives():
    plan = compile_graph(mlp_step(8, (5, 7, 4))[0]).plan
    assert plan.n_inputs == 10 and plan.n_outputs == 1 and plan.n_scalars == 1


def test_groups_name_the_kernel_of_recorded_values():
    graph = Graph()
    x = graph.input((4, 6), float32)
    y = TABLE["gelu"](x, approximate="tanh")
    z = TABLE["bmm"](y, TABLE["permute"](y, axes=(1, 0)))
    graph.outputs = [z]
    plan = compile_graph(graph).plan
    assert (plan.groups[y.number], plan.groups[z.number]) == (0, 1)


def test_equal_kernels_are_emitted_once():
    """Three layers of one size: their kernels differ in pointers only."""
    text = compile_graph(mlp_step(8, (16, 16, 16, 16, 16))[0]).text
    calls = [line.split("@")[1].split("(")[0] for line in text.splitlines() if "call" in line and "@k" in line]
    assert len(set(calls)) < len(calls)


def test_the_offset_of_array_data():
    x = np.zeros(3)
    assert ctypes.c_void_p.from_address(id(x) + ARRAY_DATA_OFFSET).value == x.ctypes.data


def test_same_graph_same_text():
    assert compile_graph(mlp_step(8, (5, 7, 4))[0]).text == compile_graph(mlp_step(8, (5, 7, 4))[0]).text


def test_an_empty_program():
    assert Program(Graph())([]) == []
