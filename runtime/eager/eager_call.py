"""Calling an op in eager mode in native code: `weft_eager_call` stands in place of Op.__call__ (eager_native.py).

It does what gate.py: apply_eagerly does for operands whose plan has a Routine (eager_words.py): looks the plan up,
makes the result's array, runs the kernels, makes the tensor, and its node if one of the operands requires gradients.
Everything else departs to Python, which can do all of it. The sources are of the subset (docs/native.md).
"""

from ...compiler.translate.kinds import I64, Address, Bool, Dict, List, Maybe, Object, Tuple
from ...compiler.translate.language import METHOD, SLOT, address_of, cast, keep, load_at, local_array, native, require
from ..code.native_kinds import TensorObject, as_double, as_long, compare, has_error
from ..state.modes import inferring, watching
from ..state.size import Size
from ..state.storage import InferenceStorage
from ..state.tensor import Tensor
from .eager_nodes import new_inference_storage, new_tensor, record
from .eager_views import new_view
from .eager_words import (
    ELEMENTWISE,
    HASH_MASK,
    INDEXED,
    MIXED,
    MOST_TOLD_APART,
    N_PLANS,
    PRODUCT,
    REDUCTION,
    ROUTINE,
    ArrayObject,
    CountedObject,
    NodeRow,
    Operand,
    Place,
    Routine,
    Step,
    Words,
    hash_of_integer,
    is_subtype,
    next_item,
    thread_number,
    thread_state,
)

WORDS = Words()
LARGEST_EXACT = 9007199254740992.0  # integers up to it are floats
call_op = None  # the Python function that calls an op, set by eager_native.py before this is loaded


@native(form=SLOT, slow="call_op", name="weft_eager_call")
def call(op: Object, operands: Tuple, attributes: Maybe(Dict)) -> Object:
    if load_at(I64, WORDS.replaying, 0) != 0:
        return WORDS.replay(op, operands, attributes)
    return called(WORDS, op, operands, attributes)


def not_called(*_):
    """Everything else is Python's business."""
    return None


@native(form=METHOD, slow="slow_apply", name="weft_eager_apply")
def apply(words: Words, op: Object, operands: Object, attributes: Object) -> Object:
    """The same for who has no tensor to ask, or runs an op outside of the call in flight: the result, or None."""
    require(type(operands) is tuple and type(attributes) is dict)
    return called(words, op, cast(Tuple, operands), given(cast(Dict, attributes)))


@native()
def given(attributes: Dict) -> Maybe(Dict):
    """As a call without keywords has them."""
    if len(attributes) == 0:
        return None
    return attributes


@native(inline=True)
def called(words: Words, op: Object, operands: Tuple, attributes: Maybe(Dict)) -> TensorObject:
    require(thread_number(thread_state()) == words.thread)
    # Nobody is to be shown the nodes.
    require(len(cast(List, watching)) == 0)
    modes = words.modes
    require(modes.get("frame", None) is None)
    default_dtype = keep(modes.get("default_dtype", words.default_dtype))
    routine = routine_for(words, op, default_dtype, operands, attributes)
    required = 0
    if routine.is_floating and modes.get("grad_enabled", words.grad_enabled) is not False:
        required = which_require(operands)
    row = cast(NodeRow, routine.nodes[row_of(required, len(operands))])
    require(row.is_known and not routine.only_changes)
    infers = len(cast(List, inferring)) != 0 and modes.get("inference", None) is True
    if routine.is_view:
        require(required == 0 or type(cast(TensorObject, operands[0])._storage) is not InferenceStorage)
        # In inference mode a view may be more than what it is elsewhere (inference.py).
        require(not infers or cast(TensorObject, operands[0])._requires_grad is False)
        out = new_view(words, routine.view, cast(TensorObject, operands[0]))
    else:
        out = computed(words, routine, operands)
        if infers:
            out._storage = new_inference_storage(words)
    if row.makes_node:
        record(words, routine, row, operands, out)
    words.calls_taken += 1
    return out


