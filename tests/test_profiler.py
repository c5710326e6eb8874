"""Profiles: what programs that measure themselves get to see, and that measuring changes nothing else."""

import gzip
import json
import threading

import pytest

import weft
from weft import nn
from weft.autograd.profiler import record_function
from weft.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg
from weft.profiler import ProfilerAction, ProfilerActivity, profile, schedule, tensorboard_trace_handler


def names(measured):
    return [event.name for event in measured.events()]


def small_model():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))


# --- what is measured -------------------------------------------------------------------------------------------------
def test_ops_are_events_under_the_names_of_pytorch_in_their_order():
    x = weft.randn(4, 4)
    with profile(activities=[ProfilerActivity.CPU]) as measured:
        y = x * 2 + 4
        y.sub_(1)
        (y / 3).exp()
    assert names(measured)[:2] == ["aten::mul", "aten::add"]
    assert [n for n in names(measured) if n in ("aten::sub_", "aten::div", "aten::exp")] == [
        "aten::sub_",
        "aten::div",
        "aten::exp",
    ]
    assert "aten::sub" not in names(measured)  # the change in place is one op


def test_named_parts_hold_what_happens_inside_of_them():
    x = weft.randn(4)
    with profile() as measured:
        with record_function("outer"):
            y = x * 2
            with record_function("inner"):
                y = y - 1
        y / 1
    outer, mul, inner, sub, div = measured.events()
    assert [outer.name, inner.name] == ["outer", "inner"]
    assert outer.cpu_children == [mul, inner] and inner.cpu_children == [sub] and div.cpu_parent is None
    assert outer.cpu_time_total >= inner.cpu_time_total >= sub.cpu_time_total > 0
    assert outer.self_cpu_time_total == outer.cpu_time_total - (mul.cpu_time_total + inner.cpu_time_total)


def test_a_part_can_be_a_decorator_and_needs_no_profile():
    @record_function("my part")
    def add(a, b):
        return a + b

    assert add(1, 2) == 3
    with profile() as measured:
        add(1, 2)
    assert names(measured) == ["my part"] and "my part" in str(measured)


def test_a_training_step_shows_backward_nodes_and_the_update():
    model, x = small_model(), weft.randn(8, 3)
    optimizer = weft.optim.Adam(model.parameters())
    with profile() as measured:
        model(x).pow(2).mean().backward()
        optimizer.step()
    found = names(measured)
    assert "autograd::engine::evaluate_function: MeanBackward0" in found and "PowBackward0" in found
    assert found.count("aten::linear") == 2 and "aten::pow" in found
    assert "Optimizer.step#Adam.step" in found


def test_an_op_and_its_node_have_one_sequence_number():
    x = weft.randn(3, requires_grad=True)
    with profile() as measured:
        (x * x).sum().backward()
    by_name = {}
    for event in measured.events():
        by_name.setdefault(event.name, event)
    assert by_name["aten::mul"].sequence_nr == by_name["MulBackward0"].sequence_nr >= 0
    assert by_name["aten::sum"].sequence_nr == by_name["SumBackward0"].sequence_nr
    assert by_name["aten::mul"].sequence_nr != by_name["aten::sum"].sequence_nr


def test_a_compiled_call_is_one_event_and_is_replayed_as_ever():
    model, x = small_model(), weft.randn(8, 3)

    @weft.compile
    def loss_of(x):
        return model(x).pow(2).mean()

    expected = [loss_of(x).item() for _ in range(6)][-1]
    with profile() as measured:
        loss = loss_of(x)
        loss_of(x)
    assert names(measured) == ["compiled: loss_of"] * 2 and loss.item() == expected
    assert not loss_of.breaks


def test_an_exception_ends_what_it_leaves():
    x = weft.randn(3)
    with profile() as measured, pytest.raises(RuntimeError), record_function("fails"):
        x @ weft.randn(4)
    with profile() as again:
        x + 1
    assert names(measured)[0] == "fails" and all(e.time_range.end > 0 for e in measured.events())
    assert names(again) == ["aten::add"]


def test_results_and_gradients_are_what_they_are_without():
    def run():
        model, x = small_model(), weft.linspace(-1, 1, 24).reshape(8, 3)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            loss = nn.functional.softmax(model(x), dim=0).log().mul_(-1).sum() + model(x)[1:, 0].sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.tolist() for p in model.parameters()] + [loss.item()]

    expected = run()
    with profile(record_shapes=True, profile_memory=True, with_stack=True):
        assert run() == expected
    assert run() == expected


