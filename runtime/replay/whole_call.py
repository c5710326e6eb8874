"""A usual call whose function does not run, in native code; of the subset (docs/native.md).

    require_same     what the function reads outside, and its arguments that are no tensors, are what they were
    made             its results, of the tensors that are made before they are asked for

The function is proved to do nothing but ops on what it is given and on what it reads (frontend/pure_code.py), and one
call like this was looked at (frontend/whole_calls.py). All that its Python would have told the replay is said at once,
then: that every entry was met, which numbers came with them, and what the views among the results are views of. Where
it changes tensors in place, makes leaves or asks for gradients, that is done here too, in Python (usual_whole.py).
"""

from collections import namedtuple
from functools import cache, partial

from ...compiler.translate.kinds import I64, Dict, List, Object, ObjectKind, Rows, Struct, Tuple, offset_of
from ...compiler.translate.language import METHOD, cast, keep, native, require
from ..code import translated
from ..code.native_kinds import TensorObject, call_with
from ..code.packing import Packed
from ..eager.eager_matching import are_alike
from ..eager.eager_words import ArrayObject, new_dict, new_tuple, set_tuple_item
from ..programs.program import captures
from ..state.exposure import Snapshots
from ..state.modes import autocasting, watching
from ..state.tensor import Tensor
from . import native as objects
from .native_reads import CallWords, ReadWords, View, compare_memory, read_words, require_same
from .object_layout import layout_of_objects, places_of
from .usual_whole import steps_of

COMPUTED, GIVEN, CONSTANT, AS_TUPLE, AS_LIST, AS_DICT, AS_OTHER = range(7)  # what a piece of the results is


SnapshotsObject = ObjectKind("Snapshots", Snapshots, {"last": ("snapshots_last", Object)})


class Piece(Struct):
    """number: of the value, or of the leaf among the arguments; of a container that of the first piece in it, of so
    many. value: what is the same in every call; of a dict its keys, of other things what makes them
    of a tuple of their parts."""

    kind: I64
    number: I64
    size: I64
    value: Object


class Leaf(Struct):
    """Of the arguments. value: of one that is no tensor."""

    is_tensor: I64
    kind: Object
    value: Object


class Shown(Struct):
    """Of a number that stands for what is in memory that NumPy arrays show too. source: a tensor of it; None: that is
    the leaf among the arguments. snapshots: Snapshots of what the backward may read; None if it will not.
    n_bytes: -1 of what does not lie in one run."""

    number: I64
    leaf: I64
    n_bytes: I64
    source: Object
    snapshots: Object


class Words(Struct):
    """more: of a call that does more than ops, does that and says whether it could; does what views would, too."""

    slow: Object
    call: Rows(CallWords)
    n_entries: I64
    reads: Rows(ReadWords)
    leaves: Rows(Leaf)
    tensors: List
    numbers: List
    constants: Rows(Object)
    shown: Rows(Shown)
    more: Object
    views: Rows(View)
    pieces: Rows(Piece)
    calls: I64


@native(form=METHOD, slow="slow", name="weft_call_whole")
def call(words: Words, arguments: Object) -> Object:
    """What the function would return; None if it has to run."""
    leaves = cast(Tuple, arguments)
    require(len(leaves) == len(words.leaves))
    require(len(cast(List, watching)) == 0 and len(cast(Dict, autocasting)) == 0 and len(cast(List, captures)) == 0)
    for k in range(len(leaves)):
        require(type(leaves[k]) is words.leaves[k].kind)
        require(words.leaves[k].is_tensor == 1 or are_alike(leaves[k], words.leaves[k].value))
    require_same(words.reads[0])
    result = made(words, 0, leaves)
    # Making objects may have run code that looked at the call, which goes another way then.
    state = words.call[0]
    require(state.position == 0 and state.departed == 0)
    for one in words.shown:
        words.tensors[one.number] = read_now(one, leaves)
    if words.more is not None and call_with(words.more, (), None) is not True:
        for one in words.shown:
            words.tensors[one.number] = None
        return None
    for number in words.constants:
        words.numbers.append(number)
    for view in words.views:
        cast(TensorObject, words.tensors[view.number])._base = words.tensors[view.base]
    state.position = words.n_entries
    words.calls += 1
    return result


