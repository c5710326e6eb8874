"""What people see of an error: their own lines, and of weft's those that say something."""

import sys
import traceback
from dataclasses import dataclass

import numpy as np
import pytest

import weft
from weft import nn

VANISHES = sys.version_info >= (3, 11)


def lines_of(function, *arguments):
    """[(module, function), ...]: the frames that a failing call shows, from this file's on."""
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011
        function(*arguments)
    frames = [entry.tb_frame for entry in entries(caught.value.__traceback__)]
    return [(frame.f_globals["__name__"], frame.f_code.co_name) for frame in frames][1:]


def entries(trace):
    while trace is not None:
        yield trace
        trace = trace.tb_next


def of_weft(lines):
    return [line for line in lines if line[0].partition(".")[0] == "weft"]


def test_an_op_is_at_most_one_line_away():
    assert len(of_weft(lines_of(lambda: weft.ones(2, 3) @ weft.ones(4)))) <= (1 if VANISHES else 2)
    assert len(of_weft(lines_of(lambda: weft.ones(2, 3) + weft.ones(4)))) <= (1 if VANISHES else 2)
    failing = nn.functional.cross_entropy, weft.ones(2, 3), weft.tensor([0, 3])
    assert len(of_weft(lines_of(*failing))) <= (0 if VANISHES else 1)


@pytest.mark.parametrize("n_before", [0, 1, 3, 100])
def test_a_compiled_function_ends_with_its_users_line(n_before):
    def scaled(x, w):
        return x * 2 @ w

    @weft.compile
    def loss(x, w):
        return scaled(x, w).sum()

    for _ in range(n_before):
        loss(weft.ones(2, 3), weft.ones(3, 4))
    lines = lines_of(loss, weft.ones(2, 3), weft.ones(4, 4))
    assert [name for _, name in lines][-2:] == ["loss", "scaled"]
    assert len(of_weft(lines)) <= (0 if VANISHES else 1)
    assert float(loss(weft.ones(2, 3), weft.ones(3, 4))) == 2 * 3 * 2 * 4


def test_layers_say_where_in_a_model_it_was():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))
    eager, compiled = lines_of(model, weft.ones(2, 3)), lines_of(weft.compile(lambda x: model(x)), weft.ones(2, 3))
    assert [line for line in eager if line[1] == "forward"] == [
        ("weft.nn.containers", "forward"),
        ("weft.nn.layers", "forward"),
    ]
    assert [name for _, name in compiled if name != "__call__"] == ["<lambda>", "forward", "forward"]


def test_a_backward_pass():
    x = weft.ones(3, requires_grad=True)
    assert len(of_weft(lines_of((x * 2).backward))) <= (1 if VANISHES else 2)
    assert len(of_weft(lines_of(weft.autograd.grad, x * 2, x))) <= (0 if VANISHES else 1)

    def refuses(gradient):
        raise KeyError("no")

    y = x * 1
    y.register_hook(refuses)
    lines = lines_of(y.sum().backward)
    assert lines[-1][1] == "refuses" and len(of_weft(lines)) <= (1 if VANISHES else 2)


def test_functions_of_arrays():
    lines = lines_of(weft.value_and_grad(lambda x: (x @ x).sum()), np.ones((1, 3)))
    assert lines[-1][1] == "<lambda>" and len(of_weft(lines)) <= (1 if VANISHES else 2)


def test_an_error_of_the_users_own_inside():
    @weft.compile
    def loss(x):
        return {}[x.shape]

    lines = lines_of(loss, weft.ones(2))
    assert lines[-1][1] == "loss" and len(of_weft(lines)) <= (0 if VANISHES else 1)


@dataclass(frozen=True)
class Unchanging(Exception):
    why: str


def test_exceptions_that_refuse_attributes():
    @weft.compile
    def loss(x):
        raise Unchanging("so it is")

    lines = lines_of(loss, weft.ones(2))
    assert lines[-1][1] == "loss" and len(of_weft(lines)) <= (0 if VANISHES else 1)
    with pytest.raises(Unchanging, match="so it is"):
        weft.value_and_grad(loss)(np.ones(2))


def test_what_nobody_has_foreseen_shows_everything(monkeypatch):
    def mistaken(*operands):
        return [][0]

    monkeypatch.setattr(weft.compiler.ops.contraction.matmul, "infer", mistaken)
    monkeypatch.setitem(mistaken.__globals__, "__name__", "weft.some_module")
    lines = lines_of(lambda: weft.ones(3, 7) @ weft.ones(8, 19))
    assert lines[-1][1] == "mistaken" and len(of_weft(lines)) >= 4


def test_everything_is_shown_when_asked_for(monkeypatch):
    monkeypatch.setenv("WEFT_TRACEBACKS", "full")
    lines = lines_of(weft.compile(lambda x: x @ weft.ones(4)), weft.ones(2, 3))
    assert len(of_weft(lines)) > 5 and lines[-1] == ("weft.compiler.ops.contraction", "_matmul_infer")


def test_the_name_and_the_lines_that_are_printed():
    with pytest.raises(weft.OpError) as caught:
        weft.compile(lambda x: x @ weft.ones(4))(weft.ones(2, 3))
    printed = traceback.format_exception(caught.value)
    assert printed[-1].startswith("weft.OpError: matmul: shapes (2, 3) and (4,)")
    assert "x @ weft.ones(4)" in printed[-2]