def test_other_threads_are_not_measured():
    def elsewhere():
        weft.ones(3) * 2

    thread, x = threading.Thread(target=elsewhere), weft.ones(3)
    with profile() as measured:
        thread.start()
        thread.join()
        x + 2
    assert names(measured) == ["aten::add"]


def test_forward_mode_and_anomaly_detection_go_with_a_profile():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with profile() as measured, weft.autograd.detect_anomaly(check_nan=True):
        _, product = weft.func.jvp(lambda x: x.sin(), (x.detach(),), (weft.ones(2),))
        (x * x).sum().backward()
    assert "aten::sin" in names(measured) and "MulBackward0" in names(measured)
    assert x.grad.tolist() == [2.0, 4.0] and product.tolist() == x.detach().cos().tolist()


# --- shapes, memory, lines --------------------------------------------------------------------------------------------
def test_shapes_memory_and_lines_are_noted_where_asked_for():
    model, x = nn.Linear(3, 5), weft.randn(8, 3)
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as measured:
        model(x)
    event = next(e for e in measured.events() if e.name == "aten::linear")
    assert event.input_shapes == [[8, 3], [5, 3], [5]]
    assert event.cpu_memory_usage >= 8 * 5 * 4
    assert "test_profiler.py" in event.stack[0] and "test_shapes_memory_and_lines" in event.stack[0]
    with profile() as measured:
        model(x)
    event = measured.events()[0]
    assert (event.input_shapes, event.stack, event.cpu_memory_usage) == ([], [], 0)


def test_views_take_no_memory():
    x = weft.randn(100)
    with profile(profile_memory=True) as measured:
        x[10:].reshape(9, 10)
    assert [e.cpu_memory_usage for e in measured.events()] == [0] * len(measured.events())


# --- sums and tables --------------------------------------------------------------------------------------------------
def test_events_of_a_name_are_added_up():
    x = weft.randn(4, 4)
    with profile(record_shapes=True) as measured:
        for _ in range(3):
            x * 2
        x[0] * 2
    average = next(a for a in measured.key_averages() if a.key == "aten::mul")
    events = [e for e in measured.events() if e.name == "aten::mul"]
    assert average.count == 4 and average.cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in events))
    assert average.cpu_time == average.cpu_time_total / 4
    by_shape = measured.key_averages(group_by_input_shape=True)
    assert sorted((a.count, str(a.input_shapes)) for a in by_shape if a.key == "aten::mul") == [
        (1, "[[4], []]"),
        (3, "[[4, 4], []]"),
    ]
    assert measured.total_average().count == len(measured.events()) and measured.total_average().key == "Total"


def test_the_table_is_sorted_and_cut_as_asked_for():
    x = weft.randn(4, 4)
    with profile() as measured:
        for _ in range(3):
            x * 2
        x + 1
    table = measured.key_averages().table(sort_by="count", row_limit=1, header="MY STEP")
    assert "aten::mul" in table and "aten::add" not in table and "MY STEP" in table
    assert "Self CPU time total:" in table and "Input Shapes" not in table
    assert "us" in measured.table(time_unit="us") and measured.table() == str(measured)
    with pytest.raises(AttributeError, match="cpu_tme"):
        measured.table(sort_by="cpu_tme")
    with pytest.raises(ValueError, match="time_unit is 'h'"):
        measured.table(time_unit="h")


def test_top_level_events_only():
    with profile() as measured, record_function("whole"):
        weft.ones(2) * 2
    assert "aten::mul" not in measured.table(top_level_events_only=True)


def test_an_event_is_inside_of_the_innermost_that_holds_it():
    def event(number, thread, start, end):
        return FunctionEvent(id=number, node_id=0, name="", thread=thread, start_us=start, end_us=end)

    events = EventList([event(1, 1, 0, 1), event(2, 1, 1, 2), event(3, 0, 0, 2), event(4, 0, 1, 2), event(5, 0, 1, 3)])
    events._populate_cpu_children()
    assert [[child.id for child in e.cpu_children] for e in events] == [[], [], [], [], [4]]


