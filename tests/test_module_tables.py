"""Programs that write to a module's tables of parameters themselves, and other names that programs import."""

import pytest

import weft
from weft import nn


def test_what_is_only_in_a_table_is_found():
    # Libraries for meta-learning make modules whose weights are in the table and nowhere else.
    layer = nn.Linear(2, 2)
    made = nn.Linear(2, 2)
    object.__setattr__(made, "_parameters", {})
    del made.__dict__["weight"], made.__dict__["bias"]
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'weight'"):
        made.weight  # noqa: B018
    made._parameters.update(weight=layer.weight * 2, bias=layer.bias)
    x = weft.ones(1, 2)
    assert (made(x) == nn.functional.linear(x, layer.weight * 2, layer.bias)).all()
    made(x).sum().backward()
    assert layer.weight.grad.tolist() == [[2.0, 2.0]] * 2


def test_a_wrapper_asks_its_base_first():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattribute__("module"), name)

    assert Wrapper(nn.Linear(3, 4)).out_features == 4
    with pytest.raises(AttributeError):
        Wrapper(nn.Linear(3, 4)).missing  # noqa: B018


def test_kernels_of_attention_may_be_named():
    from weft.nn.attention import SDPBackend, sdpa_kernel

    q = weft.ones(1, 2, 3)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        inside = nn.functional.scaled_dot_product_attention(q, q, q)
    assert (inside == nn.functional.scaled_dot_product_attention(q, q, q)).all()
    with pytest.raises(AssertionError, match="SDPBackend"):
        sdpa_kernel("math")


def test_standard_normal_draws():
    from weft.distributions.utils import _standard_normal, lazy_property  # noqa: F401

    assert _standard_normal((2, 3), dtype=weft.float64, device="cpu").dtype is weft.float64


def test_broadcast_shapes_are_sizes():
    # A library of linear operators counts the elements of a part of one.
    assert weft.broadcast_shapes((2, 1), (1, 3))[-2:].numel() == 6 and weft.broadcast_shapes() == weft.Size()


def test_a_child_named_like_a_method_leaves_the_method_where_it_is():
    class Stack(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = weft.nn.Linear(2, 2)
            self.parameters = [weft.nn.Parameter(weft.ones(3))]
            self.parameters = weft.nn.ParameterList(self.parameters)

    model = Stack()
    assert sum(p.numel() for p in model.parameters()) == 9 and "parameters.0" in model.state_dict()
    model._modules["parameters"][0].data.fill_(2)
    assert model.state_dict()["parameters.0"].tolist() == [2, 2, 2]
    del model.parameters
    assert [name for name, _ in model.named_parameters()] == ["first.weight", "first.bias"]
    with pytest.raises(AttributeError):
        del model.parameters


class _Hidden(weft.nn.Module):
    """Shows its second layer only."""

    def __init__(self):
        super().__init__()
        self.first, self.second = weft.nn.Linear(2, 2), weft.nn.Linear(2, 2)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield from self.second.named_modules(memo, f"{prefix}.second", remove_duplicate)


class _Chosen(_Hidden):
    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield "first.bias", self.first.bias


def test_parameters_are_those_that_have_names_in_their_order():
    shared, hidden, chosen = weft.nn.Linear(2, 2), _Hidden(), _Chosen()
    tied = weft.nn.Linear(2, 2)
    tied.weight = shared.weight
    trees = [
        weft.nn.Sequential(shared, weft.nn.Sequential(weft.nn.ReLU(), shared, weft.nn.Linear(2, 3)), tied, shared),
        weft.nn.Sequential(hidden, hidden.second, weft.nn.Linear(2, 1), hidden),
        weft.nn.Sequential(hidden.second, hidden, weft.nn.ModuleDict({"b": tied, "a": shared})),
        weft.nn.Sequential(chosen),
        hidden,
        chosen,
        weft.nn.Linear(2, 2, bias=False),
        weft.nn.ReLU(),
    ]
    trees[0].absent = None
    for tree in trees:
        for recurse in (True, False):
            named = [p for _, p in tree.named_parameters(recurse=recurse)]
            assert [*map(id, tree.parameters(recurse))] == [*map(id, named)]
    assert [*map(id, chosen.parameters())] == [id(chosen.first.bias)]
    assert len([*hidden.parameters()]) == 2 and len([*trees[0].parameters()]) == 5
