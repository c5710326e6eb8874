"""What methods read of tensors, in native code: `x.item()`, `float(x)`, `x.stride()`, `x.detach()`.

They look at one array and are called in every step of a training loop, so that most of what they took was a function in
Python being called. What the compiled call in flight has yet to compute it is asked for. All else (values that it has
changed in memory, elements of other kinds, what is wrong) is that function's. Of the subset (docs/native.md).
"""

import ctypes

import numpy as np

from ...compiler.ops.view import detach
from ...compiler.translate.kinds import I32, I64, Address, Bool, Dict, List, Maybe, Object, Struct, Tuple
from ...compiler.translate.language import External, cast, keep, load_at, local_array, native, quotient
from ..code import translated
from ..code.native_kinds import TensorObject, call_with, get_attribute, new_long, set_attribute
from ..code.packing import Packed
from ..eager.eager_matching import is_contiguous, is_tensor, n_elements
from ..eager.eager_words import (
    ArrayObject,
    StorageObject,
    new_tuple,
    set_tuple_item,
    thread_number,
    thread_state,
    weak_target,
)
from ..eager.eager_words import Words as EagerWords
from ..eager.rebase import set_apart
from ..state import marks, tensor
from ..state.modes import state
from ..state.readers import readers
from ..state.tensor import Tensor
from . import native_layout
from .native import new_method, new_wrapper
from .native_keys import layout_with_keys
from .native_methods import described, in_python
from .native_shapes import in_range

_ITEM, _TOLIST, _IS_APART, _CALL = "item", "tolist", "_is_apart", "__call__"
_MATERIALIZE, _BEFORE_LENDING = "materialize", "before_lending"
call_method = External("PyObject_VectorcallMethod", (Object, Address, I64, Address), Object, fails="null")
try_method = External("PyObject_VectorcallMethod", (Object, Address, I64, Address), Maybe(Object))
is_true = External("PyObject_IsTrue", (Object,), I32, python=bool)
whole_number_of = External("PyNumber_Long", (Object,), Object, fails="null", python=int)


class Words(Struct):
    eager: Address
    classes: Tuple  # of tensors as weft made them
    item: Object  # what does the same in Python
    tolist: Object
    contiguous: Object
    to_float: Object
    to_int: Object
    to_bool: Object
    stride: Object
    data_ptr: Object
    numpy: Object
    detach: Object
    lend: Object  # makes arrays of tensors' memory
    cut: Object  # the op of detach
    set_apart: Object


WORDS = Words()


@native()
def is_in_memory(x: Object) -> Bool:
    """Whether its array is what it is worth: no call is in flight in this thread, which may know of other values."""
    eager = cast(EagerWords, WORDS.eager)
    if cast(TensorObject, x)._data is None or load_at(I64, eager.replaying, 0) != 0:
        return False
    return thread_number(thread_state()) == eager.thread and eager.modes.get("frame", None) is None


@native()
def is_pending_here(x: Object) -> Bool:
    """Whether it is a value that the call in flight in this thread has yet to compute."""
    eager = cast(EagerWords, WORDS.eager)
    value = cast(TensorObject, x)
    if value._data is not None or value._frame is None or thread_number(thread_state()) != eager.thread:
        return False
    return eager.modes.get("frame", None) is value._frame


@native()
def is_brought(x: Object) -> Object:
    """Whether its array is what it is worth; the call in flight in this thread computes it now if that is missing."""
    eager = cast(EagerWords, WORDS.eager)
    if is_in_memory(x):
        return True
    if is_pending_here(x):
        ask_call(_MATERIALIZE, x)
        if cast(TensorObject, x)._data is not None:
            return True
    elif cast(TensorObject, x)._data is not None and thread_number(thread_state()) == eager.thread:
        frame = keep(eager.modes.get("frame", None))
        if frame is not None and in_the_way(frame) is None:
            return True
    return False


@native()
def in_the_way(frame: Object) -> Object:
    """None if the call has changed nothing whose memory it has not written yet, and nobody looks on."""
    homes = get_attribute(frame, "homes")
    if type(homes) is not dict or len(cast(Dict, homes)) != 0:
        return homes
    return get_attribute(state, "looks_on")


@native()
def ask_call(name: Object, x: Object) -> Object:
    """A method of the call in flight, which gets a tensor."""
    frame = keep(cast(EagerWords, WORDS.eager).modes.get("frame", None))
    arguments = local_array(Address, 2)
    arguments[0] = cast(Address, frame)
    arguments[1] = cast(Address, x)
    null = cast(EagerWords, WORDS.eager).null
    return call_method(name, arguments, 2, null)


@native()
def is_one_number(x: Object) -> Bool:
    return is_in_memory(x) and has_one_number(x)


@native()
def has_one_number(x: Object) -> Bool:
    return are_numbers_of_numpy(x) and n_elements(cast(ArrayObject, cast(TensorObject, x)._data)) == 1


