"""Replaying in native code (runtime/replay/native.py): that it is used where it can be, and that Python does the
same."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.runtime.replay import frame_usual, native, native_layout

HERE = Path(__file__).parent


def usual_frame_of(f):
    found = f.recordings[0].usual
    assert isinstance(found, frame_usual.UsualFrame)
    return found


def compiled_and_usual(function, *arguments):
    f = weft.compile(function)
    for _ in range(6):
        f(*arguments)
    return f


def training():
    w = weft.ones(3, requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.5, momentum=0.5)

    def step(x):
        optimizer.zero_grad()
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step, w, optimizer


of_native_code = pytest.mark.skipif(
    os.environ.get("WEFT_NATIVE_REPLAY") == "0", reason="native code is switched off in this run"
)


def test_the_layout_is_found():
    # On every CPython with an interpreter lock, the only interpreters weft is run on, where it is wanted.
    assert (native.layout() is None) == (os.environ.get("WEFT_NATIVE_REPLAY") == "0")


@of_native_code
def test_python_is_not_asked_where_all_is_as_usual(monkeypatch):
    def fail(*_):
        raise AssertionError("the Python method was called")

    for method in ("_begin", "apply", "backward_again", "update", "_run"):
        monkeypatch.setattr(frame_usual.UsualFrame, method, fail)
    step, w, optimizer = training()
    f = weft.compile(step)
    for k in range(10):
        optimizer.param_groups[0]["lr"] = 0.5 / (k + 1)
        f(weft.ones(3))
    assert usual_frame_of(f).position.value == 4


def test_references_are_counted():
    step, w, optimizer = training()
    f = compiled_and_usual(step, weft.ones(3))
    x, buffer = weft.ones(3), optimizer.state[w]["momentum_buffer"]
    frame = usual_frame_of(f)
    fixed = [x, w, w._data, buffer, w._storage, frame, frame.metas, 0.5, True, None, *frame.metas, *frame.tensors[:2]]
    f(x)
    before = [sys.getrefcount(v) for v in fixed]
    for _ in range(3000):
        f(x)
    after = [sys.getrefcount(v) for v in fixed]
    # Others use None and True too; one reference lost or kept per call would make 3000.
    assert max(abs(a - b) for a, b in zip(after, before)) < 2900


def test_memory_does_not_grow():
    import tracemalloc

    step, w, optimizer = training()
    f, x = compiled_and_usual(step, weft.ones(3)), weft.ones(3)
    tracemalloc.start()
    grown = []
    # What is made once, here or by a thread in the background, is no growth.
    for _ in range(4):
        start = tracemalloc.get_traced_memory()[0]
        for _ in range(500):
            f(x)
        grown.append(tracemalloc.get_traced_memory()[0] - start)
    tracemalloc.stop()
    assert min(map(abs, grown)) < 2000


def test_other_argument_types_go_the_python_way():
    frame = usual_frame_of(compiled_and_usual(lambda x: x * 2.0, weft.ones(3)))
    x = weft.ones(3)
    for wrong in ((), (1,), (None, None, None), (weft.ones, [x, 2.0], {}), (1, 2, 3, 4)):
        assert frame.start((x,))
        with pytest.raises((TypeError, AttributeError)):
            frame.apply(*wrong)
        frame.depart().close()


def test_a_version_is_counted_up():
    step, w, _ = training()
    f, x = compiled_and_usual(step, weft.ones(3)), weft.ones(3)
    before = w._version
    for _ in range(300):
        f(x)
    assert w._version == before + 300


def changing(state):
    def step(x):
        state.mul_(0.5).add_(x)
        y = x * 2
        y += state
        x.sub_(1)
        return y.mul_(3), y + 1

    return step


@of_native_code
def test_changes_in_place_are_made_without_python(monkeypatch):
    for method in ("inplace_again", "_run", "_begin_end", "_finish_end"):
        monkeypatch.setattr(frame_usual.UsualFrame, method, lambda *_: pytest.fail("the Python method was called"))
    states = weft.zeros(3), weft.zeros(3)
    eager, compiled = changing(states[0]), weft.compile(changing(states[1]))
    for k in range(12):
        x, twin = weft.full((3,), 0.1 * k), weft.full((3,), 0.1 * k)
        expected, found = eager(x), compiled(twin)
        assert [v.tolist() for v in (*found, twin, states[1])] == [v.tolist() for v in (*expected, x, states[0])]
        assert (twin._version, states[1]._version, found[0]._version) == (1, 2 * k + 2, expected[0]._version)
    assert usual_frame_of(compiled).position.value == 7


def assert_counts_stay(f, x, held):
    """Thousands of calls f(x) leave nobody with a reference more, or one fewer, for each of them."""
    frame = usual_frame_of(f)
    held = [*held, x, x._data, frame, None, *frame.metas, *frame.tensors]
    fixed = [v for v in held if not isinstance(v, weft.Tensor) or v._frame is None]
    before = [sys.getrefcount(v) for v in fixed]
    for _ in range(3000):
        f(x)
    after = [sys.getrefcount(v) for v in fixed]
    assert max(abs(a - b) for a, b in zip(after, before)) < 2900


def test_changes_in_place_count_references():
    state, x = weft.zeros(3), weft.ones(3)
    f = compiled_and_usual(changing(state), x)
    assert_counts_stay(f, x, [state, state._data, x._storage])


def reading(state):
    def step(x):
        y = x * 2
        total = y.sum()
        if total > 3:
            state.add_(y)
        y.mul_(state)
        worst = y.max().item()
        return y / worst, total

    return step


@of_native_code
def test_values_are_read_in_the_middle_without_python(monkeypatch):
    states = weft.ones(3), weft.ones(3)
    eager, compiled = reading(states[0]), weft.compile(reading(states[1]))

    def calls(n, k=0):
        x = weft.full((3,), 1.0 + 0.1 * k)
        for _ in range(n):
            expected, found = eager(x), compiled(x)
            assert [v.tolist() for v in (*found, states[1])] == [v.tolist() for v in (*expected, states[0])]
            assert [v._version for v in found] == [v._version for v in expected]

    calls(6)
    for method in ("materialize", "_take_segment", "_run", "_begin_end", "_finish_end"):
        monkeypatch.setattr(frame_usual.UsualFrame, method, lambda *_: pytest.fail("the Python method was called"))
    calls(6, 3)
    assert usual_frame_of(compiled).n_flushed == 0


def test_reads_in_the_middle_count_references():
    state, x = weft.ones(3), weft.ones(3)
    f = compiled_and_usual(reading(state), x)
    frame = usual_frame_of(f)
    held = [state, x, state._data, x._data, frame, None, *frame.metas, *frame.tensors]
    fixed = [v for v in held if not isinstance(v, weft.Tensor) or v._frame is None]
    before, n = [sys.getrefcount(v) for v in fixed], usual_frame_of(f).recording.calls
    for _ in range(3000):
        f(x)
    after = [sys.getrefcount(v) for v in fixed]
    assert max(abs(a - b) for a, b in zip(after, before)) < 2900
    assert usual_frame_of(f) is frame and frame.recording.calls == n + 3000
    assert all(program.calls >= 3000 for program in frame.recording.programs)


def viewing(x):
    y = x * 2 + 1
    a, b = y.chunk(2, dim=1)
    return y, a, b.t(), y[1:, ::2], a.unsqueeze(0).expand(3, -1, -1), (x - 1).reshape(-1), x[1], x.t(), y[5:]


def shown(results):
    """What can be seen of views, and of the memory they share."""
    seen = [(v.tolist(), v.stride(), v._version, v._data.flags.writeable, v._data.flags.owndata) for v in results]
    sharing = [[np.may_share_memory(v._data, w._data) for v in results] for w in results]
    return seen, sharing, [v._base is results[0] for v in results], [v._base is None for v in results]


@of_native_code
def test_views_are_handed_out_without_python(monkeypatch):
    for method in ("_run", "_begin_end", "_finish_end"):
        monkeypatch.setattr(frame_usual.UsualFrame, method, lambda *_: pytest.fail("the Python method was called"))
    compiled, kept = weft.compile(viewing), []
    for k in range(12):
        x = weft.arange(24.0).reshape(4, 6).clone() + k
        expected, found = viewing(x), compiled(x)
        assert shown(found) == shown(expected)
        kept.append((found, [v.tolist() for v in expected]))
        if k % 3 == 0:
            # Whoever changes one changes all, and their version.
            for results in (found, expected):
                results[1].mul_(2)
            assert shown(found) == shown(expected)
            kept[-1] = found, [v.tolist() for v in expected]
    assert all([v.tolist() for v in found] == values for found, values in kept)


def test_views_count_references():
    x = weft.arange(24.0).reshape(4, 6).clone()
    f = compiled_and_usual(viewing, x)
    assert_counts_stay(f, x, [x._data.dtype, np.ndarray])
    assert len(x._storage.sharers) < 70


VIEWS_OF_A_STATE = {
    "slice": lambda s: s[1:],
    "data": lambda s: s.data,
    "changed": lambda s: s.add_(1)[1:],
    "transposed": lambda s: s.t(),
    "slice of a .data": lambda s: (s * 2).data[1:],
}


@pytest.mark.parametrize("name", VIEWS_OF_A_STATE)
@pytest.mark.parametrize("make", [lambda: weft.ones(3, 2), lambda: weft.ones(2, 3).t(), lambda: weft.ones(6, 2)[::2]])
def test_views_of_a_state(name, make):
    of = VIEWS_OF_A_STATE[name]
    states = make(), make()
    compiled = weft.compile(lambda: of(states[1]))
    for _ in range(8):
        expected, found = of(states[0]), compiled()
        assert found.tolist() == expected.tolist() and found.stride() == expected.stride()
        assert found._version == expected._version and (found._base is None) is (expected._base is None)


@of_native_code
def test_tensors_that_are_new_in_every_call_come_in_without_python(monkeypatch):
    for method in ("_enter_fresh", "apply", "inplace_again", "_run", "_begin_end", "_finish_end"):
        monkeypatch.setattr(frame_usual.UsualFrame, method, lambda *_: pytest.fail("the Python method was called"))
    state = weft.zeros(2)
    kept = []  # a tensor at the address of one before would be taken for the same until it is another one

    def step(x, k):
        a, b, both = weft.tensor([k, 1.0]), weft.tensor([2.0, k]), weft.tensor([k, k])
        kept.extend((a, b, both))
        state.copy_(both)
        return x * a + b * a

    compiled, x = weft.compile(step), weft.ones(2)
    for k in range(12):
        assert compiled(x, float(k)).tolist() == [k + 2.0 * k, 1.0 + k] and state.tolist() == [k, k]
    frame = usual_frame_of(compiled)
    assert len(frame.fresh) == 3 and all(frame.tensors[vid] is None for vid in frame.fresh)


def test_copies_of_exposed_memory_count_references():
    array, state = np.ones(5, np.float32), weft.zeros(5)

    def step(array):
        x = weft.from_numpy(array)
        state.copy_(weft.from_numpy(array))
        return x * 2 + x

    f = compiled_and_usual(step, array)
    frame = usual_frame_of(f)
    held = [array, array.dtype, np.ndarray, state, state._data, frame, None, False, *frame.metas]
    grown = []
    # Others use None and False too, at times of their own.
    for _ in range(3):
        before = [sys.getrefcount(v) for v in held]
        for _ in range(3000):
            f(array)
        after = [sys.getrefcount(v) for v in held]
        grown.append(max(abs(a - b) for a, b in zip(after, before)))
    assert min(grown) < 1500 and not frame.copies


def test_new_tensors_that_share_memory_are_found():
    def step(x, same):
        array = np.full(4, 2.0, np.float32)
        first, second = weft.Tensor(array), weft.Tensor(array if same else array.copy())
        first.sub_(x)
        return first * 2, second + 1

    compiled, x = weft.compile(step), weft.ones(4)
    for same in [False] * 8 + [True, False, False, True]:
        assert [v.tolist() for v in compiled(x, same)] == [v.tolist() for v in step(x, same)]


def test_python_does_the_same():
    """The tests of usual calls once more, without native code."""
    environment = {**os.environ, "WEFT_NATIVE_REPLAY": "0"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "test_compiled_usual.py",
    ]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_layout_is_not_guessed(monkeypatch):
    monkeypatch.setattr(native_layout, "place", lambda x, value: (_ for _ in ()).throw(native_layout.NotFound))
    native.layout.cache_clear()
    try:
        assert native.layout() is None
        assert weft.compile(lambda x: x * 2)(weft.ones(2)).tolist() == [2.0, 2.0]
    finally:
        native.layout.cache_clear()


def test_modes_that_change_between_calls_and_in_them_are_seen():
    w, off = weft.ones(3, requires_grad=True), []

    @weft.compile(fullgraph=True)
    def f(x):
        y = x * w
        if off:
            with weft.no_grad():
                return y, x * w, x + 1
        return y, x * w, x + 1

    def required():
        return [y.requires_grad for y in f(weft.ones(3))]

    for turn in range(24):
        off[:] = [True] if turn // 3 % 2 else []
        assert required() == [True, not off, False]
        with weft.no_grad():
            assert required() == [False] * 3
        weft.set_default_dtype(weft.float64)
        try:
            assert weft.compile(lambda: weft.ones(2) * 2)().dtype == weft.float64
            assert required() == [True, not off, False]
        finally:
            weft.set_default_dtype(weft.float32)


def test_every_thread_has_its_modes():
    w = weft.ones(3, requires_grad=True)
    f = compiled_and_usual(lambda x: x * w, weft.ones(3))
    seen = {enabled: [] for enabled in (True, False)}

    def call(enabled, mine, others):
        with weft.set_grad_enabled(enabled):
            for _ in range(20):
                mine.acquire()
                seen[enabled].append(f(weft.ones(3)).requires_grad)
                others.release()

    turns = threading.Semaphore(1), threading.Semaphore(0)
    threads = [threading.Thread(target=call, args=(k == 0, turns[k], turns[1 - k])) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {True: [True] * 20, False: [False] * 20}


def test_references_are_counted_as_cpython_does():
    a, b = weft.ones(3), weft.ones(3)

    def flow(x):
        y = x + b
        return y, (y * 2)[1:], None, x

    f = compiled_and_usual(flow, a)
    held, seen = (a, b, f, flow, None, True, (), weft.Tensor, weft.float32), []
    for n in (1000, 3000):
        for _ in range(n):
            f(a)
        seen.append([sys.getrefcount(x) for x in held])
    assert seen[0][:4] == seen[1][:4]
    # Others hold these too; what forgets one in every call shows in thousands.
    assert all(abs(y - x) < 1500 for x, y in zip(*seen)), seen


@of_native_code
def test_native_code_is_installed_once():
    f = compiled_and_usual(lambda x: x * 2.0, weft.ones(3))
    native.install()
    before = [weft.nn.Module.__call__, weft.compiler.ops.table.Op.__call__]
    native.install.__wrapped__()
    assert before == [weft.nn.Module.__call__, weft.compiler.ops.table.Op.__call__]
    assert f(weft.ones(3)).tolist() == [2.0, 2.0, 2.0] == (weft.nn.ReLU()(weft.ones(3)) * 2.0).tolist()


LAYERS_COME_LATER = """
import weft

