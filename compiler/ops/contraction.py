"""Matrix multiplication. Every output element is one chain of fused multiply-adds over k in rising order, starting at
0.0: tiles, packing, strides and threads do not change a bit. Eager mode calls the same generated kernel.

Of two vectors there is one element, and a chain waits for each of its steps: a million took 1.2 ms. There it is the sum
of the products, in the order of sums, which vectors and threads share (0.15 ms) and which is fused with what is around.
So it is of few long rows and a vector (4 of 250,000: 0.53 ms as chains, 0.12 as sums).
"""

from math import prod

import numpy as np

from ..dtypes import float32, float64
from ..extent import identical
from ..kernels.library import Product
from ..shapes import broadcast_shapes
from . import samples
from .arithmetic import add, mul
from .kinds import composite, require_floating
from .reduction import sum_
from .samples import Sample
from .table import Meta, NotForType, Op, OpError, register
from .view import expand, permute, reshape


def swap_last(x):
    axes = list(range(len(x.shape)))
    axes[-1], axes[-2] = axes[-2], axes[-1]
    return permute(x, axes=tuple(axes))


def check_dtypes(name, operands, integers=False):
    """OpError unless the operands have one type, a floating one (or an integer one, if `integers`)."""
    for o in operands:
        if not o.dtype.is_complex and (not integers or o.dtype.category != 1):
            _refuse_bools(name, o)
            require_floating(name, o)
    kinds = [o.dtype for o in operands]
    if any(d is not kinds[0] for d in kinds):
        given = ", ".join(f"{side} is {d.name}" for side, d in zip(("left", "right", "bias"), kinds))
        raise OpError(f"{name}: {given}; convert one with .to(...)")


def _refuse_bools(name, operand):
    if operand.dtype.category == 0:
        said = "not implemented for bool: needs a floating point tensor, got bool; convert with .float() first"
        raise NotForType(f"{name}: {said}")


def integers_only_eager(dtypes, attributes):
    if not dtypes[-1].is_floating_point:
        return "products of integers are computed by NumPy"
    return None


def _bmm_infer(operands, attributes, default_float):
    x, y = operands
    check_dtypes("matmul", operands, integers=True)
    if len(x.shape) != len(y.shape) or len(x.shape) < 2 or x.shape[:-2] != y.shape[:-2]:
        raise OpError(f"bmm: shapes {x.shape} and {y.shape} must have the same batch dimensions")
    if x.shape[-1] != y.shape[-2]:
        raise OpError(
            f"matmul: shapes {x.shape} and {y.shape} cannot be multiplied: "
            f"{x.shape[-1]} columns on the left, {y.shape[-2]} rows on the right"
        )
    return Meta((*x.shape[:-1], y.shape[-1]), x.dtype)


def _multiply_name(operands, attributes):
    return "MmBackward0" if operands[0].ndim == 2 else "BmmBackward0"


def _pairs(*shapes):
    return lambda: [
        Sample((samples.numbers(2 * k, x), samples.numbers(2 * k + 1, y))) for k, (x, y) in enumerate(shapes)
    ]


# (..., m, k) x (..., k, n) with equal batch dimensions: the primitive.
bmm = register(
    Op(
        "bmm",
        "contraction",
        _bmm_infer,
        None,
        (
            lambda g, out, x, y: bmm(g, swap_last(y)),
            lambda g, out, x, y: bmm(swap_last(x), g),
        ),
        kernel=Product(),
        on_complex=np.matmul,
        compute_dtype=lambda operands, default_float: ((operands[0].dtype,) * 2, operands[0].dtype),
        node_name=_multiply_name,
        samples=_pairs(
            ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((2, 0), (0, 3)), ((3, 5, 2), (3, 2, 4)), ((17, 33), (33, 10))
        ),
        oracle="matmul",
        extra={"eager_only": integers_only_eager},
    )
)


def _matmul_infer(operands, attributes, default_float):
    x, y = operands
    check_dtypes("matmul", operands, integers=True)
    if not x.shape or not y.shape:
        raise OpError(f"matmul: both arguments need at least one dimension, got shapes {x.shape} and {y.shape}")
    rows = x.shape[:-1][-1:]
    inner, columns = (y.shape[0], ()) if len(y.shape) == 1 else (y.shape[-2], y.shape[-1:])
    if x.shape[-1] != inner:
        raise OpError(
            f"matmul: shapes {x.shape} and {y.shape} cannot be multiplied: "
            f"{x.shape[-1]} columns on the left, {inner} rows on the right"
        )
    batch = broadcast_shapes("matmul", [x.shape[:-2], y.shape[:-2]])
    return Meta((*batch, *rows, *columns), x.dtype)


_FEW_ROWS, _LONG = 8, 4096  # fewer chains than a vector has lanes, of which one waits longer than a call takes


def _sums_of_products(x, y):
    """Whether x @ y, of which y is a vector, is computed in the order of sums."""
    if x.dtype not in (float32, float64):
        return False
    return len(x.shape) == 1 or (y.shape[0] >= _LONG and prod(x.shape[:-1]) < _FEW_ROWS)


