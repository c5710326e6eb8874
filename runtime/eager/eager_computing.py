"""Running the steps of a Routine, or its program, in native code; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import F64, I64, Bool, List, Object, Tuple
from ...compiler.translate.language import address_of, cast, load_at, native, require
from ..code.native_kinds import TensorObject, as_double, as_long, call_with, has_error, imaginary_of, real_of
from .eager_arrays import new_array
from .eager_words import (
    ELEMENTWISE,
    PRODUCT,
    REDUCTION,
    ROUTINE,
    ArrayObject,
    CountedObject,
    Place,
    Routine,
    Step,
    Words,
    new_tuple,
    set_tuple_item,
)

LARGEST_INTEGER = 9007199254740992  # up to it all are floats
LARGEST_EXACT = 9007199254740992.0
LEAST_NARROW, LARGEST_NARROW = -2147483648.0, 2147483647.0


@native()
def new_values(words: Words, routine: Routine, operands: Tuple) -> ArrayObject:
    if routine.run is not None:
        return made_in_python(words, routine, operands)
    if routine.kept is not None:
        reused = unheld(cast(List, routine.kept))
        if reused is not None:
            compute_into(words, routine, operands, cast(ArrayObject, reused))
            return cast(ArrayObject, reused)
        # Python makes one more, if there is room.
        require(not routine.is_program)
    array = new_array(words, routine.dtype, routine.ndim, routine.shape)
    compute_into(words, routine, operands, array)
    return array


@native()
def made_in_python(words: Words, routine: Routine, operands: Tuple) -> ArrayObject:
    n = len(operands)
    given = new_tuple(n)
    for i in range(n):
        if routine.operands[i].is_number:
            set_tuple_item(given, i, operands[i])
        else:
            set_tuple_item(given, i, cast(TensorObject, operands[i])._data)
    made = call_with(routine.run, given, None)
    require(type(made) is words.array_class)
    return cast(ArrayObject, made)


@native()
def compute_into(words: Words, routine: Routine, operands: Tuple, array: ArrayObject):
    if routine.is_program:
        run_program(words, routine, operands, array)
    else:
        run_steps(words, routine, operands, array)


@native()
def run_steps(words: Words, routine: Routine, operands: Tuple, array: ArrayObject):
    fill_slots(words, routine, operands, array)
    for i in range(len(routine.fixed)):
        words.slots[len(operands) + 1 + i] = routine.fixed[i]
    run(words, routine)


@native()
def run_program(words: Words, routine: Routine, operands: Tuple, array: Object):
    for k in range(len(routine.as_numbers)):
        put_number_of_program(words, k, operands[routine.as_numbers[k]], routine.has_wholes)
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
        elif routine.operands[i].is_pair:
            words.pairs[2 * i] = real_of(operands[i])
            words.pairs[2 * i + 1] = imaginary_of(operands[i])
            words.slots[i] = words.pairs_at + 16 * i
        elif routine.operands[i].is_number:
            put_number(words, i, operands[i])
            require(not routine.operands[i].is_narrow or is_narrow(words.numbers[i]))
            words.slots[i] = words.numbers_at + 8 * i
        else:
            words.slots[i] = cast(ArrayObject, cast(TensorObject, operands[i])._data).data
    words.slots[n] = array.data


@native(inline=True)
def put_number(words: Words, i: I64, x: Object):
    value = as_double(x)
    if type(x) is not float:
        # One more than the largest has become the largest here.
        require(value < LARGEST_EXACT and value > -LARGEST_EXACT and has_error() is None)
    words.numbers[i] = value


@native(inline=True)
def is_narrow(x: F64) -> Bool:
    """Whether an integer is one of 32 bits: others wrap around, which a kernel that is given a float cannot."""
    return x >= LEAST_NARROW and x <= LARGEST_NARROW


@native()
def put_number_of_program(words: Words, k: I64, x: Object, is_whole: Bool):
    """Of larger integers Python knows whether steps and programs convert them alike."""
    if is_whole:
        put_whole(words, k, x)
        require(words.wholes[k] <= LARGEST_INTEGER and words.wholes[k] >= -LARGEST_INTEGER)
    else:
        put_number(words, k, x)


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
    elif step.kind == ROUTINE:
        run_routine(words, step)
    else:
        require(load_at(I64, step.found, 0) == 0)


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
