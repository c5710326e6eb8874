"""Comparison, logic, selection and conversion: no rounding, so no derivative but that of the selected operand."""

import numpy as np

from .. import dtypes
from ..dtypes import bool_, element_of
from ..kernels.loop import Conversion
from ..storage import chosen, convert
from . import samples
from .kinds import comparison, elementwise, floating, logical, selection
from .samples import Sample
from .table import Meta, OnParts, Op, Spelling, register


def _comparison(name, evaluate, **facts):
    def lower(b, x, y):
        if x.type.element == "i1":
            x, y = b.convert(x, "i8"), b.convert(y, "i8")
        return b.cmp(name, x, y)

    def make_samples():
        return [Sample((samples.integers(k, x, 0, 3), samples.integers(k + 50, y, 0, 3))) for k, (x, y) in _PAIRS]

    return elementwise(
        name, 2, comparison, evaluate=evaluate, vjp=(), lower=lower, samples=make_samples, oracle=name, **facts
    )


_PAIRS = list(enumerate(samples.PAIRS))


def _parts_compared(name, join):
    """Of complex numbers: what is found of both parts, together."""
    return OnParts(lambda b, x, y: join(b)(*[b.cmp(name, *parts) for parts in zip(x, y)]), exact=True)


eq = _comparison(
    "eq",
    np.equal,
    on_complex=_parts_compared("eq", lambda b: b.and_),
    doc="Whether input == other.",
    spelling=Spelling(operands=2, numbers="other"),
)
ne = _comparison(
    "ne",
    np.not_equal,
    on_complex=_parts_compared("ne", lambda b: b.or_),
    doc="Whether input != other.",
    spelling=Spelling("ne not_equal", operands=2, numbers="other"),
)
lt = _comparison("lt", np.less, doc="Whether input < other.", spelling=Spelling("lt less", operands=2, numbers="other"))
le = _comparison(
    "le", np.less_equal, doc="Whether input <= other.", spelling=Spelling("le less_equal", operands=2, numbers="other")
)
gt = _comparison(
    "gt", np.greater, doc="Whether input > other.", spelling=Spelling("gt greater", operands=2, numbers="other")
)
ge = _comparison(
    "ge",
    np.greater_equal,
    doc="Whether input >= other.",
    spelling=Spelling("ge greater_equal", operands=2, numbers="other"),
)


def _logic(name, arity, evaluate, lower, **facts):
    make = samples.bool_unary if arity == 1 else samples.bool_binary
    return elementwise(
        name,
        arity,
        logical,
        evaluate=evaluate,
        vjp=(),
        lower=lower,
        samples=make,
        oracle=name,
        on_complex=True,
        **facts,
    )


logical_and = _logic(
    "logical_and",
    2,
    np.logical_and,
    lambda b, x, y: b.and_(x, y),
    doc="Whether neither is zero.",
    spelling=Spelling(operands=2, numbers="none"),
)
logical_or = _logic(
    "logical_or",
    2,
    np.logical_or,
    lambda b, x, y: b.or_(x, y),
    doc="Whether not both are zero.",
    spelling=Spelling(operands=2, numbers="none"),
)
logical_xor = _logic(
    "logical_xor",
    2,
    np.logical_xor,
    lambda b, x, y: b.xor(x, y),
    doc="Whether exactly one is zero.",
    spelling=Spelling(operands=2, numbers="none"),
)
logical_not = _logic(
    "logical_not", 1, np.logical_not, lambda b, x: b.not_(x), doc="Whether x is zero.", spelling=Spelling()
)


def _test(name, evaluate, lower, **facts):
    def lower_any(b, x):
        return lower(b, x) if x.type.is_float else b.const(name == "isfinite", x.type.of("i1"))

    return elementwise(
        name,
        1,
        comparison,
        evaluate=evaluate,
        vjp=(),
        lower=lower_any,
        samples=samples.unary(),
        oracle=name,
        on_complex=True,
        **facts,
    )


