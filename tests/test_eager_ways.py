"""Compiled functions whose calls run eagerly are called like the functions they are, however somebody calls them."""

import copy
import ctypes
import functools
import gc
import pickle
import sys
import threading
import weakref

import pytest

import weft
from weft import compiled as compiled_module
from weft.compiled import CompiledFunction
from weft.runtime.code.vector_calls import PLACE, VectorCalled
from weft.runtime.replay.native import native_code_is_used

# CPython 3.10 has no C function that passes arguments on as they lie.
IS_ASKED_FIRST = native_code_is_used() and sys.version_info >= (3, 11)


def weighted(x, scale=2.0, *more, bias=None, **named):
    y = x * scale
    for other in (*more, *named.values()):
        y = y + other
    return y if bias is None else y + bias


def eager(function):
    """Compiled, and all calls run eagerly from now on."""
    f, x = weft.compile(function), weft.ones(2)
    for _ in range(8):
        f(x)
    f._eagerly.value, f._n_left.value = True, 10**9
    f(x)
    return f


def goes_first(f):
    """Whether calls of an object go to an address it holds."""
    return ctypes.c_size_t.from_address(id(f) + PLACE).value != 0


def test_every_way_of_calling():
    f, x, y = eager(weighted), weft.tensor([1.0, -2.0]), weft.tensor([0.5, 4.0])
    assert goes_first(f) is IS_ASKED_FIRST
    named, given = {"bias": y, "other": x}, [x, 3.0, y]
    for _ in range(3):
        for g in (f, weighted):
            said = [
                g(x),
                g(x, 3.0),
                g(x, scale=3.0),
                g(x, bias=y),
                g(scale=1.5, x=x),
                g(x, 1.0, y, y, bias=x, last=y),
                g(*given),
                g(*given, **named),
                g(**{"x": x} | named),
                g.__call__(x, bias=y),
                functools.partial(g, bias=y)(x),
                functools.partial(g, x)(scale=4.0),
                *map(g, given[::2]),
                functools.reduce(g, given),
                sorted([x, y], key=lambda v, g=g: g(v).sum().item())[0],
            ]
            if g is f:
                found = said
        assert [v.tolist() for v in found] == [v.tolist() for v in said]
        assert goes_first(f) is IS_ASKED_FIRST


def test_wrong_arguments_and_exceptions_are_the_functions_own():
    def failing(x, *, how=None):
        if how is not None:
            raise how("no")
        return x + 1

    f, x = eager(failing), weft.ones(2)
    for _ in range(3):
        with pytest.raises(TypeError, match="failing.*missing 1 required positional argument: 'x'"):
            f()
        with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
            f(x, other=1)
        with pytest.raises(TypeError, match="multiple values for argument 'x'"):
            f(x, x=x)
        with pytest.raises(KeyError, match="no"):
            f(x, how=KeyError)
        assert f(x).tolist() == [2.0, 2.0]


def test_methods_and_modules():
    class Scale:
        factor = 3.0

        @weft.compile
        def scaled(self, x, *, by=1.0):
            return x * self.factor * by

    one, other, x, scaled = Scale(), Scale(), weft.tensor([1.0, 5.0]), Scale.scaled
    other.factor = 0.5
    for _ in range(8):
        one.scaled(x)
    scaled._eagerly.value, scaled._n_left.value = True, 10**9
    for _ in range(3):
        assert one.scaled(x).tolist() == [3.0, 15.0] and other.scaled(x, by=2.0).tolist() == [1.0, 5.0]
        assert scaled(one, x).tolist() == [3.0, 15.0] and scaled(by=2.0, x=x, self=other).tolist() == [1.0, 5.0]
    model = weft.nn.Linear(2, 3)
    compiled = eager(model)
    assert compiled(x).tolist() == model(x).tolist() == compiled(input=x).tolist()


def test_calls_are_counted_and_go_on_as_they_should():
    f, x = eager(weighted), weft.ones(2)
    f._n_left.value = 3
    for left in (2, 1, 0):
        f(x)
        assert f._n_left.value == left
    f._eagerly.value, f._n_left.value, calls = False, 10**9, f.recordings[0].calls
    for _ in range(4):
        assert f(x).tolist() == [2.0, 2.0]
    assert f.recordings[0].calls == calls + 4 and not goes_first(f)
    f._eagerly.value = True
    for _ in range(4):
        assert f(x).tolist() == [2.0, 2.0]
    assert f.recordings[0].calls == calls + 4 and goes_first(f) is IS_ASKED_FIRST


