"""Complex numbers: their parts, which are views, and functions that are not holomorphic.

The gradient of a real result with respect to z = x + iy is d/dx + i d/dy, as in PyTorch. A holomorphic function with
the derivative f'(z) passes a cotangent g on as g conj(f'(z)), which compiler/autodiff.py makes of the rules of the
table; the rules here, marked "conjugate", say themselves what is passed on.
"""

import numpy as np

from ..kernels.kernel import View
from ..shapes import broadcast_shapes
from . import samples
from .arithmetic import abs_, div, mul, sub
from .comparison import eq, where
from .kinds import arithmetic, elementwise, library, magnitude, no_bool
from .table import Meta, OnParts, Op, OpError, register
from .view import clone

_CONJUGATE, _VIEW = frozenset(["conjugate"]), View()


def require_complex(name, operand):
    if not operand.dtype.is_complex:
        raise OpError(f"{name}: not implemented for tensors with non-complex dtypes, got {operand.dtype.name}")


def _part(name, evaluate, vjp, shape=lambda shape: shape):
    """A view of complex numbers as real ones."""

    def infer(operands, attributes, default_float):
        require_complex(name, operands[0])
        return Meta(shape(operands[0].shape), operands[0].dtype.to_real())

    return register(Op(name, "view", infer, evaluate, (vjp,), kernel=_VIEW, on_complex=True, traits=_CONJUGATE))


def _evaluate_pairs(x):
    parts = x.real
    return np.lib.stride_tricks.as_strided(parts, (*x.shape, 2), (*x.strides, parts.itemsize))


real = _part("real", lambda x: x.real, lambda g, out, x: g)
imag = _part("imag", lambda x: x.imag, lambda g, out, x: mul(g, 1j))
view_as_real = _part(
    "view_as_real", _evaluate_pairs, lambda g, out, x: view_as_complex(clone(g)), lambda shape: (*shape, 2)
)


def _infer_view_as_complex(operands, attributes, default_float):
    x = operands[0]
    if x.dtype.name not in ("float32", "float64"):
        raise OpError(f"view_as_complex: needs a float32 or float64 tensor, got {x.dtype.name}; convert with .float()")
    if not x.shape or x.shape[-1] != 2:
        raise OpError(f"view_as_complex: Tensor must have a last dimension of size 2, got shape {x.shape}")
    return Meta(x.shape[:-1], x.dtype.to_complex())


def _evaluate_view_as_complex(x):
    kind = np.complex64 if x.dtype == np.float32 else np.complex128
    steps = [step % kind().itemsize for step in x.strides[:-1]]
    if x.size and (x.strides[-1] != x.itemsize or any(steps)):
        raise OpError(
            "view_as_complex: Tensor must have a stride of 1 in its last dimension, and even ones in the others"
        )
    return x.view(kind)[..., 0]


view_as_complex = register(
    Op(
        "view_as_complex",
        "view",
        _infer_view_as_complex,
        _evaluate_view_as_complex,
        (lambda g, out, x: view_as_real(g),),
        # What it gives has no kernels, which its operand, a real tensor, does not tell.
        extra={"eager_only": lambda dtypes, attributes: "complex numbers have no generated kernels"},
        kernel=_VIEW,
        traits=_CONJUGATE,
    )
)

conj = elementwise(
    "conj",
    1,
    arithmetic,
    evaluate=np.conj,
    vjp=(lambda g, out, x: conjugate(g),),
    lower=lambda b, x: x,
    samples=samples.unary(),
    oracle="conj_physical",
    on_complex=OnParts(lambda b, x: (x[0], b.neg(x[1])), exact=True),
    traits=_CONJUGATE,
)


def conjugate(x):
    """conj, which leaves what is real as it is."""
    return conj(x) if x.dtype.is_complex else x


def real_part(x):
    return real(x) if x.dtype.is_complex else x


def _infer_complex(operands, attributes):
    kinds = [x.dtype for x in operands]
    if kinds[0] is not kinds[1] or kinds[0].name not in ("float32", "float64"):
        given = " and ".join(d.name for d in kinds)
        raise OpError(f"complex: Expected both inputs to be float32 or float64 tensors of one type, got {given}")
    return Meta(broadcast_shapes("complex", [x.shape for x in operands]), kinds[0].to_complex())


def _evaluate_complex(x, y):
    shape = x.shape if x.shape == y.shape else np.broadcast_shapes(x.shape, y.shape)
    made = np.empty(shape, np.complex64 if x.dtype == np.float32 else np.complex128)
    made.real, made.imag = x, y
    return made


# Two real numbers as one complex one.
complex_ = library(
    "complex",
    _infer_complex,
    _evaluate_complex,
    vjp=(lambda g, out, x, y: real_part(g), lambda g, out, x, y: imag(g)),
    on_complex=OnParts(lambda b, x, y: (x, y), exact=True),
    traits=_CONJUGATE,
)

angle = elementwise(
    "angle",
    1,
    magnitude("angle"),
    evaluate=np.angle,
    vjp=(lambda g, out, x: where(eq(x, 0), 0.0, mul(mul(g, 1j), div(x, mul(abs_(x), abs_(x))))),),
    on_complex=True,
    traits=_CONJUGATE,
)


def _evaluate_sgn(x):
    return np.where(x == 0, x.dtype.type(0), x / np.abs(x))


def _sgn_vjp(g, out, x):
    """x / |x| turns with x: of a change of x only the part across it counts."""
    across = sub(g, mul(out, real_part(mul(g, conjugate(out)))))
    return where(eq(x, 0), 0.0, div(across, abs_(x)))


# x / |x|, and 0 at 0.
sgn = elementwise("sgn", 1, no_bool("sgn"), evaluate=_evaluate_sgn, vjp=(_sgn_vjp,), on_complex=True, traits=_CONJUGATE)