isnan = _test(
    "isnan",
    np.isnan,
    lambda b, x: b.cmp("uno", x, x),
    doc="Whether x is not a number.",
    spelling=Spelling(in_place=False),
)
isinf = _test(
    "isinf",
    np.isinf,
    lambda b, x: b.cmp("eq", b.abs(x), b.const(float("inf"), x.type)),
    doc="Whether x is plus or minus infinity.",
    spelling=Spelling(in_place=False),
)
isfinite = _test(
    "isfinite",
    np.isfinite,
    lambda b, x: b.cmp("lt", b.abs(x), b.const(float("inf"), x.type)),
    doc="Whether x is neither infinite nor nan.",
    spelling=Spelling(in_place=False),
)


def _where_samples():
    triples = [((), (), ()), ((2, 3), (2, 3), (3,)), ((2, 1), (1, 3), (2, 3)), ((0, 3), (3,), ())]
    return [
        Sample((samples.bools(k, c), samples.numbers(k, x), samples.numbers(k + 9, y)))
        for k, (c, x, y) in enumerate(triples)
    ]


where = elementwise(
    "where",
    3,
    selection,
    evaluate=chosen,
    vjp=(
        None,
        lambda g, out, c, x, y: where(c, g, 0.0),
        lambda g, out, c, x, y: where(c, 0.0, g),
    ),
    lower=lambda b, c, x, y: b.select(c, x, y),
    samples=_where_samples,
    on_complex=True,
    traits=frozenset(["fits", "by-parts"]),
    oracle="where",
)


def _evaluate_within(x, low, high, message):
    if not ((x >= low) & (x <= high)).all():
        raise RuntimeError(message)
    return x.copy()


def _lower_within(b, x, fail, low, high, message):
    outside = b.or_(b.cmp("lt", x, b.const(low, x.type)), b.cmp("gt", x, b.const(high, x.type)))
    fail(b.or_(outside, b.cmp("uno", x, x)))
    return x


# The numbers, checked to be in [low, high]; else a RuntimeError with the message.
within = elementwise(
    "within",
    1,
    floating,
    evaluate=_evaluate_within,
    vjp=(lambda g, out, x, low, high, message: g,),
    lower=_lower_within,
    samples=lambda: [Sample((samples.numbers(0, (3, 4), 0.0, 1.0),), {"low": 0.0, "high": 1.0, "message": "outside"})],
    traits=frozenset(["checks"]),
)


def _evaluate_satisfied(valid, message):
    if not valid.all():
        found = [tuple(map(int, index)) for index in np.argwhere(~valid)[:3]]
        raise ValueError(message if valid.ndim == 0 else f"{message} at {', '.join(map(str, found))}")
    return valid.copy()


def _lower_satisfied(b, valid, fail, message):
    fail(b.not_(valid))
    return valid


# The truths, all checked to be true; else a ValueError with the message.
satisfied = elementwise(
    "satisfied",
    1,
    lambda operands, default_float: ((bool_,), bool_),
    evaluate=_evaluate_satisfied,
    lower=_lower_satisfied,
    samples=lambda: [Sample((np.ones((3, 4), bool),), {"message": "not so"})],
    traits=frozenset(["checks"]),
)


def _cast_infer(operands, attributes, default_float):
    return Meta(operands[0].shape, attributes["dtype"])


def _evaluate_cast(x, dtype):
    out = convert(x, dtype)
    return out.copy() if out is x else out


def _cast_parts(b, x, dtype):
    """Real numbers and others as complex ones."""
    real, imaginary = x if x.__class__ is tuple else (x, None)
    element = element_of(dtype.to_real())
    real = b.convert(real, element)
    return real, b.const(0, real.type) if imaginary is None else b.convert(imaginary, element)


# The operand is taken as it is: `compute_dtype` asks for no conversion first.
cast = register(
    Op(
        "cast",
        "elementwise",
        _cast_infer,
        kernel=Conversion(),
        evaluate=_evaluate_cast,
        vjp=(lambda g, out, x, dtype: g,),
        lower=lambda b, x, dtype: b.convert(x, element_of(dtype)),
        compute_dtype=lambda operands, default_float: ((operands[0].dtype,), None),
        node_name="ToCopyBackward0",
        on_complex=OnParts(_cast_parts, exact=True),
        traits=frozenset(["own-type", "by-parts"]),
        samples=lambda: [
            Sample((samples.numbers(k, s),), {"dtype": d})
            for k, s in enumerate(samples.SHAPES)
            for d in (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_)
        ],
    )
)
