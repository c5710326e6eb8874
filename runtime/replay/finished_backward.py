"""The backward of a finished usual call in native code, as `ReplayedCall` of usual_calls.py does it in Python; of the
subset (docs/native.md).

    backward     of all results, into the .grad of the leaves
    gradients    the same for autograd.grad: the gradients are returned
    cotangents   in the middle of a backward pass that has arrived at the call's node

What a call keeps and what is the same in all calls is looked at as there; where anything is different, Python does all.
"""

import functools
from math import prod
from weakref import ref

import numpy as np

from ...compiler.translate.kinds import (
    F64,
    I32,
    I64,
    Address,
    Bool,
    Dict,
    Function,
    List,
    Maybe,
    Object,
    Rows,
    Steals,
    Struct,
    Tuple,
    offset_of,
)
from ...compiler.translate.language import METHOD, External, cast, keep, load_at, native, require
from ..code import translated
from ..code.kernels import address_of
from ..code.native_kinds import TensorObject, as_double, as_long, call_with
from ..code.packing import Packed
from ..eager.eager_call import unheld
from ..eager.eager_nodes import new_storage, new_tensor
from ..eager.eager_sums import add_in_place, can_be_added_in_place
from ..eager.eager_words import ArrayObject, LeafObject, StorageObject, weak_target
from ..eager.eager_words import Words as EagerWords
from ..eager.node import AccumulateGrad, adding
from ..programs.program import _REUSED_COUNT, captures
from ..state.tensor import Tensor
from . import eager_native
from . import native as objects
from .finished_calls import CallObject, layout_of_calls
from .usual_calls import COTANGENT, KNOWN, OUTPUT, ReplayedCall, accumulate

_CONTIGUOUS = 1  # NumPy's flag of arrays

as_bits = External("PyLong_AsUnsignedLongLongMask", (Object,), I64, quiet=True, python=int)


class Source(Struct):
    """An input of the program that differs from call to call: where it is, its word in the table, and what it is."""

    kind: I64
    place: I64
    word: I64
    dtype: Object
    shape: Rows(I64)
    strides: Rows(I64)  # none if it is row-major


class Number(Struct):
    position: I64
    is_float: Bool


class Gradient(Struct):
    """leaf: None if it differs from call to call; then it is in this place. pool: arrays that were made for it."""

    leaf: Object
    place: I64
    dtype: Object
    ndim: I64
    shape: Address
    pool: Object


class Count(Struct):
    value: I64


class Words(Struct):
    """Of one OutsideBackward. present: the numbers of the results; ones: the cotangent of each that has one element."""

    slow_backward: Object
    slow_gradients: Object
    slow_cotangents: Object
    present: Rows(I64)
    ones: Rows(Object)
    watched: Rows(Object)
    sources: Rows(Source)
    gradients: Rows(Gradient)
    positions: Rows(Number)
    numbers_at: I64
    floats: Rows(F64)
    integers: Rows(I64)
    program: Function((Address,), I64)
    table: Rows(I64)
    table_at: Address
    first_output: I64
    arena: Address
    arena_bytes: I64
    count: Count
    nothing: Tuple
    array_class: Object
    new_array: Function((Object, Steals(Object), I32, Address, Address, Address, I32, Address), Maybe(ArrayObject))
    null: Address
    eager: EagerWords


# --- what Python asks -------------------------------------------------------------------------------------------------
@native(form=METHOD, slow="slow_backward", name="weft_finished_backward")
def backward(
    words: Words,
    made: Object,
    outputs: Object,
    cotangents: Object,
    retain_graph: Object,
    create_graph: Object,
    inputs: Object,
) -> Object:
    """Whether backward() of these results has been done."""
    require(inputs is None and create_graph is False and len(cast(List, adding)) == 0)
    found = gradients_of_results(words, made, outputs, cotangents, retain_graph)
    leaves = leaves_of(words, cast(CallObject, made))
    prepare(words, leaves)
    # From here on nothing departs: what has been added cannot be added again.
    if retain_graph is False:
        free(words, cast(CallObject, made))
    for k in range(len(leaves)):
        leaf = cast(TensorObject, leaves[k])
        gradient = cast(TensorObject, found[k])
        if leaf._grad is None:
            leaf._grad = gradient
        elif is_prepared(words, leaf, gradient):
            add_in_place(words.eager, cast(TensorObject, keep(leaf._grad)), gradient)
        else:
            call_with(accumulate, (leaf, gradient), None)
    return True


