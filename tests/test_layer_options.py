"""Options of layers and losses that few programs use, as PyTorch has them."""

import inspect

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.oracle


def rows(library):
    return library.tensor(np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3))


EMBEDDINGS = {
    "limited": lambda ns: ns.nn.Embedding(4, 3, max_norm=1.5, _weight=rows(ns)),
    "limited by position": lambda ns: ns.nn.Embedding(4, 3, 0, 1.0, 1.0, False, False, rows(ns)),
    "by frequency": lambda ns: ns.nn.Embedding(4, 3, scale_grad_by_freq=True, _weight=rows(ns)),
    "not sparse": lambda ns: ns.nn.Embedding(4, 3, padding_idx=-1, sparse=False, _weight=rows(ns)),
    "pretrained": lambda ns: ns.nn.Embedding.from_pretrained(rows(ns), False, padding_idx=1, max_norm=2.0),
    "frozen": lambda ns: ns.nn.Embedding(4, 3, _weight=rows(ns), _freeze=True),
}


def trained(library, make, compile):
    layer, scale = make(library), library.full((3,), 2.0, requires_grad=True)

    @compile
    def step(index):
        layer.zero_grad()
        loss = (layer(index) * scale).pow(2).sum()
        loss.backward()
        with library.no_grad():
            layer.weight.mul_(0.9)
        return loss

    seen = [repr(layer), layer.weight.requires_grad]
    for index in ([0, 1, 1], [3, 3], [2, 0, 1], [3, 1], [0, 0, 0], [1, 2, 3]):
        seen.append(step(library.tensor(index)).item())
        seen += [[] if x is None else x.tolist() for x in (layer.weight.grad, layer.weight.detach())]
    return seen


@pytest.mark.parametrize("make", EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_embeddings(make):
    torch = pytest.importorskip("torch")
    expected = trained(torch, make, lambda f: f)
    eager = trained(weft, make, lambda f: f)
    assert eager[:2] == expected[:2]
    for a, b in zip(eager[2:], expected[2:]):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert trained(weft, make, weft.compile) == eager


def test_an_embedding_of_another_shape_than_its_rows():
    for library in (weft, pytest.importorskip("torch")):
        with pytest.raises(AssertionError, match="match"):
            library.nn.Embedding(3, 3, _weight=rows(library))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_losses_with_weights(name, reduction):
    def outcome(library, compile=lambda f: f):
        x = rows(library).requires_grad_()
        loss = compile(getattr(library.nn.functional, name))
        made = loss(x, rows(library).flip(0), weight=rows(library).abs(), reduction=reduction)
        made.sum().backward()
        with pytest.raises(ValueError, match="same size"):
            getattr(library.nn.functional, name)(x, x, weight=library.ones(3))
        return made.tolist(), x.grad.tolist()

    eager, expected = outcome(weft), outcome(pytest.importorskip("torch"))
    for a, b in zip(eager, expected):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert outcome(weft, weft.compile) == eager


@pytest.mark.parametrize("name", ["InstanceNorm1d", "InstanceNorm2d", "LazyBatchNorm1d", "LazyInstanceNorm1d"])
def test_norms_without_a_bias(name):
    def keys(library):
        layer = getattr(library.nn, name)(*([] if name.startswith("Lazy") else [2]), affine=True, bias=False)
        layer(library.ones(3, 2, 4, 5) if "2d" in name else library.ones(3, 2, 4))
        layer.reset_parameters()
        return [(key, x.shape) for key, x in layer.state_dict().items() if x.ndim], layer.bias is None

    torch = pytest.importorskip("torch")
    assert [(k, tuple(s)) for k, s in keys(weft)[0]] == [(k, tuple(s)) for k, s in keys(torch)[0]]
    assert keys(weft)[1] and keys(torch)[1]


# Arguments that only choose how something is computed, or that PyTorch's own code passes on.
_HOW = {"self", "device", "dtype", "foreach", "fused", "capturable", "persistent", "_stacklevel", "out"}


@pytest.mark.parametrize("path", ["nn", "nn.functional", "nn.init", "optim", "optim.lr_scheduler", "distributions"])
def test_every_argument_of_pytorch_has_its_name_here(path):
    """nn.Embedding had no max_norm, which nobody had noticed."""
    theirs, ours = pytest.importorskip("torch"), weft
    for part in path.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    missing = {}
    for name in dir(theirs):
        pair = getattr(theirs, name), getattr(ours, name, None) if hasattr(ours, name) else None
        if name.startswith("_") or not all(map(callable, pair)):
            continue
        try:
            expected, have = (inspect.signature(x).parameters.values() for x in pair)
        except ValueError:
            continue  # written in C: it says nothing of its arguments
        if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in have):
            continue
        named = {p.name for p in expected if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        missing[name] = named - {p.name for p in have} - _HOW
    known = {"Hardtanh": {"min_value", "max_value"}}  # older spellings, which PyTorch warns of
    assert {name: names for name, names in missing.items() if names} == (known if path == "nn" else {})
