"""Results written into tensors that exist (`out=`) go to their ops in native code, and do what they do in Python."""

import numpy as np
import pytest
from native_functions_parts import TIMES, have_native_code, numbers, running_in_python

import weft
from weft.runtime.replay import native
from weft.runtime.state import marks

functions_are_native = pytest.fixture(autouse=True)(have_native_code)
in_python = pytest.fixture(running_in_python)

INDEX = [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
CALLS = {
    "sum": lambda lib, x, out: lib.sum(x, 1, out=out[0]),
    "sum into a column": lambda lib, x, out: lib.sum(x, dim=1, out=out[:, 1]),
    "mean": lambda lib, x, out: lib.mean(x, 0, out=out[1]),
    "amax": lambda lib, x, out: lib.amax(x, 1, out=out[0]),
    "matmul": lambda lib, x, out: lib.matmul(x, x, out=out),
    "mm transposed": lambda lib, x, out: lib.mm(x.t(), x, out=out),
    "mm into a transposed": lambda lib, x, out: lib.mm(x, x, out=out.t()),
    "addmm": lambda lib, x, out: lib.addmm(x, x, x, beta=0.5, out=out),
    "cumsum": lambda lib, x, out: lib.cumsum(x, 1, out=out),
    "softmax": lambda lib, x, out: lib.softmax(x, 1, out=out),
    "clamp": lambda lib, x, out: lib.clamp(x, -0.5, 0.5, out=out),
    "mean into float64": lambda lib, x, out: lib.mean(x, 1, out=out[0].double()),
    "tril": lambda lib, x, out: lib.tril(x, out=out),
    "cat": lambda lib, x, out: lib.cat([x[:1], x[1:]], out=out),
    "stack": lambda lib, x, out: lib.stack((x[0], x[1], x[2]), 1, out=out),
    "take": lambda lib, x, out: lib.take(x, lib.tensor(INDEX), out=out),
    "gather": lambda lib, x, out: lib.gather(x, 1, lib.tensor(INDEX), out=out),
    "norm": lambda lib, x, out: lib.linalg.norm(x, dim=1, out=out[0]),
    "logsumexp": lambda lib, x, out: lib.logsumexp(x, 1, out=out[0]),
    "dot": lambda lib, x, out: lib.dot(x[0], x[1], out=out[2, 2]),
    "sort": lambda lib, x, out: lib.sort(x, out=(out, lib.zeros(3, 3, dtype=lib.int64))),
    "max": lambda lib, x, out: lib.max(x, 1, out=(out[0], lib.zeros(3, dtype=lib.int64))),
    "in place of the operand": lambda lib, x, out: lib.cumsum(out, 1, out=out),
    "an operand elsewhere in the same memory": lambda lib, x, out: lib.sum(out[1:], 1, out=out[0, :2]),
}


def results(lib, call, given, n):
    """What n calls on other numbers each return, and what is in the memory that they were given then."""
    made = []
    for k in range(n):
        out = lib.zeros(3, 3) + 0.25
        result = call(lib, lib.tensor(given + k), out)
        result = result if isinstance(result, tuple) else (result,)
        made.append([np.array(x.tolist()) for x in (*result, out)])
    return made


@pytest.mark.oracle
@pytest.mark.parametrize("name", CALLS)
def test_results_are_written_as_in_python_and_in_pytorch(name, in_python):
    import torch

    given, call = numbers(3, 3).numpy(), CALLS[name]
    ours = results(weft, call, given, TIMES)
    slow = in_python(results, weft, call, given, TIMES)
    theirs = results(torch, call, given, TIMES)
    for mine, same, other in zip(ours, slow, theirs, strict=True):
        for a, b, c in zip(mine, same, other, strict=True):
            assert a.tobytes() == b.tobytes()
            np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [weft.cumsum, weft.softmax, weft.linalg.inv])
def test_native_code_answers(function, monkeypatch):
    if native.layout() is None:
        pytest.skip("needs native code")
    x, out, found = numbers(3, 3), weft.zeros(3, 3), []
    answer = marks.answer
    monkeypatch.setattr(marks, "answer", lambda *given: found.append(answer(*given)) or found[-1])
    more = () if function is weft.linalg.inv else (1,)
    for _ in range(TIMES):
        assert function(x, *more, out=out) is out
    assert found[-1] is out
    assert out._version >= TIMES


def known_call(x, out):
    for _ in range(TIMES):
        weft.cumsum(x, 1, out=out)


def test_overlapping_memory_is_no_less_an_error_once_calls_are_known():
    block = weft.arange(12.0)
    x, out = block[:9].view(3, 3), block[3:].view(3, 3)
    for _ in range(TIMES):
        weft.gather(x, 1, weft.tensor(INDEX), out=weft.zeros(3, 3))
    with pytest.raises(RuntimeError, match="single memory location"):
        weft.gather(x, 1, weft.tensor(INDEX), out=out)
    known_call(x, weft.zeros(3, 3))
    with pytest.raises(RuntimeError, match="single memory location"):
        weft.cumsum(x, 1, out=out)
    with pytest.raises(RuntimeError, match="single memory location"):
        weft.cumsum(x, 1, out=weft.zeros(3).expand(3, 3))


def test_what_requires_gradients_is_no_less_an_error():
    x = numbers(3, 3)
    known_call(x, weft.zeros(3, 3))
    for operand, out in ((x.clone().requires_grad_(), weft.zeros(3, 3)), (x, weft.zeros(3, 3, requires_grad=True))):
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            weft.cumsum(operand, 1, out=out)
        with weft.no_grad():
            assert weft.equal(weft.cumsum(operand, 1, out=out), x.cumsum(1))


def test_a_graph_notices_that_what_it_saved_was_written():
    x, out, w = numbers(3, 3), weft.ones(3, 3), weft.ones(3, 3, requires_grad=True)
    known_call(x, weft.zeros(3, 3))
    y = (w * out).sum()
    weft.cumsum(x, 1, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
