"""Ops on operands of sizes that were never seen, in native code: what a Routine says of sizes is found in the call.

A plan that serves many sizes is an Open (runtime/replay/open_plans.py): its Routine has holes. The call's sizes,
strides and attributes are put into `words.sizes`, what follows from them behind them; if all that was supposed of them
holds, the words of the Routine that depend on them are written, and it is the Routine of this call. Of the subset
(docs/native.md).
"""

from ...compiler.ops.table import Meta
from ...compiler.translate.kinds import I64, Address, Bool, Dict, Maybe, Object, Tuple
from ...compiler.translate.language import address_of, cast, load_at, local_array, native, quotient
from ..code.native_kinds import TensorObject, as_long, new_long
from .eager_matching import are_alike, fits, is_contiguous, is_tensor, is_tuple
from .eager_nodes import shape_of
from .eager_words import (
    ADD,
    ADD_NUMBER,
    EQUAL,
    HASH_MASK,
    LESS,
    MULTIPLY,
    MULTIPLY_NUMBER,
    N_OPEN,
    N_SEEN,
    OPEN_PLACES,
    ArrayObject,
    Cell,
    FloatCell,
    HoleObject,
    MetaObject,
    NodeObject,
    Open,
    OpenOperand,
    Sizes,
    Words,
    as_small,
    new_object,
    new_tuple,
    set_tuple_item,
)
from .open_nodes import Hole

LARGEST_SIZE = 1 << 40
# A plan of exact sizes takes Python about as long to make as it saves native code in so many calls; then Python takes
# some: two to make it, and those after which native code is told of it.
CALLS_BEFORE_EXACT, CALLS_FOR_EXACT = 1000, 12
LEAST = 2  # what a size that is not supposed to be another number is at least


# --- finding it -------------------------------------------------------------------------------------------------------
@native()
def open_place_for(words: Words, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)) -> I64:
    """Where in the table that is which serves these operands, its Routine written for them; -1 if nothing does."""
    wanted = open_hash_of(op, operands, attributes)
    at = wanted & (N_OPEN - OPEN_PLACES)
    end = at + OPEN_PLACES
    while at < end and not is_open_for(
        words, cast(Open, words.open[at]), wanted, op, default_dtype, operands, attributes
    ):
        at += 1
    if at == end:
        return -1
    return at


@native(inline=True)
def is_wanted_exact(words: Words, wanted: I64) -> Bool:
    """Whether a call has come so often that Python is to make a plan for its sizes, which is faster: for some calls, in
    which that is done if it can be."""
    at = (wanted ^ (wanted >> 12)) & (N_SEEN - 1)
    if words.seen[at] != wanted:
        words.seen[at] = wanted
        words.n_seen[at] = 0
    words.n_seen[at] += 1
    return words.n_seen[at] > CALLS_BEFORE_EXACT and words.n_seen[at] <= CALLS_BEFORE_EXACT + CALLS_FOR_EXACT


@native()
def open_hash_of(op: Object, operands: Tuple, attributes: Maybe(Dict)) -> I64:
    """The same as `open_hash` of eager_hash.py: it asks for types and ranks, and not for numbers."""
    h = id(op) >> 4
    for x in operands:
        if is_tensor(x):
            data = cast(TensorObject, x)._data
            if data is not None:
                array = cast(ArrayObject, data)
                h = (h * 31 + (id(array.dtype) >> 4)) & HASH_MASK
                h = (h * 31 + 2 * array.ndim + (1 if is_contiguous(array) else 0)) & HASH_MASK
        else:
            h = (h * 31 + (id(type(x)) >> 4)) & HASH_MASK
    if attributes is not None:
        h = (h * 31 + len(attributes)) & HASH_MASK
    return h ^ (h >> 11) ^ (h >> 23)


@native()
def is_open_for(
    words: Words,
    known: Open,
    wanted: I64,
    op: Object,
    default_dtype: Object,
    operands: Tuple,
    attributes: Maybe(Dict),
) -> Bool:
    if known.hash != wanted:
        return False
    routine = known.routine
    if routine.op is not op or routine.default_dtype is not default_dtype or len(known.operands) != len(operands):
        return False
    for i in range(len(operands)):
        if not finds_sizes(words, operands[i], known.operands[i]):
            return False
    if not has_open_attributes(words, known, attributes) or not serves(words, known.sizes):
        return False
    write(words, known.sizes)
    same = True
    for i in range(len(operands)):
        same = same and fits(operands[i], routine.operands[i])
    return same


@native()
def finds_sizes(words: Words, x: Object, wanted: OpenOperand) -> Bool:
    """Whether it may be what is wanted. The sizes that are found here stand in their places then."""
    if wanted.is_number:
        return type(x) is wanted.kind
    if not is_tensor(x):
        return False
    data = cast(TensorObject, x)._data
    if data is None:
        return False
    array = cast(ArrayObject, data)
    if array.dtype is not wanted.kind or array.ndim != len(wanted.places):
        return False
    if wanted.is_row_major != is_contiguous(array):
        return False
    for d in range(len(wanted.places)):
        if wanted.places[d] >= 0:
            words.sizes[wanted.places[d]] = load_at(I64, array.shape, d)
    for d in range(len(wanted.strides)):
        if wanted.strides[d] >= 0:
            # Of less than 0 nothing is supposed.
            step = load_at(I64, array.strides, d)
            words.sizes[wanted.strides[d]] = LEAST + quotient(step, wanted.item_bytes) if step >= 0 else 0
    return True


