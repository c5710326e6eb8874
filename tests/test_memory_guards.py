"""No program reads or writes memory of another extent or type than it was built for.

What a program writes is fixed when it is built; whose memory it gets is decided in every call. In between stand the
checks tested here: that an update's results fit every row, that a graph computes what was recorded, that arrays are as
the program's inputs are (runtime/programs/places.py). Programs run between red zones too (red_zones.py).
"""

import numpy as np
import pytest
from compiled_twin import assert_same, look, undecorated
from random_programs import RandomProgram
from random_training import RandomTraining
from red_zones import red_zones

import weft
from weft import nn, optim
from weft.compiler import dtypes
from weft.compiler.graph import Graph
from weft.compiler.ops.arithmetic import mul
from weft.compiler.pipeline import compile_graph
from weft.optim import steady
from weft.runtime.eager.update import update
from weft.runtime.programs.places import Places

OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD momentum": {"lr": 0.1, "momentum": 0.9},
    "SGD dampening": {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
    "SGD nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.1},
    "Adam amsgrad": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "RMSprop": {"lr": 0.01},
    "RMSprop centered": {"lr": 0.01, "centered": True},
    "RMSprop momentum": {"lr": 0.01, "momentum": 0.5, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
}
everywhere = pytest.mark.parametrize("name", OPTIMIZERS)


def make(library, name, params):
    return getattr(library.optim, name.split()[0])(params, **OPTIMIZERS[name])


def outcome(function, *args):
    """What a call does, as data: its error's type and words, or None."""
    try:
        function(*args)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def seen(params, optimizer):
    return [(p, dict(optimizer.state[p])) for p in params]


# --- state that no longer fits its parameter --------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("convert", ["double", "float"])
def test_parameters_get_another_type(name, convert):
    """The state keeps its type, as in PyTorch; the compiled step once wrote eight bytes per value over four."""

    def scenario(compile):
        model = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3))
        x = weft.randn(4, 40)
        if convert == "float":
            model, x = model.double(), x.double()
        optimizer = make(weft, name, model.parameters())

        @compile
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(4):
            yield step(x)
        getattr(model, convert)()
        x = getattr(x, convert)()
        for _ in range(5):
            yield outcome(step, x)
            yield seen(model.parameters(), optimizer)

    assert_same(scenario)


@pytest.mark.oracle
@everywhere
@pytest.mark.parametrize(("first", "second"), [("float32", "float64"), ("float64", "float32")])
def test_another_type_is_pytorchs(name, first, second):
    torch = pytest.importorskip("torch")
    results = []
    for library in (weft, torch):
        w = library.tensor([1.0, 2.0, 3.0], dtype=getattr(library, first), requires_grad=True)
        optimizer = make(library, name, [w])
        found = []
        for k in range(6):
            if k == 3:
                w.grad, w.data = None, w.data.to(getattr(library, second))
            optimizer.zero_grad()
            w.sin().sum().backward()
            try:
                optimizer.step()
            except RuntimeError as error:
                assert "expected dtype" in str(error) and "for `end`" in str(error)
                found.append("refused")
                continue
            values = {n: v for n, v in optimizer.state[w].items() if n != "step"}
            found.append((str(w.dtype)[-2:], {n: str(v.dtype)[-2:] for n, v in values.items()}))
            found += [x.detach().tolist() for x in (w, *values.values())]
        results.append(found)
    for mine, theirs in zip(*results, strict=True):
        if isinstance(mine, list):
            np.testing.assert_allclose(mine, theirs, rtol=2e-6)
        else:
            assert mine == theirs


def test_the_error_for_state_of_another_type_says_what_helps():
    w = weft.ones(3, requires_grad=True)
    optimizer = optim.Adam([w])
    for k in range(3):
        w.grad = weft.ones_like(w)
        if k < 2:
            optimizer.step()
            w.grad, w.data = None, w.data.double()
            optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state[w]["exp_avg"].dtype is weft.float64 and w.dtype is weft.float64
    w.grad, w.data = None, w.data.float()
    w.grad = weft.ones_like(w)
    with pytest.raises(RuntimeError, match="load_state_dict.optimizer.state_dict"):
        optimizer.step()


@everywhere
@pytest.mark.parametrize("shapes", [((1,), (500,)), ((), (3,)), ((5,), (1, 5)), ((5,), (4, 5)), ((4,), (2,))])
def test_parameters_get_another_shape(name, shapes):
    """State that broadcasts to the new shape has less memory than the new values."""

    def scenario(compile):
        w = weft.ones(*shapes[0], requires_grad=True)
        optimizer = make(weft, name, [w])

        @compile
        def step():
            optimizer.zero_grad()
            w.square().sum().backward()
            optimizer.step()

        for _ in range(4):
            step()
        w.grad, w.data = None, weft.ones(*shapes[1])
        for _ in range(4):
            error = outcome(step)
            yield error and error[0], seen([w], optimizer)

    assert_same(scenario)


