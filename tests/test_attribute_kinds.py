"""2, 2.0 and True are equal and not the same; neither are 0.0 and -0.0; and NaN is. A call with one of them is never
the replay of a call with the other: attributes are compared with runtime/state/attributes.py, or its twin in native
code."""

import itertools
import math

import numpy as np
import pytest
from compiled_twin import assert_same, look, twin
from helpers import call, sampled_ops

import weft
from weft.compiler.ops.kinds import elementwise
from weft.compiler.ops.parts import AT_KNOWN_PLACES
from weft.compiler.ops.table import unregister
from weft.runtime.eager.update import update
from weft.runtime.state.attributes import refusal, same, same_attributes

NAN, OTHER_NAN = float("nan"), -float("nan")
ALIKE = [(1, 1), ("a", "a"), (None, None), (True, True), (weft.float32, weft.float32), (0.5, 0.5), (NAN, OTHER_NAN)]
ALIKE += [((1, (2.0, "x")), (1, (2.0, "x"))), ((NAN,), (OTHER_NAN,)), ((), ()), (10**40, 10**40), (1000, int("1000"))]
UNLIKE = [(1, 1.0), (1, True), (0, False), (1.0, True), (0.0, -0.0), (0, -0.0), (1, 2), (1.5, NAN), (None, False)]
UNLIKE += [((1,), (1.0,)), ((1,), (True,)), ((0.0,), (-0.0,)), ((1, 2), (1,)), ((1, (2,)), (1, (2.0,))), ("1", 1)]
UNLIKE += [(np.float64(1), 1.0), (np.int64(1), 1), (weft.float32, weft.float64), (weft.float32, "float32")]


def test_what_is_the_same():
    for x, y in ALIKE:
        assert same(x, y) and same(y, x) and same_attributes({"a": x, "b": 1}, {"b": 1, "a": y}), (x, y)
    for x, y in UNLIKE:
        assert not same(x, y) and not same(y, x) and not same_attributes({"a": x, "b": 1}, {"b": 1, "a": y}), (x, y)
    assert not same_attributes({"a": 1}, {"b": 1}) and not same_attributes({"a": 1}, {"a": 1, "b": 1})
    assert same_attributes({}, {}) and same({"a": 1.0}, {"a": 1.0}) and not same({"a": 1.0}, {"a": 1})


def test_what_a_recording_may_hold():
    for x in {id(x): x for pair in ALIKE for x in pair}.values():
        assert refusal({"a": x}) is None
    for x, kind in (
        ([1], "list"),
        (np.float64(1), "float64"),
        ((1, [2]), "tuple"),
        (np.zeros(2), "ndarray"),
        ({}, "dict"),
    ):
        assert refusal({"fine": 1, "a": x}) == f"a is of type {kind}, which compiled calls cannot compare"


# --- an op that tells what it was given -------------------------------------------------------------------------------
@pytest.fixture
def op():
    """An op of one attribute, `value`, whose kind and sign decide the result."""
    made = elementwise(
        "told",
        1,
        lambda operands, default_float: ((operands[0].dtype,), operands[0].dtype),
        evaluate=lambda x, value: x + np.float32(_code(value)),
        lower=lambda b, x, value: b.add(x, b.const(float(_code(value)), x.type)),
    )
    yield made
    unregister("told")


def _code(value):
    """A small number for a value and its kind."""
    text = repr(value)
    return sum(ord(c) * (k + 1) for k, c in enumerate(text)) % 4093


def in_turn(f, x, values):
    return [look(f(x, value)) for value in values]


