"""Functions of several tensors in native code: from their arguments to the ops, where these follow from shapes, types
and numbers.

`F.pad(x, (1, 1))` and `x.index_fill(0, index, 1.0)` are a few ops each, and ten times as much Python that checks the
arguments and finds out attributes. What that comes to for arguments of some shapes and types is found out once: the
Python is run on `Noted` tensors, which have no values and note the ops. From then on native code calls these ops, which
do what they would do in the function. Of the subset (docs/native.md).

The functions' doors (frontend/kinds.py) ask by `answer` of runtime/state/marks.py, which also knows the functions.
"""

from collections import deque

import numpy as np

from ...compiler.dtypes import DType
from ...compiler.translate.kinds import I64, Address, Bool, Dict, Inline, List, Object, Rows, Struct, Tuple, offset_of
from ...compiler.translate.language import METHOD, address_of, cast, load_at, local_array, native, require
from ..code import translated
from ..code.native_kinds import TensorObject, as_long, call_with, new_list, new_long
from ..code.packing import Packed
from ..eager import gate
from ..eager.eager_inplace import is_apart, require_undisturbed, shows_each_once
from ..eager.eager_matching import are_alike, hash_with_value
from ..eager.eager_words import HASH_MASK, ArrayObject, new_tuple, next_item, set_tuple_item
from ..eager.eager_words import Words as EagerWords
from ..state import marks, tensor
from ..state.modes import autocasting, inferring, state, watching
from ..state.random import Generator, default_generator
from ..state.size import Size
from ..state.tensor import Tensor, _apply
from . import native as objects
from .native_draws import generator_of, put_keys
from .native_keys import layout_with_keys
from .native_shapes import SliceObject
from .noted_whole import whole_of
from .noting import CHANGE, OF_NUMBERS, Noted, Noter, made_by

N_CALLS = 1 << 12  # places in the table
PLACES = 4  # of them a call may stand in, one after the other
LOOKS = 8  # at a function that is never content: from then on it is not asked for
USES, USES_BETWEEN = 16, 1 << 12  # of a call that is not known, before it is looked at, and looked at again
# Looking at a call takes as long as some hundred calls in Python, and sizes that change from call to call come again
# now and then: where so many calls of a function are known, others have to come twice as often, four times and so on.
FEW_KNOWN = 8
MOST_ELEMENTS = 1 << 17  # of what lives between ops until the call ends
_MOST_ARGUMENTS = 24
_RETIRED = 256
_PLAIN = frozenset((int, float, bool, str, type(None), type(Ellipsis), DType))


class Argument(Struct):
    """A tensor of a shape and a type, or something that is compared by what it is."""

    is_tensor: Bool
    shape: Rows(I64)
    dtype: Object
    value: Object


class Taken(Struct):
    """An op with its attributes, and how it is called (noting.py). places: of its operands among the arguments, keys of
    draws, constants and results so far; target: of what it changes."""

    op: Object
    attributes: Object
    how: I64
    places: Rows(I64)
    target: I64


class Known(Struct):
    """A call: names are those of its last arguments. It draws some random numbers, and returns one value, or several in
    a tuple, or what `kind` makes of those. targets: the arguments that `out` names, which have to lie apart from the
    others."""

    hash: I64
    function: I64
    default_dtype: Object
    arguments: Rows(Argument)
    names: Tuple
    is_in_place: Bool
    targets: Rows(I64)
    n_draws: I64
    constants: Tuple
    steps: Rows(Taken)
    is_one: Bool
    kind: Object
    results: Rows(I64)
    whole: Object
    whole_places: Rows(I64)


class Words(Struct):
    slow: Object
    eager: Address
    classes: Tuple  # of tensors as weft made them
    learn: Object
    generator: Object  # whose draws are meant where none is given
    any_generator: Object  # stands for one that is
    apply_natively: Object  # calls an op that no tensor can be asked for, or gives None
    apply: Object
    change: Object  # makes an op's result the value of a tensor, or says that it cannot
    change_anew: Object
    begin_tuple: Object  # stand before and behind the items of one, of which there is one list
    begin_list: Object
    begin_slice: Object
    end: Object
    uses: Inline(I64, N_CALLS)
    known: Inline(Address, N_CALLS)