@native()
def number_in(x: Object) -> Object:
    array = keep(cast(TensorObject, x)._data)
    arguments = local_array(Address, 1)
    arguments[0] = cast(Address, array)
    null = cast(EagerWords, WORDS.eager).null
    return call_method(_ITEM, arguments, 1, null)


@native(name="weft_tensor_item")
def item(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    if n == 0 and names is None and is_brought(x) is True and has_one_number(x):
        return number_in(x)
    return in_python(WORDS.item, x, arguments, n, names)


@native(name="weft_tensor_tolist")
def tolist(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    if n == 0 and names is None and is_brought(x) is True and are_numbers_of_numpy(x):
        array = keep(cast(TensorObject, x)._data)
        given = local_array(Address, 1)
        given[0] = cast(Address, array)
        null = cast(EagerWords, WORDS.eager).null
        return call_method(_TOLIST, given, 1, null)
    return in_python(WORDS.tolist, x, arguments, n, names)


@native()
def are_numbers_of_numpy(x: Object) -> Bool:
    return cast(ArrayObject, cast(TensorObject, x)._data).dtype is not cast(EagerWords, WORDS.eager).bfloat16


@native(name="weft_tensor_contiguous")
def contiguous(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    data = cast(TensorObject, x)._data
    if n == 0 and names is None and data is not None and is_contiguous(cast(ArrayObject, data)):
        return x
    return in_python(WORDS.contiguous, x, arguments, n, names)


@native(name="weft_tensor_float")
def to_float(x: Object) -> Object:
    if is_brought(x) is True and has_one_number(x):
        found = number_in(x)
        if type(found) is float:
            return found
    return call_with(WORDS.to_float, (x,), None)


@native(name="weft_tensor_int")
def to_int(x: Object) -> Object:
    if is_brought(x) is True and has_one_number(x):
        found = number_in(x)
        if type(found) is int:
            return found
        if type(found) is float or type(found) is bool:
            return whole_number_of(found)
    return call_with(WORDS.to_int, (x,), None)


@native(name="weft_tensor_bool")
def to_bool(x: Object) -> I32:
    """-1 with an exception, as CPython has it of this slot."""
    arguments = local_array(Address, 2)
    null = cast(EagerWords, WORDS.eager).null
    has_asked = is_pending_here(x)
    if has_asked:
        frame = keep(cast(TensorObject, x)._frame)
        arguments[0] = cast(Address, frame)
        arguments[1] = cast(Address, x)
        computed = try_method(_MATERIALIZE, arguments, 2, null)
        if computed is None:
            return -1
    if is_one_number(x) or has_asked and cast(TensorObject, x)._data is not None and has_one_number(x):
        array = keep(cast(TensorObject, x)._data)
        arguments[0] = cast(Address, array)
        found = try_method(_ITEM, arguments, 1, null)
    else:
        # CPython 3.10 has no function that calls with one argument.
        function = keep(WORDS.to_bool)
        arguments[0] = cast(Address, function)
        arguments[1] = cast(Address, x)
        found = try_method(_CALL, arguments, 2, null)
    if found is None:
        return -1
    return is_true(found)


@native(name="weft_tensor_data_ptr")
def data_ptr(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    if n == 0 and names is None and is_in_memory(x):
        return new_long(cast(ArrayObject, cast(TensorObject, x)._data).data)
    return in_python(WORDS.data_ptr, x, arguments, n, names)


@native(name="weft_tensor_stride")
def stride(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    if n < 2 and names is None and is_in_memory(x):
        array = cast(ArrayObject, cast(TensorObject, x)._data)
        n_bytes = bytes_of(array)
        if n_bytes != 0 and n == 0:
            return strides_of(array, n_bytes)
        if n_bytes != 0 and type(cast(Object, load_at(Address, arguments, 0))) is int:
            d = in_range(cast(Object, load_at(Address, arguments, 0)), array.ndim)
            if d >= 0:
                return new_long(quotient(load_at(I64, array.strides, d), n_bytes))
    return in_python(WORDS.stride, x, arguments, n, names)


@native()
def strides_of(array: ArrayObject, n_bytes: I64) -> Object:
    found = new_tuple(array.ndim)
    for d in range(array.ndim):
        set_tuple_item(found, d, new_long(quotient(load_at(I64, array.strides, d), n_bytes)))
    return found


@native()
def bytes_of(array: ArrayObject) -> I64:
    """Of an element; 0 if it is not known, or elements are not a whole number of them apart."""
    eager = cast(EagerWords, WORDS.eager)
    n = 0
    for k in range(len(eager.types)):
        if eager.types[k] is array.dtype:
            n = eager.item_bytes[k]
    for d in range(array.ndim):
        if n != 0 and quotient(load_at(I64, array.strides, d), n) * n != load_at(I64, array.strides, d):
            n = 0
    return n


@native(name="weft_tensor_numpy")
def numpy(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    # Calls whose backward will read the memory are told first, in Python.
    is_plain = n == 0 and names is None and is_weft_tensor(x) and has_no_readers()
    if is_plain and is_in_memory(x) and has_no_gradients(cast(TensorObject, x)):
        expose(cast(TensorObject, x)._storage)
        made = call_with(WORDS.lend, (x, False), None)
        if made is not None:
            return made
    if is_plain and is_lent_by_call(x):
        ask_call(_BEFORE_LENDING, x)
        if is_brought(x) is True:
            expose(cast(TensorObject, x)._storage)
            made = call_with(WORDS.lend, (x, True), None)
            if made is not None:
                return made
    return in_python(WORDS.numpy, x, arguments, n, names)


@native()
def has_no_readers() -> Bool:
    """Whether no finished call is alive whose backward may come."""
    known = cast(List, readers)
    k = 0
    while k < len(known) and weak_target(known[k]) is None:
        k += 1
    return k == len(known)


@native()
def is_lent_by_call(x: Object) -> Bool:
    """Whether the call in flight in this thread has a say in what its memory shows."""
    eager = cast(EagerWords, WORDS.eager)
    if not has_no_gradients(cast(TensorObject, x)) or thread_number(thread_state()) != eager.thread:
        return False
    return eager.modes.get("frame", None) is not None and (
        cast(TensorObject, x)._data is not None or is_pending_here(x)
    )


@native()
def has_no_gradients(x: TensorObject) -> Bool:
    return x._requires_grad is False


@native()
def expose(storage: Object):
    """All that share the memory are told, where some have a version of their own, as in Tensor.lend."""
    if storage is None or cast(StorageObject, storage).changes is None:
        return
    sharers = cast(StorageObject, storage).sharers
    if type(sharers) is list:
        for reference in cast(List, sharers):
            expose_one(weak_target(reference))


@native()
def expose_one(sharer: Object):
    if is_tensor(sharer) and cast(TensorObject, sharer)._storage is not None:
        cast(StorageObject, cast(TensorObject, sharer)._storage).exposed = True


@native(name="weft_tensor_detach")
def detached(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    if n == 0 and names is None and is_weft_tensor(x) and is_in_memory(x):
        made = call_with(WORDS.cut, (x,), None)
        out = cast(TensorObject, made)
        if has_plain_base(out):
            set_attribute(made, _IS_APART, True)
        else:
            call_with(WORDS.set_apart, (made,), None)
        return made
    return in_python(WORDS.detach, x, arguments, n, names)


@native()
def has_plain_base(out: TensorObject) -> Bool:
    """Whether it shows a tensor without a history, of which it is enough to say that it is apart."""
    if out._base is None:
        return False
    base = cast(TensorObject, out._base)
    return base._data is not None and base._node is None and base._frame is None


@native()
def is_weft_tensor(x: Object) -> Bool:
    k = 0
    while k < len(WORDS.classes) and type(x) is not WORDS.classes[k]:
        k += 1
    return k < len(WORDS.classes)


# --- installing -------------------------------------------------------------------------------------------------------
_METHODS = {"item": item, "tolist": tolist, "contiguous": contiguous, "stride": stride, "data_ptr": data_ptr}
_METHODS |= {"numpy": numpy, "detach": detached}
_SLOTS = {"__float__": ("to_float", to_float), "__int__": ("to_int", to_int), "__bool__": ("to_bool", to_bool)}
_held = []  # what the words are the addresses of


def part(layout):
    """What is translated: its name, functions and layout."""
    return "values", [*_METHODS.values(), *(function for _, function in _SLOTS.values())], layout_with_keys(layout)


def install(layout, eager):
    """These methods go to native code from now on, unless somebody has replaced one. eager: the address of eager mode's
    words."""
    known, now = marks.methods.get(Tensor, {}), vars(Tensor)
    if _held or any(known.get(name) is not now[name] for name in (*_METHODS, *_SLOTS)):
        return
    code = translated.load(*part(layout))
    functions = {name: marks.in_python(name) for name in (*_METHODS, *_SLOTS)}
    words = Words(**{_SLOTS[name][0] if name in _SLOTS else name: function for name, function in functions.items()})
    words.eager, words.classes = eager, tuple(marks.methods)
    words.lend, words.cut, words.set_apart = tensor._native_lend, detach, set_apart
    packed = Packed(words)
    address = code.struct_address(f"{Words.__module__}:WORDS")
    ctypes.memmove(address, packed.address, packed.words.nbytes)
    _held.extend((code, packed))
    for name, function in _METHODS.items():
        doc = described(name, functions[name])
        marks.take_over(name, new_method(Tensor, name, code.address(function.declaration.name), doc))
    for name, (_, function) in _SLOTS.items():
        base = native_layout.base_of(np.ndarray, name)
        marks.take_over(name, new_wrapper(Tensor, base, code.address(function.declaration.name)))


def data_in_python():
    """What reading `x.data` does there."""
    return marks.first_methods[Tensor]["data"].fget


def install_data(read):
    """`x.data` is what this function gives from now on, unless somebody has replaced it."""
    known = marks.methods[Tensor]["data"]
    if vars(Tensor)["data"] is known:
        marks.take_over("data", property(read, known.fset, known.fdel, known.__doc__))
