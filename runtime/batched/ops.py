"""Ops on tensors of one sample each, computed for all samples at once."""

from ...compiler.autodiff import has_rule
from ...compiler.ops.batching import NoRule, rule_of, sample_by_sample
from ...compiler.ops.kinds import number_meta
from ...compiler.ops.source import full
from ...compiler.ops.table import Meta
from ...compiler.ops.view import data
from ..eager.gate import adopt_history, check_fits
from ..eager.node import Node, edge_of
from ..eager.plan import add_attributes
from ..state.modes import state
from ..state.tensor import Tensor, shape_of
from .batch import batch_of, has_outer_history, tensor_of_batch, tensor_showing


def apply(batch, op, operands, attributes):
    """What an op gives, as the tensor of one sample of the innermost vmap that any operand is of."""
    level = None
    for x in operands:
        b = batch_of(x)
        if b is not None and (level is None or b.level.number > level.number):
            level = b.level
    if level is None:
        return _asked_of(batch, op, operands, attributes)
    if not level.is_open:
        raise batch.as_samples("values")
    key, physical = [op, state.default_dtype], []
    for x in operands:
        b = batch_of(x)
        if b is not None and b.level is level:
            physical.append(b.physical)
            key += b.is_varied, b.shape, b.dtype
        else:
            physical.append(x)
            key += (None, shape_of(x), x.dtype) if isinstance(x, Tensor) else (x.__class__,)
    key = add_attributes(tuple(key), attributes)
    way = _ways.get(key)
    if way is None:
        way = _Way(level, op, operands, attributes)
        if len(_ways) >= _MOST_WAYS:
            _ways.clear()
        if key is not None:
            _ways[key] = way
    result = way.result(level, operands, physical, attributes)
    out = _shown(op, operands, way.mine, result, way.is_varied)
    if out is None:
        out = tensor_of_batch(level, result, way.is_varied)
    if state.grad_enabled:
        _record(level, op, operands, attributes, way.mine, out)
    return out


_ways, _MOST_WAYS = {}, 1 << 12


class _Way:
    """How an op is computed for all samples, of operands of these kinds: by its rule, by what it is made of, or sample
    by sample. Raises the op's own errors for operands of one sample.

    types: those to which operands are converted before, or None. has_shown: whether a result was as it should be.
    """

    __slots__ = ("op", "metas", "meta", "mine", "varied", "is_varied", "rule", "types", "has_shown")

    def __init__(self, level, op, operands, attributes):
        self.op, found = op, [batch_of(x) for x in operands]
        self.metas = [Meta(shape_of(x), x.dtype) if isinstance(x, Tensor) else number_meta(x) for x in operands]
        self.meta = op.infer(self.metas, attributes, state.default_dtype)
        self.mine = [b is not None and b.level is level for b in found]
        self.varied = [is_mine and b.is_varied for b, is_mine in zip(found, self.mine)]
        self.is_varied = True in self.varied
        self.rule, self.types, self.has_shown = rule_of(op, self.metas, attributes), None, False
        if self.rule is not None and not self._find_types():
            self.rule = None

    def _find_types(self):
        """A sample without dimensions does not decide a type, of which all have one together: operands are converted
        before. False if to which type is unknown."""
        metas = self.metas
        if not any(v and not m.shape for v, m in zip(self.varied, metas)):
            return True
        types = [m.dtype for m in metas if not m.weak]
        if all(d is types[0] for d in types):
            return True
        if self.op.compute_dtype is None:
            return False
        self.types = self.op.compute_dtype(metas, state.default_dtype)[0]
        return True

    def result(self, level, operands, physical, attributes):
        """What all samples give, or the one sample that all are."""
        op = self.op
        if not self.is_varied:
            return op(*physical, **attributes)
        if self.rule is not None:
            given = physical if self.types is None else list(map(_of_type, physical, self.types))
            try:
                result = self.rule(op, level.size, given, self.varied, self.metas, attributes)
            except NoRule:
                result = None
            if result is not None and (self.has_shown or self._is_as_expected(result, level)):
                self.has_shown = True
                return result
            self.rule = None
        if op.decompose is not None:
            result = _decomposed(level, op, operands, attributes)
            if result is not None and self._is_as_expected(result, level):
                return result
        return sample_by_sample(op, level.size, physical, self.varied, attributes)

    def _is_as_expected(self, result, level):
        return shape_of(result) == (level.size, *self.meta.shape) and result.dtype is self.meta.dtype


