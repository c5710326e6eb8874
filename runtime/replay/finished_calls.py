"""What stands for a finished usual call whose backward may come, made in native code; of the subset (docs/native.md).

    make    before the program runs: what the call has read, and which of its results a backward reads where they are
    open    after it: what the program has written, and the versions that a backward compares

`ReplayedCall` of usual_calls.py does the same in Python, and alone where gradients go on to the history of arguments
that neither an eager op nor such a call has made.
"""

import functools
from collections import namedtuple

from ...compiler.translate.kinds import (
    I64,
    Address,
    Bool,
    Dict,
    List,
    Object,
    ObjectKind,
    Rows,
    Struct,
    Tuple,
    offset_of,
)
from ...compiler.translate.language import METHOD, External, cast, keep, native, require
from ..code import translated
from ..code.native_kinds import TensorObject, call_with
from ..code.packing import Packed
from ..eager import node
from ..eager.eager_words import (
    StorageObject,
    is_subtype,
    new_dict,
    new_object,
    new_tuple,
    new_weak_reference,
    next_of,
    set_tuple_item,
    weak_target,
)
from ..state.readers import readers
from ..state.storage import SHARERS_CHECKED, Storage
from . import native as objects
from .object_layout import layout_of_objects, places_of
from .usual_calls import NO_EDGES, ReplayedCall

CALL_FIELDS = (
    "outside", "inputs", "arrays", "outputs", "numbers", "versions", "kept", "sequence", "freed", "frame", "node",
    "late", "again", "edges", "n_derived", "lent",
)  # fmt: skip
CallObject = ObjectKind("FinishedCall", ReplayedCall, {name: (f"call_{name}", Object) for name in CALL_FIELDS})

as_tuple = External("PyList_AsTuple", (List,), Tuple, fails="null", quiet=True, python=tuple)
replace_items = External("PyList_SetSlice", (List, I64, I64, List), I64, quiet=True)
remove_items = External("PyList_SetSlice", (List, I64, I64, Address), I64, quiet=True)


class Inner(Struct):
    """position: among the leaves that get gradients, as an object."""

    position: Object
    number: I64


class Words(Struct):
    """Of one UsualFrame. inside, computed, kept: as in OutsideBackward. inner: those inside that may get gradients.
    made: number -> the array of what was computed before the call read values in its middle."""

    slow_make: Object
    slow_open: Object
    outside: Object
    tensors: List
    outputs: List
    numbers: List
    made: Dict
    inside: Rows(I64)
    computed: Rows(Object)
    inner: Rows(Inner)
    kept: Rows(I64)
    watched: Rows(Object)
    no_edges: Object
    sequence: Object
    readers: List
    zero: Object
    null: Address


@native(form=METHOD, slow="slow_make", name="weft_make_finished")
def make(words: Words) -> Object:
    """A ReplayedCall, which is not open yet."""
    edges = edges_of(words)
    inputs = new_tuple(len(words.inside))
    arrays = new_tuple(len(words.inside) + len(words.computed))
    for k in range(len(words.inside)):
        tensor = words.tensors[words.inside[k]]
        require(tensor is not None)
        set_tuple_item(inputs, k, tensor)
        set_tuple_item(arrays, k, cast(TensorObject, tensor)._data)
    for k in range(len(words.computed)):
        array = words.made.get(words.computed[k])
        require(array is not None)
        set_tuple_item(arrays, len(words.inside) + k, array)
    kept = new_tuple(len(words.kept))
    for k in range(len(words.kept)):
        result = words.tensors[words.kept[k]]
        require(result is not None)
        set_tuple_item(kept, k, storage_of(words, cast(TensorObject, result)))
    call = cast(CallObject, new_object(ReplayedCall, 0))
    call.outside = words.outside
    call.inputs = inputs
    call.arrays = arrays
    call.kept = kept
    call.edges = edges
    call.freed = False
    call.frame = None
    call.node = None
    call.late = None
    call.again = None
    call.lent = None
    call.n_derived = words.zero
    return call


