"""Arguments of replayed calls in whatever form: containers, keywords, repetitions, other objects. As without the
decorator, and replayed."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft

N_CALLS = 10


@dataclass
class Batch:
    x: object
    scale: float


class Pair(NamedTuple):
    x: object
    y: object


class Plain:
    def __init__(self, x):
        self.x = x


def tensors():
    return weft.randn(3), weft.randn(3)


FORMS = {
    "positional": (lambda a, b: a * b, lambda a, b: ((a, b), {})),
    "keywords": (lambda a, b: a - b, lambda a, b: ((), {"b": b, "a": a})),
    "a default": (lambda a, b=None, c=2.0: a * c if b is None else a * b, lambda a, b: ((a,), {"b": b})),
    "dict and tuple": (
        lambda d, scale: d["x"] * d["y"][0] + scale,
        lambda a, b: (({"x": a, "y": (b,)},), {"scale": b}),
    ),
    "named tuple": (lambda p: p.x / p.y, lambda a, b: ((Pair(a, b),), {})),
    "dataclass": (lambda b: b.x * b.scale, lambda a, b: ((Batch(a, 2.0),), {})),
    "an object": (lambda o: o.x.exp(), lambda a, b: ((Plain(a),), {})),
    "twice the same": (lambda a, b, c: a * b + c, lambda a, b: ((a, b, a), {})),
    "twice in a list": (lambda *lists: sum(x.sum() for y in lists for x in y), lambda a, b: (([a, a], [b, a]), {})),
    "None": (lambda a, b: a if b is None else a + b, lambda a, b: ((a, None), {})),
    "a string": (lambda a, how: a.sum() if how == "sum" else a.mean(), lambda a, b: ((a, "sum"), {})),
    "a NumPy array": (lambda a, n: a * weft.from_numpy(n), lambda a, b: ((a, np.arange(3, dtype=np.float32)), {})),
    "a function": (lambda a, f: f(a), lambda a, b: ((a, weft.tanh), {})),
    "numbers in a list": (lambda a, n: a * n[0] + n[1], lambda a, b: ((a, [2.0, 3]), {})),
    "args and kwargs": (lambda *args, **kwargs: args[0] * kwargs["w"] + args[1], lambda a, b: ((a, b), {"w": a})),
    "nothing": (lambda: weft.ones(2) * 3, lambda a, b: ((), {})),
    "an empty list": (lambda a, more: a * 2 if not more else a, lambda a, b: ((a, []), {})),
    "a set": (lambda a, names: a * len(names), lambda a, b: ((a, {"x", "y"}), {})),
}


@pytest.mark.parametrize("form", FORMS)
def test_form(form):
    function, arguments = FORMS[form]

    def scenario(compile):
        f, seen = compile(function), []
        for _ in range(N_CALLS):
            args, kwargs = arguments(*tensors())
            seen.append(f(*args, **kwargs))
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "a NumPy array"])
def test_form_is_replayed(form):
    function, arguments = FORMS[form]
    f = weft.compile(function)
    a, b = tensors()
    for _ in range(N_CALLS):
        args, kwargs = arguments(a, b)
        f(*args, **kwargs)
    assert f.recordings[0].usual is not None, f.recordings[0].not_replayed


ODD = {
    "another length": ([1.0, 2.0], [1.0, 2.0, 3.0]),
    "another key": ({"x": 1.0}, {"y": 2.0}),
    "another order": ({"x": 1.0, "y": 5.0}, {"y": 1.0, "x": 5.0}),
    "a tuple": ([1.0], (1.0,)),
    "a tensor in place of a number": ([1.0], [weft.ones(3)]),
    "None in place of a number": ([1.0], [None]),
}


@pytest.mark.parametrize("usual,odd", ODD.values(), ids=ODD)
def test_the_odd_call_has_another_form(usual, odd):
    def function(a, numbers):
        values = numbers.values() if isinstance(numbers, dict) else numbers
        for k, n in enumerate(values):
            a = a * (k + 1) if n is None else a * n - k
        return a, str(type(numbers)), list(numbers) if isinstance(numbers, dict) else len(numbers)

    def scenario(compile):
        f, seen = compile(function), []
        for k in range(12):
            seen += f(weft.randn(3), odd if k in (7, 10) else usual)
        return seen

    assert_same(scenario)


@twin
def test_repeated_in_some_calls(compile):
    f, seen = compile(lambda a, b: (a * b, a.exp())), []
    for k in range(14):
        a, b = tensors()
        seen += f(a, a if k % 5 == 4 else b)
    return seen


@twin
def test_leaves_in_containers(compile):
    f, seen = compile(lambda batch, scale=1.0: (batch["w"] * batch["x"]).sum() * scale), []
    for k in range(N_CALLS):
        w = leaf(3)
        loss = f({"w": w, "x": weft.randn(3)}, scale=0.5 + k)
        loss.backward()
        seen += [loss.detach(), w.grad]
    return seen


@twin
def test_arguments_that_share_memory(compile):
    f, seen = compile(lambda parts: parts[0] * parts[1]), []
    for k in range(N_CALLS):
        whole = weft.randn(6)
        seen += [f([whole[:3], whole[3:]] if k % 4 == 3 else [weft.randn(3), weft.randn(3)])]
    return seen


def test_arguments_are_not_kept():
    import gc
    import weakref

    f = weft.compile(lambda batch, scale: batch["x"] * scale)
    for _ in range(6):
        f({"x": weft.randn(3)}, scale=weft.randn(3))
    x = weft.randn(3)
    kept = weakref.ref(x)
    f({"x": x}, scale=weft.ones(3))
    del x
    gc.collect()
    assert kept() is None


WAYS_TO_LIE = {
    "a row": lambda x: x[1],
    "a column": lambda x: x[:, 2],
    "a block": lambda x: x[1:3, 1:4],
    "transposed": lambda x: x.t(),
    "every other": lambda x: x[::2, ::3],
    "expanded": lambda x: x[:1].expand(4, 6),
    "one element": lambda x: x[2:3, 4:5],
    "none": lambda x: x[:, :0],
    "flipped and cut": lambda x: x.flip(0)[:, 1:],
}


@pytest.mark.parametrize("way", WAYS_TO_LIE.values(), ids=WAYS_TO_LIE)
def test_arguments_however_they_lie_are_replayed(way):
    f = weft.compile(lambda x, y: (x * 2 + y.t().sum(), x.sum(0)))
    for _ in range(8):
        table = weft.randn(4, 6)
        x = way(table)
        out, total = f(x, table[1:3, ::2])
        assert out.tolist() == (x * 2 + table[1:3, ::2].t().sum()).tolist() and total.tolist() == x.sum(0).tolist()
    assert f.recordings[0].usual is not None and f.recordings[0].not_replayed is None


@twin
def test_arguments_lie_otherwise_in_some_calls(compile):
    f, seen = compile(lambda x: (x * 2).sum(0) + x[0]), []
    for k in range(30):
        x = weft.randn(4, 4)
        seen.append(f((x, x.t(), weft.randn(4, 8)[:, ::2], weft.randn(1, 4).expand(4, 4))[(k // 3 + k % 2) % 4]))
    return seen


@twin
def test_arguments_that_share_memory_and_are_changed(compile):
    """Changing one of them is seen through the others."""

    def f(x, y):
        before = y * 2
        x.add_(1)
        return before, y * 2, x + y

    f, seen = compile(f), []
    for k in range(20):
        table = weft.randn(4, 4)
        x, y = ((table[0], table[:, 1]), (table[0], weft.randn(4)), (table[:, 0], table[0]))[k // 3 % 3]
        seen += [*f(x, y), table]
    return seen


@twin
def test_what_is_new_in_every_call_lies_anyhow(compile):
    given = [None]
    f, seen = compile(lambda x: (x * given[0]).sum(1)), []
    for k in range(12):
        table = weft.randn(3, 8)
        given[0] = table[:, ::2] if k != 9 else table[:, :4]
        seen.append(f(weft.randn(3, 4)))
    return seen


ODD_ENDS = {
    "backward": lambda w, h, y: y.sum().backward(),
    "twice": lambda w, h, y: (y.sum().backward(retain_graph=True), y.sum().backward())[0],
    "a gradient of the argument": lambda w, h, y: weft.autograd.grad(y.sum(), h)[0],
    "of both": lambda w, h, y: weft.autograd.grad(y.sum(), (h, w)),
    "retained": lambda w, h, y: (h.retain_grad(), y.sum().backward(), h.grad)[2],
    "a hook": lambda w, h, y: (h.register_hook(lambda g: g * 2), y.sum().backward())[1],
    "used up": lambda w, h, y: ((h * 1).sum().backward(), error_of(y.sum().backward))[1],
    "changed": lambda w, h, y: (quietly_doubled(w), error_of(y.sum().backward))[1],
    "dropped": lambda w, h, y: None,
}


def quietly_doubled(w):
    with weft.no_grad():
        w.mul_(2)


@pytest.mark.parametrize("end", ODD_ENDS.values(), ids=ODD_ENDS)
@pytest.mark.parametrize("between", [lambda c: c, lambda c: lambda f: f], ids=["compiled", "eager"])
def test_arguments_with_a_history(end, between):
    """What another compiled function, or an eager op, has computed; its history goes on behind the call's."""

    def scenario(compile):
        w, v = leaf(3), leaf(3)
        first, second = between(compile)(lambda x: (x * w).exp()), compile(lambda h: (h * v).tanh() * h)
        seen = []
        for k in range(12):
            h = first(weft.randn(3)) if k != 9 else leaf(3) * 1
            y = second(h if k != 10 else h.detach())
            seen += [y.detach(), ODD_ENDS["backward"](w, h, y) if k < 7 else error_of(end, w, h, y), w.grad, v.grad]
        return seen

    assert_same(scenario)


