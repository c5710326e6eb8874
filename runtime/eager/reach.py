"""Which nodes of a graph a backward pass runs, if only the cotangents of some edges are wanted."""

from operator import attrgetter

# What a node is to those who want the cotangents of some edges: it runs, it runs and an edge of it is wanted, or only
# its edge is.
RUNS, BOTH, WANTED = True, "both", False


def reach_in_python(roots, wanted):
    """The nodes from which a wanted edge can be reached, and those that the wanted edges lead to: {node: RUNS, BOTH or
    WANTED}. No others get cotangents."""
    found = {node: WANTED for node, _ in wanted}
    for node in sorted(behind(roots), key=attrgetter("sequence")):
        if node.may_lead_anywhere:  # it runs, and says that it is too late
            found[node] = RUNS
        for edge in node.edges:
            if edge is not None and edge[0] in found:
                found[node] = BOTH if node in found else RUNS
                break
    return found


_search = reach_in_python


def set_native_reach(function):
    """What does the same."""
    global _search
    _search = function


def reach(roots, wanted):
    """The same, natively where that is known."""
    return _search(roots, wanted)


def leading_to(roots, wanted):
    """ids of the nodes from which a wanted edge can be reached (without those whose own output is wanted last)."""
    return {id(node) for node, runs in reach(roots, wanted).items() if runs is not WANTED}


def between(roots, wanted):
    """ids of those of them that come before all nodes that a wanted edge leads to."""
    ends, found, stack = {id(node) for node, _ in wanted}, set(), [node for (node, _), _ in roots]
    leading = leading_to(roots, wanted)
    while stack:
        node = stack.pop()
        if id(node) in leading and id(node) not in found and id(node) not in ends:
            found.add(id(node))
            stack += [edge[0] for edge in node.edges if edge is not None]
    return found


def behind(roots):
    """All nodes that can be reached from the roots."""
    seen, stack = {}, [node for (node, _), _ in roots]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            for edge in node.edges:
                if edge is not None:
                    stack.append(edge[0])
    return list(seen)
