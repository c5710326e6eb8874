"""Calling an op in eager mode in native code: `weft_eager_call` stands in place of Op.__call__ (eager_native.py).

It does what gate.py: apply_eagerly does for operands whose plan has a Routine (eager_words.py): looks the plan up,
makes the result's array, runs the kernels, makes the tensor, and its node if one of the operands requires gradients.
Everything else departs to Python, which can do all of it. The sources are of the subset (docs/native.md).
"""

from ...compiler.translate.kinds import I64, Bool, Dict, List, Maybe, Object, Tuple
from ...compiler.translate.language import METHOD, SLOT, address_of, cast, keep, load_at, local_array, native, require
from ..code.native_kinds import TensorObject
from ..state.modes import inferring, watching
from ..state.storage import InferenceStorage
from .eager_computing import new_values
from .eager_matching import hash_of, matches, row_of, which_require
from .eager_nodes import new_inference_storage, new_tensor, record
from .eager_open import is_wanted_exact, open_place_for, record_open
from .eager_views import new_view
from .eager_words import MOST_SIZES, N_PLANS, PLACES, NodeRow, Open, Routine, Words, thread_number, thread_state

WORDS = Words()


def call_op(*_):
    """The Python function that calls an op: eager_native.py sets it before this is loaded."""
    raise AssertionError("the code is loaded before it is known what calls an op")


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
    at = place_for(words, op, default_dtype, operands, attributes)
    if at < 0:
        return called_open(words, op, default_dtype, operands, attributes)
    routine = cast(Routine, words.plans[at])
    if routine.lent > 0:
        routine.lent -= 1
        require(routine.lent > 0)
    required = requiring(words, routine, operands)
    row = cast(NodeRow, routine.nodes[row_of(required, len(operands))])
    out = result_of(words, routine, row, required, operands)
    if row.makes_node:
        record(words, routine, row, operands, out)
    words.calls_taken += 1
    return out


@native(inline=True)
def called_open(
    words: Words, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)
) -> TensorObject:
    """The same of operands of sizes that nothing was found out about."""
    place = open_place_for(words, op, default_dtype, operands, attributes)
    require(place >= 0 and not is_wanted_exact(words, hash_of(op, operands, attributes)))
    known = cast(Open, words.open[place])
    routine = known.routine
    sizes = local_array(I64, MOST_SIZES)  # of this call: another one may be made before its node is
    for k in range(known.sizes.n):
        sizes[k] = words.sizes[k]
    required = requiring(words, routine, operands)
    at = row_of(required, len(operands))
    row = cast(NodeRow, routine.nodes[at])
    out = result_of(words, routine, row, required, operands)
    if row.makes_node:
        record(words, routine, row, operands, out)
        record_open(words, cast(Object, known.derivatives[at]), address_of(sizes), known.sizes.n, out, attributes)
    words.calls_taken += 1
    return out


@native(inline=True)
def requiring(words: Words, routine: Routine, operands: Tuple) -> I64:
    """Which operands a gradient flows to."""
    if routine.is_floating and words.modes.get("grad_enabled", words.grad_enabled) is not False:
        return which_require(operands)
    return 0


@native(inline=True)
def result_of(words: Words, routine: Routine, row: NodeRow, required: I64, operands: Tuple) -> TensorObject:
    require(row.is_known and not routine.only_changes)
    infers = len(cast(List, inferring)) != 0 and words.modes.get("inference", None) is True
    if routine.is_view:
        require(required == 0 or type(cast(TensorObject, operands[0])._storage) is not InferenceStorage)
        # In inference mode a view may be more than what it is elsewhere (inference.py).
        require(not infers or cast(TensorObject, operands[0])._requires_grad is False)
        return new_view(words, routine.view, cast(TensorObject, operands[0]))
    out = computed(words, routine, operands)
    if infers:
        out._storage = new_inference_storage(words)
    return out


@native()
def computed(words: Words, routine: Routine, operands: Tuple) -> TensorObject:
    return new_tensor(words, new_values(words, routine, operands))


# --- finding the routine ----------------------------------------------------------------------------------------------
@native(inline=True)
def routine_for(words: Words, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)) -> Routine:
    at = place_for(words, op, default_dtype, operands, attributes)
    require(at >= 0)
    return cast(Routine, words.plans[at])


@native()
def place_for(words: Words, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)) -> I64:
    """Where in the table the routine is; -1 if there is none."""
    wanted = hash_of(op, operands, attributes)
    at = wanted & (N_PLANS - PLACES)
    end = at + PLACES
    while at < end and not is_for(cast(Routine, words.plans[at]), wanted, op, default_dtype, operands, attributes):
        at += 1
    if at == end:
        return -1
    return at


@native(inline=True)
def is_for(
    routine: Routine, wanted: I64, op: Object, default_dtype: Object, operands: Tuple, attributes: Maybe(Dict)
) -> Bool:
    return routine.hash == wanted and matches(routine, op, default_dtype, operands, attributes)
