"""Constructors of table entries, one per kind: they turn the few facts an entry states into its full rules."""

from .. import dtypes
from ..dtypes import bool_, result_type
from ..kernels.loop import Elementwise
from ..shapes import broadcast_shapes
from .table import Meta, NotForType, Op, OpError, register

_ELEMENTWISE = Elementwise()


# --- dtype rules: (operands, default_float) -> (the type each operand is converted to, the result's type) -----------
# A rule's docstring is what the documentation of its functions says of dtypes.
def arithmetic(operands, default_float):
    """any; the result has the type that its operands promote to."""
    common = result_type(operands, default_float)
    return (common,) * len(operands), common


def floating(operands, default_float):
    """floating; integers and bools are converted to the default floating type first, as in PyTorch."""
    common = result_type(operands, default_float)
    if not common.is_differentiable:
        common = default_float
    return (common,) * len(operands), common


def magnitude(name):
    """The arithmetic rule of functions whose result is real for complex operands."""

    def checked(operands, default_float):
        """any but bool; of complex numbers the result is real."""
        types, common = no_bool(name)(operands, default_float)
        return types, common.to_real()

    return checked


def comparison(operands, default_float):
    """any; the result is bool."""
    return (result_type(operands, default_float),) * len(operands), bool_


def logical(operands, default_float):
    """any, taken as \"is it not zero\"; the result is bool."""
    return (bool_,) * len(operands), bool_


def selection(operands, default_float):
    """a bool condition, and any two types; the result has the one they promote to."""
    if operands[0].dtype is not bool_:
        given = operands[0].dtype.name
        raise OpError(f"where: expected condition to be a boolean tensor, got {given}; compare, as in condition != 0")
    common = result_type(operands[1:], default_float)
    return (bool_, *(common,) * (len(operands) - 1)), common


def no_bool(name):
    """The arithmetic rule, refusing bool operands (PyTorch refuses - and most unary functions on them)."""

    def checked(operands, default_float):
        """any but bool; the result has the type that its operands promote to."""
        if any(o.dtype is bool_ for o in operands) and (name == "sub" or result_type(operands, default_float) is bool_):
            raise OpError(f"{name}: bool tensors are not supported; use ~ or ^ for logic, or convert with .int() first")
        return arithmetic(operands, default_float)

    return checked


def integers_only(name, bools=True):
    """The arithmetic rule for integers and bools, or for integers alone."""

    def checked(operands, default_float):
        """integers and bools; the result has the type that its operands promote to."""
        common = result_type(operands, default_float)
        if common.is_differentiable:
            given = " and ".join(o.dtype.name for o in operands)
            raise OpError(f"{name}: needs integer or bool operands, got {given}; convert with .long() first")
        if common is bool_ and not bools:
            raise NotForType(f"{name}: not implemented for bool operands; convert them with .long() first")
        return (common,) * len(operands), common

    return checked


def elementwise(name, arity, dtype, **facts):
    """An op computed element by element on broadcast operands. `dtype` is one of the rules above."""

    def infer(operands, attributes, default_float):
        if len(operands) != arity:
            raise TypeError(f"{name}: takes {arity} operands, got {len(operands)}")
        shape = broadcast_shapes(name, [o.shape for o in operands])
        return Meta(shape, dtype(operands, default_float)[1])

    return register(Op(name, "elementwise", infer, compute_dtype=dtype, kernel=_ELEMENTWISE, **facts))


def composite(name, infer, decompose, **facts):
    """An op the compiler replaces by `decompose(*operands, **attributes)` before it optimises."""
    return register(Op(name, "composite", infer, decompose=decompose, **facts))


def alias(name, decompose, **facts):
    """A composite whose shape rule is that of its decomposition (one call): another spelling with its own node."""

    def infer(operands, attributes, default_float):
        return infer_by_decomposition(decompose, operands, attributes, default_float)

    return register(Op(name, "composite", infer, decompose=decompose, **facts))


def library(name, infer, evaluate, **facts):
    """An op computed by `evaluate` alone, with NumPy: it has no kernel, so a compiled call runs it eagerly.

    `infer` is (operands, attributes) -> Meta. Operands reach `evaluate` as arrays of the types they have.
    """
    reason = "computed by NumPy: it has no generated kernel"
    return register(
        Op(
            name,
            "library",
            lambda operands, attributes, default_float: infer(operands, attributes),
            evaluate,
            extra={"eager_only": lambda dtypes, attributes: reason},
            **facts,
        )
    )


