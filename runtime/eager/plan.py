"""What is found once for an op on operands of some types and shapes, and then looked up: which way eager mode takes.

    key: op, default type, for each operand type and shape (or what number it is), attributes --> Plan

A plan is made when its key is asked for the second time: shapes that never come again cost nothing but the question.
"""

from functools import partial
from math import prod

from ...compiler.dtypes import DType
from ...compiler.later import later
from ...compiler.ops.kinds import number_meta, refuse_complex
from ...compiler.ops.table import Meta
from ...compiler.ops.view import clone, data
from ..state.exposure import set_native_show
from ..state.modes import state
from ..state.size import Size
from ..state.tensor import dtype_of, set_native_lend
from . import varied

_decomposition = later("runtime.programs.array_program:decomposition")
_single = later("runtime.programs.array_program:single")
_forget_fused = later("runtime.programs.fused:forget")
_serves_fused = later("runtime.programs.fused:serves")
_step = later("runtime.programs.steps:step")
_told = later("runtime.eager.telling:told")
_MOST_PLANS = 8192
_LARGE = 1 << 17
_MANY_OPERANDS = 64  # of a composite that a function of NumPy's makes at once, where each is a step
CALLS_BEFORE_NATIVE = 8
CONVERSIONS_BEFORE_NATIVE = 64
_plans = {}
_asked = set()
_unplanned = set()  # keys of complex numbers for which there is no plan
_told_of = {}  # (op, Plan or Recording) -> how many of them have asked to be told to native code
_FEW_SHAPES, _CALLS_OF_MANY = 32, 3
_WHOLE = frozenset((int,))
_PLAIN = frozenset((type(None), bool, int, str, DType))
_BUSY = object()


def is_view_op(op):
    """Whether results of the op may show the memory of its operand."""
    return op.kind == "view" or "view" in op.extra


class Plan:
    """How an op runs on such operands.

    `run(*arrays)` computes the result; `steps` are (what computes it in one call, what makes its array, shape, type)
    where eager_python.py knows how. `shows` says whether it may show memory of the operands: "operand" as a view,
    "copy" if what it shows has to be copied unless `steps` made it, None if it does not. `recordings` are the nodes it
    makes, by which of the operands require gradients. `program` is the ArrayProgram of a composite. `left` is how many
    calls are left until native code is told of it, 0 for ever; `native` is what it knows then (eager_native.py).
    `kinds` are the classes of the operands.
    """

    __slots__ = (
        "op", "metas", "meta", "attributes", "default_dtype", "run", "shows", "recordings", "is_floating", "program",
        "left", "kinds", "native", "has_waited", "steps",
    )  # fmt: skip

    def __init__(self, op, arrays, metas, meta, attributes, default_dtype):
        self.kinds = tuple([x.__class__ for x in arrays])
        self.op, self.metas, self.meta, self.attributes = op, metas, meta, attributes
        self.default_dtype = default_dtype
        self.run = self.shows = self.program = self.native = self.steps = None
        # Of hundreds of operands, telling native code takes a tenth of a second.
        self.left, self.has_waited = CALLS_BEFORE_NATIVE + len(arrays) // 4, False
        self.recordings = {}
        self.is_floating = meta.dtype.is_differentiable


def add_attributes(key, attributes):
    """The key with what tells attributes apart. None if one of them is of no kind that can be told apart."""
    are_whole = True
    for value in attributes.values():
        kind = value.__class__
        if kind is tuple:
            for x in value:
                if x.__class__ is not int and not (x.__class__ is tuple and _WHOLE.issuperset(map(type, x))):
                    return _with_tokens(key, attributes)
        elif kind is not int:
            are_whole = False
            if kind not in _PLAIN:
                return _with_tokens(key, attributes)
    # What most attributes are: equal where they are of the same class. Those of views are integers and tuples of them,
    # or of such tuples.
    return (*key, *attributes.items()) if are_whole else (*key, *attributes.items(), *map(type, attributes.values()))


def _with_tokens(key, attributes):
    tokens = [*map(_token, attributes.values())]
    return None if None in tokens else (*key, *attributes, *tokens)


