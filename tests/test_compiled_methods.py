"""Compiled methods of instances: they tell what compiled functions tell."""

import copy
import gc
import inspect
import operator
import pickle
import weakref

import pytest

import weft
from weft import nn
from weft.runtime.replay import bound_call, native
from weft.runtime.replay.bound_call import BoundCall


class Scaled:
    def __init__(self, w):
        self.w = weft.tensor(w)

    @weft.compile
    def times(self, x, scale=2.0):
        """The product."""
        return self.w * x * scale

    @weft.compile(fullgraph=True)
    def twice(self, x):
        return self.times(x) + x


class Read:
    """Of one test alone, which counts its calls."""

    @weft.compile
    def clipped(self, x, most=1.0):
        if x.sum() > 100:
            return x
        return x * most


def test_a_method_explains_itself_with_and_without_a_call():
    read = Read()
    assert read.clipped.explain() == "clipped: fast path: not called yet" and read.clipped.breaks == ()
    text = read.clipped.explain(weft.ones(2), most=3.0)
    assert text.startswith("clipped: fast path") and "float32[2]" in text
    assert len(read.clipped.recordings) == 1 == len(Read.clipped.recordings)
    for _ in range(3):
        read.clipped(weft.ones(2), most=3.0)
    assert read.clipped.breaks == Read.clipped.breaks != ()
    assert "test_compiled_methods.py" in read.clipped.explain()


def test_a_method_is_called_like_any_other():
    scaled, other = Scaled([1.0, 2.0]), Scaled([3.0, 4.0])
    x = weft.tensor([1.0, 1.0])
    assert [(m.times(x).tolist(), m.twice(x).tolist()) for m in (scaled, other)] == [
        ([2.0, 4.0], [3.0, 5.0]),
        ([6.0, 8.0], [7.0, 9.0]),
    ]
    method = scaled.times
    assert method(x, scale=1.0).tolist() == [1.0, 2.0]
    assert method.__name__ == "times" and method.__doc__ == "The product." and method.__self__ is scaled
    assert method.__qualname__ == "Scaled.times" and method.__func__ is Scaled.times
    assert list(inspect.signature(method).parameters) == ["x", "scale"]
    assert repr(method).startswith("<bound <weft.compile of times")


def test_the_same_method_of_the_same_instance_is_equal():
    scaled, other = Scaled([1.0]), Scaled([1.0])
    assert scaled.times == scaled.times and len({scaled.times, scaled.times}) == 1
    assert scaled.times != other.times and scaled.times != scaled.twice and scaled.times != 3
    with pytest.raises(AttributeError, match="no attribute 'wrong'"):
        _ = scaled.times.wrong


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    @weft.compile
    def forward(self, x):
        return self.linear(x).relu()


def test_forward_of_a_module_may_be_compiled():
    net, x = Net(), weft.ones(3, 2)
    expected = net.linear(x).relu()
    assert net(x).tolist() == expected.tolist() and net.forward.breaks == ()
    assert "forward: fast path" in net.forward.explain(x)
    again = pickle.loads(pickle.dumps(net))
    assert again.forward(x).tolist() == expected.tolist()


@pytest.fixture
def called_often():
    """Methods are asked for and called in native code by now, where there is any."""
    scaled = Scaled([1.0, 2.0])
    for _ in range(40):
        scaled.times(weft.ones(2), scale=3.0)
    assert (type(vars(BoundCall)["__call__"]) is type(int.__add__)) == (native.layout() is not None)
    return scaled


def test_methods_asked_for_in_any_way_are_the_same(called_often):
    descriptor = vars(Scaled)["times"]
    assert descriptor.__get__(None, Scaled) is descriptor is Scaled.times
    ways = [called_often.times, descriptor.__get__(called_often), descriptor.__get__(called_often, Scaled)]
    ways += [operator.attrgetter("times")(called_often), BoundCall(descriptor, called_often)]
    for method in ways:
        assert type(method) is BoundCall and method == called_often.times
        assert method(weft.ones(2)).tolist() == method(x=weft.ones(2), scale=2.0).tolist() == [2.0, 4.0]


def test_python_and_native_code_do_the_same(called_often):
    descriptor, x = vars(Scaled)["times"], weft.ones(2)
    made = bound_call.get.declaration.function(descriptor, called_often, Scaled)
    assert type(made) is BoundCall and made == called_often.times
    assert bound_call.get.declaration.function(descriptor, None, Scaled) is descriptor
    for args, kwargs in (((x,), {}), ((x, 3.0), {}), ((x,), {"scale": 3.0}), ((), {"x": x})):
        results = [f(made, *args, **kwargs).tolist() for f in (bound_call.call_in_python, BoundCall.__call__)]
        results.append(bound_call.call.declaration.function(made, args, kwargs).tolist())
        assert results[0] == results[1] == results[2] == called_often.times(*args, **kwargs).tolist()


def test_wrong_calls_of_methods_raise_what_functions_raise(called_often):
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        called_often.times()
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        called_often.times(weft.ones(2), wrong=1)


def test_methods_keep_their_instance_and_let_go_of_it(called_often):
    method = called_often.times
    assert weakref.ref(method)() is method
    again = copy.deepcopy(method)
    assert again.instance is not called_often and again(weft.ones(2)).tolist() == [2.0, 4.0]
    instance = Scaled([5.0])
    method, there = instance.times, weakref.ref(instance)
    instance.kept = method  # a cycle
    del instance
    assert there() is method.instance and method(weft.ones(1)).tolist() == [10.0]
    del method
    gc.collect()
    assert there() is None