@everywhere
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_one_of_several_parameters_does_not_fit(name, odd):
    """Only some rows of an update differ: those before are updated, as in eager mode, which goes row by row."""

    def scenario(compile):
        params = [weft.ones(3, requires_grad=True) for _ in range(3)]
        optimizer = make(weft, name, params)

        @compile
        def step():
            optimizer.zero_grad()
            weft.stack([p.square().sum() for p in params]).sum().backward()
            optimizer.step()

        for _ in range(3):
            step()
        for change in (lambda x: x.expand(2, 3).clone(), lambda x: x[0].double()):
            params[odd].grad, params[odd].data = None, change(params[odd].data)
            for _ in range(3):
                yield outcome(step)
                yield seen(params, optimizer)

    assert_same(scenario)


@everywhere
@pytest.mark.parametrize("change", [lambda x: x.double(), lambda x: x.expand(2, *x.shape).clone()])
def test_steps_outside_that_are_compiled_after_a_while(name, change, monkeypatch):
    """They become what eager steps would have become."""

    def run(steps_before):
        monkeypatch.setattr(steady, "STEPS_BEFORE", steps_before)
        monkeypatch.setattr(steady, "_pays", lambda optimizer, is_native: True)
        params = [weft.ones(3, requires_grad=True) for _ in range(2)]
        optimizer = make(weft, name, params)
        found = []
        for k in range(16):
            if k == 9:
                params[1].grad, params[1].data = None, change(params[1].data)
            optimizer.zero_grad()
            weft.stack([p.square().sum().float() for p in params]).sum().backward()
            found.append(look((outcome(optimizer.step), seen(params, optimizer))))
        return found

    assert run(2) == run(1000)


# --- updates by rules of one's own ------------------------------------------------------------------------------------
def scaled(x, by, *rest):
    return mul(x, by), None


def both(x, y, *, first):
    return (mul(x, 2), None) if first else (None, mul(x, 2))


def ragged(x, *rest):
    return mul(x, 2), *([None] * len(rest))


def updating(compile, rows, rule, numbers=(), **flags):
    """What an update of tensors does, three times, in a call and outside."""

    @compile
    def run(k):
        with weft.no_grad():
            update(rule, rows, numbers[k] if numbers else (), **flags)

    for k in range(6):
        yield outcome(run, k % len(numbers) if numbers else 0), [list(row) for row in rows]


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool"])
def test_results_of_an_update_become_of_their_targets_type(dtype):
    x = [weft.tensor([1.0, 2.0]), weft.tensor([1, 0]).to(getattr(weft, dtype))]

    def scenario(compile):
        return updating(compile, [tuple(x.clone() for x in x)], both, first=False)

    assert_same(scenario)


def test_rows_of_several_shapes_and_types():
    kinds = [((3,), (3,)), ((2, 3), (3,)), ((), ()), ((3,), (2, 3)), ((2,), (2,))]

    def scenario(compile):
        rows = [(weft.ones(*a), weft.full(b, 3.0, dtype=weft.float64)) for a, b in kinds]
        return updating(compile, rows, scaled)

    assert_same(scenario)


def test_rows_of_several_lengths():
    """As many operands in all, in rows cut elsewhere: another update."""

    def scenario(compile):
        a, b, c, d = (weft.ones(2) for _ in range(4))
        cuts = [[(a, b), (c, d)], [(a, b, c), (d,)], [(a,), (b, c, d)], [(a, b), (c, d)]]

        @compile
        def run(k):
            with weft.no_grad():
                update(ragged, cuts[k])

        for k in (0, 0, 0, 0, 1, 2, 0, 3, 1):
            run(k)
            yield a, b, c, d

    assert_same(scenario)


def test_updates_with_more_numbers():
    """Numbers of a call have places: one more of them must not move those of later ops."""

    def scenario(compile):
        x, y = weft.ones(3), weft.ones(3)

        @compile
        def run(numbers, factor):
            with weft.no_grad():
                update(scaled_by_first, [(x,)], numbers)
                y.mul_(factor)
                return y * factor + 1.0

        for k in range(12):
            numbers = (0.5, 7.0) if k in (6, 7, 9) else (0.5,)
            yield run(numbers, 1.0 + k), x, y

    assert_same(scenario)


def scaled_by_first(x, first, *rest):
    return (mul(x, first),)


def test_a_rule_that_compiles_not_runs_eagerly():
    def scenario(compile):
        return updating(compile, [(weft.ones(3), weft.ones(3))], looking)

    assert_same(scenario)


def looking(x, y):
    return mul(x, float(y.sum().item())), None


# --- what programs are built and run on -------------------------------------------------------------------------------
def test_a_commit_must_fit_its_input():
    for shape, dtype in (((4,), dtypes.float32), ((2,), dtypes.float64)):
        graph = Graph()
        target, other = graph.input((2,), dtypes.float32), graph.input(shape, dtype)
        graph.commits.append((target, graph.apply(mul, (other, 2), {})))
        with pytest.raises(AssertionError, match="commit %0"):
            compile_graph(graph)


def test_a_commit_goes_to_an_input():
    graph = Graph()
    made = graph.apply(mul, (graph.input((2,), dtypes.float32), 2), {})
    graph.commits.append((made, made))
    with pytest.raises(AssertionError, match="commit %2"):
        compile_graph(graph)


