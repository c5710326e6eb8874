"""Backward over nodes of eager ops in native code, as engine.py: _sweep does it; of the subset (docs/native.md).

    pending    node -> list of what has arrived at each of its outputs
    waiting    (sequence, node) of the nodes at which something has arrived, the latest made last
    leaves     the ends of the graph, in the order in which their sums are complete

The steps of a node's derivative are known (`Derivative`); of everything else Python takes one node, and native code
goes on after it.
"""

from ...compiler.translate.kinds import I64, Address, Bool, Dict, List, Object, Tuple
from ...compiler.translate.language import (
    METHOD,
    address_of,
    cast,
    keep,
    load_at,
    local_array,
    native,
    quotient,
    require,
)
from ..code.native_kinds import TensorObject, as_long, call_with, get_attribute
from ..state.turns import adding
from .eager_deriving import derive, derive_open
from .eager_histories import is_of_place, run_place, runs_here
from .eager_matching import fits, is_array, lies_as
from .eager_nodes import new_shape
from .eager_open import has_sizes
from .eager_parts import add_part, joins_others
from .eager_sums import add_in_place, can_be_added, can_be_added_in_place, copy_of, is_copied, is_own, sum_of
from .eager_words import (
    MOST_LOOPS,
    ArrayObject,
    Derivative,
    FunctionObject,
    Given,
    LeafObject,
    NativeObject,
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
from .function_node import FunctionNode
from .node import AccumulateGrad, Node, Saved


@native(form=METHOD, slow="slow_sweep", name="weft_eager_sweep")
def sweep(
    words: Words,
    pending: Object,
    waiting: Object,
    leaves: Object,
    reach: Object,
    retain_graph: Object,
    sums: Object,
    take_one: Object,
    add_in_python: Object,
) -> Object:
    """take_one() runs the next node in Python, add_in_python(edge, cotangent) adds to what has arrived. reach: None, or
    the nodes that cotangents are passed on to, and whether they run here (reach.py)."""
    require(type(pending) is dict and type(waiting) is list and type(leaves) is dict)
    require((reach is None or type(reach) is dict) and type(sums) is dict)
    while len(waiting) > 0 or len(leaves) > 0:
        if len(waiting) == 0:
            leaf = keep(first_key(leaves))
            if reach is None and is_simple_leaf(words, leaf, pending):
                give_to_leaf(words, leaf, pending, leaves)
            elif reach is not None and is_just_wanted(leaf):
                delete_item(leaves, leaf)
            else:
                call_with(take_one, (), None)
        else:
            node = keep(cast(Tuple, waiting[len(waiting) - 1])[1])
            plain = runs(reach, node)
            held = derivative_for(words, node, pending, sums) if plain else None
            if plain and type(node) is words.late_kind:
                arrived = pending.get(node)
                require(arrived is not None)
                results = call_with(words.run_late, (node, arrived, retain_graph), None)
                if type(results) is list:
                    pass_on(words, node, cast(List, results), pending, waiting, leaves, reach, add_in_python)
                else:
                    call_with(take_one, (), None)
            elif plain and is_of_place(node) and runs_here(words, node, arrived_at(node, pending)):
                results = run_place(words, node, arrived_at(node, pending))
                pass_on(words, node, results, pending, waiting, leaves, reach, add_in_python)
            elif plain and is_plain_function(node):
                arrived = pending.get(node)
                require(arrived is not None)
                results = call_with(words.run_function, (node, arrived, retain_graph), None)
                pass_on(words, node, cast(List, results), pending, waiting, leaves, reach, add_in_python)
            elif held is None:
                added = plain and is_of_part(node, reach, sums) and add_part(words, node, pending, sums, leaves) is True
                if added:
                    drop_last(words, node, pending, waiting)
                else:
                    call_with(take_one, (), None)
            else:
                derivative = cast(Derivative, cast(WordsObject, held).data)
                run_node(words, derivative, node, pending, waiting, leaves, reach, retain_graph, add_in_python)
    return None


@native(inline=True)
def arrived_at(node: Object, pending: Dict) -> List:
    slots = pending.get(node)
    require(slots is not None)
    return cast(List, slots)


@native()
def runs(reach: Object, node: Object) -> Bool:
    """Whether a node runs, and nothing else is done with what has arrived there."""
    return reach is None or cast(Dict, reach).get(node) is True


@native()
def is_of_part(x: Object, reach: Object, sums: Dict) -> Bool:
    """Whether it may be the node of a part of what such sums are known of."""
    if len(sums) == 0 or is_subtype(type(x), Node) == 0:
        return False
    node = cast(NodeObject, x)
    if node.released is not False or node.hooks is not None or node.pre_hooks is not None or node.retained is not None:
        return False
    edges = cast(Tuple, node.edges)
    return len(edges) == 1 and edges[0] is not None and is_reached(reach, edges[0])


@native(inline=True)
def drop_last(words: Words, node: Object, pending: Dict, waiting: List):
    """A node has run, which was the last of those that wait."""
    delete_item(pending, node)
    replace_part(waiting, len(waiting) - 1, len(waiting), words.null)


@native()
def is_reached(reach: Object, edge: Object) -> Bool:
    return reach is None or cast(Dict, reach).get(cast(Tuple, edge)[0]) is not None


@native()
def is_plain_function(x: Object) -> Bool:
    """Whether it is the node of a user's Function, and nobody looks on."""
    if is_subtype(type(x), FunctionNode) == 0:
        return False
    node = cast(FunctionObject, x)
    return node.hooks is None and node.pre_hooks is None and node.retained is None


@native()
def first_key(leaves: Dict) -> Object:
    at = local_array(I64, 1)
    key = local_array(Address, 1)
    value = local_array(Address, 1)
    next_item(leaves, address_of(at), address_of(key), address_of(value))
    return cast(Object, key[0])


# --- leaves -----------------------------------------------------------------------------------------------------------
@native()
def is_simple_leaf(words: Words, leaf: Object, pending: Dict) -> Bool:
    """Whether what has arrived becomes the gradient as it is, or is added to it, and nobody is to be told."""
    if type(leaf) is not AccumulateGrad or len(cast(List, adding)) != 0:
        return False
    end = cast(LeafObject, leaf)
    if end.hooks is not None or end.pre_hooks is not None or end.retained is not None or end.post_hooks is not None:
        return False
    slots = pending.get(leaf)
    if slots is None or cast(TensorObject, end.variable)._requires_grad is not True:
        return False
    gradient = cast(TensorObject, end.variable)._grad
    if gradient is None:
        return is_own(cast(List, slots)[0]) or is_copied(cast(List, slots)[0])
    return can_be_added_in_place(words, gradient, cast(List, slots)[0])


@native()
def is_just_wanted(leaf: Object) -> Bool:
    """Of a leaf in a pass for wanted edges: whether what has arrived is all that is asked of it."""
    if type(leaf) is not AccumulateGrad:
        return False
    end = cast(LeafObject, leaf)
    return end.pre_hooks is None and end.retained is None


@native(inline=True)
def give_to_leaf(words: Words, leaf: Object, pending: Dict, leaves: Dict):
    slots = pending.get(leaf)
    require(slots is not None)
    owned = is_own(cast(List, slots)[0])
    arrived = keep(cast(List, slots)[0])
    variable = cast(TensorObject, cast(LeafObject, leaf).variable)
    if variable._grad is None:
        if owned:
            variable._grad = arrived
        else:
            variable._grad = copy_of(words, cast(TensorObject, arrived))
    else:
        add_in_place(words, cast(TensorObject, keep(variable._grad)), cast(TensorObject, arrived))
    delete_item(pending, leaf)
    delete_item(leaves, leaf)


# --- nodes ------------------------------------------------------------------------------------------------------------
@native()
def derivative_for(words: Words, x: Object, pending: Dict, sums: Dict) -> Object:
    """The words of the derivative for what has arrived at a node and is saved; None if only Python knows one."""
    if is_subtype(type(x), Node) == 0:
        return None
    slots = pending.get(x)
    if slots is None:
        return None
    node = cast(NodeObject, x)
    # What a node has dropped shows in none of its other fields, if its derivative reads its result alone.
    if node.released is not False:
        return None
    if node.hooks is not None or node.pre_hooks is not None or node.retained is not None:
        return None
    if node.recording is None:
        if node.sizes is None:
            return None
        return open_derivative_for(words, node, cast(Tuple, node.sizes), cast(List, slots)[0], pending, sums)
    held = cast(RecordingObject, node.recording).native
    while held is not None:
        derivative = cast(Derivative, cast(WordsObject, held).data)
        if is_as_planned(derivative, node, cast(List, slots)[0]):
            if derivative.is_of_part and joins_others(pending, sums, node, cast(List, slots)[0]) is True:
                return None
            if derivative.lent > 0:
                derivative.lent -= 1
                if derivative.lent == 0:
                    return None
            return held
        held = derivative.following
    return None


@native()
def open_derivative_for(
    words: Words, node: NodeObject, sizes: Tuple, cotangent: Object, pending: Dict, sums: Dict
) -> Object:
    """The same of a node that tells its sizes: the words are written for them."""
    held = cast(NativeObject, sizes[0]).native
    while held is not None:
        derivative = cast(Derivative, cast(WordsObject, held).data)
        if has_sizes(words, sizes, derivative.sizes) and is_as_planned(derivative, node, cotangent):
            if derivative.is_of_part and joins_others(pending, sums, node, cotangent) is True:
                return None
            return held
        held = derivative.following
    return None


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
    """Views are planned for cotangents that lie as they did then; for other results any can be copied."""
    if x._data is None:
        return False
    array = cast(ArrayObject, x._data)
    given = derivative.given[0]
    if not is_array(array, given.what):
        return False
    return lies_as(array, given.what) or (len(derivative.views) == 0 and can_be_copied(array, given))


@native()
def can_be_copied(array: ArrayObject, given: Given) -> Bool:
    if given.copied_to == 0 or array.ndim < 1 or array.ndim > MOST_LOOPS:
        return False
    stride = load_at(I64, array.strides, array.ndim - 1)
    return quotient(stride, given.item_bytes) * given.item_bytes == stride


@native()
def is_saved_as_planned(saved: SavedObject, given: Given) -> Bool:
    tensor = cast(TensorObject, saved.tensor)
    if tensor._storage is None:
        if tensor._base is not None or as_long(saved.version) != 0:
            return False
    elif as_long(cast(StorageObject, tensor._storage).version) != as_long(saved.version):
        return False
    if fits(tensor, given.what):
        return True
    if tensor._data is None or not is_array(cast(ArrayObject, tensor._data), given.what):
        return False
    return can_be_copied(cast(ArrayObject, tensor._data), given)


@native(inline=True)
def run_node(
    words: Words,
    derivative: Derivative,
    x: Object,
    pending: Dict,
    waiting: List,
    leaves: Dict,
    reach: Object,
    retain_graph: Object,
    add_in_python: Object,
):
    node = cast(NodeObject, x)
    slots = pending.get(x)
    require(slots is not None)
    cotangent = cast(TensorObject, keep(cast(List, slots)[0]))
    # To the end: they hold what is read here.
    _recording = keep(node.recording)
    _sizes = keep(node.sizes)
    if derivative.is_open:
        results = derive_open(words, derivative, node, cotangent)
    else:
        results = derive(words, derivative, node, cotangent)
    if derivative.has_saved and retain_graph is False:
        release(derivative, node)
    pass_on(words, x, results, pending, waiting, leaves, reach, add_in_python)
    words.nodes_taken += 1


@native(inline=True)
def pass_on(
    words: Words,
    x: Object,
    results: List,
    pending: Dict,
    waiting: List,
    leaves: Dict,
    reach: Object,
    add_in_python: Object,
):
    """What a node has been run for goes to where its edges lead."""
    drop_last(words, x, pending, waiting)
    edges = cast(Tuple, keep(cast(NodeObject, x).edges))
    for k in range(len(edges)):
        result = keep(results[k])
        if edges[k] is not None and result is not None and is_reached(reach, edges[k]):
            contribute(words, pending, waiting, leaves, cast(Tuple, edges[k]), result, add_in_python)


@native(inline=True)
def release(derivative: Derivative, node: NodeObject):
    """Let go of what was saved."""
    operands = cast(Tuple, keep(node.operands))
    kept = new_tuple(len(operands))
    for k in range(len(operands)):
        if type(operands[k]) is Saved and derivative.is_open:
            saved = cast(TensorObject, cast(SavedObject, operands[k]).tensor)
            set_tuple_item(kept, k, new_shape(saved, derivative.types[k]))
        elif type(operands[k]) is Saved:
            set_tuple_item(kept, k, derivative.released[k])
        else:
            set_tuple_item(kept, k, operands[k])
    node.released = True
    node.operands = kept
    node.recording = None
    node.sizes = None
    node.out = None


# --- contributions ----------------------------------------------------------------------------------------------------
@native(inline=True)
def contribute(
    words: Words, pending: Dict, waiting: List, leaves: Dict, edge: Tuple, cotangent: Object, add_in_python: Object
):
    target = edge[0]
    arrived = pending.get(target)
    if arrived is None:
        if type(target) is AccumulateGrad:
            pending[target] = [cotangent]
            leaves[target] = None
        elif type(target) is words.late_kind:
            if stands_alone(target):
                pending[target] = only(edge, cotangent)
                wait(waiting, target)
            else:
                call_with(add_in_python, (edge, cotangent), None)
        elif has_one_output(target):
            pending[target] = [cotangent]
            wait(waiting, target)
        else:
            call_with(add_in_python, (edge, cotangent), None)
    elif can_be_summed(words, target, cast(List, arrived), cotangent):
        total = sum_of(words, cast(List, arrived), cast(TensorObject, cotangent))
        pending[target] = [total]
        if type(target) is AccumulateGrad:
            # Leaves come in the order in which their sums are complete.
            delete_item(leaves, target)
            leaves[target] = None
    else:
        call_with(add_in_python, (edge, cotangent), None)


@native(inline=True)
def stands_alone(x: Object) -> Bool:
    """Of the node of a finished call: whether no others have taken its place, and nobody its place in the order."""
    return type(cast(NodeObject, x).sequence) is int and get_attribute(x, _STANDS_FOR) is None


@native()
def only(edge: Tuple, cotangent: Object) -> List:
    """What has arrived at the outputs of a node that has some, if this is the first."""
    n = as_long(get_attribute(edge[0], _N_OUTPUTS))
    place = as_long(edge[1])
    slots = []
    for k in range(n):
        if k == place:
            slots.append(cotangent)
        else:
            slots.append(None)
    return slots


_STANDS_FOR, _N_OUTPUTS = "stands_for", "n_outputs"


@native()
def is_node(x: Object) -> Bool:
    """Of an op, of a part, or of a user's Function."""
    return is_subtype(type(x), Node) != 0 or is_of_place(x) or is_subtype(type(x), FunctionNode) != 0


@native()
def has_one_output(x: Object) -> Bool:
    """Of a node of an op or a Function, whose place in the order nobody has changed."""
    if is_subtype(type(x), Node) != 0 or is_of_place(x):
        return type(cast(NodeObject, x).sequence) is int
    if is_subtype(type(x), FunctionNode) == 0:
        return False
    node = cast(FunctionObject, x)
    return type(node.sequence) is int and type(node.n_outputs) is int and as_long(node.n_outputs) == 1


@native()
def can_be_summed(words: Words, target: Object, arrived: List, cotangent: Object) -> Bool:
    if type(target) is not AccumulateGrad and is_subtype(type(target), Node) == 0 and not is_of_place(target):
        return False
    return can_be_added(words, arrived[0], cotangent)


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
