"""Calls on NumPy arrays that go to their program at once, in native code; of the subset (docs/native.md).

`weft.prepared.PreparedCall` does the same in Python, and all that departs from here: arguments that must be converted,
outputs for which there is no array yet, what a signal interrupts. What it compares once is a table here.
"""

import functools

import numpy as np

from ...compiler.translate.kinds import (
    I32,
    I64,
    Address,
    Bool,
    Borrowed,
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
from ...compiler.translate.language import METHOD, cast, load_at, native, require
from ..code import translated
from ..code.native_kinds import TensorObject
from ..code.packing import Packed
from ..eager.eager_computing import unheld
from ..eager.eager_matching import are_alike
from ..eager.eager_words import ArrayObject, new_tuple, set_tuple_item
from ..programs.program import captures
from ..state.aligned import address_of
from ..state.modes import autocasting, watching
from ..state.tensor import Tensor
from . import native as objects
from .native_reads import ReadWords, read_words, require_same
from .object_layout import layout_of_objects

ARRAY, TENSOR, OTHER = range(3)
_LIES_WELL = 0x101  # NumPy's flags of an array without gaps, whose elements are aligned


class Argument(Struct):
    """slot: where in the program's table the array stands, or -1. value: of what is neither array nor tensor."""

    kind: I64
    value: Object
    dtype: Object
    shape: Rows(I64)
    slot: I64


class Output(Struct):
    """pool: arrays that were made for it, or None if every call makes one."""

    dtype: Object
    ndim: I64
    shape: Address
    pool: Object


class Words(Struct):
    slow: Object
    reads: Rows(ReadWords)
    arguments: Rows(Argument)
    outputs: Rows(Output)
    array_class: Object
    null: Address
    new_array: Function((Object, Steals(Object), I32, Address, Address, Address, I32, Address), Maybe(ArrayObject))
    program: Function((Address,), I64)
    table: Rows(I64)
    table_at: Address
    first_output: I64
    arena: Address
    arena_bytes: I64
    calls: I64


@native(form=METHOD, slow="slow", name="weft_call_prepared")
def call(words: Words, values: Object) -> Object:
    """The outputs of the program, new arrays, for a tuple of arguments."""
    require(type(values) is tuple)
    given = cast(Tuple, values)
    require(len(given) == len(words.arguments))
    require(len(cast(List, watching)) == 0 and len(cast(Dict, autocasting)) == 0 and len(cast(List, captures)) == 0)
    require_same(words.reads[0])
    for k in range(len(given)):
        require(fits(words, words.arguments[k], given[k]))
    outputs = new_outputs(words)
    # From here on nothing runs but the program: making objects may run code that calls this again.
    require(load_at(I64, words.arena, 1) >= words.arena_bytes)
    words.table[0] = load_at(I64, words.arena, 0)
    for k in range(len(given)):
        if words.arguments[k].slot >= 0:
            words.table[words.arguments[k].slot] = id(array_of(words.arguments[k], given[k]))
    for k in range(len(words.outputs)):
        words.table[words.first_output + k] = id(outputs[k])
    require(words.program(words.table_at) == 0)
    words.calls += 1
    return outputs


# --- arguments and results --------------------------------------------------------------------------------------------
@native()
def fits(words: Words, wanted: Argument, x: Object) -> Bool:
    if wanted.kind == OTHER:
        return are_alike(x, wanted.value)
    if wanted.kind == TENSOR:
        if type(x) is not Tensor:
            return False
        tensor = cast(TensorObject, x)
        if tensor._data is None or tensor._requires_grad is not False or tensor._frame is not None:
            return False
    elif type(x) is not words.array_class:
        return False
    array = array_of(wanted, x)
    if array.dtype is not wanted.dtype or array.ndim != len(wanted.shape) or array.flags & _LIES_WELL != _LIES_WELL:
        return False
    return has_same_shape(array.shape, wanted)


@native(inline=True)
def array_of(wanted: Argument, x: Object) -> Borrowed(ArrayObject):
    return cast(ArrayObject, cast(TensorObject, x)._data) if wanted.kind == TENSOR else cast(ArrayObject, x)


@native(inline=True)
def has_same_shape(sizes: Address, wanted: Argument) -> Bool:
    same = True
    for d in range(len(wanted.shape)):
        same = same and load_at(I64, sizes, d) == wanted.shape[d]
    return same


@native()
def new_outputs(words: Words) -> Tuple:
    outputs = new_tuple(len(words.outputs))
    for k in range(len(words.outputs)):
        output = words.outputs[k]
        if output.pool is None:
            null = words.null
            array = words.new_array(words.array_class, output.dtype, output.ndim, output.shape, null, null, 0, null)
            require(array is not None)
            set_tuple_item(outputs, k, array)
        else:
            known = unheld(cast(List, output.pool))
            require(known is not None)
            set_tuple_item(outputs, k, known)
    return outputs


# --- making one -------------------------------------------------------------------------------------------------------
class NativeCall:
    """`function(values)` in native code. `calls` says how often it has run the program."""

    def __init__(self, reads, outside, arguments, program, numbers, known, slow):
        """reads: rows by the names of the fields of Words. outside: of tensors. arguments: (kind, value, dtype, shape,
        position among the program's inputs or None). known: array by number, of the other inputs."""
        table, scalars = program.own_table(known)
        for slot, (position, code) in enumerate(program.numbers):
            scalars.view(np.float64 if code == -3 else np.int64)[slot] = numbers[position]
        shapes = [np.array(shape, np.int64) for shape, _ in program.outputs]
        words = Words(
            slow=slow,
            reads=[read_words(reads, outside)],
            arguments=[_argument(program, *one) for one in arguments],
            outputs=[
                Output(dtype=dtype, ndim=len(n), shape=address_of(n), pool=pool)
                for (_, dtype), n, pool in zip(program.outputs, shapes, program.pools)
            ],
            array_class=np.ndarray,
            new_array=objects._new_array_address(),
            program=program.address,
            table=table.view(np.int64).tolist(),
            first_output=program.first_array + len(program.inputs),
            arena=address_of(program.native_arena[0]),
            arena_bytes=program.native_arena[1],
        )
        self._packed, self._held = Packed(words), (program, scalars, shapes, list(known.values()), reads)
        at = self._packed.words
        at[offset_of(Words, "table_at") // 8] = at[offset_of(Words, "table") // 8]
        definition = objects.definition_of("prepared", _code().address("weft_call_prepared"))
        self.function = objects.builtin(definition, at)

    @property
    def calls(self):
        return self._packed.read("calls")


def _argument(program, kind, value, dtype, shape, position):
    slot = -1 if position is None else program.first_array + position
    return Argument(kind=kind, value=value, dtype=dtype, shape=shape, slot=slot)


def part(layout):
    """What is translated: its name, functions and layout."""
    return "prepared", [call], layout


@functools.cache
def _code():
    return translated.load(*part(layout_of_objects()))