@native(form=METHOD, slow="slow", name="weft_answer")
def answer_natively(words: Words, place: Object, args: Object, kwargs: Object) -> Object:
    require(type(place) is int and type(args) is tuple and type(kwargs) is dict)
    eager = cast(EagerWords, words.eager)
    require_undisturbed(eager)
    require(len(cast(Dict, autocasting)) == 0)
    given = new_list(0)
    for x in cast(Tuple, args):
        put(words, given, x)
    put_named(words, given, cast(Dict, kwargs))
    wanted = hash_of(words, as_long(place) * 31 + len(cast(Dict, kwargs)), given)
    at = wanted & (N_CALLS - PLACES)
    end = at + PLACES
    default_dtype = eager.modes.get("default_dtype", eager.default_dtype)
    while at < end and not is_call(words, cast(Known, words.known[at]), wanted, as_long(place), default_dtype, given):
        at += 1
    if at == end or not has_names(cast(Known, words.known[at]), cast(Dict, kwargs)):
        words.uses[wanted & (N_CALLS - 1)] += 1
        uses = words.uses[wanted & (N_CALLS - 1)]
        if uses >= USES and uses & (uses - 1) == 0 or uses & (USES_BETWEEN - 1) == 0:
            call_with(words.learn, (place, new_long(wanted), args, kwargs), None)
        return None
    known = cast(Known, words.known[at])
    if known.is_in_place and not (none_requires(words, given) and are_apart(words, eager, known, given)):
        return None
    if known.n_draws > 0:
        put_keys(generator_of(words.generator, cast(Tuple, args), cast(Dict, kwargs)), known.n_draws, given)
    elif known.whole is not None and records_nothing(words, eager, given):
        return whole_result(known, given)
    return result_of(words, known, given)


@native()
def records_nothing(words: Words, eager: EagerWords, given: List) -> Bool:
    return eager.modes.get("grad_enabled", eager.grad_enabled) is False or none_requires(words, given)


@native()
def whole_result(known: Known, given: List) -> Object:
    operands = new_tuple(len(known.whole_places))
    for k in range(len(known.whole_places)):
        set_tuple_item(operands, k, given[known.whole_places[k]])
    return call_with(known.whole, operands, None)


@native()
def result_of(words: Words, known: Known, values: List) -> Object:
    for x in known.constants:
        values.append(x)
    for step in known.steps:
        operands = new_tuple(len(step.places))
        for k in range(len(step.places)):
            set_tuple_item(operands, k, values[step.places[k]])
        if step.how == CHANGE:
            values.append(changed(words, step.op, values[step.target], operands, step.attributes))
        elif step.how == OF_NUMBERS:
            values.append(made_of_numbers(words, step.op, operands, step.attributes))
        else:
            values.append(call_with(step.op, operands, cast(Dict, step.attributes)))
    if known.is_one:
        return values[known.results[0]]
    made = new_tuple(len(known.results))
    for k in range(len(known.results)):
        set_tuple_item(made, k, values[known.results[k]])
    if known.kind is tuple:
        return made
    return call_with(known.kind, made, None)


@native()
def made_of_numbers(words: Words, op: Object, operands: Tuple, attributes: Object) -> Object:
    made = call_with(words.apply_natively, (op, operands, attributes), None)
    if made is not None:
        return made
    return call_with(words.apply, (op, operands, attributes), None)


@native()
def changed(words: Words, op: Object, target: Object, operands: Tuple, attributes: Object) -> Object:
    done = call_with(words.change, (op, target, operands, attributes), None)
    if done is not True:
        call_with(words.change_anew, (op, target, operands, attributes), None)
    return target


@native()
def none_requires(words: Words, given: List) -> Bool:
    """Whether no tensor that is given requires gradients."""
    none = True
    for x in given:
        if is_weft_tensor(words, x):
            none = none and cast(TensorObject, x)._requires_grad is False
    return none


@native()
def are_apart(words: Words, eager: EagerWords, known: Known, given: List) -> Bool:
    """Whether no target shows memory of another argument, or one element twice."""
    apart = True
    for target in known.targets:
        array = cast(ArrayObject, cast(TensorObject, given[target])._data)
        apart = apart and shows_each_once(array)
        for k in range(len(given)):
            if k != target and is_weft_tensor(words, given[k]):
                apart = apart and is_apart(eager, array, cast(ArrayObject, cast(TensorObject, given[k])._data))
    return apart


@native()
def put(words: Words, given: List, x: Object):
    if type(x) is tuple or type(x) is Size:
        given.append(words.begin_tuple)
        for item in cast(Tuple, x):
            put_one(words, given, item)
        given.append(words.end)
    elif type(x) is list:
        given.append(words.begin_list)
        for item in cast(List, x):
            put_one(words, given, item)
        given.append(words.end)
    else:
        put_one(words, given, x)


@native(inline=True)
def put_one(words: Words, given: List, x: Object):
    """Tensors are computed, because no call is in flight."""
    if is_weft_tensor(words, x):
        require(cast(TensorObject, x)._data is not None)
    if type(x) is slice:
        given.append(words.begin_slice)
        given.append(cast(SliceObject, x).start)
        given.append(cast(SliceObject, x).stop)
        given.append(cast(SliceObject, x).step)
    elif type(x) is Generator:
        given.append(words.any_generator)
    else:
        given.append(x)


