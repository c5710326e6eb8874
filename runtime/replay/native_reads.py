"""Comparing what a function reads outside with what it was, in native code; of the subset (docs/native.md).

`pure_code.py` of the frontend finds out what that is; its `Reads.hold` does the same in Python. Who has proved that a
function does nothing but ops, and that all this is as it was, need not run it (prepared_call.py, whole_call.py).
"""

from ...compiler.translate.kinds import (
    I32,
    I64,
    Address,
    Bool,
    Dict,
    Inline,
    List,
    Maybe,
    Object,
    ObjectKind,
    Rows,
    Struct,
)
from ...compiler.translate.language import External, address_of, cast, load_at, local_array, native, require
from ..code import kernels
from ..code.native_kinds import TensorObject, get_attribute
from ..eager.eager_words import ArrayObject, next_item
from . import native_words

compare_memory = External("memcmp", (I64, I64, I64), I32, quiet=True)
cell_value = External("PyCell_Get", (Object,), Maybe(Object), quiet=True, python=lambda cell: cell.cell_contents)
ClassObject = ObjectKind("Class", type, {"version": ("type_version", I32)})


class Item(Struct):
    """Of a dict; of an object an attribute; of a cell what is in it."""

    holder: Object
    name: Object
    value: Object


class Version(Struct):
    kind: Object
    number: I64


class ListParts(Struct):
    holder: Object
    parts: Rows(Object)


class DictParts(Struct):
    holder: Object
    keys: Rows(Object)
    parts: Rows(Object)


class Bytes(Struct):
    """Of an array. extents: its shape, then its strides. at: where the bytes begin. wanted: a copy of them."""

    array: Object
    data: I64
    dtype: Object
    ndim: I64
    extents: Rows(I64)
    at: I64
    wanted: I64
    n_bytes: I64


class Outside(Struct):
    tensor: Object
    array: Object
    requires_grad: Object


class View(Struct):
    number: I64
    base: I64


class CallWords(Struct):
    """The first words of the replay's own (native_words.py)."""

    position: I64
    unused: Inline(I64, native_words.DEPARTED - 1)
    departed: I64


class ReadWords(Struct):
    """All that is compared, by what it is. absent: what is not in a dict. cells: of variables of functions around."""

    items: Rows(Item)
    absent: Rows(Item)
    attributes: Rows(Item)
    cells: Rows(Item)
    classes: Rows(Version)
    lists: Rows(ListParts)
    dicts: Rows(DictParts)
    arrays: Rows(Bytes)
    outside: Rows(Outside)


@native()
def require_same(words: ReadWords):
    """Departs where something is not what it was."""
    for row in words.items:
        found = cast(Dict, row.holder).get(row.name)
        if found is None:
            require(False)
        else:
            require(found is row.value)
    for row in words.absent:
        require(cast(Dict, row.holder).get(row.name) is None)
    for row in words.classes:
        require(cast(ClassObject, row.kind).version == row.number)
    for row in words.cells:
        require(cell_value(row.holder) is row.value)
    for row in words.attributes:
        require(get_attribute(row.holder, row.name) is row.value)
    for row in words.lists:
        require(are_parts(cast(List, row.holder), row.parts))
    for row in words.dicts:
        require(has_items(cast(Dict, row.holder), row))
    for row in words.outside:
        require(is_unchanged(row))
    for row in words.arrays:
        require(is_same_array(row))


@native(inline=True)
def are_parts(found: List, wanted: Rows(Object)) -> Bool:
    same = len(found) == len(wanted)
    for k in range(len(wanted)):
        same = same and found[k] is wanted[k]
    return same


@native()
def has_items(found: Dict, wanted: DictParts) -> Bool:
    """In this order."""
    if len(found) != len(wanted.parts):
        return False
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    for k in range(len(wanted.parts)):
        if next_item(found, address_of(at), address_of(key), address_of(value)) == 0:
            return False
        if cast(Object, key[0]) is not wanted.keys[k] or cast(Object, value[0]) is not wanted.parts[k]:
            return False
    return True


@native()
def is_same_array(row: Bytes) -> Bool:
    array = cast(ArrayObject, row.array)
    if array.data != row.data or array.dtype is not row.dtype or array.ndim != row.ndim:
        return False
    for d in range(row.ndim):
        if (
            load_at(I64, array.shape, d) != row.extents[d]
            or load_at(I64, array.strides, d) != row.extents[row.ndim + d]
        ):
            return False
    return compare_memory(row.at, row.wanted, row.n_bytes) == 0


@native()
def is_unchanged(row: Outside) -> Bool:
    tensor = cast(TensorObject, row.tensor)
    if tensor._data is not row.array or tensor._requires_grad is not row.requires_grad:
        return False
    return tensor._node is None and tensor._frame is None


def read_words(reads, outside):
    """reads: rows by the names of the fields. outside: tensors."""
    return ReadWords(
        **{name: [Item(holder=h, name=n, value=v) for h, n, v in reads[name]] for name in _ITEMS},
        classes=[Version(kind=kind, number=number) for kind, number in reads["classes"]],
        lists=[ListParts(holder=h, parts=parts) for h, parts in reads["lists"]],
        dicts=[DictParts(holder=h, keys=keys, parts=parts) for h, keys, parts in reads["dicts"]],
        arrays=[_bytes(read) for read in reads["arrays"]],
        outside=[Outside(tensor=t, array=t._data, requires_grad=t._requires_grad) for t in outside],
    )


_ITEMS = ("items", "absent", "attributes", "cells")


def _bytes(read):
    data, shape, strides, dtype = read.layout
    return Bytes(
        array=read.array,
        data=data,
        dtype=dtype,
        ndim=len(shape),
        extents=[*shape, *strides],
        at=read.at,
        wanted=kernels.address_of(read.copy),
        n_bytes=read.n_bytes,
    )
