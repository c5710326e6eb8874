"""Eager mode in native code: from the first plan that is used often on, calling an op goes to eager_call.py.

A plan whose op has steps (eager_steps.py) becomes a Routine in a table that native code looks into. Without a known
layout of objects, or with WEFT_NATIVE_REPLAY=0, nothing of this happens, and Python does all.
"""

import ctypes
import functools
import os
import threading
from collections import deque
from math import prod

import numpy as np

from ...compiler.ops.source import full
from ...compiler.ops.table import Op
from ...compiler.translate.kinds import offset_of, struct_bytes
from ..code import jit, translated
from ..code.packing import Packed
from ..eager import (
    eager_backward,
    eager_call,
    eager_cut,
    eager_equal,
    eager_inplace,
    eager_lent,
    eager_matching,
    eager_reach,
    eager_updates,
    eager_zeros,
    engine,
    gate,
    reach,
    update,
)
from ..eager.eager_planned import changes_of, is_numpys, steps_of, view_of
from ..eager.eager_rules import update_of
from ..eager.eager_steps import MOST_ELEMENTS, NoSteps
from ..eager.eager_words import (
    LIMITS,
    MIXED,
    MOST_TOLD_APART,
    N_OPEN,
    N_PLANS,
    PLACES,
    Attribute,
    Open,
    Routine,
    Update,
    Words,
    this_thread,
)
from ..eager.open_nodes import ATTEMPTS_BEFORE_REFUSAL
from ..programs.large import some_results
from ..state import marks
from ..state.exposure import set_native_show
from ..state.marks import calls as own_calls
from ..state.modes import state
from ..state.tensor import set_native_apply, set_native_lend
from . import (
    eager_python,
    native,
    native_functions,
    native_layout,
    native_tensors,
    native_values,
    native_words,
    open_derivatives,
    open_plans,
)
from .eager_derivatives import NativeDerivative
from .eager_facts import first_words, operand, row, tried, view
from .eager_hash import hash_of_plan
from .eager_programs import facts_of, is_by_element, lent_to, program_of, program_of_few
from .object_layout import layout_of_objects, places_of
from .open_large import NotYet

CALLS_BETWEEN = 8  # of a plan that departs, before it is looked at again
CALLS_BETWEEN_REFUSALS = 64  # where it is Python's for now
_MOST_LAYOUTS = 8  # of the operands of one plan
_RETIRED = 256
_FUNCTIONS = [
    eager_call.call,
    eager_call.apply,
    eager_inplace.change,
    eager_inplace.clear,
    eager_lent.lend,
    eager_lent.show,
    eager_lent.data,
    eager_equal.equal,
    eager_cut.cut,
    eager_zeros.zeros,
    eager_backward.sweep,
    eager_reach.reach,
    eager_updates.update,
]
_installed = []  # the words that native code reads, once there is such code
_held = []  # what the words are the addresses of
_update, _modes = None, []  # the builtin that updates a row; the modes that native code knows
_noting = threading.RLock()  # who tells it of others
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_noting._at_fork_reinit)
_in_table = {}  # place in the table -> what stands there
_retired = deque(maxlen=_RETIRED)  # a call may be in a routine that something takes out of the table meanwhile


# --- installing -------------------------------------------------------------------------------------------------------
def part(layout):
    """What is translated: its name, functions and layout."""
    return "eager", _FUNCTIONS, layout


def install():
    """Calling an op goes to native code from now on. Returns the words that it reads; None if there is no such code."""
    if not _installed:
        # One thread alone: what a second one would put in the way of the class of tensors is there already.
        with jit.compiling:
            words = _installed[0] if _installed else _install()
            if words is None:
                return None  # this time: it costs little to ask again
            _installed[:] = [words]
    return _installed[0]


