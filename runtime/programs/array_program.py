"""What rules written with ops do to operands of given shapes and types, recorded once and then run on arrays.

Decompositions and derivatives are Python functions of tensors that read shapes, types and attributes, never elements:
the compiler runs them on graph values. Eager mode runs them on `Traced` values, once for each combination of shapes,
types and attributes; from then on the steps they took run one after the other on arrays (`ArrayProgram`), without
tensors in between. The steps are those that the rules take on tensors, so the bits are the same.
"""

from math import prod
from time import thread_time

from ...compiler.autodiff import vjp
from ...compiler.dtypes import DType
from ...compiler.ops.comparison import cast
from ...compiler.ops.kinds import is_unknown, number_meta
from ...compiler.ops.table import Meta
from . import fused
from .evaluate import as_type, contiguous, quietly
from .rules import Rule
from .steps import inner_step

_FREE = ("view", "source")  # ops that leave little for a program to save
READING = ("reduction", "contraction")  # ops whose work is in what they read
_SHORT_ROW = 64
_TERMS = 32  # of a product, that are added while a step on elements computes one


class Untraceable(Exception):
    """A rule that does something which steps cannot say."""


class Traced:
    """A value while rules are recorded. `root` is the value whose memory it shows, if it is a view."""

    __slots__ = ("recorder", "number", "shape", "dtype", "weak", "root")

    def __init__(self, recorder, number, shape, dtype, weak=False, root=None):
        self.recorder, self.number, self.shape, self.dtype, self.weak = recorder, number, shape, dtype, weak
        self.root = self if root is None else root

    @property
    def ndim(self):
        return len(self.shape)

    def apply_op(self, op, operands, attributes):
        return self.recorder.apply(op, operands, attributes)


class Recorder:
    """Values and steps in the order in which they were made. The first values are the inputs."""

    def __init__(self, metas, default_dtype):
        self.default_dtype = default_dtype
        self.rest = []  # what comes after the inputs: constants, and None for what steps compute
        self.steps = []  # (function, numbers of its operands, number of its result)
        self.notes = {}  # number of a result -> (op, attributes, types of its operands, shape and type of it)
        self.sizes = []  # elements that the steps compute; those of views compute none
        self.may_warn = False
        self.inputs = []
        self.n_inputs = len(metas)
        for k, m in enumerate(metas):
            self.inputs.append(Traced(self, k, tuple(m.shape), m.dtype, m.weak))

    def apply(self, op, operands, attributes):
        metas = [x if isinstance(x, Traced) else self.meta_of_number(x) for x in operands]
        meta = op.infer(metas, attributes, self.default_dtype)
        if op.kind == "composite" and op.evaluate is None:
            return self._composite(op, operands, attributes)
        types = op.compute_dtype(metas, self.default_dtype)[0] if op.compute_dtype else None
        take = [self._number(x, types and types[k]) for k, x in enumerate(operands)]
        if types:
            # A constant is converted here, once.
            metas = [m if isinstance(m, Traced) else Meta((), d) for m, d in zip(metas, types)]
        is_view = op.kind == "view" or "view" in op.extra
        function = self.function_of(op, metas, dict(attributes), types, meta)
        if not is_view:
            self.count(op, metas, meta)
        out = self._append(function, take, meta, metas[0].root if is_view else None)
        self.notes[out.number] = op, dict(attributes), types, meta
        return out

    def meta_of_number(self, x):
        return number_meta(x)

    def function_of(self, op, metas, attributes, types, meta):
        """What computes a step on arrays."""
        function, may_warn = inner_step(op, metas, attributes, types, meta)
        self.may_warn |= may_warn
        return function

    def count(self, op, metas, meta):
        """A step computes that much."""
        self.sizes.append(work_of(op, metas, meta))

    def constant(self, x, dtype):
        return x if dtype is None else as_type(x, dtype)

    def _append(self, function, take, meta, root):
        into = self._new(None)
        self.steps.append((function, tuple(take), into))
        return Traced(self, into, tuple(meta.shape), meta.dtype, root=root)

    def _composite(self, op, operands, attributes):
        result = op.decompose(*operands, **attributes)
        if not isinstance(result, Traced):
            raise Untraceable
        if any(result is x for x in operands) or result.root is result or "view" in op.extra:
            return result
        # It is no view, though it ended in one: its memory is in row-major order.
        return self._append(contiguous, (result.number,), result, result.root)

    def _number(self, x, dtype):
        if isinstance(x, Traced):
            return x.number
        return self._new(self.constant(x, dtype))

    def _new(self, value):
        self.rest.append(value)
        return self.n_inputs + len(self.rest) - 1

    def is_view(self, number):
        """Whether what a step makes shows memory of another value."""
        op = self.notes[number][0] if number in self.notes else None
        return op is not None and (op.kind == "view" or "view" in op.extra)

    def program(self, results, rule, fewest=None):
        # What sizes are is no question where only the call tells them, and no rule has a program.
        least = 0 if rule is None else self._least()
        return ArrayProgram(self, results, rule, self.fewest() if fewest is None else fewest, least)

    def fewest(self):
        """Of so many elements the steps are worth a program."""
        ops = self._ops()
        return fused.FEWEST_OF_ONE if len(ops) == 1 and _is_native(ops[0]) else fused.FEWEST_ELEMENTS

    def _least(self):
        """The same where native code calls it."""
        ops = self._ops()
        if len(ops) > 1:
            return fused.FEWEST_IN_NATIVE_CODE
        shapes = [x.shape for x in self.inputs]
        return max((least_of(op, shapes, meta.shape) for op, _, _, meta in self.notes.values() if op in ops), default=0)

    def _ops(self):
        return [note[0] for note in self.notes.values() if note[0].kind not in _FREE and "view" not in note[0].extra]