def test_arrays_must_be_what_a_program_was_built_for():
    places = Places([[[2, 3], "float32", None, True], [[3], "int64", [2], False]])
    right, strided = np.zeros((2, 3), np.float32), np.zeros(6, np.int64)[::2]
    places.require([right, strided])
    places.require([right[::1], strided])
    read_only = right.copy()
    read_only.flags.writeable = False
    wrong = [
        (np.zeros((3, 2), np.float32), strided),
        (np.zeros((2, 3)), strided),
        (np.zeros((3, 2), np.float32).T, strided),
        (read_only, strided),
        (right, np.zeros(3, np.int64)),
        (right, np.zeros(3, np.int64)[::-1]),
        (right, strided[:2]),
        (right,),
    ]
    for arrays in wrong:
        with pytest.raises(AssertionError, match="program"):
            places.require(list(arrays))


def test_a_column_is_as_good_as_any_contiguous_array():
    """NumPy leaves strides of single elements as they come."""
    places = Places([[[4, 1], "float32", None, False], [[0, 3], "float32", None, False]])
    column = np.zeros((4, 7), np.float32)[:, :1].copy(order="F")
    places.require([np.lib.stride_tricks.as_strided(column, strides=(4, 400)), np.zeros((0, 3), np.float32)[::-1]])


def program_of(function, *args):
    f = weft.compile(function)
    f(*args)
    return f.recordings[0].programs[0]


def test_a_program_refuses_other_arrays():
    program = program_of(lambda x: x * 2, weft.ones(3))
    with pytest.raises(AssertionError, match="built for"):
        program.call([np.zeros(2, np.float32)], [2])


def test_no_call_is_replayed_on_other_arrays():
    """Somebody has changed the array of an argument while the call was in flight."""

    @weft.compile
    def f(x, change):
        y = x + 1
        if change:
            x._data = np.zeros(2, np.float32)
        return y

    for _ in range(6):
        f(weft.ones(300), False)
    with pytest.raises(AssertionError, match="built for"):
        f(weft.ones(300), True)
    assert f(weft.ones(300), False).tolist() == [2.0] * 300


@pytest.mark.parametrize("shape", [(3,), (300,)])
def test_arguments_that_are_written_to_are_checked_in_every_call(shape):
    """Read-only memory is refused, and nothing else is written."""

    def scenario(compile):
        f = compile(lambda x, y: x.mul_(y))
        for k in range(16):
            array = np.ones(shape, np.float32)
            array.flags.writeable = k not in (8, 9, 13)
            x = weft.from_numpy(array) if k % 3 == 2 else weft.ones(*shape)
            yield outcome(f, weft.from_numpy(array) if k in (8, 9, 13) else x, weft.full(shape, 2.0)), array, x

    assert_same(scenario)


# --- red zones --------------------------------------------------------------------------------------------------------
def test_red_zones_see_what_is_written_outside(monkeypatch):
    program = program_of(lambda x: x * 2, weft.ones(64))
    monkeypatch.setattr(program.places, "require", lambda *_: None)
    for arrays, outputs, words in (
        ([np.ones(64, np.float32)], (((48,), np.float32),), "behind output 0"),
        ([np.ones(48, np.float32)], (((64,), np.float32),), None),
    ):
        monkeypatch.setattr(program, "outputs", outputs)
        with red_zones():
            if words:
                with pytest.raises(AssertionError, match=words):
                    program.call(arrays, [2])
            else:
                assert program.call(arrays, [2])[0].tolist() != [2.0] * 64


def test_red_zones_see_a_commit_that_is_too_long(monkeypatch):
    x = weft.ones(64)
    f = weft.compile(lambda: x.mul_(2))
    f()
    (program,) = f.recordings[0].programs
    monkeypatch.setattr(program.places, "require", lambda *_: None)
    with red_zones(), pytest.raises(AssertionError, match="behind input 0"):
        program.call([np.ones(60, np.float32)], [2])


def check_between_red_zones(source, title):
    namespace = {}
    exec(source, namespace)
    with np.errstate(all="ignore"), red_zones() as calls:
        try:
            assert_same(namespace["program"])
        except Exception as error:
            raise AssertionError(f"{error}\n{title}:\n\n{source}") from error
    return calls


@pytest.mark.parametrize("kind, first", [(RandomTraining, 0), (RandomTraining, 1000), (RandomProgram, 5000)])
def test_random_programs_between_red_zones(kind, first):
    options = () if kind is RandomTraining else (15,)
    calls = [check_between_red_zones(kind(seed, *options).source, f"seed {seed}") for seed in range(first, first + 10)]
    assert sum(map(len, calls)) > 40


@everywhere
def test_optimizers_between_red_zones(name):
    def run(compile):
        weft.manual_seed(1)
        model = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
        optimizer = make(weft, name, model.parameters())

        @compile
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(weft.randn(6, 7)) for _ in range(6)]
        return look([losses, list(model.state_dict().values()), seen(model.parameters(), optimizer)])

    eager = run(undecorated)
    with red_zones() as calls:
        assert run(weft.compile) == eager
    assert len(calls) >= 6