def _matmul(x, y):
    if len(y.shape) == 1 and _sums_of_products(x, y):
        return sum_(mul(x, y), axes=(len(x.shape) - 1,), keepdim=False)
    left, right = x, y
    if len(x.shape) == 1:
        left = reshape(x, shape=(1, x.shape[0]))
    if len(y.shape) == 1:
        right = reshape(y, shape=(y.shape[0], 1))
    batch = broadcast_shapes("matmul", [left.shape[:-2], right.shape[:-2]])
    if len(right.shape) == 2 and len(left.shape) > 2:
        # One large product instead of many small ones: the batch is part of the rows.
        rows = 1
        for d in left.shape[:-1]:
            rows *= d
        product = bmm(reshape(left, shape=(rows, left.shape[-1])), right)
    else:
        left, right = (z if z.shape[:-2] == batch else expand(z, shape=(*batch, *z.shape[-2:])) for z in (left, right))
        product = bmm(left, right)
    shape = _matmul_infer((x, y), {}, None).shape
    return product if identical(product.shape, shape) else reshape(product, shape=shape)


def _rows(x):
    """All leading dimensions as one."""
    count = 1
    for d in x.shape[:-1]:
        count *= d
    return reshape(x, shape=(count, x.shape[-1])) if len(x.shape) != 2 else x


def _as_matrices(g, x, y):
    """Cotangent and operands of a product with the dimensions that vectors lack."""
    left = x if len(x.shape) > 1 else reshape(x, shape=(1, x.shape[0]))
    right = y if len(y.shape) > 1 else reshape(y, shape=(y.shape[0], 1))
    batch = broadcast_shapes("matmul", [left.shape[:-2], right.shape[:-2]])
    shape = (*batch, left.shape[-2], right.shape[-1])
    return g if identical(g.shape, shape) else reshape(g, shape=shape), left, right


def _matmul_vjp_left(g, out, x, y):
    if len(y.shape) == 1:
        # Columns times a row: as a product with one term it would take three times as long.
        return mul(reshape(g, shape=(*g.shape, 1)), y)
    g, left, right = _as_matrices(g, x, y)
    return matmul(g, swap_last(right))


def _matmul_vjp_right(g, out, x, y):
    if len(x.shape) == 1:
        rows = reshape(g, shape=(*g.shape[:-1], 1, g.shape[-1])) if g.shape else g
        return mul(reshape(x, shape=(*x.shape, 1)) if g.shape else x, rows)
    g, left, right = _as_matrices(g, x, y)
    if len(right.shape) == 2:
        # The sum over the batch is part of the product.
        product = bmm(swap_last(_rows(left)), _rows(g))
    else:
        product = matmul(swap_last(left), g)
    # A vector's cotangent is a column; the caller sums over leading dimensions, not trailing ones.
    return product if len(y.shape) > 1 else reshape(product, shape=product.shape[:-1])


def _matmul_name(operands, attributes):
    x, y = operands
    if x.ndim == 1 and y.ndim == 1:
        return "DotBackward0"
    if x.ndim == 2 and y.ndim == 1:
        return "MvBackward0"
    if x.ndim == 1 and y.ndim == 2:
        return "SqueezeBackward4"
    if x.ndim == 2 and y.ndim == 2:
        return "MmBackward0"
    return "UnsafeViewBackward0"


matmul = composite(
    "matmul",
    _matmul_infer,
    _matmul,
    on_complex=True,
    vjp=(_matmul_vjp_left, _matmul_vjp_right),
    node_name=_matmul_name,
    samples=_pairs(
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (4, 3, 2))
    ),
    oracle="matmul",
    extra={"eager_only": integers_only_eager},
)


# --- x @ weight^T + bias, as nn.Linear stores it --------------------------------------------------------------------
def _linear_infer(operands, attributes, default_float):
    x, weight = operands[:2]
    check_dtypes("linear", operands)
    if len(weight.shape) != 2 or not x.shape or x.shape[-1] != weight.shape[1]:
        raise OpError(
            f"linear: input has shape {x.shape}, weight {weight.shape}: mat1 and mat2 shapes cannot be multiplied; "
            f"the input's last dimension must be {weight.shape[-1]}"
        )
    if len(operands) == 3 and operands[2].shape != (weight.shape[0],):
        raise OpError(f"linear: bias has shape {operands[2].shape}, weight has {weight.shape[0]} rows")
    return Meta((*x.shape[:-1], weight.shape[0]), x.dtype)


def _linear(x, weight, *bias):
    product = matmul(x, swap_last(weight))
    if not bias:
        return product
    return add(product, bias[0])


linear = composite(
    "linear",
    _linear_infer,
    _linear,
    on_complex=True,
    vjp=(
        lambda g, out, x, weight, *bias: matmul(g, weight),
        lambda g, out, x, weight, *bias: bmm(swap_last(_rows(g)), _rows(x)),
        # The caller sums over the broadcast rows.
        lambda g, out, x, weight, *bias: g,
    ),
    node_name=lambda operands, attributes: (
        "AddmmBackward0"
        if len(operands) == 3 and operands[0].ndim == 2
        else "ViewBackward0"
        if len(operands) == 3
        else _matmul_name(operands, attributes)
    ),
    samples=lambda: [
        Sample((samples.numbers(0, (2, 3)), samples.numbers(1, (4, 3)), samples.numbers(2, (4,)))),
        Sample((samples.numbers(3, (5, 3)), samples.numbers(4, (4, 3)))),
        Sample((samples.numbers(5, (2, 5, 3)), samples.numbers(6, (4, 3)), samples.numbers(7, (4,)))),
        Sample((samples.numbers(8, (3,)), samples.numbers(9, (4, 3)), samples.numbers(10, (4,)))),
    ],
    oracle="nn.functional.linear",
)