@native()
def edges_of(words: Words) -> Object:
    """Where the gradients of those inside that are no leaves go, by position. All of them are of eager ops, or of other
    finished calls."""
    n_results = 0
    for k in range(len(words.inner)):
        tensor = cast(TensorObject, words.tensors[words.inner[k].number])
        if tensor._node is not None:
            require(is_subtype(type(tensor._node), node.Node) != 0)
        elif tensor._frame is not None:
            require(type(tensor._frame) is ReplayedCall)
        if has_history(tensor):
            require(tensor._requires_grad is True)
            n_results += 1
    if n_results == 0:
        return words.no_edges
    edges = new_dict()
    for k in range(len(words.inner)):
        tensor = cast(TensorObject, keep(words.tensors[words.inner[k].number]))
        if tensor._node is not None:
            edge = new_tuple(2)
            set_tuple_item(edge, 0, tensor._node)
            set_tuple_item(edge, 1, words.zero)
            edges[words.inner[k].position] = edge
        elif has_history(tensor):
            of_result = call_with(node.edge_of, (tensor,), None)
            require(type(of_result) is tuple)
            edges[words.inner[k].position] = of_result
    return edges


@native()
def has_history(tensor: TensorObject) -> Bool:
    return tensor._node is not None or tensor._frame is not None


@native()
def storage_of(words: Words, tensor: TensorObject) -> Object:
    if tensor._storage is None:
        made = cast(StorageObject, new_object(Storage, 0))
        made.version = words.zero
        made.sharers = None
        made.changes = None
        made.exposed = None
        tensor._storage = made
    return tensor._storage


@native(form=METHOD, slow="slow_open", name="weft_open_finished")
def open_made(words: Words, made: Object) -> Object:
    """The program has run."""
    call = cast(CallObject, made)
    inputs = cast(Tuple, call.inputs)
    kept = cast(Tuple, call.kept)
    of_watched = new_tuple(len(words.watched))
    for k in range(len(words.watched)):
        set_tuple_item(of_watched, k, version_of(words, cast(TensorObject, words.watched[k])))
    of_inputs = new_tuple(len(inputs))
    for k in range(len(inputs)):
        set_tuple_item(of_inputs, k, version_of(words, cast(TensorObject, inputs[k])))
    of_kept = new_tuple(len(kept))
    for k in range(len(kept)):
        set_tuple_item(of_kept, k, cast(StorageObject, kept[k]).version)
    call.versions = (of_watched, of_inputs, of_kept)
    call.numbers = as_tuple(words.numbers)
    call.outputs = as_tuple(words.outputs)
    call.sequence = next_of(words.sequence)
    register(words, made)
    remove_items(words.outputs, 0, len(words.outputs), words.null)
    return None


@native()
def version_of(words: Words, tensor: TensorObject) -> Object:
    if tensor._storage is None:
        require(tensor._base is None)
        return words.zero
    return cast(StorageObject, tensor._storage).version


@native()
def register(words: Words, made: Object):
    """Among those who are told of changes that not all would see, without the dead from time to time."""
    known = words.readers
    if len(known) & SHARERS_CHECKED == SHARERS_CHECKED:
        living = []
        for reference in known:
            if weak_target(reference) is not None:
                living.append(reference)
        replace_items(known, 0, len(known), living)
    known.append(new_weak_reference(made, words.null))


# --- making one -------------------------------------------------------------------------------------------------------
class NativeEnd:
    """make() and open(call) for the calls of one UsualFrame."""

    def __init__(self, frame, slow_open):
        outside = frame.outside
        words = Words(
            slow_make=_not_made,
            slow_open=slow_open,
            outside=outside,
            tensors=frame.tensors,
            outputs=frame.outputs,
            numbers=frame.numbers,
            made=frame.arrays,
            inside=outside.inside,
            computed=outside.computed,
            inner=[Inner(position=k, number=outside.inside[place]) for k, place in outside.inner],
            kept=list(outside.kept),
            watched=outside.watched,
            no_edges=NO_EDGES,
            sequence=node._sequence,
            readers=readers,
            zero=0,
        )
        packed = Packed(words)
        code = _code()
        self.functions = [
            objects.builtin(objects.definition_of(name, code.address(f"weft_{name}")), packed.words)
            for name in ("make_finished", "open_finished")
        ]
        self._held, self._words = [packed, code, outside], packed.words

    def take_outside(self, outside):
        """What calls have for `outside` from now on."""
        self._words[_OUTSIDE] = id(outside)
        self._held[-1] = outside


_OUTSIDE = offset_of(Words, "outside") // 8


def _not_made():
    """Python makes it."""
    return None


def layout_of_calls(layout):
    """That of eager mode's objects, with the fields of finished calls."""
    places = layout._asdict() | places_of(ReplayedCall, CALL_FIELDS, "call")
    return namedtuple("CallLayout", places)(**places)


def part(layout):
    """What is translated: its name, functions and layout."""
    return "finished", [make, open_made], layout_of_calls(layout)


@functools.cache
def _code():
    return translated.load(*part(layout_of_objects()))
