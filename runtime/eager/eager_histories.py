"""What tensors that share memory are for autograd after a change in place, in native code, as rebase.py has it; of the
subset (docs/native.md).

All nodes are made before the change, because making something may run code of users; what they were made for is then
looked at once more. Nodes of what is changed in part and of what shows a part run here too.
"""

from ...compiler.translate.kinds import I64, Bool, List, Object, Tuple
from ...compiler.translate.language import address_of, cast, keep, load_at, local_array, native, quotient, require
from ..code.native_kinds import TensorObject, as_long, new_list, new_long
from ..state.tensor import Tensor
from .eager_arrays import new_array
from .eager_matching import is_contiguous, is_tensor, n_elements
from .eager_nodes import new_edge, new_tensor, shape_of
from .eager_sums import copy_of, is_free
from .eager_words import (
    MOST_LOOPS,
    WRITEABLE,
    ArrayObject,
    NodeObject,
    PlaceNodeObject,
    PlaceObject,
    StorageObject,
    Words,
    is_subtype,
    new_object,
    new_tuple,
    next_of,
    set_memory,
    set_tuple_item,
    weak_target,
)
from .eager_zeros import bytes_of
from .node import Node, named
from .rebase import PARTS, AsStridedBackward0, CopySlices, Place

OF_PARTS = [named(Node, name) for name in PARTS]


@native(inline=True)
def is_of_place(x: Object) -> Bool:
    """Whether it is the node of a tensor of which a part was changed, or of one that shows a part of such a one."""
    return type(x) is CopySlices or type(x) is AsStridedBackward0


# --- after a change ---------------------------------------------------------------------------------------------------
@native()
def require_may_change(target: TensorObject, requires: Bool):
    """What rebase.py: check_rebase asks, and that no history is an open call's or has somebody who asked for it."""
    require(target._is_apart is None)
    require_simple(target)
    base = keep(target._base)
    if base is None:
        # A leaf with gradients is not to be changed.
        require(target._requires_grad is False or target._node is not None)
    else:
        whole = cast(TensorObject, base)
        require(whole._base is None and whole._data is not None)
        require_simple(whole)
        if target._requires_grad is True:
            require(whole._requires_grad is True and whole._node is not None)
            require_no_part_of_many(keep(target._node), keep(whole._node))
        else:
            require(whole._requires_grad is False and requires)


@native()
def require_simple(x: TensorObject):
    node = x._node
    require(x._frame is None and (x._requires_grad is True or node is None))
    if node is not None:
        require(is_subtype(type(node), Node) != 0 or is_of_place(node))
        require(cast(NodeObject, node).retained is None)


@native()
def require_no_part_of_many(first: Object, last: Object):
    """That no call has cut the base into several tensors, one of which this is: those are not to be changed."""
    node = first
    while node is not last:
        require(type(node) is AsStridedBackward0 or is_subtype(type(node), Node) != 0)
        for kind in cast(List, OF_PARTS):
            require(type(node) is not kind)
        edges = keep(cast(Tuple, cast(NodeObject, node).edges))
        require(len(edges) > 0 and edges[0] is not None)
        node = keep(cast(Tuple, edges[0])[0])


@native()
def new_histories(words: Words, target: TensorObject, made: Object) -> List:
    """Of each tensor that is to have another history: the tensor, its node, and the node and array that it has now.
    made: the node of what is written; None if no gradients flow to it."""
    found = new_list(0)
    base = target._base
    if base is None:
        if made is not None:
            put_views(words, target, made, target, found)
        put(found, target, made)
    else:
        whole = keep(cast(TensorObject, base))
        node = new_place_node(words, CopySlices, target, whole)
        edges = new_tuple(2)
        if whole._requires_grad is True:
            set_tuple_item(edges, 0, new_edge(words, whole))
        else:
            set_tuple_item(edges, 0, None)
        if made is None:
            set_tuple_item(edges, 1, None)
        else:
            set_tuple_item(edges, 1, (made, words.zero))
        node.edges = edges
        put_views(words, whole, node, target, found)
        put(found, whole, node)
    return found


@native()
def put(found: List, x: TensorObject, node: Object):
    found.append(x)
    found.append(node)
    found.append(x._node)
    found.append(x._data)


