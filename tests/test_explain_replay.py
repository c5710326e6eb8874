"""explain() says of every signature whether its calls are replayed, and if not, why and at which line."""

import itertools

import pytest

import weft
from weft.runtime.replay import native, native_making

W = weft.ones(3, requires_grad=True)
STATE = weft.zeros(3)


def explained(function, *arguments, n=6):
    f = weft.compile(function)
    for _ in range(n):
        f(*arguments)
    return f.explain()


def hooked(x):
    y = x * W
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    return y


def own_function(x):
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x.double() * 3

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h.float() * 3

    return Twice.apply(x * W)[0].sum()


def eager_part(x):
    v = x.reshape(1, 3).diagonal()
    x.add_(1)
    return v


NOT_REPLAYED = {
    "hooks": (hooked, "gradients pass through nodes"),
    "an op outside, with a history": (lambda x: weft.linalg.matrix_exp(x.outer(x) * W), "ran outside its program"),
    "a Function": (own_function, "gradients pass through nodes"),
    "in place under a view": (eager_part, "ran outside its program"),
}


@pytest.mark.parametrize("function,reason", NOT_REPLAYED.values(), ids=NOT_REPLAYED)
def test_why_calls_are_not_replayed(function, reason):
    text = explained(function, weft.ones(3))
    line = next(line for line in text.splitlines() if "calls are not replayed" in line)
    assert reason in line and "test_explain_replay.py:" in line


