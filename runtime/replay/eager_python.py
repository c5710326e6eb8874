"""Steps of native code (eager_steps.py) run from Python, where native code does not know how tensors lie in memory.

An op, a composite or a derivative whose steps are known is one call on arrays (eager_on_arrays.py): of NumPy it needs
only where an array says its elements are. Calling NumPy and kernels one by one (steps.py, array_program.py) costs two
to ten times as much, and gives the same bits.
"""

import ctypes
import functools
from collections import namedtuple

import numpy as np

from ...compiler.translate.kinds import offset_of
from ..code import translated
from ..code.packing import Packed
from ..eager.eager_on_arrays import ARRAY, NARROW, NUMBER, UNREAD, WHOLE, Calls, not_run, run_on_arrays
from ..eager.eager_planned import derivative_of, steps_of
from ..eager.eager_steps import NoSteps
from ..eager.eager_words import Words
from ..eager.saved import Saved
from ..state.aligned import is_large, new_array
from ..state.tensor import tensor_of
from . import native
from .native_layout import NotFound, layout_of_arrays


def use_for_plan(plan):
    """Let an op or a composite run so, if it can."""
    if plan.shows == "operand" or plan.program is not None and _is_programs(plan.program):
        return
    try:
        builder, (steps, fixed) = steps_of(plan, [None] * len(plan.metas))
        call = _call(builder, 1, steps, fixed, plan.kinds)
    except NoSteps:
        return
    made = _made(plan.meta.shape, plan.meta.dtype)
    plan.run, plan.steps = _RUNS.get(len(plan.metas), _run_many)(call, plan.run, *made), (call, *made)


def _is_programs(program):
    """Whether a compiled program takes the steps. Calling one from Python takes longer than those of small operands."""
    if program.fused is not None and not program.fused.is_large:
        program.fused = None
    return program.fused is not None


def use_for_derivative(recording):
    """The same for a derivative."""
    program, roots = recording.derivative
    if _is_programs(program) or recording.is_part:
        return
    if not program.steps and set(program.results) <= {None, 0} and not recording.has_saved:
        recording.quick = _passing_on(recording.plan, [number == 0 for number in program.results])
        return
    if any(root is not None for root in roots):
        return
    try:
        builder, new, shown = derivative_of(recording.plan, recording.derivative[0], None)
        if shown or any(r is not None and r not in new for r in program.results):
            raise NoSteps("results that are no new arrays")
        call = _call(builder, len(new), *builder.finish(new), (None, None, *recording.plan.kinds))
    except NoSteps:
        return
    made = [_made(builder.values[r].shape, builder.values[r].dtype) for r in new]
    program.quick = Quick(call, made, tuple(new))
    recording.quick = _computing(recording, call, made, [None if r is None else new.index(r) for r in program.results])


def _passing_on(plan, are_passed):
    """A derivative that gives some operands what has arrived, and others nothing."""
    shape, dtype = plan.meta.shape, plan.meta.dtype.numpy

    def quick(_, cotangent):
        array = cotangent._data
        if array is None or array.shape != shape or array.dtype is not dtype:
            return None
        return [cotangent if is_passed else None for is_passed in are_passed]

    return quick


def _computing(recording, call, made, places):
    """A derivative that is one call; of operand k its result number places[k]."""
    plan, reads_out = recording.plan, recording.reads_out
    shape, dtype = plan.meta.shape, plan.meta.dtype.numpy
    kept = [(k, plan.metas[k].shape, plan.metas[k].dtype.numpy) for k in recording.saved]
    (make, out_shape, out_dtype), is_one = made[0], places == [0]

    def quick(node, cotangent):
        array = cotangent._data
        if array is None or array.shape != shape or array.dtype is not dtype:
            return None
        given = [array, None, *node.operands]
        for k, its_shape, its_dtype in kept:
            given[k + 2] = array = _array_of(given[k + 2])
            if array is None or array.shape != its_shape or array.dtype is not its_dtype:
                return None
        if reads_out:
            given[1] = array = _array_of(node.out)
            if array is None or array.shape != shape or array.dtype is not dtype:
                return None
        if is_one:
            outputs = [make(out_shape, out_dtype)]
        else:
            outputs = [make(shape, dtype) for make, shape, dtype in made]
        if call((*given, *outputs)) is None:
            # What comes of a sum is one number, shown many times.
            given[0] = given[0].copy()
            if call((*given, *outputs)) is None:
                return None
        return [None if place is None else tensor_of(outputs[place]) for place in places]

    return quick


