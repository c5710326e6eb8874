"""What the tensor of one sample has in place of an array, where all samples are computed at once.

A Batch is the `_meta` of its tensor (runtime/state/elsewhere.py), whose shape is that of one sample. It holds the
tensor of all samples, `physical`, with their dimension in front. So there are two histories. Nodes that a function of
one sample asks for, as func.grad does, are those of its own tensors: their rules run on such tensors again, all samples
at once. What differentiates from outside finds the nodes of the physical tensors.

vmaps inside each other are levels: the physical tensor of an inner one may be a tensor of one sample of an outer one.
"""

import threading
from math import prod

from ...compiler.later import later
from ...compiler.ops.source import full
from ...compiler.ops.view import clone, expand, reshape
from ..state.elsewhere import samples_at_work, used
from ..state.modes import state
from ..state.tensor import Tensor, shape_of, tensor_of

_apply, _change = map(later, ("runtime.batched.ops:apply", "runtime.batched.ops:change"))


# Of so few samples one after the other takes less time than what is added to the cost of each op.
FEW = 8


class SampleBySample(BaseException):
    """A function asks what only a single sample can answer: its vmap calls it once per sample.

    No Exception, so that the function itself does not catch it. `level` is that of the vmap.
    """

    def __init__(self, level, reason):
        super().__init__(level, reason)
        self.level, self.reason = level, reason


class _Levels(threading.local):
    """The vmaps at work around the code that runs, the innermost last."""

    def __init__(self):
        self.open = []


_levels = _Levels()


class Level:
    """A vmap at work, as a `with` block: how many samples it has, and its number among those around it."""

    __slots__ = ("size", "number", "given", "draws_apart", "outer")

    def __init__(self, size, given=(), draws_apart=False):
        """given: the tensors of all samples. draws_apart: whether samples draw numbers of their own."""
        self.size, self.given, self.draws_apart = size, [_whole(x) for x in given], draws_apart

    def is_given(self, physical):
        """Whether a tensor shows the memory of what the vmap was given."""
        whole = _whole(physical)
        return any(whole is x for x in self.given)

    def __enter__(self):
        self.number = len(_levels.open)
        _levels.open.append(self)
        samples_at_work.append(self)
        self.outer = state.drawn_apart
        if self.draws_apart:
            state.drawn_apart = self._drawn
        if not used:
            used.append(True)
        return self

    def __exit__(self, *exception):
        _levels.open.pop()
        samples_at_work.remove(self)
        state.drawn_apart = self.outer

    def _drawn(self, how, shape):
        """What how(shape) draws, for each sample."""
        own, state.drawn_apart = state.drawn_apart, self.outer
        try:
            return tensor_of_batch(self, how((self.size, *shape)), True)
        finally:
            state.drawn_apart = own

    @property
    def is_open(self):
        return self.number < len(_levels.open) and _levels.open[self.number] is self


def innermost():
    """The level of the innermost vmap at work, or None."""
    return _levels.open[-1] if _levels.open else None


def _whole(x):
    return x if x._base is None else x._base


