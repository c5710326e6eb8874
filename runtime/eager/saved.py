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