def _token(value):
    """Equal for values that are alike in kind too: `==` alone takes 2 for 2.0 and 0.0 for -0.0."""
    kind = value.__class__
    if kind is tuple or kind is Size:
        parts = tuple(map(_token, value))
        return None if None in parts else (tuple, *parts)
    if kind is float:
        return float, value if value == value and value != 0.0 else repr(value)
    return (kind, value) if kind in _PLAIN else None


def plan_for(key, op, arrays, attributes, default_dtype, requires=0):
    """The plan of a key, made if it is time; else None. Raises what the op's infer raises of such operands. Bit k of
    `requires` says whether operand k requires gradients."""
    if key in _unplanned:
        return None
    _look_at_sizes(op, arrays, attributes, default_dtype, requires)
    # What changes or shows a part does it at another place next time, and a number may be another one. Of other ops
    # whose second call is like no call before, shapes may be different in every call: computing without a plan takes as
    # long as making one.
    moves = op.change is not None or op.kind == "view"
    asked = key if moves else (op, *[x for x in attributes.values() if x.__class__ is float])
    # A composite of numbers alone has no tensor to run its steps on, but in a plan.
    if op.kind == "composite" and not any(hasattr(x, "dtype") for x in arrays):
        asked = None
    if asked is not None and asked not in _asked and (op.change is not None or not _is_large(arrays)):
        if len(_asked) >= _MOST_PLANS:
            _asked.clear()
        _asked.add(asked)
        return None
    plan = _make(op, arrays, dict(attributes), default_dtype)
    if plan is not None:
        if len(_plans) >= _MOST_PLANS:
            _forget_oldest_half()
        _plans[key] = plan
    elif any(hasattr(x, "dtype") and x.dtype.kind == "c" for x in arrays):
        if len(_unplanned) >= _MOST_PLANS:
            _unplanned.clear()
        _unplanned.add(key)
    return plan


def plan_of(op, arrays, default_dtype):
    """The plan of an op on such arrays, which nobody has asked for yet; None if there is none."""
    return _make(op, arrays, {}, default_dtype)


def _look_at_sizes(op, arrays, attributes, default_dtype, requires):
    """Calls with other numbers every time get one plan, in native code, once some have come."""
    asked = varied.ask(op, arrays, attributes, default_dtype)
    if asked is None:
        return
    told = _told("take_over_open", op, arrays, attributes, default_dtype, requires, asked, busy=_BUSY)
    if told is _BUSY:
        asked[0].left += 1  # no attempt was made


def take_over_open_derivative(derivative, numbers, array):
    """Let native code have the derivative of nodes that tell such numbers, for cotangents that lie like this array."""
    _told("take_over_open_derivative", derivative, numbers, array, busy=None)