@native()
def put_views(words: Words, whole: TensorObject, node: Object, target: TensorObject, found: List):
    """The living views of a tensor are views of what it is now. One without gradients of a tensor with them is
    detached, and stays so."""
    sharers = keep(cast(StorageObject, target._storage).sharers)
    if sharers is not None:
        for k in range(len(cast(List, sharers))):
            other = weak_target(cast(List, sharers)[k])
            if is_view_of(other, whole):
                shown = keep(cast(TensorObject, other))
                require_simple(shown)
                if shown is target or shown._requires_grad is True or whole._requires_grad is False:
                    require(shown._requires_grad is False or shown._node is not None)
                    made = new_place_node(words, AsStridedBackward0, shown, whole)
                    edges = new_tuple(1)
                    set_tuple_item(edges, 0, (node, words.zero))
                    made.edges = edges
                    put(found, shown, made)


@native()
def is_view_of(x: Object, whole: TensorObject) -> Bool:
    if x is None or not is_tensor(x):
        return False
    shown = cast(TensorObject, x)
    return shown._base is whole and shown._is_apart is None and shown._data is not None


@native()
def require_current(target: TensorObject, found: List):
    """That nothing has changed of what the histories were made for."""
    n = quotient(len(found), 4)
    for k in range(n):
        x = cast(TensorObject, found[4 * k])
        require(x._node is found[4 * k + 2] and x._data is found[4 * k + 3] and x._frame is None)
    whole = cast(TensorObject, found[4 * n - 4])
    require(whole is target or target._base is whole)
    sharers = cast(StorageObject, target._storage).sharers
    is_ended = found[4 * n - 3] is None
    if sharers is not None and not is_ended:
        views = 0
        for k in range(len(cast(List, sharers))):
            other = weak_target(cast(List, sharers)[k])
            if is_view_of(other, whole):
                shown = cast(TensorObject, other)
                if shown is target or shown._requires_grad is True or whole._requires_grad is False:
                    views += 1
        require(views == n - 1)


@native()
def set_histories(found: List):
    for k in range(quotient(len(found), 4)):
        x = cast(TensorObject, found[4 * k])
        if found[4 * k + 1] is None:
            x._requires_grad = False
        else:
            x._requires_grad = True
        x._node = found[4 * k + 1]


@native()
def new_place_node(words: Words, kind: Object, shown: TensorObject, whole: TensorObject) -> PlaceNodeObject:
    place = new_place(words, keep(cast(ArrayObject, shown._data)), keep(cast(ArrayObject, whole._data)))
    node = cast(PlaceNodeObject, new_object(kind, 0))
    node.edges = words.no_edges
    node.sequence = next_of(words.sequence)
    node.hooks = None
    node.pre_hooks = None
    node.retained = None
    node.place = place
    return node


@native()
def new_place(words: Words, shown: ArrayObject, whole: ArrayObject) -> Object:
    n_bytes = bytes_of(words, whole.dtype)
    require(shown.dtype is whole.dtype and n_bytes > 0)
    require(is_contiguous(whole) and shown.ndim <= MOST_LOOPS and n_elements(shown) > 0)
    strides = new_tuple(shown.ndim)
    for d in range(shown.ndim):
        step = load_at(I64, shown.strides, d)
        require(quotient(step, n_bytes) * n_bytes == step)
        set_tuple_item(strides, d, new_long(quotient(step, n_bytes)))
    place = cast(PlaceObject, new_object(Place, 0))
    place.shape = shape_of(shown)
    place.base_shape = shape_of(whole)
    place.strides = strides
    place.base_strides = None
    place.offset = new_long(quotient(shown.data - whole.data, n_bytes))
    place.dtype = whole.dtype
    return place


# --- backward ---------------------------------------------------------------------------------------------------------
@native()
def runs_here(words: Words, x: Object, slots: List) -> Bool:
    """Of such a node: whether nobody has attached anything, and what has arrived is as its place says."""
    node = cast(PlaceNodeObject, x)
    if node.hooks is not None or node.pre_hooks is not None or node.retained is not None:
        return False
    if slots[0] is None or type(slots[0]) is not Tensor or type(node.place) is not Place:
        return False
    data = cast(TensorObject, slots[0])._data
    if data is None:
        return False
    array = cast(ArrayObject, data)
    place = cast(PlaceObject, node.place)
    if place.base_strides is not None or array.dtype is not place.dtype:
        return False
    if len(cast(Tuple, place.base_shape)) > MOST_LOOPS or len(cast(Tuple, place.shape)) > MOST_LOOPS:
        return False
    is_whole = type(x) is CopySlices
    return has_extents(array, cast(Tuple, place.base_shape if is_whole else place.shape)) and shows_once(place)


