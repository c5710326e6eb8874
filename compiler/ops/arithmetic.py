"""Elementwise arithmetic: exact IEEE operations, the same bits in NumPy and in generated code."""

import numpy as np

from ..storage import chosen
from . import samples
from .comparison import eq, ge, gt, le, logical_and, logical_or, lt, where
from .kinds import arithmetic, elementwise, floating, integers_only, magnitude, no_bool
from .source import zeros_like
from .table import OnParts, Spelling


def _is_bool(x):
    return x.type.element == "i1"


_BY_PARTS = frozenset(["by-parts"])


# --- on complex numbers, as PyTorch computes them: NumPy's products differ from processor to processor ----------------
def _each_part(method):
    """The same with real and with imaginary parts."""
    return OnParts(lambda b, *operands: tuple(getattr(b, method)(*parts) for parts in zip(*operands)), exact=True)


def _complex_product(b, x, y):
    (a, c), (d, e) = x, y
    return b.sub(b.mul(a, d), b.mul(c, e)), b.add(b.mul(a, e), b.mul(c, d))


def _complex_quotient(b, x, y):
    """Smith's method (Algorithm 116, Communications of the ACM 5, 1962), its terms added to products without rounding
    these. By 0 as C++ has it: both parts by 0."""
    (a, c), (d, e) = x, y
    long, short = b.abs(d), b.abs(e)
    by_real, zero = b.cmp("ge", long, short), b.const(0, a.type)
    longer, shorter = b.select(by_real, d, e), b.select(by_real, e, d)
    ratio = b.div(shorter, longer)
    scale = b.div(b.const(1, a.type), b.fma(shorter, ratio, longer))
    # (a + c r, c - a r) or (a r + c, c r - a)
    real = b.fma(b.select(by_real, c, a), ratio, b.select(by_real, a, c))
    imaginary = b.fma(b.select(by_real, b.neg(a), c), ratio, b.select(by_real, c, b.neg(a)))
    is_zero = b.and_(b.cmp("eq", long, zero), b.cmp("eq", short, zero))
    of_zero = [b.div(part, divisor) for part, divisor in zip(x, (long, short))]
    return tuple(b.select(is_zero, z, b.mul(part, scale)) for z, part in zip(of_zero, (real, imaginary)))


def _modulus(b, x):
    """Rounded once, but for a last bit now and then. Infinite if either part is, whatever the other."""
    real, imaginary = (b.abs(part) for part in x)
    infinite = b.const(np.inf, real.type)
    is_infinite = b.or_(b.cmp("eq", real, infinite), b.cmp("eq", imaginary, infinite))
    found = _modulus_in_double(b, real, imaginary) if real.type.element == "f32" else _hypotenuse(b, real, imaginary)
    return b.select(is_infinite, infinite, found)


def _modulus_in_double(b, x, y):
    x, y = b.convert(x, "f64"), b.convert(y, "f64")  # whose squares have twice the digits
    return b.convert(b.sqrt(b.add(b.mul(x, x), b.mul(y, y))), "f32")


def _hypotenuse(b, x, y):
    """C. F. Borges, Algorithm 1014 (ACM Transactions on Mathematical Software 47, 2021): the root, corrected by what
    was lost; of numbers whose squares are too large or too small, of these times a power of two."""
    t, swapped = x.type, b.cmp("lt", x, y)
    x, y = b.select(swapped, y, x), b.select(swapped, x, y)
    const = lambda number: b.const(number, t)  # noqa: E731
    is_large, is_small = b.cmp("gt", x, const(2.0**500)), b.cmp("lt", x, const(2.0**-400))
    up = b.select(is_large, const(2.0**-600), b.select(is_small, const(2.0**600), const(1.0)))
    down = b.select(is_large, const(2.0**600), b.select(is_small, const(2.0**-600), const(1.0)))
    x, y = b.mul(x, up), b.mul(y, up)
    h = b.sqrt(b.fma(x, x, b.mul(y, y)))
    h2, x2 = b.mul(h, h), b.mul(x, x)
    lost = b.add(b.fma(b.neg(y), y, b.sub(h2, x2)), b.sub(b.fma(h, h, b.neg(h2)), b.fma(x, x, b.neg(x2))))
    corrected = b.sub(h, b.div(lost, b.mul(const(2.0), h)))
    return b.mul(b.select(b.cmp("eq", h, const(0.0)), h, corrected), down)


