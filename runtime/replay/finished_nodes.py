"""The node of a finished usual call, made in native code, as `LateNode` of usual_late.py is in Python; of the subset
(docs/native.md)."""

from weakref import ref

from ...compiler.translate.kinds import Dict, Object, ObjectKind, Tuple
from ...compiler.translate.language import METHOD, cast, keep, native, require
from ..code.native_kinds import TensorObject
from ..eager.eager_nodes import new_leaf
from ..eager.eager_words import new_object, new_tuple, new_weak_reference, set_tuple_item, weak_target
from ..eager.node import AccumulateGrad
from .finished_backward import leaf_of
from .finished_calls import CallObject
from .finished_words import Words
from .usual_calls import ReplayedCall
from .usual_late import LateNode

LATE_FIELDS = (
    "edges", "sequence", "hooks", "pre_hooks", "retained", "call", "stands_for", "n_outputs", "summed",
)  # fmt: skip
LateObject = ObjectKind("LateNode", LateNode, {name: (f"late_{name}", Object) for name in LATE_FIELDS})


@native(form=METHOD, slow="slow_node", name="weft_finished_node")
def late_node(words: Words, made: Object) -> Object:
    """The call's node, which the call knows weakly from now on."""
    require(type(made) is ReplayedCall)
    call = cast(CallObject, made)
    require(call.node is None and call.late is None and call.frame is None)
    node = cast(LateObject, new_object(LateNode, 0))
    node.edges = new_edges(words, call)
    node.sequence = call.sequence
    node.hooks = None
    node.pre_hooks = None
    node.retained = None
    node.call = made
    node.stands_for = None
    node.n_outputs = words.n_results
    node.summed = words.summed
    # Making these may have run code that has asked for it too.
    reference = new_weak_reference(node, words.null)
    require(call.node is None and call.late is None)
    call.late = reference
    return node


@native()
def new_edges(words: Words, call: CallObject) -> Tuple:
    known = cast(Dict, call.edges)
    edges = new_tuple(len(words.gradients))
    for k in range(len(words.gradients)):
        # What an argument's history was when the call ended, it may have been changed in place since.
        edge = known.get(words.gradients[k].position, None)
        if edge is not None:
            set_tuple_item(edges, k, edge)
        else:
            set_tuple_item(edges, k, (end_of(words, leaf_of(words, call, k)), words.zero))
    return edges


@native()
def end_of(words: Words, leaf: TensorObject) -> Object:
    """The end of the graph at a leaf."""
    require(leaf._node is None and leaf._frame is None)
    accumulator = keep(leaf._accumulator)
    if type(accumulator) is ref:
        known = weak_target(accumulator)
        if known is not None:
            require(type(known) is AccumulateGrad)
            return known
    else:
        # With hooks it is something else, which keeps the end of the graph alive.
        require(accumulator is None)
    return new_leaf(words.eager, leaf, accumulator)
