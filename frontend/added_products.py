"""Products added to a tensor: beta * input + alpha * (one factor @ another).

PyTorch's older order is understood too, with the numbers before the factors: addmm(beta, input, alpha, mat1, mat2), and
as a method input.addmm(beta, alpha, mat1, mat2). Where beta is 0, what input holds is dropped, NaN as well. Numbers are
converted to the type of tensors of integers, but by addr, which refuses what is not whole.
"""

from .casting import lowered
from .compiler.dtypes import bool_, float32, promote
from .compiler.ops import comparison, spelling
from .compiler.ops.table import OpError
from .creation import filled
from .functions import bmm, mm, mv, outer, to_dtype
from .inplace import written
from .operands import is_factor, operand
from .reducing import sum
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor
from .shaping import permute, reshape


def addmm(input, mat1, mat2, *older, beta=1, alpha=1):
    """beta * input + alpha * (mat1 @ mat2)."""
    if older:
        input, mat1, mat2, beta, alpha = _numbers_first("addmm", input, mat1, mat2, *older)
    input, mat1, mat2 = lowered(input, mat1, mat2)
    _check_types("addmm: self, mat1 and mat2", input, mat1, mat2)
    if beta == alpha == 1:
        return spelling.addmm(input, mat1, mat2)
    return _product_added("addmm", input, mat1, mat2, mm, beta, alpha)


def baddbmm(input, batch1, batch2, *older, beta=1, alpha=1):
    """beta * input + alpha * (batch1 @ batch2), matrix by matrix."""
    if older:
        input, batch1, batch2, beta, alpha = _numbers_first("baddbmm", input, batch1, batch2, *older)
    input, batch1, batch2 = lowered(input, batch1, batch2)
    _check_types("baddbmm: Input, batch1 and batch2", input, batch1, batch2)
    return _product_added("baddbmm", input, batch1, batch2, bmm, beta, alpha)


def addbmm(input, batch1, batch2, *older, beta=1, alpha=1):
    """beta * input + alpha * the sum of the products of all pairs of matrices."""
    if older:
        input, batch1, batch2, beta, alpha = _numbers_first("addbmm", input, batch1, batch2, *older)
    if batch1.ndim != 3 or batch2.ndim != 3 or batch1.shape[0] != batch2.shape[0]:
        raise OpError(f"addbmm: batch1 and batch2 must be 3D of one batch size, got {batch1.shape} and {batch2.shape}")
    input, batch1, batch2 = lowered(input, batch1, batch2)
    _check_types("addbmm: self, batch1 and batch2", input, batch1, batch2)
    return _product_added("addbmm", input, batch1, batch2, _summed_product, beta, alpha)


def _summed_product(batch1, batch2):
    """The sum of the products of a batch: it is part of one product."""
    if not batch1.numel() or not batch2.numel():
        return sum(bmm(batch1, batch2), 0)
    left = reshape(permute(batch1, 1, 0, 2), batch1.shape[1], -1)
    return mm(left, reshape(batch2, -1, batch2.shape[2]))


def addbmm_(input, batch1, batch2, *older, beta=1, alpha=1):
    """addbmm, in place: input takes the shape of the product, if it is another one."""
    old = input.clone() if input.requires_grad else input
    result = addbmm(old, batch1, batch2, *older, beta=beta, alpha=alpha)
    if result.shape == input.shape:
        return written("addbmm", input, result)
    if state.grad_enabled and result.requires_grad:
        raise NotImplementedError(
            f"addbmm_: {input.shape} cannot become {result.shape} in place while gradients are recorded; use addbmm"
        )
    input.data = result
    return input