add = elementwise(
    "add",
    2,
    arithmetic,
    evaluate=np.add,
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: g),
    lower=lambda b, x, y: b.or_(x, y) if _is_bool(x) else b.add(x, y),
    samples=samples.binary(),
    on_complex=_each_part("add"),
    traits=_BY_PARTS,
    oracle="add",
)
sub = elementwise(
    "sub",
    2,
    no_bool("sub"),
    evaluate=np.subtract,
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: neg(g)),
    lower=lambda b, x, y: b.sub(x, y),
    node_name=lambda operands, attributes: "SubBackward0" if hasattr(operands[0], "shape") else "RsubBackward1",
    samples=samples.binary(),
    on_complex=_each_part("sub"),
    traits=_BY_PARTS,
    oracle="sub",
)
mul = elementwise(
    "mul",
    2,
    arithmetic,
    evaluate=np.multiply,
    vjp=(lambda g, out, x, y: mul(g, y), lambda g, out, x, y: mul(g, x)),
    lower=lambda b, x, y: b.and_(x, y) if _is_bool(x) else b.mul(x, y),
    samples=samples.binary(),
    on_complex=OnParts(_complex_product),
    oracle="mul",
    traits=frozenset(["wide-number"]),
    doc="input * other.",
    spelling=Spelling("mul multiply", operands=2, numbers="both"),
)
div = elementwise(
    "div",
    2,
    floating,
    evaluate=np.true_divide,
    vjp=(lambda g, out, x, y: div(g, y), lambda g, out, x, y: mul(neg(g), div(div(x, y), y))),
    lower=lambda b, x, y: b.div(x, y),
    samples=samples.binary(right_low=0.5, right_high=2.0),
    on_complex=OnParts(_complex_quotient),
    oracle="div",
    cost="divide",
    traits=frozenset(["wide-number"]),
)
neg = elementwise(
    "neg",
    1,
    no_bool("neg"),
    evaluate=np.negative,
    vjp=(lambda g, out, x: neg(g),),
    lower=lambda b, x: b.neg(x),
    samples=samples.unary(),
    on_complex=_each_part("neg"),
    traits=_BY_PARTS,
    oracle="neg",
    doc="-x.",
    spelling=Spelling("neg negative"),
)
abs_ = elementwise(
    "abs",
    1,
    magnitude("abs"),
    evaluate=np.abs,
    vjp=(lambda g, out, x: mul(g, where(eq(x, 0), 0.0, div(x, out)) if x.dtype.is_complex else sign(x)),),
    lower=lambda b, x: b.abs(x),
    samples=samples.unary(0.25, 2.0),
    on_complex=OnParts(_modulus),
    traits=frozenset(["conjugate"]),
    oracle="abs",
    doc="|x|; of a complex number its modulus.",
    spelling=Spelling("abs absolute"),
)


def _lower_sign(b, x):
    zero, one, minus = (b.const(v, x.type) for v in (0, 1, -1))
    negative_or_zero = b.select(b.cmp("lt", x, zero), minus, zero)
    signed = b.select(b.cmp("gt", x, zero), one, negative_or_zero)
    return signed


sign = elementwise(
    "sign",
    1,
    no_bool("sign"),
    # Not np.sign: PyTorch's sign(nan) is 0, NumPy's is nan.
    evaluate=lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
    vjp=(lambda g, out, x: zeros_like(g),),
    lower=_lower_sign,
    samples=samples.unary(0.25, 2.0),
    oracle="sign",
)
sqrt = elementwise(
    "sqrt",
    1,
    floating,
    evaluate=np.sqrt,
    vjp=(lambda g, out, x: div(g, mul(out, 2.0)),),
    lower=lambda b, x: b.sqrt(x),
    samples=samples.unary(0.25, 4.0),
    on_complex=True,
    oracle="sqrt",
    cost="divide",
    doc="The square root; nan below 0.",
    spelling=Spelling(),
)
rsqrt = elementwise(
    "rsqrt",
    1,
    floating,
    evaluate=lambda x: np.true_divide(x.dtype.type(1), np.sqrt(x)),
    vjp=(lambda g, out, x: mul(mul(g, -0.5), mul(out, mul(out, out))),),
    lower=lambda b, x: b.div(b.const(1, x.type), b.sqrt(x)),
    samples=samples.unary(0.25, 4.0),
    on_complex=True,
    oracle="rsqrt",
    cost="divide",
    doc="1 / sqrt(x).",
    spelling=Spelling(),
)
reciprocal = elementwise(
    "reciprocal",
    1,
    floating,
    evaluate=lambda x: np.true_divide(x.dtype.type(1), x),
    vjp=(lambda g, out, x: mul(neg(g), mul(out, out)),),
    lower=lambda b, x: b.div(b.const(1, x.type), x),
    samples=samples.unary(0.25, 4.0),
    on_complex=True,
    oracle="reciprocal",
    cost="divide",
    doc="1 / x.",
    spelling=Spelling(),
)


