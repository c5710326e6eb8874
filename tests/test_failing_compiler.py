"""A compiler that fails: the call runs eagerly all the same, says why, and so do those after it."""

import signal

import pytest
from compiled_twin import leaf, look

import weft
from weft.compiler import pipeline
from weft.runtime.code import jit
from weft.runtime.record import build

N_CALLS = 5


def failing(*_, **__):
    raise KeyError("a value that nobody has made")


STAGES = [
    *(
        (pipeline, name)
        for name in ("decompose", "join_parts", "legalize", "simplify", "fuse", "schedule", "lower_all")
    ),
    (build, "compile_graph"),
    (jit, "begin_in_parts"),
]


@pytest.fixture(autouse=True)
def no_programs_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))


def trained(compile):
    weft.manual_seed(3)
    net = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Tanh(), weft.nn.Linear(4, 2))
    optimizer, seen = weft.optim.Adam(net.parameters(), lr=0.1), []

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = weft.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        seen.append(step)
        return loss, loss.item() + 1

    losses = [step(weft.randn(6, 3), weft.randint(0, 2, (6,))) for _ in range(N_CALLS)]
    assert len(seen) == N_CALLS  # no call has run twice
    return step, look([losses, [p.detach() for p in net.parameters()]])


@pytest.mark.parametrize("stage", STAGES, ids=[name for _, name in STAGES])
def test_training_goes_on_as_in_eager_mode(monkeypatch, stage):
    _, expected = trained(lambda f: f)
    monkeypatch.setattr(*stage, failing)
    with pytest.warns(RuntimeWarning, match=r"could not compile step, which runs eagerly: the compiler failed") as met:
        step, found = trained(weft.compile)
    assert found == expected
    assert len(met) == 1 and met[0].filename == __file__
    text = step.explain()
    assert "KeyError: 'a value that nobody has made'" in text and "calls run eagerly" in text
    assert step.breaks[0].line.startswith(__file__)


def differentiated(compile):
    weft.manual_seed(3)
    w, seen = leaf(4, 4), []
    f = compile(lambda x: (x @ w).tanh().exp())
    for _ in range(N_CALLS):
        y = f(weft.randn(3, 4))
        y.sum().backward(retain_graph=True)
        y.backward(weft.ones(3, 4))
        seen += [y, w.grad.clone()]
    return f, look(seen)


@pytest.mark.parametrize("name", ["compile_graph", "build_forward", "build_backward"])
def test_a_backward_after_the_call(monkeypatch, name):
    _, expected = differentiated(lambda f: f)
    monkeypatch.setattr(build, name, failing)
    with pytest.warns(RuntimeWarning, match="could not compile"):
        f, found = differentiated(weft.compile)
    assert found == expected and "the compiler failed" in f.explain()


def test_other_signatures_are_compiled(monkeypatch):
    f, x = weft.compile(lambda x: (x * 2).exp()), weft.randn(3)
    with monkeypatch.context() as patched, pytest.warns(RuntimeWarning, match="could not compile"):
        patched.setattr(build, "compile_graph", failing)
        f(x)
    y = weft.randn(2, 3)
    assert f(y).equal((y * 2).exp()) and f(x).equal((x * 2).exp())
    assert [len(r.programs) for r in f.recordings] == [0, 1]


def test_whole_graphs_only(monkeypatch):
    monkeypatch.setattr(build, "compile_graph", failing)
    f = weft.compile(lambda x: (x * 2).exp(), fullgraph=True)
    with pytest.raises(RuntimeError, match=r"fullgraph=True.*the compiler failed \(KeyError") as met:
        f(weft.randn(3))
    assert isinstance(met.value.__cause__, KeyError)


def test_who_asks_for_a_program_gets_the_error(monkeypatch, tmp_path):
    monkeypatch.setattr(pipeline, "legalize", failing)
    with pytest.raises(KeyError, match="nobody has made"):
        weft.export(lambda x: (x * 2).exp(), (weft.randn(3),), tmp_path / "f")


def test_what_a_signal_handler_raises_is_no_failure_of_the_compiler(monkeypatch):
    class Handler:
        def too_late(self, *_):
            raise TimeoutError("too late")

    before = signal.signal(signal.SIGUSR1, Handler().too_late)
    try:
        monkeypatch.setattr(pipeline, "legalize", lambda graph: signal.raise_signal(signal.SIGUSR1))
        with pytest.raises(TimeoutError, match="too late"):
            weft.compile(lambda x: (x * 2).exp())(weft.randn(3))
    finally:
        signal.signal(signal.SIGUSR1, before)