def _of_type(x, dtype):
    return x.to(dtype) if isinstance(x, Tensor) and x.dtype is not dtype else x


def _asked_of(batch, op, operands, attributes):
    """A source made beside a tensor of one sample: numbers of every sample's own, since one may be written to."""
    if op is full and batch.is_varied:
        return batch.filled(attributes["shape"], *operands, attributes["dtype"])
    return tensor_of_batch(batch.level, batch.physical.apply_op(op, operands, attributes), False)


def _decomposed(level, op, operands, attributes):
    """The same by the ops that a composite is made of, whose nodes nobody wants."""
    given = [x if batch_of(x) is None else _without_history(level, x) for x in operands]
    batch = batch_of(op.decompose(*given, **attributes))
    if batch is None or batch.level is not level:
        return None
    return batch.physical if batch.is_varied else None


def _without_history(level, x):
    batch = x._meta
    return tensor_of_batch(level, batch.physical, batch.is_varied) if batch.level is level else x


def _shown(op, operands, mine, result, is_varied):
    """The result as a view of the first operand, if it shows its memory; else None."""
    if not mine[:1] or not mine[0] or op.kind != "view" and "view" not in op.extra:
        return None
    x = operands[0]
    if op is data:
        out = tensor_of_batch(x._meta.level, result, is_varied)
        out.share_memory(x)
        return out
    of = x._meta.physical
    shows = result._base is not None and (result._base is of or result._base is of._base)
    return tensor_showing(x, result, is_varied) if shows else None


def _record(level, op, operands, attributes, mine, out):
    """The node of one sample, if gradients flow to an operand of this level. Those of others are found by the nodes of
    all samples."""
    requires = [is_mine and x._requires_grad for x, is_mine in zip(operands, mine)]
    if True not in requires or not out.dtype.is_differentiable:
        return
    edges = tuple([edge_of(x) if r and has_rule(op, k) else None for k, (x, r) in enumerate(zip(operands, requires))])
    if any(e is not None for e in edges):
        if state.frame is not None:
            # What is saved asks a tensor for its version, which of one of all samples would ask the call.
            operands = [
                tensor_of_batch(level, x, False) if isinstance(x, Tensor) and not is_mine else x
                for x, is_mine in zip(operands, mine)
            ]
        out._requires_grad = True
        out._node = Node(op, attributes, operands, out, edges)


# --- in place -------------------------------------------------------------------------------------------------------
def change(op, target, operands, attributes):
    """target's samples become op(*operands), each its own. Returns the target."""
    batch = target._meta
    if batch.level.is_given(batch.physical):
        raise batch.as_samples("memory")  # what has happened to an argument could not be undone
    if state.grad_enabled and any(isinstance(x, Tensor) and _has_history(x) for x in operands):
        # What is saved is what the target was, in both histories.
        old = batch.copied()
        old._node, old._requires_grad = target._node, target._requires_grad
        operands = tuple([old if x is target else x for x in operands])
    new = _asked_of(batch, op, operands, attributes) if op.kind == "source" else op(*operands, **attributes)
    check_fits(op.name, target, new)
    made = batch_of(new)
    if made is not None and (made.level is not batch.level or made.is_varied and not batch.is_varied):
        raise (made if made.level.number > batch.level.number else batch).as_samples("memory")
    if state.frame is not None and new._node is not None and (target._base is not None or _is_shared(target)):
        raise batch.as_samples("memory")
    batch.physical.copy_(new if made is None else made.physical)
    target.bump_version()
    adopt_history(target, new)
    return target


def _has_history(x):
    return x._requires_grad or has_outer_history(x)


def _is_shared(target):
    storage = target._storage
    return storage is not None and any(x is not target for x in storage.living_sharers())