def _rounding(name, evaluate, lower, **facts):
    return elementwise(
        name,
        1,
        no_bool(name),
        evaluate=lambda x: evaluate(x) if x.dtype.kind == "f" else x.copy(),
        vjp=(lambda g, out, x: zeros_like(g),),
        lower=lambda b, x: lower(b)(x) if x.type.is_float else x,
        samples=samples.unary(0.1, 0.4),
        oracle=name,
        **facts,
    )


floor = _rounding("floor", np.floor, lambda b: b.floor, doc="The greatest integer not above x.", spelling=Spelling())
ceil = _rounding("ceil", np.ceil, lambda b: b.ceil, doc="The least integer not below x.", spelling=Spelling())
trunc = _rounding(
    "trunc", np.trunc, lambda b: b.trunc, doc="x without its fraction: towards zero.", spelling=Spelling("trunc fix")
)
# Halves go to the even neighbour, in PyTorch as in IEEE 754.
round_ = _rounding("round", np.rint, lambda b: b.round_even)


# --- extremes: NaN wins, and of two equal operands (also 0.0 and -0.0) the second is returned ------------------------
def _extreme(b, predicate, x, y):
    if _is_bool(x):
        return b.or_(x, y) if predicate == "gt" else b.and_(x, y)
    take = b.cmp(predicate, x, y)
    if x.type.is_float:
        take = b.or_(take, b.cmp("uno", x, x))
    return b.select(take, x, y)


maximum = elementwise(
    "maximum",
    2,
    arithmetic,
    evaluate=lambda x, y: chosen((x > y) | (x != x), x, y),
    vjp=(
        lambda g, out, x, y: where(lt(x, y), 0.0, where(eq(x, y), mul(g, 0.5), g)),
        lambda g, out, x, y: where(gt(x, y), 0.0, where(eq(x, y), mul(g, 0.5), g)),
    ),
    lower=lambda b, x, y: _extreme(b, "gt", x, y),
    samples=samples.binary(),
    oracle="maximum",
    doc="The larger of the two; nan if either is.",
    spelling=Spelling(operands=2, numbers="none", in_place=False),
)
minimum = elementwise(
    "minimum",
    2,
    arithmetic,
    evaluate=lambda x, y: chosen((x < y) | (x != x), x, y),
    vjp=(
        lambda g, out, x, y: where(gt(x, y), 0.0, where(eq(x, y), mul(g, 0.5), g)),
        lambda g, out, x, y: where(lt(x, y), 0.0, where(eq(x, y), mul(g, 0.5), g)),
    ),
    lower=lambda b, x, y: _extreme(b, "lt", x, y),
    samples=samples.binary(),
    oracle="minimum",
    doc="The smaller of the two; nan if either is.",
    spelling=Spelling(operands=2, numbers="none", in_place=False),
)
relu = elementwise(
    "relu",
    1,
    no_bool("relu"),
    # relu(-0.0) is -0.0, as in PyTorch, and NaN stays NaN: that is what a processor's maximum of 0 and x gives.
    evaluate=lambda x: chosen(x < 0, x.dtype.type(0), x),
    vjp=(lambda g, out, x: where(le(out, 0), 0.0, g),),
    lower=lambda b, x: b.select(b.cmp("lt", x, b.const(0, x.type)), b.const(0, x.type), x),
    samples=samples.unary(),
    oracle="relu",
    doc="max(x, 0).",
    spelling=Spelling(),
)


def _clamp_name(operands, attributes):
    """PyTorch's two nodes: bounds that are tensors, or numbers."""
    return f"ClampBackward{int(not any(hasattr(bound, 'shape') for bound in operands[1:]))}"


