"""A finished usual call's part of a backward pass, in native code; of the subset (docs/native.md).

    begin      of one that begins at its results and goes on to what made its arguments
    in_sweep   of one that arrives at its node

The part is its program, as in finished_backward.py. What that gives waits at the nodes it goes on to, from where
engine.py goes on.
"""

from ...compiler.translate.kinds import Dict, List, Object, Tuple
from ...compiler.translate.language import METHOD, cast, keep, native, require
from ..code.native_kinds import TensorObject, call_with
from ..eager.eager_backward import contribute
from ..eager.eager_words import ArrayObject
from ..record.closed import contiguous
from ..state.modes import watching
from ..state.tensor import Tensor
from ..state.turns import adding
from .finished_backward import CONTIGUOUS, free, gradients_of_results, is_followed, is_unchanged, run
from .finished_calls import CallObject
from .finished_nodes import new_edges
from .finished_words import Words
from .usual_calls import ReplayedCall


@native(form=METHOD, slow="slow_begin", name="weft_finished_begin")
def begin(
    words: Words,
    made: Object,
    outputs: Object,
    cotangents: Object,
    retain_graph: Object,
    pending: Object,
    waiting: Object,
    leaves: Object,
    add_in_python: Object,
) -> Object:
    """Whether the call has given its part of backward() of these results."""
    require(type(pending) is dict and type(waiting) is list and type(leaves) is dict)
    require(len(cast(List, adding)) == 0 and len(cast(List, watching)) == 0)
    require(type(made) is ReplayedCall)
    call = cast(CallObject, made)
    require(not is_followed(call))
    edges = new_edges(words, call)
    found = gradients_of_results(words, made, outputs, cotangents, retain_graph)
    # From here on nothing departs: what has been passed on cannot be passed on again.
    if retain_graph is False:
        free(words, call)
    for k in range(len(edges)):
        result = keep(found[k])
        contribute(
            words.eager, cast(Dict, pending), cast(List, waiting), cast(Dict, leaves), cast(Tuple, edges[k]), result,
            add_in_python,
        )  # fmt: skip
    return True


@native(form=METHOD, slow="slow_cotangents", name="weft_finished_in_sweep")
def in_sweep(words: Words, made: Object, arrived: Object, retain_graph: Object) -> Object:
    """What the call gives the edges of its node for what has arrived there, one for each result."""
    require(type(made) is ReplayedCall and type(arrived) is list and len(cast(List, arrived)) == len(words.present))
    require(retain_graph is False or retain_graph is True)
    call = cast(CallObject, made)
    require(call.frame is None and call.again is None and words.after.get(call.freed) is not None)
    require(is_unchanged(words, call))
    arrays = []
    for x in cast(List, arrived):
        require(type(x) is Tensor)
        array = cast(TensorObject, x)._data
        require(array is not None)
        if cast(ArrayObject, array).flags & CONTIGUOUS != 0:
            arrays.append(array)
        else:
            arrays.append(call_with(contiguous, (x,), None))
    found = run(words, call, arrays)
    if retain_graph is False:
        free(words, call)
    return found