# --- finding the routine ----------------------------------------------------------------------------------------------
@native(inline=True)
def routine_for(words: Words, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)) -> Routine:
    at = hash_of(op, operands, attributes) & (N_PLANS - 1)
    if not matches(cast(Routine, words.plans[at]), op, default_dtype, operands, attributes):
        at = at ^ 1
        require(matches(cast(Routine, words.plans[at]), op, default_dtype, operands, attributes))
    return cast(Routine, words.plans[at])


@native(inline=True)
def is_tensor(x: Object) -> Bool:
    return type(x) is Tensor or is_subtype(type(x), Tensor) != 0


@native()
def hash_of(op: Object, operands: Tuple, attributes: Maybe(Dict)) -> I64:
    """The same as `_hash` of eager_native.py."""
    h = id(op) >> 4
    for x in operands:
        if is_tensor(x):
            data = cast(TensorObject, x)._data
            if data is not None:
                h = hash_with(h, cast(ArrayObject, data))
    if attributes is not None:
        h = hash_with_attributes(h, attributes)
    return h ^ (h >> 11)


@native()
def hash_with_attributes(h: I64, attributes: Dict) -> I64:
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    found = h
    while next_item(attributes, address_of(at), address_of(key), address_of(value)) != 0:
        found = hash_with_value(found, cast(Object, value[0]))
    return found


@native()
def hash_with_value(h: I64, x: Object) -> I64:
    """Integers, and tuples of such, are what tells calls of one op apart."""
    if type(x) is int:
        return (h * 31 + (hash_of_integer(x) & HASH_MASK)) & HASH_MASK
    found = h
    if is_tuple(x):
        for item in cast(Tuple, x):
            found = hash_with_value(found, item)
    return found


@native(inline=True)
def hash_with(h: I64, array: ArrayObject) -> I64:
    found = (h * 31 + (id(array.dtype) >> 4)) & HASH_MASK
    sizes = array.shape
    for d in range(array.ndim):
        found = (found * 31 + load_at(I64, sizes, d)) & HASH_MASK
    if not is_contiguous(array):
        steps = array.strides
        for d in range(array.ndim):
            found = (found * 31 + load_at(I64, steps, d)) & HASH_MASK
    return found


@native()
def matches(routine: Routine, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)) -> Bool:
    if routine.op is not op or routine.default_dtype is not default_dtype or len(routine.operands) != len(operands):
        return False
    for i in range(len(operands)):
        if not fits(operands[i], routine.operands[i]):
            return False
    return has_attributes(routine, attributes)


@native()
def fits(x: Object, wanted: Operand) -> Bool:
    if wanted.is_number:
        return type(x) is wanted.kind
    if not is_tensor(x):
        return False
    data = cast(TensorObject, x)._data
    return data is not None and is_array(cast(ArrayObject, data), wanted) and lies_as(cast(ArrayObject, data), wanted)


@native()
def is_array(array: ArrayObject, wanted: Operand) -> Bool:
    """Whether type and shape are those that are wanted."""
    if array.dtype is not wanted.kind or array.ndim != len(wanted.shape):
        return False
    return has_shape(array.shape, wanted)


@native()
def lies_as(array: ArrayObject, wanted: Operand) -> Bool:
    """Whether the elements of an array of the wanted shape are in the wanted order."""
    same = wanted.is_row_major == is_contiguous(array)
    for d in range(len(wanted.strides)):
        same = same and load_at(I64, array.strides, d) == wanted.strides[d]
    return same


@native(inline=True)
def is_contiguous(array: ArrayObject) -> Bool:
    return array.flags & 1 != 0


@native(inline=True)
def has_shape(sizes: Address, wanted: Operand) -> Bool:
    same = True
    for d in range(len(wanted.shape)):
        same = same and load_at(I64, sizes, d) == wanted.shape[d]
    return same


@native()
def has_attributes(routine: Routine, attributes: Maybe(Dict)) -> Bool:
    if attributes is None:
        return len(routine.attributes) == 0
    if len(attributes) != len(routine.attributes):
        return False
    for wanted in routine.attributes:
        found = attributes.get(wanted.name)
        if found is None:
            return False
        if not are_alike(found, wanted.value):
            return False
    return True


