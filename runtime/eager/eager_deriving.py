"""The derivative of one node in native code (eager_backward.py): its steps or its program, on what has arrived and what
is saved; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, List, Object, Tuple
from ...compiler.translate.language import address_of, cast, keep, load_at, native, quotient, require
from ..code.native_kinds import TensorObject, call_with
from .eager_arrays import new_array
from .eager_computing import put_number, put_number_of_program, run_step, unheld
from .eager_matching import lies_as
from .eager_nodes import new_tensor
from .eager_open import has_sizes
from .eager_views import new_view
from .eager_words import (
    COTANGENT,
    NO_RESULT,
    SHOWN,
    ArrayObject,
    Derivative,
    Given,
    Made,
    NodeObject,
    SavedObject,
    Words,
)
from .node import Saved


@native()
def derive(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject) -> List:
    """The cotangents of the operands, None where there is none."""
    made = new_arrays(words, derivative)
    if derivative.is_program:
        run_program(words, derivative, node, cotangent, made)
    else:
        run_steps(words, derivative, node, cotangent, made)
    return in_places(words, derivative, made, cotangent)


@native()
def derive_open(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject) -> List:
    """The same of a derivative whose words are written anew for every node. Making a tensor may run code that has
    another node run, and so write them: they are read before, and for a view once more."""
    arrays = []
    require(has_sizes(words, cast(Tuple, node.sizes), derivative.sizes))
    for one in derivative.made:
        arrays.append(new_array(words, one.dtype, one.ndim, one.shape))
    if derivative.is_program:
        run_open_program(words, derivative, node, cotangent, arrays)
    else:
        fill_given(words, derivative, node, cotangent)
        n = len(derivative.given)
        for k in range(len(arrays)):
            words.slots[n + k] = cast(ArrayObject, arrays[k]).data
        take_steps(words, derivative)
    made = []
    for array in arrays:
        made.append(new_tensor(words, array))
    results = []
    for code in derivative.results:
        if code == NO_RESULT:
            results.append(None)
        elif code == COTANGENT:
            results.append(cotangent)
        elif code <= SHOWN:
            require(has_sizes(words, cast(Tuple, node.sizes), derivative.sizes))
            results.append(new_view(words, derivative.views[SHOWN - code], cotangent))
        else:
            results.append(made[code])
    return results


@native()
def run_steps(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject, made: List):
    fill_given(words, derivative, node, cotangent)
    n = len(derivative.given)
    for k in range(len(made)):
        words.slots[n + k] = cast(ArrayObject, cast(TensorObject, made[k])._data).data
    take_steps(words, derivative)


@native()
def take_steps(words: Words, derivative: Derivative):
    for k in range(len(derivative.fixed)):
        words.slots[derivative.first_fixed + k] = derivative.fixed[k]
    for step in derivative.steps:
        run_step(words, step)


@native()
def run_open_program(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject, made: List):
    """The same as `run_program`, of arrays that no tensor has yet."""
    operands = cast(Tuple, keep(node.operands))
    put_numbers(words, derivative, operands)
    n = put_given(words, derivative, node, operands, cotangent)
    for k in range(len(made)):
        words.table[n + k] = id(made[k])
    require(derivative.program(address_of(words.table)) == 0)


@native()
def run_program(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject, made: List):
    operands = cast(Tuple, keep(node.operands))
    put_numbers(words, derivative, operands)
    n = put_given(words, derivative, node, operands, cotangent)
    for k in range(len(made)):
        words.table[n + k] = id(cast(TensorObject, made[k])._data)
    require(derivative.program(address_of(words.table)) == 0)


@native()
def put_numbers(words: Words, derivative: Derivative, operands: Tuple):
    for k in range(len(derivative.as_numbers)):
        put_number_of_program(words, k, operands[derivative.as_numbers[k] - 2], derivative.has_wholes)


@native()
def put_given(words: Words, derivative: Derivative, node: NodeObject, operands: Tuple, cotangent: TensorObject) -> I64:
    """The table of a program as far as what it makes, whose place is returned."""
    n = len(derivative.head)
    for k in range(n):
        words.table[k] = derivative.head[k]
    for k in range(len(derivative.arrays)):
        words.table[n + k] = id(tensor_given(derivative.arrays[k], node, operands, cotangent)._data)
    return n + len(derivative.arrays)


@native()
def tensor_given(k: I64, node: NodeObject, operands: Tuple, cotangent: TensorObject) -> TensorObject:
    if k == 0:
        return cotangent
    saved = node.out if k == 1 else operands[k - 2]
    return cast(TensorObject, cast(SavedObject, saved).tensor)


@native()
def new_arrays(words: Words, derivative: Derivative) -> List:
    made = []
    for one in derivative.made:
        made.append(new_tensor(words, an_array(words, one)))
    return made


@native()
def an_array(words: Words, one: Made) -> ArrayObject:
    if one.kept is None:
        return new_array(words, one.dtype, one.ndim, one.shape)
    reused = unheld(cast(List, one.kept))
    if reused is None:
        reused = call_with(words.new_result, (one.extents, one.dtype), None)
    return cast(ArrayObject, reused)


@native()
def fill_given(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject):
    words.slots[0] = elements_of(words, derivative.given[0], cotangent)
    if node.out is not None:
        words.slots[1] = elements_of_saved(words, derivative.given[1], node.out)
    operands = cast(Tuple, keep(node.operands))
    for k in range(len(operands)):
        x = operands[k]
        if type(x) is Saved:
            words.slots[2 + k] = elements_of_saved(words, derivative.given[2 + k], x)
        elif derivative.given[2 + k].is_read:
            put_number(words, 2 + k, x)
            words.slots[2 + k] = words.numbers_at + 8 * (2 + k)


@native()
def elements_of_saved(words: Words, given: Given, x: Object) -> I64:
    return elements_of(words, given, cast(TensorObject, cast(SavedObject, x).tensor))


@native()
def elements_of(words: Words, given: Given, x: TensorObject) -> I64:
    """Where the elements are, in the order that is planned for."""
    array = cast(ArrayObject, x._data)
    if not given.is_read or lies_as(array, given.what):
        return array.data
    copy(words, given, array)
    return given.copied_to


@native()
def copy(words: Words, given: Given, array: ArrayObject):
    """Write the elements to where the derivative finds them, row by row."""
    last = array.ndim - 1
    size = load_at(I64, array.shape, last)
    words.table[0] = array.data
    words.table[1] = given.copied_to
    words.table[2] = quotient(load_at(I64, array.strides, last), given.item_bytes)
    rounds = 1
    for d in range(last):
        words.turns[d] = 0
        rounds = rounds * load_at(I64, array.shape, d)
    for _ in range(rounds):
        given.copier(address_of(words.table), size)
        words.table[1] += size * given.item_bytes
        go_to_next_row(words, array)


@native()
def go_to_next_row(words: Words, array: ArrayObject):
    d = array.ndim - 2
    while d >= 0:
        turns = load_at(I64, array.shape, d)
        stride = load_at(I64, array.strides, d)
        words.turns[d] += 1
        if words.turns[d] < turns:
            words.table[0] += stride
            return
        words.table[0] += stride * (1 - turns)
        words.turns[d] = 0
        d -= 1


@native()
def in_places(words: Words, derivative: Derivative, made: List, cotangent: TensorObject) -> List:
    results = []
    for code in derivative.results:
        if code == NO_RESULT:
            results.append(None)
        elif code == COTANGENT:
            results.append(cotangent)
        elif code <= SHOWN:
            results.append(new_view(words, derivative.views[SHOWN - code], cotangent))
        else:
            results.append(made[code])
    return results
