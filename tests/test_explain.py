"""The first lines of explain(): whether calls take the fast path, and if not, where they leave it and what to do."""

import copy
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.runtime.code import made_here
from weft.runtime.programs.advice import advice_for
from weft.runtime.replay import usual_learning

W = weft.ones(3, requires_grad=True)


def condition(x):
    y = (x * 2).sum()
    if y > 0:
        y = y * 3
    return y


def twice(x):
    return x * 2


def hooked(x):
    y = x * W
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    return y


def called(function, n=6, **options):
    f = weft.compile(function, **options)
    for _ in range(n):
        f(weft.ones(3))
    return f


def head(f):
    return f.explain().splitlines()[0]


def test_yes():
    f = called(twice)
    assert head(f) == "twice: fast path: yes" and f.breaks == ()


def test_not_yet():
    assert head(called(twice, 0)) == "twice: fast path: not called yet"
    assert head(called(twice, 2)) == "twice: fast path: not yet, that takes three calls that are alike"


def test_a_break_names_the_line_and_what_to_write_instead():
    f = called(condition)
    (found,) = f.breaks
    assert found.reason == "a value was read before the call ended" and found.count > 0
    assert found.line == f"{__file__}:{condition.__code__.co_firstlineno + 2}"
    lines = f.explain().splitlines()
    assert lines[:2] + lines[3:4] == [
        "condition: fast path: yes, in parts: 1 break(s)",
        f"  {found.line}: {found.reason} [{found.count}x]",
        f"    instead: {found.advice}",
    ]
    assert re.fullmatch(r"    costs: about [\d.e-]+ us each time, as measured in a small function; .*", lines[2])
    assert "weft.where" in found.advice


def test_what_a_read_costs_is_not_measured_inside_a_call():
    read = called(condition)
    said = []

    def outer(x):
        said.append(read.explain())
        return x * 2

    for _ in range(4):
        assert weft.compile(outer)(weft.ones(3)).tolist() == [2.0] * 3
    assert all("weft.where" in text and "costs" not in text for text in said) and len(said) == 4


def test_breaks_of_all_signatures_are_counted_together():
    f = called(condition, 2)
    f(weft.ones(4))
    assert [found.count for found in f.breaks] == [3]
    assert head(f) == "condition: fast path: no: 1 break(s)"


def test_calls_that_are_never_replayed_are_a_break():
    f = called(hooked)
    (found,) = f.breaks
    assert head(f) == "hooked: fast path: no: 1 break(s)"
    assert "followed step by step" in found.reason and "hooks" in found.reason and found.count == 6


def test_what_runs_outside_says_what_it_costs():
    f = called(lambda x: weft.linalg.svdvals(x.reshape(1, 3) * 2))
    (found,) = f.breaks
    assert "computed by NumPy" in found.reason and 0 < found.microseconds < 1e6
    assert f"    costs: {found.microseconds:.3g} us each time" in f.explain().splitlines()
    assert f"    instead: {found.advice}" in f.explain().splitlines()
    reason, line, count = found
    assert (reason, line, count) == found


def test_calls_that_are_followed_step_by_step_say_what_they_cost():
    (found,) = called(hooked).breaks
    assert 0 < found.microseconds < 1e7


def test_memory_shown_to_numpy_is_a_break_of_its_own():
    def shown(x):
        y = x * 2
        array = y.numpy()
        return y + weft.from_numpy(array)

    read, followed = called(shown, 12).breaks
    assert read.reason == "a value was read before the call ended"
    assert "followed step by step" in followed.reason and "a NumPy array shows too" in followed.reason
    assert "weft.tensor(array)" in followed.advice and followed.microseconds > 0


def test_kernels_are_shown_to_those_who_ask():
    f = called(twice)
    assert "k0: " not in f.explain() and "k0: loop over (3,): mul" in f.explain(verbose=True)
    assert "1 kernel(s)" in f.explain() and " ms): " in f.explain()


def sums_positive(x):
    return x[x > 0].sum()


def scales_by_kinds(x):
    return x * len(weft.unique(x))


@pytest.mark.parametrize("function", [sums_positive, scales_by_kinds])
def test_results_of_a_size_that_data_decides_have_words_of_their_own(function):
    f = called(function)
    (found,) = f.breaks
    assert found.reason == "a result is as large as its values say, so they were read before the call ended"
    text = f.explain()
    assert f"{function.__name__}: fast path: yes, in parts: 1 break(s)" in text and "test_explain.py:" in text
    assert "costs: about " in text and "instead: keep the shape and let weft.where choose" in text


def through_numpy(x):
    return weft.from_numpy(np.sin(x.numpy())) * 2


def test_what_numpy_computes_in_the_middle_has_an_advice():
    f = called(through_numpy)
    (found,) = f.breaks
    assert "followed step by step: a value was needed in the middle of it" in found.reason
    assert "  costs: " in f.explain() and "instead: let weft compute it" in f.explain()


def test_every_reason_against_replaying_has_an_advice():
    """A call that failed is another's error; what ran outside is shown as a break of its own."""
    reasons = [reason for reason, _ in usual_learning._CONDITIONS]
    assert len(reasons) > 5 and [r for r in reasons if advice_for(r) is None] == ["the call failed"]


