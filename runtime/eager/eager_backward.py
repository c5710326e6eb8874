"""Backward over nodes of eager ops in native code, as engine.py: _sweep does it; of the subset (docs/native.md).

    pending    node -> list of what has arrived at each of its outputs
    waiting    (sequence, node) of the nodes at which something has arrived, the latest made last
    leaves     the ends of the graph, in the order in which their sums are complete

The steps of a node's derivative are known (`Derivative`); of everything else Python takes one node, and native code
goes on after it.
"""

from ...compiler.translate.kinds import I64, Address, Bool, Dict, List, Object, Tuple
from ...compiler.translate.language import METHOD, address_of, cast, keep, load_at, local_array, native, require
from ..code.native_kinds import TensorObject, as_long, call_with
from .eager_call import fits, is_array, is_contiguous, put_number, run_step
from .eager_nodes import new_tensor
from .eager_words import (
    COTANGENT,
    NO_RESULT,
    ArrayObject,
    CountedObject,
    Derivative,
    Given,
    LeafObject,
    NodeObject,
    RecordingObject,
    SavedObject,
    StorageObject,
    Words,
    WordsObject,
    delete_item,
    insert_item,
    is_subtype,
    new_tuple,
    next_item,
    replace_part,
    set_tuple_item,
)
from .node import AccumulateGrad, Node, Saved


@native(form=METHOD, slow="slow_sweep", name="weft_eager_sweep")
def sweep(
    words: Words,
    pending: Object,
    waiting: Object,
    leaves: Object,
    retain_graph: Object,
    take_one: Object,
    add_in_python: Object,
) -> Object:
    """take_one() runs the next node in Python, add_in_python(edge, cotangent) adds to what has arrived."""
    require(type(pending) is dict and type(waiting) is list and type(leaves) is dict)
    while len(waiting) > 0 or len(leaves) > 0:
        if len(waiting) == 0:
            leaf = keep(first_key(leaves))
            if is_simple_leaf(leaf, pending):
                give_to_leaf(leaf, pending, leaves)
            else:
                call_with(take_one, (), None)
        else:
            node = keep(cast(Tuple, waiting[len(waiting) - 1])[1])
            if is_simple(words, node, pending):
                run_node(words, node, pending, waiting, leaves, retain_graph, add_in_python)
            else:
                call_with(take_one, (), None)
    return None


@native()
def first_key(leaves: Dict) -> Object:
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    next_item(leaves, address_of(at), address_of(key), address_of(value))
    return cast(Object, key[0])


# --- leaves -----------------------------------------------------------------------------------------------------------
@native()
def is_simple_leaf(leaf: Object, pending: Dict) -> Bool:
    """Whether what has arrived becomes the gradient as it is: nobody else holds it, or is to be told."""
    if type(leaf) is not AccumulateGrad:
        return False
    end = cast(LeafObject, leaf)
    if end.hooks is not None or end.pre_hooks is not None or end.retained is not None or end.post_hooks is not None:
        return False
    if cast(TensorObject, end.variable)._grad is not None:
        return False
    slots = pending.get(leaf)
    if slots is None:
        return False
    return is_own(cast(List, slots)[0])


@native()
def is_own(x: Object) -> Bool:
    """Of an item of a list: whether only the list holds it, and it is no view."""
    if x is None or cast(CountedObject, x).count != 1:
        return False
    tensor = cast(TensorObject, x)
    if tensor._base is not None or tensor._requires_grad is not False or tensor._data is None:
        return False
    return cast(ArrayObject, tensor._data).flags & 1 != 0


@native(inline=True)
def give_to_leaf(leaf: Object, pending: Dict, leaves: Dict):
    slots = pending.get(leaf)
    require(slots is not None)
    gradient = keep(cast(List, slots)[0])
    delete_item(pending, leaf)
    delete_item(leaves, leaf)
    cast(TensorObject, cast(LeafObject, leaf).variable)._grad = gradient


# --- nodes ------------------------------------------------------------------------------------------------------------
@native()
def is_simple(words: Words, x: Object, pending: Dict) -> Bool:
    """Whether a node's derivative is known for what has arrived and is saved."""
    if is_subtype(type(x), Node) == 0:
        return False
    slots = pending.get(x)
    if slots is None:
        return False
    node = cast(NodeObject, x)
    if node.hooks is not None or node.pre_hooks is not None or node.retained is not None or node.recording is None:
        return False
    held = cast(RecordingObject, node.recording).native
    if held is None:
        return False
    derivative = cast(Derivative, cast(WordsObject, held).data)
    return is_as_planned(derivative, node, cast(List, slots)[0])


@native()
def is_as_planned(derivative: Derivative, node: NodeObject, cotangent: Object) -> Bool:
    if cotangent is None or not is_cotangent(derivative, cast(TensorObject, cotangent)):
        return False
    if node.out is not None and (
        type(node.out) is not Saved or not is_saved_as_planned(cast(SavedObject, node.out), derivative.given[1])
    ):
        return False
    operands = cast(Tuple, node.operands)
    for k in range(len(operands)):
        x = operands[k]
        given = derivative.given[2 + k]
        if type(x) is Saved:
            if not is_saved_as_planned(cast(SavedObject, x), given):
                return False
        # A hook may have put something else in the place of what was saved.
        elif is_subtype(type(x), Saved) != 0 or (given.is_read and not fits(x, given.what)):
            return False
    return True


@native()
def is_cotangent(derivative: Derivative, x: TensorObject) -> Bool:
    if x._data is None:
        return False
    array = cast(ArrayObject, x._data)
    if not is_array(array, derivative.given[0].what):
        return False
    return is_contiguous(array) or (len(derivative.spread) > 0 and is_one_number(array))


