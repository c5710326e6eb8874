"""Attributes that a program gives tensors and parameters, as programs that mark some of their weights do."""

import copy
import pickle

import pytest

import weft


@pytest.fixture(params=["tensor", "parameter", "result"])
def marked(request):
    x = weft.ones(2, requires_grad=True)
    x = {"tensor": x, "parameter": weft.nn.Parameter(weft.ones(2)), "result": x * 2}[request.param]
    x.bounds = [(0, None)]
    return x


def test_an_attribute_stays_with_the_object(marked):
    assert marked.bounds == [(0, None)]
    assert not hasattr(marked * 2, "bounds") and not hasattr(marked.detach(), "bounds")
    marked.bounds = None
    del marked.bounds
    with pytest.raises(AttributeError):
        marked.bounds  # noqa: B018


def test_pickles_and_copies_keep_it(marked):
    marked = marked if marked.is_leaf else marked.detach()
    marked.bounds = [1]
    loaded = pickle.loads(pickle.dumps(marked))
    assert loaded.bounds == [1] and loaded.tolist() == marked.tolist() and type(loaded) is type(marked)
    assert type(marked) is weft.nn.Parameter or copy.copy(marked).bounds is marked.bounds


def test_a_deep_copy_has_its_own():
    x = weft.ones(2)
    x.names = ["a"]
    y = copy.deepcopy(x)
    assert y.names == ["a"] and y.names is not x.names


def test_a_module_finds_its_marked_weights():
    layer = weft.nn.Linear(2, 2)
    layer.weight.no_decay = True
    assert [name for name, p in layer.named_parameters() if getattr(p, "no_decay", False)] == ["weight"]
    optimizer = weft.optim.SGD(layer.parameters(), 0.1)
    layer(weft.ones(1, 2)).sum().backward()
    optimizer.step()
    assert layer.weight.no_decay


def test_a_compiled_call_gives_and_reads_them():
    @weft.compile
    def call(x):
        y = x * x.factor
        y.made_in = "call"
        return y

    x = weft.ones(2)
    for factor in (2, 2, 3, 3):
        x.factor = factor
        y = call(x)
        assert y.made_in == "call" and y.tolist() == [factor] * 2


def test_sizes_are_whole_numbers():
    size = weft.Size((weft.tensor(3), True, 2))
    assert size == (3, 1, 2) and [type(x) for x in size] == [int] * 3 and weft.Size(weft.tensor([1, 2])) == (1, 2)
    for wrong in ((2.5,), ("a",), (weft.tensor(2.0),), (None,)):
        with pytest.raises(TypeError, match=r"Size\(\) takes an iterable of 'int' \(item 0 is '"):
            weft.Size(wrong)