@native(form=METHOD, slow="slow_gradients", name="weft_finished_gradients")
def gradients(words: Words, made: Object, outputs: Object, cotangents: Object, retain_graph: Object) -> Object:
    """Tensors with the gradients of the leaves."""
    found = gradients_of_results(words, made, outputs, cotangents, retain_graph)
    if retain_graph is False:
        free(words, cast(CallObject, made))
    return found


@native(form=METHOD, slow="slow_cotangents", name="weft_finished_cotangents")
def cotangents_of_leaves(words: Words, made: Object, arrays: Object) -> Object:
    """The same for what has arrived at the node, one row-major array for each result."""
    require(type(arrays) is list and len(cast(List, arrays)) == len(words.present))
    require(is_unchanged(words, cast(CallObject, made)))
    return run(words, cast(CallObject, made), cast(List, arrays))


# --- what is looked at ------------------------------------------------------------------------------------------------
@native()
def gradients_of_results(words: Words, made: Object, outputs: Object, cotangents: Object, retain_graph: Object) -> List:
    require(type(made) is ReplayedCall and type(outputs) is tuple)
    require(retain_graph is False or retain_graph is True)
    call = cast(CallObject, made)
    require(call.frame is None and call.freed is False and len(cast(Dict, call.edges)) == 0)
    require(is_unchanged(words, call))
    for k in range(len(words.gradients)):
        require(has_no_hooks(leaf_of(words, call, k)))
    return run(words, call, cotangents_of(words, made, cast(Tuple, outputs), cotangents))


@native()
def is_unchanged(words: Words, call: CallObject) -> Bool:
    versions = cast(Tuple, call.versions)
    same = True
    for k in range(len(words.watched)):
        same = same and has_version(cast(TensorObject, words.watched[k]), cast(Tuple, versions[0])[k])
    inputs = cast(Tuple, call.inputs)
    for k in range(len(inputs)):
        same = same and has_version(cast(TensorObject, inputs[k]), cast(Tuple, versions[1])[k])
    kept = cast(Tuple, call.kept)
    for k in range(len(kept)):
        same = same and is_version(cast(StorageObject, kept[k]).version, cast(Tuple, versions[2])[k])
    return same


@native()
def has_version(tensor: TensorObject, known: Object) -> Bool:
    if tensor._storage is None:
        return tensor._base is None and as_long(known) == 0
    return is_version(cast(StorageObject, tensor._storage).version, known)


@native()
def is_version(version: Object, known: Object) -> Bool:
    return version is known or as_long(version) == as_long(known)


@native()
def leaf_of(words: Words, call: CallObject, k: I64) -> TensorObject:
    gradient = words.gradients[k]
    if gradient.leaf is None:
        return cast(TensorObject, cast(Tuple, call.inputs)[gradient.place])
    return cast(TensorObject, gradient.leaf)


@native()
def has_no_hooks(leaf: TensorObject) -> Bool:
    if leaf._node is not None or leaf._frame is not None:
        return False
    accumulator = leaf._accumulator
    if accumulator is None:
        return True
    if type(accumulator) is not ref:
        return False
    end = weak_target(accumulator)
    if end is None:
        return True
    if type(end) is not AccumulateGrad:
        return False
    known = cast(LeafObject, end)
    return known.hooks is None and known.pre_hooks is None and known.post_hooks is None


@native()
def cotangents_of(words: Words, made: Object, outputs: Tuple, cotangents: Object) -> List:
    """Their arrays, if these are all results, in the order of their numbers."""
    require(len(outputs) == len(words.present))
    require(cotangents is None or (type(cotangents) is tuple and len(cast(Tuple, cotangents)) == len(outputs)))
    arrays = []
    for k in range(len(outputs)):
        require(type(outputs[k]) is Tensor)
        result = cast(TensorObject, outputs[k])
        require(result._frame is made and result._node is None and as_long(result._vid) == words.present[k])
        if cotangents is None or cast(Tuple, cotangents)[k] is None:
            require(words.ones[k] is not None and is_like(words.ones[k], result))
            arrays.append(words.ones[k])
        else:
            arrays.append(array_of(cast(Tuple, cotangents)[k], result))
    return arrays