f = weft.compile(lambda x: x * 2.0)
for _ in range(50):
    f(weft.ones(3))
weft.runtime.replay.native.install()
from weft import nn

assert nn.Module.__call__ is nn.Linear.__call__ and type(nn.Module.__call__).__name__ == "wrapper_descriptor"
model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
g = weft.compile(weft.no_grad()(lambda x: model(x)))
for _ in range(50):
    assert (g(weft.ones(1, 3)) == (weft.ones(1, 3) @ model[0].weight.t() + model[0].bias).relu()).all()
"""


@of_native_code
def test_layers_imported_after_the_first_compiled_calls_are_called_natively_too():
    done = subprocess.run([sys.executable, "-c", LAYERS_COME_LATER], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


PATCHED_BEFORE = """
import weft
from weft import nn

seen, call = [], nn.Module.__call__

def counted(self, *args):
    seen.append(type(self).__name__)
    return call(self, *args)

nn.Module.__call__ = counted
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
f = weft.compile(weft.no_grad()(lambda x: model(x)))
for _ in range(20):
    f(weft.ones(1, 2))
assert nn.Module.__call__ is counted and seen == ["Sequential", "Linear", "ReLU"] * 20, seen
"""


def test_calls_of_modules_stay_as_somebody_made_them():
    done = subprocess.run([sys.executable, "-c", PATCHED_BEFORE], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_calls_that_fail_at_their_end_leave_nothing():
    table = weft.ones(3, 2)
    f = compiled_and_usual(lambda index: table[index] * 2.0, weft.tensor([0, 2]))
    usual = usual_frame_of(f)
    before = sys.getrefcount(usual)
    for _ in range(20):
        with pytest.raises(IndexError):
            f(weft.tensor([0, 3]))
        for _ in range(6):
            f(weft.tensor([0, 2]))
        assert usual_frame_of(f) is usual
    assert sys.getrefcount(usual) - before < 5