def addmv(input, mat, vec, *older, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec)."""
    if older:
        input, mat, vec, beta, alpha = _numbers_first("addmv", input, mat, vec, *older)
    _check_types("addmv input tensors", input, mat, vec)
    return _product_added("addmv", input, mat, vec, mv, beta, alpha)


def addr(input, vec1, vec2, *older, beta=1, alpha=1):
    """beta * input + alpha * the outer product of the vectors."""
    if older:
        input, vec1, vec2, beta, alpha = _numbers_first("addr", input, vec1, vec2, *older)
    if vec1.ndim != 1 or vec2.ndim != 1:
        raise OpError(f"addr: Expected 1-D arguments vec1 and vec2, got shapes {vec1.shape} and {vec2.shape}")
    product = outer(vec1, vec2)
    _check_numbers("addr", promote(input.dtype, product.dtype), beta=beta, alpha=alpha)
    return _scaled_sum("addr", input, product, beta, alpha)


def _numbers_first(name, *given):
    """(input, its two factors, beta, alpha), given in PyTorch's older order."""
    first, second, *alpha, left, right = given
    is_function = is_factor(first) and isinstance(second, Tensor)  # a method has its own tensor first
    beta, input = (first, second) if is_function else (second, first)
    tensors = input, left, right
    if len(alpha) > 1 or not all(map(is_factor, (beta, *alpha))) or not all(isinstance(x, Tensor) for x in tensors):
        kinds = ", ".join(type(x).__name__ for x in given)
        raise TypeError(f"{name}(): got positional arguments ({kinds}); beta and alpha are keywords: beta=, alpha=")
    return (*tensors, beta, *alpha, 1)[:5]


def _check_types(what, *tensors):
    if not tensors[0].dtype is tensors[1].dtype is tensors[2].dtype:
        names = ", ".join(x.dtype.name for x in tensors)
        raise OpError(f"{what} must have the same dtype, but got {names}")


def _check_numbers(name, dtype, **numbers):
    """PyTorch's checks of addr, which its other functions of this kind do not make."""
    for which, number in numbers.items():
        if isinstance(number, bool) and dtype is not bool_:
            raise RuntimeError(f"{name}: Boolean {which} only supported for Boolean results, and they are {dtype.name}")
        if isinstance(number, (float, complex)) and not dtype.is_differentiable:
            raise RuntimeError(
                f"{name}: For integral input tensors, argument {which} must not be a floating point number: {number}"
            )


def _product_added(name, input, left, right, product, beta, alpha):
    """beta * input + alpha * product(left, right); of floats of 16 bits in float32, rounded once as in PyTorch."""
    if not input.dtype.is_half:
        return _scaled_sum(name, input, product(left, right), beta, alpha)
    input_, left, right = [to_dtype(x, float32) for x in (input, left, right)]
    return to_dtype(_scaled_sum(name, input_, product(left, right), beta, alpha), input.dtype)


def _scaled_sum(name, input, product, beta, alpha):
    beta, alpha = operand(beta), operand(alpha)
    if not input.dtype.is_complex and complex in (beta.__class__, alpha.__class__):
        raise RuntimeError(
            f"{name}: value cannot be converted to type {input.dtype.name} without overflow: beta={beta}, alpha={alpha}"
        )
    if not promote(input.dtype, product.dtype).is_differentiable:
        beta, alpha = (bool(n) if input.dtype is bool_ else int(n) for n in (beta, alpha))
    sizes = zip(input.shape[::-1], product.shape[::-1])
    if len(input.shape) > len(product.shape) or any(a not in (1, b) for a, b in sizes):
        raise OpError(
            f"{name}: the tensor of shape {input.shape} cannot be expanded to that of the product, {product.shape}"
        )
    product = product if alpha == 1 else product * alpha
    if beta == 0 and not (input.requires_grad and state.grad_enabled):
        return to_dtype(product, promote(input.dtype, product.dtype))
    if beta == 0:
        # There is a gradient of input, which is 0. (-0.0 changes no number that it is added to.)
        input = comparison.where(filled((), True, bool_, False), -0.0, input)
    elif beta != 1:
        input = input * beta
    return input + product


PUBLIC = str.split("addmm addmv addr addbmm baddbmm")
METHODS = [*PUBLIC, "addbmm_"]
INPLACE = str.split("addmm addmv addr baddbmm")