@pytest.mark.parametrize("native", [True, False])
def test_every_kind_has_its_own_result(op, native, monkeypatch):
    """Called often enough with one kind for the fast replay, then with another."""
    if not native:
        monkeypatch.setattr("weft.runtime.replay.native.layout", lambda: None)
    x = weft.ones(3)

    def plain(x, value):
        return op(x, value=value) * 2

    for before, after in UNLIKE:
        if refusal({"before": before, "after": after}) is not None:
            continue
        values = [before] * 5 + [after] + [before] * 2 + [after] * 5 + [before]
        f = weft.compile(plain)
        assert in_turn(f, x, values) == in_turn(plain, x, values), (before, after)
        assert "nothing ran outside" in f.explain()
    for before, after in ALIKE:
        f = weft.compile(plain)
        expected = in_turn(plain, x, [before] * 12)
        assert in_turn(f, x, [before, after] * 6) == expected
        assert f.recordings[0].n_branches == 1, (before, after)


def test_attributes_of_unknown_kinds_run_eagerly(op):
    f = weft.compile(lambda x, value: op(x, value=value))
    for value in ([1], np.float64(0.5), (1, np.int64(2))):
        for _ in range(3):
            assert look(f(weft.ones(2), value)) == look(op(weft.ones(2), value=value))
        assert f"told: value is of type {type(value).__name__}" in f.explain()


def test_the_order_of_attributes_does_not_count():
    """Native code looks at them in one order; in another one it asks Python."""

    @weft.compile
    def f(x, turned):
        if turned:
            return weft.compiler.ops.TABLE["sum"](x, keepdim=True, axes=(0,))
        return weft.compiler.ops.TABLE["sum"](x, axes=(0,), keepdim=True)

    for k in range(12):
        assert f(weft.ones(3), k % 3 == 2).tolist() == [3.0]
    assert f.recordings[0].n_branches == 1


# --- what people write ------------------------------------------------------------------------------------------------
@twin
def test_powers(compile):
    f = compile(lambda x, p: weft.pow(x, p))
    for x in (weft.tensor([1, 2, 3]), weft.tensor([1.0, 2.0]), weft.tensor([True, False])):
        for p in (2, 2.0, 3, 3.0, 1, 1.0, True, 0, 0.0, -0.0, False, 2, 2, 2, 2, 2.0, 2.0, 2.0):
            yield f(x, p)


@twin
def test_powers_in_place(compile):
    x = weft.tensor([1.0, 2.0])
    whole = weft.tensor([1, 2])
    f = compile(lambda y, p: y.pow_(p))
    for y in (x, whole):
        for p in (2, 2, 2, 2, 2, 2.0, 1, True, 1.0, 1.0, 0, -0.0, 0.0, False):
            try:
                yield f(y, p)
            except RuntimeError as error:
                yield type(error).__name__, y
            y.copy_(weft.tensor([1, 2]))


@twin
def test_fills_and_limits_in_place(compile):
    """Numbers that are operands: their kind and sign are in the program's arguments."""
    f = compile(lambda x, v: (x.fill_(v), x.clone().clamp_(v) * 2, 1 / (x + v)))
    for v in (0.0, 0.0, 0.0, 0.0, -0.0, 0, False, 1, True, 1.0, -0.0, -0.0):
        yield f(weft.ones(3), v)


def test_nan_makes_no_new_paths():
    f = weft.compile(lambda x: x ** float("nan"))
    for _ in range(20):
        f(weft.ones(3))
    assert f.recordings[0].n_branches == 1 and "nothing ran outside" in f.explain()


