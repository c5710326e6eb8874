"""Forward mode: in a dual level tangents go along with tensors, op by op, in eager mode.

    x  --entry of the level-->  tangent of x          (it goes when x goes, or the level ends)

The result of an op of which an operand has a tangent has one too. Of a view it is the same view of the operand's
tangent, so that both change together. Of all other ops it is found without rules of its own: the vjp is linear in the
cotangent u, and its derivative for u, with the tangent t as the cotangent, is the product with the Jacobian:

    J t = d/du <vjp(u), t>

An in-place change of a tensor changes its tangent in place. Gradients have tangents too, since backward passes are made
of ops: that is the product of a Hessian with a vector.
"""

from weakref import ref

import numpy as np

from ...compiler.autodiff import has_rule, vjp
from ...compiler.ops.kinds import is_unknown
from ...compiler.ops.view import clone, data, detach
from ...compiler.storage import convert
from ..state.modes import state, step_out, watching
from ..state.storage import is_apart
from ..state.tensor import Tensor, tensor_of
from . import engine
from .gate import apply_inplace
from .node import edge_of
from .plan import is_view_op
from .rebase import place_of

_WITHOUT = (detach, data)  # what these return has no tangent


class Level:
    """The tangents of one dual level, of the thread that has entered it. Code of it runs eagerly, also in a compiled
    call, which stands by."""

    def __init__(self):
        self.entries = {}  # id of a tensor -> (weak reference to it, its tangent)
        self.block = step_out("forward mode: tangents go along with every op")
        state.level = self
        state.forward = self if state.forward_enabled else None
        watching.append(self)

    def exit(self):
        watching.remove(self)
        state.level = state.forward = None
        self.entries.clear()
        self.block.__exit__(None, None, None)

    # --- tangents ---------------------------------------------------------------------------------------------------
    def own_tangent(self, x):
        entry = self.entries.get(id(x))
        return None if entry is None else entry[1]

    def tangent(self, x):
        """The tangent of a tensor, for a view of what has been given one that part of it; None if there is none."""
        found = self.own_tangent(x)
        base = x._base
        if found is not None or base is None or is_apart(x) or self.own_tangent(base) is None:
            return found
        of_base = self.own_tangent(base)
        if base.dtype is not x.dtype or not (base.array.flags.c_contiguous and of_base.array.flags.c_contiguous):
            raise NotImplementedError(
                f"forward mode: the tangent of a view of shape {x.shape}, made before its base of shape {base.shape} "
                "got one, is known only where base and tangent lie in memory in their order; make the view again"
            )
        found = tensor_of(place_of(x.array, base.array).in_memory(of_base.array))
        found.share_storage(of_base)
        found._base = of_base
        self.set(x, found)
        return found

    def set(self, x, tangent):
        entries, key = self.entries, id(x)
        entries[key] = ref(x, lambda _: entries.pop(key, None)), tangent

    def carry(self, alias, x):
        """`alias` stands for x."""
        tangent = self.own_tangent(x)
        if tangent is not None:
            self.set(alias, tangent)

    def tangents(self, operands):
        """Those of the operands; None where there are none."""
        return [self.tangent(x) if isinstance(x, Tensor) else None for x in operands]

    # --- ops --------------------------------------------------------------------------------------------------------
    def apply(self, apply, op, operands, attributes):
        """The result of apply(op, operands, attributes), which has a tangent if an operand has one."""
        tangents = self.tangents(operands)
        with without_tangents():
            out = apply(op, operands, attributes)
            tangent = _tangent_of(op, operands, tangents, out, attributes)
        if tangent is not None:
            self.set(out, tangent)
            saved = getattr(getattr(out._node, "out", None), "tensor", None)
            if saved is not None and saved is not out:
                self.set(saved, tangent)
        return out

    def change(self, change, op, target, operands, attributes):
        """change(op, target, operands, attributes), which changes the target in place, and its tangent."""
        tangents = self.tangents(operands)
        own, tangent = self.tangent(target), None
        with without_tangents():
            if any(t is not None for t in tangents):
                out = op(*operands, **attributes)
                tangent = _tangent_of(op, operands, tangents, out, attributes)
            change(op, target, operands, attributes)
            if own is None and tangent is not None:
                own = self._given(target)
            if own is not None:
                self._write(own, tangent)
        return target

    def _given(self, target):
        """A tangent of zeros for a tensor that had none; for a view, the part of one that its base has from now on."""
        base = target if target._base is None or is_apart(target) else target._base
        self.set(base, tensor_of(np.zeros(base.shape, base.dtype.numpy)))
        return self.tangent(target)

    def _write(self, own, tangent):
        if tangent is None:
            tangent = tensor_of(np.zeros(own.shape, own.dtype.numpy))
        recorded = state.grad_enabled
        state.grad_enabled = recorded and tangent._requires_grad
        try:
            apply_inplace(clone, own, (tangent,), {})
        finally:
            state.grad_enabled = recorded

    def give_function(self, function, context, args, outputs):
        """The outputs of a custom Function get the tangents that its jvp returns."""
        tangents = self.tangents(args)
        if all(t is None for t in tangents):
            return
        if context.materialize_grads:
            tangents = [_zeros_like(x) if t is None else t for x, t in zip(args, tangents)]
        versions = [None if t is None else t._version for t in tangents]
        with without_tangents():
            found = _call_jvp(function, context, tangents)
        if len(found) != len(outputs):
            raise RuntimeError(
                f"{function.__name__}: the jvp returned {len(found)} values, the forward {len(outputs)}; for every "
                "output of the forward the jvp must return its tangent, or None"
            )
        for k, (out, tangent) in enumerate(zip(outputs, found)):
            if tangent is not None:
                changed = [t for t, version in zip(tangents, versions) if t is not None and t._version != version]
                _check_tangent(function, context, args, tangents, changed, k, out, tangent)
                self.set(out, tangent)


