"""weft.futures: values that will be there."""

import threading

import pytest

import weft
from weft.futures import Future, collect_all, wait_all


def test_values_and_callbacks_in_order():
    future, seen = Future(), []
    future.add_done_callback(lambda done: seen.append(done.value()))
    doubled = future.then(lambda done: done.value() * 2)
    text = doubled.then(lambda done: str(done.wait()))
    assert not future.done() and not text.done()
    with pytest.raises(RuntimeError, match="there is no value yet"):
        future.value()
    future.set_result(21)
    future.add_done_callback(lambda done: seen.append("late"))
    assert seen == [21, "late"] and text.done() and text.value() == "42" and doubled.wait() == 42
    with pytest.raises(RuntimeError, match="can only be marked as completed once"):
        future.set_result(1)


def test_exceptions_take_the_place_of_values():
    future = Future()
    following = future.then(lambda done: done.wait() + 1)
    rescued = future.then(lambda done: "rescued")
    future.set_exception(KeyError("gone"))
    for one in (future, following):
        for ask in (one.wait, one.value):
            with pytest.raises(KeyError, match="gone"):
                ask()
    assert rescued.wait() == "rescued"
    with pytest.raises(TypeError, match="is of type str, not an Exception"):
        Future().set_exception("gone")


def test_a_value_set_in_another_thread():
    future = Future()
    following = future.then(lambda done: done.value() + 1)
    thread = threading.Thread(target=future.set_result, args=(1,))
    thread.start()
    assert following.wait() == 2
    thread.join()


def test_many_at_once():
    futures = [Future() for _ in range(3)]
    everything = collect_all(iter(futures))
    for k, future in enumerate(futures):
        assert not everything.done()
        future.set_result(k)
    assert everything.done() and everything.wait() == futures
    assert wait_all(futures) == [0, 1, 2] and wait_all([]) == []
    failed = Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        wait_all([futures[0], failed])
    assert Future[weft.Tensor] == Future[weft.Tensor] != Future[int]


def test_forks_of_scripts_have_run():
    def product(x, factor=1):
        return x * factor

    x = weft.ones(2, requires_grad=True)
    future = weft.jit.fork(product, x, factor=3)
    assert future.done() and weft.jit.wait(future).tolist() == [3, 3]
    weft.jit._wait(weft.jit._fork(weft.jit.script(product), x, 2)).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(TypeError):
        weft.jit.fork(product)