def test_arguments_with_a_history_are_replayed():
    w = leaf(3)
    first, second = weft.compile(lambda x: x * w), weft.compile(lambda h: h.exp())
    for _ in range(8):
        second(first(weft.randn(3))).sum().backward()
    assert second.recordings[0].usual is not None and second.recordings[0].not_replayed is None


@twin
def test_a_backward_inside_that_goes_on_behind_an_argument(compile):
    w, v = leaf(3), leaf(3)

    def f(h):
        y = (h * v).sum()
        y.backward()
        return y.detach()

    f, seen = compile(f), []
    for _ in range(N_CALLS):
        seen += [f((w * 2).exp()), w.grad, v.grad]
    return seen


def test_tensors_made_anew_are_not_taken_for_one_whose_id_they_got():
    box = {}

    def call(x):
        return (x * box["t"]).sum()

    f, x = weft.compile(call), weft.ones(3)
    for k in range(12):
        # The id of what is gone goes to what comes in its place, and so does that of its array.
        box["t"] = None
        box["t"] = weft.full((3,), float(k))
        assert f(x) == 3.0 * k
    (replay,) = f.recordings[0].replays
    assert not replay.expectation.tensors


@pytest.mark.parametrize("departs", [False, True])
@pytest.mark.parametrize("given", ["twice", "met inside", "a state"])
def test_one_tensor_in_place_of_two(given, departs):
    """It has one gradient, summed in the order in which it was used, and the call may go another way after that."""

    def scenario(compile):
        w, flags = leaf(64), []

        @compile
        def f(x, y, a, b, c):
            z = w if given == "met inside" else y
            loss = (x * a).sum() + (z * b).sum() + (x * c).sum()
            if flags:
                loss = loss.exp().log()
            if given == "a state":
                loss.backward()
                return loss.detach()
            return loss

        for k in range(16):
            flags[:] = [True] * (departs and k % 8 == 7)
            is_one = k % 4 == 3
            x, y = leaf(64), leaf(64)
            x = w if is_one and given == "met inside" else x
            y = x if is_one and given != "met inside" else y
            w.grad = None
            loss = f(x, y, *[weft.randn(64) * 0.1 for _ in range(3)])
            if given != "a state":
                loss.backward()
            yield loss, x, y, w

    assert_same(scenario)
