"""Which nodes autograd.grad runs, found in native code as reach.py: reach_in_python finds it; of the subset
(docs/native.md)."""

from ...compiler.translate.kinds import Bool, Dict, List, Object, Tuple
from ...compiler.translate.language import METHOD, cast, keep, native, require
from ..code.native_kinds import new_list
from .eager_backward import is_node
from .eager_words import NodeObject, Words, new_dict, replace_part
from .node import AccumulateGrad
from .reach import BOTH


@native(form=METHOD, slow="slow_reach", name="weft_eager_reach")
def reach(words: Words, roots: Object, wanted: Object) -> Object:
    """A node stands on the stack until all that is behind it is known, which `done` says: what is behind a node comes
    before it."""
    require(type(roots) is list and type(wanted) is list)
    found = new_dict()
    for k in range(len(cast(List, wanted))):
        found[cast(Tuple, cast(List, wanted)[k])[0]] = False
    done = new_dict()
    stack = new_list(0)
    for k in range(len(cast(List, roots))):
        stack.append(cast(Tuple, cast(Tuple, cast(List, roots)[k])[0])[0])
    while len(stack) > 0:
        node = keep(stack[len(stack) - 1])
        state = done.get(node)
        if state is None:
            # Of others only Python knows whether they lead anywhere.
            require(type(node) is AccumulateGrad or is_node(node))
            done[node] = False
            put_behind(node, done, stack)
        else:
            if state is False:
                done[node] = True
                if leads_to(node, found):
                    if found.get(node) is None:
                        found[node] = True
                    else:
                        found[node] = BOTH
            replace_part(stack, len(stack) - 1, len(stack), words.null)
    return found


@native(inline=True)
def put_behind(node: Object, done: Dict, stack: List):
    edges = cast(Tuple, cast(NodeObject, node).edges)
    for k in range(len(edges)):
        if edges[k] is not None:
            behind = cast(Tuple, edges[k])[0]
            if done.get(behind) is None:
                stack.append(behind)


@native(inline=True)
def leads_to(node: Object, found: Dict) -> Bool:
    edges = cast(Tuple, cast(NodeObject, node).edges)
    leads = False
    for k in range(len(edges)):
        leads = leads or (edges[k] is not None and found.get(cast(Tuple, edges[k])[0]) is not None)
    return leads