@native()
def has_extents(array: ArrayObject, extents: Tuple) -> Bool:
    if array.ndim != len(extents) or array.ndim == 0:
        return False
    same = True
    for d in range(array.ndim):
        same = same and load_at(I64, array.shape, d) == as_long(extents[d])
    return same


@native()
def shows_once(place: PlaceObject) -> Bool:
    """Whether no element is shown twice, and there is one."""
    shape = cast(Tuple, place.shape)
    strides = cast(Tuple, place.strides)
    once = True
    for d in range(len(shape)):
        n = as_long(shape[d])
        once = once and n > 0 and (n == 1 or as_long(strides[d]) != 0)
    return once


@native()
def run_place(words: Words, x: Object, slots: List) -> List:
    """The cotangents that such a node passes on, for the one that has arrived."""
    node = cast(PlaceNodeObject, x)
    place = keep(cast(PlaceObject, node.place))
    edges = keep(cast(Tuple, node.edges))
    results = new_list(0)
    is_alone = is_free(slots[0])
    arrived = keep(cast(TensorObject, slots[0]))
    array = keep(cast(ArrayObject, arrived._data))
    if type(x) is AsStridedBackward0:
        whole = new_array_of(words, place.dtype, cast(Tuple, place.base_shape))
        set_memory(whole.data, 0, n_bytes_of(words, whole))
        part = part_of(words, place, whole)
        require(words.copy_into(part, array) == 0)
        results.append(new_tensor(words, whole))
        return results
    if not is_alone or not is_contiguous(array):
        arrived = copy_of(words, arrived)
        array = keep(cast(ArrayObject, arrived._data))
    if edges[1] is None:
        read = None
    else:
        read = new_tensor(words, new_array_of(words, place.dtype, cast(Tuple, place.shape)))
        part = part_of(words, place, array)
        require(words.copy_into(cast(ArrayObject, cast(TensorObject, read)._data), part) == 0)
    if edges[0] is None:
        results.append(None)
    else:
        clear_part(words, place, array)
        results.append(arrived)
    results.append(read)
    return results


@native()
def clear_part(words: Words, place: PlaceObject, whole: ArrayObject):
    no_extents = local_array(I64, 1)
    zero = new_array(words, whole.dtype, 0, address_of(no_extents))
    set_memory(zero.data, 0, bytes_of(words, whole.dtype))
    part = part_of(words, place, whole)
    require(words.copy_into(part, zero) == 0)


@native()
def new_array_of(words: Words, dtype: Object, extents: Tuple) -> ArrayObject:
    shape = local_array(I64, MOST_LOOPS)
    for d in range(len(extents)):
        shape[d] = as_long(extents[d])
    return new_array(words, dtype, len(extents), address_of(shape))


@native()
def n_bytes_of(words: Words, array: ArrayObject) -> I64:
    return n_elements(array) * bytes_of(words, array.dtype)


@native()
def part_of(words: Words, place: PlaceObject, whole: ArrayObject) -> ArrayObject:
    """What the view shows of an array like its base."""
    n_bytes = bytes_of(words, whole.dtype)
    extents = cast(Tuple, place.shape)
    steps = cast(Tuple, place.strides)
    shape = local_array(I64, MOST_LOOPS)
    strides = local_array(I64, MOST_LOOPS)
    for d in range(len(extents)):
        shape[d] = as_long(extents[d])
        strides[d] = as_long(steps[d]) * n_bytes
    null = words.null
    data = whole.data + as_long(place.offset) * n_bytes
    sizes = address_of(shape)
    made = words.new_view(
        words.array_class, whole.dtype, len(extents), sizes, address_of(strides), data, WRITEABLE, null
    )
    require(made is not None)
    require(words.set_base(made, whole) == 0)
    return made