class Batch:
    """The samples of a tensor. `is_varied`: whether they differ, in the first dimension of `physical`; if not, that is
    the one sample that all of them are."""

    __slots__ = ("level", "physical", "is_varied", "shape", "dtype", "__weakref__")
    weak = False
    gpu = None

    def __init__(self, level, physical, is_varied):
        self.level, self.physical, self.is_varied = level, physical, is_varied
        shape = shape_of(physical)
        self.shape, self.dtype = shape[1:] if is_varied else shape, physical.dtype

    @property
    def device(self):
        return self.physical.device

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return prod(self.shape)

    def version(self, storage):
        """Of the memory, which others may change who know the tensor of all samples alone. `storage`: the tensor's."""
        x, own = self.physical, 0 if storage is None else storage.version
        if x._data is None and x._storage is None and x._frame is not None:
            # Of a view that a call in flight has made what it shows knows it.
            x = x if x._base is None else x._base
            return own if x._storage is None else own + x._storage.version
        return own + x._version

    @property
    def strides(self):
        """Of one sample: what `stride` of the physical tensor says but for its first dimension."""
        strides = self.physical.stride()
        return strides[1:] if self.is_varied else strides

    @property
    def is_contiguous(self):
        return self.physical.is_contiguous()

    @property
    def address(self):
        raise self.as_samples("memory")

    def filled(self, shape, value, dtype):
        """A tensor of one number for one sample, each of which has its own: it may be written to."""
        size = self.level.size
        if size == 1:
            # All is one sample (rows_at_once.py: together).
            physical = self.physical.apply_op(full, (value,), {"shape": tuple(shape), "dtype": dtype})
            return tensor_of_batch(self.level, physical, False)
        physical = self.physical.apply_op(full, (value,), {"shape": (size, *shape), "dtype": dtype})
        return tensor_of_batch(self.level, physical, True)

    def array_of_one(self):
        """The array of one sample: where its elements lie, in memory of all."""
        if state.frame is not None:
            raise self.as_samples("memory")
        inner = batch_of(self.physical)
        array = self.physical.array if inner is None else inner.array_of_one()
        return array[0, ...] if self.is_varied else array

    def copied(self):
        """A tensor with the same elements in memory of its own, without a history as that of one sample."""
        return tensor_of_batch(self.level, clone(self.physical), self.is_varied)

    def as_samples(self, what):
        """The exception that makes the vmap call its function once per sample; RuntimeError if it is over."""
        if self.level.is_open:
            return SampleBySample(self.level, what)
        return RuntimeError(
            f"a tensor of one sample was kept by a function given to vmap, and asked for its {what} after vmap was "
            "done: only what the function returns is a tensor of all samples. Return it"
        )

    # --- what is asked of it (runtime/gpu/arrays.py) ------------------------------------------------------------------
    def refuse(self):
        """Somebody has asked for an array."""
        raise self.as_samples("values")

    to_array = refuse

    def apply(self, op, operands, attributes):
        """The op on these operands, one of which is a tensor of this batch, or which is asked of one."""
        return _apply(self, op, operands, attributes)

    def change(self, op, target, operands, attributes):
        """`target`, the tensor of this batch, becomes what the op gives."""
        return _change(op, target, operands, attributes)

    def update(self, rule, row, numbers, flags):
        """Optimizers update parameters of one sample each."""
        raise self.as_samples("memory")

    def derive(self, node, wanted, given):
        """Derivatives are computed op by op."""
        return None


def tensor_of_batch(level, physical, is_varied):
    """The tensor of one sample whose samples these are."""
    made = tensor_of(None)
    made._meta = Batch(level, physical, is_varied)
    return made


def tensor_showing(operand, physical, is_varied):
    """The same of a tensor that shows the memory of another tensor's: a view of it."""
    made = tensor_of_batch(operand._meta.level, physical, is_varied)
    made.share_storage(operand)
    made._base = operand if operand._base is None else operand._base
    return made


def batch_of(x):
    """The Batch of a tensor of one sample; None for everything else."""
    meta = x._meta if isinstance(x, Tensor) and x._data is None else None
    return meta if meta.__class__ is Batch else None


def alone(x):
    """The tensor of one sample without the history that it has as one; that of all samples stays."""
    batch = x._meta
    return tensor_of_batch(batch.level, batch.physical, batch.is_varied)


def all_samples(level, x):
    """The samples of a tensor, in front: copies, if all are one."""
    batch = batch_of(x)
    if batch is None or batch.level is not level:
        return _repeated(level, x)
    return batch.physical if batch.is_varied else _repeated(level, batch.physical)


def _repeated(level, x):
    shape = tuple(x.shape)
    return clone(expand(reshape(x, shape=(1, *shape)), shape=(level.size, *shape)))


def as_sample(x):
    """The tensor of one sample of the innermost vmap that has these elements, without a history as such; None if no
    vmap is at work."""
    level, batch = innermost(), batch_of(x)
    if level is None:
        return None
    return alone(x) if batch is not None and batch.level is level else tensor_of_batch(level, x, False)


def is_of_all_samples(x):
    """Whether a vmap is at work, and x is nothing that it has made."""
    level, batch = innermost(), batch_of(x)
    return level is not None and (batch is None or batch.level is not level)


def has_outer_history(x):
    """Whether what differentiates from outside of the vmap finds how the samples came about."""
    batch = batch_of(x)
    return batch is not None and (batch.physical.requires_grad or has_outer_history(batch.physical))