@native()
def has_open_attributes(words: Words, known: Open, attributes: Maybe(Dict)) -> Bool:
    if attributes is None:
        return len(known.attributes) == 0
    if len(attributes) != len(known.attributes):
        return False
    for wanted in known.attributes:
        found = attributes.get(wanted.name)
        if found is None:
            return False
        if not fills(words, found, wanted.value):
            return False
    return True


@native()
def fills(words: Words, x: Object, wanted: Object) -> Bool:
    """Whether they are alike but for the holes, whose numbers are noted."""
    if type(wanted) is Hole:
        if type(x) is not int:
            return False
        hole = cast(HoleObject, wanted)
        number = small_number(x) + as_long(hole.shift)
        if hole.is_first is True:
            words.sizes[as_long(hole.place)] = number
            return True
        return words.sizes[as_long(hole.place)] == number
    if is_tuple(x) and is_tuple(wanted):
        return fills_in_order(words, cast(Tuple, x), cast(Tuple, wanted))
    return are_alike(x, wanted)


@native()
def small_number(x: Object) -> I64:
    """An int; of a large one what no place takes."""
    overflow = local_array(I64, 1)
    found = as_small(x, address_of(overflow))
    if overflow[0] != 0 or found > LARGEST_SIZE or found < -LARGEST_SIZE:
        return -LARGEST_SIZE
    return found


@native()
def fills_in_order(words: Words, x: Tuple, wanted: Tuple) -> Bool:
    if len(x) != len(wanted):
        return False
    same = True
    for i in range(len(wanted)):
        same = same and fills(words, x[i], wanted[i])
    return same


# --- what follows from sizes ------------------------------------------------------------------------------------------
@native()
def serves(words: Words, sizes: Sizes) -> Bool:
    """Whether what was supposed of the sizes holds for those of this call. What follows from them stands behind them
    then."""
    values = words.sizes
    at = sizes.n
    for k in range(at):
        if values[k] < LEAST or values[k] > LARGEST_SIZE:
            return False
    for one in sizes.formulas:
        x = values[one.first]
        if one.kind == ADD_NUMBER:
            x = x + one.second
        elif one.kind == MULTIPLY_NUMBER:
            x = x * one.second
        elif one.kind == ADD:
            x = x + values[one.second]
        elif one.kind == MULTIPLY:
            x = x * values[one.second]
        else:
            x = whole_quotient(x, one.second)
        values[at] = x
        at += 1
    same = True
    for guard in sizes.guards:
        same = same and holds(values[guard.value], guard.comparison) == guard.answer
    return same


@native(inline=True)
def holds(x: I64, comparison: I64) -> Bool:
    if comparison == LESS:
        return x < 0
    if comparison == EQUAL:
        return x == 0
    return x <= 0


@native(inline=True)
def whole_quotient(x: I64, divisor: I64) -> I64:
    """x // divisor, which is above 0, as Python has it."""
    found = quotient(x, divisor)
    if found * divisor > x:
        return found - 1
    return found


@native()
def write(words: Words, sizes: Sizes):
    for one in sizes.written:
        cast(Cell, one.at).word = words.sizes[one.value]
    for one in sizes.floats:
        cast(FloatCell, one.at).word = float(words.sizes[one.value])
    for one in sizes.divided:
        cast(FloatCell, one.at).word = one.numerator / float(words.sizes[one.value])


# --- nodes ------------------------------------------------------------------------------------------------------------
@native()
def record_open(words: Words, derivative: Object, sizes: Address, n: I64, out: TensorObject, attributes: Maybe(Dict)):
    """What the node of a result has besides what `record` gives it: shape, attributes and sizes of this call."""
    node = cast(NodeObject, out._node)
    if attributes is not None:
        node.attributes = attributes
    node.meta = new_meta(cast(ArrayObject, out._data), cast(MetaObject, node.meta).dtype)
    found = new_tuple(n + 1)
    set_tuple_item(found, 0, derivative)
    for k in range(n):
        set_tuple_item(found, k + 1, new_long(load_at(I64, sizes, k)))
    node.sizes = found


@native()
def new_meta(array: ArrayObject, dtype: Object) -> Object:
    made = cast(MetaObject, new_object(Meta, 0))
    made.shape = shape_of(array)
    made.dtype = dtype
    made.weak = False
    return made


@native()
def has_sizes(words: Words, found: Tuple, sizes: Sizes) -> Bool:
    """Whether the sizes that a node tells are those of a derivative, which is written for them then."""
    for k in range(len(found) - 1):
        words.sizes[k] = as_long(found[k + 1])
    if len(found) - 1 != sizes.n or not serves(words, sizes):
        return False
    write(words, sizes)
    return True