def _raised(x, low):
    # A bound that is NaN bounds everything: PyTorch says NaN then, for numbers and tensors.
    return chosen((x < low) | (low != low), low, x)


def _lowered(x, high):
    return chosen((x > high) | (high != high), high, x)


def _beyond(b, predicate, x, bound):
    """The bound where x is beyond it, else x; a NaN if one of the two is: one instruction."""
    return b.select(b.cmp(predicate, x, bound), bound, x)


def _nan_by(b, x, low, high):
    """x, or NaN where a bound is one. -0.0 changes no number, and what is added to all elements is made once: a sum is
    no work for the units that compare."""
    if not x.type.is_float:
        return x
    return b.add(x, b.select(b.cmp("uno", low, high), b.add(low, high), b.const(-0.0, x.type)))


def _inside(x, low, high):
    return logical_and(ge(x, low), le(x, high))


clamp = elementwise(
    "clamp",
    3,
    no_bool("clamp"),
    # The bounds in this order give `high` where low > high, as PyTorch documents; NaN stays NaN.
    evaluate=lambda x, low, high: _lowered(_raised(x, low), high),
    vjp=(
        lambda g, out, x, low, high: where(_inside(x, low, high), g, 0.0),
        lambda g, out, x, low, high: where(logical_and(lt(x, low), lt(low, high)), g, 0.0),
        # Where low == high, none of the two has a gradient, as PyTorch has it.
        lambda g, out, x, low, high: where(logical_or(gt(x, high), lt(high, low)), g, 0.0),
    ),
    lower=lambda b, x, low, high: _beyond(b, "gt", _beyond(b, "lt", _nan_by(b, x, low, high), low), high),
    node_name=_clamp_name,
    samples=lambda: [samples.Sample((samples.numbers(k, s), -0.7, 0.9)) for k, s in enumerate(samples.SHAPES)],
    oracle="clamp",
    traits=frozenset(["fits"]),
)


def _one_bound(name, evaluate, predicate, inside, beyond, sample):
    return elementwise(
        name,
        2,
        no_bool(name),
        evaluate=evaluate,
        vjp=(
            lambda g, out, x, bound: where(inside(x, bound), g, 0.0),
            lambda g, out, x, bound: where(beyond(x, bound), g, 0.0),
        ),
        lower=lambda b, x, bound: _beyond(b, predicate, _nan_by(b, x, bound, bound), bound),
        samples=lambda: [samples.Sample((samples.numbers(k, s), sample)) for k, s in enumerate(samples.SHAPES)],
        node_name=_clamp_name,
        oracle=name,
        traits=frozenset(["fits"]),
    )


clamp_min = _one_bound("clamp_min", _raised, "lt", ge, lt, -0.7)
clamp_max = _one_bound("clamp_max", _lowered, "gt", le, gt, 0.7)


# --- bits of integers; on bools these are the logical operations ----------------------------------------------------
def _bitwise(name, arity, evaluate, lower, **facts):
    def make_samples():
        numbers = [samples.Sample(tuple(samples.integers(k, (2, 3)) for k in range(arity)))]
        return numbers + [samples.Sample(tuple(samples.bools(k, (4,)) for k in range(arity)))]

    return elementwise(
        name, arity, integers_only(name), evaluate=evaluate, lower=lower, samples=make_samples, oracle=name, **facts
    )


bitwise_and = _bitwise(
    "bitwise_and",
    2,
    np.bitwise_and,
    lambda b, x, y: b.and_(x, y),
    doc="The bits set in both; of bools: both.",
    spelling=Spelling(operands=2),
)
bitwise_or = _bitwise(
    "bitwise_or",
    2,
    np.bitwise_or,
    lambda b, x, y: b.or_(x, y),
    doc="The bits set in either; of bools: either.",
    spelling=Spelling(operands=2),
)
bitwise_xor = _bitwise(
    "bitwise_xor",
    2,
    np.bitwise_xor,
    lambda b, x, y: b.xor(x, y),
    doc="The bits set in exactly one; of bools: exactly one.",
    spelling=Spelling(operands=2),
)
bitwise_not = _bitwise(
    "bitwise_not",
    1,
    np.bitwise_not,
    lambda b, x: b.not_(x),
    doc="All bits turned over; of a bool its opposite.",
    spelling=Spelling(),
)
