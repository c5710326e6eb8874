"""What programs and tests written for PyTorch's autograd ask of it beside derivatives: calls, modes, errors."""

import subprocess
import sys
import warnings

import pytest

import weft
from weft import autograd
from weft.autograd.graph import Node


def test_zeros_for_unused_inputs_can_be_differentiated_in_turn():
    x = weft.tensor(0.5, requires_grad=True)
    factor = weft.tensor(2.0, requires_grad=True)
    (slope,) = autograd.grad(x * factor, x, create_graph=True)
    (curvature,) = autograd.grad(slope, x, create_graph=True, allow_unused=True, materialize_grads=True)
    assert curvature.item() == 0 and curvature.requires_grad
    (third,) = autograd.grad(curvature, x, materialize_grads=True)
    assert third.item() == 0 and not third.requires_grad
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
        autograd.grad(x * 2, x, allow_unused=False, materialize_grads=True)


def test_multithreading_is_what_was_said_last():
    with autograd.set_multithreading_enabled(False):
        assert not autograd.is_multithreading_enabled()
    assert autograd.is_multithreading_enabled()
    autograd.set_multithreading_enabled(False)
    assert not autograd.is_multithreading_enabled()
    autograd.set_multithreading_enabled(True)
    assert autograd.is_multithreading_enabled()


