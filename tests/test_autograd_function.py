"""weft.autograd.Function: what forward hands to backward, several outputs, None gradients, higher orders, errors."""

import gc
import weakref

import numpy as np
import pytest

import weft
from weft.autograd import Function, once_differentiable


def leaf(values):
    return weft.tensor(values, dtype=weft.float64, requires_grad=True)


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, g):
        (result,) = ctx.saved_tensors
        return g * result


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class SumAndDifference(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, x - y

    @staticmethod
    def backward(ctx, g_sum, g_difference):
        return g_sum + g_difference, g_sum - g_difference


def test_value_gradient_and_node():
    x = leaf([0.0, 1.0])
    y = Exp.apply(x)
    assert y.requires_grad and not y.is_leaf and y.grad_fn.name() == "ExpBackward"
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), y.detach().numpy())


def test_forward_records_nothing():
    x = leaf([2.0])
    y = Cube.apply(x)
    assert y.grad_fn.next_functions[0][0].variable is x


def test_second_and_third_order_run_through_backward():
    x = leaf([2.0])
    (first,) = weft.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = weft.autograd.grad(second.sum(), x)
    assert (first.item(), second.item(), third.item()) == (12, 12, 6)


def test_saved_output_is_differentiated_again():
    x = leaf([1.0])
    (first,) = weft.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    assert second.item() == pytest.approx(np.e)


def test_several_outputs():
    x, y = leaf([1.0]), leaf([2.0])
    total, difference = SumAndDifference.apply(x, y)
    assert total.grad_fn is difference.grad_fn
    (total * 3 + difference).sum().backward()
    assert (x.grad.item(), y.grad.item()) == (4, 2)


def test_unused_outputs_get_zeros():
    x, y = leaf([1.0]), leaf([2.0])
    total, _ = SumAndDifference.apply(x, y)
    total.sum().backward()
    assert (x.grad.item(), y.grad.item()) == (1, 1)


def test_unused_outputs_get_none_if_asked():
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, g1, g2):
            assert g2 is None
            return g1

    x = leaf([1.0])
    Two.apply(x)[0].sum().backward()
    assert x.grad.item() == 1


def test_arguments_that_are_no_tensors_get_none():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, factor, name):
            ctx.factor = factor
            assert name == "unused" and ctx.needs_input_grad == (True, False, False)
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None, None

    x = leaf([1.0])
    Scaled.apply(x, 5, "unused").sum().backward()
    assert x.grad.item() == 5


def test_needs_input_grad_in_backward():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, False)
            return g * y, None

    x = leaf([2.0])
    Product.apply(x, weft.tensor([3.0], dtype=weft.float64)).sum().backward()
    assert x.grad.item() == 3


def test_setup_context():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = leaf([3.0])
    Square.apply(x).sum().backward()
    assert x.grad.item() == 6


def test_non_differentiable_outputs():
    class WithSign(Function):
        @staticmethod
        def forward(ctx, x):
            sign = x.sign()
            ctx.mark_non_differentiable(sign)
            return x * 2, sign

        @staticmethod
        def backward(ctx, g, g_sign):
            assert not g_sign.numpy().any()
            return g * 2

    x = leaf([-1.0])
    doubled, sign = WithSign.apply(x)
    assert doubled.requires_grad and not sign.requires_grad
    doubled.sum().backward()
    assert x.grad.item() == 2


def test_returning_an_input():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 7

    x = leaf([1.0])
    y = Same.apply(x)
    assert y is not x and x.is_leaf
    y.sum().backward()
    assert x.grad.item() == 7


