"""compile(background=True): calls run eagerly until their program is there, and nobody can tell but by the time."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import weft
from weft import nn
from weft.runtime.code.cache import default_cache
from weft.runtime.programs import background

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(autouse=True)
def nothing_compiled_before(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    default_cache.cache_clear()
    yield
    for job in list(background._jobs.values()):
        job.wait()
    background._jobs.clear()
    default_cache.cache_clear()


@contextmanager
def held_up():
    """A block in which nothing that is made in the background is done."""
    with background.building:
        yield


def bits(tensors):
    return [t.detach().numpy().tobytes() for t in tensors]


def classifier(seed):
    weft.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.25), nn.LayerNorm(16), nn.Linear(16, 3))


def batches(n, size=9):
    generator = np.random.default_rng(3)
    for _ in range(n):
        x = generator.standard_normal((size, 6)).astype(np.float32)
        yield weft.from_numpy(x), weft.from_numpy(generator.integers(0, 3, size))


def training(decorate, between=lambda k, step: None, n=9):
    """(losses, parameters, the state of the generator) after some steps."""
    model = classifier(5)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02, weight_decay=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step, losses = decorate(step), []
    for k, (x, y) in enumerate(batches(n)):
        between(k, step)
        losses.append(step(x, y).item())
    return losses, bits(model.parameters()), weft.get_rng_state().tolist()


def in_background(function):
    return weft.compile(function, background=True)


def test_training_has_the_bits_of_eager_mode_before_and_after():
    seen = {}

    def between(k, step):
        if k in (3, 5):
            step.finish_compiling()
        if k == 8:
            seen["text"], seen["programs"] = step.explain(), step.recordings[0].programs

    assert training(in_background, between) == training(lambda f: f)
    assert "compiled in the background" in seen["text"] and sum(p.calls for p in seen["programs"]) >= 3


def test_how_many_calls_ran_eagerly_is_counted_and_told():
    @weft.compile(background=True)
    def f(x):
        return (x.exp() + 3.5).sum()

    x = weft.arange(12.0)
    with held_up():
        first = [f(x).item() for _ in range(4)]
        text = f.explain()
        assert f.breaks == ()
    f.finish_compiling()
    assert {*first, f(x).item()} == {(x.exp() + 3.5).sum().item()}
    assert "1 program(s) are being compiled in the background" in text and "program 0" not in text
    assert "4 call(s) ran eagerly while programs were compiled in the background" in text
    (recording,) = f.recordings
    assert recording.n_meanwhile == 4 and [p.calls for p in recording.programs] == [1]
    assert "program 0 (compiled in the background in" in f.explain() and "are being compiled" not in f.explain()


def test_calls_are_replayed_once_they_have_had_a_program():
    @weft.compile(background=True)
    def f(x):
        return (x.sin() * 1.25).sum()

    x = weft.arange(7.0)
    with held_up():
        for _ in range(5):
            f(x)
        assert not f.recordings[0].replays
    f.finish_compiling()
    assert len({f(x).item() for _ in range(6)}) == 1 and f.recordings[0].replays


def test_gradients_after_the_call():
    model = classifier(2).eval()

    @weft.compile(background=True)
    def loss_of(x, y):
        return nn.functional.cross_entropy(model(x), y)

    (x, y), found = next(batches(1)), []

    def gradients(loss):
        weft.autograd.backward(loss)
        given = bits(p.grad for p in model.parameters())
        model.zero_grad()
        return loss.item(), given

    wanted = gradients(nn.functional.cross_entropy(model(x), y))
    with held_up():
        found += [gradients(loss_of(x, y)), gradients(loss_of(x, y))]
    for _ in range(3):
        loss_of.finish_compiling()
        found.append(gradients(loss_of(x, y)))
    assert found == [wanted] * 5
    assert any("sources" in p.meta and p.calls for p in loss_of.recordings[0].programs), "no backward was compiled"
    assert loss_of.breaks == ()


def test_a_call_before_its_program_keeps_what_its_backward_needs():
    @weft.compile(background=True)
    def f(x, w):
        with weft.no_grad():
            x.add_(1.0)
        y = x * w
        return y.sum(), y

    def check(f):
        x, w = weft.arange(5.0), weft.linspace(1.0, 2.0, 5, requires_grad=True)
        total, y = f(x, w)
        again = weft.autograd.grad(total, w, create_graph=True)[0]
        (again * w * y).sum().backward()
        return [*bits([x, total, y, again, w.grad]), y.is_contiguous()]

    wanted = check(f._function)
    with held_up():
        assert check(f) == wanted
    for _ in range(3):
        f.finish_compiling()
        assert check(f) == wanted


def test_arguments_that_change_between_a_call_and_its_backward():
    def check(f):
        x, w = weft.arange(4.0), weft.ones(4, requires_grad=True)
        loss = (f(x + 0.0, w) * 2.0).sum()
        y = x + 1.0
        kept = f(y, w).sum()
        kept = kept + f(y, y[:2].requires_grad_()[0] * w).sum()
        with weft.no_grad():
            w.mul_(3.0)
        loss.backward()
        return [*bits([w.grad, kept]), str(kept.grad_fn is None)]

    def f(x, w):
        return x.cos() + w.sum()

    compiled, wanted = in_background(f), check(f)
    for _ in range(4):
        assert check(compiled) == wanted
        compiled.finish_compiling()


def test_second_backward_is_the_error_that_it_is_in_eager_mode():
    f = in_background(lambda x: x.exp().sum())
    x = weft.ones(3, requires_grad=True)
    with held_up():
        loss = f(x)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_values_read_in_the_middle_of_a_call():
    def f(x):
        total = (x * 2.75).sum()
        if total.item() > 0:
            return total.exp(), x.cos()
        return total.sin(), x.sin()

    compiled = in_background(f)
    for _ in range(3):
        for x in (weft.linspace(-1.0, 2.0, 8), weft.linspace(-2.0, 1.0, 8)):
            assert bits(compiled(x)) == bits(f(x))
        compiled.finish_compiling()


def test_changes_of_arguments_and_views():
    def f(x, y):
        x.mul_(3.0)
        rows = x[1:]
        rows += y[:-1]
        y.copy_(x.flip(0))
        return rows, x.t(), y

    def run(f):
        x, y = weft.arange(12.0).reshape(4, 3), weft.ones(4, 3)
        results = [f(x, y) for _ in range(2)][-1]
        return [*bits([x, y, *results]), results[0]._base is x, [r.stride() for r in results]]

    compiled, wanted = in_background(f), run(f)
    with held_up():
        assert run(compiled) == wanted
    compiled.finish_compiling()
    assert run(compiled) == run(compiled) == wanted


def test_the_errors_of_eager_mode():
    def f(table, k, out):
        out.add_(1.0)
        return table[k] * 2.5

    table, k, out = weft.arange(6.0).reshape(3, 2), weft.tensor([0, 7]), weft.zeros(2)
    with pytest.raises(IndexError) as wanted:
        f(table, k, weft.zeros(2))
    compiled = in_background(f)
    with held_up(), pytest.raises(IndexError) as found:
        compiled(table, k, out)
    assert str(found.value) == str(wanted.value) and out.tolist() == [0.0, 0.0]
    compiled.finish_compiling()
    with pytest.raises(IndexError) as found:
        compiled(table, k, out)
    assert str(found.value) == str(wanted.value) and out.tolist() == [0.0, 0.0]
    assert compiled(table, weft.tensor([0, 2]), out).tolist() == [[0.0, 2.5], [10.0, 12.5]] and out.tolist() == [
        1.0,
        1.0,
    ]


def test_an_exception_in_the_middle_leaves_what_was_before_it():
    @weft.compile(background=True)
    def f(x, log):
        x.add_(1.0)
        log.append((x * 1.5).sum())
        raise ValueError("enough")

    x, log = weft.zeros(3), []
    with held_up(), pytest.raises(ValueError, match="enough"):
        f(x, log)
    assert x.tolist() == [1.0] * 3 and log[0].item() == 4.5


def test_what_cannot_be_made_in_the_background_fails_in_the_call(monkeypatch):
    def fails(stretch, needed):
        raise MemoryError("no room")

    monkeypatch.setattr("weft.runtime.record.build.build_forward", fails)
    f, x = weft.compile(lambda x: (x + 0.375).sum(), dynamic=False, background=True), weft.ones(4)
    with held_up():
        assert f(x).item() == 5.5
    f.finish_compiling()
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            f(x)
    monkeypatch.undo()
    assert f(x).item() == 5.5 and [p.meta["source"] for p in f.recordings[0].programs] == ["compiled"]


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_change(dynamic):
    def f(x):
        return x.exp().sum(0) + x.mean()

    compiled = weft.compile(f, dynamic=dynamic, background=True)
    sizes = (8, 12, 12, 30, 8, 19, 12, 44)
    for k, n in enumerate(sizes):
        x = weft.linspace(0.0, 1.0, 3 * n).reshape(n, 3)
        assert bits([compiled(x)]) == bits([f(x)])
        if k in (1, 2, 5):
            compiled.finish_compiling()
    assert sum(r.n_meanwhile for r in compiled.recordings) >= 1


def test_loops_of_many_lengths():
    def f(x, w):
        h = x[0]
        for t in range(1, x.shape[0]):
            h = (h @ w + x[t]).tanh()
        return h

    compiled, w = in_background(f), weft.linspace(-1.0, 1.0, 9).reshape(3, 3)
    for n in (5, 7, 7, 9, 5, 12, 12, 7):
        x = weft.linspace(0.0, 1.0, 6 * n).reshape(n, 2, 3)
        assert bits([compiled(x, w)]) == bits([f(x, w)])
        compiled.finish_compiling()


def test_threads_that_call_the_same_function():
    def f(x):
        return (x * 0.625).tanh().sum()

    compiled, x, found = in_background(f), weft.linspace(-2.0, 2.0, 33), []

    def call():
        for _ in range(20):
            found.append(compiled(x).item())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [f(x).item()] * 80


def test_native_code_of_eager_mode_is_not_made_for_calls_that_wait(monkeypatch):
    asked = []
    monkeypatch.setattr("weft.runtime.replay.eager_native.take_over", lambda *given: asked.append(given) or 0)
    f, x = in_background(lambda x: (x * 1.03125 + 2.0).sum()), weft.ones(3, 5, dtype=weft.float64)
    with held_up():
        for _ in range(40):
            f(x)
    assert not asked


@forks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_a_program_is_being_made():
    compiled, x = in_background(lambda x: (x * 0.4375).sin().sum()), weft.arange(6.0)
    with held_up():
        wanted = compiled(x).item()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                background.building.release()
                first = compiled(x).item()
                compiled.finish_compiling()
                compiled.finish_compiling()
                status = 0 if first == compiled(x).item() == wanted else 2
            finally:
                os._exit(status)
    compiled.finish_compiling()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compiled(x).item() == wanted and compiled.recordings[0].programs[0].calls == 1


ENDS = """
import weft
model = weft.nn.Sequential(*[weft.nn.Linear(4, 4) for _ in range(60)])
optimizer = weft.optim.Adam(model.parameters())
@weft.compile(background=True)
def step(x):
    optimizer.zero_grad()
    loss = model(x).tanh().sum()
    loss.backward()
    optimizer.step()
    return loss
print(step(weft.ones(3, 4)).item() > -100)
"""


def test_a_process_that_ends_before_its_programs_are_made(tmp_path):
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "other")}
    done = subprocess.run([sys.executable, "-c", ENDS], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(weft.tensor(2.5))

    @weft.compile(background=True)
    def forward(self, x):
        return x * self.scale


def test_methods_copies_and_pickles_are_made_in_the_background_too():
    model = Scaled()
    copied = copy.deepcopy(weft.compile(model, background=True))
    loaded = pickle.loads(pickle.dumps(weft.compile(model, background=True)))
    for f in (model, copied, loaded):
        assert f(weft.ones(2)).tolist() == [2.5, 2.5]
    assert copied._background and loaded._background
    copied.finish_compiling()
    model.forward.finish_compiling()
    assert model(weft.ones(2)).tolist() == [2.5, 2.5]


def test_fullgraph_leaves_no_room_for_it():
    with pytest.raises(ValueError, match="background=True runs calls eagerly at first"):
        weft.compile(lambda x: x, fullgraph=True, background=True)
    assert weft.compile(abs, disable=True, background=True) is abs
