"""Tangents go along with ops, views, in-place changes, backward passes and custom Functions, as in PyTorch.

Every program of the tables runs on both libraries, and must find the same tangents.
"""

import gc
import weakref

import numpy as np
import pytest

import weft
from weft.autograd import forward_ad, gradcheck, gradgradcheck


def given(library):
    """A matrix and a tangent."""
    x = library.linspace(0.5, 2.0, 6, dtype=library.float64).reshape(2, 3)
    return x, library.linspace(1.0, -1.0, 6, dtype=library.float64).reshape(2, 3)


def _through_views(library, x):
    part = x[:, 1:]
    part.mul_(3)
    x[0].neg_()
    return x, part, x.T


def _into_a_plain_tensor(library, x):
    base = library.zeros(2, 3, dtype=library.float64)
    before = base[0]
    base[1] = x[0] * x[1]
    base[:, 2].add_(x[:, 0])
    return base, before


def _by_a_transposed_view(library, x):
    base = library.ones(3, 2, dtype=library.float64)
    base.T.copy_(x)
    base.T.mul_(x)
    return (base,)


def _overwritten(library, x):
    x.mul_(2).fill_(1)
    return x, x * 2


def _detached(library, x):
    return x.detach() * 2, (x.detach() + x), x.data


def _reshaped_in_place(library, x):
    x.t_()
    return x * library.ones(3, 2, dtype=library.float64), x.unsqueeze_(0)


OPS = {
    "elementwise": lambda ns, x: (x.sin() * x.exp() / (1 + x), x**2.5, x.log().tanh(), 3 - x, x.floor()),
    "sums": lambda ns, x: (x.sum(), x.mean(0), x.var(1), x.logsumexp(1), x.max(1).values, x.cumsum(0)),
    "products": lambda ns, x: (x @ x.T, ns.einsum("ij,kj->ik", x, x), ns.outer(x[0], x[1]), x.prod()),
    "shapes": lambda ns, x: (x.T, x.reshape(-1)[2:], ns.cat([x, x * 2]), x.expand(2, 2, 3), x.flip(0), x.unbind(1)[1]),
    "indices": lambda ns, x: (x[ns.tensor([1, 0, 1])], x.gather(1, ns.tensor([[2], [0]])), x[x > 1], x.sort(1).values),
    "choices": lambda ns, x: (ns.where(x > 1, x, -x), x.clamp(0.8, 1.5), x.abs().relu(), ns.maximum(x, x.flip(1))),
    "layers": lambda ns, x: (ns.nn.functional.softmax(x, 1), ns.nn.functional.layer_norm(x, (3,)), ns.nn.GELU()(x)),
    "matrices": lambda ns, x: (ns.linalg.inv(x @ x.T), ns.linalg.det(x @ x.T), ns.linalg.svdvals(x)),
    "complex numbers": lambda ns, x: (ns.complex(x, x * 2).abs(), (x * 1j).imag, ns.fft.fft(x).abs()),
    "views": _through_views,
    "into a plain tensor": _into_a_plain_tensor,
    "by a transposed view": _by_a_transposed_view,
    "overwritten": _overwritten,
    "detached": _detached,
    "reshaped in place": _reshaped_in_place,
    "no number": lambda ns, x: (x > 1, x.argmax(1), ns.ones(2)),
}


def tangents(library, program):
    """[(value, tangent or None)] of what a program makes of a dual number."""
    fw = library.autograd.forward_ad
    x, tangent = given(library)
    with fw.dual_level():
        found = [fw.unpack_dual(y) for y in program(library, fw.make_dual(x.clone(), tangent.clone()))]
        return [tuple(None if y is None else y.tolist() for y in pair) for pair in found]


@pytest.mark.oracle
@pytest.mark.parametrize("name", OPS)
def test_tangents_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    ours, theirs = tangents(weft, OPS[name]), tangents(torch, OPS[name])
    assert len(ours) == len(theirs)
    for (value, tangent), (value_there, tangent_there) in zip(ours, theirs):
        np.testing.assert_allclose(value, value_there, 1e-10, 1e-12)
        assert (tangent is None) == (tangent_there is None)
        if tangent is not None:
            np.testing.assert_allclose(tangent, tangent_there, 1e-9, 1e-12)


