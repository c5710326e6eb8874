"""Drawings: what becomes a box and an arrow, that boxes never overlap, and that the texts are well formed."""

import base64
import re
import struct
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import nn, visualize
from weft.compiler.graph import parse
from weft.runtime.code import jit
from weft.visualize.charts import ticks
from weft.visualize.diagram import Box, Diagram
from weft.visualize.graphs import diagram_of_graph
from weft.visualize.layout import place, ranks
from weft.visualize.roof import _text as roof_text
from weft.visualize.svg import render
from weft.visualize.timing import with_stamps

GRAPH = """graph step {
  %0 = input() : float32[4, 3]
  %1 = input() : float32[3]
  %2 = scalar() : float64[] weak
  %3 = mul(%0, %1) : float32[4, 3]
  %4 = constant() {value=2.5} : float64[] weak
  %5 = add(%3, %4) : float32[4, 3]
  %6 = sum(%5) {axes=(0, 1), keepdim=False} : float32[]
  %7 = sum(%0) {axes=(0,), keepdim=False} : float32[3]
  %8 = mul(%7, %2) : float32[3]
  %9 = sub(%1, %8) : float32[3]
  commit %1 <- %9
  return %6, %7
}
"""


def arrows_of(diagram):
    titles = {box.key: box.title for box in diagram.boxes}
    return {(titles[a.source], titles[a.target]) for a in diagram.arrows}


def texts_of(svg):
    root = ElementTree.fromstring(svg)
    return ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]