@native()
def array_of(cotangent: Object, result: TensorObject) -> Object:
    require(type(cotangent) is Tensor)
    given = cast(TensorObject, cotangent)
    require(given._data is not None and given._requires_grad is False and is_like(given._data, result))
    return given._data


@native()
def is_like(x: Object, result: TensorObject) -> Bool:
    """Whether an array is row-major, and of the shape and type of a result."""
    if result._data is None:
        return False
    given = cast(ArrayObject, x)
    array = cast(ArrayObject, result._data)
    same = given.dtype is array.dtype and given.ndim == array.ndim and given.flags & _CONTIGUOUS != 0
    for d in range(given.ndim):
        same = same and load_at(I64, given.shape, d) == load_at(I64, array.shape, d)
    return same


@native()
def leaves_of(words: Words, call: CallObject) -> List:
    """A list that holds them to the end."""
    leaves = []
    for k in range(len(words.gradients)):
        leaves.append(leaf_of(words, call, k))
    return leaves


# --- running ----------------------------------------------------------------------------------------------------------
@native()
def run(words: Words, call: CallObject, cotangents: List) -> List:
    """Tensors with what the program gives for these arrays of cotangents."""
    require(len(cast(List, captures)) == 0)
    arrays = []
    found = []
    for row in words.gradients:
        array = new_output(words, row)
        arrays.append(array)
        found.append(new_tensor(words.eager, array))
    fill_numbers(words, cast(Tuple, call.numbers))
    # From here on nothing runs but the program: making objects may run code that comes here again.
    require(load_at(I64, words.arena, 1) >= words.arena_bytes)
    words.table[0] = load_at(I64, words.arena, 0)
    words.table[1] = words.numbers_at
    for source in words.sources:
        array = source_of(source, call, cotangents)
        require(lies_well(cast(ArrayObject, array), source))
        words.table[source.word] = id(array)
    for k in range(len(arrays)):
        words.table[words.first_output + k] = id(arrays[k])
    require(words.program(words.table_at) == 0)
    words.count.value += 1
    return found


@native()
def new_output(words: Words, row: Gradient) -> Object:
    if row.pool is not None:
        known = unheld(cast(List, row.pool))
        if known is not None:
            return known
    null = words.null
    made = words.new_array(words.array_class, row.dtype, row.ndim, row.shape, null, null, 0, null)
    require(made is not None)
    if row.pool is not None and len(cast(List, row.pool)) < _REUSED_COUNT:
        cast(List, row.pool).append(made)
    return made


@native()
def fill_numbers(words: Words, numbers: Tuple):
    for k in range(len(words.positions)):
        x = numbers[words.positions[k].position]
        if words.positions[k].is_float:
            words.floats[k] = as_double(x)
        else:
            words.integers[k] = as_bits(x)


@native()
def source_of(source: Source, call: CallObject, cotangents: List) -> Object:
    if source.kind == COTANGENT:
        return cotangents[source.place]
    if source.kind == OUTPUT:
        return cast(Tuple, call.outputs)[source.place]
    return cast(Tuple, call.arrays)[source.place]


@native()
def lies_well(array: ArrayObject, source: Source) -> Bool:
    same = array.dtype is source.dtype and array.ndim == len(source.shape)
    if not same:
        return False
    for d in range(len(source.shape)):
        same = same and load_at(I64, array.shape, d) == source.shape[d]
    for d in range(len(source.strides)):
        same = same and load_at(I64, array.strides, d) == source.strides[d]
    return same and (len(source.strides) != 0 or array.flags & _CONTIGUOUS != 0)


# --- what has been done -----------------------------------------------------------------------------------------------
@native()
def prepare(words: Words, leaves: List):
    """A gradient that will be added to counts its changes."""
    for x in leaves:
        gradient = keep(cast(TensorObject, x)._grad)
        if gradient is not None and type(gradient) is Tensor:
            target = cast(TensorObject, gradient)
            if target._storage is None and target._base is None:
                made = new_storage(words.eager)
                require(target._storage is None and target._base is None)
                target._storage = made


