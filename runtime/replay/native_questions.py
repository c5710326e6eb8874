"""Questions about tensors in native code: `x.shape`, `x.dtype`, `x.ndim`, and `x.shape[0]`.

Most functions ask them, and so do programs that look at what they are given. What native code does not know, such as
a type by another name of NumPy's, Python is asked. Of the subset (docs/native.md).
"""

import ctypes

from ...compiler.dtypes import ALL
from ...compiler.translate.kinds import I64, Address, Bool, Object, ObjectKind, Struct, Tuple
from ...compiler.translate.language import address_of, cast, keep, load_at, local_array, native
from ..code import translated
from ..code.lasting import keep_for_ever
from ..code.native_kinds import TensorObject, call_with, new_long
from ..code.packing import Packed
from ..eager.eager_words import ArrayObject, as_small, new_object, set_tuple_item
from ..programs.recording import ValueMeta
from ..state import marks
from ..state.size import Size
from ..state.tensor import Tensor
from . import native_layout
from .native import new_wrapper
from .native_keys import layout_with_keys
from .native_shapes import MetaObject


class Words(Struct):
    shape: Object  # what does the same in Python
    dtype: Object
    ndim: Object
    item: Object
    size: Object  # the class
    keeps_hash: Bool  # whether a tuple has a place for its hash, as from CPython 3.14 on
    array_types: Tuple
    types: Tuple


WORDS = Words()
SizeObject = ObjectKind("Size", Size, {"hash": ("tuple_hash", I64)})
_WITHOUT_HASH = 24  # bytes of a tuple without items that has no place for its hash


@native(name="weft_tensor_dtype")
def dtype(x: Object, _: Address) -> Object:
    data = cast(TensorObject, x)._data
    if data is None:
        meta = cast(TensorObject, x)._meta
        if type(meta) is ValueMeta:
            return cast(MetaObject, meta).dtype
        return call_with(WORDS.dtype, (x,), None)
    wanted = cast(ArrayObject, data).dtype
    known = WORDS.array_types
    for k in range(len(known)):
        if known[k] is wanted:
            return WORDS.types[k]
    return call_with(WORDS.dtype, (x,), None)


@native(name="weft_tensor_ndim")
def ndim(x: Object, _: Address) -> Object:
    data = cast(TensorObject, x)._data
    if data is not None:
        return new_long(cast(ArrayObject, data).ndim)
    meta = cast(TensorObject, x)._meta
    if type(meta) is ValueMeta:
        return new_long(len(cast(Tuple, cast(MetaObject, meta).shape)))
    return call_with(WORDS.ndim, (x,), None)


@native()
def new_size(n: I64) -> Tuple:
    made = cast(Tuple, new_object(WORDS.size, n))
    if WORDS.keeps_hash:
        cast(SizeObject, made).hash = -1  # nobody has asked for it
    return made


@native(name="weft_tensor_shape")
def shape(x: Object, _: Address) -> Object:
    data = keep(cast(TensorObject, x)._data)  # making an object may run code
    meta = keep(cast(TensorObject, x)._meta)
    if data is not None:
        n = cast(ArrayObject, data).ndim
        sizes = new_size(n)
        for d in range(n):
            set_tuple_item(sizes, d, new_long(load_at(I64, cast(ArrayObject, data).shape, d)))
        return sizes
    if type(meta) is not ValueMeta:
        return call_with(WORDS.shape, (x,), None)
    known = cast(Tuple, cast(MetaObject, meta).shape)
    found = new_size(len(known))
    for d in range(len(known)):
        set_tuple_item(found, d, known[d])
    return found


@native(name="weft_size_item")
def item(sizes: Tuple, key: Object) -> Object:
    if type(key) is int:
        overflow = local_array(I64, 1)
        k = as_small(key, address_of(overflow))
        if k < 0:
            k += len(sizes)
        if overflow[0] == 0 and k >= 0 and k < len(sizes):
            return sizes[k]
    return call_with(WORDS.item, (sizes, key), None)


# --- installing -------------------------------------------------------------------------------------------------------
class _GetSet(ctypes.Structure):
    """PyGetSetDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("get", ctypes.c_void_p),
        ("set", ctypes.c_void_p),
        ("doc", ctypes.c_char_p),
        ("closure", ctypes.c_void_p),
    )


_new_getter = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyDescr_NewGetSet", ctypes.pythonapi)
)
_QUESTIONS = {"shape": shape, "dtype": dtype, "ndim": ndim}
_held = []


def part(layout):
    """What is translated: its name, functions and layout."""
    return "questions", [*_QUESTIONS.values(), item], layout_with_keys(layout)


def install(layout):
    """Questions go to native code from now on, unless somebody has replaced what answers one."""
    known, now = marks.methods.get(Tensor, {}), vars(Tensor)
    if _held or any(type(now[name]) is not property or known.get(name) is not now[name] for name in _QUESTIONS):
        return
    code = translated.load(*part(layout))
    words = Words(**{name: now[name].fget for name in _QUESTIONS}, item=Size.__getitem__, size=Size)
    words.keeps_hash = tuple.__basicsize__ > _WITHOUT_HASH
    words.array_types, words.types = tuple([one.numpy for one in ALL]), tuple(ALL)
    packed = Packed(words)
    address = code.struct_address(f"{Words.__module__}:WORDS")
    ctypes.memmove(address, packed.address, packed.words.nbytes)
    _held.extend((code, packed))
    for name, function in _QUESTIONS.items():
        doc = (now[name].__doc__ or "").encode()
        definition = keep_for_ever(_GetSet(name.encode(), code.address(function.declaration.name), None, doc, None))
        new = _new_getter(Tensor, ctypes.addressof(definition))
        setattr(Tensor, name, new)
        marks.methods[Tensor][name] = new
    Size.__getitem__ = new_wrapper(Size, native_layout.base_of(tuple, "__getitem__"), code.address("weft_size_item"))
