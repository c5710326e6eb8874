"""Continuous numbers are not drawn as whole ones: an error, where what came out was no random number at all."""

import pytest

import weft

DRAWS = {
    "rand": lambda dtype: weft.rand(2, dtype=dtype),
    "randn": lambda dtype: weft.randn(2, dtype=dtype),
    "rand_like": lambda dtype: weft.rand_like(weft.zeros(2, dtype=dtype)),
    "randn_like": lambda dtype: weft.randn_like(weft.zeros(2), dtype=dtype),
    "normal": lambda dtype: weft.normal(weft.zeros(2, dtype=dtype), 1.0),
    "uniform_": lambda dtype: weft.zeros(2, dtype=dtype).uniform_(),
    "normal_": lambda dtype: weft.zeros(2, dtype=dtype).normal_(),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", [weft.int64, weft.int32, weft.uint8, weft.bool], ids=str)
def test_whole_numbers_are_refused(name, dtype, compiled):
    draw = weft.compile(DRAWS[name]) if compiled else DRAWS[name]
    with pytest.raises(NotImplementedError, match="numbers are not implemented for"):
        draw(dtype)


@pytest.mark.parametrize("dtype", [weft.int64, weft.bool, weft.float32], ids=str)
def test_bernoulli_draws_them(dtype):
    weft.manual_seed(3)
    share = weft.bernoulli(weft.zeros(4000, dtype=dtype), 0.25).double().mean().item()
    assert 0.2 < share < 0.3
    assert weft.bernoulli(weft.ones(5, dtype=dtype)).tolist() == [1] * 5


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["rand", "randn"])
def test_pytorch_refuses_them_too(name):
    import torch

    for library in (weft, torch):
        with pytest.raises(NotImplementedError):
            getattr(library, name)(2, dtype=library.int64)