def test_a_part_of_another_call():
    inner = eager(lambda x: x * 2 + 1)
    outer, x = weft.compile(lambda x: inner(x) - inner(x=x * 3)), weft.tensor([1.0, 2.0])
    for _ in range(12):
        left = inner._n_left.value
        assert outer(x).tolist() == [-4.0, -8.0]
        assert inner(x).tolist() == [3.0, 5.0]
    assert inner._n_left.value == left - 1


def test_who_watches_is_asked():
    f, w, seen = eager(lambda x: x), weft.ones(2, requires_grad=True), []
    g, x = eager(lambda x: (x * w).exp()), weft.ones(2)
    for _ in range(3):
        with weft.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            g(x).sum().backward()
        assert len(seen) == 2 + len(seen[2:]) and f(x) is x
        n = len(seen)
        g(x).sum().backward()
        assert len(seen) == n


def test_what_somebody_puts_in_the_way_is_called(monkeypatch):
    f, x, calls = eager(weighted), weft.ones(2), []
    f(x)
    before = CompiledFunction.__call__

    def instead(self, *args, **kwargs):
        calls.append(args)
        return before(self, *args, **kwargs)

    monkeypatch.setattr(CompiledFunction, "__call__", instead)
    assert f(x).tolist() == [2.0, 2.0] and f(x, 3.0).tolist() == [3.0, 3.0] and len(calls) == 2
    monkeypatch.undo()
    assert f(x).tolist() == [2.0, 2.0] and len(calls) == 2


def test_all_functions_may_be_run_as_they_are():
    f, x = eager(weighted), weft.ones(2)
    compiled_module.run_eagerly(True)
    try:
        left = f._n_left.value
        assert f(x).tolist() == f(x, scale=2.0).tolist() == [2.0, 2.0] and f._n_left.value == left
    finally:
        compiled_module.run_eagerly(False)
    assert f(x).tolist() == [2.0, 2.0] and f._n_left.value == left - 1


class Own(CompiledFunction):
    def __call__(self, *args, **kwargs):
        return "own", super().__call__(*args, **kwargs)


class Like(CompiledFunction):
    pass


def test_classes_that_inherit():
    x = weft.ones(2)
    for kind in (Own, Like):
        f = kind(lambda x: x * 3)
        for _ in range(8):
            f(x)
        f._eagerly.value, f._n_left.value = True, 10**9
        for _ in range(4):
            said = f(x)
            assert (said[1] if kind is Own else said).tolist() == [3.0, 3.0]
            assert kind is Like or said[0] == "own"


def test_references_are_counted():
    f, x, y = eager(weighted), weft.ones(2), weft.ones(2)
    names = {"bias": y}
    held = [x, y, names, f, f._function, None]
    before = [sys.getrefcount(v) for v in held]
    for _ in range(3000):
        f(x, bias=y)
        f(x, 2.0, y)
        f(x, **names)
    assert max(abs(sys.getrefcount(v) - n) for v, n in zip(held, before)) < 2900
    for _ in range(300):
        with pytest.raises(TypeError):
            f(x, 2.0, scale=1.0)
    assert abs(sys.getrefcount(x) - before[0]) < 250


def test_copies_weak_references_and_what_is_collected():
    f, x = eager(weighted), weft.ones(2)
    for twin in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert not goes_first(twin) and twin(x).tolist() == [2.0, 2.0] and isinstance(twin, VectorCalled)
    f.itself = f
    seen = weakref.ref(f)
    del f, twin
    gc.collect()
    assert seen() is None


def test_a_function_that_lets_go_of_itself():
    held = []
    held += [eager(lambda x: (held.clear(), x * 2)[1] if len(held) > 1 else x * 2), None]
    assert held[0](weft.ones(2)).tolist() == [2.0, 2.0] and held == []


def test_several_threads_and_changes_of_mind():
    f, wrong = eager(weighted), []

    def work(seed):
        for k in range(300):
            x, y = weft.full((2,), float(seed)), weft.full((2,), float(k))
            if f(x, bias=y).tolist() != [2.0 * seed + k] * 2:
                wrong.append((seed, k))
            if k % 50 == seed:
                f._eagerly.value = not f._eagerly.value

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