@native()
def are_alike(x: Object, y: Object) -> Bool:
    """Equal and of one kind: 2 is not 2.0, and 0.0 not -0.0."""
    if x is y:
        return True
    # A shape written by hand and one asked of a tensor have one plan.
    if is_tuple(x) and is_tuple(y):
        return are_alike_in_order(cast(Tuple, x), cast(Tuple, y))
    if type(x) is not type(y):
        return False
    if type(x) is float:
        return as_double(x) == as_double(y) and as_double(x) != 0.0
    return (type(x) is int or type(x) is str) and compare(x, y, 2) == 1


@native(inline=True)
def is_tuple(x: Object) -> Bool:
    return type(x) is tuple or type(x) is Size


@native()
def are_alike_in_order(x: Tuple, y: Tuple) -> Bool:
    if len(x) != len(y):
        return False
    same = True
    for i in range(len(x)):
        same = same and are_alike(x[i], y[i])
    return same


@native(inline=True)
def row_of(required: I64, n: I64) -> I64:
    """Where among the nodes of a routine the row is for those of its n operands that require gradients."""
    found = required
    if n > MOST_TOLD_APART and required != 0:
        found = 1 if required == (1 << n) - 1 else MIXED
    return found


@native()
def which_require(operands: Tuple) -> I64:
    """Bit k says whether operand k requires gradients."""
    found = 0
    bit = 1
    for x in operands:
        if is_tensor(x) and cast(TensorObject, x)._requires_grad is not False:
            found = found | bit
        bit += bit
    return found


# --- computing --------------------------------------------------------------------------------------------------------
@native()
def computed(words: Words, routine: Routine, operands: Tuple) -> TensorObject:
    return new_tensor(words, new_values(words, routine, operands))


@native()
def new_values(words: Words, routine: Routine, operands: Tuple) -> ArrayObject:
    if routine.is_program:
        return values_of_program(words, routine, operands)
    null = words.null
    array = words.new_array(words.array_class, routine.dtype, routine.ndim, routine.shape, null, null, 0, null)
    require(array is not None)
    fill_slots(words, routine, operands, array)
    for i in range(len(routine.fixed)):
        words.slots[len(operands) + 1 + i] = routine.fixed[i]
    run(words, routine)
    return array


@native()
def values_of_program(words: Words, routine: Routine, operands: Tuple) -> ArrayObject:
    array = unheld(cast(List, routine.kept))
    # Python makes one more, if there is room.
    require(array is not None)
    run_program(words, routine, operands, array)
    return cast(ArrayObject, array)


@native()
def run_program(words: Words, routine: Routine, operands: Tuple, array: Object):
    for k in range(len(routine.as_numbers)):
        put_number(words, k, operands[routine.as_numbers[k]])
    n = len(routine.head)
    for k in range(n):
        words.table[k] = routine.head[k]
    for k in range(len(routine.arrays)):
        words.table[n + k] = id(cast(TensorObject, operands[routine.arrays[k]])._data)
    words.table[n + len(routine.arrays)] = id(array)
    require(routine.program(address_of(words.table)) == 0)


@native()
def unheld(kept: List) -> Object:
    for k in range(len(kept)):
        if cast(CountedObject, kept[k]).count == 1:
            return kept[k]
    return None


@native()
def fill_slots(words: Words, routine: Routine, operands: Tuple, array: ArrayObject):
    n = len(operands)
    for i in range(n):
        if routine.operands[i].is_whole:
            put_whole(words, i, operands[i])
            words.slots[i] = words.wholes_at + 8 * i
        elif routine.operands[i].is_number:
            put_number(words, i, operands[i])
            words.slots[i] = words.numbers_at + 8 * i
        else:
            words.slots[i] = cast(ArrayObject, cast(TensorObject, operands[i])._data).data
    words.slots[n] = array.data


@native(inline=True)
def put_number(words: Words, i: I64, x: Object):
    value = as_double(x)
    if type(x) is not float:
        require(value <= LARGEST_EXACT and value >= -LARGEST_EXACT and has_error() is None)
    words.numbers[i] = value


