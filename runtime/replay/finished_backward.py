"""The backward of a finished usual call in native code, as `ReplayedCall` of usual_calls.py does it in Python; of the
subset (docs/native.md).

    backward     of all results, or of some, into the .grad of the leaves
    gradients    the same for autograd.grad: the gradients are returned
    cotangents   in the middle of a backward pass that has arrived at the call's node

What a call keeps and what is the same in all calls is looked at as there; where anything is different, Python does all.
"""

from weakref import ref

from ...compiler.translate.kinds import I64, Bool, Dict, List, Object, Tuple
from ...compiler.translate.language import METHOD, External, cast, keep, load_at, native, require
from ..code.native_kinds import TensorObject, as_double, as_long, call_with
from ..eager.eager_computing import unheld
from ..eager.eager_nodes import new_storage, new_tensor
from ..eager.eager_sums import add_in_place, can_be_added_in_place
from ..eager.eager_words import ArrayObject, LeafObject, StorageObject, new_tuple, set_tuple_item, weak_target
from ..eager.node import AccumulateGrad
from ..programs.program import _REUSED_COUNT, captures
from ..state.tensor import Tensor
from ..state.turns import adding
from .finished_calls import CallObject
from .finished_words import Gradient, Source, Words
from .usual_calls import ReplayedCall
from .usual_cotangents import accumulate
from .usual_gradients import free_first
from .usual_outside import COTANGENT, OUTPUT

CONTIGUOUS = 1  # NumPy's flag of arrays

as_bits = External("PyLong_AsUnsignedLongLongMask", (Object,), I64, quiet=True, python=int)


# --- what Python asks -------------------------------------------------------------------------------------------------
@native(form=METHOD, slow="slow_backward", name="weft_finished_backward")
def backward(
    words: Words,
    made: Object,
    outputs: Object,
    cotangents: Object,
    retain_graph: Object,
    create_graph: Object,
    inputs: Object,
) -> Object:
    """Whether backward() of these results has been done."""
    require(inputs is None and create_graph is False and len(cast(List, adding)) == 0)
    require(type(made) is ReplayedCall and len(cast(Dict, cast(CallObject, made).edges)) == 0)
    found = gradients_of_results(words, made, outputs, cotangents, retain_graph)
    leaves = leaves_of(words, cast(CallObject, made))
    prepare(words, leaves)
    # From here on nothing departs: what has been added cannot be added again.
    if retain_graph is False:
        free(words, cast(CallObject, made))
    for k in range(len(leaves)):
        leaf = cast(TensorObject, leaves[k])
        gradient = cast(TensorObject, found[k])
        if leaf._grad is None:
            leaf._grad = gradient
        elif is_prepared(words, leaf, gradient):
            add_in_place(words.eager, cast(TensorObject, keep(leaf._grad)), gradient)
        else:
            call_with(accumulate, (leaf, gradient), None)
    return True


@native(form=METHOD, slow="slow_gradients", name="weft_finished_gradients")
def gradients(words: Words, made: Object, outputs: Object, cotangents: Object, retain_graph: Object) -> Object:
    """Tensors with the gradients of the leaves."""
    require(type(made) is ReplayedCall and len(cast(Dict, cast(CallObject, made).edges)) == 0)
    found = gradients_of_results(words, made, outputs, cotangents, retain_graph)
    if retain_graph is False:
        free(words, cast(CallObject, made))
    return found


@native(form=METHOD, slow="slow_cotangents", name="weft_finished_cotangents")
def cotangents_of_leaves(words: Words, made: Object, arrays: Object) -> Object:
    """The same for what has arrived at the node, one row-major array for each result."""
    require(type(arrays) is list and len(cast(List, arrays)) == len(words.present))
    require(is_unchanged(words, cast(CallObject, made)))
    require_first_kept(cast(CallObject, made))
    return run(words, cast(CallObject, made), cast(List, arrays))


# --- what is looked at ------------------------------------------------------------------------------------------------
@native()
def gradients_of_results(words: Words, made: Object, outputs: Object, cotangents: Object, retain_graph: Object) -> List:
    require(type(made) is ReplayedCall and type(outputs) is tuple)
    require(retain_graph is False or retain_graph is True)
    call = cast(CallObject, made)
    require(call.frame is None and words.after.get(call.freed) is not None)
    # Hooks of other results, which are no outputs, would be those of a node; and what gradients of another call free of
    # it is known of all results.
    require(words.is_whole or not is_followed(call))
    require_first_kept(call)
    require(is_unchanged(words, call))
    edges = cast(Dict, keep(call.edges))
    for k in range(len(words.gradients)):
        # What is no leaf has its hooks at a node, which is asked when the gradient arrives there.
        if edges.get(words.gradients[k].position) is None:
            require(has_no_hooks(leaf_of(words, call, k)))
    return run(words, call, cotangents_of(words, made, cast(Tuple, outputs), cotangents))