class ArrayProgram:
    """Steps over a list of values: the inputs, then the rest. Each value is let go of after its last use. `fused` and
    `quick` (replay/eager_python.py) are faster ways to the results, if there are any."""

    __slots__ = ("steps", "rest", "results", "may_warn", "fused", "notes", "quick")

    def __init__(self, recorder, results, rule, fewest, least):
        kept, last = {r for r in results if r is not None}, {}
        needed = _needed(recorder.steps, kept)
        for _, take, into in needed:
            last.update(dict.fromkeys(take, into))
        ends = {}
        for number, into in last.items():
            if number not in kept and number >= recorder.n_inputs and recorder.rest[number - recorder.n_inputs] is None:
                ends.setdefault(into, []).append(number)
        self.steps = [(function, take, into, tuple(ends.get(into, ()))) for function, take, into in needed]
        self.rest = recorder.rest
        self.notes = recorder.notes
        self.results = results
        self.may_warn = recorder.may_warn
        self.fused = self.quick = None
        if rule is not None:
            new = tuple(r for r in results if r is not None and r >= recorder.n_inputs)
            read = sorted({k for _, take, _ in needed for k in take if k < recorder.n_inputs})
            # Views are made in no time.
            n_steps = sum(not recorder.is_view(into) for _, _, into in needed)
            found = fused.Fused(rule, new, read, recorder.sizes, fewest, least, n_steps)
            self.fused = found if found.worth else None

    def run(self, inputs):
        """All values, of which `results` are those that count."""
        values = [*inputs, *self.rest]
        if self.fused is not None:
            outputs = self.fused.outputs(inputs)
            if outputs is not None:
                for number, output in zip(self.fused.results, outputs):
                    values[number] = output
                return values
            if self.fused.is_large:
                began = thread_time()
                self._compute(values)
                self.fused.took(thread_time() - began)
                return values
        if self.quick is not None:
            outputs = self.quick.outputs(inputs)
            if outputs is not None:
                for number, output in zip(self.quick.results, outputs):
                    values[number] = output
                return values
        self._compute(values)
        return values

    def _compute(self, values):
        if self.may_warn:
            quietly(self._take_steps, values)
        else:
            self._take_steps(values)

    def _take_steps(self, values):
        for function, take, into, ended in self.steps:
            if len(take) == 2:
                values[into] = function(values[take[0]], values[take[1]])
            else:
                values[into] = function(*[values[k] for k in take])
            for k in ended:
                values[k] = None

    def function(self):
        """The program as a function of its inputs that gives its only result."""
        (result,), run = self.results, self.run
        return lambda *inputs: run(inputs)[result]

    def read(self):
        """Numbers of the values that steps read or that are results."""
        return {k for _, take, _, _ in self.steps for k in take}.union(r for r in self.results if r is not None)


