"""Scans: running sums, products and extremes along one axis, in order of the elements.

All derivatives come from one recurrence, h[k] = b[k] + a[k] h[k - 1], whose own derivative is the same recurrence run
the other way: so they are exact where a factor is 0, and may be differentiated again.
"""

import math

import numpy as np

from .. import dtypes
from ..kernels.library import Routine
from ..kernels.nest import Nest
from ..later import later
from ..shapes import contiguous_strides
from . import samples
from .arithmetic import add, mul, sub
from .comparison import eq, where
from .kinds import composite, library, like_first, require_floating, routine
from .reduction import shift
from .samples import Sample
from .spelling import flip
from .table import Meta, Op, OpError, register
from .transcendental import exp, log1p
from .view import along_rows

_CASES = (((4,), 0), ((2, 3), 1), ((3, 2), 0), ((2, 4, 3), 1), ((0, 3), 0))


def _axis_samples(low=-2.0, high=2.0):
    return lambda: [Sample((samples.numbers(k, s, low, high),), {"axis": a}) for k, (s, a) in enumerate(_CASES)]


def _wide(x):
    """Floats accumulate in float64, as PyTorch's scans do."""
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _reversed(x, axis):
    return flip(x, spec=tuple((d - 1, -1, d) if k == axis and d else (0, 1, d) for k, d in enumerate(x.shape)))


def _accumulated(accumulate):
    def evaluate(x, axis):
        with np.errstate(all="ignore"):
            return accumulate(_wide(x), axis).astype(x.dtype)

    return evaluate


# --- their kernel -----------------------------------------------------------------------------------------------------
class _Lines:
    """What a scan walks: `outer` and the innermost (`width`, `lanes`) of the other dimensions, `extent` along the axis.
    Steps are those of the operands, then of the result."""

    def __init__(self, writer):
        value, axis = writer.value, writer.value.attributes["axis"]
        strides = [*(a.strides for a in writer.accesses), contiguous_strides(value.shape)]
        dims = [(d, [s[k] for s in strides]) for k, d in enumerate(value.shape) if k != axis and d > 1]
        if not dims or dims[-1][1][-1] > 1:
            # Along the last axis: vectors of elements that lie far apart were no faster than one after the other.
            dims.append((1, [0] * len(strides)))
        *self.outer, (self.width, self.lanes) = dims
        self.extent, self.steps = value.shape[axis], [s[axis] for s in strides]


def _running(step):
    """The kernel of a scan: along the axis, sweeps over the innermost other dimension.

    What runs is kept in scratch memory, floats as float64. step(writer, running, *operands) gives the statements that
    end with its next value; the first value is that of the last operand.
    """

    def write(writer):
        lines = _Lines(writer)
        dtype = dtypes.float64 if writer.value.dtype.is_floating_point else writer.value.dtype
        scratch = writer.scratch(lines.width, dtype)
        writer.nest(
            [extent for extent, _ in lines.outer], lambda names: _line(writer, lines, step, scratch, dtype, names)
        )

    return Nest(write)


def _line(writer, lines, step, scratch, dtype, names):
    """The first elements, then a loop over the others."""
    index = [*names, "k"]
    steps = [[*(outer[k] for _, outer in lines.outer), along] for k, along in enumerate(lines.steps)]

    def loaded(k, start):
        x = writer.load(k, index[: len(names) + start], steps[k], lines.lanes[k], start * lines.steps[k])
        return x, writer.convert(x, dtype)

    def kept(new, start):
        result = writer.convert(new, writer.value.dtype)
        at = index[: len(names) + start], steps[-1]
        return result, writer.store_scratch(scratch, new), writer.store(*at, result, lines.lanes[-1], start * at[1][-1])

    last = len(lines.steps) - 2
    first = loaded(last, 0)
    begun = writer.row(lines.width, *first, *kept(first[-1], 0))
    operands, running = [loaded(k, 1) for k in range(last + 1)], writer.load_scratch(scratch, dtype)
    following = step(writer, running, *(wide for _, wide in operands))
    statements = [*(s for pair in operands for s in pair), running, *following, *kept(following[-1], 1)]
    return [*begun, writer.loop("k", lines.extent - 1, *writer.row(lines.width, *statements))]