class Doubled(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Both(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h * 3


def test_what_a_function_that_is_an_op_gives_is_replayed():
    assert "calls are replayed" in explained(lambda x: Doubled.apply(x * W).sum(), weft.ones(3))
    assert "calls are replayed" in explained(lambda x: Both.apply(x * W)[0].sum(), weft.ones(3))


def test_an_op_outside_is_named_and_the_call_is_replayed():
    text = explained(lambda x: (x * 7).to(weft.int64) ** weft.tensor([5]), weft.ones(3), n=9)
    assert "fast path: yes, in parts: 1 break(s)" in text and "calls are replayed" in text
    assert "integer_pow: integer powers are computed by NumPy [9x]" in text and "test_explain_replay.py:" in text


def test_the_line_of_the_hook_is_named():
    assert f"test_explain_replay.py:{hooked.__code__.co_firstlineno + 2}]" in explained(hooked, weft.ones(3))


def test_an_argument_with_a_history():
    assert "calls are replayed" in explained(lambda x: x * 2, W * 2)
    text = explained(lambda x: (x * 2).sum().backward(retain_graph=True), (W * 2).exp())
    assert "a backward inside the call goes on to the history of what comes in [" in text


def test_too_few_calls():
    assert "that takes three that are alike" in explained(lambda x: x * 2, weft.ones(3), n=2)


def test_calls_that_are_replayed():
    text = explained(lambda x: x * 2, weft.ones(3))
    how = "in native code" if native.layout() is not None else "in Python"
    assert f"calls are replayed {how}" in text and "not replayed" not in text


def test_what_is_slower_is_said():
    assert "done in Python" not in explained(lambda x: (x * 2).t(), weft.ones(2, 3))
    assert "done in Python" not in explained(lambda x: x * weft.tensor([1.0]), weft.ones(2, 3))
    assert "a result is a view of memory that may lie otherwise" in explained(lambda x: (x * 2).data, weft.ones(2, 3))
    assert "done in Python" not in explained(lambda x: x * W, weft.ones(3))
    assert "done in Python" not in explained(lambda x: x * 2, W * 2)
    assert "done in Python" not in explained(lambda x: STATE.add_(x) is None, weft.ones(3))
    assert "done in Python" not in explained(lambda x: (x * 2).sum().item() * x, weft.ones(3))
    assert "done in Python" not in explained(lambda x: x * (x * 2)[:1].item(), weft.ones(3))
    assert "done in Python" not in explained(lambda x: x * x[:1].item(), weft.ones(3))
    assert "what is read before the call ends is a view of" in explained(
        lambda x: x * (x * 2).data[:1].item(), weft.ones(3)
    )


def test_calls_that_do_something_else_now_and_then():
    def step(x, k):
        y = x * W
        if k % 4 == 0:
            y.register_hook(lambda g: g * 2)
            y.sum().backward()
        return y.detach() if k % 4 else y

    f = weft.compile(step)
    for k in range(24):
        f(weft.ones(3), k)
    assert "calls are replayed" in f.explain()
    assert "calls that do something else are followed step by step: gradients pass through nodes" in f.explain()
    assert "test_explain_replay.py:" in f.explain().split("do something else")[1]


def test_calls_that_go_new_ways_again_and_again():
    f = weft.compile(lambda x, n: x[: 1 + n] * 2 if n % 2 else (x[: 1 + n] + 1).sum())
    for _ in range(3):
        f(weft.ones(50), 1)
    for n in range(2, 40):
        f(weft.ones(50), n)
        f(weft.ones(50), 1)
    assert "followed step by step so far: " in f.explain()
    assert "call(s), since they went new ways" in f.explain()
    g = weft.compile(lambda x: x + 1)
    for _ in range(60):
        g(weft.ones(2))
    assert "followed" not in g.explain()


def test_native_code_that_is_not_there_is_compiled_for_many_calls_only(monkeypatch):
    """A script that calls a step some times and ends does not wait for what would replay it; bits are the same."""
    monkeypatch.setattr(native_making, "PAYS_AFTER", 5)
    monkeypatch.setattr(native_making, "_asked", native_making._Asked())
    monkeypatch.setattr(native_making, "_is_at_hand", lambda: False)
    monkeypatch.setattr(native_making, "_parts", list)
    f, x = weft.compile(lambda x: (x * 2).tanh()), weft.randn(4)
    expected = (x * 2).tanh().tolist()
    for _ in range(6):
        assert f(x).tolist() == expected
    assert not f.recordings[0].replays
    assert "not replayed yet: compiling what replays calls pays after 5 that are alike" in f.explain()
    while native_making._asked.job is None:
        assert f(x).tolist() == expected
    native_making._asked.job.wait()
    assert f(x).tolist() == expected
    assert f.recordings[0].replays and "calls are replayed" in f.explain()


def test_where_calls_leave_what_is_replayed_and_why():
    def step(x, k):
        y = x * W
        if k:
            for _ in range(k):
                y = y.exp()
        return y.detach()

    f = weft.compile(step)
    for k in [0, 0, *[k for n in range(20) for k in (0, n + 1)]]:
        f(weft.ones(3), k)
    text = f.explain()
    assert " of them from " in text and "test_explain_replay.py:" in text.split(" of them from ")[1], text
    assert "exp, where " in text, text


def test_the_version_of_a_view_is_read_in_a_replayed_call():
    def step(x):
        y = x * 2
        before = y._version, y[1:]._version
        part, whole = y[:1], y.data
        part.add_(1)
        whole.mul_(2)
        return y + W.detach(), [*before, part._version, y[1:]._version, whole._version, y._version, STATE[0]._version]

    f, STATE.data = weft.compile(step), weft.zeros(3)
    for _ in range(6):
        found, versions = f(weft.ones(3))
        expected, wanted = step(weft.ones(3))
        assert versions == wanted and weft.equal(found, expected)
    assert f.recordings[0].n_followed <= 4 and f.recordings[0].replays, f.explain()


def test_calls_of_which_most_leave_what_is_replayed():
    def step(x):
        y = x * W
        if next(count) > 4:
            y.grad = weft.ones(3)
        return y.detach()

    f, count = weft.compile(step), itertools.count()
    for _ in range(20):
        f(weft.ones(3))
    text = f.explain()
    assert "fast path: no: most calls leave it on the way" in text, text
    assert "the .grad of a value that the call has computed is set (detach came there)" in text, text
