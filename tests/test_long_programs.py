"""Programs of many steps: loops in place of repetition, functions in place of one long body, and nothing quadratic."""

import sys

import numpy as np
import pytest
from backend_models import mlp_step
from graph_interpreter import check_equal
from random_graphs import RandomGraph
from test_teams import pool, same  # noqa: F401  (a fixture)

import weft
from weft.compiler import dtypes, extent, parallel, periods
from weft.compiler.emit import program, repeats
from weft.compiler.extent import Scope, evaluate
from weft.compiler.graph import Graph
from weft.compiler.memory import Place, _Arena
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import compile_graph
from weft.compiler.regions import ALL, CALLER, Part, Touch, Touched


def _recurrence(n_steps):
    """h = tanh(h @ w + x_t), with a run-time number and an output in every step."""
    graph = Graph("recurrence")
    h, w = graph.input((4, 8), dtypes.float32), graph.input((8, 8), dtypes.float32)
    xs = [graph.input((4, 8), dtypes.float32) for _ in range(n_steps)]
    numbers = [graph.scalar(dtypes.float64) for _ in range(n_steps)]
    for x, number in zip(xs, numbers):
        h = TABLE["tanh"](TABLE["add"](TABLE["bmm"](h, w), TABLE["mul"](x, number)))
        graph.outputs.append(h)
    return graph


def _arrays(graph):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs()]


def _functions(text):
    return [line.split("@")[1].split("(")[0] for line in text.splitlines() if line.startswith("define")]


# --- repetition -------------------------------------------------------------------------------------------------------
def test_repeated_stretches_are_found(monkeypatch):
    monkeypatch.setattr(repeats, "_LEAST_STEPS", 8)
    monkeypatch.setattr(repeats, "_GRAM", 3)
    assert repeats.repeats("abcxyxyxyxyd") == [(3, 2, 4)]
    assert repeats.repeats("a" * 9 + "b" + "c" * 8) == [(0, 1, 9), (10, 1, 8)]
    # What is repeated may have repetition in it, and every part of it may occur in it more than once.
    assert repeats.repeats("aabb" * 5) == [(0, 4, 5)]
    assert repeats.repeats("aaab" * 4 + "c" + "abab" * 4) == [(0, 4, 4), (17, 2, 8)]
    assert repeats.repeats("abcdefgh") == repeats.repeats("") == []
    assert repeats.repeats("abab" + "cdcd") == []


def test_steps_that_read_and_write_other_rows_have_one_kernel():
    """Where a kernel begins is said by who calls it, so steps that differ in that alone are one loop."""
    n, graph = 40, Graph("rows")
    x, h = graph.input((n, 4, 8), dtypes.float32), graph.input((4, 8), dtypes.float32)
    w, states = graph.input((8, 8), dtypes.float32), []
    for t in range(n):
        row = TABLE["reshape"](TABLE["slice"](x, spec=((t, 1, 1), (0, 1, 4), (0, 1, 8))), shape=(4, 8))
        h = TABLE["tanh"](TABLE["add"](TABLE["bmm"](h, w), row))
        states.append(TABLE["reshape"](h, shape=(1, 4, 8)))
    graph.outputs = [TABLE["cat"](*states, axis=0)]
    functions = [name for name in _functions(compile_graph(graph).text) if name.startswith("k")]
    assert len(functions) <= 4
    check_equal(graph, _arrays(graph))


def test_random_sequences_are_cut_into_what_they_are(monkeypatch):
    monkeypatch.setattr(repeats, "_LEAST_STEPS", 4)
    rng = np.random.default_rng(0)
    for _ in range(200):
        parts = [rng.integers(0, 3, rng.integers(1, 5)).tolist() * rng.integers(1, 8) for _ in range(4)]
        tokens, end = [t for part in parts for t in part], 0
        for start, period, count in repeats.repeats(tokens):
            assert start >= end and count >= 4
            end = start + period * count
            assert tokens[start:end] == tokens[start : start + period] * count


def test_steps_of_a_recurrence_are_one_loop():
    few, many = (compile_graph(_recurrence(n)).text for n in (80, 160))
    assert _functions(few) == _functions(many) and len(_functions(few)) < 6
    lines = [len(t.splitlines()) for t in (few, many)]
    # A pointer to every array, and nothing else, is one more for one more step: in a table.
    assert lines[0] == lines[1]


def test_a_recurrence_has_the_bits_of_its_steps():
    graph = _recurrence(70)
    check_equal(graph, _arrays(graph), [0.5 + k / 70 for k in range(70)])


