"""Calls that go from the decorator to their replay in native code, whatever their arguments are in."""

import copy
import sys
import threading
from collections import OrderedDict, namedtuple

import pytest

import weft
from weft.compiled import CompiledFunction
from weft.runtime.replay.native import native_code_is_used
from weft.runtime.replay.native_leaves import UNKNOWN
from weft.runtime.replay.usual_arguments import AGAIN, ITEMS, LEAF, LISTED, NAMED, ORDERED, parts_of, structure_of

Pair = namedtuple("Pair", "left right")


class Batch(list):
    pass


class Sorted(OrderedDict):
    pass


def is_native(compiled):
    """Whether the next call begins in native code, if there is any."""
    start = compiled._ways[-1].native_start if compiled._ways else None
    return not native_code_is_used() or start is not None and start.read("n_leaves") != UNKNOWN


def same(compiled, function, *calls):
    """The results of these calls, each a function that makes the arguments."""
    for make in calls:
        args, kwargs = make()
        assert compiled(*args, **kwargs).tolist() == function(*args, **kwargs).tolist()


def total(x):
    """The sum of all tensors and numbers in containers."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        value = 0.0
        for k, part in enumerate(x):
            value = value + (k + 1) * total(part)
        return value
    return 0.0 if x is None else x


def fresh():
    return weft.randn(3)


CONTAINERS = {
    "list": lambda: [fresh(), fresh()],
    "tuple": lambda: (fresh(), 2.5),
    "named": lambda: Pair(fresh(), fresh()),
    "subclass": lambda: Batch([fresh(), None]),
    "dict": lambda: {"x": fresh(), "y": fresh()},
    "ordered": lambda: OrderedDict(x=fresh(), y=fresh()),
    "ordered numbers": lambda: OrderedDict([(1, fresh()), (2, fresh())]),
    "ordered in others": lambda: [OrderedDict(), {"a": OrderedDict(x=[fresh(), 2.0], y=(fresh(),))}],
    "numbers": lambda: {1: fresh(), (2, 3): fresh()},
    "nested": lambda: {"a": [fresh(), (fresh(), {"b": fresh()})], "c": ()},
    "empty": lambda: [fresh(), [], {}, ()],
    "long": lambda: [fresh() for _ in range(100)],
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_are_taken_apart(name):
    make = CONTAINERS[name]
    compiled = weft.compile(total)
    same(compiled, total, *[lambda: ((make(),), {})] * 8)
    assert is_native(compiled) is (name not in ("ordered numbers", "long") or not native_code_is_used())


@pytest.mark.parametrize("kind", [OrderedDict, Sorted])
def test_the_order_of_an_ordered_dict_is_that_of_each_call(kind):
    def chain(x, *, layers):
        for k, (name, w) in enumerate(layers.items()):
            x = (x * w + len(name)) * (k + 1)
        return x

    compiled, x = weft.compile(chain), fresh()
    layers = kind(first=fresh(), other=fresh(), z=fresh())
    for _ in range(300):  # long enough for calls without their Python
        assert compiled(x, layers=layers).tolist() == chain(x, layers=layers).tolist()
    assert is_native(compiled) is (kind is OrderedDict or not native_code_is_used())
    for _ in range(3):
        layers.move_to_end("first")
        assert compiled(x, layers=layers).tolist() == chain(x, layers=layers).tolist()
        layers.move_to_end("z", last=False)
        assert compiled(x, layers=layers).tolist() == chain(x, layers=layers).tolist()
        layers["other"] = fresh()
        assert compiled(x, layers=layers).tolist() == chain(x, layers=layers).tolist()
        layers["more"] = layers.pop("other")
        assert compiled(x, layers=layers).tolist() == chain(x, layers=layers).tolist()
        layers["other"] = layers.pop("more")
        assert compiled(x, layers=layers).tolist() == chain(x, layers=layers).tolist()
        del layers["other"]
        assert compiled(x, layers=layers).tolist() == chain(x, layers=layers).tolist()
        layers = kind(first=fresh(), other=fresh(), z=fresh())
        assert compiled(x, layers=dict(layers)).tolist() == chain(x, layers=layers).tolist()


def test_keywords_and_what_comes_again():
    def function(x, *, scale, pair, y):
        return x * scale + pair[0] * y - pair[1]

    def arguments():
        x, y = fresh(), fresh()
        return (x,), {"scale": 2.0, "pair": [y, x], "y": y}

    def others():
        return (fresh(),), {"scale": 2.0, "pair": [fresh(), fresh()], "y": fresh()}

    def other_order():
        return (fresh(),), {"y": fresh(), "pair": [fresh(), fresh()], "scale": 3.0}

    compiled = weft.compile(function)
    same(compiled, function, *[arguments] * 6, *[others] * 6, *[other_order] * 6, arguments, others, other_order)
    same(compiled, function, *[arguments, others, other_order] * 4)


def test_containers_of_another_form_than_expected():
    compiled = weft.compile(total)
    same(compiled, total, *[lambda: (({"x": fresh(), "y": fresh()},), {})] * 6)
    for make in CONTAINERS.values():
        same(compiled, total, lambda make=make: ((make(),), {}))
    same(compiled, total, lambda: (({"y": fresh(), "x": fresh()},), {}), lambda: (({"x": fresh()},), {}))
    same(compiled, total, lambda: ((fresh(),), {}), lambda: (([fresh(), 3],), {}))


def test_wrong_arguments_are_the_functions_own_errors():
    compiled = weft.compile(lambda x, k=1: x * k)
    for _ in range(6):
        compiled(fresh())
    for args, kwargs in (((), {}), ((fresh(), 1, 2), {}), ((fresh(),), {"wrong": 1})):
        with pytest.raises(TypeError, match="argument"):
            compiled(*args, **kwargs)
    x = fresh()
    assert compiled(x, k=3).tolist() == compiled(x, 3).tolist() == (x * 3).tolist()


def test_an_exception_is_passed_on_and_the_next_call_is_as_ever():
    wrong = []

    def function(parts):
        y = parts["x"] + 1
        if wrong:
            raise KeyError("stop")
        return y * 2

    compiled, x = weft.compile(function), fresh()
    for _ in range(6):
        compiled({"x": x})
    wrong.append(1)
    with pytest.raises(KeyError, match="stop"):
        compiled({"x": x})
    wrong.clear()
    for _ in range(3):
        assert compiled({"x": x}).tolist() == function({"x": x}).tolist()


def test_a_call_that_departs_is_learned_from():
    negative = []

    def function(x):
        y = x * 2
        return -y if negative else y + 1

    compiled, x = weft.compile(function), fresh()
    for k in range(40):
        negative[:] = [1] * (k // 10 % 2)
        assert compiled(x).tolist() == function(x).tolist()
    assert len(compiled.recordings[0].replays) == 2 and is_native(compiled)


def test_a_function_that_calls_itself():
    @weft.compile
    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    x = fresh()
    for _ in range(8):
        assert power(x, 3).tolist() == (x * (x * (x * x))).tolist()


def test_methods_and_partial_functions():
    class Scale:
        factor = 2.0

        @weft.compile
        def scaled(self, x):
            return x * self.factor

    one, other, x = Scale(), Scale(), fresh()
    other.factor = 3.0
    for _ in range(6):
        assert one.scaled(x).tolist() == (x * 2.0).tolist()
        assert other.scaled(x).tolist() == (x * 3.0).tolist()
        assert Scale.scaled(one, x).tolist() == Scale.scaled.__call__(one, x).tolist() == (x * 2.0).tolist()


def test_copies_are_called_for_themselves():
    compiled, x = weft.compile(weft.nn.Linear(3, 3)), fresh()
    for _ in range(6):
        expected = compiled(x).tolist()
    twin = copy.deepcopy(compiled)
    assert twin(x).tolist() == expected and twin._function is not compiled._function


def test_references_are_counted():
    def function(x, *, parts):
        return x + parts["y"][0]

    compiled, x, y = weft.compile(function, fullgraph=True), fresh(), fresh()
    key, items, ordered = "y", (y,), OrderedDict(y=(y,))
    for _ in range(6):
        compiled(x, parts={key: items})
        compiled(x, parts=ordered)
    held = [x, y, x._data, y._data, items, compiled, compiled._ways[-1], compiled._function, None, ordered, key]
    before = [sys.getrefcount(v) for v in held]
    for _ in range(3000):
        compiled(x, parts={key: items})
        compiled(x, parts=ordered)
    after = [sys.getrefcount(v) for v in held]
    assert max(abs(a - b) for a, b in zip(after, before)) < 2900
    calls = sys.getrefcount(x)
    for _ in range(300):
        with pytest.raises(TypeError):
            compiled(x, parts={key: items}, wrong=1)
    assert abs(sys.getrefcount(x) - calls) < 250


def test_several_threads_call_one_function():
    compiled, wrong = weft.compile(lambda parts: (parts[0] * 2 + parts[1]).tanh()), []
    for _ in range(6):
        compiled([fresh(), fresh()])

    def work(seed):
        for k in range(100):
            x, y = weft.full((3,), float(seed)), weft.full((3,), k / 100)
            if compiled([x, y]).tolist() != (x * 2 + y).tanh().tolist():
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_watchers_see_every_node():
    w = weft.ones(3, requires_grad=True)
    compiled, x, seen = weft.compile(lambda x: (x * w).detach()), fresh(), []
    for _ in range(6):
        compiled(x)
    with weft.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        compiled(x)
    assert seen


def test_modes_are_asked_before_a_call():
    w = weft.ones(3, requires_grad=True)
    compiled, x = weft.compile(lambda x: x * w), fresh()
    for _ in range(6):
        with weft.no_grad():
            assert not compiled(x).requires_grad
    assert compiled(x).requires_grad
    with weft.no_grad():
        assert not compiled(x).requires_grad


def test_parts_stand_after_what_they_are_in():
    x, y = fresh(), fresh()
    structure = structure_of(((x, [y, x]), {"k": y, "n": (1,)}), [])
    assert parts_of(structure, 64) == [
        (ITEMS, 2, 2, tuple, None),
        (NAMED, 4, 2, dict, ("k", "n")),
        (LEAF, 0, 0, None, None),
        (LISTED, 6, 2, list, None),
        (AGAIN, 6, 0, None, None),
        (ITEMS, 8, 1, tuple, None),
        (LEAF, 1, 0, None, None),
        (AGAIN, 2, 0, None, None),
        (LEAF, 2, 0, None, None),
    ]
    assert parts_of(structure, 8) is None
    ordered = parts_of(structure_of((([OrderedDict(a=x)],), {}), []), 64)
    assert ordered[-2:] == [(ORDERED, 4, 1, OrderedDict, ("a",)), (LEAF, 0, 0, None, None)]
    assert parts_of(structure_of((([OrderedDict({1: x})],), {}), []), 64) is None
    assert parts_of(structure_of((([Sorted(a=x)],), {}), []), 64) is None


class OfAUser(weft.nn.Parameter):
    pass


def trained(w, x):
    loss = (x @ w["w"]).tanh().sum()
    loss.backward()
    with weft.no_grad():
        for p in w.values():
            p.sub_(p.grad, alpha=0.1)
            p.grad = None
    return loss.detach()


@pytest.mark.parametrize("kind", [weft.nn.Parameter, OfAUser, lambda x: x.clone().requires_grad_()])
def test_parameters_may_be_arguments_of_calls_in_native_code(kind, monkeypatch):
    compiled, begun = weft.compile(trained), []
    again = CompiledFunction._again
    monkeypatch.setattr(CompiledFunction, "_again", lambda *given: begun.append(1) or again(*given))
    said = []
    for f in (trained, compiled):
        weights, x = {"w": kind(weft.full((3, 2), 0.5))}, weft.tensor([[1.0, -2.0, 0.25]])
        said.append([(f(weights, x).item(), weights["w"].tolist()) for _ in range(20)])
    assert said[0] == said[1]
    assert (len(begun) <= 4) == native_code_is_used()


def test_what_is_no_tensor_in_place_of_a_parameter_is_none():
    f = weft.compile(lambda w: w * 2)
    for _ in range(20):
        f(weft.nn.Parameter(weft.ones(2)))
    assert f(3.0) == 6.0 and f("ab") == "abab" and f(weft.ones(2)).tolist() == [2.0, 2.0]
