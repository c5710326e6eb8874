"""Tensors as text: the same characters as PyTorch, by golden strings and by comparison on random arrays."""

import re

import numpy as np
import pytest

import weft
from weft import printing
from weft.printing import printoptions, tensor_repr


def text(data, dtype=np.float32, **facts):
    return tensor_repr(np.array(data, dtype), **facts)


GOLDEN = [
    ([1.0, 2.5, -3.0], np.float32, "tensor([ 1.0000,  2.5000, -3.0000])"),
    ([1.0, 2.0], np.float32, "tensor([1., 2.])"),
    ([[1.0, -2.0], [3.0, 4.0]], np.float32, "tensor([[ 1., -2.],\n        [ 3.,  4.]])"),
    ([1e-5, 1.0], np.float32, "tensor([1.0000e-05, 1.0000e+00])"),
    ([1.0, 2e8], np.float32, "tensor([1.0000e+00, 2.0000e+08])"),
    ([np.nan, np.inf, -1.5], np.float32, "tensor([    nan,     inf, -1.5000])"),
    ([np.nan, np.inf, -1.0], np.float32, "tensor([nan, inf, -1.])"),
    ([0.0, -0.0], np.float32, "tensor([0., -0.])"),
    (3.14159, np.float32, "tensor(3.1416)"),
    (7, np.int64, "tensor(7)"),
    ([1, -20], np.int64, "tensor([  1, -20])"),
    ([1, 2], np.int32, "tensor([1, 2], dtype=weft.int32)"),
    ([True, False], np.bool_, "tensor([ True, False])"),
    ([1.5], np.float64, "tensor([1.5000], dtype=weft.float64)"),
    ([], np.float32, "tensor([])"),
    ([], np.int64, "tensor([], dtype=weft.int64)"),
    (np.zeros((0, 3)), np.float32, "tensor([], size=(0, 3))"),
    (np.zeros((2, 1, 2)), np.float32, "tensor([[[0., 0.]],\n\n        [[0., 0.]]])"),
]


@pytest.mark.parametrize(("data", "dtype", "wanted"), GOLDEN)
def test_golden(data, dtype, wanted):
    assert text(data, dtype) == wanted


def test_long_arrays_are_summarised():
    assert tensor_repr(np.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    assert tensor_repr(np.ones((400, 400), np.float32)).splitlines()[3:5] == [
        "        ...,",
        "        [1., 1., 1.,  ..., 1., 1., 1.],",
    ]


def test_autograd_facts_are_suffixes():
    assert text([1.0], requires_grad=True) == "tensor([1.], requires_grad=True)"
    assert text([1.0], requires_grad=True, grad_fn_name="MulBackward0") == "tensor([1.], grad_fn=<MulBackward0>)"
    wide = text(np.full(9, 1 / 3), requires_grad=True, grad_fn_name="MulBackward0")
    assert wide.endswith("0.3333],\n       grad_fn=<MulBackward0>)")


def test_default_dtype_is_not_told():
    assert text([1.0], np.float64, default_dtype=weft.float64) == "tensor([1.])"
    assert text([1.0], default_dtype=weft.float64) == "tensor([1.], dtype=weft.float32)"
    weft.set_default_dtype(weft.float64)
    try:
        assert text([1.0], np.float64) == "tensor([1.])"
    finally:
        weft.set_default_dtype(weft.float32)


def test_tensors_print_like_their_arrays():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == str(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2.0) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert repr(weft.nn.Parameter(weft.tensor([1.5]))) == (
        "Parameter containing:\ntensor([1.5000], requires_grad=True)"
    )


def test_options_last_for_their_block():
    before = printing.get_printoptions()
    with printoptions(precision=2, threshold=5, edgeitems=1, linewidth=20, sci_mode=False):
        assert text([0.123]) == "tensor([0.12])"
        assert tensor_repr(np.arange(10)) == "tensor([0,  ..., 9])"
        assert text([1e-9, 1.0, 2.0]) == "tensor([0.00, 1.00,\n        2.00])"
    assert printing.get_printoptions() == before


def test_options_are_restored_after_an_error():
    before = printing.get_printoptions()
    with pytest.raises(ZeroDivisionError), printoptions(precision=1):
        raise ZeroDivisionError
    assert printing.get_printoptions() == before


def test_profiles():
    with printoptions():
        weft.set_printoptions(profile="short")
        assert text([0.123456]) == "tensor([0.12])"
        weft.set_printoptions(profile="full")
        assert "..." not in tensor_repr(np.arange(2000))
        with pytest.raises(ValueError, match="profile is 'shorter'; it must be one of default, short, full"):
            weft.set_printoptions(profile="shorter")


def random_array(rng, kind, trial):
    """Arrays of all types, sizes 0 to above the threshold, and all the cases the format depends on."""
    rank = int(rng.integers(0, 4))
    shape = tuple(rng.integers(8, 16, rank)) if trial % 3 == 0 else tuple(rng.integers(0, 9, rank))
    numbers = rng.standard_normal(shape) * 10.0 ** rng.integers(-7, 9)
    if kind == "whole":
        numbers = np.round(numbers)
    elif kind == "tenths":
        numbers = np.round(numbers * 10) / 10
    elif kind == "wide":
        numbers = numbers * 10.0 ** rng.integers(-3, 3, shape)
    elif kind == "special":
        special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
        numbers = np.where(rng.random(shape) < 0.3, special, numbers)
    elif kind == "integers":
        return rng.integers(-(10 ** rng.integers(1, 8)), 10 ** rng.integers(1, 8), shape).astype(
            rng.choice([np.int64, np.int32])
        )
    elif kind == "bools":
        return np.asarray(rng.random(shape) < 0.5)
    return np.asarray(numbers).astype(rng.choice([np.float32, np.float64]))


KINDS = ("plain", "whole", "tenths", "wide", "special", "integers", "bools")
OPTIONS = ({}, {"precision": 2, "edgeitems": 1, "threshold": 10}, {"sci_mode": True, "linewidth": 40})
OPTIONS += ({"edgeitems": 0, "threshold": 5}, {"sci_mode": False, "precision": 6, "linewidth": 120, "threshold": 100})


@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
def test_same_text_as_pytorch(kind, options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(KINDS.index(kind))
    with printoptions(**options), torch._tensor_str.printoptions(**options):
        for trial in range(40):
            array = random_array(rng, kind, trial)
            theirs = torch.from_numpy(array.copy())
            needs = array.dtype.kind == "f" and trial % 2 == 0
            name = "MulBackward0" if needs and trial % 4 == 0 else None
            theirs = theirs.requires_grad_(needs) * 1 if name else theirs.requires_grad_(needs)
            ours = tensor_repr(array, requires_grad=needs, grad_fn_name=name)
            wanted = str(theirs).replace("torch.", "weft.")
            if "dtype" in wanted:
                # `weft` is a letter shorter than `torch`, so the line may break after it instead of before.
                ours, wanted = (re.sub(r",\s+(grad_fn|requires_grad|dtype)", r", \1", t) for t in (ours, wanted))
            assert ours == wanted
