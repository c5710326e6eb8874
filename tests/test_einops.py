"""einops with weft's tensors."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("einops")
import einops

import weft
import weft.einops
from weft import nn

CALLS = [
    lambda x: einops.rearrange(x, "a (b c) d -> b (a d) c", b=2),
    lambda x: einops.rearrange(list(x), "n b d -> b d n"),
    lambda x: einops.repeat(x, "a b d -> a (b r) d e", r=3, e=2),
    lambda x: einops.einsum(x, x, "a b d, c b d -> a c"),
    lambda x: einops.pack([x, x[:, 0]], "a * d")[0],
    lambda x: einops.unpack(einops.pack([x, x[:, 0]], "a * d")[0], [(4,), ()], "a * d")[1],
    *[
        lambda x, how=how: einops.reduce(x, "a (b c) d -> b d", how, c=2)
        for how in ("sum", "mean", "max", "min", "prod")
    ],
]


@pytest.mark.parametrize("call", CALLS)
def test_the_results_are_those_with_numpy(call):
    array = np.random.default_rng(0).normal(size=(3, 4, 5))
    eager, compiled = weft.tensor(array), weft.compile(call)
    expected = call(eager)
    np.testing.assert_allclose(expected.numpy(), call(array), rtol=1e-12)
    for _ in range(4):
        assert compiled(eager).numpy().tobytes() == expected.numpy().tobytes()
    assert compiled.breaks == ()


def test_truth_and_gradients():
    x = weft.tensor([[1.0, -1.0], [0.0, 2.0]], requires_grad=True)
    assert einops.reduce(x > 0, "a b -> a", "any").tolist() == [True, True]
    assert einops.reduce(x > 0, "a b -> ", "all").item() is False
    einops.reduce(x * x, "a b -> b", "sum")[1].backward()
    assert x.grad.tolist() == [[0.0, -2.0], [0.0, 4.0]]


def test_layers_in_a_model():
    model = nn.Sequential(
        weft.einops.Rearrange("b c h -> b (c h)"), nn.Linear(6, 2), weft.einops.Reduce("b o -> b", "mean")
    )
    assert model(weft.ones(4, 2, 3)).shape == (4,) and "Rearrange('b c h -> b (c h)')" in repr(model)


def test_linear_layers_along_axes():
    weft.manual_seed(0)
    plain = weft.einops.EinMix("b c w -> b o w", weight_shape="c o", bias_shape="o", c=3, o=5)
    x = weft.randn(2, 3, 4)
    expected = einops.einsum(x, plain.weight, "b c w, c o -> b o w") + plain.bias.reshape(5, 1)
    assert plain(x).shape == (2, 5, 4)
    np.testing.assert_allclose(plain(x).detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    parted = weft.einops.EinMix("b (g c) -> b (g o)", weight_shape="g c o", g=2, c=3, o=2)
    y = weft.randn(4, 6)
    expected = einops.einsum(y.reshape(4, 2, 3), parted.weight, "b g c, g c o -> b g o").reshape(4, 4)
    np.testing.assert_allclose(parted(y).detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    assert parted.bias is None and [name for name, _ in plain.named_parameters()] == ["weight", "bias"]
    fast = weft.compile(parted)
    assert all(fast(y).detach().numpy().tobytes() == parted(y).detach().numpy().tobytes() for _ in range(4))
    parted(y).sum().backward()
    assert parted.weight.grad.shape == parted.weight.shape


def test_without_einops_the_import_says_what_to_install():
    program = (
        "import sys\nsys.modules['einops'] = None\nimport weft\n"
        "try:\n    import weft.einops\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "weft.einops needs einops, which is not installed: pip install einops" in finished.stdout
