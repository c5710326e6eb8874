"""Native code of replays and eager mode: made when that pays, in the background, and the same wherever it is made."""

import os
import subprocess
import sys
import textwrap

import pytest

import weft
from weft.runtime.replay import native, native_making

needs_native = pytest.mark.skipif(native.layout() is None, reason="there is no native code of this kind")


def run(source, tmp_path, **environment):
    """What a program prints in a process of its own, whose cache is empty at first."""
    given = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache"), **environment}
    given.pop("WEFT_CACHE", None)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(source))
    done = subprocess.run([sys.executable, str(program)], env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


TRAIN = """
    import sys
    import weft
    from weft.runtime.code import made_here
    from weft.runtime.replay import native_making

    weft.manual_seed(0)
    model = weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.Tanh(), weft.nn.Linear(8, 1))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)
    x, y = weft.randn(16, 4), weft.randn(16, 1)

    def step():
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()
"""


@needs_native
def test_a_short_script_has_nothing_made(tmp_path):
    said = run(
        TRAIN
        + """
    for _ in range(3):
        step()
    print(native_making._asked.job, made_here.REPLAYS_AND_NODES in made_here.seconds)
    print(weft.eye(2).exp().sum().item() > 0)
    """,
        tmp_path,
    )
    assert said == ["None False", "True"]


@needs_native
def test_a_longer_one_goes_on_while_it_is_made_and_the_bits_are_the_same(tmp_path):
    """And the next process finds it on disk: native from its first askings on."""
    longer = (
        TRAIN
        + """
    losses = [step() for _ in range(200)]
    job = native_making._asked.job
    if job is not None:
        assert not made_here.seconds.get(made_here.REPLAYS_AND_NODES)
        job.wait()
        assert job.failure is None, job.failure
    losses += [step() for _ in range(40)]
    from weft.runtime.replay import eager_native
    print(job is not None, bool(eager_native._installed), made_here.seconds.get(made_here.REPLAYS_AND_NODES))
    print(*map(float.hex, losses))
    """
    )
    first, losses = run(longer, tmp_path)
    assert first == "True True None"
    second, again = run(longer, tmp_path)
    assert second == "False True None"
    in_python = run(TRAIN + "    print(*[step().hex() for _ in range(240)])", tmp_path, WEFT_NATIVE_REPLAY="0")
    assert losses == again == in_python[0]


@needs_native
def test_a_compiled_function_too(tmp_path):
    said = run(
        TRAIN
        + """
    f = weft.compile(lambda x: (x * 2).tanh())
    expected = (x * 2).tanh().tolist()
    for k in range(6):
        assert f(x).tolist() == expected
    assert "not replayed yet: compiling what replays calls pays after 64 that are alike" in f.explain()
    assert not f.recordings[0].replays
    while native_making._asked.job is None:
        assert f(x).tolist() == expected
    if not native_making._asked.job.is_done:
        print("being compiled in the background" in f.explain() or native_making._asked.job.is_done)
    native_making._asked.job.wait()
    for _ in range(4):
        assert f(x).tolist() == expected
    said = f.explain(verbose=True)
    print(bool(f.recordings[0].replays), "calls are replayed" in said, "in the background" in said)
    """,
        tmp_path,
    )
    assert said[-1] == "True True True" and said[0] != "False"


@needs_native
def test_functions_of_arrays_wait_for_nothing_either(tmp_path):
    said = run(
        """
    import numpy as np
    import weft
    from weft.runtime.code import made_here
    from weft.runtime.replay import native_making

    f = weft.value_and_grad(lambda p: (p * p).sum() + weft.exp(p[0]))
    values = {f(np.arange(4.0))[0] for _ in range(300)}
    native_making._asked.job.wait()
    values |= {f(np.arange(4.0))[0] for _ in range(5000)}
    print(len(values), made_here.seconds.get(made_here.REPLAYS_AND_NODES))
    """,
        tmp_path,
    )
    assert said == ["1 None"]


@needs_native
def test_what_the_parts_say_does_not_depend_on_what_is_installed(tmp_path):
    """They are translated before, in the background, or at the moment they are loaded."""
    said = run(
        """
    from weft.runtime.replay import native_making

    def texts():
        return {key: make() for key, make in native_making._parts()}

    before = texts()
    import weft
    native_making.PAYS_AFTER = 0
    f = weft.compile(lambda x: (x * 2).tanh())
    w = weft.randn(3, requires_grad=True)
    for _ in range(40):
        f(w).sum().backward()
        (w[1:] * 2).exp().sum().backward()
        w.detach().add_(1)
    after = texts()
    print(len(before) > 10, [key for key in before if before[key] != after.get(key)])
    """,
        tmp_path,
    )
    assert said == ["True []"]


@needs_native
def test_a_fork_meanwhile_and_an_end(tmp_path):
    """A child makes what it needs itself; a process that ends does not wait for parts that were not begun."""
    said = run(
        TRAIN
        + """
    import os
    while native_making._asked.job is None:
        step()
    if hasattr(os, "fork"):
        child = os.fork()
        if not child:
            assert native_making._asked.job.is_done
            for _ in range(20):
                step()
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    else:
        print(0)
    """,
        tmp_path,
    )
    assert said == ["0"]


@needs_native
def test_all_of_it_at_once(tmp_path):
    said = run(
        """
    import weft
    from weft.runtime.code import made_here
    from weft.runtime.replay import eager_native, native_making

    print(weft.fill_cache() > 0, weft.fill_cache(), native_making._asked.n)
    x = weft.ones(3)
    for _ in range(20):
        y = x + x
    print(bool(eager_native._installed), made_here.seconds.get(made_here.REPLAYS_AND_NODES))
    """,
        tmp_path,
    )
    assert said == ["True 0.0 0", "True None"]
    fill = [sys.executable, "-m", "weft", "cache", "fill"]
    given = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(fill, env=given, capture_output=True, text=True, check=True)
    assert done.stdout == "what all programs share is there\n"


@needs_native
def test_a_failure_is_raised_by_who_uses_the_code(monkeypatch):
    monkeypatch.setattr(native_making, "PAYS_AFTER", 2)
    monkeypatch.setattr(native_making, "_asked", native_making._Asked())
    monkeypatch.setattr(native_making, "_is_at_hand", lambda: False)
    monkeypatch.setattr(native_making, "_parts", lambda: [("no key", lambda: ({}, 1 / 0))])
    answers = [native_making.is_here() for _ in range(2)]
    assert answers == [False, False] and native_making.is_awaited()
    native_making.is_here()
    native_making._asked.job.wait()
    assert isinstance(native_making._asked.job.failure, ZeroDivisionError)
    assert native_making.is_here() and not native_making.is_awaited()
    monkeypatch.setattr(native_making, "_asked", native_making._Asked())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            weft.fill_cache()


def test_without_a_cache_or_a_layout_nothing_is_put_off(monkeypatch):
    monkeypatch.setattr(native_making, "PAYS_AFTER", 64)
    monkeypatch.setattr(native_making, "_asked", native_making._Asked())
    monkeypatch.setattr(native_making.native, "layout", lambda: None)
    assert native_making.is_here()
    assert weft.ones(2).sum() == 2


@needs_native
def test_a_thread_that_is_not_the_main_one_begins_nothing_that_a_fork_would_have_to_know(tmp_path):
    """Imports of what compiles are registered for forks: a fork at that moment lets go of locks it has not taken."""
    said = run(
        """
    import threading
    import weft
    from weft.compiler import later
    from weft.runtime.replay import native_making

    def ask():
        return [native_making.is_here() for _ in range(3 * native_making.PAYS_AFTER)]

    thread = threading.Thread(target=lambda: print(any(ask()), native_making._asked.job, later.is_logging_expected()))
    thread.start()
    thread.join()
    ask()
    print(native_making._asked.job is not None, later.is_logging_expected())
    """,
        tmp_path,
    )
    assert said == ["False None False", "True True"]


@needs_native
def test_where_it_could_not_be_for_a_moment_it_comes_later(tmp_path):
    """Such as while something else stands where ops are called."""
    said = run(
        """
    import weft
    from weft.runtime.replay import eager_native, native

    def often(shape):
        x = weft.ones(shape)
        for _ in range(300):
            y = x + x
        return bool(eager_native._installed)

    weft.fill_cache()
    known, native.layout = native.layout, lambda: None
    before = often(3)
    native.layout = known
    print(before, often(4))
    """,
        tmp_path,
    )
    assert said == ["False True"]
