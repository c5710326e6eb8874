"""Hooks on what nodes save for backward: a user's functions that put tensors away, and get them back.

    pack(tensor) -> anything          when a node saves a tensor; it is given the values without their history
    unpack(anything) -> tensor        when backward, or somebody who looks, needs it

The result of `unpack` takes the place of what was saved, with the history that had: second derivatives pass on.
"""

import weakref

from ..state.elsewhere import is_elsewhere
from ..state.modes import no_grad, state, watched
from ..state.tensor import Tensor, alias_of, storage_of, tensor_of
from .node import AccumulateGrad, BaseNode, Node, Saved, edge_of, shown

_CHANGED = (
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be "
    "modified by in-place operations as this can lead to unexpected side-effects on the inputs: change a copy "
    "(x = x.clone())."
)


class Packed(Saved):
    """What a pack hook made of a tensor, and how to get that back. `edge` is where gradients of the tensor go on to:
    None if it needs none, OUTPUT if the node that saved it has made it."""

    __slots__ = ("packed", "unpack", "edge", "kept_meta")

    def __init__(self, tensor, edge, pack, unpack):
        given = tensor if edge is None and not tensor._requires_grad else without_history(tensor)
        version = given._version
        with no_grad():
            self.packed = pack(given)
        if given._version != version:
            raise RuntimeError(_CHANGED)
        self.kept_meta, self.unpack, self.edge = (tensor.shape, tensor.dtype), unpack, edge

    @property
    def meta(self):
        return self.kept_meta

    def restored(self, node):
        found = self.unpack(self.packed)
        if not isinstance(found, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(found).__name__}"
            )
        if self.edge is None and not found._requires_grad:
            return found
        return with_history(found, (node, 0) if self.edge is OUTPUT else self.edge)


OUTPUT = object()


def without_history(tensor):
    """The tensor's memory and version, and nothing else of it."""
    alias = alias_of(tensor) if tensor._data is None and is_elsewhere(tensor) else tensor_of(tensor.array)
    alias._storage = storage_of(tensor)
    if state.level is not None:
        state.level.carry(alias, tensor)
    return alias


def with_history(tensor, edge):
    """The tensor's memory and version, whose gradients go to `edge`."""
    alias = without_history(tensor)
    if edge is None:
        return alias
    alias._requires_grad = True
    if isinstance(edge[0], AccumulateGrad):
        alias._accumulator = weakref.ref(edge[0])
    else:
        alias._node = edge[0] if edge[0].n_outputs == 1 else PassOn((edge,))
    return alias


class PassOn(BaseNode):
    """Stands for one output of a node that has several."""

    __slots__ = ()

    def shown(self, index):
        return shown(self.edges[0])

    def run(self, cotangent):
        return [cotangent]

    def release(self):
        """Nothing is saved."""


# --- hooks for all that is saved in a block ---------------------------------------------------------------------------
class saved_tensors_hooks:
    """A `with` block: what nodes made in it save goes through pack(tensor), and comes back by unpack(packed).

    Of nested blocks the inner one counts. In a compiled call what is in the block runs eagerly, and so does a compiled
    function that is called in it.
    """

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        if state.hooks_disabled is not None:
            raise RuntimeError(state.hooks_disabled)
        _Packing(self.pack_hook, self.unpack_hook).__enter__()
        return self

    def __exit__(self, *exception):
        # As in PyTorch the innermost block ends, whichever it is.
        block = _innermost()
        if block is not None:
            block.__exit__(*exception)


class _Packing(watched):
    """An open block of such hooks."""

    is_of_pass = True

    def __init__(self, pack_hook, unpack_hook):
        super().__init__(None, "saved tensor hooks: their Python runs whenever a tensor is saved")
        self.hooks = pack_hook, unpack_hook

    def watch(self, node, out):
        if _innermost() is self:
            pack_node(node, *self.hooks)


def _innermost():
    return next((block for block in reversed(state.watchers) if isinstance(block, _Packing)), None)