def _scan(name, infer, evaluate, step, row_step, n_operands=1, **facts):
    """Along rows a routine runs, along other axes a loop nest: entries of their own, and one for both in front.

    `step` is the loop nest's, `row_step` the routine's (emit/scan.py).
    """

    def refused(kinds, attributes):
        return "bools are scanned by NumPy" if dtypes.bool_ in kinds else None

    rows = routine(
        f"{name}_rows",
        infer,
        Routine(
            name, later("compiler.emit.scan:emit_running", name, n_operands, row_step), _length, _no_scratch, _cost_ns
        ),
        vjp=tuple(_of_rows(rule) for rule in facts["vjp"]),
        samples=lambda: [Sample(tuple(samples.numbers(k, (5, 4)) for k in range(n_operands)))],
        oracle=lambda torch, *operands: _torch_rows(torch, facts["oracle"], operands),
    )
    columns = register(
        Op(
            f"{name}_columns",
            "scan",
            lambda operands, attributes, default_float: infer(operands, attributes),
            evaluate,
            vjp=facts["vjp"],
            kernel=_running(step),
            extra={"eager_only": refused, "along_rows": rows},
            samples=facts["samples"],
            on_complex=True,
            oracle=facts["oracle"],
        )
    )

    def decompose(*operands, axis):
        return rows(*operands) if _is_row(operands[-1], axis) else columns(*operands, axis=axis)

    return composite(
        name,
        lambda operands, attributes, default_float: infer(operands, attributes),
        decompose,
        extra={"eager_only": refused},
        **facts,
    )


_ROW_TYPES = ("f32", "f64", "i32", "i64")


def _is_row(x, axis):
    """Whether the routines can scan it: along the last axis, elements of a type they know."""
    return axis == len(x.shape) - 1 and 0 not in x.shape and x.dtype.element in _ROW_TYPES


def _of_rows(rule):
    return lambda g, out, *operands: rule(g, out, *operands, axis=len(out.shape) - 1)


def _length(shape, attributes):
    return (shape[-1],)


def _no_scratch(element, shape, attributes):
    return 0


def _cost_ns(shape):
    return 1.0 * math.prod(shape)


def _torch_rows(torch, oracle, operands):
    function = getattr(torch, oracle) if isinstance(oracle, str) else lambda *x: oracle(torch, *x)
    return function(*operands, 1)


cumsum = _scan(
    "cumsum",
    like_first,
    _accumulated(np.cumsum),
    lambda writer, running, x: [writer.apply(add, [running, x])],
    lambda b, running, x: b.add(running, x),
    vjp=(lambda g, out, x, axis: _reversed(cumsum(_reversed(g, axis), axis=axis), axis),),
    samples=_axis_samples(),
    on_complex=True,
    oracle="cumsum",
)


# --- h[k] = b[k] + a[k] h[k - 1] ------------------------------------------------------------------------------------
def _recurrence_infer(operands, attributes):
    a, b = operands
    if a.shape != b.shape or a.dtype is not b.dtype:
        raise OpError(f"recurrence: factors {a.dtype.name}{a.shape} and terms {b.dtype.name}{b.shape} must be alike")
    if not b.dtype.is_complex:
        require_floating("recurrence", b)
    return Meta(b.shape, b.dtype)


def _evaluate_recurrence(a, b, axis):
    a, b = np.moveaxis(_wide(a), axis, 0), np.moveaxis(_wide(b), axis, 0)
    h = b.copy()
    with np.errstate(all="ignore"):
        for k in range(1, len(h)):
            h[k] += a[k] * h[k - 1]
    return np.moveaxis(h, 0, axis)


def _suffix(factors, terms, axis):
    """h[k] = terms[k] + factors[k + 1] h[k + 1]: the recurrence of cotangents."""
    backward = recurrence(_reversed(shift(factors, axis, -1), axis), _reversed(terms, axis), axis=axis)
    return _reversed(backward, axis)


def _evaluate_typed(a, b, axis):
    return _evaluate_recurrence(a, b, axis).astype(b.dtype)


def _recurrence_step(writer, running, a, b):
    product = writer.apply(mul, [a, running])
    return [product, writer.apply(add, [b, product])]


recurrence = _scan(
    "recurrence",
    _recurrence_infer,
    _evaluate_typed,
    _recurrence_step,
    lambda b, running, a, x: b.add(x, b.mul(a, running)),
    n_operands=2,
    vjp=(
        lambda g, out, a, b, axis: mul(_suffix(a, g, axis), shift(out, axis, 1, 0)),
        lambda g, out, a, b, axis: _suffix(a, g, axis),
    ),
    samples=lambda: [
        Sample((samples.numbers(k, s), samples.numbers(k + 9, s)), {"axis": a}) for k, (s, a) in enumerate(_CASES)
    ],
    on_complex=True,
    oracle=lambda torch, a, b, axis: _torch_recurrence(torch, a, b, axis),
)


def _torch_recurrence(torch, a, b, axis):
    parts = []
    for x, y in zip(a.unbind(axis), b.unbind(axis)):
        parts.append(y + x * parts[-1] if parts else y + 0 * x)
    return torch.stack(parts, axis) if parts else a + b


