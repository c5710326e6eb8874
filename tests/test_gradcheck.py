"""gradcheck and gradgradcheck: what holds passes, and what is wrong is found, as by PyTorch's."""

import pytest

import weft
from weft import nn
from weft.autograd import GradcheckError, gradcheck, gradgradcheck


def leaf(*shape, seed=0):
    generator = weft.Generator().manual_seed(seed)
    return weft.randn(*shape, dtype=weft.float64, generator=generator).requires_grad_()


class Doubled(weft.autograd.Function):
    """x * 2 with a derivative that `factor` makes wrong."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None

    @staticmethod
    def jvp(ctx, tangent, _):
        return tangent * ctx.factor


class Drifting(weft.autograd.Function):
    """A backward that gives something else every time."""

    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Drifting.calls += 1
        return g * 2 + g * 1e-7 * Drifting.calls


class Squared(weft.autograd.Function):
    """A derivative that is right, and that forgets how it depends on x."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.x


class Ignoring(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum() * 0

    @staticmethod
    def backward(ctx, g):
        return weft.full((2,), 1e-6, dtype=weft.float64)


def test_derivatives_that_hold():
    x, y = leaf(2, 3), leaf(3, seed=1)
    assert gradcheck(lambda x, y: (x * y).sin() @ y, (x, y))
    assert gradcheck(lambda x, y: (x.exp(), y.sum(), y.argmax()), [x, y], check_forward_ad=True)
    assert gradcheck(weft.tanh, x) and gradcheck(lambda x: x.t() @ x, (x,))
    assert gradgradcheck(lambda x, y: (x * y).sin() @ y, (x, y), check_fwd_over_rev=True)
    assert gradgradcheck(weft.sigmoid, x, leaf(2, 3, seed=2), gen_non_contig_grad_outputs=True)
    assert gradgradcheck(lambda x: x * x, (leaf(3, 2).t().detach().requires_grad_(),), gen_non_contig_grad_outputs=True)
    layer = nn.Linear(3, 2).double()
    assert gradcheck(weft.compile(lambda x: layer(x).tanh()), (x,))
    assert gradcheck(lambda x, w: nn.functional.linear(x, w).softmax(-1), (x, layer.weight))
    assert gradcheck(lambda x, n: x * n, (x, 3))


def test_what_is_wrong_is_found():
    x = leaf(2)
    assert gradcheck(lambda x: Doubled.apply(x, 2.0), (x,))
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0,\nnumerical:"):
        gradcheck(lambda x: Doubled.apply(x, 3.0), (x,))
    assert not gradcheck(lambda x: Doubled.apply(x, 3.0), (x,), raise_exception=False)
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(Drifting.apply, (x,))
    assert gradcheck(Drifting.apply, (x,), nondet_tol=1e-3)
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: (x * 1, x.detach() * 2), (x,))
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(Ignoring.apply, (x,))
    assert gradcheck(Squared.apply, (x,))
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradgradcheck(Squared.apply, (x,))
    wrong = "Jacobian computed with forward mode mismatch for output 0 with respect to input 0"
    with pytest.raises(GradcheckError, match=wrong):
        gradcheck(lambda x: Doubled.apply(x, 3.0), (x,), check_backward_ad=False, check_forward_ad=True)
    assert gradcheck(lambda x: Doubled.apply(x, 2.0), (x,), check_forward_ad=True)
    assert x.tolist() == leaf(2).tolist() and x.grad is None


def test_errors():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(weft.exp, (weft.ones(2),))
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision"):
        gradcheck(lambda x: x * 2, (weft.ones(2, requires_grad=True),), eps=1e-2)
    with pytest.raises(RuntimeError, match="0th input has a dimension with stride 0"):
        gradcheck(weft.exp, (weft.ones(1, dtype=weft.float64).expand(3).requires_grad_(),))