@native()
def is_followed(call: CallObject) -> Bool:
    """Whether it has a node, or differentiates another call."""
    return call.late is not None or call.node is not None or call.again is not None


@native()
def require_first_kept(call: CallObject):
    """Of gradients of another call: that nothing they have in common with it has been freed."""
    if call.again is not None:
        first = cast(Tuple, call.again)[0]
        require(type(first) is ReplayedCall)
        known = cast(CallObject, first)
        require(known.frame is None and known.freed is False)
        require_first_kept(known)


@native()
def is_unchanged(words: Words, call: CallObject) -> Bool:
    versions = cast(Tuple, call.versions)
    same = call.lent is None
    for k in range(len(words.watched)):
        same = same and has_version(cast(TensorObject, words.watched[k]), cast(Tuple, versions[0])[k])
    inputs = cast(Tuple, call.inputs)
    for k in range(len(inputs)):
        same = same and has_version(cast(TensorObject, inputs[k]), cast(Tuple, versions[1])[k])
    kept = cast(Tuple, call.kept)
    for k in range(len(kept)):
        same = same and is_version(cast(StorageObject, kept[k]).version, cast(Tuple, versions[2])[k])
    return same


@native()
def has_version(tensor: TensorObject, known: Object) -> Bool:
    if tensor._storage is None:
        return tensor._base is None and as_long(known) == 0
    return is_version(cast(StorageObject, tensor._storage).version, known)


@native()
def is_version(version: Object, known: Object) -> Bool:
    return version is known or as_long(version) == as_long(known)


@native()
def leaf_of(words: Words, call: CallObject, k: I64) -> TensorObject:
    gradient = words.gradients[k]
    if gradient.leaf is None:
        return cast(TensorObject, cast(Tuple, call.inputs)[gradient.place])
    return cast(TensorObject, gradient.leaf)


@native()
def has_no_hooks(leaf: TensorObject) -> Bool:
    if leaf._node is not None or leaf._frame is not None or leaf._requires_grad is not True:
        return False
    accumulator = leaf._accumulator
    if accumulator is None:
        return True
    if type(accumulator) is not ref:
        return False
    end = weak_target(accumulator)
    if end is None:
        return True
    if type(end) is not AccumulateGrad:
        return False
    known = cast(LeafObject, end)
    return known.hooks is None and known.pre_hooks is None and known.post_hooks is None


@native()
def cotangents_of(words: Words, made: Object, outputs: Tuple, cotangents: Object) -> List:
    """Their arrays, if these are all results, in the order of their numbers."""
    require(len(outputs) == len(words.present))
    require(cotangents is None or (type(cotangents) is tuple and len(cast(Tuple, cotangents)) == len(outputs)))
    arrays = []
    for k in range(len(outputs)):
        require(type(outputs[k]) is Tensor)
        result = cast(TensorObject, outputs[k])
        require(result._frame is made and result._node is None and as_long(result._vid) == words.present[k])
        if cotangents is None or cast(Tuple, cotangents)[k] is None:
            require(words.ones[k] is not None and is_like(words.ones[k], result))
            arrays.append(words.ones[k])
        else:
            arrays.append(array_of(cast(Tuple, cotangents)[k], result))
    return arrays


@native()
def array_of(cotangent: Object, result: TensorObject) -> Object:
    require(type(cotangent) is Tensor)
    given = cast(TensorObject, cotangent)
    require(given._data is not None and given._requires_grad is False and is_like(given._data, result))
    return given._data


@native()
def is_like(x: Object, result: TensorObject) -> Bool:
    """Whether an array is row-major, and of the shape and type of a result."""
    if result._data is None:
        return False
    given = cast(ArrayObject, x)
    array = cast(ArrayObject, result._data)
    same = given.dtype is array.dtype and given.ndim == array.ndim and given.flags & CONTIGUOUS != 0
    for d in range(given.ndim):
        same = same and load_at(I64, given.shape, d) == load_at(I64, array.shape, d)
    return same


@native()
def leaves_of(words: Words, call: CallObject) -> List:
    """A list that holds them to the end."""
    leaves = []
    for k in range(len(words.gradients)):
        leaves.append(leaf_of(words, call, k))
    return leaves