def test_an_array_that_is_kept_has_an_advice():
    """It shows the memory of a parameter, so that is updated eagerly; a copy does not."""
    model = weft.nn.Linear(3, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    @weft.compile
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    best = model.bias.detach()
    for _ in range(3):
        step(weft.ones(2, 3))
    assert best.item() == model.bias.item() and not step.breaks
    array = best.numpy()
    step(weft.ones(2, 3))
    assert array.item() == model.bias.item()
    (found,) = step.breaks
    assert "an update" in found.reason and "NumPy array" in found.reason and ".copy()" in found.advice


def test_explain_of_a_call():
    f = weft.compile(lambda x, scale: x * scale)
    assert "1 call(s)" in f.explain(weft.ones(3), scale=2.0)


# --- fullgraph --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "function,reason",
    [
        (condition, "a value was read before the call ended"),
        (lambda x: (x * 2).tolist(), "a value was read before the call ended"),
        (lambda x: (x * 7).to(weft.int64) ** weft.arange(3), "integer_pow: integer powers"),
    ],
)
def test_fullgraph_refuses_breaks_at_their_line(function, reason):
    f = weft.compile(function, fullgraph=True)
    for _ in range(3):
        with pytest.raises(
            RuntimeError, match=r"compile\(fullgraph=True\): .*cannot be one program: .*test_explain.py:\d+\]"
        ) as raised:
            f(weft.ones(3))
        assert reason in str(raised.value) and "]; instead: " in str(raised.value)


def test_fullgraph_lets_whole_graphs_be():
    f = called(twice, fullgraph=True)
    assert f(weft.ones(3)).tolist() == [2.0] * 3 and f.breaks == ()

    @weft.compile(fullgraph=True)
    def step(x):
        loss = (x * W).sum()
        (gradient,) = weft.autograd.grad(loss, W)
        return loss.detach(), gradient

    for _ in range(6):
        assert step(weft.full((3,), 2.0))[1].tolist() == [2.0] * 3


def test_what_was_done_before_the_refused_line_stays_done():
    """As after any exception in the middle of a call."""
    state = weft.zeros(3)

    def counted(x):
        state.add_(1)
        return (x + state).sum().item()

    f = weft.compile(counted, fullgraph=True)
    for k in range(1, 4):
        with pytest.raises(RuntimeError, match="fullgraph=True"):
            f(weft.ones(3))
        assert state.tolist() == [k] * 3


def test_copies_keep_the_option():
    for f in (
        copy.deepcopy(weft.compile(Reading(), fullgraph=True)),
        pickle.loads(pickle.dumps(weft.compile(Reading(), fullgraph=True))),
    ):
        with pytest.raises(RuntimeError, match="fullgraph=True"):
            f(weft.ones(3))


class Reading(weft.nn.Module):
    def forward(self, x):
        return x.sum().item()


def test_verbose_says_what_else_the_process_has_compiled(tmp_path):
    code = "import weft\nf = weft.compile(lambda x: weft.exp(x))\nfor _ in range(9):\n    f(weft.ones(3)).sum().exp()\n"
    env = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code + "print(f.explain(verbose=True))"]
    said = "compiled in this process, and kept on disk: kernels of eager ops and routines, "
    printed = [subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert [said in text for text in printed] == [True, False]


def test_what_compiles_within_counts_once(monkeypatch):
    monkeypatch.setattr(made_here, "seconds", {})
    monkeypatch.setattr(made_here, "perf_counter", iter([0.0, 1.0, 3.0, 10.0]).__next__)
    with made_here.timed("outer"), made_here.timed("inner"):
        pass
    assert made_here.seconds == {"inner": 2.0, "outer": 8.0}


# --- what only makes what runs later ----------------------------------------------------------------------------------
def doubled(x):
    for row in x:
        yield row * 2


async def awaited(x):
    return x * 2


async def each(x):
    yield x * 2


@pytest.mark.parametrize(
    ("function", "what"),
    [(doubled, "a generator"), (awaited, "a coroutine"), (each, "an asynchronous generator")],
)
def test_bodies_that_run_after_the_call(function, what):
    """`fast path: yes` was said of them, and that nothing ran outside the programs: nothing of them is compiled."""
    f = weft.compile(function)
    assert f.breaks == ()
    for _ in range(4):
        made = f(weft.ones(2))
        if hasattr(made, "close"):
            made.close()
    lines = f.explain().splitlines()
    assert lines[0] == f"{function.__name__}: fast path: no: 1 break(s)"
    assert f"it is {what}: its body runs after the call, and is not compiled [4x]" in lines[1]
    assert lines[1].strip().startswith(f"{__file__}:{function.__code__.co_firstlineno}: ")
    assert "instead: compile the function that computes one of its values" in lines[2]
    (found,) = f.breaks
    assert found.reason.startswith(f"it is {what}") and found.count == 4
    with pytest.raises(
        RuntimeError, match=f"fullgraph=True.*it is {what}.*{function.__code__.co_firstlineno}.*instead"
    ):
        weft.compile(function, fullgraph=True)


# --- many of a kind ---------------------------------------------------------------------------------------------------
def test_many_signatures_are_not_all_described(monkeypatch):
    monkeypatch.setattr("weft.runtime.replay.many_learning.LEAST_SIZES", float("inf"))
    f = weft.compile(lambda x: (x * 2).sum())
    for n in [*range(1, 13), 5, 5, 5, 5]:
        f(weft.ones(n))
    text, everything = f.explain(), f.explain(verbose=True)
    assert text.startswith("function: fast path: yes, for 1 of 12 signatures; the others wait for three calls")
    shown = [line for line in text.splitlines() if line.startswith("signature (")]
    assert shown[0].startswith("signature (float32[5]): 5 call(s)") and len(shown) == 3
    assert "and 9 other signature(s), 9 call(s) in all: verbose=True describes them" in text
    assert everything.count("signature (") == 12 and "other signature(s)" not in everything
