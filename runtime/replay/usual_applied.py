"""Calls of users' Functions in a usual call, without their Python; of the subset (docs/native.md).

    entries   matmul  mul  clamp  F given  pow ...
                      |-- F.apply(x) --|        from here on the result is handed out, and the entries are passed over

Of a Function that is proved to do nothing but ops (frontend/own_functions.py, record/own_ops.py) forward would lead to
the same entries, where it is given the same and all that it reads is what it was. So that is compared, as it is for
whole calls (whole_call.py).
"""

from functools import cache

from ...compiler.translate.kinds import I64, Dict, List, Object, Rows, Struct, Tuple, offset_of
from ...compiler.translate.language import METHOD, cast, native, require
from ..code import translated
from ..code.native_kinds import TensorObject, get_attribute
from ..code.packing import Packed
from ..eager.eager_matching import are_alike
from ..eager.eager_words import new_tuple, set_tuple_item
from ..programs.program import captures
from ..programs.recording import BACKWARD, GRADIENTS, UPDATE
from ..state.exposure import has_exposed
from ..state.modes import autocasting, state, watching
from ..state.seen import Watch
from ..state.tensor import Tensor
from . import native as objects
from .native_reads import CallWords, ReadWords, View, read_words, require_same
from .object_layout import layout_of_objects

_MOST_TRIED = 8  # at one place: what is not learned, or not for long, is watched in vain


class Argument(Struct):
    """number: of the value that a tensor holds; -1 of what is no tensor, which is `value`."""

    number: I64
    value: Object


class Words(Struct):
    """start, end: positions. constants: the run-time numbers of the entries. result: the number of what apply returns,
    -1 if that is a tuple of `results`."""

    slow: Object
    call: Rows(CallWords)
    start: I64
    end: I64
    arguments: Rows(Argument)
    reads: Rows(ReadWords)
    tensors: List
    numbers: List
    constants: Rows(Object)
    views: Rows(View)
    result: I64
    results: Rows(I64)


@native(form=METHOD, slow="slow", name="weft_apply_again")
def call(words: Words, arguments: Object) -> Object:
    """What apply would return; None if forward has to run."""
    given = cast(Tuple, arguments)
    require(len(given) == len(words.arguments))
    require(len(cast(List, watching)) == 0 and len(cast(Dict, autocasting)) == 0 and len(cast(List, captures)) == 0)
    require(get_attribute(state, "grad_enabled") is True)
    require(get_attribute(state, "level") is None and len(cast(Tuple, get_attribute(state, "function_modes"))) == 0)
    for k in range(len(given)):
        wanted = words.arguments[k]
        if wanted.number >= 0:
            require(given[k] is words.tensors[wanted.number])
        else:
            require(type(given[k]) is type(wanted.value) and are_alike(given[k], wanted.value))
    for reads in words.reads:
        require_same(reads)
    state_of_call = words.call[0]
    require(state_of_call.position == words.start and state_of_call.departed == 0)
    for number in words.constants:
        words.numbers.append(number)
    for view in words.views:
        cast(TensorObject, words.tensors[view.number])._base = words.tensors[view.base]
    state_of_call.position = words.end
    if words.result >= 0:
        return words.tensors[words.result]
    made = new_tuple(len(words.results))
    for k in range(len(words.results)):
        set_tuple_item(made, k, words.tensors[words.results[k]])
    return made


class Applied:
    """The calls of one Function at one place. outside: tensors among the arguments and those that forward reads, whose
    memory must not be exposed."""

    def __init__(self, frame, ways, start, arguments, entries, constants, outside, results):
        reads = ways.reads()
        words = Words(
            slow=_not_this_time,
            call=[],
            start=start,
            end=start + len(entries),
            arguments=[Argument(number=number, value=value) for number, value in arguments],
            reads=[read_words(rows, tensors) for rows, tensors in reads],
            tensors=frame.tensors,
            numbers=frame.numbers,
            constants=constants,
            views=[View(number=e.vid, base=e.root) for e in entries if e.root is not None],
            result=-1 if isinstance(results, list) else results,
            results=results if isinstance(results, list) else [],
        )
        self.ways, self.outside = ways, outside
        self._packed, self._held = Packed(words), reads
        at = self._packed.words
        at[offset_of(Words, "call") // 8] = frame._native.words.ctypes.data
        definition = objects.definition_of("applied", _code().address("weft_apply_again"))
        self.function = objects.builtin(definition, at)


def _not_this_time(arguments):
    """Forward runs."""
    return None


class AppliesFunctions:
    """The part of a UsualFrame that takes calls of Functions as a whole.

    functions_known: position -> Applied; n_functions_tried: position -> how often one was to be learned.
    """

    def __init__(self):
        super().__init__()
        self.functions_known, self.n_functions_tried = {}, {}

    def function_again(self, ways, args):
        """What a call of a Function returns, if it is known here; else None."""
        known = self.functions_known.get(self.position.value)
        if known is None or known.ways is not ways or self.working or known.outside and has_exposed(known.outside):
            return None
        return known.function(args)

    def place_of_function(self, ways, args):
        if self._native is None or self.many is not None or self.working or self.segments or self.eager_ops:
            return None
        start = self.position.value
        n_tried = self.n_functions_tried.get(start, 0)
        if not ways.known or n_tried >= _MOST_TRIED:
            return None
        self.n_functions_tried[start] = n_tried + 1
        return Place(self, ways, start, args)


class Place:
    """Where a call of a Function begins whose forward runs, and may not have to the next time."""

    def __init__(self, frame, ways, start, args):
        self.frame, self.ways, self.start, self.args = frame, ways, start, args
        self.n_numbers, self.watch = len(frame.numbers), Watch()

    def run(self, facts, context, args):
        with self.watch:
            return facts.run(facts, context, args)

    def ended(self, outputs, is_tuple):
        """The call has given these: if all that it did were entries, which make them, it is known now."""
        frame, start, end = self.frame, self.start, self.frame.position.value
        if frame.departed.value or frame.working or end <= start or self.watch.what_else() is not None:
            return
        entries = frame.entries[start:end]
        made = {id(frame.tensors[entry.vid]): entry.vid for entry in entries}
        results = [made.get(id(x)) for x in outputs]
        if None in results or entries[-1].vid not in results or not all(map(_is_plain, entries)):
            return
        arguments = [self._argument(x) for x in self.args]
        tensors = [x for x in (*self.args, *self.ways.tensors()) if isinstance(x, Tensor) and x._frame is None]
        if None in arguments or has_exposed(tensors):
            return
        constants = frame.numbers[self.n_numbers :]
        about = frame, self.ways, start, arguments, entries, constants, tensors
        frame.functions_known[start] = Applied(*about, results if is_tuple else results[0])

    def _argument(self, x):
        """(number, value), as in Argument; None of a tensor that the call does not know."""
        tensors = self.frame.tensors
        if not isinstance(x, Tensor):
            return -1, x
        if x._frame is self.frame:
            return (x._vid, None) if tensors[x._vid] is x else None
        number = next((k for k, tensor in enumerate(tensors) if tensor is x), None)
        return None if number is None else (number, None)


def _is_plain(entry):
    special = entry.fresh or entry.change or entry.update or entry.walk or entry.turned
    return not special and entry.op not in (BACKWARD, GRADIENTS, UPDATE) and entry.step is not None


def part(layout):
    """What is translated: its name, functions and layout."""
    return "applied", [call], layout


@cache
def _code():
    return translated.load(*part(layout_of_objects()))