def test_straight_through_estimator():
    class Round(Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf([0.4, 1.6])
    (Round.apply(x) * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_within_a_larger_graph():
    x = leaf([0.5])
    (Exp.apply(x * 2) * x).sum().backward()
    assert x.grad.item() == pytest.approx(np.exp(1) * (1 + 2 * 0.5))


def test_no_node_without_gradients():
    assert Exp.apply(weft.tensor([1.0])).grad_fn is None
    with weft.no_grad():
        assert not Exp.apply(leaf([1.0])).requires_grad


# --- errors -----------------------------------------------------------------------------------------------------------
def test_second_backward():
    x = leaf([1.0])
    y = Exp.apply(x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    z = Exp.apply(x).sum()
    z.backward(retain_graph=True)
    z.backward()


def test_saved_tensor_changed_in_place():
    x = leaf([1.0]) * 1
    y = Cube.apply(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*a custom Function"):
        y.sum().backward()


def test_wrong_number_of_gradients():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(
        RuntimeError, match=r"WrongBackward returned an incorrect number of gradients \(expected 2, got 1"
    ):
        Wrong.apply(leaf([1.0]), leaf([1.0])).sum().backward()


def test_gradient_of_the_wrong_shape():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return weft.ones(3, dtype=weft.float64)

    with pytest.raises(RuntimeError, match=r"WrongBackward returned an invalid gradient at index 0.*\(3,\).*\(2,\)"):
        Wrong.apply(leaf([1.0, 2.0])).sum().backward()


def test_gradient_that_is_no_tensor():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return 1.0

    with pytest.raises(TypeError, match="expected Variable or None.*got float"):
        Wrong.apply(leaf([1.0])).sum().backward()


def test_gradient_is_converted_to_the_inputs_type():
    class Wide(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.double() * 2

    x = weft.tensor([1.0], requires_grad=True)
    Wide.apply(x).sum().backward()
    assert x.grad.dtype is weft.float32 and x.grad.item() == 2


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = leaf([3.0])
    (first,) = weft.autograd.grad((Once.apply(x) * x).sum(), x, create_graph=True)
    assert first.item() == 27
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        first.sum().backward()


def test_missing_methods():
    class Empty(Function):
        pass

    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

    with pytest.raises(NotImplementedError, match="must implement the forward"):
        Empty.apply(leaf([1.0]))
    with pytest.raises(NotImplementedError, match="must implement either the backward or vjp"):
        NoBackward.apply(leaf([1.0])).sum().backward()


class AddInPlace(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        x.add_(y)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3, g * 5


@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_an_input_that_forward_changes(wrap):
    def function(x, y):
        base = x * 1
        part = base[1:]
        changed = AddInPlace.apply(part, y)
        assert changed is part and part.grad_fn.name() == "AsStridedBackward0"
        return base.sum() + (changed * 2).sum()

    step = wrap(function)
    for _ in range(2):
        x, y = leaf([1.0, 2.0, 3.0]), leaf([10.0, 20.0])
        out = step(x, y)
        out.backward()
        assert out.item() == 106 and x.grad.tolist() == [1, 9, 9] and y.grad.tolist() == [15, 15]


def test_errors_of_mark_dirty():
    class Forgets(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.clone()

    with pytest.raises(RuntimeError, match="marked as dirty during the forward method were not returned"):
        Forgets.apply(leaf([1.0]) * 1)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad has been used in an in-place operation"):
        AddInPlace.apply(leaf([1.0]), leaf([1.0]))


def test_results_of_forward_that_are_no_tensors():
    class Several(Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return scale, x * scale, None, "text"

        @staticmethod
        def backward(ctx, *gradients):
            assert gradients[0] is None and gradients[2:] == (None, None)
            return gradients[1] * ctx.scale, None, None

    x = leaf([1.0, 2.0])
    scale, y, nothing, text = Several.apply(x, 3)
    assert (scale, nothing, text) == (3, None, "text")
    y.sum().backward()
    assert x.grad.tolist() == [3, 3] and y.grad_fn.scale == 3


def test_a_node_does_not_keep_its_saved_output_alive_in_a_circle():
    y = Exp.apply(leaf([1.0]))
    gone = weakref.ref(y)
    gc.disable()
    try:
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_defaults_of_forward_reach_setup_context():
    class Scaled(Function):
        @staticmethod
        def forward(x, scale=4):
            return x * scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.scale = inputs

        @staticmethod
        def vjp(ctx, g):
            return g * ctx.scale, None

    x = leaf([1.0])
    Scaled.apply(x).sum().backward()
    assert x.grad.tolist() == [4] and Scaled.generate_vmap_rule is False


def test_a_returned_input_may_not_be_changed_in_place():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    y = Same.apply(leaf([1.0]) * 1)
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        y.mul_(2)


def test_forward_must_be_static():
    class Old(Function):
        def forward(self, x):
            return x

    for call in (lambda: Old()(leaf([1.0])), lambda: Old.apply(leaf([1.0]))):
        with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
            call()


class Handed(weft.autograd.Function):
    @staticmethod
    def forward(ctx, *tensors):
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        return gradients


@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_behind_the_ops_behind_a_function_of_several_results(compiled):
    def slope(x, y):
        first, second = Handed.apply(x, y)
        (loss,) = Handed.apply(((first - second) ** 2).mean())
        return weft.autograd.grad(loss, x)[0]

    def step(x, y):
        first, second = Handed.apply(x, y)
        (loss,) = Handed.apply((first * second).sum() + (first * first).sum())
        loss.backward()
        return x.grad

    slope, step = (weft.compile(f) if compiled else f for f in (slope, step))
    for _ in range(3):
        assert slope(weft.ones(1, requires_grad=True), weft.zeros(1)).tolist() == [2]
        assert step(weft.ones(2, requires_grad=True), weft.full((2,), 3.0)).tolist() == [5, 5]


def test_an_instance_is_warned_of():
    class Doubled(weft.autograd.Function): ...

    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        Doubled()