def test_a_short_program_is_written_step_by_step():
    assert " phi " not in compile_graph(_recurrence(3)).text.split("@body")[1].split("}")[0]


# --- functions --------------------------------------------------------------------------------------------------------
@pytest.fixture
def cut_often(monkeypatch):
    """Loops and parts in programs of a few steps."""
    for name, value in (("_LEAST_STEPS", 2), ("_LEAST_COUNT", 2), ("_GRAM", 1)):
        monkeypatch.setattr(repeats, name, value)
    monkeypatch.setattr(repeats, "_MOST_STEPS", 2)
    monkeypatch.setattr(program, "_MANY_POINTERS", 1)


def test_random_graphs_in_parts(cut_often):
    for seed in range(3000, 3040):
        made = RandomGraph(seed, 30)
        with np.errstate(all="ignore"):
            check_equal(made.graph, made.arrays, made.numbers)


def test_a_failed_check_ends_all_parts(cut_often):
    graph = Graph()
    x, index = graph.input((5, 3), dtypes.float32), graph.input((2,), dtypes.int64)
    picked = TABLE["index_select"](x, index, axis=0)
    for _ in range(4):
        picked = TABLE["bmm"](picked, graph.input((3, 3), dtypes.float32))
        graph.outputs.append(picked)
    graph.commits = [(x, TABLE["neg"](x))]
    arrays = _arrays(graph)
    for last in (4, 5):
        arrays[1] = np.array([0, last])
        check_equal(graph, arrays)


def test_parts_and_loops_in_teams(cut_often, pool):  # noqa: F811
    weft.manual_seed(0)
    xs, w = weft.randn(6, 32, 64), weft.randn(64, 64, requires_grad=True)

    def unrolled(xs, w):
        w.grad, h = None, weft.zeros(32, 64)
        for x in xs:
            h = weft.tanh((h - h.mean(0)) @ w * 0.1 + x)
        h.sum().backward()
        return h, w.grad

    same(pool, unrolled, xs, w)


def test_a_program_with_more_waits_than_the_pool_can_count_is_one_threads(monkeypatch):
    model = mlp_step(64, (256, 256, 256))[0]
    assert compile_graph(model).plan.has_team
    monkeypatch.setattr(parallel, "MOST_WAITS", 0)
    assert not compile_graph(model).plan.has_team


def test_a_long_training_step_is_eager_modes_bit_for_bit():
    def gradients(compile):
        weft.manual_seed(0)
        w, x = weft.randn(8, 8, requires_grad=True), weft.randn(4, 8)

        @compile
        def step(x):
            w.grad, h = None, x
            for k in range(100):
                h = weft.tanh(h @ w) * (1 + k / 100)
            h.sum().backward()
            return w.grad

        return [step(x).numpy().tobytes() for _ in range(2)]

    assert gradients(weft.compile) == gradients(lambda f: f)


def test_very_many_parts_are_joined_in_turns():
    graph = Graph("joined")
    parts = [graph.input((2, k % 3), dtypes.float32) for k in range(200)]
    graph.outputs = [graph.apply(TABLE["cat"], parts, {"axis": 1})]
    compiled = check_equal(graph, _arrays(graph)).compiled
    assert [k.kind for k in compiled.plan.kernels] == ["cat"] * 4


# --- memory -----------------------------------------------------------------------------------------------------------
class _ScannedArena:
    """What _Arena does, by looking at everything that is taken."""

    def __init__(self):
        self.taken = []

    def take(self, size):
        at, gaps = 64, []
        for start, stop in sorted(self.taken):
            gaps += [(start - at, at)] if start - at >= size else []
            at = max(at, stop)
        at = min(gaps)[1] if gaps else at
        self.taken.append((at, at + size))
        return at, at + size


def test_the_arena_takes_the_best_gap():
    rng = np.random.default_rng(0)
    arena, scanned = _Arena(64), _ScannedArena()
    for _ in range(2000):
        if scanned.taken and rng.random() < 0.48:
            stretch = scanned.taken.pop(rng.integers(len(scanned.taken)))
            arena.give_back(stretch)
        else:
            size = 64 * int(rng.integers(1, 12))
            assert arena.take(size) == scanned.take(size)


