"""Autograd nodes: the op that made a tensor, its edges to the nodes of its operands, and what its derivative needs.

Tensor out --_node--> Node(mul) --edges--> (Node(exp), 0)            operand computed by another node
                          |          \\--> (AccumulateGrad(x), 0)     operand is a leaf
                          \\--saved: operands and output, as far as the derivative reads them
"""

import functools
import itertools
from weakref import ref as _weak_reference

from ...compiler.autodiff import has_rule, vjp
from ...compiler.later import later
from ...compiler.ops.kinds import is_unknown
from ...compiler.ops.table import Meta
from ..state.elsewhere import is_elsewhere
from ..state.hooks import RemovableHandle, TensorHook, metadata_of
from ..state.modes import state, watching
from ..state.tensor import (
    InferenceStorage,
    Storage,
    Tensor,
    alias_of,
    answering_for,
    storage_of,
    tensor_of,
)
from . import plan as plan_module
from .on_arrays import run_on_arrays
from .parts import is_part
from .plain_rules import in_form, plain_rules
from .saved import Saved, Shape, check_version, on_device, to_save

_derivative = later("runtime.programs.array_program:derivative")
_is_large = later("runtime.programs.array_program:is_large")
_needs = later("runtime.eager.needs:needs")
_new = object.__new__
_sequence = itertools.count()
# Leaves come last: everything that reaches them is summed first and added to .grad once.
ACCUMULATE_SEQUENCE = -1
SECOND_BACKWARD = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed), at {name}. Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
    "tensors after calling backward."
)


next_sequence = functools.partial(next, _sequence)  # that of a node made now


class BaseNode:
    """What every node has. `sequence` orders nodes by creation; the engine runs the latest first."""

    __slots__ = ("edges", "sequence", "hooks", "pre_hooks", "retained", "__weakref__")
    n_outputs = 1
    is_call = False  # whether it stands for a compiled call
    is_python = False  # whether running it runs Python of the user
    views = ()  # the outputs that show the memory of an input, of a custom Function
    may_lead_anywhere = False  # whether its edges are gone, so that nobody knows which leaves it had
    is_freed = False  # whether it has dropped what it had saved
    output_shape = None  # that of its only output, if its rule supposes one
    summed = ()  # positions of the edges where a node adds to what has arrived before (closed.py)
    recording = None  # what the node of an op of a plan has in common with others (Recording)
    stands_for = None  # edges of the nodes that have taken its place (closed_nodes.py)

    def __init__(self, edges):
        self.edges = edges
        self.sequence = next(_sequence)
        self.hooks = None
        self.pre_hooks = None
        self.retained = None

    @property
    def next_functions(self):
        """((node, output index), ...) for every operand; (None, 0) where no gradient flows."""
        return tuple((None, 0) if e is None else shown(e) for e in self.edges)

    def inner_edge(self, index):
        """Where the gradient of an output arrives."""
        return (self, index)

    def require_known(self):
        """An error if this stands in the place of a history that nobody knows (inference.py)."""

    def name(self):
        return type(self).__name__

    @property
    def metadata(self):
        """A dict of the user's own, which lives as long as the node."""
        return metadata_of(self)

    def _sequence_nr(self):
        return self.sequence

    def _set_sequence_nr(self, number):
        """Of nodes that could run now, backward runs the one with the greatest number."""
        self.sequence = number

    def __call__(self, *cotangents):
        """The gradients of the operands for these cotangents of the outputs, alone: nodes before it do not run."""
        if len(cotangents) != self.n_outputs:
            raise TypeError(
                f"{self.name()} expected {self.n_outputs} arguments, got {len(cotangents)} arguments instead"
            )
        require_not_freed(self)
        found = [None] * len(self.edges)
        if self.n_outputs > 1 or self.is_python or cotangents[0] is not None:
            found = self.run(cotangents[0]) if self.n_outputs == 1 else self.run_all(list(cotangents))
        return found[0] if len(found) == 1 else tuple(found)

    def register_hook(self, hook):
        """hook(grad_inputs, grad_outputs) runs after the node; what it returns replaces grad_inputs."""
        if self.hooks is None:
            self.hooks = {}
        return RemovableHandle(self.hooks, hook)

    def register_prehook(self, hook):
        """hook(grad_outputs) runs before the node; what it returns replaces grad_outputs."""
        if self.pre_hooks is None:
            self.pre_hooks = {}
        return RemovableHandle(self.pre_hooks, hook)

    def register_tensor_hook(self, index, hook):
        """hook(grad) runs when the gradient of output `index` is complete, before the node's own hooks."""
        if self.pre_hooks is None:
            self.pre_hooks = {}
        return RemovableHandle(self.pre_hooks, TensorHook(index, hook))

    def retain(self, index, tensor):
        """The gradient of output `index` is kept as the .grad of this tensor."""
        if self.retained is None:
            self.retained = {}
        self.retained[index] = _weak_reference(tensor)

    def __repr__(self):
        return f"<{type(self).__name__} object at {hex(id(self))}>"