def _needed(steps, kept):
    """The steps that lead to the results, in order."""
    wanted, found = set(kept), []
    for entry in reversed(steps):
        if entry[2] in wanted:
            wanted.update(entry[1])
            found.append(entry)
    return found[::-1]


def _traced(metas, default_dtype, rules):
    recorder = Recorder(metas, default_dtype)
    try:
        return recorder, rules(recorder.inputs)
    except Exception:  # noqa: BLE001 - whatever it is, the rules run on tensors then, and the user sees it there
        return None


def decomposition(op, metas, meta, attributes, default_dtype):
    """(program of a composite, whether its result ends in a view); None if its result may show an operand's memory, or
    is not of the type that the op has said: whoever calls the program has memory for that and no other."""
    has_halves = any(m.dtype.is_half for m in (*metas, meta))
    # Steps with the same result for an op that nothing else shares its pass over memory with.
    alone = op.extra.get("alone")
    if has_halves:
        rules = lambda inputs: _in_float32(op, inputs, attributes, meta)  # noqa: E731
    else:
        rules = lambda inputs: (alone or op.decompose)(*inputs, **attributes)  # noqa: E731
    found = _traced(metas, default_dtype, rules)
    if found is None:
        return None
    recorder, result = found
    if not isinstance(result, Traced) or result in recorder.inputs:
        return None
    if (result.shape, result.dtype) != (meta.shape, meta.dtype):
        return None
    has_rule = not (has_halves or alone or _has_complex((*metas, meta)))
    rule = Rule(op, metas, result, attributes, default_dtype, None) if has_rule else None
    return recorder.program((result.number,), rule), result.root is not result


def _has_complex(metas):
    return any(m.dtype.is_complex for m in metas)


def _in_float32(op, inputs, attributes, meta):
    """A composite of floats of 16 bits, rounded once, as PyTorch computes its own."""
    inputs = [cast(x, dtype=x.dtype.wide) if x.dtype.is_half else x for x in inputs]
    attributes = {k: v.wide if v.__class__ is DType and v.is_half else v for k, v in attributes.items()}
    return cast(op(*inputs, **attributes), dtype=meta.dtype)


def single(op, metas, meta, attributes, default_dtype):
    """The program of a primitive on large operands; None for others."""
    fewest = fewest_of(op)
    most = max(*map(_n_elements, (meta, *metas)), work_of(op, metas, meta))
    is_little = most < min(fewest, least_of(op, [m.shape for m in metas], meta.shape))
    if op.kind in ("view", "source", "library") or is_little or any(m.dtype.is_complex for m in (meta, *metas)):
        return None
    found = _traced(metas, default_dtype, lambda inputs: op(*inputs, **attributes))
    if found is None:
        return None
    recorder, result = found
    rule = Rule(op, metas, meta, attributes, default_dtype, None)
    program = recorder.program((result.number,), rule, fewest)
    return program if program.fused is not None else None


def fewest_of(op):
    """Of so many elements a primitive is worth a program."""
    return fused.FEWEST_OF_ONE if _is_native(op) else fused.FEWEST_ELEMENTS


