"""The end of a call in which gradients passed through nodes: its results get theirs, or all of them go.

Nodes are needed where the user has set hooks that may still be called, or where they do what steps do not say. Else
the steps say all: the results are differentiated by a program, as those of any call.
"""

from .frame_autograd import make_nodes, node_for, reach
from .frame_leaves import are_reached
from .frame_views import has_history, is_held_outside, is_history_alive, references_at_end


def end_nodes(frame):
    """Whether the call, which is about to end, has results with nodes of their own."""
    if not frame.hooked:
        # What a backward reads may have changed since other values were computed from it: nodes do not mind.
        if not (frame.rewritten and is_history_alive(frame) or are_reached(frame)):
            return False
        make_nodes(frame)
    if frame.noted or not frame.walks or None in frame.walks or are_reached(frame) or _are_hooks_alive(frame):
        return hand_out_nodes(frame)
    for walk in frame.walks:
        frame.freed.update(walk.freed)
    frame.nodes, frame.hooked = {}, False
    for tensor in frame.tensors:
        if tensor is not None and tensor._frame is frame:
            tensor._node = None
    return False


def _are_hooks_alive(frame):
    """Whether somebody holds a value with hooks, or one whose backward may still come to some."""
    if not frame.hooked_values:
        return False
    inside, freed = references_at_end(frame), frame.freed.union(*(walk.freed for walk in frame.walks))
    for vid in range(len(frame.tensors)):
        may_be_called = has_history(frame, vid) and is_held_outside(frame, vid, inside)
        if may_be_called and (vid in frame.hooked_values or freed.isdisjoint(reach(frame, [vid])[0])):
            return True
    return False


def hand_out_nodes(frame):
    """Results that somebody holds get real nodes, with all that these lead to; other nodes go, with what they have
    saved. Whether there are such results."""
    inside = references_at_end(frame)
    held = [v for v in range(len(frame.tensors)) if has_history(frame, v) and is_held_outside(frame, v, inside)]
    stack = [frame.tensors[v]._node or node_for(frame, v) for v in held]
    reached, own = set(), set(frame.nodes.values())
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack += [edge[0] for edge in node.edges if edge is not None and edge[0] in own]
    frame.nodes = {vid: node for vid, node in frame.nodes.items() if node in reached}
    for vid, tensor in enumerate(frame.tensors):
        if tensor is not None and tensor._frame is frame and has_history(frame, vid):
            tensor._node = frame.nodes.get(vid, tensor._node if vid in held else None)
    return bool(held)
