"""weft.testing, utils._pytree, utils.checkpoint and nn.utils.rnn: small tools, by PyTorch's paths."""

import copy
import pickle
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import weft
from weft import nn
from weft.testing import assert_close, make_tensor
from weft.utils import _pytree as pytree

CLOSE = """
close(ns.tensor([1.0, 2.0]), ns.tensor([1.0, 2.0 + 1e-6])) ; close(1.0, 1.0 + 1e-9) ; close([1, 2.0], [1, 2.0])
close({"a": ns.ones(2)}, {"a": ns.ones(2)}) ; close((ns.ones(2), 3), [ns.ones(2), 3]) ; close(None, None)
close(ns.tensor([float("nan")]), ns.tensor([float("nan")]), equal_nan=True) ; close(np.ones(2), np.ones(2))
close(ns.tensor([1.0]), ns.tensor([1.1]), rtol=0.2, atol=0.0) ; close(ns.ones(0), ns.ones(0))
close(ns.ones(2), ns.ones(2).double(), check_dtype=False) ; close(float("inf"), float("inf"))
"""
FAR = """
close(ns.tensor([1.0, 2.0]), ns.tensor([1.0, 2.5])) ; close(ns.tensor([1, 2]), ns.tensor([1, 3])) ; close(1.0, 1.5)
close(ns.tensor([[1.0, 9.0], [3.0, 4.0]]), ns.tensor([[1.0, 2.0], [3.0, 5.0]])) ; close(3, 4) ; close(True, False)
close({"a": [ns.ones(2), ns.zeros(1)]}, {"a": [ns.ones(2), ns.ones(1)]}) ; close([1, 2], [1, 2, 3])
close(ns.tensor(1.0), ns.tensor(2.0), rtol=0.1, atol=0.2) ; close(ns.tensor([float("nan")]), ns.tensor([float("nan")]))
close(ns.ones(2), ns.zeros(2), rtol=0.0, atol=0.0) ; close({"a": 1}, {"b": 1})
"""
KINDS = "close(ns.ones(2), ns.ones(3)) ; close(ns.ones(2), ns.ones(2).double())"


def each(text):
    return [call.strip() for call in text.replace("\n", ";").split(";") if call.strip()]


def run(call, ns, close):
    return eval(call, {"ns": ns, "close": close, "np": np})


@pytest.mark.parametrize("call", each(CLOSE))
def test_what_is_close(call):
    run(call, weft, assert_close)


@pytest.mark.parametrize("call", each(FAR + ";" + KINDS))
def test_what_is_not_close(call):
    with pytest.raises(AssertionError):
        run(call, weft, assert_close)


@pytest.mark.oracle
@pytest.mark.parametrize("call", each(FAR))
def test_messages_are_pytorchs(call):
    torch = pytest.importorskip("torch")
    with pytest.raises(AssertionError) as ours:
        run(call, weft, assert_close)
    with pytest.raises(AssertionError) as theirs:
        run(call, torch, torch.testing.assert_close)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.oracle
@pytest.mark.parametrize("call", each(CLOSE))
def test_pytorch_finds_the_same_close(call):
    torch = pytest.importorskip("torch")
    run(call, torch, torch.testing.assert_close)


def test_options_of_assert_close():
    with pytest.raises(ValueError, match="rtol and atol must both be specified"):
        assert_close(1.0, 1.0, rtol=0.1)
    with pytest.raises(AssertionError, match="^mine$"):
        assert_close(1.0, 2.0, msg="mine")
    with pytest.raises(AssertionError, match="^mine: Scalars are not close"):
        assert_close(1.0, 2.0, msg=lambda text: f"mine: {text}")
    with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type <class 'object'>"):
        assert_close(object(), 1.0)
    with pytest.raises(AssertionError, match="stride"):
        assert_close(weft.ones(2, 3), weft.ones(3, 2).t(), check_stride=True)


def test_made_tensors():
    for dtype in (weft.float32, weft.float64, weft.int64, weft.bool):
        x = make_tensor(3, 4, dtype=dtype, device="cpu")
        assert x.shape == (3, 4) and x.dtype is dtype
    x = make_tensor((200,), dtype=weft.float64, low=2, high=3, requires_grad=True)
    assert x.requires_grad and x.min() >= 2 and x.max() < 3


# --- trees ------------------------------------------------------------------------------------------------------------
Pair = namedtuple("Pair", "left right")
TREE = {"a": [1, (2, 3)], "b": Pair(4, OrderedDict(x=5)), "c": defaultdict(list, y=6), "d": None}


