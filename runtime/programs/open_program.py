"""Decompositions and derivatives as steps on arrays, recorded once for sizes that only the call tells (extent.py).

The rules run as for known sizes (array_program.py), on shapes with extents. What they ask of these becomes guards of
the scope, and what they compute of them for the elements, such as the 1/n of a mean, a constant of the call.
"""

from math import prod
from typing import NamedTuple

from ...compiler.autodiff import vjp
from ...compiler.dtypes import float64, int64
from ...compiler.extent import Extent, Fixed, Ratio, is_open
from ...compiler.ops.kinds import is_unknown
from ...compiler.ops.steps import STEPS
from ...compiler.ops.table import Meta
from ...compiler.plain import Plain
from .array_program import READING, Recorder, Traced, Untraceable, fewest_of
from .evaluate import as_type

_METAS = {Extent: Meta((), int64, True), Ratio: Meta((), float64, True)}


class CallConstant(Plain):
    """A constant that the call tells, in a type."""

    __slots__ = ("value", "dtype")

    def __init__(self, value, dtype):
        self.value, self.dtype = value, dtype


class OpenRecorder(Recorder):
    """Records without functions that would compute a step: they would know sizes."""

    def meta_of_number(self, x):
        return _METAS[type(x)] if is_open(x) else super().meta_of_number(x)

    def function_of(self, *_):
        return None

    def count(self, op, metas, meta):
        # Which is most, the call would have to say.
        self.sizes += [prod(m.shape) for m in ((meta, *metas) if op.kind in READING else (meta,))]

    def constant(self, x, dtype):
        return CallConstant(x, dtype) if is_open(x) else super().constant(x, dtype)

    @property
    def has_loops(self):
        """Whether it goes through steps that only the call counts: of a known number they are written out, with the
        same bits."""
        return any(op is STEPS for op, *_ in self.notes.values())

    def traced(self, results, shows=False):
        fewest = self.fewest()
        is_large = any(n >= fewest for n in self.sizes)
        return OpenSteps(self.program(results, None), shows, self.sizes, is_large, self.has_loops)


class OpenSteps(NamedTuple):
    """An ArrayProgram whose functions are none; `shows`: whether a result is a view; how many elements each step
    computes; whether these are so many that a program computes them (fused.py); and whether there are steps that only
    the call counts, which nothing else computes."""

    program: object
    shows: bool
    sizes: list
    is_large: bool
    has_loops: bool

    @property
    def needs_program(self):
        return self.is_large or self.has_loops

    @property
    def notes(self):
        return self.program.notes


def is_large(op, metas, meta):
    """Whether a program computes a primitive."""
    fewest = fewest_of(op)
    return op.kind not in ("view", "source", "library") and any(prod(m.shape) >= fewest for m in (meta, *metas))


def require_same(recorder, rules):
    """Rules that ask what no guard says, such as whether a number is an int, may take other steps for an extent than
    for the number that it is: then there is no program for all."""
    if recorder.has_loops:
        return
    exact = Recorder([Meta(now(x.shape), x.dtype, x.weak) for x in recorder.inputs], recorder.default_dtype)
    rules(exact.inputs)
    if _said(recorder) != _said(exact):
        raise Untraceable("rules that take other steps for this number")


def _said(recorder):
    steps = [(take, into, _note(recorder.notes.get(into))) for _, take, into in recorder.steps]
    return steps, [repr(now(x)) for x in recorder.rest]


def _note(note):
    if note is None:
        return None
    op, attributes, types, meta = note
    return op, repr(sorted(now(attributes).items())), types, now(meta.shape), meta.dtype


def now(x):
    """Numbers for extents, as they are in this call."""
    if isinstance(x, (tuple, list)):
        return tuple(map(now, x))
    if isinstance(x, dict):
        return {name: now(value) for name, value in x.items()}
    if isinstance(x, CallConstant):
        return as_type(now(x.value), x.dtype) if x.dtype is not None else now(x.value)
    if isinstance(x, Ratio):
        return now(x.numerator) / now(x.divisor)
    return x.number if isinstance(x, Extent) else x


def open_decomposition(op, metas, meta, attributes, default_dtype):
    """The OpenSteps of a composite, whose result may end in a view."""
    if any(m.dtype.is_half or m.dtype.is_complex for m in (*metas, meta)):
        raise Fixed("types of which only Python knows the steps")
    recorder, rules = OpenRecorder(metas, default_dtype), op.extra.get("alone") or op.decompose
    result = rules(*recorder.inputs, **attributes)
    require_same(recorder, lambda inputs: rules(*inputs, **now(attributes)))
    if not isinstance(result, Traced) or any(result is x for x in recorder.inputs):
        raise Fixed("a result that may show an operand's memory")
    if result.shape != meta.shape or result.dtype is not meta.dtype:
        raise Fixed("a result that is not what the op has said")
    return recorder.traced((result.number,), result.root is not result)


def open_primitive(op, metas, attributes, default_dtype):
    """The OpenSteps of a primitive."""
    recorder = OpenRecorder(metas, default_dtype)
    return recorder.traced((op(*recorder.inputs, **attributes).number,))


def open_derivative(op, metas, meta, attributes, differentiated, default_dtype):
    """The OpenSteps of an op's rules; inputs are cotangent, result and operands."""
    if any(wanted and is_unknown(op, k) for k, wanted in enumerate(differentiated)):
        raise Fixed("a derivative that may raise")
    recorder = OpenRecorder((meta, meta, *metas), default_dtype)

    def rules(inputs, attributes):
        cotangent, out, *operands = inputs
        return [vjp(op, k, cotangent, out, operands, attributes) if d else None for k, d in enumerate(differentiated)]

    results = rules(recorder.inputs, attributes)
    require_same(recorder, lambda inputs: rules(inputs, now(attributes)))
    if not all(r is None or isinstance(r, Traced) for r in results):
        raise Fixed("a derivative that is no value")
    n_inputs = len(recorder.inputs)
    shows = any(r is not None and r.number >= n_inputs > r.root.number for r in results)
    return recorder.traced(tuple(None if r is None else r.number for r in results), shows)