@native(inline=True)
def put_whole(words: Words, i: I64, x: Object):
    value = as_long(x)
    # There are larger ones.
    require(value != -1 or has_error() is None)
    words.wholes[i] = value


@native()
def run(words: Words, routine: Routine):
    for step in routine.steps:
        run_step(words, step)


@native()
def run_step(words: Words, step: Step):
    if step.kind == ELEMENTWISE:
        run_elementwise(words, step)
    elif step.kind == REDUCTION:
        x = place_of(words, step.places[0])
        out = place_of(words, step.places[1])
        step.reduction(x, out, step.numbers[0], step.numbers[1], step.numbers[2])
    elif step.kind == PRODUCT:
        run_product(words, step)
    elif step.kind == INDEXED:
        run_indexed(words, step)
    elif step.kind == ROUTINE:
        run_routine(words, step)
    else:
        require(load_at(I64, step.lowest, 0) >= step.numbers[0] and load_at(I64, step.highest, 0) <= step.numbers[1])


@native()
def run_elementwise(words: Words, step: Step):
    begin(words, step)
    n = len(step.places)
    for k in range(len(step.strides)):
        words.table[n + k] = step.strides[k]
    step.elementwise(address_of(words.table), step.size)
    for _ in range(step.rounds - 1):
        advance(words, step)
        step.elementwise(address_of(words.table), step.size)


@native()
def run_product(words: Words, step: Step):
    begin(words, step)
    multiply(words, step)
    for _ in range(step.rounds - 1):
        advance(words, step)
        multiply(words, step)


@native()
def run_routine(words: Words, step: Step):
    begin(words, step)
    n = len(step.places)
    for k in range(len(step.rest)):
        words.table[n + k] = step.rest[k]
    t = words.table
    # fmt: off
    step.routine(
        t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11],
        t[12], t[13], t[14], t[15], t[16], t[17], t[18], t[19], t[20], t[21], t[22], t[23],
    )
    # fmt: on


@native()
def run_indexed(words: Words, step: Step):
    begin(words, step)
    run_at_index(words, step)
    for _ in range(step.rounds - 1):
        advance(words, step)
        run_at_index(words, step)


@native()
def run_at_index(words: Words, step: Step):
    n = len(step.strides)
    # The address of the index, in items from null.
    require(words.table[n] & 7 == 0)
    index = load_at(I64, words.null, words.table[n] >> 3)
    require(index >= 0 and index < step.numbers[0])
    shift(words, step, index)
    step.elementwise(address_of(words.table), step.size)
    shift(words, step, -index)


@native(inline=True)
def shift(words: Words, step: Step, turns: I64):
    for k in range(len(step.strides)):
        words.table[k] += step.strides[k] * turns


@native(inline=True)
def multiply(words: Words, step: Step):
    """numbers: row and column strides of both, rows, columns and terms, scratch memory."""
    table = words.table
    at = step.numbers
    step.product(table[0], at[0], at[1], table[1], at[2], at[3], table[2], at[5], at[4], at[5], at[6], at[7])


@native(inline=True)
def begin(words: Words, step: Step):
    """The addresses of the first round."""
    for k in range(len(step.places)):
        words.table[k] = place_of(words, step.places[k])
    for d in range(len(step.extents)):
        words.turns[d] = 0


@native()
def advance(words: Words, step: Step):
    """The addresses of the next round: one turn of the innermost loop, of the next one where that has ended."""
    d = len(step.extents) - 1
    while d >= 0:
        words.turns[d] += 1
        if words.turns[d] < step.extents[d]:
            move(words, step, d, 1)
            return
        move(words, step, d, 1 - step.extents[d])
        words.turns[d] = 0
        d -= 1


@native(inline=True)
def move(words: Words, step: Step, d: I64, turns: I64):
    for k in range(len(step.places)):
        words.table[k] += step.places[k].strides[d] * turns


@native(inline=True)
def place_of(words: Words, place: Place) -> I64:
    return words.slots[place.slot] + place.offset