def test_trees_come_apart_and_together():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, 3, 4, 5, 6, None] and spec.num_leaves == 7
    again = pytree.tree_unflatten(leaves, spec)
    assert again == TREE and type(again["b"]) is Pair and again["c"].default_factory is list
    with pytest.raises(ValueError, match="`leaves` has length 2 but the spec refers to a pytree that holds 7"):
        pytree.tree_unflatten([1, 2], spec)


@pytest.mark.parametrize("get", [lambda x: x.sort(), lambda x: x.topk(2), lambda x: x.max(0), lambda x: x.svd()])
def test_results_with_names_are_trees(get):
    found = get(weft.tensor([[3.0, 1.0], [2.0, 5.0]]))
    leaves, spec = pytree.tree_flatten({"found": found})
    assert len(leaves) == len(found) and all(x is y for x, y in zip(leaves, found))
    again = pytree.tree_unflatten(leaves, spec)["found"]
    assert type(again) is type(found) and again[0] is found[0]
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert type(again) is type(found) and all((x == y).all() for x, y in zip(again, found))


def test_maps_over_trees():
    assert pytree.tree_map(lambda x, y: x + y, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert pytree.tree_map_only(int, lambda x: -x, {"a": 1, "b": "z"}) == {"a": -1, "b": "z"}
    assert pytree.tree_leaves([1, [2]], is_leaf=lambda x: isinstance(x, list) and len(x) == 1) == [1, [2]]
    assert pytree.tree_all(lambda x: x > 0, [1, [2]]) and not pytree.tree_any(lambda x: x > 5, (1, 2))
    moved = pytree.tree_map(lambda x: x.to("cpu"), {"x": weft.ones(1), "y": [weft.zeros(2)]})
    assert moved["y"][0].shape == (2,)
    with pytest.raises(ValueError, match="a tree of another form"):
        pytree.tree_map(lambda x, y: x, [1, 2], [1])


# --- checkpoint -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_computes_its_function(use_reentrant):
    layer = nn.Linear(3, 3)
    x = weft.ones(2, 3, requires_grad=True)

    def block(x, scale=1.0):
        return layer(x).tanh() * scale

    def step():
        loss = weft.utils.checkpoint.checkpoint(block, x, 2.0, use_reentrant=use_reentrant).sum()
        loss.backward()
        return loss

    losses = [step(), weft.compile(step)()]
    assert losses[0] == losses[1] and layer.weight.grad is not None
    deep = nn.Sequential(layer, nn.Tanh())
    assert (weft.utils.checkpoint.checkpoint_sequential(deep, 2, x, use_reentrant=False) == deep(x)).all()


# --- sequences --------------------------------------------------------------------------------------------------------
def test_padded_sequences():
    parts = [weft.arange(6.0).reshape(3, 2), weft.ones(1, 2), weft.ones(2, 2) * 5]
    padded = nn.utils.rnn.pad_sequence(parts)
    assert padded.shape == (3, 3, 2) and padded[1:, 1].tolist() == [[0, 0], [0, 0]]
    left = nn.utils.rnn.pad_sequence(iter(parts), batch_first=True, padding_value=-1, padding_side="left")
    assert left[1].tolist() == [[-1, -1], [-1, -1], [1, 1]]
    again = nn.utils.rnn.unpad_sequence(padded, weft.tensor([3, 1, 2]))
    assert all((x == y).all() for x, y in zip(again, parts))
    with pytest.raises(RuntimeError, match="empty list of sequences"):
        nn.utils.rnn.pad_sequence([])
    with pytest.raises(ValueError, match="left or right, but got up"):
        nn.utils.rnn.pad_sequence(parts, padding_side="up")


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "padding_value": 2}, {"padding_side": "left"}])
def test_padded_sequences_are_pytorchs(options):
    torch = pytest.importorskip("torch")
    arrays = [np.random.default_rng(k).normal(size=(k, 3)) for k in (2, 4, 1)]
    ours = [weft.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    padded = nn.utils.rnn.pad_sequence(ours, **options)
    expected = torch.nn.utils.rnn.pad_sequence(theirs, **options)
    assert padded.tolist() == expected.tolist()
    (padded**2).sum().backward(), (expected**2).sum().backward()
    assert all(x.grad.tolist() == y.grad.tolist() for x, y in zip(ours, theirs))