def shown(edge):
    """(node, index) as a user sees it: of a compiled call, the op that made the value."""
    node, index = edge
    # Of the class: whether a node has it, is asked of what it has saved by PyTorch's names too.
    stand_in = getattr(type(node), "shown", None)
    return stand_in(node, index) if stand_in else (node, index)


class AccumulateGrad(BaseNode):
    """The end of the graph at a leaf: adds what arrives to `variable.grad`."""

    __slots__ = ("variable", "post_hooks")

    def __init__(self, variable):
        self.edges = ()
        self.sequence = ACCUMULATE_SEQUENCE
        self.variable = variable
        self.hooks = self.pre_hooks = self.retained = self.post_hooks = None

    def name(self):
        return "torch::autograd::AccumulateGrad"  # PyTorch's, which programs that walk graphs compare with


@functools.cache
def named(base, name):
    """The class of nodes called `name`, as `type(node).__name__` tells it too."""
    return type(name, (base,), {"__slots__": ()})


# The operations whose PyTorch nodes also list an operand that is a number.
_LIST_NUMBERS = {"add", "sub", "mul", "div", "where"}


def listed(op, operands):
    """Positions of the operands that `next_functions` lists: those that could have a gradient."""

    def is_listed(k, x):
        if not hasattr(x, "shape"):
            return op.name in _LIST_NUMBERS and not (op.name == "sub" and k == 0)
        return has_rule(op, k) and (op.vjp != () or x.dtype.is_differentiable)

    return [k for k, x in enumerate(operands) if is_listed(k, x)]


class Node(BaseNode):
    """A node for an op of the table. `sizes`: of one that native code has made without a plan of its sizes, what knows
    its derivative (open_nodes.py), and the sizes."""

    __slots__ = ("op", "attributes", "operands", "out", "meta", "released", "recording", "sizes")
    output_shape = property(lambda self: self.meta.shape)
    __getattr__ = later("runtime.eager.saved_hooks:saved_attribute")  # what it has saved, by PyTorch's names

    def __new__(cls, op, attributes, operands, out, edges):
        return object.__new__(class_of(op, attributes, operands))

    def __init__(self, op, attributes, operands, out, edges):
        super().__init__(edges)
        self.op = op
        self.recording = self.sizes = None
        self.attributes = attributes
        self.meta = Meta(out.shape, out.dtype)
        self.released = False
        needed, needs_out = _needs(op, operands, attributes, tuple(e is not None for e in edges))
        self.operands = tuple(
            (Saved(to_save(x)) if k in needed else Shape(x.shape, x.dtype)) if isinstance(x, Tensor) else x
            for k, x in enumerate(operands)
        )
        self.out = _saved_output(out) if needs_out else None

    @property
    def next_functions(self):
        if "output" in self.op.extra:
            return self.edges[1][0].next_functions  # of several outputs of a Function, whose node is one
        metas = [Shape(*x.meta) if isinstance(x, Saved) else x for x in self.operands]
        return tuple((None, 0) if e is None else shown(e) for e in (self.edges[k] for k in listed(self.op, metas)))

    def run(self, cotangent):
        """Cotangents of the operands, None where no edge leads."""
        if self.recording is not None and not state.grad_enabled and state.frame is None and not watching:
            found = self.recording.found_derivative(cotangent)
            results = None if found is None else run_on_arrays(self, *found, cotangent)
            if results is not None:
                return results
        if self.sizes is not None:
            self.sizes[0].ask(self, cotangent)
        operands = [x if x.__class__ is Shape else self._restore(x, k) for k, x in enumerate(self.operands)]
        out = Shape(self.meta.shape, self.meta.dtype) if self.out is None else self._restore_output()
        if cotangent._data is None and is_elsewhere(cotangent):
            found = self._derived_elsewhere(cotangent, out, operands)
            if found is not None:
                return found
            out, *operands = [on_device(cotangent._meta, x) for x in (out, *operands)]
        rules = None if self.recording is None else self.recording.plain_rules()
        if rules is not None:
            metas = self.recording.plan.metas
            return [
                None if e is None or rule is None else in_form(rule(cotangent, out, *operands, **self.attributes), meta)
                for e, rule, meta in zip(self.edges, rules, metas)
            ]
        # A rule that raises, for want of a derivative, does not where nobody wants its result.
        return [
            None
            if e is None or is_unknown(self.op, k) and state.sweep and not state.sweep.is_wanted(e)
            else vjp(self.op, k, cotangent, out, operands, self.attributes)
            for k, e in enumerate(self.edges)
        ]

    def _derived_elsewhere(self, cotangent, out, operands):
        """Cotangents on another device, where nobody differentiates them; None if rules are to compute them."""
        wanted = tuple([e is not None for e in self.edges])
        return None if state.grad_enabled else cotangent._meta.derive(self, wanted, (cotangent, out, *operands))

    def _restore(self, saved, position):
        if saved.__class__ is not Saved:
            return saved.restored(self) if isinstance(saved, Saved) else saved
        if saved.tensor._version != saved.version:
            check_version(saved, f"{self.name()}, operand {position}")
        if state.grad_enabled and self.edges[position] is not None and not saved.tensor._requires_grad:
            require_history(self.edges[position][0])
        return saved.tensor

    def _restore_output(self):
        if self.out.__class__ is not Saved:
            return self.out.restored(self)
        tensor = self.out.tensor
        if tensor._version != self.out.version:
            check_version(self.out, f"{self.name()}, output")
        if tensor._node is None and tensor._frame is None:
            # A fresh tensor for every use, so that the node does not keep itself alive through its output.
            alias = alias_of(tensor)
            alias._storage, alias._node, alias._requires_grad = tensor._storage, self, True
            if watching and state.level is not None:
                state.level.carry(alias, tensor)
            return alias
        return tensor

    @property
    def is_freed(self):
        return self.released

    @property
    def has_saved(self):
        if self.recording is not None:
            return self.recording.has_saved
        return self.out is not None or any(isinstance(x, Saved) for x in self.operands)

    def release(self):
        """Drop what was saved; running the node again is then an error, if it had saved anything."""
        if self.has_saved:
            self.released = True
            recording = self.recording
            if recording is None:
                self.operands = tuple([Shape(*x.meta) if isinstance(x, Saved) else x for x in self.operands])
            elif recording.has_numbers:
                self.operands = tuple([x if y is None else y for x, y in zip(self.operands, recording.released)])
            else:
                self.operands = recording.released
            self.recording = self.sizes = self.out = None