@native()
def put_named(words: Words, given: List, kwargs: Dict):
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    while next_item(kwargs, address_of(at), address_of(key), address_of(value)) != 0:
        put(words, given, cast(Object, value[0]))


@native()
def has_names(known: Known, kwargs: Dict) -> Bool:
    if len(kwargs) != len(known.names):
        return False
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    k = 0
    same = True
    while same and next_item(kwargs, address_of(at), address_of(key), address_of(value)) != 0:
        same = are_alike(cast(Object, key[0]), known.names[k])
        k += 1
    return same


@native()
def hash_of(words: Words, start: I64, given: List) -> I64:
    h = start
    for x in given:
        if is_weft_tensor(words, x):
            array = cast(ArrayObject, cast(TensorObject, x)._data)
            h = (h * 31 + (id(array.dtype) >> 4)) & HASH_MASK
            for d in range(array.ndim):
                h = (h * 31 + load_at(I64, array.shape, d)) & HASH_MASK
        else:
            h = (hash_with_value(h, x) * 31 + 7) & HASH_MASK
    return h ^ (h >> 11) ^ (h >> 23)


@native()
def is_weft_tensor(words: Words, x: Object) -> Bool:
    k = 0
    while k < len(words.classes) and type(x) is not words.classes[k]:
        k += 1
    return k < len(words.classes)


@native()
def is_call(words: Words, known: Known, wanted: I64, place: I64, default_dtype: Object, given: List) -> Bool:
    if known.hash != wanted or known.function != place or len(known.arguments) != len(given):
        return False
    if known.default_dtype is not default_dtype:
        return False
    k = 0
    while k < len(given) and is_argument(words, known.arguments[k], given[k]):
        k += 1
    return k == len(given)


@native()
def is_argument(words: Words, wanted: Argument, x: Object) -> Bool:
    if not wanted.is_tensor:
        return are_alike(x, wanted.value)
    if not is_weft_tensor(words, x):
        return False
    array = cast(ArrayObject, cast(TensorObject, x)._data)
    if array.dtype is not wanted.dtype or array.ndim != len(wanted.shape):
        return False
    same = True
    for d in range(len(wanted.shape)):
        same = same and load_at(I64, array.shape, d) == wanted.shape[d]
    return same


# --- finding out ------------------------------------------------------------------------------------------------------
_MARKS = _BEGIN_TUPLE, _BEGIN_LIST, _BEGIN_SLICE, _END, _GENERATOR = [object() for _ in range(5)]


def _flat(x):
    """What `put` makes of an argument."""
    if type(x) not in (tuple, Size, list):
        return _flat_one(x)
    return [_BEGIN_LIST if type(x) is list else _BEGIN_TUPLE, *(part for one in x for part in _flat_one(one)), _END]


def _flat_one(x):
    if type(x) is Generator:
        return [_GENERATOR]
    return [_BEGIN_SLICE, x.start, x.stop, x.step] if type(x) is slice else [x]


def _is_plain(x):
    """Whether something never changes, and is compared by what it is."""
    if type(x) in (tuple, Size):
        return len(x) <= _MOST_ARGUMENTS and all(map(_is_plain, x))
    return type(x) in _PLAIN or any(x is mark for mark in _MARKS)


def _is_own(x):
    return type(x) in marks.methods