def _array_of(saved):
    """What a saved tensor has in memory, if that is what was saved."""
    if saved.__class__ is not Saved:
        return None
    tensor = saved.tensor
    storage = tensor._storage
    version = tensor._version if storage is None else storage.version
    return tensor._data if version == saved.version else None


def _made(shape, dtype):
    """(what makes an array for a result, its shape, its type)"""
    return (new_array if is_large(shape, dtype.numpy) else np.empty), shape, dtype.numpy


class Quick:
    """Steps that give several results, new arrays as `made` says; `results` are their numbers in an ArrayProgram."""

    __slots__ = ("call", "made", "results")

    def __init__(self, call, made, results):
        self.call, self.made, self.results = call, made, results

    def outputs(self, inputs):
        """The results; None if the ops have to be run one by one."""
        outputs = [make(shape, dtype) for make, shape, dtype in self.made]
        return None if self.call((*inputs, *outputs)) is None else outputs


# --- functions that run an op, by the number of its operands ---------------------------------------------------------
def _run_one(call, slow, make, shape, dtype):
    def run(x):
        out = make(shape, dtype)
        return slow(x) if call((x, out)) is None else out

    return run


def _run_two(call, slow, make, shape, dtype):
    def run(x, y):
        out = make(shape, dtype)
        return slow(x, y) if call((x, y, out)) is None else out

    return run


def _run_many(call, slow, make, shape, dtype):
    def run(*operands):
        out = make(shape, dtype)
        return slow(*operands) if call((*operands, out)) is None else out

    return run


_RUNS = {1: _run_one, 2: _run_two}


# --- the builtin ------------------------------------------------------------------------------------------------------
def _call(builder, n_results, steps, fixed, classes):
    """A builtin function that runs the steps on (*operands, *results) and returns them, or None if they have to be
    taken one by one. classes: those of operands that are numbers."""
    read = {place.slot for step in steps for place in step.places}
    kinds = [_kind(builder, k, classes[k]) if k in read else UNREAD for k in range(builder.n_given)]
    first = builder.n_given + builder.n_results
    calls = Calls(slow=not_run, kinds=kinds, n_results=n_results, first_fixed=first, steps=steps, fixed=fixed)
    packed = Packed(calls)
    words = packed.words.view(_Held)
    words.held = builder, packed
    return native.builtin(native.definition_of("on_arrays", _code().address("weft_eager_on_arrays")), words)


def _kind(builder, k, number_class):
    if not builder.values[k].is_number:
        return ARRAY
    if number_class is complex:
        raise NoSteps("a complex number")
    if number_class is not int:
        return NUMBER
    return WHOLE if builder.takes_wholes else NARROW if builder.takes_narrow else NUMBER


class _Held(np.ndarray):
    """Words, with what they are the addresses of."""


@functools.cache
def _code():
    try:
        places = layout_of_arrays()
    except NotFound as reason:
        raise NoSteps("arrays that lie in memory in another way") from reason
    code = translated.load("eager on arrays", [run_on_arrays], namedtuple("ArrayLayout", places)(**places))
    address = code.struct_address("weft.runtime.eager.eager_on_arrays:WORDS")
    for name in ("numbers", "wholes"):
        at = ctypes.c_int64.from_address(address + offset_of(Words, f"{name}_at"))
        at.value = address + offset_of(Words, name)
    return code
