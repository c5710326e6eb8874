"""Inference tensors, and what inference mode leaves behind: views of ordinary tensors that have no history.

An inference tensor is made in inference_mode (tensor.py: InferenceStorage). Outside of it, it is changed in place
nowhere, and no node saves it. A view that is made there of an ordinary tensor is an ordinary tensor and requires
gradients if that does, but nothing has recorded how it came about: it is a leaf. Changing it outside is an error; if
its base changes, asking for its history is one.
"""

from ...compiler.ops.view import detach
from ..state.modes import state
from ..state.tensor import Tensor, is_inference
from .node import BaseNode

_ADVICE = (
    "Given that this use case is ambiguous and error-prone, it is forbidden: move both the view and the in-place "
    "change into the inference_mode block, or both out of it"
)


def require_inference_mode(target):
    """RuntimeError for an in-place change of an inference tensor in a place where other tensors are ordinary ones."""
    if is_inference(target) and not state.inference:
        raise RuntimeError(
            f"Inplace update to inference tensor outside InferenceMode is not allowed (shape {target.shape}). You can "
            "make a clone to get a normal tensor before doing inplace update."
        )


def show_inferred(op, out, shown):
    """`out` was made in inference mode, as a view of `shown`."""
    is_view = out._base is not None and op is not detach
    if is_view and shown._requires_grad and not is_inference(shown) and out.dtype.is_differentiable:
        out._requires_grad = True


def views_of(base):
    """The living tensors that show a base's memory, with its version."""
    storage = base._storage
    sharers = () if storage is None else storage.living_sharers()
    return [t for t in sharers if isinstance(t, Tensor) and t._base is base]


def inferred_among(views, base):
    """Those of a base's living views that were made in inference mode."""
    if not base._requires_grad:
        return ()
    return [t for t in views if t._requires_grad and t.is_leaf]


def refuse_inferred(target):
    """RuntimeError for an in-place change, while gradients are recorded, of a view made in inference mode."""
    if target._base is not None and target._base._requires_grad:
        raise RuntimeError(
            f"A view was created in inference mode and is being modified inplace in normal mode (shape "
            f"{target.shape}). {_ADVICE}."
        )


def spoil(views):
    """The base of these has changed: what they are now is not known to autograd."""
    for shown in views:
        shown._node = Spoiled()


class Spoiled(BaseNode):
    """Stands where the history of a view would be."""

    __slots__ = ()

    def __init__(self):
        super().__init__(())

    @property
    def n_outputs(self):
        """Asked for by everybody who wants to go on from here."""
        return self.require_known()

    def require_known(self):
        raise RuntimeError(
            "A view was created in inference mode and its base or another view of its base has been modified inplace "
            f"in normal mode. {_ADVICE}."
        )
