"""Methods of tensors in native code: from the class to the ops, where these follow from shape, type and arguments.

`x.mean(0)`, `x.view(-1, 3)` and `x.transpose(1, 2)` are an op each, and some Python that finds out its attributes. What
that comes to for tensors of a shape and type is found out once: the Python is run on a StandIn, which has no values and
notes the ops. It stands in a table then. For which methods this holds the frontend says (marks.by_shape). Of the subset
(docs/native.md).
"""

import ctypes
from inspect import signature

from ...compiler.dtypes import DType
from ...compiler.translate.kinds import (
    I64,
    Address,
    Bool,
    Dict,
    Inline,
    Maybe,
    Object,
    Rows,
    Struct,
    Tuple,
    offset_of,
)
from ...compiler.translate.language import cast, load_at, native
from ..code import translated
from ..code.native_kinds import TensorObject, call_with
from ..code.packing import Packed
from ..eager.eager_matching import are_alike, hash_with_value
from ..eager.eager_words import HASH_MASK, ArrayObject, new_dict, new_tuple, set_tuple_item
from ..programs.recording import ValueMeta
from ..state import marks
from ..state.attributes import refusal
from ..state.modes import autocasting, frame_hidden, state
from ..state.size import Size
from ..state.tensor import Tensor
from . import eager_hash
from .native import new_method
from .native_keys import layout_with_keys, stepped
from .native_shapes import MetaObject, n_dimensions, size_at

N_CALLS = 1 << 12  # places in the table
PLACES = 4  # of them a call may stand in, one after the other
MOST_METHODS = 34
USES, USES_BETWEEN = 16, 1 << 12  # of a call that is not known, before it is looked at, and looked at again


class Known(Struct):
    """A call of a method, of tensors of a shape and a type. names: of the last arguments. steps: the ops it leads to,
    each with its attributes; or it has a value. must_show: whether the result has to be a view, else Python refuses."""

    hash: I64
    method: I64
    shape: Rows(I64)
    dtype: Object
    array_dtype: Object
    arguments: Tuple
    names: Tuple
    steps: Tuple
    is_value: Bool
    value: Object
    must_show: Bool


class Words(Struct):
    classes: Tuple  # of tensors as weft made them
    functions: Tuple  # in Python
    learners: Tuple  # what finds out what one of them comes to
    no_names: Tuple
    uses: Inline(I64, N_CALLS)
    known: Inline(Address, N_CALLS)


WORDS = Words()