def hessian_times_vector(library):
    """Tangents of gradients, and gradients of tangents."""
    fw = library.autograd.forward_ad
    x, tangent = given(library)
    layer = library.nn.Linear(3, 2).double()
    with library.no_grad():
        layer.weight.copy_(given(library)[1])
        layer.bias.fill_(0.25)
    x.requires_grad_()
    with fw.dual_level():
        dual = fw.make_dual(x, tangent)
        loss = (layer(dual).tanh().exp() * dual[:, :2].sigmoid()).sum()
        gradient, of_weight = library.autograd.grad(loss, [dual, layer.weight])
        found = [fw.unpack_dual(y).tangent for y in (gradient, of_weight)]
        dual = fw.make_dual(x, tangent)
        slope = fw.unpack_dual(layer(dual).tanh().exp().sum()).tangent
        found += library.autograd.grad(slope, [x, layer.weight])
    return [y.detach().numpy() for y in found]


@pytest.mark.oracle
def test_second_derivatives_both_ways_are_pytorchs():
    for ours, theirs in zip(hessian_times_vector(weft), hessian_times_vector(pytest.importorskip("torch"))):
        np.testing.assert_allclose(ours, theirs, 1e-9, 1e-12)


def test_a_dual_number_shows_the_memory_of_both():
    x, tangent = given(weft)
    with forward_ad.dual_level() as level:
        assert level == 0 and forward_ad._current_level == 0
        dual = forward_ad.make_dual(x, tangent)
        assert not dual.requires_grad and "tangent=tensor(" in repr(dual) and "tangent=" not in repr(x)
        dual.mul_(2)
        assert forward_ad.unpack_dual(dual).tangent is tangent and tangent[0, 0] == 2
        assert x[0, 0] == 1 and forward_ad.unpack_dual(x).tangent is None
        primal = forward_ad.unpack_dual(dual).primal
        assert forward_ad.unpack_dual(primal * 2).tangent is None
    assert forward_ad._current_level == -1 and forward_ad.unpack_dual(dual).tangent is None


def test_tangents_go_with_their_tensors_and_with_the_level():
    with forward_ad.dual_level():
        kept = forward_ad.make_dual(weft.ones(2), weft.ones(2))
        tangent = weft.ones(2)
        seen = weakref.ref(tangent)
        dual = forward_ad.make_dual(weft.ones(2), tangent)
        del tangent
        gc.collect()
        assert seen() is not None
        del dual
        gc.collect()
        assert seen() is None
        seen = weakref.ref(forward_ad.unpack_dual(kept).tangent)
    gc.collect()
    assert seen() is None


def test_passing_tangents_on_can_be_switched_off():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(weft.ones(2), weft.ones(2))
        with forward_ad._set_fwd_grad_enabled(False):
            assert not forward_ad._is_fwd_grad_enabled()
            assert forward_ad.unpack_dual(dual * 2).tangent is None
        assert forward_ad.unpack_dual(dual * 2).tangent.tolist() == [2, 2]


def test_what_has_no_tangent_says_so():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(weft.ones(2), weft.ones(2))
        with pytest.raises(NotImplementedError, match="forward AD with igamma that does not support it"):
            weft.special.gammainc(dual, dual)
        with pytest.raises(NotImplementedError, match="because it is an out= function"):
            weft.add(dual, 1, out=weft.empty(2))
        with pytest.raises(RuntimeError, match="the one in flight is 0"):
            forward_ad.exit_dual_level(level=1)


class Scaled(weft.autograd.Function):
    """x * y, with a jvp that reads what forward has saved for it."""

    @staticmethod
    def forward(ctx, x, times, y):
        ctx.save_for_forward(x, y)
        ctx.save_for_backward(x, y)
        ctx.times = times
        return x * y * times, x.sum()

    @staticmethod
    def backward(ctx, gradient, of_sum):
        x, y = ctx.saved_tensors
        return gradient * y * ctx.times + of_sum, None, gradient * x * ctx.times

    @staticmethod
    def jvp(ctx, of_x, of_times, of_y):
        assert of_times is None
        x, y = ctx.saved_tensors
        return (of_x * y + x * of_y) * ctx.times, of_x.sum()


def test_functions_have_a_jvp():
    x, y = weft.tensor([2.0, 3.0]), weft.tensor([4.0, 5.0])
    with forward_ad.dual_level():
        result, total = Scaled.apply(forward_ad.make_dual(x, weft.ones(2)), 10, y)
        assert forward_ad.unpack_dual(result).tangent.tolist() == [40, 50]
        assert forward_ad.unpack_dual(total).tangent.item() == 2
    leaves = [v.double().requires_grad_() for v in (x, y)]
    assert gradcheck(lambda *v: Scaled.apply(v[0], 10, v[1]), leaves, check_forward_ad=True)
    assert gradgradcheck(lambda *v: Scaled.apply(v[0], 10, v[1])[0], leaves, check_rev_over_rev=True)