@native()
def is_one_number(array: ArrayObject) -> Bool:
    """Whether all elements lie in one place."""
    steps = array.strides
    same = True
    for d in range(array.ndim):
        same = same and (load_at(I64, steps, d) == 0 or load_at(I64, array.shape, d) == 1)
    return same


@native()
def is_saved_as_planned(saved: SavedObject, given: Given) -> Bool:
    tensor = cast(TensorObject, saved.tensor)
    if tensor._storage is None:
        if tensor._base is not None or as_long(saved.version) != 0:
            return False
    elif as_long(cast(StorageObject, tensor._storage).version) != as_long(saved.version):
        return False
    return fits(tensor, given.what)


@native(inline=True)
def run_node(
    words: Words, x: Object, pending: Dict, waiting: List, leaves: Dict, retain_graph: Object, add_in_python: Object
):
    node = cast(NodeObject, x)
    slots = pending.get(x)
    require(slots is not None)
    cotangent = cast(TensorObject, keep(cast(List, slots)[0]))
    derivative = cast(Derivative, cast(WordsObject, cast(RecordingObject, node.recording).native).data)
    _recording = keep(node.recording)  # to the end: it holds what is read here
    results = derive(words, derivative, node, cotangent)
    delete_item(pending, x)
    replace_part(waiting, len(waiting) - 1, len(waiting), words.null)
    edges = cast(Tuple, keep(node.edges))
    if derivative.has_saved and retain_graph is False:
        release(derivative, node)
    for k in range(len(edges)):
        result = keep(results[k])
        if edges[k] is not None and result is not None:
            contribute(pending, waiting, leaves, cast(Tuple, edges[k]), result, add_in_python)
    words.nodes_taken += 1


@native()
def derive(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject) -> List:
    """The cotangents of the operands, None where there is none."""
    made = new_arrays(words, derivative)
    fill_given(words, derivative, node, cotangent)
    n = len(derivative.given)
    for k in range(len(made)):
        words.slots[n + k] = cast(ArrayObject, cast(TensorObject, made[k])._data).data
    for k in range(len(derivative.fixed)):
        words.slots[n + len(made) + k] = derivative.fixed[k]
    for step in derivative.steps:
        run_step(words, step)
    return in_places(derivative, made, cotangent)


@native()
def new_arrays(words: Words, derivative: Derivative) -> List:
    made = []
    null = words.null
    for one in derivative.made:
        array = words.new_array(words.array_class, one.dtype, one.ndim, one.shape, null, null, 0, null)
        require(array is not None)
        made.append(new_tensor(words, array))
    return made


@native()
def fill_given(words: Words, derivative: Derivative, node: NodeObject, cotangent: TensorObject):
    array = cast(ArrayObject, cotangent._data)
    words.slots[0] = array.data
    if not is_contiguous(array):
        for step in derivative.spread:
            words.slots[1] = derivative.spread_at
            run_step(words, step)
        words.slots[0] = derivative.spread_at
    if node.out is not None:
        words.slots[1] = data_of_saved(node.out)
    operands = cast(Tuple, keep(node.operands))
    for k in range(len(operands)):
        x = operands[k]
        if type(x) is Saved:
            words.slots[2 + k] = data_of_saved(x)
        elif derivative.given[2 + k].is_read:
            put_number(words, 2 + k, x)
            words.slots[2 + k] = words.numbers_at + 8 * (2 + k)


@native(inline=True)
def data_of_saved(x: Object) -> I64:
    return cast(ArrayObject, cast(TensorObject, cast(SavedObject, x).tensor)._data).data


@native()
def in_places(derivative: Derivative, made: List, cotangent: TensorObject) -> List:
    results = []
    for code in derivative.results:
        if code == NO_RESULT:
            results.append(None)
        elif code == COTANGENT:
            results.append(cotangent)
        else:
            results.append(made[code])
    return results


@native(inline=True)
def release(derivative: Derivative, node: NodeObject):
    """Let go of what was saved."""
    operands = cast(Tuple, keep(node.operands))
    kept = new_tuple(len(operands))
    for k in range(len(operands)):
        if type(operands[k]) is Saved:
            set_tuple_item(kept, k, derivative.released[k])
        else:
            set_tuple_item(kept, k, operands[k])
    node.released = True
    node.operands = kept
    node.recording = None
    node.out = None


# --- contributions ----------------------------------------------------------------------------------------------------
@native(inline=True)
def contribute(pending: Dict, waiting: List, leaves: Dict, edge: Tuple, cotangent: Object, add_in_python: Object):
    target = edge[0]
    arrived = pending.get(target)
    if arrived is None:
        if type(target) is AccumulateGrad:
            pending[target] = [cotangent]
            leaves[target] = None
        elif is_subtype(type(target), Node) != 0 and type(cast(NodeObject, target).sequence) is int:
            pending[target] = [cotangent]
            wait(waiting, target)
        else:
            call_with(add_in_python, (edge, cotangent), None)
    else:
        call_with(add_in_python, (edge, cotangent), None)


@native()
def wait(waiting: List, target: Object):
    """In its place by sequence; what is made later comes later."""
    sequence = cast(NodeObject, target).sequence
    number = as_long(sequence)
    low = 0
    high = len(waiting)
    while low < high:
        middle = (low + high) >> 1
        if as_long(cast(Tuple, waiting[middle])[0]) < number:
            low = middle + 1
        else:
            high = middle
    pair = (sequence, target)
    insert_item(waiting, low, pair)