@native()
def is_prepared(words: Words, leaf: TensorObject, gradient: TensorObject) -> Bool:
    return (
        can_be_added_in_place(words.eager, leaf._grad, gradient) and cast(TensorObject, leaf._grad)._storage is not None
    )


@native()
def free(words: Words, call: CallObject):
    call.freed = True
    call.outputs = words.nothing
    call.arrays = words.nothing
    call.again = None


# --- making one -------------------------------------------------------------------------------------------------------
class NativeBackward:
    """backward, gradients and cotangents for all calls of an OutsideBackward, by a program from all results."""

    def __init__(self, outside, program, sources, slow_backward):
        """sources: (kind, place or array) of every input of the program."""
        self._held = [program, sources]
        table, _ = program.own_table({})
        first = program.first_array
        for k, (kind, array) in enumerate(sources):
            if kind == KNOWN:
                program.places.require_one(k, array)
                table[first + k] = id(array)
        metas = outside.step.metas_so_far()
        words = Words(
            slow_backward=slow_backward,
            slow_gradients=_not_found,
            slow_cotangents=_not_found,
            present=list(outside.needed.differentiable),
            ones=[_one(metas[vid]) for vid in outside.needed.differentiable],
            watched=outside.watched,
            sources=[
                _source(program.places[k], kind, place, first + k)
                for k, (kind, place) in enumerate(sources)
                if kind != KNOWN
            ],
            gradients=[self._gradient(outside, program, k) for k in range(len(outside.reached))],
            positions=[Number(position=position, is_float=code == -3) for position, code in program.numbers],
            floats=[0.0] * len(program.numbers),
            program=program.address,
            table=table.view(np.int64).tolist(),
            first_output=first + len(program.inputs),
            arena=address_of(program.arena_words),
            arena_bytes=program.arena_bytes,
            count=Count(),
            nothing=(),
            array_class=np.ndarray,
            new_array=objects._new_array_address(),
        )
        self._packed = Packed(words)
        self._point_to(program, self._packed.words)
        functions = [objects.definition_of(name, _code().address(f"weft_{name}")) for name in _NAMES]
        self.backward, self.gradients, self.cotangents = [
            objects.builtin(definition, self._packed.words) for definition in functions
        ]

    def _gradient(self, outside, program, k):
        leaf, (shape, dtype) = outside.leaves[k], program.outputs[k]
        dims = np.array(shape, np.int64)
        self._held.append(dims)
        pool = program.pools[k]
        place = outside.places[outside.reached[k]] if leaf is None else -1
        return Gradient(leaf=leaf, place=place, dtype=dtype, ndim=len(shape), shape=address_of(dims), pool=pool)

    @staticmethod
    def _point_to(program, words):
        """What the words know by address: floats and integers are one memory, which the table tells the program of."""
        at = {name: offset_of(Words, name) // 8 for name in _BY_ADDRESS}
        words[at["table_at"]] = words[at["table"]]
        words[at["integers"] : at["integers"] + 2] = words[at["floats"] : at["floats"] + 2]
        words[at["numbers_at"]] = words[at["floats"]]
        words[at["count"]] = program.counter.buffer_info()[0]
        words[at["eager"]] = eager_native.words_address()


_BY_ADDRESS = "floats", "integers", "numbers_at", "table", "table_at", "count", "eager"
_NAMES = "finished_backward", "finished_gradients", "finished_cotangents"


def _one(meta):
    return np.ones(meta.shape, meta.dtype.numpy) if prod(meta.shape) == 1 else None


def _source(place, kind, number, word):
    strides = () if place.strides is None else [step * place.dtype.itemsize for step in place.strides]
    return Source(kind=kind, place=number, word=word, dtype=place.dtype, shape=place.shape, strides=strides)


def _not_found(*_):
    """Python finds them."""
    return None


def take_over(outside, program, sources, slow_backward):
    """What does the backward of such calls from now on; None if there is no native code."""
    if any(place.is_written for place in program.places.items) or eager_native.install() is None:
        return None
    return NativeBackward(outside, program, sources, slow_backward)


@functools.cache
def _code():
    return translated.load("finished backward", [backward, gradients, cotangents_of_leaves], layout_of_calls())