def test_touches_that_conflict_are_found_by_where_they_are():
    rng = np.random.default_rng(0)

    def touch():
        place = Place(["arena", "arena", "input"][rng.integers(3)], int(rng.integers(0, 30)) * 64)
        owner = [CALLER, ALL, Part(0, 4, 16, 64, ())][rng.integers(3)]
        return Touch(place, int(rng.integers(1, 400)), bool(rng.integers(2)), owner)

    for n in range(1, 60):
        others, touches = [touch() for _ in range(n)], [touch() for _ in range(2)]
        touched = Touched()
        touched.add(others)
        assert touched.conflicts(touches) == any(a.conflicts(b) for a in touches for b in others)


# --- time -------------------------------------------------------------------------------------------------------------
def _calls(function):
    """How many Python functions are called: a measure of work that does not depend on the machine."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def _elementwise(n_steps):
    """b = a * b1 - b2 in rows, of which each value is used twice, then softmax: several passes over a row."""
    graph = Graph("elementwise")
    x, a = graph.input((8, 300), dtypes.float32), graph.input((8, 300), dtypes.float32)
    newer, older = x, TABLE["tanh"](x)
    for _ in range(n_steps):
        newer, older = TABLE["sub"](TABLE["mul"](a, newer), older), newer
    spread = TABLE["exp"](TABLE["sub"](newer, TABLE["amax"](newer, axes=(1,), keepdim=True)))
    graph.outputs.append(TABLE["div"](spread, TABLE["sum"](spread, axes=(1,), keepdim=True)))
    return graph


@pytest.mark.parametrize("make", [_recurrence, _elementwise])
def test_compiling_twice_as_much_takes_twice_as_long(make):
    small, large = make(100), make(200)
    compile_graph(make(10))
    assert _calls(lambda: compile_graph(large)) < 2.2 * _calls(lambda: compile_graph(small))


class _Counted:
    """A token that counts how often such are compared."""

    compared = 0

    def __init__(self, letter):
        self.letter = letter

    def __hash__(self):
        return hash(self.letter)

    def __eq__(self, other):
        _Counted.compared += 1
        return self.letter == other.letter


def test_what_repeats_itself_too_seldom_is_compared_once():
    # Of 7 times 200 tokens no place begins 8 repetitions: each was compared with all that come after it.
    tokens = [_Counted(k) for k in range(200)] * 7
    _Counted.compared = 0
    assert periods.repeated(tokens, 8) == []
    few, _Counted.compared = _Counted.compared, 0
    assert periods.repeated([_Counted(t.letter) for t in tokens], 7) == [(0, 200, 7)]
    assert few + _Counted.compared < 40 * len(tokens)


def test_places_that_the_call_tells_are_compared_by_the_few_terms_in_them(monkeypatch):
    """Each pair was estimated in fractions, 200,000 pairs: a training step of a GRU's decoder for many lengths was
    compiled for 5.4 s, and is for 0.9."""
    estimates = []
    monkeypatch.setattr(
        extent, "_estimate", lambda *args, whole=extent._estimate: estimates.append(args) or whole(*args)
    )
    scope = Scope({"n": 6, "m": 4})
    n, m = scope.extents["n"], scope.extents["m"]
    sizes = [-(-n * m * 28 // 64) * 64, -(-m * 36 // 64) * 64, n * 128]
    touches, start = [], 64
    for k in range(60):
        touches.append(Touch(Place("arena", start), sizes[k % 3], True, ALL))
        start = start + sizes[k % 3]
    overlapping = [(i, k) for i, a in enumerate(touches) for k, b in enumerate(touches) if a.overlaps(b)]
    assert overlapping == [(k, k) for k in range(60)]
    assert 2 <= len(estimates) <= 40


def test_what_the_calling_thread_does_alone_is_not_compared(monkeypatch):
    monkeypatch.setattr(Touch, "overlaps", None)
    a, b = (Touch(Place("arena", 8 * k), 16, True, CALLER) for k in range(2))
    assert not a.conflicts(b)


def test_bounds_of_quotients_hold_for_every_n():
    random = np.random.default_rng(0)
    for _ in range(200):
        scope = Scope({"n": 7, "m": 5})
        n, m = scope.extents["n"], scope.extents["m"]
        a, b, c, d, e, f = (int(x) for x in random.integers(1, 9, 6))
        x = -(-n * m * a // b) * c - (n * d // e) * m * f + int(random.integers(-30, 30)) - n * n
        bounds = [(s, extent._least(scope, (x * s).terms)) for s in (1, -1)]
        text = extent.polynomial_text(x.terms)
        for numbers in random.integers(extent.LEAST, 40, (20, 2)):
            now = evaluate(text, {"n": int(numbers[0]), "m": int(numbers[1])})
            assert all(least is None or s * now >= least for s, least in bounds)