def test_sums_of_events_can_be_added_up():
    total = FunctionEventAvg()
    total.add(FunctionEvent(id=0, name="foo", thread=0, start_us=10, end_us=15))
    total.add(FunctionEvent(id=1, name="foo", thread=0, start_us=20, end_us=30))
    total.add(total)
    assert (total.key, total.count, total.cpu_time_total, total.cpu_time) == ("foo", 4, 30, 7.5)
    assert total.cuda_time_total == total.self_cuda_time_total == total.device_time == 0


# --- files ------------------------------------------------------------------------------------------------------------
def test_traces_and_stacks_are_files(tmp_path):
    with profile(with_stack=True) as measured, record_function("part"):
        weft.ones(3) * 2
    measured.export_chrome_trace(tmp_path / "trace.json")
    measured.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert [e["name"] for e in trace["traceEvents"]][0] == "part" and all(e["ph"] == "X" for e in trace["traceEvents"])
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())) == trace
    assert sorted(p.name for p in tmp_path.iterdir()) == ["trace.json", "trace.json.gz"]
    measured.export_stacks(tmp_path / "stacks.txt", "self_cpu_time_total")
    assert "test_traces_and_stacks_are_files" in (tmp_path / "stacks.txt").read_text()
    with pytest.raises(ValueError, match="metric should be one of"):
        measured.export_stacks(tmp_path / "stacks.txt", "self_cuda_time_total")


# --- schedules --------------------------------------------------------------------------------------------------------
def test_a_schedule_says_which_steps_are_measured(tmp_path):
    traces = []
    write = tensorboard_trace_handler(tmp_path / "runs", worker_name="one")

    def ready(p):
        traces.append(names(p))
        write(p)

    x = weft.ones(3)
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as measured:
        for _ in range(10):
            x * 2
            measured.step()
    assert traces == [["ProfilerStep#2", "aten::mul", "ProfilerStep#3", "aten::mul"],
                      ["ProfilerStep#6", "aten::mul", "ProfilerStep#7", "aten::mul"]]  # fmt: skip
    assert len(list((tmp_path / "runs").glob("one.*.pt.trace.json"))) == 2
    assert not weft.autograd._profiler_enabled()


def test_actions_of_a_schedule():
    found = [schedule(wait=1, warmup=1, active=2, repeat=1)(k).name for k in range(5)]
    assert found == ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE"] and ProfilerAction.NONE.value == 0


def test_without_a_schedule_the_whole_block_is_one_trace():
    traces, x = [], weft.ones(2)
    with profile(on_trace_ready=lambda p: traces.append(names(p))) as measured:
        x + 1
        measured.step()
        x * 1
    assert traces == [["aten::add", "aten::mul"]]


def test_start_and_stop():
    measured, x = profile(), weft.ones(2)
    measured.start()
    assert weft.autograd._profiler_enabled()
    x + 1
    measured.stop()
    x * 1
    assert names(measured) == ["aten::add"]


# --- what is refused --------------------------------------------------------------------------------------------------
def test_what_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'record_shape'"):
        profile(record_shape=True)
    with profile() as outer:
        with pytest.raises(RuntimeError, match="already enabled on this thread"):
            profile().start()
        with pytest.raises(RuntimeError, match="didn't finish"):
            outer.events()
        assert str(outer) == "<unfinished profile>"
    with profile(enabled=False) as off:
        weft.ones(2) + 1
    assert off.function_events is None
    with pytest.raises(RuntimeError, match="not enabled"):
        off.key_averages()
    with weft.autograd.profiler.profile(False) as off:
        assert not weft.autograd._profiler_enabled()
    with pytest.raises(NotImplementedError, match="when memory becomes free"):
        outer.export_memory_timeline("memory.html")


@pytest.mark.oracle
def test_pytorch_sees_the_same_ops():
    torch = pytest.importorskip("torch")

    def run(library, kind):
        x = library.ones(3, 4, requires_grad=True)
        with kind(activities=None) as measured:
            with library.autograd.profiler.record_function("part"):
                y = (x * 2).sum()
            y.exp().backward()
        wanted = {"part", "aten::mul", "aten::sum", "aten::exp", "MulBackward0", "SumBackward0", "ExpBackward0"}
        return [e.name for e in measured.events() if e.name in wanted and (e.cpu_parent is None or e.scope != 0 or
                e.cpu_parent.name == "part")]  # fmt: skip

    assert run(weft, profile) == run(torch, torch.profiler.profile)
