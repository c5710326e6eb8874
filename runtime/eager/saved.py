"""A tensor that a node keeps for backward, and what it keeps of one that it does not need."""

from ...compiler.ops.kinds import number_meta
from ...compiler.ops.table import Meta
from ..state.modes import state
from ..state.tensor import Tensor, _apply, is_inference, shape_of


class Saved:
    """A tensor kept for backward, with the version its memory had."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor):
        self.tensor = tensor
        self.version = tensor._version

    @property
    def meta(self):
        """(shape, type)"""
        return self.tensor.shape, self.tensor.dtype


def meta_of(x):
    """The Meta of an operand, a tensor or a number."""
    return Meta(x.shape, x.dtype) if isinstance(x, Tensor) else number_meta(x)


class Shape:
    """Stands for an operand whose values the derivative does not read."""

    __slots__ = ("shape", "dtype")
    weak = False

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype

    @property
    def ndim(self):
        return len(self.shape)

    def as_type(self, dtype):
        return Shape(self.shape, dtype)

    def apply_op(self, op, operands, attributes):
        if op.kind == "view":
            # A rule that asks for the shape of a view: no values are read (needs.py).
            metas = [x if hasattr(x, "shape") else number_meta(x) for x in operands]
            meta = op.infer(metas, attributes, state.default_dtype)
            return Shape(meta.shape, meta.dtype)
        return _apply(op, operands, attributes)


class ShapeElsewhere(Shape):
    """The same on another device: `there` is what knows it, and makes what is asked of the shape."""

    __slots__ = ("there",)

    def __init__(self, shape, dtype, there):
        super().__init__(shape, dtype)
        self.there = there

    def as_type(self, dtype):
        return ShapeElsewhere(self.shape, dtype, self.there)

    def apply_op(self, op, operands, attributes):
        if op.kind == "view":
            return super().apply_op(op, operands, attributes)
        return self.there.apply(op, operands, attributes)


def on_device(there, x):
    """What a rule is given that computes there: a Shape of there for a Shape."""
    return ShapeElsewhere(x.shape, x.dtype, there) if x.__class__ is Shape else x


def check_version(saved, what):
    """RuntimeError if the memory of a saved tensor has changed since then."""
    if saved.tensor._version != saved.version:
        t = saved.tensor
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"{t.dtype.name}{t.shape}, needed by {what}, is at version {t._version}; expected version {saved.version} "
            "instead. Change a copy (x = x.clone()) or do the change after backward()."
        )


def to_save(tensor):
    """The tensor, if it may be saved. Of an inference tensor nobody counts versions, so only what has no derivative
    itself, such as an index, is taken as it is."""
    if is_inference(tensor) and tensor.dtype.is_differentiable:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
            f"computation tracked by autograd (this one is {tensor.dtype.name}{shape_of(tensor)}). To work around "
            "this, you can make a clone to get a normal tensor and use it in autograd, or use `weft.no_grad()` instead "
            "of `weft.inference_mode()`."
        )
    return tensor
