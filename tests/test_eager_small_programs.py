"""Operands of a thousand elements and more: native code takes the steps until there is a program, which has the same
bits; then it calls that."""

import numpy as np
import pytest

import weft
from weft.compiler.translate.kinds import offset_of
from weft.runtime.eager import plan
from weft.runtime.eager.eager_words import Routine
from weft.runtime.programs import fused, large
from weft.runtime.replay import eager_native, native

F = weft.nn.functional
MANY = 200  # more calls than native code is told of a plan after, and than are lent at a time

needs_native = pytest.mark.skipif(native.layout() is None, reason="native code calls the programs")


@pytest.fixture(autouse=True)
def compiled_soon(monkeypatch):
    """Counting anew, and to little: as if each call computed much."""
    plan.forget()
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 1 << 19)
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE_FINDING", 1 << 18)
    yield
    plan.forget()
    large.forget()


def numbers(*shape):
    return weft.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


CALLS = {
    "softmax": lambda x: x.softmax(1),
    "layer_norm": lambda x: F.layer_norm(x, (16,)),
    "sum of short rows": lambda x: x.sum(1),
    "mean of columns": lambda x: x.mean(0),
    "greatest": lambda x: x.amax(1),
    "variance": lambda x: x.var(1),
    "turned": lambda x: x.t().softmax(0),
    "every other column": lambda x: x[:, ::2].sum(1),
}


def native_plans(op):
    """(plan, how operands lie, what native code knows) of all plans of an op of this name."""
    return [
        (one, layouts, known)
        for one in plan._plans.values()
        if one.op.name == op
        for layouts, known in (one.native or {}).items()
    ]


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_are_those_of_the_steps(name):
    x, call = numbers(320, 16), CALLS[name]
    found = [call(x).numpy().tobytes() for _ in range(MANY)]
    assert set(found) == {weft.compile(call)(x).numpy().tobytes()}


@needs_native
@pytest.mark.parametrize("op, call", [("softmax", CALLS["softmax"]), ("sum", CALLS["sum of short rows"])])
def test_native_code_takes_the_steps_and_then_a_program(op, call):
    x, programs = numbers(336, 16), []  # native code knows those of other tests
    for _ in range(MANY):
        call(x)
        programs += [known.program is not None for _, _, known in native_plans(op)]
    if programs:  # else one serves all sizes: other tests have called the op with many
        assert programs[0] is False
        assert programs[-1] is True
        ((_, _, known),) = native_plans(op)
        assert known in eager_native._in_table.values()
    before = eager_native.taken("calls_taken")
    for _ in range(5):
        call(x)
    assert eager_native.taken("calls_taken") == before + 5


@needs_native
def test_gradients_are_the_same_before_and_after():
    x = numbers(344, 16).requires_grad_()

    def gradient():
        (found,) = weft.autograd.grad((x.softmax(1) ** 2).sum(), x)
        return found.numpy().tobytes()

    assert len({gradient() for _ in range(MANY)}) == 1
    recordings = [r for one, _, _ in native_plans("softmax") for r in one.recordings.values() if r]
    assert any(r.derivative and r.derivative[0].fused.programs for r in recordings)
    before = eager_native.taken("nodes_taken")
    gradient()
    assert eager_native.taken("nodes_taken") >= before + 3


@needs_native
def test_few_elements_never_ask_for_a_program():
    x = numbers(2, 1, 1, 4, 1, 16)  # a rank of its own: one program may serve all sizes of another
    for _ in range(MANY):
        x.softmax(5)
    ((one, _, known),) = native_plans("softmax")
    assert one.program.fused is None
    assert known.packed.words[offset_of(Routine, "lent") // 8] == 0


@needs_native
def test_steps_are_taken_for_good_where_nothing_compiles(monkeypatch):
    def fail(*_):
        raise fused.jit.NoCompiler("none")

    monkeypatch.setattr(fused, "load_code", fail)
    x = numbers(320, 1, 1, 1, 1, 16)
    assert len({x.log_softmax(5).numpy().tobytes() for _ in range(MANY)}) == 1
    ((_, _, known),) = native_plans("log_softmax")
    assert known.program is None