class disable_saved_tensors_hooks:
    """A `with` block in which setting such hooks is an error with this message."""

    def __init__(self, error_message):
        self.message = error_message
        self.before = []

    def __enter__(self):
        if _innermost() is not None:
            raise RuntimeError(self.message)
        self.before.append(state.hooks_disabled)
        state.hooks_disabled = self.message

    def __exit__(self, *exception):
        state.hooks_disabled = self.before.pop()


def pack_node(node, pack, unpack):
    """Put away all that a node has saved."""
    if isinstance(node, Node):
        node.operands = tuple([_packed(x, pack, unpack) if isinstance(x, Saved) else x for x in node.operands])
        if node.out is not None:
            node.out = Packed(node.out.tensor, OUTPUT, pack, unpack)
        # What it has saved is found by position no longer.
        node.recording = None
    elif hasattr(node, "pack_saved"):
        node.pack_saved(pack, unpack)


def _packed(saved, pack, unpack):
    return Packed(saved.tensor, edge_of(saved.tensor), pack, unpack)


# --- one saved tensor -------------------------------------------------------------------------------------------------
class SavedTensor:
    """A tensor that a node has saved, for hooks of its own: node._raw_saved_self.register_hooks(pack, unpack)."""

    __slots__ = ("node", "read", "write")

    def __new__(cls, *args):
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden")

    @classmethod
    def of(cls, node, read, write):
        """read() gives what is saved now, write(saved) puts something in its place."""
        self = object.__new__(cls)
        self.node, self.read, self.write = node, read, write
        return self

    def register_hooks(self, *hooks):
        """register_hooks(pack_hook, unpack_hook)"""
        saved = self.read()
        if getattr(self.node, "released", False):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Please make sure that you are not "
                "trying to backward through the graph a second time."
            )
        if saved is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if isinstance(saved, Packed):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of "
                "hooks is allowed at a time."
            )
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError(
                "register_hooks(): incompatible function arguments: expected two functions of one argument, got "
                f"{[type(hook).__name__ for hook in hooks]}"
            )
        edge = OUTPUT if saved is getattr(self.node, "out", None) else edge_of(saved.tensor)
        packed = Packed(saved.tensor, edge, *hooks)
        if edge is OUTPUT:
            # What is saved is found by position no longer.
            self.node.recording = None
        self.write(packed)


# --- what a node has saved, by PyTorch's names ------------------------------------------------------------------------
_NAMES = {"pow": ("self", "exponent"), "matmul": ("self", "mat2"), "where": ("condition", "self", "other")}
_DEFAULT_NAMES = ("self", "other", "weight", "bias")
_ATTRIBUTES = {"dim": "axis", "keepdim": "keepdims"}


def saved_attribute(node, name):
    """node._saved_self, node._saved_result and their like, and the same with _raw: hooks can be set on those."""
    for prefix in ("_saved_", "_raw_saved_"):
        if name.startswith(prefix):
            found = _access(node, name.removeprefix(prefix))
            if found is not None:
                raw = SavedTensor.of(node, *found)
                return raw if prefix == "_raw_saved_" else _shown(node, raw)
            if prefix == "_saved_" and _attribute(name) in node.attributes:
                return node.attributes[_attribute(name)]
    raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}")


def _attribute(name):
    plain = name.removeprefix("_saved_")
    return _ATTRIBUTES.get(plain, plain)


def _access(node, name):
    """(read, write) of what is called so; None if the node saves nothing of that name."""
    if name == "result":
        known = node.out is not None or node.released
        return ((lambda: node.out), (lambda saved: setattr(node, "out", saved))) if known else None
    names = _NAMES.get(node.op.name, _DEFAULT_NAMES)
    position = names.index(name) if name in names else len(node.operands)
    if position >= len(node.operands):
        return None
    return (lambda: _operand(node, position)), (lambda saved: _put(node, position, saved))


def _operand(node, position):
    saved = node.operands[position]
    return saved if isinstance(saved, Saved) else None


def _put(node, position, saved):
    operands = list(node.operands)
    operands[position] = saved
    node.operands, node.recording = tuple(operands), None


def _shown(node, raw):
    if node.released:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Specify retain_graph=True if you need to access saved tensors after calling backward."
        )
    saved = raw.read()
    if saved is None:
        return None
    if saved is node.out:
        return node._restore_output()
    return node._restore(saved, 0)