@native()
def read_now(one: Shown, leaves: Tuple) -> Object:
    """What the program reads. Nothing else runs before it does, so it may read where the memory is."""
    source = one.source
    if source is None:
        source = leaves[one.leaf]
    if one.snapshots is None:
        return source
    snapshots = cast(SnapshotsObject, one.snapshots)
    if snapshots.last is not None and one.n_bytes >= 0:
        array = cast(ArrayObject, cast(TensorObject, source)._data)
        last = cast(ArrayObject, cast(TensorObject, snapshots.last)._data)
        if compare_memory(array.data, last.data, one.n_bytes) == 0:
            return keep(snapshots.last)
    return call_with(one.snapshots, (source,), None)


@native()
def made(words: Words, at: I64, leaves: Tuple) -> Object:
    piece = words.pieces[at]
    if piece.kind == COMPUTED:
        return words.tensors[piece.number]
    if piece.kind == GIVEN:
        return leaves[piece.number]
    if piece.kind == AS_TUPLE:
        return made_tuple(words, piece, leaves)
    if piece.kind == AS_LIST:
        return made_list(words, piece, leaves)
    if piece.kind == AS_DICT:
        return made_dict(words, piece, leaves)
    if piece.kind == AS_OTHER:
        return call_with(piece.value, (made_tuple(words, piece, leaves),), None)
    return piece.value


@native()
def made_tuple(words: Words, piece: Piece, leaves: Tuple) -> Object:
    items = new_tuple(piece.size)
    for k in range(piece.size):
        set_tuple_item(items, k, made(words, piece.number + k, leaves))
    return items


@native()
def made_list(words: Words, piece: Piece, leaves: Tuple) -> Object:
    items = []
    for k in range(piece.size):
        items.append(made(words, piece.number + k, leaves))
    return items


@native()
def made_dict(words: Words, piece: Piece, leaves: Tuple) -> Object:
    items = new_dict()
    for k in range(piece.size):
        items[cast(Tuple, piece.value)[k]] = made(words, piece.number + k, leaves)
    return items


# --- making one -------------------------------------------------------------------------------------------------------
class WholeCall:
    """The calls of one UsualFrame without their Python."""

    def __init__(self, frame, reads, outside, leaves, numbers, pieces, made, shown):
        """reads, outside: as of read_words. leaves: (type, value) of the arguments, the value None of tensors.
        numbers: the Python numbers among operands. pieces: of the results, as Piece. made: as of steps_of. shown:
        (number, leaf, source, n_bytes), as Shown."""
        steps = steps_of(frame, made)
        is_read_later = frame.outside is not None or bool(steps)
        snapshots = [Snapshots(frame.keeps_copies) if is_read_later else None for _ in shown]
        views = () if steps else [View(number=e.vid, base=e.root) for e in frame.entries[:-1] if e.root is not None]
        words = Words(
            slow=_not_this_time,
            call=[],
            n_entries=len(frame.entries) - 1,
            reads=[read_words(reads, outside)],
            leaves=[Leaf(is_tensor=issubclass(kind, Tensor), kind=kind, value=value) for kind, value in leaves],
            tensors=frame.tensors,
            numbers=frame.numbers,
            constants=numbers,
            shown=[
                Shown(number=number, leaf=leaf, n_bytes=n, source=source, snapshots=of_one)
                for (number, leaf, source, n), of_one in zip(shown, snapshots)
            ],
            more=partial(frame.take_steps, steps) if steps else None,
            views=views,
            pieces=[Piece(**dict(zip(("kind", "number", "size", "value"), piece))) for piece in pieces],
        )
        self._packed, self._held, self.n_before = Packed(words), (reads, outside), 0
        # The call's own words are there already.
        at = self._packed.words
        at[offset_of(Words, "call") // 8] = frame._native.words.ctypes.data
        definition = objects.definition_of("whole", _code().address("weft_call_whole"))
        self.function = objects.builtin(definition, at)

    def is_useless(self):
        """Whether there was none since this was asked last."""
        before, self.n_before = self.n_before, self._packed.read("calls")
        return before == self.n_before


def _not_this_time(arguments):
    """The function runs."""
    return None


def part(layout):
    """What is translated: its name, functions and layout."""
    places = layout._asdict() | places_of(Snapshots, ("last",), "snapshots")
    return "whole", [call], namedtuple("WholeLayout", places)(**places)


@cache
def _code():
    return translated.load(*part(layout_of_objects()))