def _forget_oldest_half():
    """What goes on being asked for is made anew: dropping all at once would cost a program that needs a few more."""
    for key in list(_plans)[: _MOST_PLANS // 2]:
        _plans.pop(key, None)


def _is_large(arrays):
    """Whether computing takes longer than finding out how."""
    return any(getattr(x, "size", 0) >= _LARGE for x in arrays)


find = _plans.get


def forget():
    """Drop all plans: each is made anew when it is asked for."""
    _plans.clear()
    _asked.clear()
    _unplanned.clear()
    _told_of.clear()
    varied.forget()
    _forget_fused()


def take_over(plan, requires, arrays):
    """Let native code have the plan if it can take it, for operands that lie in memory like these."""
    plan.left = _calls_of_many(plan, plan.op)
    if not plan.left:
        plan.left = _told("take_over", plan, requires, arrays, busy=CALLS_BEFORE_NATIVE)


def take_over_derivative(recording, cotangent):
    """Let native code have the derivative if it can take it, for cotangents that lie in memory like this one."""
    recording.left = _calls_of_many(recording, recording.plan.op)
    if not recording.left:
        recording.left = _told("take_over_derivative", recording, cotangent, busy=CALLS_BEFORE_NATIVE)


def _calls_of_many(asking, op):
    """How many calls more have to come before native code is told of one more plan, or derivative, of an op that comes
    with many shapes. Telling it costs as much as dozens of calls in Python, which of shapes that change from call to
    call may never come."""
    if asking.has_waited:
        return 0
    asking.has_waited = True
    kind = op, asking.__class__
    _told_of[kind] = n = _told_of.get(kind, 0) + 1
    return 0 if n <= _FEW_SHAPES else _CALLS_OF_MANY * (CALLS_BEFORE_NATIVE - 1)


def take_over_update(rule):
    """Let native code have the rule if it can take it."""
    told = _told("take_over_update", rule.program, rule.metas, busy=CALLS_BEFORE_NATIVE)
    if told.__class__ is int:
        rule.left = told
    else:
        rule.native = told


class Conversions:
    """Stands where native code makes arrays of tensors and the reverse, and does nothing. A program may do that in
    every step and have no op outside its compiled calls: when it has been asked often enough, native code comes."""

    __slots__ = ("left",)

    def __init__(self):
        self.left = CONVERSIONS_BEFORE_NATIVE

    def __call__(self, *_):
        self.left -= 1
        if self.left == 0:
            # Not in the middle of a compiled call: then the next one asks.
            found = 1 if state.frame is not None else _told("install", busy=CONVERSIONS_BEFORE_NATIVE)
            self.left = found if found.__class__ is int else 0
        return None


set_native_lend(Conversions())
set_native_show(Conversions())


def read_natively():
    """Have native code read values, and make arrays of tensors, for a compiled function that does so in every call and
    that no op may run besides."""
    _told("install", busy=None)


def _make(op, arrays, attributes, default_dtype):
    metas = tuple([_meta(x) for x in arrays])
    meta = op.infer(metas, attributes, default_dtype)
    plan = Plan(op, arrays, metas, meta, attributes, default_dtype)
    if op.kind == "composite" and op.evaluate is None:
        refuse_complex(op, [m.dtype for m in metas])
        if _is_between_conversions(op, (*metas, meta)):
            return None
        found = _decomposition(op, metas, meta, attributes, default_dtype)
        if found is None:
            return None
        program, is_view = found
        plan.run, plan.program = program.function(), program
        plan.shows = "operand" if is_view_op(op) else "copy" if is_view else None
        at_once = op.extra.get("at_once")
        if at_once is not None and len(metas) > _MANY_OPERANDS and len({m.dtype for m in metas}) == 1:
            plan.run = partial(at_once, **attributes)
        return plan
    if op is data:
        return None
    types = op.compute_dtype(metas, default_dtype)[0] if op.compute_dtype else None
    plan.run, plan.shows = _step(op, metas, attributes, types, meta), "operand" if is_view_op(op) else None
    if plan.shows is None and (program := _single(op, metas, meta, attributes, default_dtype)) is not None:
        plan.run, plan.program = program.function(), program
    if "row-major" in op.traits:
        plan.run = _copying_quickly(op, plan.run, metas[0], attributes, default_dtype)
    if any(m.dtype.is_half for m in metas) and _is_large(arrays):
        # Of what NumPy converts a call takes longer than telling native code, which converts in a fiftieth of the time.
        plan.left = 1
    return plan


def _copying_quickly(op, run, meta, attributes, default_dtype):
    """A view of the elements in their order, where a large operand has to be copied for it: by the program of copies.
    NumPy's copy of a transposed matrix takes eight times as long."""
    copies = _single(clone, (meta,), meta, {}, default_dtype)
    if copies is None:
        return run
    copied, lower = copies.function(), op.lower

    def function(x):
        if not x.flags.c_contiguous and lower(x.shape, x.strides, 0, **attributes) is None:
            x = copied(x)
        return run(x)

    return function


def _is_between_conversions(op, metas):
    """Whether it is a composite of floats of 16 bits whose steps would have no memory for what is between them: the
    program of float32 has (halves.py)."""
    if not any(m.dtype.is_half for m in metas):
        return False
    return is_view_op(op) or _serves_fused(max(prod(m.shape) for m in metas))


def _meta(x):
    return Meta(x.shape, dtype_of(x)) if hasattr(x, "dtype") else number_meta(x)