def test_functions_must_not_change_their_form():
    x = weft.ones(1, dtype=weft.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="outputs with the same shape when inputs are perturbed"):
        weft.autograd.gradcheck(lambda x: weft.cat([x, x]) if (x >= 1).all() else x, (x,))
    with pytest.raises(AssertionError, match="Expected at least one of check_forward_ad or check_backward_ad"):
        weft.autograd.gradcheck(lambda x: x * 2, (x,), check_backward_ad=False)


def test_functions_may_look_whether_their_values_require_gradients():
    def changed(r):
        base = weft.ones(5, dtype=weft.float64)
        part = base.select(0, 1)
        base.add_(r)
        assert part.requires_grad
        return part

    r = weft.ones(1, dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(changed, (r,)) and weft.autograd.gradgradcheck(changed, (r,))


def test_missing_gradients_of_outputs_are_tried():
    def hooked(x):
        y = x.clone()
        y.register_hook(refuse_none)
        return y

    def refuse_none(gradient):
        if gradient is None:
            raise RuntimeError("a gradient is missing")

    x = weft.ones(2, dtype=weft.float64, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="New undefined gradient support checking feature"),
        pytest.raises(RuntimeError, match="Expected backward function to handle undefined output grads"),
    ):
        gradcheck(hooked, (x,))
    with pytest.warns(UserWarning, match="New undefined gradient support checking feature"):
        assert not gradcheck(hooked, (x,), raise_exception=False)
    assert gradcheck(hooked, (x,), check_undefined_grad=False)


class AlwaysOne(weft.autograd.Function):
    """x * 2, whose backward takes a missing gradient for one of ones."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return 2 * (weft.ones(2, dtype=weft.float64) if gradient is None else gradient)


def test_a_missing_gradient_is_like_zeros():
    x = weft.ones(2, dtype=weft.float64, requires_grad=True)
    assert gradcheck(AlwaysOne.apply, (x,), check_undefined_grad=False)
    with pytest.raises(GradcheckError, match="Expected all inputs to have undefined or zero grads"):
        gradcheck(AlwaysOne.apply, (x,))


class Drawing(weft.autograd.Function):
    """x * 2, whose derivatives draw numbers, and have nothing of them."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 + 0 * weft.randn_like(g)

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2 + 0 * weft.randn_like(tangent)


class Counting(weft.autograd.Function):
    """x * 2, whose derivative is for the first calls only."""

    calls, most = 0, 1000

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Counting.calls += 1
        return g * (2 if Counting.calls <= Counting.most else 3)


def test_derivatives_are_the_same_for_rows_of_a_batch():
    x, w = leaf(2, 3), leaf(3, 2)
    for batched in (False, True):
        assert gradcheck(
            lambda x, w, n: ((x @ w) * n, x.sin().sum(), w * 1),
            (x, w, 3),
            check_batched_grad=batched,
            check_forward_ad=True,
            check_batched_forward_grad=batched,
        )
    assert gradgradcheck(lambda x: x.exp() * x, (leaf(2),), check_batched_grad=True)


@pytest.mark.parametrize(
    "option", [{"check_batched_grad": True}, {"check_forward_ad": True, "check_batched_forward_grad": True}]
)
def test_derivatives_that_draw_numbers_are_not_for_batches(option):
    assert gradcheck(Drawing.apply, (leaf(2),), check_forward_ad=True)
    with pytest.raises(RuntimeError, match="vmap: We do not yet support calling random operations inside of vmap"):
        gradcheck(Drawing.apply, (leaf(2),), **option)
    assert not gradcheck(Drawing.apply, (leaf(2),), raise_exception=False, **option)


def test_a_derivative_that_is_another_in_vmap_is_found():
    def check(**options):
        Counting.calls = 0
        return gradcheck(Counting.apply, (leaf(2),), **options)

    assert check()
    # All that is asked without batches, and of these the first two.
    Counting.most = Counting.calls + 2
    with pytest.raises(GradcheckError, match="failed while testing batched gradient.*of output 0 is"):
        check(check_batched_grad=True)