def set_enabled(enabled):
    """Whether ops of this thread pass tangents on. Returns what was so before."""
    before, state.forward_enabled = state.forward_enabled, bool(enabled)
    state.forward = state.level if enabled else None
    return before


class without_tangents:
    """A `with` block whose ops pass no tangents on."""

    def __enter__(self):
        self.before, state.forward = state.forward, None

    def __exit__(self, *exception):
        state.forward = self.before


def _tangent_of(op, operands, tangents, out, attributes):
    """The tangent of the result of an op; None if it has none."""
    given = [k for k, t in enumerate(tangents) if t is not None]
    if not given or op in _WITHOUT or not out.dtype.is_differentiable:
        return None
    if is_view_op(op) and out._base is not None and len(operands) == 1:
        return op(tangents[0], **attributes)
    requires = any(x._requires_grad for k in given for x in (operands[k], tangents[k]))
    recorded = state.grad_enabled
    state.grad_enabled = True
    try:
        tangent = _product(op, operands, tangents, out, attributes, recorded and requires)
        if any(np.may_share_memory(tangent.array, tangents[k].array) for k in given):
            tangent = clone(tangent)
    finally:
        state.grad_enabled = recorded
    return tangent


def _product(op, operands, tangents, out, attributes, create_graph):
    """J t, as the derivative of the vjp for its cotangent."""
    # Any would do, but for rules that leave out what a cotangent of zeros says nothing of (linalg.svd).
    cotangent = tensor_of(convert(np.ones(out.shape, np.float32), out.dtype))
    cotangent._requires_grad = True
    roots = []
    for k, tangent in enumerate(tangents):
        if tangent is None:
            continue
        if has_rule(op, k) and not is_unknown(op, k):
            gradient = vjp(op, k, cotangent, out, operands, attributes)
            if gradient is not None and gradient._requires_grad:
                roots.append((edge_of(gradient), tangent))
        elif op.kind == "library" and any(has_rule(op, other) for other in range(len(operands))):
            # An op without any rule is constant between its steps; one that has some lacks this one.
            raise NotImplementedError(
                f"Trying to use forward AD with {op.name} that does not support it: there is no derivative for operand "
                f"{k}. Give unpack_dual(x).primal there"
            )
    if not roots:
        return tensor_of(np.zeros(out.shape, out.dtype.numpy))
    found = engine.run(roots, retain_graph=True, create_graph=create_graph, wanted=[edge_of(cotangent)])[0]
    return tensor_of(np.zeros(out.shape, out.dtype.numpy)) if found is None else found


# --- autograd.Function ------------------------------------------------------------------------------------------------
def _call_jvp(function, context, tangents):
    context._in_jvp = True
    try:
        found = function.jvp(context, *tangents)
    finally:
        context._in_jvp = False
    return found if isinstance(found, tuple) else (found,)


def _zeros_like(x):
    is_differentiable = isinstance(x, Tensor) and x.dtype.is_differentiable
    return tensor_of(np.zeros(x.shape, x.dtype.numpy)) if is_differentiable else None


def _check_tangent(function, context, args, tangents, changed, k, out, tangent):
    name = function.__name__
    if not isinstance(out, Tensor) or not out.dtype.is_differentiable or _is_in(out, context._non_differentiable):
        raise RuntimeError(
            f"{name}: the jvp returned a tangent for output {k}, which is no tensor that can have one, or was marked "
            "as non-differentiable. You should return None at that position instead"
        )
    if not isinstance(tangent, Tensor) or tangent.shape != out.shape or tangent.dtype is not out.dtype:
        shown = f"{tangent.dtype.name}{tangent.shape}" if isinstance(tangent, Tensor) else type(tangent).__name__
        raise RuntimeError(
            f"{name}: the jvp returned {shown} for output {k}, which is {out.dtype.name}{out.shape}; shape and type of "
            "a tangent must be those of the output"
        )
    if _is_in(out, context._dirty):
        if not any(out is x and tangent is t for x, t in zip(args, tangents)) or not _is_in(tangent, changed):
            raise RuntimeError(
                f"An inplace custom Function is not modifying the forward mode gradients inplace: the forward of "
                f"{name} changes an input in place, so the jvp function must modify the corresponding gradient inplace "
                "and return it"
            )
        return
    _check_view(name, args, tangents, out, tangent)


def _is_in(x, tensors):
    return any(x is y for y in tensors)


def _check_view(name, args, tangents, out, tangent):
    """RuntimeError where an output shows the memory of an input, and its tangent not that of the input's tangent."""
    if out._base is None:
        return
    shown = [t for x, t in zip(args, tangents) if isinstance(x, Tensor) and _root(x) is out._base and t is not None]
    if not shown or any(tangent._base is _root(t) for t in shown):
        return
    message = (
        f"{name}: A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning"
    )
    if tangent._base is None:
        raise RuntimeError(f"{message} a view. Return a view of the input's tangent")
    if shown[0]._base is None:
        raise RuntimeError(f"{message} a view of the given input's tangent")
    raise RuntimeError(f"{message} a view of the same base as the input's tangent")


def _root(x):
    return x if x._base is None else x._base
