"""Eager mode in native code: from the first plan that is used often on, calling an op goes to eager_call.py.

A plan whose op has steps (eager_steps.py) becomes a Routine in a table that native code looks into. Without a known
layout of objects, or with WEFT_NATIVE_REPLAY=0, nothing of this happens, and Python does all.
"""

import ctypes
import functools
from collections import deque, namedtuple

import numpy as np

from ...compiler.ops.table import Op
from ...compiler.translate.kinds import offset_of, struct_bytes
from ..code import translated
from ..code.packing import Packed
from ..eager import eager_backward, eager_call, eager_updates, engine, node
from ..eager.eager_steps import NoSteps, derivative_of, steps_of, update_of, view_of
from ..eager.eager_words import (
    COTANGENT,
    HASH_MASK,
    KEPT_AS_IT_IS,
    KEPT_AS_SHAPE,
    LEAF_FIELDS,
    MOST_OPERANDS,
    N_PLANS,
    NO_RESULT,
    NODE_FIELDS,
    SAVED,
    Attribute,
    Derivative,
    Given,
    Made,
    NodeRow,
    Operand,
    Routine,
    Update,
    Words,
    this_thread,
)
from ..state.modes import state
from ..state.size import Size
from ..state.tensor import Storage
from . import native, native_text

CALLS_BETWEEN = 8  # of a plan that departs, before it is looked at again
_RETIRED = 256
_installed = []  # the words that native code reads, or None, once that is known
_held = []  # what the words are the addresses of
_update = None  # the builtin that updates a row
_modes = []  # those that native code knows
_in_table = {}  # place in the table -> what stands there
_retired = deque(maxlen=_RETIRED)  # a call may be in a routine that something takes out of the table meanwhile


# --- layout -----------------------------------------------------------------------------------------------------------
def _layout():
    """That of native.py, with the fields of nodes; None where it is not known."""
    found = native.layout()
    if found is None:
        return None
    places = found._asdict() | _places(node.named(node.Node, "AddBackward0"), NODE_FIELDS, "node")
    places |= _places(node.AccumulateGrad, LEAF_FIELDS, "leaf") | _places(node.Recording, ("native",), "recording")
    places |= {"refcount": 0, "array_strides": found.array_shape + 8} | _places(
        node.Saved, ("tensor", "version"), "saved"
    )
    places |= _places(Storage, ("version", "sharers", "changes", "exposed"), "storage")
    return namedtuple("EagerLayout", places)(**places)


def _places(kind, names, stem):
    """Where the slots of a class are, each found by looking for a known value."""
    made = object.__new__(kind)
    values = {name: object() for name in names}
    for name, value in values.items():
        setattr(made, name, value)
    return {f"{stem}_{name}": native._place(made, id(value)) for name, value in values.items()}


# --- installing -------------------------------------------------------------------------------------------------------
def install():
    """Calling an op goes to native code from now on. Returns the words that it reads; None if there is no such code."""
    if not _installed:
        _installed.append(_install())
    return _installed[0]


