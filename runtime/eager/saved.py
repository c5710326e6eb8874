"""A tensor that a node keeps for backward."""

from ..state.tensor import is_inference, shape_of


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