@native()
def called(place: I64, x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    given = WORDS.no_names
    if names is not None:
        given = cast(Tuple, names)
    if has_weft_methods(x) and len(cast(Dict, autocasting)) == 0:
        wanted = hash_of(place, x, arguments, n + len(given))
        at = wanted & (N_CALLS - PLACES)
        end = at + PLACES
        while at < end and not is_call(cast(Known, WORDS.known[at]), wanted, place, x, arguments, n, given):
            at += 1
        if at == end:
            count_use(wanted & (N_CALLS - 1), place, x, arguments, n, names)
        else:
            found = answer_of(cast(Known, WORDS.known[at]), x)
            if found is not None:
                return found
    return in_python(WORDS.functions[place], x, arguments, n, names)


@native()
def answer_of(known: Known, x: Object) -> Object:
    """None if Python has to say what is wrong."""
    if known.is_value:
        return known.value
    must_show = known.must_show
    found = stepped(x, known.steps)
    if must_show and cast(TensorObject, found)._base is None:
        return None
    return found


@native()
def in_python(function: Object, x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
    """function(x, *arguments), the last of which have names."""
    given = new_tuple(n + 1)
    set_tuple_item(given, 0, x)
    for k in range(n):
        set_tuple_item(given, k + 1, cast(Object, load_at(Address, arguments, k)))
    if names is None:
        return call_with(function, given, None)
    named = cast(Tuple, names)
    keywords = new_dict()
    for k in range(len(named)):
        keywords[named[k]] = cast(Object, load_at(Address, arguments, n + k))
    return call_with(function, given, keywords)


@native()
def count_use(at: I64, place: I64, x: Object, arguments: Address, n: I64, names: Maybe(Object)):
    WORDS.uses[at] += 1
    if WORDS.uses[at] == USES or WORDS.uses[at] & (USES_BETWEEN - 1) == 0:
        learner = WORDS.learners[place]
        in_python(learner, x, arguments, n, names)


@native()
def has_weft_methods(x: Object) -> Bool:
    classes = WORDS.classes
    k = 0
    while k < len(classes) and type(x) is not classes[k]:
        k += 1
    return k < len(classes)


@native()
def hash_of(place: I64, x: Object, arguments: Address, n: I64) -> I64:
    """The same as `_hash_of` below."""
    h = place
    for d in range(n_dimensions(x)):
        h = (h * 31 + size_at(x, d)) & HASH_MASK
    for k in range(n):
        h = hash_with_value(h, cast(Object, load_at(Address, arguments, k)))
    return h ^ (h >> 11) ^ (h >> 23)


@native()
def is_call(known: Known, wanted: I64, place: I64, x: Object, arguments: Address, n: I64, names: Tuple) -> Bool:
    if known.hash != wanted or known.method != place or len(known.arguments) != n + len(names):
        return False
    if len(known.names) != len(names) or not has_sizes_of(known, x) or not has_type_of(known, x):
        return False
    k = 0
    while k < len(names) and are_alike(names[k], known.names[k]):
        k += 1
    if k < len(names):
        return False
    k = 0
    while k < len(known.arguments) and are_alike(cast(Object, load_at(Address, arguments, k)), known.arguments[k]):
        k += 1
    return k == len(known.arguments)


@native()
def has_sizes_of(known: Known, x: Object) -> Bool:
    n = n_dimensions(x)
    d = 0
    while d < n and d < len(known.shape) and size_at(x, d) == known.shape[d]:
        d += 1
    return d == n and d == len(known.shape)


@native()
def has_type_of(known: Known, x: Object) -> Bool:
    data = cast(TensorObject, x)._data
    if data is not None:
        return cast(ArrayObject, data).dtype is known.array_dtype
    meta = cast(TensorObject, x)._meta
    return type(meta) is ValueMeta and cast(MetaObject, meta).dtype is known.dtype


def _method_at(place):
    @native(name=f"weft_method_{place}")
    def method(x: Object, arguments: Address, n: I64, names: Maybe(Object)) -> Object:
        return called(place, x, arguments, n, names)

    return method


METHODS = [_method_at(place) for place in range(MOST_METHODS)]


# --- finding out ------------------------------------------------------------------------------------------------------
class StandIn(Tensor):
    """A tensor that has a shape and a type and no values, with the ops that lead to it."""

    __slots__ = ("steps",)

    def apply_op(self, op, operands, attributes):
        if len(operands) != 1 or refusal(attributes) is not None:
            raise NotImplementedError("more than steps from one tensor to the next")
        meta = op.infer(operands, attributes, state.default_dtype)
        return _stand_in(self, meta.shape, meta.dtype, (*self.steps, (op, attributes)))


def _stand_in(base, shape, dtype, steps):
    self = Tensor.__new__(StandIn, None)
    self._meta, self._base, self.steps = ValueMeta(tuple(shape), dtype), base, steps
    return self


_PLAIN = frozenset((int, float, bool, str, type(None), DType))
_MOST_PARTS = 16


def _is_plain(x):
    """Whether something never changes, and is compared by what it is."""
    if type(x) in (tuple, Size):
        return len(x) <= _MOST_PARTS and all(map(_is_plain, x))
    return type(x) in _PLAIN


def _learner(place, function, must_show):
    def learn(x, *args, **kwargs):
        given = (*args, *kwargs.values())
        if not all(map(_is_plain, given)):
            return
        with frame_hidden():
            try:
                made = function(_stand_in(None, x.shape, x.dtype, ()), *args, **kwargs)
            except Exception:  # whatever it is: Python does the same with the tensor itself, and raises its error
                return
        known = Known(method=place, shape=tuple(x.shape), dtype=x.dtype, array_dtype=x.dtype.numpy, arguments=given)
        known.names, known.must_show = tuple(kwargs), must_show
        known.steps, known.is_value, known.value = (), type(made) in (int, bool, Size), made
        if type(made) is StandIn:
            known.steps, known.value = made.steps, None
        elif not known.is_value:
            return
        known.hash = _hash_of(place, known.shape, given)
        _note(known)

    return learn


def _hash_of(place, shape, arguments):
    """The same as `hash_of`."""
    h = place
    for size in shape:
        h = (h * 31 + size) & HASH_MASK
    for x in arguments:
        h = eager_hash.hash_with_value(h, x)
    return h ^ (h >> 11) ^ (h >> 23)


# --- installing -------------------------------------------------------------------------------------------------------
_held = []  # what the words are the addresses of
_rows = {}  # place in the table -> what stands there
own, functions = [], []  # the methods that native code has, by place, and what stood there before


def part(layout):
    """What is translated: its name, functions and layout."""
    return "methods", METHODS, layout_with_keys(layout)


def install(layout):
    """Methods go to native code from now on, unless somebody has replaced one."""
    if _held:
        return
    known, now = marks.methods.get(Tensor, {}), vars(Tensor)
    own[:] = [name for name in marks.by_shape if name in now and known.get(name) is now[name]][:MOST_METHODS]
    functions[:] = [marks.in_python(name) for name in own]
    learners = [_learner(place, functions[place], marks.by_shape[name]) for place, name in enumerate(own)]
    code = translated.load(*part(layout))
    nothing = Packed(Known(hash=-1))
    words = Words(
        classes=tuple(marks.methods),
        functions=tuple(functions),
        learners=tuple(learners),
        no_names=(),
        uses=(),
        known=(),
    )
    packed = Packed(words)
    first = offset_of(Words, "known") // 8
    packed.words[first : first + N_CALLS] = nothing.address
    address = code.struct_address(f"{Words.__module__}:WORDS")
    ctypes.memmove(address, packed.address, packed.words.nbytes)
    _held.extend((code, packed, nothing))
    for place, name in enumerate(own):
        new = new_method(Tensor, name, code.address(f"weft_method_{place}"), described(name, functions[place]))
        marks.take_over(name, new)


def described(name, function):
    """Its docstring with its parameters, as `inspect` reads them of what is written in C."""
    given = str(signature(function)).partition("(")[2]
    first = given.partition(",")[0].partition(")")[0]
    return f"{name}($self{given[len(first) :]}\n--\n\n{function.__doc__ or ''}"


def _note(known):
    """In place of another one that may stand there, if there is no room."""
    first = known.hash & (N_CALLS - PLACES)
    places = range(first, first + PLACES)
    at = next((at for at in places if at not in _rows), first + (known.hash >> 20 & PLACES - 1))
    packed = Packed(known)
    address = _held[0].struct_address(f"{Words.__module__}:WORDS")
    word = ctypes.c_int64.from_address(address + offset_of(Words, "known") + 8 * at)
    before, word.value = _rows.get(at), packed.address
    _rows[at] = packed
    del before  # until now native code could read it