def _install():
    layout = layout_of_objects()
    if layout is None:
        return None
    # Calls of ops are first asked of what replays them, if there is a call to be replayed.
    replay = native.install()
    if Op.__call__ is not native._wrappers.get("call_op"):
        return None
    eager_call.call_op = own_calls["call_op"][1]
    code = translated.load(*part(layout))
    address = code.struct_address("weft.runtime.eager.eager_call:WORDS")
    words = (ctypes.c_int64 * (struct_bytes(Words) // 8)).from_address(address)
    packed = Packed(first_words(address, ctypes.addressof(replay) + 8 * native_words.ACTIVE))
    plans = offset_of(Words, "plans") // 8
    packed.words[plans : plans + N_PLANS] = _nothing().address
    first = offset_of(Words, "open") // 8
    packed.words[first : first + N_OPEN] = _nothing_open().address
    words[:] = packed.words.tolist()
    _held.extend((code, packed))
    _note_thread()
    engine.set_native_sweep(_builtin("sweep", code.address("weft_eager_sweep"), words))
    reach.set_native_reach(_builtin("reach", code.address("weft_eager_reach"), words))
    global _update
    _update = _builtin("update", code.address("weft_eager_update"), words)
    set_native_apply(_builtin("apply", code.address("weft_eager_apply"), words))
    set_native_lend(_builtin("lend", code.address("weft_eager_lend"), words))
    set_native_show(_builtin("show", code.address("weft_eager_show"), words))
    native_values.install_data(_builtin("data", code.address("weft_eager_data"), words))
    marks.zeros = _builtin("zeros", code.address("weft_eager_zeros"), words)
    marks.cut = _builtin("cut", code.address("weft_eager_cut"), words)
    marks.are_equal = _builtin("equal", code.address("weft_eager_equal"), words)
    gate.set_native_change(_builtin("change", code.address("weft_eager_inplace"), words))
    gate.set_native_clear(_builtin("clear", code.address("weft_eager_zero"), words))
    Op.__call__ = native.new_wrapper(Op, native_layout.wrapper_base(), code.address("weft_eager_call"))
    native_tensors.install(layout)
    native_functions.install(layout, words_address())
    native_values.install(layout, words_address())
    return code


def _builtin(name, address, words):
    """A function that has the words for `self`."""
    return native.builtin(native.definition_of(name, address), np.ctypeslib.as_array(words))


@functools.cache
def _nothing():
    """A routine of no op."""
    return Packed(Routine())


@functools.cache
def _nothing_open():
    return Packed(Open(hash=-1))


def _note_thread():
    """Native code knows the modes of one thread at a time: of that in which it was told of a plan last."""
    if _modes and _modes[0] is state.__dict__:
        return
    with _noting:
        before, _modes[:] = _modes[:], [state.__dict__]
        # Both at once: another thread that came between would take these modes for its own.
        words = (ctypes.c_int64 * 2).from_address(words_address() + offset_of(Words, "thread"))
        words[:] = this_thread(), id(_modes[0])
        del before  # until now native code could ask them


def taken(name):
    """How many calls of ops, or nodes, native code has done so far: "calls_taken" or "nodes_taken"."""
    return ctypes.c_int64.from_address(words_address() + offset_of(Words, name)).value if _held else 0


def _put_word(offset, value):
    ctypes.c_int64.from_address(words_address() + offset).value = value


def words_address():
    return _held[0].struct_address("weft.runtime.eager.eager_call:WORDS")


def let_run(kind, function):
    """Nodes of this class are run by function(node, what has arrived, retain_graph), which gives a list or None."""
    known = layout_of_objects()._asdict()
    if any(known[name] != place for name, place in places_of(kind, ("edges", "sequence"), "node").items()):
        return
    _held.extend((kind, function))
    _put_word(offset_of(Words, "run_late"), id(function))
    _put_word(offset_of(Words, "late_kind"), id(kind))


# --- the table --------------------------------------------------------------------------------------------------------
class _Native:
    """What native code knows of a plan on operands that lie in memory in these ways (`_layout_of`). `rows` are those of
    nodes, by which operands require gradients."""

    def __init__(self, plan, layouts, few):
        self.builder, (steps, fixed), self.hash = None, ((), ()), hash_of_plan(plan, layouts)
        shown = view_of(plan, layouts) if plan.shows == "operand" else None
        self.program, facts, refusal = program_of(plan, layouts, few), {}, None
        if self.program is not None:
            facts = facts_of(self.program, plan.meta, words_address() + offset_of(Words, "numbers"))
        elif shown is None:
            (self.builder, (steps, fixed)), refusal = tried(steps_of, plan, layouts)
            if refusal is not None and is_numpys(plan):
                facts, refusal = {"run": self._holding(plan.run)}, None
        if shown is None:
            facts |= self._changes(plan, layouts, refusal) if "run" not in facts else {}
            if self.builder is not None and prod(plan.meta.shape) >= MOST_ELEMENTS:
                facts["kept"] = some_results(plan.meta.shape, plan.meta.dtype.numpy)
            # What looks at indices may find one that is Python's business.
            is_sure = all(s.kind != LIMITS for s in steps) and "run" not in facts
            facts["is_for_all"] = plan.op is full
            facts["is_sure"] = is_sure and refusal is None and plan.op.kind in ("elementwise", "source", "movement")
        # An element of a result that is computed of the same elements only.
        result = plan.meta if plan.op.kind == "elementwise" else None
        shape = np.array(plan.meta.shape, np.int64)
        self.view = view(plan.meta, *(shown or ((), 0, 0)))
        routine = Routine(
            op=plan.op,
            hash=self.hash,
            default_dtype=plan.default_dtype,
            operands=[operand(*one, self.builder, result) for one in zip(plan.metas, plan.kinds, layouts)],
            attributes=[Attribute(name=name, value=value) for name, value in plan.attributes.items()],
            node_attributes=plan.attributes,
            steps=steps,
            fixed=fixed,
            dtype=plan.meta.dtype.numpy,
            ndim=len(shape),
            shape=shape.ctypes.data,
            n_bytes=prod(plan.meta.shape) * plan.meta.dtype.size_bytes,
            is_view=shown is not None,
            view=self.view[0],
            is_floating=plan.is_floating,
            nodes=[open_plans.WITHOUT_NODE.address] + [open_plans.UNKNOWN_NODE.address] * ((1 << MOST_TOLD_APART) - 1),
            **facts,
        )
        self.shape, self.packed, self.rows = shape, Packed(routine), {}
        self.is_waiting = self.builder is not None and self.waits(plan, layouts)

    def waits(self, plan, layouts):
        """Whether the steps are taken until there is a program, which Python is asked for after some calls."""
        at = offset_of(Routine, "lent") // 8
        if not self.packed.words[at]:
            self.packed.words[at] = lent_to(plan, layouts)
        self.is_waiting = self.packed.words[at] != 0
        return self.is_waiting

    def _holding(self, run):
        """The function, after which native code can go on with what it has begun: other threads may have taken it out
        of the table meanwhile."""

        def run_and_hold(*arrays):
            made = run(*arrays)
            _retired.append(self)
            return made

        return run_and_hold

    def _changes(self, plan, layouts, refusal):
        """What is known of writing the result over the first operand. If that is refused too, so is the plan."""
        if self.program is not None and layouts[0] is None and is_by_element(plan):
            return {"overwrites": (plan.metas[0].shape, plan.metas[0].dtype) == (plan.meta.shape, plan.meta.dtype)}
        try:
            self.changing, changes, fixed = changes_of(plan, layouts)
        except NoSteps:
            if refusal is not None:
                raise NoSteps(refusal) from None
            return {}
        return {"has_changes": True, "only_changes": refusal is not None, "changes": changes, "fixed_in_changes": fixed}

    def add_row(self, plan, requires):
        """A node is made where these operands require gradients; or none, if no gradient flows to them."""
        recording = plan.recordings.get(requires)
        if requires in self.rows or recording is None:
            return
        self.rows[requires] = packed = Packed(row(plan, recording)) if recording else open_plans.WITHOUT_NODE
        at = eager_matching.row_of(requires, len(plan.metas))
        if len(plan.metas) > MOST_TOLD_APART and at == MIXED:
            return
        place = self.packed.address + offset_of(Routine, "nodes") + 8 * at
        ctypes.c_int64.from_address(place).value = packed.address


def _layout_of(x):
    """Strides of an array that is not row-major."""
    return None if not isinstance(x, np.ndarray) or x.flags.c_contiguous else x.strides


def take_over_derivative(recording, cotangent):
    """Native code runs the nodes of a recording from now on if it can, for cotangents that lie like this one. Returns
    after how many nodes of Python's to ask again, 0 for never."""
    layout = _layout_of(cotangent)
    if install() is None:
        eager_python.use_for_derivative(recording)
        return 0
    if len(recording.held) == _MOST_LAYOUTS:
        return 0
    fused, before = recording.derivative[0].fused, recording.held.get(layout)
    is_waiting = layout is None and fused is not None and not fused.is_large and not fused.programs
    if layout in recording.held:
        if before is None or not is_waiting:
            return CALLS_BETWEEN
        if before.waits(fused):
            return 1
        if not fused.programs:
            return CALLS_BETWEEN
    if fused is not None and fused.is_large and not fused.programs:
        return CALLS_BETWEEN  # there may be one later
    recording.held[layout] = before
    try:
        made = NativeDerivative(recording, layout, words_address() + offset_of(Words, "numbers"))
    except NoSteps:
        return CALLS_BETWEEN
    if before is not None:
        _retired.append(before)
    recording.held[layout] = made
    known = [one for one in recording.held.values() if one is not None]
    for one, following in zip(known, known[1:]):
        one.followed_by(following)
    recording.native = known[0].packed.words
    return 1 if is_waiting and before is None and made.waits(fused) else CALLS_BETWEEN


def take_over_open(op, arrays, attributes, default_dtype, requires, asked):
    """Native code knows one plan for such calls and others with other sizes from now on, if there can be one."""
    if install() is None:
        return
    varied, _ = asked
    try:
        open_plans.made(_open_table(), op, arrays, attributes, default_dtype, requires, varied)
    except NotYet:
        varied.wait()
        return
    except Exception as error:  # noqa: BLE001 - rules that ask too much of sizes raise what they like: exact plans know them
        varied.refusal = f"{type(error).__name__}: {error}"
        return
    _note_thread()


def take_over_open_derivative(derivative, numbers, array):
    """The same of the derivative of nodes."""
    try:
        made = derivative.make(numbers, array)
    except NotYet:
        derivative.wait()
        return
    except Exception:  # noqa: BLE001
        if not derivative.made and derivative.attempts >= ATTEMPTS_BEFORE_REFUSAL:
            derivative.refused()
        return
    derivative.made.append(made)
    open_derivatives.chained(derivative.made)
    derivative.native = derivative.made[0].words


@functools.cache
def _open_table():
    return open_plans.Table(words_address())


def take_over_update(program, metas):
    """What native code knows of the rule for such a row; None if it cannot do it."""
    if install() is None:
        return None
    try:
        builder, fields = update_of(program, metas)
    except NoSteps:
        return None
    packed = Packed(Update(given=[operand(m, None) for m in metas if not m.weak], **fields))
    update.set_native(_update)
    # Both hold the memory.
    return _Update(packed, builder)


class _Update:
    """`words` are what native code reads."""

    def __init__(self, packed, builder):
        self.packed, self.builder = packed, builder
        self.words = packed.words


class _Refusal:
    """Why a plan is Python's, and for how many calls it was."""

    def __init__(self, reason):
        self.reason, self.n_calls = str(reason), 0


def take_over(plan, requires, arrays):
    """Native code knows the plan from now on, if it can, for operands that lie in memory like these. Returns after how
    many calls to ask again, 0 for never."""
    layouts = tuple(map(_layout_of, arrays))
    if plan.native is None:
        plan.native = {}
    known, few, before = plan.native.get(layouts), None, None
    if isinstance(known, _Refusal):
        known.n_calls += CALLS_BETWEEN_REFUSALS
        if not any(layouts):
            few = program_of_few(plan, known.n_calls)
        if program_of(plan, layouts, few) is not None:
            # It was refused before there was one.
            del plan.native[layouts]
            known = None
    elif known is not None and known.is_waiting and not known.waits(plan, layouts) and program_of(plan, layouts):
        # The steps were taken until there was one.
        before, known = plan.native.pop(layouts), None
    if known is None:
        if install() is None:
            eager_python.use_for_plan(plan)
            return 0
        if len(plan.native) == _MOST_LAYOUTS:
            return 0
        try:
            known = _Native(plan, layouts, few)
        except NoSteps as reason:
            known = _Refusal(reason)  # not the exception: its traceback would keep the operands alive
        plan.native[layouts] = known
    if isinstance(known, _Refusal):
        return CALLS_BETWEEN_REFUSALS
    _note_thread()
    known.add_row(plan, requires)
    if before is None:
        _put_into_table(known)
    else:
        _put_in_place_of(before, known)
    return 1 if known.is_waiting else CALLS_BETWEEN


def _put_into_table(routine):
    first = routine.hash & (N_PLANS - PLACES)
    places = range(first, first + PLACES)
    held = [_in_table.get(at) for at in places]
    if routine in held:
        return
    # One that is out again after a while comes back; of many that are asked for in turns, most stay.
    for at, moved in zip(places, [routine, *held[: held.index(None) if None in held else -1]]):
        _set_place(at, moved)


def _put_in_place_of(before, routine):
    for at, one in [*_in_table.items()]:
        if one is before:
            _set_place(at, routine)
    _put_into_table(routine)


def _set_place(at, routine):
    if at in _in_table:
        _retired.append(_in_table[at])
    _put_word(offset_of(Words, "plans") + 8 * at, routine.packed.address)
    _in_table[at] = routine
