"""Cheap ops that other kernels read are computed again there, and nothing else changes."""

import numpy as np
import pytest
from compiled_twin import look
from turn_taking import same, share_much, teams

import weft
from weft.compiler.again import compute_again
from weft.compiler.fuse import fuse
from weft.compiler.graph import parse
from weft.compiler.legalize import legalize, settle
from weft.compiler.simplify import simplify
from weft.nn import functional as F

pool = pytest.fixture(teams)


def _again(*lines, result, commit=""):
    """The ops that are there once more, of a graph on a matrix and a row."""
    inputs = ["%0 = input() : float32[64, 32]", "%1 = input() : float32[1, 32]"]
    text = "\n  ".join(["graph parts {", *inputs, *lines, *([commit] if commit else []), f"return {result}"]) + "\n}\n"
    graph = settle(simplify(legalize(parse(text))[0])[0])[0]
    found = compute_again(fuse(graph))
    if found is None:
        return []
    before = [v.op.name for v in graph.values]
    after = [v.op.name for v in found[0].verify().values]
    assert len(found[1]) == len(before)
    for name in before:
        after.remove(name)
    return after


_CENTRED = "%2 = sub(%0, %1) : float32[64, 32]"
_SQUARES = "%3 = mul(%2, %2) : float32[64, 32]"
_SUM = "%4 = sum(%3) {axes=(0,), keepdim=True} : float32[1, 32]"
_SCALED = "%5 = mul(%2, %4) : float32[64, 32]"


def test_what_is_left_of_the_mean_is_computed_in_both_passes():
    assert _again(_CENTRED, _SQUARES, _SUM, _SCALED, result="%5") == ["sub"]


@pytest.mark.parametrize(
    "lines, result, commit",
    [
        ((_CENTRED, _SQUARES, _SUM, _SCALED), "%5, %2", ""),
        (("%2 = exp(%0) : float32[64, 32]", _SQUARES, _SUM, _SCALED), "%5", ""),
        ((_CENTRED, _SQUARES, _SUM, "%5 = add(%0, %4) : float32[64, 32]"), "%5", ""),
        ((_CENTRED, _SQUARES, _SUM, _SCALED), "%4", "commit %0 <- %5"),
    ],
    ids=["a result", "an expensive op", "read in its own kernel only", "made of what is changed"],
)
def test_the_rest_is_computed_once(lines, result, commit):
    assert _again(*lines, result=result, commit=commit) == []


def _normalised(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, training=True)


def _both_ways(x, weight, bias):
    x = x.detach().requires_grad_()
    out = _normalised(x, weight, bias)
    (out * out.detach().tanh()).sum().backward()
    return out.detach(), x.grad


@pytest.mark.parametrize("shape", [(600, 70), (40, 8, 9), (3, 5)])
def test_batch_norm_has_the_bits_of_eager_mode(shape):
    weft.manual_seed(0)
    given = weft.randn(shape), weft.randn(shape[1]), weft.randn(shape[1])
    expected, compiled = [look(x) for x in _both_ways(*given)], weft.compile(_both_ways)
    for _ in range(3):
        assert [look(x) for x in compiled(*given)] == expected


def test_batch_norm_stores_its_result_and_statistics_alone():
    compiled = weft.compile(_normalised)
    x = weft.randn(600, 70)
    for _ in range(2):
        compiled(x, weft.ones(70), weft.zeros(70))
    text = compiled.explain(verbose=True)
    assert "3 kernel(s)" in text and float(text.split("arena ")[1].split()[0].replace(",", "")) < x.numel() * 4


def test_threads(pool, monkeypatch):
    share_much(monkeypatch, few_columns=2)
    weft.manual_seed(1)
    same(pool, _normalised, weft.randn(300, 40), weft.randn(40), weft.randn(40))


@pytest.mark.oracle
def test_batch_norm_and_torch():
    import torch

    numbers = np.random.default_rng(2).standard_normal((500, 60)).astype(np.float32)
    found = _both_ways(weft.tensor(numbers), weft.ones(60), weft.zeros(60))
    x = torch.tensor(numbers, requires_grad=True)
    out = torch.nn.functional.batch_norm(x, None, None, torch.ones(60), torch.zeros(60), training=True)
    (out * out.detach().tanh()).sum().backward()
    for ours, theirs in zip(found, (out.detach(), x.grad)):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-6)