def routine(name, infer, kernel, compute_dtype=None, **facts):
    """An op computed by a routine of weft's own; `kernel` is one of kernels/library.py, or has its interface.

    `infer` is (operands, attributes) -> Meta. `compute_dtype`, unless given, leaves operands the types they have, and
    says that the result is of the first one's. A routine reads all its operands as elements of one type.
    """

    def checked(operands, attributes, default_float):
        types = [x.dtype for x in operands]
        if any(d is not types[0] for d in types):
            raise OpError(f"{name}: operands must have one dtype, got {', '.join(d.name for d in types)}")
        return infer(operands, attributes)

    return register(
        Op(
            name,
            "routine",
            checked,
            compute_dtype=compute_dtype or _as_given,
            kernel=kernel,
            **facts,
        )
    )


def _as_given(operands, default_float):
    """any; the result has the type of the first operand."""
    return tuple(x.dtype for x in operands), operands[0].dtype


class NotImplementedRule:
    """The rule of an operand whose derivative nobody has worked out: backward raises a NotImplementedError, and the
    result has a history like any other, so that no gradient is silently left out."""

    __slots__ = ("of",)

    def __init__(self, of):
        self.of = of

    def __call__(self, g, out, *operands, **attributes):
        return no_derivative(operands[0], message=f"the derivative for '{self.of}' is not implemented.")


def like_first(operands, attributes):
    """The shape rule of a result like the first operand."""
    return Meta(operands[0].shape, operands[0].dtype)


class _Probe:
    """A value that has only a shape and a type: decompositions run on it to find theirs."""

    __slots__ = ("shape", "dtype", "weak", "default_float")

    def __init__(self, shape, dtype, default_float, weak=False):
        self.shape, self.dtype, self.default_float, self.weak = shape, dtype, default_float, weak

    @property
    def ndim(self):
        return len(self.shape)

    def apply_op(self, op, operands, attributes):
        metas = [o if hasattr(o, "dtype") else number_meta(o) for o in operands]
        meta = op.infer(metas, attributes, self.default_float)
        return _Probe(meta.shape, meta.dtype, self.default_float)


def infer_by_decomposition(decompose, operands, attributes, default_float):
    probes = [_Probe(o.shape, o.dtype, default_float, o.weak) for o in operands]
    result = decompose(*probes, **attributes)
    return Meta(result.shape, result.dtype)


_NUMBER_METAS = {
    bool: Meta((), dtypes.bool_, True),
    int: Meta((), dtypes.int64, True),
    float: Meta((), dtypes.float64, True),
    complex: Meta((), dtypes.complex128, True),
}


def number_meta(number):
    """The Meta of a Python number; TypeError for anything else."""
    try:
        return _NUMBER_METAS[type(number)]
    except KeyError:
        raise TypeError(f"expected a tensor or a Python number, got {_described(number)}") from None


def _described(value):
    if hasattr(value, "__array__"):
        return (
            f"{type(value).__name__} of shape {getattr(value, 'shape', None)}; make a tensor of it, "
            "weft.tensor(array), or give the whole function to weft.for_numpy"
        )
    return f"{type(value).__name__}: {value!r}"


def refuse_complex(op, types):
    """NotImplementedError if one of the types is complex and the op has no meaning for it, or none here."""
    if not op.takes_complex:
        for dtype in types:
            if dtype.is_complex:
                raise NotImplementedError(f"{op.name}: {_no_complex(dtype)}")


def _no_complex(dtype):
    return f"not implemented for {dtype.name}; compute with x.real and x.imag, or weft.view_as_real(x)"


def require_floating(name, operand):
    if operand.dtype.is_complex:
        raise NotImplementedError(f"{name}: {_no_complex(operand.dtype)}")
    if not operand.dtype.is_floating_point:
        raise OpError(f"{name}: needs a floating point tensor, got {operand.dtype.name}; convert with .float() first")


# --- derivatives that are not there -----------------------------------------------------------------------------------
def is_unknown(op, index):
    """Whether the derivative of an op with respect to one operand is such."""
    return op.vjp.__class__ is tuple and isinstance(op.vjp_rule(index), NotImplementedRule)


def _raise_no_derivative(x, message):
    raise NotImplementedError(message)


# Rules are run once to find what they read, so they may not raise by themselves: they return this.
no_derivative = library("no_derivative", like_first, _raise_no_derivative, vjp=(None,), on_complex=True)