def trained(n_steps=3):
    """A compiled training step that has run, its model and its optimizer."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(n_steps):
        step(weft.ones(4, 6), weft.zeros(4, dtype=weft.int64))
    return step, model, optimizer


# --- graphs ----------------------------------------------------------------------------------------------------------
def test_a_graph_becomes_boxes_with_numbers_written_into_their_readers():
    diagram = diagram_of_graph(GRAPH, names={0: "x", 1: "w", 2: "lr", 6: "loss"})
    boxes = {box.key: box for box in diagram.boxes}
    assert [boxes[k].title for k in ("0", "1", "3", "5", "6")] == ["x", "w", "mul", "add", "sum"]
    assert "2" not in boxes and "4" not in boxes
    assert boxes["5"].lines == ("float32[4, 3]", "(·, 2.5)")
    assert boxes["8"].lines == ("float32[3]", "(·, lr)")
    assert boxes["6"].lines == ("float32[]", "axes=(0, 1)")
    assert boxes["5"].tooltip == "%5 = add(%3, 2.5) : float32[4, 3]"
    assert {("x", "mul"), ("w", "mul"), ("mul", "add"), ("sum", "loss"), ("sub", "w")} <= arrows_of(diagram)


def test_a_graph_and_its_text_give_the_same_drawing():
    assert visualize.draw_graph(parse(GRAPH)) == visualize.draw_graph(GRAPH)


def test_a_graph_of_another_type_is_refused():
    with pytest.raises(TypeError, match="expected a Graph or its text form, got int"):
        visualize.draw_graph(3)


def test_an_empty_graph_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        visualize.draw_graph("graph empty {\n  return\n}\n")


def test_stages_split_results_gradients_and_updates():
    assert visualize.stages(GRAPH) == {"forward": [0, 1, 3, 4, 5, 6], "backward": [7], "update": [2, 8, 9]}
    assert visualize.stages(GRAPH, n_results=2)["forward"] == [0, 1, 3, 4, 5, 6, 7]


def test_values_of_another_stage_are_dashed():
    diagram = diagram_of_graph(GRAPH, values=[2, 8, 9])
    kinds = {box.title: box.kind for box in diagram.boxes}
    assert kinds["sum %7"] == "saved" and kinds["mul"] == "op"
    assert "stroke-dasharray" in visualize.draw_graph(GRAPH, values=[2, 8, 9])


def test_kernels_colour_their_boxes_and_appear_in_the_legend():
    svg = visualize.draw_graph(GRAPH, groups={"3": 0, "5": 0, "6": 0, "7": 1}, kernels=["loop a", "loop b"])
    texts = texts_of(svg)
    assert "0  loop a" in texts and "1  loop b" in texts
    assert svg.count(visualize.group_color(0)[0]) == 4  # three boxes and the legend


def test_kernels_of_near_numbers_have_different_colours():
    assert len({visualize.group_color(k) for k in range(60)}) == 60


# --- layout ----------------------------------------------------------------------------------------------------------
@st.composite
def diagrams(draw):
    n = draw(st.integers(1, 24))
    diagram = Diagram("random")
    for k in range(n):
        sources = draw(st.lists(st.integers(0, k - 1), max_size=3)) if k else []
        lines = ("float32[64, 128]",) * draw(st.integers(0, 2))
        diagram.add(Box(str(k), "x" * draw(st.integers(1, 30)), lines), [str(s) for s in sources])
    return diagram


@given(diagrams())
@settings(max_examples=60, deadline=None)
def test_boxes_do_not_overlap_and_arrows_point_down(diagram):
    placement = place(diagram, 900)
    boxes = {box.key: box for box in diagram.boxes}
    edges = {}
    for key, (x, y) in placement.centers.items():
        w, h = boxes[key].width / 2, boxes[key].height / 2
        edges[key] = (x - w, x + w, y - h, y + h)
        assert x - w >= -1e-6 and y - h >= -1e-6
        assert x + w <= placement.size[0] + 1e-6 and y + h <= placement.size[1] + 1e-6
    for key, (left, right, top, bottom) in edges.items():
        for other, (left2, right2, top2, bottom2) in edges.items():
            apart = right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
            assert key == other or apart, f"{key} and {other} overlap"
    for arrow in diagram.arrows:
        assert edges[arrow.source][3] < edges[arrow.target][2]
    ElementTree.fromstring(render(diagram))


def test_leaves_stand_just_above_their_readers():
    import networkx

    chain = networkx.DiGraph([("x", "a"), ("a", "b"), ("b", "c"), ("w", "c")])
    assert ranks(chain) == {"x": 0, "a": 1, "b": 2, "c": 3, "w": 2}


# --- autograd --------------------------------------------------------------------------------------------------------
def test_autograd_is_drawn_from_leaves_to_the_result():
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w.exp()).sum()
    texts = texts_of(visualize.draw_autograd(loss, {"w": w, "loss": loss}))
    assert texts.count("AccumulateGrad") == 1 and texts.count("w") == 1
    assert {"ExpBackward0", "MulBackward0", "SumBackward0", "loss", "float32[2]"} <= set(texts)


def test_long_autograd_graphs_are_walked_without_recursion():
    x = weft.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(400):
        y = y + 1.0
    assert texts_of(visualize.draw_autograd(y)).count("AddBackward0") == 400


def test_a_tensor_without_history_is_refused():
    with pytest.raises(ValueError, match="the tensor has no grad_fn"):
        visualize.draw_autograd(weft.ones(2))
    with pytest.raises(TypeError, match="expected a tensor, got float"):
        visualize.draw_autograd(1.0)


# --- compiled functions ----------------------------------------------------------------------------------------------
def test_a_training_step_is_drawn_in_stages_with_names():
    step, model, optimizer = trained()
    tensors = dict(model.named_parameters())
    momentum = optimizer.state[model[0].weight]["momentum_buffer"]
    drawn = visualize.draw_function(step, {**tensors, "0.weight.momentum": momentum}, results=("loss",))
    forward, backward, update = (set(texts_of(drawn[stage])) for stage in ("forward", "backward", "update"))
    assert {"x", "y", "0.weight", "2.bias", "linear", "relu", "loss"} <= forward
    assert {"0.weight.grad", "0.bias.grad", "2.weight.grad", "2.bias.grad"} <= backward
    assert {"(·, lr)", "(·, momentum)", "0.weight.momentum", "written in place"} <= update


def test_a_function_that_never_ran_is_refused():
    with pytest.raises(ValueError, match="call it first"):
        visualize.draw_function(weft.compile(lambda x: x))


def test_a_function_with_nothing_but_a_forward_has_one_stage():
    f = weft.compile(lambda x: (x.exp() + 1.0).sum())
    f(weft.ones(3))
    (stage,) = visualize.draw_function(f).items()
    assert stage[0] == "forward" and "result" in texts_of(stage[1])


def test_a_backward_after_the_call_is_drawn_once_it_has_run():
    w = weft.tensor([[0.5], [0.25]], requires_grad=True)
    f = weft.compile(lambda x: (x @ w).tanh().sum())
    for _ in range(3):
        y = f(weft.ones(3, 2))
        assert w.grad is not None or list(visualize.draw_function(f)) == ["forward"]
        y.backward()
    drawn = visualize.draw_function(f, {"w": w})
    assert list(drawn) == ["forward", "backward"]
    assert {"x", "w", "tanh", "result"} <= set(texts_of(drawn["forward"]))
    assert {"gradient in", "w.grad"} <= set(texts_of(drawn["backward"]))


# --- kernel times ----------------------------------------------------------------------------------------------------
def test_every_kernel_of_a_program_is_timed():
    step, model, _ = trained()
    before = [p.detach().numpy().copy() for p in model.parameters()]
    _, program = visualize.busiest_program(step)
    times = visualize.kernel_times(program, repeats=20)
    if times is not None:
        assert len(times) == len(program.meta["plan"]["kernels"])
        assert all(t >= 0 for t in times) and 0 < sum(times) < 1e9
    assert all(np.array_equal(a, p.detach().numpy()) for a, p in zip(before, model.parameters()))


def test_machines_without_a_cycle_counter_give_no_times(monkeypatch):
    step, _, _ = trained()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert visualize.kernel_times(visualize.busiest_program(step)[1]) is None


def test_the_kernels_of_a_program_with_loops_over_steps_are_timed_one_by_one():
    w = weft.randn(4, 4)

    @weft.compile
    def chain(x):
        for _ in range(80):
            x = weft.tanh(x @ w)
        return x

    chain(weft.randn(2, 4))
    _, program = visualize.busiest_program(chain)
    times = visualize.kernel_times(program, repeats=3)
    assert times is None or len(times) == 160


def test_the_roof_is_that_of_arithmetic_or_of_the_memory_that_is_used():
    roof = visualize.Roof({"float32": 100.0, "float64": 50.0}, ((1000, 200.0), (10000, 20.0)))
    assert roof.least_ns(1000, 8) == 10
    assert roof.least_ns(1000, 8, "float64") == 20 and roof.least_ns(1000, 8, "int64") == 10
    assert roof.least_ns(1000, 8, threads=2) == 5
    assert roof.least_ns(0, 2000) == 10 and roof.least_ns(0, 20000) == 1000 and roof.least_ns(0, 200000) == 10000


def test_what_this_machine_can_do_is_measured_once():
    roof = visualize.machine_roof()
    assert visualize.machine_roof() is roof
    assert all(rate > 0 for rate in roof.flops_per_ns.values()) and roof.flops_per_ns.keys() == {"float32", "float64"}
    sizes = [size for size, _ in roof.bytes_per_ns]
    assert sizes == sorted(sizes) and all(rate > 0 for _, rate in roof.bytes_per_ns)


def test_what_is_measured_is_one_instruction_for_each_sum():
    """Nothing is left out because nobody reads it, nor done in parts."""
    asm = jit.assembly(roof_text(jit.target().float_lanes))
    body = asm[asm.index("sums_float32:") : asm.index("sums_float64:")]
    assert len(re.findall(r"vfmadd\w+|fmla|mulps", body)) == 12


def test_explain_measures_kernels_if_asked():
    step, model, _ = trained()
    before = [p.detach().numpy().copy() for p in model.parameters()]
    text, plain = step.explain(verbose="times"), step.explain(verbose=True)
    assert "bytes, " in plain and ", about " in plain and "measured" not in plain
    kernels = visualize.busiest_program(step)[1].meta["plan"]["kernels"]
    if "times are not measured" not in text:
        assert "measured on " in text and "the roof of a thread: " in text
        assert text.count(" us, measured ") >= len(kernels) and text.count(" % of the roof)") >= 1
    assert all(np.array_equal(a, p.detach().numpy()) for a, p in zip(before, model.parameters()))


def test_explain_knows_what_verbose_may_be():
    step, _, _ = trained()
    with pytest.raises(ValueError, match="verbose must be False, True or \"times\", got 'all'"):
        step.explain(verbose="all")


def test_explain_says_why_times_are_not_measured(monkeypatch):
    step, _, _ = trained()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    text = step.explain(verbose="times")
    assert "times are not measured: this processor has no counter" in text and "measured on" not in text


def test_explain_says_why_a_program_cannot_be_measured(monkeypatch):
    def refuses(program):
        raise ValueError("a check fails")

    step, _, _ = trained()
    monkeypatch.setattr("weft.visualize.costs.kernel_times", refuses)
    assert "times are not measured: a check fails" in step.explain(verbose="times")


def test_stamps_follow_every_call():
    text = (
        "define void @k0() {\n  ret void\n}\n\ndefine internal i64 @body(ptr %closure, i64 %rank) #0 {\nentry:\n"
        "  call void @k0()\n  call void %wait3(ptr %pool)\n  %v1 = call i1 @k1(ptr %closure)\n"
        "  call void %v2(ptr %closure)\n  call void %v3()\n  ret i64 0\n}\n\n"
        "define i64 @weft_program(ptr %table) #0 {\nentry:\n"
        "  %v1 = call i64 @body(ptr %table, i64 0)\n  ret i64 %v1\n}\n"
    )
    stamped = with_stamps(text, 6, 3)
    lines = [line.strip() for line in stamped.splitlines()]
    for k, call in enumerate(("call void @k0()", "%v1 = call i1 @k1(ptr %closure)", "call void %v2(ptr %closure)"), 1):
        assert lines[lines.index(call) + 1] == f"%stamp_time_{k} = call i64 @llvm.readcyclecounter()"
    assert "%stamp_word = getelementptr i8, ptr %table, i64 48" in stamped
    assert "%stamps = select i1 %stamps_count, ptr %stamps_wanted, ptr %stamps_ignored" in lines


# --- DOT, charts, pages ----------------------------------------------------------------------------------------------
def test_dot_names_every_box_and_arrow():
    dot = visualize.to_dot(GRAPH, groups={3: 0}, names={0: 'x "quoted"'})
    assert dot.startswith("digraph ") and dot.count(" -> ") == len(diagram_of_graph(GRAPH).arrows)
    assert '"x \\"quoted\\"\\nfloat32[4, 3]"' in dot
    x = weft.tensor(1.0, requires_grad=True)
    assert "ExpBackward0" in visualize.to_dot(x.exp(), {"x": x})


def test_a_chart_has_labelled_axes_and_a_point_per_value():
    svg = visualize.line_chart([("loss", [1.0, 0.1, 0.01])], "step", "cross-entropy", log=True)
    assert {"step", "cross-entropy", "loss", "0.01", "0.1", "1"} <= set(texts_of(svg))
    assert len(re.search(r'points="([^"]*)"', svg).group(1).split()) == 3


@pytest.mark.parametrize("ys, words", [([], "no line has a point"), ([1.0, 0.0], "positive"), ([1e400], "finite")])
def test_a_chart_refuses_what_it_cannot_show(ys, words):
    with pytest.raises(ValueError, match=words):
        visualize.line_chart([("y", ys)], "x", "y", log=True)


@given(st.floats(-1e6, 1e6), st.floats(1e-4, 1e3))
@settings(max_examples=100, deadline=None)
def test_ticks_are_few_round_and_inside(low, share):
    width = share * max(abs(low), 1e-3)
    found = ticks(low, low + width)
    assert 2 <= len(found) <= 8
    assert all(low - 1e-6 * width <= t <= low + width * (1 + 1e-6) for t in found)


def test_constant_curves_are_drawn():
    ElementTree.fromstring(visualize.line_chart([("y", [2.0, 2.0])], "x", "y"))


def test_an_image_is_a_png_with_its_pixels():
    address = visualize.png_image([[0.0, 1.0], [0.5, 2.0]])
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert struct.unpack(">II", data[16:24]) == (2, 2)
    length = struct.unpack(">I", data[33:37])[0]
    rows = zlib.decompress(data[41 : 41 + length])
    assert list(rows) == [0, 255, 0, 0, 128, 0]
    with pytest.raises(ValueError, match="needs a matrix of pixels, got shape"):
        visualize.png_image([0.0])


def test_a_table_escapes_nothing_and_aligns_numbers():
    table = visualize.html_table(["a", "b"], [["<b>x</b>", 1]], numbers={1})
    assert '<td><b>x</b></td><td class="number">1</td>' in table