def _install():
    layout = _layout()
    if layout is None:
        return None
    # Calls of ops are first asked of what replays them, if there is a call to be replayed.
    replay = native.install()
    if Op.__call__ is not native._wrappers.get("call_op"):
        return None
    eager_call.call_op = native._callable_classes["call_op"][1]
    code = translated.load("eager", [eager_call.call, eager_backward.sweep, eager_updates.update], layout)
    address = code.struct_address("weft.runtime.eager.eager_call:WORDS")
    words = (ctypes.c_int64 * (struct_bytes(Words) // 8)).from_address(address)
    packed = Packed(_first_words(address, ctypes.addressof(replay) + 8 * native_text.ACTIVE))
    words[:] = packed.words.tolist()
    _held.extend((code, packed))
    _note_thread()
    engine.set_native_sweep(_builtin("sweep", code.address("weft_eager_sweep"), words))
    global _update
    _update = _builtin("update", code.address("weft_eager_update"), words)
    Op.__call__ = native._new_wrapper(Op, native._wrapper_base(), code.address("weft_eager_call"))
    return code


def _builtin(name, address, words):
    """A function that has the words for `self`."""
    definition = native._MethodDef(name.encode(), address, native._METH_FASTCALL, None)
    array = np.ctypeslib.as_array(words)
    _held.append((definition, array))
    return native._new_builtin(ctypes.byref(definition), array, None)


def _first_words(address, replaying):
    return Words(
        slow_sweep=engine.sweep_in_python,
        slow_update=eager_updates.not_updated,
        replaying=replaying,
        replay=native._library().address("weft_call_op"),
        grad_enabled=type(state).grad_enabled,
        default_dtype=type(state).default_dtype,
        zero=0,
        minus_one=-1,
        sequence=node._sequence,
        no_edges=(),
        array_class=np.ndarray,
        new_array=native._new_array_address(),
        new_view=native._new_array_address(),
        set_base=_set_base_address(),
        numbers_at=address + offset_of(Words, "numbers"),
        plans=[_nothing().address] * N_PLANS,
    )


def _set_base_address():
    """PyArray_SetBaseObject has place 282 in NumPy's table, where native.py finds what makes arrays."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    core = getattr(np, "_core", None) or np.core  # NumPy 1 has no _core
    return (ctypes.c_size_t * 283).from_address(get(core.multiarray._ARRAY_API, None))[282]


@functools.cache
def _nothing():
    """A routine of no op."""
    return Packed(Routine())


@functools.cache
def _no_row():
    """What is known of nodes before one was made."""
    return Packed(NodeRow())


@functools.cache
def _without_node():
    return Packed(NodeRow(is_known=True))


def _note_thread():
    """Native code knows the modes of one thread at a time: of that in which it was told of a plan last."""
    if _modes and _modes[0] is state.__dict__:
        return
    _modes[:] = [state.__dict__]
    _put_word(offset_of(Words, "modes"), id(_modes[0]))
    _put_word(offset_of(Words, "thread"), this_thread())


def taken(name):
    """How many calls of ops, or nodes, native code has done so far: "calls_taken" or "nodes_taken"."""
    return ctypes.c_int64.from_address(_words_address() + offset_of(Words, name)).value if _held else 0


def _put_word(offset, value):
    ctypes.c_int64.from_address(_words_address() + offset).value = value


def _words_address():
    return _held[0].struct_address("weft.runtime.eager.eager_call:WORDS")


# --- the table --------------------------------------------------------------------------------------------------------
class _Native:
    """What native code knows of a plan. `rows` are those of nodes, by which operands require gradients."""

    def __init__(self, plan):
        self.builder, (steps, fixed), (strides, offset, flags) = None, ((), ()), (None, 0, 0)
        if plan.shows == "operand":
            strides, offset, flags = view_of(plan)
        else:
            self.builder, (steps, fixed) = steps_of(plan)
        shape, self.strides = np.array(plan.meta.shape, np.int64), np.array(strides or (), np.int64)
        routine = Routine(
            op=plan.op,
            default_dtype=plan.default_dtype,
            operands=[_operand(m, kind) for m, kind in zip(plan.metas, plan.kinds)],
            attributes=[Attribute(name=name, value=value) for name, value in plan.attributes.items()],
            node_attributes=plan.attributes,
            steps=steps,
            fixed=fixed,
            dtype=plan.meta.dtype.numpy,
            ndim=len(shape),
            shape=shape.ctypes.data,
            is_view=strides is not None,
            strides=self.strides.ctypes.data,
            offset=offset,
            kept_flags=flags,
            is_floating=plan.is_floating,
            nodes=[_without_node().address] + [_no_row().address] * ((1 << MOST_OPERANDS) - 1),
        )
        self.shape, self.packed, self.rows = shape, Packed(routine), {}

    def add_row(self, plan, requires):
        """A node is made where these operands require gradients; or none, if no gradient flows to them."""
        recording = plan.recordings.get(requires)
        if requires in self.rows or recording is None:
            return
        row = Packed(_row(plan, recording)) if recording else _without_node()
        self.rows[requires] = row
        place = self.packed.address + offset_of(Routine, "nodes") + 8 * requires
        ctypes.c_int64.from_address(place).value = row.address


def _operand(meta, kind):
    if meta.weak:
        return Operand(kind=kind, is_number=True)
    return Operand(kind=meta.dtype.numpy, shape=meta.shape)


def _row(plan, recording):
    kept = [
        SAVED if k in recording.saved else KEPT_AS_IT_IS if shape is None else KEPT_AS_SHAPE
        for k, shape in enumerate(recording.released)
    ]
    return NodeRow(
        is_known=True,
        makes_node=True,
        kind=recording.kind,
        meta=plan.meta,
        recording=recording,
        differentiated=list(map(int, recording.differentiated)),
        kept=kept,
        shapes=list(recording.released),
        reads_out=recording.reads_out,
    )


def take_over_derivative(recording):
    """Native code runs the nodes of a recording from now on, if it can."""
    if install() is None:
        return
    try:
        builder, (steps, fixed), new = derivative_of(recording)
        spread, spread_at = builder.spread(recording.plan.meta)
    except NoSteps:
        return
    plan, results = recording.plan, recording.derivative[0].results
    metas = plan.meta, plan.meta, *plan.metas
    made = [_made(builder, builder.values[number]) for number in new]
    packed = Packed(
        Derivative(
            given=[_given(builder, k, m, kind) for k, (m, kind) in enumerate(zip(metas, (None, None, *plan.kinds)))],
            steps=steps,
            fixed=fixed,
            made=made,
            results=[NO_RESULT if r is None else COTANGENT if r == 0 else new.index(r) for r in results],
            has_saved=recording.has_saved,
            released=list(recording.released),
            spread=spread,
            spread_at=spread_at,
        )
    )
    recording.held, recording.native = (packed, builder), packed.words


def _given(builder, k, meta, kind):
    is_read = k == 0 or builder.reads(k)
    return Given(is_read=is_read, what=_operand(meta, kind))


def _made(builder, value):
    shape = np.array(value.shape, np.int64)
    builder.held.append(shape)
    return Made(dtype=value.dtype.numpy, ndim=len(shape), shape=shape.ctypes.data)


def take_over_update(program, metas):
    """A function (row, numbers) that updates a row of tensors by a rule, and says whether it did; None if native code
    cannot."""
    if install() is None:
        return None
    try:
        builder, steps, fixed, written = update_of(program, metas)
    except NoSteps:
        return None
    given = [_operand(m, None) for m in metas if not m.weak]
    packed = Packed(Update(given=given, written=written, steps=steps, fixed=fixed))
    # Both hold the memory.
    return _Update(packed, builder)


class _Update:
    def __init__(self, packed, builder):
        self.packed, self.builder = packed, builder
        self.words = packed.words

    def __call__(self, row, numbers):
        return _update(self.words, row, numbers)


def take_over(plan, requires):
    """Native code knows the plan from now on, if it can. Returns after how many calls to ask again, 0 for never."""
    if plan.native is None:
        if install() is None:
            return 0
        try:
            plan.native = _Native(plan)
        except NoSteps as reason:
            # Not the exception: its traceback would keep the operands alive.
            plan.native = str(reason)
            return 0
    _note_thread()
    plan.native.add_row(plan, requires)
    _put_into_table(plan)
    return CALLS_BETWEEN


def _put_into_table(plan):
    at = _hash(plan) & (N_PLANS - 1)
    if plan.native in (_in_table.get(at), _in_table.get(at ^ 1)):
        return
    if _in_table.get(at) is None:
        _set_place(at, plan.native)
    elif _in_table.get(at ^ 1) is None:
        _set_place(at ^ 1, plan.native)
    else:
        _set_place(at ^ 1, _in_table[at])
        _set_place(at, plan.native)


def _set_place(at, routine):
    if at in _in_table:
        _retired.append(_in_table[at])
    _put_word(offset_of(Words, "plans") + 8 * at, (_nothing() if routine is None else routine.packed).address)
    _in_table[at] = routine


def _hash(plan):
    """The same as `hash_of` of eager_call.py."""
    h = id(plan.op) >> 4
    for m in plan.metas:
        if not m.weak:
            for word in (id(m.dtype.numpy) >> 4, *m.shape):
                h = (h * 31 + word) & HASH_MASK
    for value in plan.attributes.values():
        h = _hash_with_value(h, value)
    return h ^ (h >> 11)


def _hash_with_value(h, x):
    if type(x) is int:
        return (h * 31 + (hash(x) & HASH_MASK)) & HASH_MASK
    if type(x) is tuple or type(x) is Size:
        for item in x:
            h = _hash_with_value(h, item)
    return h
