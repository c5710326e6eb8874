"""Graphs and programs of stretches whose loops in Python are rolled up (compiler/roll.py), for any number of steps.

Three kinds, one class each. `graph`: rolled up, of one recording; `build(graph)`: (meta, IR text) of a program for it,
or for the same graph with extents for numbers; `version`: what else the program depends on; `own()`: what of its meta
is said in the numbers of values of a recording, which no other one shares.

Where results are differentiated later, forward and backward are rolled up together and then split, so what steps of the
one leave for steps of the other is one array, and which arrays are saved does not depend on how many steps there are.
"""

from dataclasses import dataclass, replace

from ...compiler import partition
from ...compiler.decompose import decompose
from ...compiler.graph import Graph
from ...compiler.pipeline import compile_graph
from ...compiler.roll import roll
from ...compiler.simplify import simplify
from ..code.dump import watcher
from ..code.jit import kernel_target
from .build import forward_graph, joint_of, meta_of, source_of, split_of, uncollected
from .frame_autograd import read_before_changes, saved_by_nodes, summed_leaves


@dataclass(frozen=True, slots=True)
class RolledForward:
    """What nothing differentiates later."""

    graph: Graph
    inputs: list
    numbers: list
    n_live: int
    version = ""

    def own(self):
        return {"inputs": list(self.inputs), "numbers": list(map(list, self.numbers))}

    @uncollected()
    def build(self, graph):
        compiled = _compiled(graph)
        return meta_of(graph, [], [], self.n_live, compiled), compiled.text


@uncollected()
def rolled_forward(stretch, needed):
    """The RolledForward of the program for `needed`, or its RolledJoint; None if nothing repeats."""
    if needed.differentiable:
        joint = _rolled_joint(stretch, needed, needed.differentiable, ())
        return joint and RolledJoint(joint, stretch, needed)
    graph, inputs, numbers = forward_graph(stretch, needed)
    found = roll(simplify(decompose(graph)[0])[0])
    return found and RolledForward(found.graph, inputs, [numbers[k] for k in found.scalars], len(needed.live))


# --- a call whose results are differentiated later --------------------------------------------------------------------
def _rolled_joint(stretch, needed, present, continued):
    """The Joint with its loops rolled up: what steps of the forward have left for steps of the backward is one array.
    Its numbers are those of the graph, then those of the loops' steps. None if nothing repeats."""
    joint = joint_of(stretch, needed, present, continued)
    found = roll(joint.graph)
    return found and replace(joint, graph=found.graph, numbers=[joint.numbers[k] for k in found.scalars])


class RolledJoint:
    """The forward of such a call. What it saves is decided when its program is compiled, for whatever number of steps:
    the program's meta has it as `cut`."""

    def __init__(self, joint, stretch, needed):
        self.joint, self.graph, self.n_live = joint, joint.graph, len(needed.live)
        before = [v for v in read_before_changes(stretch, needed) if v in joint.inputs]
        kept = sorted(saved_by_nodes(stretch, [*needed.live, *stretch.known]) - stretch.externals)
        self.extra = {"reached": joint.reached, "kept": kept, "before": before}
        self.extra["summed"] = summed_leaves(stretch, needed.differentiable)
        self.copied = [joint.inputs.index(v) for v in before]
        sizes = f"{joint.n_forward} results, {self.n_live} live, {joint.n_cotangents} cotangents"
        self.version = f"forward of {sizes}, readable {joint.readable}, kept {joint.kept}, copied {self.copied}"

    def own(self):
        return {"inputs": list(self.joint.inputs), "numbers": list(map(list, self.joint.numbers)), **self.extra}

    def split(self, graph, cut=None):
        return split_of(replace(self.joint, graph=graph), cut, self.copied)

    @uncollected()
    def build(self, graph):
        parts = self.split(graph)
        compiled = _compiled(parts.forward)
        backward, _, _ = _backward_graph(self.joint, graph, parts.given)
        extra = {"cut": list(parts.cut), "backward_graph": str(backward)}
        return meta_of(parts.forward, [], [], self.n_live, compiled, extra), compiled.text


class RolledBackward:
    """From saved values and cotangents to gradients. `given`: {number of a value of the graph: where it is}."""

    def __init__(self, joint, needed, present, continued, given):
        self.joint, self.graph, self.given = joint, joint.graph, given
        self.about = needed, present, continued
        self.version = f"backward of {joint.n_forward} results, readable {joint.readable}, from {sorted(given.items())}"

    def own(self):
        return self.uncompiled()[2]

    def uncompiled(self):
        """(graph, numbers of its scalars and of its loops' steps, meta as far as it goes)"""
        graph, sources, scalars = _backward_graph(self.joint, self.graph, self.given)
        numbers = [list(self.joint.numbers[k]) for k in scalars]
        meta = {
            "inputs": list(range(len(sources))),
            "sources": [source_of(kind, k, self.joint, *self.about) for kind, k in sources],
            "reached": self.joint.reached,
            "numbers": numbers,
        }
        return graph, numbers, meta

    @uncollected()
    def build(self, graph):
        backward, _, _ = _backward_graph(self.joint, graph, self.given)
        compiled = _compiled(backward)
        return meta_of(backward, [], [], len(backward.outputs), compiled), compiled.text


@uncollected()
def rolled_backward(stretch, rolled, cut, needed, present, continued):
    """The RolledBackward of a call whose forward was that of a RolledJoint with this cut; None if what that has saved
    is not enough."""
    joint, given = rolled.joint, rolled.split(rolled.graph, frozenset(cut)).given
    if present != needed.differentiable or continued:
        other = _rolled_joint(stretch, needed, present, continued) or joint_of(stretch, needed, present, continued)
        table = {}
        keys = joint.keys(table)
        known = {keys[number]: source for number, source in given.items()}
        given = {number: known[key] for number, key in enumerate(other.keys(table)) if key in known}
        joint = other
    if _backward_graph(joint, joint.graph, given) is None:
        return None
    return RolledBackward(joint, needed, present, continued, given)


def _backward_graph(joint, graph, given):
    """(graph, sources of its inputs, which of the joint's numbers it takes), or None; `graph`: the joint's, or the same
    with extents."""
    n_scalars = len(graph.scalars())
    of_steps = range(n_scalars, len(joint.numbers))
    found = partition.backward_from(
        graph, joint.n_forward, joint.n_cotangents, joint.readable, given, all_scalars=bool(of_steps)
    )
    return found and (*found[:2], (*found[2], *of_steps))


def _compiled(graph):
    return compile_graph(graph, target=kernel_target(), watch=watcher(graph.name))
