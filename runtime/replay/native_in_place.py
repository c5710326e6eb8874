"""Methods that change a tensor, in native code: `x.add_(y)`, `x *= 2`, `x.copy_(y)`, from the class to the change.

The call in flight is asked whether the change is the one it expects, or native code of eager mode whether it can do it;
all else is Python's business. Which methods these are the frontend says (marks.changing). Of the subset
(docs/native.md).
"""

import ctypes
import sys
from types import FunctionType

import numpy as np

from ...compiler.dtypes import ALL
from ...compiler.ops.view import clone
from ...compiler.translate.kinds import I64, Address, Bool, Function, Maybe, Object, Struct, Tuple
from ...compiler.translate.language import address_of, cast, load_at, local_array, native, require
from ..code import translated
from ..code.native_kinds import TensorObject, as_double, as_long, call_with, get_attribute, has_error
from ..code.packing import Packed
from ..eager import gate
from ..eager.eager_words import ArrayObject, new_dict
from ..programs.recording import ValueMeta
from ..state import marks
from ..state.marks import ALONE, COPY, WITH_FACTOR
from ..state.modes import state
from ..state.tensor import Tensor
from . import native as objects
from . import native_layout
from .native import new_method, new_wrapper
from .native_keys import layout_with_keys
from .native_methods import described, in_python
from .native_shapes import MetaObject, n_dimensions, size_at

MOST_METHODS = 14


class Words(Struct):
    classes: Tuple  # of tensors as weft made them
    functions: Tuple  # in Python
    ops: Tuple
    kinds: Tuple
    eagerly: Object  # makes a change outside of a call, or says that it is Python's business
    anew: Object  # makes it where that and the call in flight have said no
    again_in_flight: Function((Address,), Maybe(Object))  # the same in the call that native code has in flight
    no_attributes: Object
    modes: Object
    with_factor: Tuple  # ops of such methods that take one
    alpha: Object  # the name of the keyword
    copy: Object
    array_types: Tuple
    types: Tuple


WORDS = Words()