# --- running ----------------------------------------------------------------------------------------------------------
@native()
def run(words: Words, call: CallObject, cotangents: List) -> List:
    """Tensors with what the program gives for these arrays of cotangents."""
    require(len(cast(List, captures)) == 0)
    arrays = []
    found = []
    for row in words.gradients:
        array = new_output(words, row)
        arrays.append(array)
        found.append(new_tensor(words.eager, array))
    fill_numbers(words, cast(Tuple, call.numbers))
    # From here on nothing runs but the program: making objects may run code that comes here again.
    require(load_at(I64, words.arena, 1) >= words.arena_bytes)
    words.table[0] = load_at(I64, words.arena, 0)
    words.table[1] = words.numbers_at
    for source in words.sources:
        array = source_of(source, call, cotangents)
        require(lies_well(cast(ArrayObject, array), source))
        words.table[source.word] = id(array)
    for k in range(len(arrays)):
        words.table[words.first_output + k] = id(arrays[k])
    require(words.program(words.table_at) == 0)
    words.count.value += 1
    return found


@native()
def new_output(words: Words, row: Gradient) -> Object:
    if row.pool is not None:
        known = unheld(cast(List, row.pool))
        if known is not None:
            return known
    null = words.null
    made = words.new_array(words.array_class, row.dtype, row.ndim, row.shape, null, null, 0, null)
    require(made is not None)
    if row.pool is not None and len(cast(List, row.pool)) < _REUSED_COUNT:
        cast(List, row.pool).append(made)
    return made


@native()
def fill_numbers(words: Words, numbers: Tuple):
    for k in range(len(words.positions)):
        x = numbers[words.positions[k].position]
        if words.positions[k].is_float:
            words.floats[k] = as_double(x)
        else:
            words.integers[k] = as_bits(x)


@native()
def source_of(source: Source, call: CallObject, cotangents: List) -> Object:
    if source.kind == COTANGENT:
        return cotangents[source.place]
    if source.kind == OUTPUT:
        return cast(Tuple, call.outputs)[source.place]
    return cast(Tuple, call.arrays)[source.place]


@native()
def lies_well(array: ArrayObject, source: Source) -> Bool:
    same = array.dtype is source.dtype and array.ndim == len(source.shape)
    if not same:
        return False
    for d in range(len(source.shape)):
        same = same and load_at(I64, array.shape, d) == source.shape[d]
    for d in range(len(source.strides)):
        same = same and load_at(I64, array.strides, d) == source.strides[d]
    return same and (len(source.strides) != 0 or array.flags & CONTIGUOUS != 0)


# --- what has been done -----------------------------------------------------------------------------------------------
@native()
def prepare(words: Words, leaves: List):
    """A gradient that will be added to counts its changes."""
    for x in leaves:
        gradient = keep(cast(TensorObject, x)._grad)
        if gradient is not None and type(gradient) is Tensor:
            target = cast(TensorObject, gradient)
            if target._storage is None and target._base is None:
                made = new_storage(words.eager)
                require(target._storage is None and target._base is None)
                target._storage = made


@native()
def is_prepared(words: Words, leaf: TensorObject, gradient: TensorObject) -> Bool:
    return (
        can_be_added_in_place(words.eager, leaf._grad, gradient) and cast(TensorObject, leaf._grad)._storage is not None
    )


@native()
def free(words: Words, call: CallObject):
    after = words.after.get(call.freed)
    if after is not None and type(after) is frozenset:
        call.freed = after
    else:
        if call.again is not None:
            call_with(free_first, (call,), None)
        if after is not None:
            call.freed = after
        else:
            call.freed = True
        call.outputs = words.nothing
        call.arrays = words.nothing
        call.again = None
        if type(call.freed) is not tuple or len(cast(Tuple, call.freed)) == as_long(words.n_results):
            call.inputs = kept_inputs(words, call)


@native()
def kept_inputs(words: Words, call: CallObject) -> Tuple:
    """What a call keeps of its inputs once all is freed, as ReplayedCall.free does."""
    edges = cast(Dict, keep(call.edges))
    inputs = cast(Tuple, keep(call.inputs))
    kept = new_tuple(len(inputs))
    for k in range(len(inputs)):
        position = words.inner[k]
        if position is not None and edges.get(position) is None:
            set_tuple_item(kept, k, inputs[k])
        else:
            set_tuple_item(kept, k, None)
    return kept
