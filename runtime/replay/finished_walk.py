"""A backward pass that begins at the results of a finished usual call and goes on to what made its arguments, in native
code; of the subset (docs/native.md).

The call's own part is its program, as in finished_backward.py. What that gives waits at the nodes it goes on to, from
where engine.py goes on.
"""

from ...compiler.translate.kinds import Dict, List, Object, Tuple
from ...compiler.translate.language import METHOD, cast, keep, native, require
from ..eager.eager_backward import contribute
from ..eager.node import adding
from ..state.modes import watching
from .finished_backward import free, gradients_of_results, is_followed
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