@native()
def called(place: I64, x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    if has_weft_methods(x):
        kind = as_long(WORDS.kinds[place])
        op = WORDS.ops[place]
        if n == 0 and names is None and kind == ALONE:
            return changed(op, x, (x,))
        if n == 1 and kind != ALONE and is_operand(cast(Object, load_at(Address, arguments, 0))):
            other = cast(Object, load_at(Address, arguments, 0))
            if names is None and kind == COPY:
                if can_copy(x, other):
                    return changed(WORDS.copy, x, (other,))
            elif names is None:
                return changed(op, x, (x, other))
            elif has_factor(kind, cast(Tuple, names), other, cast(Object, load_at(Address, arguments, 1))):
                return changed_with_factor(place, x, other, cast(Object, load_at(Address, arguments, 1)))
    return in_python(WORDS.functions[place], x, arguments, n, names)


@native()
def changed(op: Object, x: Object, operands: Tuple) -> Object:
    """Both are asked with the same empty dict, because they compare it, and nothing else."""
    given = local_array(Address, 4)
    given[0] = cast(Address, op)
    given[1] = cast(Address, x)
    given[2] = cast(Address, operands)
    given[3] = cast(Address, WORDS.no_attributes)
    in_flight = WORDS.again_in_flight(address_of(given))
    if in_flight is None:
        require(has_error() is None)
        return changed_elsewhere(op, x, operands)
    if in_flight is True:
        return x
    return call_with(WORDS.anew, (op, x, operands, new_dict()), None)


@native()
def changed_elsewhere(op: Object, x: Object, operands: Tuple) -> Object:
    """Native code has no call in flight in this thread; there may be one that Python follows."""
    done = call_with(WORDS.eagerly, (op, x, operands, WORDS.no_attributes), None)
    if done is True:
        return x
    frame = get_attribute(WORDS.modes, "frame")
    if frame is not None:
        again = get_attribute(frame, "inplace_again")
        if call_with(again, (op, x, operands, new_dict()), None) is True:
            return x
    return call_with(WORDS.anew, (op, x, operands, new_dict()), None)


@native()
def changed_with_factor(place: I64, x: Object, other: Object, factor: Object) -> Object:
    if as_double(factor) == 1.0:
        return changed(WORDS.ops[place], x, (x, other))
    return changed(WORDS.with_factor[place], x, (x, other, factor))


@native()
def has_factor(kind: I64, names: Tuple, other: Object, factor: Object) -> Bool:
    """Whether a tensor and a float, by keyword, are given: of such a method it can only be `alpha`."""
    if kind != WITH_FACTOR or len(names) != 1 or not has_weft_methods(other):
        return False
    return names[0] is WORDS.alpha and type(factor) is float


@native()
def is_operand(x: Object) -> Bool:
    return type(x) is float or type(x) is int or has_weft_methods(x)


@native()
def has_weft_methods(x: Object) -> Bool:
    classes = WORDS.classes
    k = 0
    while k < len(classes) and type(x) is not classes[k]:
        k += 1
    return k < len(classes)


@native()
def can_copy(x: Object, source: Object) -> Bool:
    """Whether nothing is to be converted or expanded, and no history to be changed."""
    if not has_weft_methods(source) or cast(TensorObject, x)._requires_grad is not False:
        return False
    n = n_dimensions(x)
    if n < 0 or n_dimensions(source) != n:
        return False
    d = 0
    while d < n and size_at(x, d) == size_at(source, d):
        d += 1
    return d == n and type_of(x) is not None and type_of(x) is type_of(source)


@native()
def type_of(x: Object) -> Object:
    """None if it is not known."""
    data = cast(TensorObject, x)._data
    if data is None:
        meta = cast(TensorObject, x)._meta
        if type(meta) is ValueMeta:
            return cast(MetaObject, meta).dtype
        return None
    known = WORDS.array_types
    for k in range(len(known)):
        if known[k] is cast(ArrayObject, data).dtype:
            return WORDS.types[k]
    return None


def _method_at(place):
    @native(name=f"weft_change_{place}")
    def method(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
        return called(place, x, arguments, n, names)

    return method


def _operator_at(place):
    @native(name=f"weft_change_by_{place}")
    def operator(x: Object, other: Object) -> Object:
        arguments = local_array(Address, 1)
        arguments[0] = cast(Address, other)
        return called(place, x, address_of(arguments), 1, None)

    return operator


METHODS = [_method_at(place) for place in range(MOST_METHODS)]
OPERATORS = [_operator_at(place) for place in range(MOST_METHODS)]
_held = []  # what the words are the addresses of
functions = {}  # what stood there before


def part(layout):
    """What is translated: its name, functions and layout."""
    return "in place", METHODS + OPERATORS, layout_with_keys(layout)


def _is_copy(name, function):
    """Whether a method is another copy of a function."""
    if type(marks.first_methods[Tensor][name]) is not FunctionType:
        return False
    method = marks.in_python(name)
    return method.__code__ is function.__code__ and method.__closure__ is function.__closure__


def install(layout):
    """These methods go to native code from now on, unless somebody has replaced one."""
    if _held:
        return
    known, now = marks.methods.get(Tensor, {}), vars(Tensor)
    own = [name for name in marks.changing if name in now and known.get(name) is now[name]][:MOST_METHODS]
    if not own:
        return
    functions.update((name, marks.in_python(name)) for name in own)
    code = translated.load(*part(layout))
    words = Words(classes=tuple(marks.methods), functions=tuple(functions.values()), modes=state, copy=clone)
    words.ops, words.kinds, words.with_factor = zip(*[marks.changing[name] for name in own])
    words.alpha = sys.intern("alpha")
    words.eagerly, words.anew = gate.native_change(), gate.change_anew
    words.again_in_flight, words.no_attributes = objects.address_of("inplace_again_in_flight"), {}
    words.array_types, words.types = tuple([one.numpy for one in ALL]), tuple(ALL)
    packed = Packed(words)
    address = code.struct_address(f"{Words.__module__}:WORDS")
    ctypes.memmove(address, packed.address, packed.words.nbytes)
    _held.extend((code, packed))
    for place, name in enumerate(own):
        before = functions[name]
        method = new_method(Tensor, name, code.address(f"weft_change_{place}"), described(name, functions[name]))
        # `x += y` is x.add_(y).
        for same in [same for same in marks.first_methods[Tensor] if _is_copy(same, before)]:
            new = method
            if same.startswith("__"):
                base = native_layout.base_of(np.ndarray, same)
                new = new_wrapper(Tensor, base, code.address(f"weft_change_by_{place}"))
            marks.take_over(same, new)