@pytest.mark.parametrize(
    "make",
    [
        lambda v: weft.arange(0, 3, v),
        lambda v: weft.arange(v, 5),
        lambda v: weft.arange(v),
        lambda v: weft.full((2,), v),
        lambda v: weft.ones(3) + v,
        lambda v: weft.tensor([1, 2]) * v,
        lambda v: weft.tensor([True, False]) + v,
        lambda v: weft.nn.functional.layer_norm(weft.arange(6.0).reshape(2, 3), (3,), eps=v),
        lambda v: weft.arange(6.0).reshape(2, 3).var(dim=0, correction=v),
        lambda v: weft.arange(6.0).reshape(2, 3).sum(0, keepdim=v),
        lambda v: weft.arange(6.0).reshape(2, 3).sum(int(v), keepdim=bool(v)),
        lambda v: weft.nn.functional.leaky_relu(weft.tensor([-1.0, 1.0]), v),
        lambda v: weft.tensor([-1.0, 1.0]).clamp(v),
        lambda v: weft.ones(3, 3).tril(v),
    ],
)
def test_numbers_of_every_kind(make):
    """One call after the other with 1, 1.0, True and their like; what eager mode refuses is refused."""

    def scenario(compile):
        f = compile(make)
        for v in (True, 1, 1.0, True, 1, 1, 1, 1, 1.0, 1.0, 1.0, 1.0, True, True, True, np.float64(1), np.int64(1)):
            try:
                yield f(v)
            except Exception as error:
                yield type(error).__name__

    assert_same(scenario)


@pytest.mark.oracle
def test_a_range_with_a_truth_value_is_pytorchs():
    torch = pytest.importorskip("torch")
    f = weft.compile(weft.arange)
    for args in ((0, 3, True), (True, 3), (False, True), (0.0, 3, True)):
        assert f(*args).tolist() == torch.arange(*args).tolist()


def test_every_op_takes_numbers_of_every_kind():
    """All ops of the table with a number among their operands: as bool, as int, as float."""
    checked = 0
    for op in sampled_ops():
        for sample in op.samples():
            where = [k for k, x in enumerate(sample.operands) if not isinstance(x, np.ndarray)]
            # The key of uniform is the generator's, an int; places are ints, and parts that are read there are views.
            if not where or op.name == "uniform" or op in AT_KNOWN_PLACES:
                continue
            for dtype, kinds in itertools.product(("float32", "int64", "bool"), ((bool, int, float),) * len(where)):
                for kind in kinds:
                    checked += _check_numbers(op, sample, where, dtype, kind)
    assert checked > 100


def _check_numbers(op, sample, where, dtype, kind):
    operands = [_tensor(x, dtype) if isinstance(x, np.ndarray) else x for x in sample.operands]
    for k in where:
        operands[k] = kind(operands[k])

    def run(*operands):
        try:
            return look(call(op, list(operands), sample.attributes))
        except Exception as error:
            return type(error).__name__

    assert _outcome(weft.compile(lambda *x: call(op, list(x), sample.attributes)), operands) == run(*operands)
    return 1


def _outcome(function, operands):
    try:
        return look(function(*operands))
    except Exception as error:
        return type(error).__name__


def _tensor(x, dtype):
    return weft.tensor(x.astype(dtype) if x.dtype.kind == "f" else x)


# --- flags of updates -------------------------------------------------------------------------------------------------
def shifted(x, *, by):
    return (x + (1.5 if type(by) is float else 0.25) + math.copysign(2, by),)


@pytest.mark.parametrize("native", [True, False])
def test_flags_of_updates(native, monkeypatch):
    if not native:
        monkeypatch.setattr("weft.runtime.replay.native.layout", lambda: None)

    def scenario(compile):
        x = weft.ones(3)

        @compile
        def run(by):
            with weft.no_grad():
                update(shifted, [(x,)], by=by)

        for by in (1, 1, 1, 1, 1, 1.0, 1, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -0.0, 0, False, np.float64(0)):
            run(by)
            yield x

    assert_same(scenario)


@twin
def test_options_of_optimizers_that_change_their_kind(compile):
    w = weft.ones(3, requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.5)

    @compile
    def step():
        optimizer.zero_grad()
        w.square().sum().backward()
        optimizer.step()

    options = [
        {},
        {"maximize": 0},
        {"nesterov": 1},
        {"lr": 1},
        {"weight_decay": 0.0},
        {"weight_decay": np.float32(0.5)},
    ]
    for group in options:
        for _ in range(5):
            optimizer.param_groups[0].update(group)
            step()
            yield w, optimizer.state[w]["momentum_buffer"]