def _function(forward, jvp):
    class Made(weft.autograd.Function):
        pass

    Made.forward, Made.jvp = staticmethod(forward), staticmethod(jvp)
    return Made


def _doubled_in_place(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


def _not_differentiable(ctx, x):
    y = x * 2
    ctx.mark_non_differentiable(y)
    return y


WRONG = {
    "no jvp": (lambda ctx, x: x * 2, weft.autograd.Function.jvp, "must implement the jvp function"),
    "too many": (lambda ctx, x: x * 2, lambda ctx, t: (t, t), "returned 2 values, the forward 1"),
    "another shape": (lambda ctx, x: x * 2, lambda ctx, t: t[:1], "must be those of the output"),
    "no derivative": (_not_differentiable, lambda ctx, t: t, "You should return None at that position instead"),
    "not in place": (_doubled_in_place, lambda ctx, t: t * 2, "must modify the corresponding gradient inplace"),
    "no view": (lambda ctx, x: x[1:], lambda ctx, t: t[1:] * 1, "jvp is not returning a view. Return"),
    "another's view": (lambda ctx, x: x[1:], lambda ctx, t: (t * 1)[1:], "not returning a view of the given input"),
    "as it is": (lambda ctx, x: x, lambda ctx, t: t, "an input as-is"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_jvps_are_found(name):
    forward, jvp, words = WRONG[name]
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match=words):
        _function(forward, jvp).apply(forward_ad.make_dual(weft.ones(2), weft.ones(2)))


def test_views_and_changes_in_place_are_functions_too():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(weft.ones(2), weft.ones(2))
        part = _function(lambda ctx, x: x[1:], lambda ctx, t: t[1:]).apply(dual)
        assert forward_ad.unpack_dual(part).tangent.tolist() == [1]
        same = _function(_doubled_in_place, lambda ctx, t: t.mul_(2)).apply(dual)
        assert forward_ad.unpack_dual(same).tangent.tolist() == [2, 2] and part.tolist() == [2]


def test_compiled_calls_have_the_same_bits():
    layer = weft.nn.Linear(3, 2)

    def slope(x, v):
        before = (x * 2).sum()
        with forward_ad.dual_level():
            found = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, v)).tanh()).tangent
        return before, found, found.sum() * 2

    compiled, x, v = weft.compile(slope), weft.randn(4, 3), weft.randn(4, 3)
    for _ in range(3):
        assert [y.tolist() for y in compiled(x, v)] == [y.tolist() for y in slope(x, v)]
    inner = weft.compile(lambda x: layer(x).tanh())
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(inner(forward_ad.make_dual(x, v))).tangent
    assert found.tolist() == slope(x, v)[1].tolist()


FACTORS = {
    "svd": lambda ns, x: ns.linalg.svd(x)[0].abs(),
    "eigh": lambda ns, x: ns.linalg.eigh(x + x.T)[1].abs(),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", FACTORS)
def test_tangents_of_factors_are_pytorchs_by_every_way(name):
    """A rule that leaves out the part of a cotangent that is zero must not take the cotangent's slope for zero."""
    torch = pytest.importorskip("torch")
    start, tangent = (
        [[1.0, 0.5, 0.2], [0.1, 2.0, 0.4], [0.3, 0.6, 3.0]],
        [[0.3, 1.0, 0.5], [0.2, 0.7, 0.1], [1, 2, 0.4]],
    )
    x, t = (torch.tensor(rows, dtype=torch.float64) for rows in (start, tangent))
    expected = torch.func.jvp(lambda x: FACTORS[name](torch, x), (x,), (t,))[1].numpy()
    x, t = (weft.tensor(rows, dtype=weft.float64) for rows in (start, tangent))
    function = lambda x: FACTORS[name](weft, x)  # noqa: E731
    found = [
        weft.func.jvp(function, (x,), (t,))[1],
        weft.func.linearize(function, x)[1](t),
        weft.autograd.functional.jvp(function, x, t)[1],
        (weft.func.jacfwd(function)(x) * t).sum((2, 3)),
    ]
    with forward_ad.dual_level():
        found.append(forward_ad.unpack_dual(function(forward_ad.make_dual(x, t))).tangent)
    for way in found:
        np.testing.assert_allclose(way.numpy(), expected, 1e-8, 1e-10)