def least_of(op, shapes, shape):
    """The same where native code calls it: a reduction's own steps do not know how long a row is, and those of
    operands that are spread over short rows take one after the other."""
    is_in_short_rows = (
        op.kind == "elementwise"
        and len(shape) > 1
        and shape[-1] <= _SHORT_ROW
        and any(s != shape and prod(s) > 1 for s in shapes)
    )
    return fused.FEWEST_OF_ONE_IN_ROWS if op.kind == "reduction" or is_in_short_rows else fewest_of(op)


def _is_native(op):
    """Whether native code has steps of its own for the op, one pass over memory as a program would be."""
    return op.kind in fused.NATIVE_KINDS or op.change is not None


def whole(op, metas, meta, attributes, default_dtype):
    """A primitive or composite on operands of any size as an ArrayProgram that a program may run; None if it cannot."""
    if op.kind in ("view", "source", "library"):
        return None
    function = op.decompose if op.kind == "composite" and op.evaluate is None else op
    found = _traced(metas, default_dtype, lambda inputs: function(*inputs, **attributes))
    if found is None or not isinstance(found[1], Traced):
        return None
    recorder, result = found
    program = recorder.program((result.number,), Rule(op, metas, meta, attributes, default_dtype, None), 1)
    return program if program.fused is not None else None


def is_large(metas, fewest=fused.FEWEST_OF_ONE):
    """Whether one of these has so many elements."""
    return any(_n_elements(m) >= fewest for m in metas)


def work_of(op, metas, meta):
    """How many elements a step computes. Of a long product they are counted by its terms; of a short one, which native
    code takes in its stride, they are those that it reads."""
    n_elements = max(_n_elements(m) for m in ((meta, *metas) if op.kind in READING else (meta,)))
    by_terms = _n_elements(meta) * metas[0].shape[-1] // _TERMS if op.kind == "contraction" else 0
    return by_terms if by_terms >= fused.FEWEST_OF_ONE else n_elements


def _n_elements(meta):
    return prod(meta.shape)


def derivative(op, metas, meta, attributes, differentiated, default_dtype):
    """(program of an op's rules, for each operand its root or None); inputs are cotangent, result and operands.

    None if they cannot be recorded. The root is the number of the input that a result shows, as a view.
    """

    def rules(inputs):
        cotangent, out, *operands = inputs
        return [
            vjp(op, k, cotangent, out, operands, attributes) if wanted else None
            for k, wanted in enumerate(differentiated)
        ]

    if any(wanted and is_unknown(op, k) for k, wanted in enumerate(differentiated)):
        # Whether it raises depends on what is asked for.
        return None
    found = _traced((meta, meta, *metas), default_dtype, rules)
    if found is None:
        return None
    recorder, results = found
    if not all(r is None or isinstance(r, Traced) for r in results):
        return None
    roots = [None if r is None or r.root is r else r.root.number for r in results]
    roots = tuple(r if r is not None and r < recorder.n_inputs else None for r in roots)
    numbers = tuple(None if r is None else r.number for r in results)
    # A result that shows an input is no program's; one that is an input need not be computed. None are compiled for
    # floats of 16 bits, whose steps are native code's at once, nor for complex numbers, which have no kernels.
    rule = None
    if not any(m.dtype.is_half or m.dtype.is_complex for m in (meta, *metas)) and not any(
        root is not None and number >= recorder.n_inputs for root, number in zip(roots, numbers) if number is not None
    ):
        computed = tuple(r is not None and r >= recorder.n_inputs for r in numbers)
        rule = Rule(op, metas, meta, attributes, default_dtype, computed)
    return recorder.program(numbers, rule), roots


def rule_program(rule, metas, flags, default_dtype):
    """(program of rule(*operands, **flags), shapes and types of its results, None for none); None if it cannot be
    recorded."""
    found = _traced(metas, default_dtype, lambda inputs: rule(*inputs, **flags))
    if found is None:
        return None
    recorder, results = found
    if not isinstance(results, tuple) or not all(r is None or isinstance(r, Traced) for r in results):
        return None
    return recorder.program(tuple(None if r is None else r.number for r in results), None), results
