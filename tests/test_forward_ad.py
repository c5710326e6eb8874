"""Dual numbers as PyTorch's tutorial uses them."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.autograd import forward_ad


def tutorial(library):
    fw, found = library.autograd.forward_ad, []
    primal = library.linspace(-1, 1, 6, dtype=library.float64).reshape(2, 3)
    tangent = library.linspace(2, 3, 6, dtype=library.float64).reshape(2, 3)
    with fw.dual_level():
        dual = fw.make_dual(primal, tangent)
        assert fw.unpack_dual(dual).tangent is tangent
        found.append(fw.unpack_dual((dual**2 + dual.sin()) @ dual.T))
        found.append(fw.unpack_dual(dual * 3 + 1))
        plain = fw.unpack_dual(primal * 2)
        assert plain.tangent is None
    assert fw.unpack_dual(dual).tangent is None
    layer = library.nn.Linear(3, 2).double()
    with library.no_grad():
        layer.weight.copy_(tangent)
        layer.bias.zero_()
    params = dict(layer.named_parameters())
    with fw.dual_level():
        duals = {name: fw.make_dual(p, library.ones_like(p)) for name, p in params.items()}
        out = library.func.functional_call(layer, duals, primal)
        found.append(fw.unpack_dual(out.tanh()))
    return found


@pytest.mark.oracle
def test_tangents_like_pytorch():
    torch = pytest.importorskip("torch")
    for (a, b), (c, d) in zip(tutorial(weft), tutorial(torch)):
        np.testing.assert_allclose(a.detach().numpy(), c.detach().numpy(), 1e-12)
        np.testing.assert_allclose(b.detach().numpy(), d.detach().numpy(), 1e-12)


def test_compiled_calls_have_the_same_bits():
    layer = nn.Linear(3, 1)

    def run(x, v):
        with forward_ad.dual_level():
            return tuple(forward_ad.unpack_dual(layer(forward_ad.make_dual(x, v)).sin()))

    compiled, x, v = weft.compile(run), weft.randn(2, 3), weft.randn(2, 3)
    for _ in range(3):
        assert [y.tolist() for y in compiled(x, v)] == [y.tolist() for y in run(x, v)]


def test_errors():
    with pytest.raises(RuntimeError, match="no level exists"):
        forward_ad.make_dual(weft.ones(1), weft.ones(1))
    with pytest.raises(RuntimeError, match="Trying to exit a forward AD level"):
        forward_ad.exit_dual_level()
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="Nested forward mode AD"):
            forward_ad.enter_dual_level()
        with pytest.raises(ValueError, match="Expected primal to be floating point"):
            forward_ad.make_dual(weft.ones(1).long(), weft.ones(1))
        with pytest.raises(ValueError, match="Expected tangent to be floating point or complex"):
            forward_ad.make_dual(weft.ones(1), weft.ones(1).long())
        with pytest.raises(RuntimeError, match="a forward gradient that has a different size .* type must be equal"):
            forward_ad.make_dual(weft.ones(1), weft.ones(2))
        with pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
            forward_ad.make_dual(weft.ones(1), forward_ad.make_dual(weft.ones(1), weft.ones(1)))


@pytest.mark.parametrize("changes", [True, False])
def test_a_function_that_changes_its_input_changes_the_tangent_too(changes):
    class Doubling(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.mul_(2) if changes else tangent

    for requires_grad in (False, True):
        x = weft.tensor(1.0, requires_grad=requires_grad).clone()
        tangent = weft.ones(())
        with weft.autograd.forward_ad.dual_level():
            dual = weft.autograd.forward_ad.make_dual(x, tangent)
            if changes:
                out = Doubling.apply(dual)
                assert out is dual and weft.autograd.forward_ad.unpack_dual(out).tangent is tangent
                assert out.item() == 2 and tangent.item() == 2
            else:
                with pytest.raises(RuntimeError, match="jvp function must modify the corresponding gradient inplace"):
                    Doubling.apply(dual)