# prod_{j <= k} x[j] has the derivative prod_{j < i} x[j] * (g[i] + x[i + 1] g[i + 1] + x[i + 1] x[i + 2] g[i + 2] ...)
cumprod = _scan(
    "cumprod",
    like_first,
    _accumulated(np.cumprod),
    lambda writer, running, x: [writer.apply(mul, [running, x])],
    lambda b, running, x: b.mul(running, x),
    vjp=(lambda g, out, x, axis: mul(shift(out, axis, 1), _suffix(x, g, axis)),),
    samples=_axis_samples(0.5, 1.5),
    on_complex=True,
    oracle="cumprod",
)


def _logcumsumexp_infer(operands, attributes):
    require_floating("logcumsumexp", operands[0])
    return like_first(operands, attributes)


def _logcumsumexp_vjp(g, out, x, axis):
    """The sum over k >= i of g[k] exp(x[i] - out[k]); out never falls, so no factor is above 1."""
    # The first factor multiplies nothing.
    falling = _exp_difference(shift(out, axis, 1, -math.inf), out)
    return mul(_exp_difference(x, out), _suffix(falling, g, axis))


def _exp_difference(x, y):
    """exp(x - y), for equal infinities 1."""
    return exp(where(eq(x, y), 0.0, sub(x, y)))


_log_sum_rows = routine(
    "logcumsumexp_rows",
    like_first,
    Routine(
        "logcumsumexp",
        later("compiler.emit.scan:emit_log_of_sums", "logcumsumexp", exp.lower, log1p.lower),
        _length,
        _no_scratch,
        lambda shape: 4.0 * math.prod(shape),
    ),
    vjp=(lambda g, out, x: _logcumsumexp_vjp(g, out, x, len(x.shape) - 1),),
    samples=lambda: [Sample((samples.numbers(0, (5, 4)),))],
    oracle=lambda torch, x: torch.logcumsumexp(x, 1),
)
logcumsumexp = composite(
    "logcumsumexp",
    lambda operands, attributes, default_float: _logcumsumexp_infer(operands, attributes),
    lambda x, axis: along_rows(x, axis, _log_sum_rows),
    vjp=(_logcumsumexp_vjp,),
    samples=_axis_samples(),
    oracle="logcumsumexp",
)


# --- positions of running extremes ------------------------------------------------------------------------------------
def _positions(accumulate, reaches):
    """int64 positions of the extremes so far: the last of equals; a NaN is the extreme from there on."""

    def evaluate(x, axis):
        if x.ndim == 0 or not x.size:
            return np.zeros(x.shape, np.int64)
        best = accumulate(x, axis)
        taken = reaches(x, best) | (x != x)
        steps = np.arange(x.shape[axis]).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        return np.maximum.accumulate(np.where(taken, steps, 0), axis)

    return evaluate


def _position_scan(name, accumulate, reaches, smallest, oracle):
    """Along rows a routine; for types that it does not know NumPy."""

    def infer(operands, attributes):
        return Meta(operands[0].shape, dtypes.int64)

    def refused(kinds, attributes):
        missing = [d.name for d in kinds if d.element not in _ROW_TYPES]
        return f"running extremes of {missing[0]} are computed by NumPy" if missing else None

    by_numpy = library(
        f"{name}_by_numpy", infer, _positions(accumulate, reaches), samples=_axis_samples(), vjp=(None,), oracle=oracle
    )
    rows = routine(
        f"{name}_rows",
        infer,
        Routine(name, later("compiler.emit.scan:emit_extremes", name, smallest), _length, _no_scratch, _cost_ns),
        compute_dtype=lambda operands, default_float: ((operands[0].dtype,), dtypes.int64),
        vjp=(None,),
        samples=lambda: [Sample((samples.numbers(0, (5, 4)),))],
        oracle=lambda torch, x: oracle(torch, x, 1),
    )

    def decompose(x, axis):
        return along_rows(x, axis, rows) if x.dtype.element in _ROW_TYPES else by_numpy(x, axis=axis)

    return composite(
        name,
        lambda operands, attributes, default_float: infer(operands, attributes),
        decompose,
        samples=_axis_samples(),
        vjp=(None,),
        extra={"eager_only": refused},
        oracle=oracle,
    )


cummax_index = _position_scan(
    "cummax_index",
    np.maximum.accumulate,
    np.greater_equal,
    False,
    lambda torch, x, axis: torch.cummax(x, axis).indices,
)
cummin_index = _position_scan(
    "cummin_index",
    np.minimum.accumulate,
    np.less_equal,
    True,
    lambda torch, x, axis: torch.cummin(x, axis).indices,
)