def learn(place, wanted, args, kwargs):
    """Note what the function of a place does with such arguments, if it does nothing but ops."""
    flat = [one for x in (*args, *kwargs.values()) for one in _flat(x)]
    if not state.grad_enabled or inferring or watching or len(flat) > _MOST_ARGUMENTS:
        return
    if not all(_is_own(x) or not isinstance(x, (Tensor, np.ndarray)) and _is_plain(x) for x in flat):
        return
    if _uses_of(wanted) < USES << min(_n_known.get(place, 0) // FEW_KNOWN, 8):
        return
    _looks[place] = _looks.get(place, 0) + 1
    if _looks[place] == LOOKS:
        marks.hopeless.add(place)
    name = marks.answering[place].__name__
    outs = kwargs.get("out")
    outs = () if outs is None else outs if isinstance(outs, (tuple, list)) else (outs,)
    noter = Noter(is_in_place=name.endswith("_") and not name.endswith("__") or len(outs) > 0)
    noter.n_given = len(flat)
    generators = [x for x in (*args, *kwargs.values()) if type(x) is Generator] or [default_generator]
    if len(generators) > 1 or flat.count(_GENERATOR) > (generators[0] is not default_generator):
        return
    given = [noter.tensor(x.shape, x.dtype, ("given", k)) if _is_own(x) else x for k, x in enumerate(flat)]
    given = iter([generators[0] if x is _GENERATOR else x for x in given])
    args = [_rebuilt(x, given) for x in args]
    kwargs = {name: _rebuilt(x, given) for name, x in kwargs.items()}
    drawn = default_generator.__getstate__()
    made = made_by(noter, marks.answering[place], args, kwargs, generators[0])
    if default_generator.__getstate__() != drawn:
        # These draws are for the call itself.
        default_generator.__setstate__(drawn)
        marks.hopeless.add(place)
        return
    if made is None:
        return
    if getattr(marks.answering[place], "is_of_numbers", False):
        made = noter.copy_of(made)
    results = list(made) if isinstance(made, tuple) else [made]
    if not noter.steps or not all(x.__class__ is Noted and x.noter is noter or _is_plain(x) for x in results):
        return
    if any(x.__class__ is Noted and noter.leads_outside(x.place) for x in results):
        return
    places = [x.place if x.__class__ is Noted else noter.constant(x) for x in results]
    if noter.most_between(places) > MOST_ELEMENTS:
        _looks[place] -= 1  # which says nothing of smaller tensors
        marks.hopeless.discard(place)
        return
    known = Known(hash=wanted, function=place, default_dtype=state.default_dtype, names=tuple(kwargs))
    known.is_one, known.kind = not isinstance(made, tuple), made.__class__
    known.arguments = [*map(_argument, flat)]
    known.is_in_place, known.n_draws, known.constants = noter.is_in_place, noter.n_drawn, tuple(noter.constants)
    known.targets = [k for k, x in enumerate(flat) if any(x is out for out in outs)]
    known.steps = [
        Taken(
            op=step.op,
            attributes=step.attributes,
            how=step.how,
            places=[*map(noter.number, step.places)],
            target=noter.number(step.target),
        )
        for step in noter.steps
    ]
    known.results = [*map(noter.number, places)]
    known.whole, known.whole_places = whole_of(noter, flat, made) or (None, ())
    _note(known)
    _looks[place] = LOOKS + 1
    _n_known[place] = _n_known.get(place, 0) + 1
    marks.hopeless.discard(place)


def _argument(x):
    if _is_own(x):
        return Argument(is_tensor=True, shape=tuple(x.shape), dtype=x.dtype.numpy, value=None)
    return Argument(is_tensor=False, shape=(), dtype=None, value=x)


def _rebuilt(x, given):
    """The argument with what stands in for its tensors."""
    if type(x) not in (tuple, Size, list):
        return _rebuilt_one(x, given)
    next(given)
    items = [_rebuilt_one(one, given) for one in x]
    next(given)
    return items if type(x) is list else type(x)(items)


def _rebuilt_one(x, given):
    first = next(given)
    return slice(next(given), next(given), next(given)) if type(x) is slice else first


# --- installing -------------------------------------------------------------------------------------------------------
_held = []  # what native code reads
_looks = {}  # place -> how often its function was looked at; LOOKS or more where calls of it are known
_n_known = {}  # place -> how many calls of its function were noted
_rows, _retired = {}, deque(maxlen=_RETIRED)  # place in the table -> what stands there; a call may still be in others


def part(layout):
    """What is translated: its name, functions and layout."""
    return "functions", [answer_natively], layout_with_keys(layout)


def install(layout, eager):
    """Calls are answered from now on. eager: the address of eager mode's words."""
    if _held:
        return
    code = translated.load(*part(layout))
    nothing = Packed(Known(hash=-1))
    words = Words(slow=marks.not_answered, eager=eager, classes=tuple(marks.methods), learn=learn, uses=(), known=())
    words.generator, words.any_generator = default_generator, _GENERATOR
    words.apply_natively, words.apply = tensor._native, _apply
    words.change, words.change_anew = gate.native_change(), gate.change_anew
    words.begin_tuple, words.begin_list, words.begin_slice, words.end, _ = _MARKS
    packed = Packed(words)
    first = offset_of(Words, "known") // 8
    packed.words[first : first + N_CALLS] = nothing.address
    _held.extend((packed, code, nothing))
    marks.answer = objects.builtin(objects.definition_of("answer", code.address("weft_answer")), packed.words)


def _uses_of(wanted):
    """How often calls with this hash, and some others, have come that were not known."""
    return int(_held[0].words[offset_of(Words, "uses") // 8 + (wanted & N_CALLS - 1)])


def _note(known):
    """In place of another one that may stand there, if there is no room."""
    first = known.hash & (N_CALLS - PLACES)
    places = range(first, first + PLACES)
    at = next((at for at in places if at not in _rows), first + (known.hash >> 20 & PLACES - 1))
    if at in _rows:
        _retired.append(_rows[at])
    _rows[at] = packed = Packed(known)
    _held[0].words[offset_of(Words, "known") // 8 + at] = packed.address