class Twice(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert isinstance(ctx, Node)
        return x * 2, x[1:]

    @staticmethod
    def backward(ctx, of_product, of_part):
        return of_product * 2


def test_a_function_has_the_class_of_its_nodes_and_its_outputs_their_numbers():
    product, part = Twice.apply(weft.ones(3, requires_grad=True))
    assert type(product.grad_fn) is Twice._backward_cls and product.output_nr == 0 and part.output_nr == 1
    assert issubclass(autograd.function.BackwardCFunction, Node) and autograd.function.InplaceFunction


def test_a_node_can_be_called_alone():
    x = weft.tensor([3.0], requires_grad=True)
    node = (x**2).grad_fn
    assert node(weft.ones(1)).tolist() == [6]
    for given in ((), (weft.ones(1), weft.ones(1))):
        with pytest.raises(TypeError, match=f"expected 1 arguments, got {len(given)} arguments instead"):
            node(*given)


def test_nodes_run_in_the_order_of_the_numbers_that_they_are_given():
    x = weft.ones(2, requires_grad=True)
    first, second = x * 2, x * 3
    last, order = first + second, []
    for k, out in enumerate((first, second, last)):
        out.grad_fn._set_sequence_nr(100 - k)
        assert out.grad_fn._sequence_nr() == 100 - k
        out.register_hook(lambda g, k=k: order.append(k))
    last.sum().backward()
    assert order == [2, 0, 1] and x.grad.tolist() == [5, 5]


def test_hooks_of_what_a_node_has_saved_are_two_functions():
    x = weft.ones(2, requires_grad=True)
    saved = x.exp().grad_fn._raw_saved_result
    for hooks in ((lambda x: x,), (1, 1), ()):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            saved.register_hooks(*hooks)


def test_a_number_is_gathered_like_a_vector_of_one():
    x = weft.arange(3.0, requires_grad=True)
    out = x.gather(0, weft.tensor(2))
    out.backward()
    assert out.shape == () and out.item() == 2 and x.grad.tolist() == [0, 0, 1]
    assert weft.tensor(3.0).gather(0, weft.tensor([0, 0])).tolist() == [3, 3]


def test_unsafe_parts_can_be_changed_in_place():
    for cut in (lambda x: x.unsafe_split(1), lambda x: x.unsafe_chunk(3), lambda x: x.unsafe_split_with_sizes((1, 2))):
        x = weft.ones(3, 2, requires_grad=True)
        part = cut(x + x)[0]
        part.mul_(part)
        part.sum().backward()
        assert x.grad.tolist() == [[8, 8], [0, 0], [0, 0]]


def test_anomalies_are_printed_where_warnings_are_errors(capsys):
    x = weft.ones(2, requires_grad=True)
    with warnings.catch_warnings(record=True), autograd.detect_anomaly():
        warnings.simplefilter("error")
        y = x + 1
        z = y**2
        y += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
    assert "Error detected in PowBackward0" in capsys.readouterr().err


def test_gradcheck_is_a_module_too():
    from weft.autograd.gradcheck import GradcheckError, gradcheck

    x = weft.ones(2, dtype=weft.float64, requires_grad=True)
    assert (
        autograd.gradcheck(weft.exp, (x,)) and gradcheck(weft.exp, (x,)) and GradcheckError is autograd.GradcheckError
    )
    assert "weft.autograd.gradcheck" in sys.modules


def off(out):
    """An output whose gradient is wrong."""
    out.register_hook(lambda g: g + 0.01)
    return out


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_gradcheck_takes_complex_inputs(shape):
    z = weft.randn(*shape, dtype=weft.complex128, requires_grad=True)
    x = weft.rand(*shape, dtype=weft.float64, requires_grad=True)
    assert autograd.gradcheck(lambda z, x: (z * z.conj() * x, z.abs(), z.real, z**2), (z, x), check_forward_ad=True)
    assert autograd.gradgradcheck(lambda z: z * z.conj() * z, (z,))
    for function in (lambda z: off(z.clone()), lambda z: off(z * z)):
        with pytest.raises(
            autograd.GradcheckError, match="While considering the imaginary part of complex outputs only"
        ):
            autograd.gradcheck(function, (z,))
        assert not autograd.gradcheck(function, (z,), raise_exception=False)
    with pytest.raises(autograd.GradcheckError, match="^Jacobian mismatch for output 0 with respect to input 0"):
        autograd.gradcheck(lambda z: off(z.abs()), (z,))


def test_taking_complex_numbers_apart_again_and_again():
    """Native code took over the derivative of view_as_real after some calls, and had no strides for it."""
    for _ in range(60):
        z = weft.ones(3, dtype=weft.complex64, requires_grad=True)
        (weft.view_as_real(z * z) * weft.tensor([1.0, 2.0])).sum().backward()
    assert z.grad.tolist() == [2 + 4j] * 3


def test_a_gradient_that_lies_in_memory_in_no_order_is_read_as_complex_numbers():
    """That of a sum is one number everywhere, whose strides are 0."""
    z = weft.ones(3, dtype=weft.complex64, requires_grad=True)
    weft.view_as_real(z).sum().backward()
    assert z.grad.tolist() == [1 + 1j] * 3


def test_versions_that_are_kept():
    x, y = (weft.ones(2, requires_grad=True).clone() for _ in range(2))
    x.add_(1).add_(2)
    with weft.autograd._unsafe_preserve_version_counter(x):
        x.mul_(2)
    assert x._version == x[:]._version == 2
    weft._C._autograd._unsafe_set_version_counter((x,), (0,))
    with weft.autograd._unsafe_preserve_version_counter((x, y)):
        x.mul_(2)
        y.mul_(3)
    assert x._version == y._version == 0 and y.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="Cannot set"):
        weft._C._autograd._unsafe_set_version_counter((x,), (-1,))


def test_attributes_by_private_names_are_read_only():
    x = weft.ones(2, requires_grad=True)
    y = x * 2
    assert y._grad_fn is y.grad_fn and x._grad_fn is None and y._backward_hooks is None
    handle = y.register_hook(lambda gradient: gradient * 3)
    assert list(y._backward_hooks) and x._backward_hooks is None and weft.ones(2)._backward_hooks is None
    handle.remove()
    assert y._backward_hooks is None
    plain = weft.ones(2)
    plain._backward_hooks = {0: print}
    assert plain._backward_hooks == {0: print}
    with pytest.raises(RuntimeError, match="register_hook"):
        y._backward_hooks = {}
    for name in ("_grad_fn", "_backward_hooks"):
        with pytest.raises(RuntimeError, match="cannot be deleted"):
            delattr(y, name)


def test_what_a_node_has_saved_is_there_before_anybody_has_set_a_hook():
    """In a process that has loaded nothing but what this program needs."""
    code = "import weft; x = weft.zeros(2, requires_grad=True); print(x.exp().grad_fn._saved_result.tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[1.0, 1.0]\n", done.stderr
