"""Nodes of ops that were called natively (eager_call.py): what node.py: record does, of the subset (docs/native.md)."""

from weakref import ref

from ...compiler.translate.kinds import I64, Object, Tuple
from ...compiler.translate.language import cast, keep, load_at, native, require
from ..code.native_kinds import TensorObject, call_with, new_long
from ..state.storage import InferenceStorage, Storage
from ..state.tensor import Tensor
from .eager_words import (
    KEPT_AS_SHAPE,
    SAVED,
    ArrayObject,
    LeafObject,
    NodeObject,
    NodeRow,
    Routine,
    SavedObject,
    ShapeObject,
    StorageObject,
    Words,
    is_subtype,
    new_object,
    new_tuple,
    new_weak_reference,
    next_of,
    set_tuple_item,
    weak_target,
)
from .node import AccumulateGrad, Node, Saved, edge_of
from .rebase import AsStridedBackward0, CopySlices
from .saved import Shape


@native()
def record(words: Words, routine: Routine, row: NodeRow, operands: Tuple, out: TensorObject):
    node = cast(NodeObject, new_object(row.kind, 0))
    node.edges = new_edges(words, row, operands)
    node.operands = new_kept(words, row, operands)
    node.sequence = next_of(words.sequence)
    node.hooks = None
    node.pre_hooks = None
    node.retained = None
    node.op = routine.op
    node.attributes = routine.node_attributes
    node.meta = row.meta
    node.released = False
    node.recording = row.recording
    node.sizes = None
    if row.reads_out:
        node.out = new_saved_output(words, out)
    else:
        node.out = None
    out._requires_grad = True
    out._node = node


@native()
def new_edges(words: Words, row: NodeRow, operands: Tuple) -> Tuple:
    edges = new_tuple(len(operands))
    for k in range(len(operands)):
        if row.differentiated[k] != 0:
            set_tuple_item(edges, k, new_edge(words, cast(TensorObject, operands[k])))
        else:
            set_tuple_item(edges, k, None)
    return edges


@native()
def new_edge(words: Words, x: TensorObject) -> Object:
    before = x._node
    if is_subtype(type(before), Node) != 0 or type(before) is CopySlices or type(before) is AsStridedBackward0:
        return (before, words.zero)
    accumulator = keep(x._accumulator)
    if before is None and x._frame is None:
        # With hooks it is something else, which keeps the end of the graph alive.
        if type(accumulator) is ref:
            leaf = weak_target(accumulator)
            if leaf is not None:
                return (leaf, words.zero)
        if accumulator is None or type(accumulator) is ref:
            end = new_leaf(words, x, accumulator)
            return (end, words.zero)
    return call_with(edge_of, (x,), None)


@native()
def new_leaf(words: Words, x: TensorObject, accumulator: Object) -> Object:
    """The end of the graph at a leaf. `accumulator` is what the leaf knew of one before."""
    end = cast(LeafObject, new_object(AccumulateGrad, 0))
    # Making it may have run code that has made one.
    require(x._accumulator is accumulator)
    end.edges = words.no_edges
    end.sequence = words.minus_one
    end.hooks = None
    end.pre_hooks = None
    end.retained = None
    end.post_hooks = None
    end.variable = x
    x._accumulator = new_weak_reference(end, words.null)
    return end


@native()
def new_kept(words: Words, row: NodeRow, operands: Tuple) -> Tuple:
    kept = new_tuple(len(operands))
    for k in range(len(operands)):
        if row.kept[k] == SAVED:
            set_tuple_item(kept, k, new_saved(words, cast(TensorObject, operands[k])))
        elif row.kept[k] == KEPT_AS_SHAPE and row.is_open:
            set_tuple_item(kept, k, new_shape(cast(TensorObject, operands[k]), row.types[k]))
        elif row.kept[k] == KEPT_AS_SHAPE:
            set_tuple_item(kept, k, row.shapes[k])
        else:
            set_tuple_item(kept, k, operands[k])
    return kept


@native()
def new_saved(words: Words, x: TensorObject) -> Object:
    made = cast(SavedObject, new_object(Saved, 0))
    made.tensor = x
    storage = x._storage
    if storage is None:
        require(x._base is None)
        made.version = words.zero
    else:
        require(type(storage) is Storage)
        made.version = cast(StorageObject, storage).version
    return made


@native()
def new_shape(x: TensorObject, dtype: Object) -> Object:
    """What stands for a tensor whose values are not kept."""
    made = cast(ShapeObject, new_object(Shape, 0))
    made.shape = shape_of(cast(ArrayObject, x._data))
    made.dtype = dtype
    return made


@native()
def shape_of(array: ArrayObject) -> Tuple:
    sizes = new_tuple(array.ndim)
    for d in range(array.ndim):
        set_tuple_item(sizes, d, new_long(load_at(I64, array.shape, d)))
    return sizes


@native()
def new_saved_output(words: Words, out: TensorObject) -> Object:
    """Of a tensor that nobody has seen: another one that shares its memory and its version."""
    storage = new_storage(words)
    out._storage = storage
    alias = new_tensor(words, keep(out._data))
    alias._storage = storage
    return new_saved(words, alias)


# --- tensors ----------------------------------------------------------------------------------------------------------
@native()
def new_tensor(words: Words, array: Object) -> TensorObject:
    made = cast(TensorObject, new_object(Tensor, 0))
    made._data = array
    made._frame = None
    made._vid = words.minus_one
    made._requires_grad = False
    made._grad = None
    made._node = None
    made._accumulator = None
    made._storage = None
    made._base = None
    made._meta = None
    return made


@native()
def new_storage(words: Words) -> StorageObject:
    return empty_storage(words, cast(StorageObject, new_object(Storage, 0)))


@native()
def new_inference_storage(words: Words) -> StorageObject:
    return empty_storage(words, cast(StorageObject, new_object(InferenceStorage, 0)))


@native(inline=True)
def empty_storage(words: Words, made: StorageObject) -> StorageObject:
    made.version = words.zero
    made.sharers = None
    made.changes = None
    made.exposed = None
    return made