def class_of(op, attributes, operands):
    name = op.node_name
    return named(Node, name if isinstance(name, str) else name(operands, attributes))


def _saved_output(out):
    if out._frame is not None:
        return Saved(out)
    alias = alias_of(out)
    alias._storage = storage_of(out)
    return Saved(alias)


def keep_output(tensor):
    """A tensor is about to get other memory. If its node has saved it as its output, that goes on with what it was."""
    out = getattr(tensor._node, "out", None)
    if out.__class__ is Saved and out.tensor is tensor:
        tensor._node.out = kept = _saved_output(tensor)
        kept.version = out.version


def require_not_freed(node):
    """RuntimeError for a node that is to run and has dropped what it had saved."""
    # A Function's node asks its ctx for what it has not, where a user may have put this name too.
    if not node.is_python and getattr(node, "released", False):
        raise RuntimeError(SECOND_BACKWARD.format(name=node.name()))


def require_history(node):
    """RuntimeError for a saved tensor that has lost the history it had: a second derivative would lack that part."""
    if not isinstance(node, AccumulateGrad):
        raise RuntimeError(
            "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(), in a backward pass "
            "that is differentiated again. This is not supported, please use out-of-place `.detach()` instead."
        )


# --- nodes of eager ops, as their plan says -------------------------------------------------------------------------
class Recording:
    """What all nodes of a plan have in common whose operands require gradients in the same places.

    `saved` are the positions of the operands that a node keeps; of the other tensors it keeps shape and type, which
    `released` has for all of them. `reads_out` says whether the output is kept. `left` is how many derivatives Python
    runs until native code is told of them, `native` what it reads then, `held` what that is, by how cotangents lie.
    Where native code is off, quick(node, cotangent) gives the cotangents of the operands; None if other arrays have
    come than were planned for. `rules` are those of plain_rules, once they have been asked for.
    """

    __slots__ = (
        "plan", "kind", "differentiated", "saved", "released", "reads_out", "has_saved", "has_numbers", "asked",
        "derivative", "left", "native", "held", "rules", "has_waited",
        "is_part", "quick",
    )  # fmt: skip

    def __init__(self, plan, operands, differentiated):
        self.plan, self.differentiated = plan, differentiated
        self.kind = class_of(plan.op, plan.attributes, operands)
        needed, self.reads_out = _needs(plan.op, operands, plan.attributes, differentiated)
        self.saved = tuple(sorted(needed))
        self.released = tuple(Shape(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in operands)
        self.has_saved, self.has_numbers = self.reads_out or bool(needed), None in self.released
        self.asked, self.derivative, self.rules = False, None, False
        self.held, self.native, self.left = {}, None, plan_module.CALLS_BEFORE_NATIVE
        self.has_waited, self.is_part, self.quick = False, is_part(plan), None

    def plain_rules(self):
        """What plain_rules.py says of the plan."""
        if self.rules is False:
            self.rules = plain_rules(self.plan, self.differentiated)
        return self.rules

    def found_derivative(self, cotangent):
        """(program, roots) of the derivative, made when it is asked for the second time; None if there is none."""
        if not self.asked:
            self.asked = True
            if not _is_large((self.plan.meta, *self.plan.metas)):
                return None
        if self.derivative is None:
            self.derivative = self._make() or False
        if self.derivative and self.left:
            self.left -= 1
            if not self.left:
                plan_module.take_over_derivative(self, cotangent._data)
        return self.derivative or None

    def _make(self):
        plan = self.plan
        found = _derivative(plan.op, plan.metas, plan.meta, plan.attributes, self.differentiated, plan.default_dtype)
        if found is None:
            return None
        n_inputs = 2 + len(plan.metas)
        kept = {0, *(k + 2 for k in self.saved), *(k + 2 for k, m in enumerate(plan.metas) if m.weak)}
        kept |= {1} if self.reads_out else set()
        return found if kept.issuperset(k for k in found[0].read() if k < n_inputs) else None


def record(plan, operands, attributes, out, requires):
    """Give the result of an op the node that made it, if gradients flow to any operand. Bit k of `requires` says
    whether operand k requires them."""
    recording = plan.recordings.get(requires)
    if recording is None:
        wanted = tuple([bool(requires >> k & 1) and has_rule(plan.op, k) for k in range(len(operands))])
        recording = plan.recordings[requires] = Recording(plan, operands, wanted) if True in wanted else False
    if recording is False:
        return
    node = _new(recording.kind)
    edges = []
    for x, differentiated in zip(operands, recording.differentiated):
        if not differentiated:
            edges.append(None)
            continue
        before = x._node
        if before is None:
            # `leaf_edge`, written out.
            leaf = x._accumulator
            if x._frame is None and leaf is not None and (leaf := leaf()) is not None:
                edges.append((leaf, 0))
            else:
                edges.append(edge_of(x))
        else:
            edges.append((before, 0) if before.n_outputs == 1 else edge_of(x))
    node.edges = tuple(edges)
    node.sequence = next(_sequence)
    node.hooks = node.pre_hooks = node.retained = None
    node.op = plan.op
    node.attributes = attributes
    node.meta = plan.meta
    node.released = False
    node.recording, node.sizes = recording, None
    kept = recording.released
    if recording.saved or recording.has_numbers:
        kept = list(kept) if not recording.has_numbers else [x if y is None else y for x, y in zip(operands, kept)]
        for k in recording.saved:
            # `_saved`, written out.
            tensor = operands[k]
            storage = tensor._storage
            kept[k] = saved = _new(Saved)
            if storage is None:
                saved.tensor, saved.version = tensor, tensor._version
            else:
                saved.tensor = tensor if storage.__class__ is not InferenceStorage else to_save(tensor)
                saved.version = storage.version
        kept = tuple(kept)
    node.operands = kept
    node.out = _saved_new_output(out) if recording.reads_out else None
    out._requires_grad = True
    out._node = node
    if watching:
        show_watchers(node, out)


def show_watchers(node, out):
    """A node has just been made, and has made `out`."""
    for block in state.watchers:
        block.watch(node, out)


def _saved(tensor):
    """Saved(tensor), written out: this runs for most operands."""
    saved, storage = _new(Saved), tensor._storage
    saved.tensor = tensor if storage.__class__ is not InferenceStorage else to_save(tensor)
    saved.version = tensor._version if storage is None else storage.version
    return saved


def _saved_new_output(out):
    """`_saved_output` of a tensor that nobody else has seen."""
    if out._storage is None:
        out._storage = Storage()
    alias = tensor_of(out._data)
    alias._storage = out._storage
    return _saved(alias)


# --- edges ------------------------------------------------------------------------------------------------------------
def edge_of(tensor):
    """Where a tensor's cotangent goes: (node, output index), or None if it needs none."""
    if not tensor._requires_grad:
        return None
    node = tensor._node
    if node is not None:
        return node, (node.output_index(tensor) if node.n_outputs > 1 else 0)
    if tensor._frame is not None and tensor._meta.history:
        answering = answering_for(tensor)
        if answering is not None:
            return answering.edge_of(tensor)
        if tensor._node is not None:
            # Its call has ended just now, in another thread.
            return edge_of(tensor)
    return leaf_edge(tensor)


def leaf_edge(tensor):
    """The end of the graph at a leaf."""
    accumulator = tensor._accumulator
    if accumulator is None or (accumulator := accumulator()) is None:
        accumulator = AccumulateGrad(tensor)
        tensor._accumulator = _weak_reference(accumulator)
    return accumulator, 0
